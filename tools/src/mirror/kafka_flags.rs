//! The command line of the proposal: `kafka-cluster-mirrors.sh --create …` (KIP-1279).
//!
//! Only flags are translated here; what is done is done by the verbs. As in Kafka's tools, every error
//! ends with code 1, and a stop returns as soon as it is taken down.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{
    ChangeArguments, CreateArguments, DeleteArguments, DescribeArguments, HowToStop, HowToWait,
    ListArguments, Named, RecoverArguments, ResumeArguments, StartArguments, StopArguments, Style, changes,
    stopping, verbs,
};
use crate::admin::on_core;
use crate::connect::ConnectArguments;
use crate::failure::Failure;

/// The name of the hidden command that the script runs.
pub(crate) const KAFKA_NAME: &str = "kafka-cluster-mirrors";

/// Create, start, stop, list, describe and delete cluster mirrors, with the options of KIP-1279.
#[derive(Debug, Args)]
#[command(version, group = ArgGroup::new("action").required(true))]
pub(crate) struct KafkaArguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// Create a mirror
    #[arg(long, group = "action", requires = "mirror", requires = "mirror_config")]
    create: bool,
    /// Begin to mirror topics
    #[arg(long, group = "action", requires = "mirror", requires = "topics")]
    start: bool,
    /// Stop mirroring topics and make them writable
    #[arg(long, group = "action", requires = "mirror", requires = "topics")]
    stop: bool,
    /// Hold mirroring, topics staying read-only
    #[arg(long, group = "action", requires = "mirror", requires = "topics")]
    pause: bool,
    /// Go on after a pause
    #[arg(long, group = "action", requires = "mirror", requires = "topics")]
    resume: bool,
    /// Try partitions again that have failed
    #[arg(long, group = "action", requires = "mirror", requires = "topics")]
    recover: bool,
    /// Delete a mirror whose topics are all stopped
    #[arg(long, group = "action", requires = "mirror")]
    delete: bool,
    /// List the mirrors
    #[arg(long, group = "action")]
    list: bool,
    /// Show what each mirrored partition does, and how far behind it is
    #[arg(long, group = "action")]
    describe: bool,
    /// The mirror's name
    #[arg(long, value_name = "NAME")]
    mirror: Option<String>,
    /// A properties file about the source
    #[arg(long, value_name = "FILE")]
    mirror_config: Option<PathBuf>,
    /// Names or regular expressions of topics
    #[arg(long, value_name = "CSV", value_delimiter = ',')]
    topics: Vec<String>,
    /// Names or regular expressions of topics to leave out; with --start
    #[arg(long, value_name = "CSV", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Print JSON; with --describe
    #[arg(long)]
    json: bool,
    /// Only partitions that have failed; with --describe
    #[arg(long)]
    failed: bool,
}

/// Does what was asked, in the manner of Kafka's tools.
pub(crate) fn run_as_kafka_does(arguments: KafkaArguments) -> Result<(), Failure> {
    arguments.check_options()?;
    on_core(move || arguments.act()).map_err(as_kafka_does)
}

/// Kafka's tools know one code for whatever went wrong.
fn as_kafka_does(failure: Failure) -> Failure {
    match failure {
        Failure::ReaderGone => Failure::ReaderGone,
        failure => Failure::Failed(failure.to_string()),
    }
}

