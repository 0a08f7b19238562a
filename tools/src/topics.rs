//! `tarn topics`: enough of topics for a person without Kafka's tools.

use std::io::{Write, stdout};

use clap::{Args, Subcommand};
use tarn_wire::ErrorCode;
use tarn_wire::messages::CreateTopicsRequest;
use tarn_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};

use crate::admin::{Cluster, on_core};
use crate::connect::ConnectArguments;
use crate::failure::Failure;
use crate::progress::while_waiting;

/// What to do with topics.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a topic
    Create(CreateArguments),
    /// List the topics with their partition counts and ids
    List(ListArguments),
}

#[derive(Debug, Args)]
struct CreateArguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// The topic's name
    #[arg(long)]
    topic: String,
    /// How many partitions it gets; the cluster's default where this is left out
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// How many replicas each partition gets; the cluster's default where this is left out
    #[arg(long, value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// A topic config; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    config: Vec<(String, String)>,
    /// A topic of this name that is there already is no error
    #[arg(long)]
    if_not_exists: bool,
}

#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// Leave out the topics that the cluster keeps for itself
    #[arg(long)]
    exclude_internal: bool,
}

/// Does what was asked.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Create(arguments) => on_core(move || create(arguments)),
        Verb::List(arguments) => on_core(move || list(arguments)),
    }
}

async fn create(arguments: CreateArguments) -> Result<(), Failure> {
    let cluster = Cluster::connect(&arguments.connect).await?;
    let configs = arguments.config.iter();
    let topic = CreatableTopic {
        name: arguments.topic.as_str().into(),
        num_partitions: arguments.partitions.unwrap_or(-1),
        replication_factor: arguments.replication_factor.unwrap_or(-1),
        configs: configs
            .map(|(name, value)| CreatableTopicConfig {
                name: name.as_str().into(),
                value: Some(value.as_str().into()),
            })
            .collect(),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    let controller = cluster.controller().await?;
    let answer = while_waiting("creating the topic", controller.call(&request)).await?;
    let mut out = stdout().lock();
    for result in &answer.topics {
        match ErrorCode(result.error_code) {
            ErrorCode::TOPIC_ALREADY_EXISTS if arguments.if_not_exists => {
                writeln!(out, "Topic {} exists already.", arguments.topic)?;
            }
            code => {
                Failure::check(code.0, result.error_message.as_deref())?;
                writeln!(out, "Created topic {}.", arguments.topic)?;
            }
        }
    }
    Ok(())
}

async fn list(arguments: ListArguments) -> Result<(), Failure> {
    let cluster = Cluster::connect(&arguments.connect).await?;
    let mut out = stdout().lock();
    for topic in cluster.topics().await? {
        if !(arguments.exclude_internal && topic.is_internal) {
            writeln!(out, "{}\t{} partitions\t{}", topic.name, topic.leaders.len(), topic.id)?;
        }
    }
    Ok(())
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("key=value is expected")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_may_hold_further_equals_signs() {
        assert_eq!(key_and_value("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(key_and_value("retention.ms").is_err());
    }
}