impl KafkaArguments {
    /// The action that was asked for.
    fn action(&self) -> &'static str {
        let actions = [
            (self.create, "create"),
            (self.start, "start"),
            (self.stop, "stop"),
            (self.pause, "pause"),
            (self.resume, "resume"),
            (self.recover, "recover"),
            (self.delete, "delete"),
            (self.list, "list"),
        ];
        actions.into_iter().find_map(|(asked, action)| asked.then_some(action)).unwrap_or("describe")
    }

    /// Fails where an option was given that means nothing to the action, in the words of Kafka's tools.
    fn check_options(&self) -> Result<(), Failure> {
        let given = [
            ("mirror", self.mirror.is_some()),
            ("mirror-config", self.mirror_config.is_some()),
            ("topics", !self.topics.is_empty()),
            ("exclude", !self.exclude.is_empty()),
            ("json", self.json),
            ("failed", self.failed),
        ];
        let action = self.action();
        let taken: &[&str] = match action {
            "create" => &["mirror", "mirror-config"],
            "start" => &["mirror", "topics", "exclude"],
            "stop" | "pause" | "resume" | "recover" => &["mirror", "topics"],
            "delete" => &["mirror"],
            "list" => &[],
            _ => &["mirror", "json", "failed"],
        };
        match given.iter().find(|(option, is_given)| *is_given && !taken.contains(option)) {
            None => Ok(()),
            Some((option, _)) => Err(Failure::Failed(format!(
                "Option \"[{option}]\" can't be used with option \"[{action}]\""
            ))),
        }
    }

    async fn act(self) -> Result<(), Failure> {
        let style = if self.json { Style::Json } else { Style::Proposal };
        let action = self.action();
        let KafkaArguments { connect, mirror, mirror_config, topics, exclude, json, failed, .. } = self;
        if action == "list" {
            return verbs::list(ListArguments { connect, json: false }, style).await;
        }
        if action == "describe" {
            return verbs::describe(DescribeArguments { connect, mirror, failed, tasks: false, json }, style)
                .await;
        }
        let named = Named { connect, mirror: mirror.unwrap_or_default() };
        let change = |named, topics| ChangeArguments { named, topics, dry_run: false, json };
        match (action, mirror_config) {
            ("create", Some(mirror_config)) => {
                verbs::create(CreateArguments { named, mirror_config, json }, style).await
            }
            ("stop", _) => {
                let how = HowToStop { no_wait: true, json, ..HowToStop::default() };
                stopping::stop(StopArguments { named, topics, how }, style).await
            }
            ("pause", _) => changes::pause(change(named, topics), style).await,
            ("resume", _) => {
                let (change, wait) = (change(named, topics), HowToWait::default());
                changes::resume(ResumeArguments { change, wait }, style).await
            }
            ("recover", _) => {
                let (change, wait) = (change(named, topics), HowToWait::default());
                changes::recover(RecoverArguments { change, allow_truncation: false, wait }, style).await
            }
            ("delete", _) => changes::delete(DeleteArguments { named, dry_run: false, json }, style).await,
            _ => {
                let start = StartArguments {
                    named,
                    topics,
                    exclude,
                    allow_truncation: false,
                    dry_run: false,
                    wait: false,
                    timeout: None,
                    json,
                };
                verbs::start(start, style).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: KafkaArguments,
    }

    #[test]
    fn an_option_that_does_not_fit_the_action_is_refused_in_the_words_of_kafkas_tools() {
        let refused = |line: &str| {
            let words = ["tool", "--bootstrap-server", "localhost:9092"].into_iter().chain(line.split(' '));
            let arguments = Line::parse_from(words).arguments;
            arguments.check_options().err().map(|failure| (failure.exit_code(), failure.to_string()))
        };
        for fits in [
            "--create --mirror m --mirror-config f",
            "--start --mirror m --topics t --exclude x",
            "--stop --mirror m --topics t",
            "--recover --mirror m --topics t",
            "--delete --mirror m",
            "--list",
            "--describe --mirror m --json --failed",
        ] {
            assert_eq!(refused(fits), None, "{fits}");
        }
        for (line, option, action) in [
            ("--stop --mirror m --topics t --exclude x", "exclude", "stop"),
            ("--list --json", "json", "list"),
            ("--list --mirror m", "mirror", "list"),
            ("--start --mirror m --topics t --failed", "failed", "start"),
            ("--create --mirror m --mirror-config f --topics t", "topics", "create"),
            ("--describe --mirror-config f", "mirror-config", "describe"),
        ] {
            let said = format!("Option \"[{option}]\" can't be used with option \"[{action}]\"");
            assert_eq!(refused(line), Some((1, said)), "{line}");
        }
    }
}
