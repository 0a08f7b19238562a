//! What `tarn mirror` asks of a cluster.

use std::io::{Write, stdout};

use tarn_image::topic_name;
use tarn_wire::messages::create_cluster_mirror_request::MirrorConfig;
use tarn_wire::messages::start_mirror_topics_response::MirrorTopicResult;
use tarn_wire::messages::{
    CreateClusterMirrorRequest, ListClusterMirrorsRequest, StartMirrorTopicsRequest,
    StartMirrorTopicsResponse,
};
use tarn_wire::{ErrorCode, Str};

use super::change_output::{self, Started};
use super::changes::Run;
use super::config;
use super::output::{self, Listed};
use super::refusal::{self, Refused};
use super::standing;
use super::truncation::Truncation;
use super::waiting::{Until, Wait, wait};
use super::{CreateArguments, DescribeArguments, ListArguments, StartArguments, Style, patterns};
use crate::admin::Cluster;
use crate::connect::properties;
use crate::failure::Failure;
use crate::progress::while_waiting;

/// Creates a mirror from a properties file.
pub(super) async fn create(arguments: CreateArguments, style: Style) -> Result<(), Failure> {
    let name = arguments.named.mirror;
    let given = properties(&arguments.mirror_config)?;
    let configs = given
        .iter()
        .map(|(key, value)| MirrorConfig { name: key.as_str().into(), value: Some(value.as_str().into()) });
    let request = CreateClusterMirrorRequest {
        mirror_name: name.as_str().into(),
        configs: configs.collect(),
        ..CreateClusterMirrorRequest::default()
    };
    let cluster = Cluster::connect(&arguments.named.connect).await?;
    let answer = while_waiting("asking the source", cluster.call_mirror_api(&request)).await?;
    let existed = answer.error_code == ErrorCode::CLUSTER_MIRROR_ALREADY_EXISTS.0;
    match existed {
        true => config::check_same(&cluster, &name, &given).await?,
        false => refusal::check(answer.error_code, answer.error_message.as_deref())?,
    }
    output::created(&mut stdout().lock(), &name, existed, style)
}

/// Starts topics, and waits for them where that is asked.
pub(super) async fn start(arguments: StartArguments, style: Style) -> Result<(), Failure> {
    let (name, address) = (&arguments.named.mirror, arguments.named.address());
    let (topics, exclude) = (patterns::checked(&arguments.topics)?, patterns::checked(&arguments.exclude)?);
    let (run, timeout_s) = (Run::of(arguments.dry_run), arguments.timeout);
    let texts = |texts: &[String]| texts.iter().map(|text| Str::from(text.as_str())).collect::<Vec<Str>>();
    let request = StartMirrorTopicsRequest {
        mirror_name: name.as_str().into(),
        include_patterns: texts(&topics),
        exclude_patterns: texts(&exclude),
        allow_truncation: arguments.allow_truncation,
        validate_only: run == Run::Dry,
        ..StartMirrorTopicsRequest::default()
    };
    let cluster = Cluster::connect(&arguments.named.connect).await?;
    let answer = while_waiting("finding the topics at the source", cluster.call_mirror_api(&request)).await?;
    refusal::check(answer.error_code, answer.error_message.as_deref())?;
    if let Some(note) = answer.error_message.as_deref().filter(|note| !note.is_empty()) {
        change_output::saved(&mut stdout().lock(), name, note, run, style)?;
        return match arguments.wait {
            true => Err(Failure::Failed(format!("there is nothing to wait for: {note}"))),
            false => Ok(()),
        };
    }
    let (started, refused) = (started(&answer), refused(&answer));
    say_started(&Asked { mirror: name, topics: &topics, run }, &answer, (&started, &refused), style)?;
    let ended = all_started(&topics, &refused, &answer);
    if !arguments.wait || (started.is_empty() && ended.is_err()) {
        return ended;
    }
    let until = Until::Copied;
    let asked = Wait { mirror: name, topics: &started, until, timeout_s, address: &address };
    refusal::after(wait(&cluster, &asked).await, ended)
}

/// What `start` was asked.
struct Asked<'a> {
    mirror: &'a str,
    topics: &'a [String],
    run: Run,
}

fn say_started(
    asked: &Asked<'_>,
    answer: &StartMirrorTopicsResponse,
    (started, refused): (&[String], &[Refused]),
    style: Style,
) -> Result<(), Failure> {
    let Asked { mirror, topics, run } = *asked;
    let only_patterns = !topics.iter().any(|asked| topic_name::is_legal(asked));
    let has_refused = style == Style::Json && !refused.is_empty();
    let begun = answer.topics.iter().filter(|topic| topic.error_code == ErrorCode::NONE.0);
    let note = |topic: &'_ MirrorTopicResult| {
        let said = topic.error_message.as_deref().filter(|said| !said.is_empty())?;
        Some((topic.name.to_string(), said.to_owned()))
    };
    let notes: Vec<(String, String)> = begun.filter_map(note).collect();
    let notes: Vec<(&str, &str)> = notes.iter().map(|(topic, said)| (&**topic, &**said)).collect();
    if !started.is_empty() || only_patterns || has_refused {
        let truncations = &would_go(answer);
        let told = Started { mirror, topics: started, truncations, refused, notes: &notes, run };
        let mut out = stdout().lock();
        change_output::started(&mut out, &told, style)?;
        out.flush()?;
    }
    for (topic, note) in notes {
        eprintln!("{topic}: {note}");
    }
    Ok(())
}

fn started(answer: &StartMirrorTopicsResponse) -> Vec<String> {
    let good = answer.topics.iter().filter(|topic| topic.error_code == ErrorCode::NONE.0);
    let mut names: Vec<String> = good.map(|topic| topic.name.to_string()).collect();
    names.sort_unstable();
    names
}

fn refused(answer: &StartMirrorTopicsResponse) -> Vec<Refused> {
    let of_topic = |topic: &MirrorTopicResult| {
        Refused::of(&topic.name, topic.error_code, topic.error_message.as_deref(), truncations(topic))
    };
    answer.topics.iter().filter_map(of_topic).collect()
}

/// What would be dropped of topics that are not refused.
fn would_go(answer: &StartMirrorTopicsResponse) -> Vec<Truncation> {
    let good = answer.topics.iter().filter(|topic| topic.error_code == ErrorCode::NONE.0);
    good.flat_map(truncations).collect()
}

fn truncations(topic: &MirrorTopicResult) -> impl Iterator<Item = Truncation> {
    topic.truncations.iter().map(|one| Truncation::from((&*topic.name, one)))
}

/// Fails where a topic was refused, or one that was named is not there. A pattern may match nothing yet.
fn all_started(
    asked: &[String],
    refused: &[Refused],
    answer: &StartMirrorTopicsResponse,
) -> Result<(), Failure> {
    refusal::of_topics(refused)?;
    let is_there = |name: &str| answer.topics.iter().any(|topic| *topic.name == *name);
    let missing: Vec<&str> = asked
        .iter()
        .map(String::as_str)
        .filter(|asked| topic_name::is_legal(asked) && !is_there(asked))
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::Precondition(format!(
            "{} is excluded from the mirror by its topics.exclude",
            missing.join(", ")
        ))),
    }
}

/// Lists the mirrors.
pub(super) async fn list(arguments: ListArguments, style: Style) -> Result<(), Failure> {
    let cluster = Cluster::connect(&arguments.connect).await?;
    let request = ListClusterMirrorsRequest { include_topic_names: false, ..Default::default() };
    let answer = while_waiting("listing", cluster.call_mirror_api(&request)).await?;
    refusal::check(answer.error_code, answer.error_message.as_deref())?;
    let mirrors = answer.mirrors.iter().map(|mirror| Listed {
        mirror: mirror.mirror_name.to_string(),
        topics: mirror.topic_count,
        source_cluster_id: mirror.source_cluster_id.to_string(),
        source_bootstrap_server: mirror.source_bootstrap.to_string(),
    });
    output::listed(&mut stdout().lock(), &mirrors.collect::<Vec<_>>(), style)
}

/// Shows the partitions of a mirror, or of all.
pub(super) async fn describe(arguments: DescribeArguments, style: Style) -> Result<(), Failure> {
    let cluster = Cluster::connect(&arguments.connect).await?;
    let mut found =
        while_waiting("asking", standing::read(&cluster, arguments.mirror.as_deref(), None)).await?;
    found.partitions.retain(|partition| !arguments.failed || partition.has_failed());
    let mut out = stdout().lock();
    match (arguments.failed, arguments.tasks, style) {
        (_, true, Style::Json) => output::tasks_json(&mut out, &found.tasks)?,
        (_, true, _) => output::tasks(&mut out, &found.tasks)?,
        (_, false, Style::Json) => output::json(&mut out, &found.partitions)?,
        (true, false, _) => {
            let attempts_max = config::attempts_max(&cluster).await;
            output::failed(&mut out, &found.partitions, attempts_max, style)?;
        }
        (false, false, _) => output::partitions(&mut out, &found.partitions, style)?,
    }
    if style == Style::Tarn && !arguments.failed && !arguments.tasks && !found.tasks.is_empty() {
        writeln!(out)?;
        output::tasks(&mut out, &found.tasks)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(topics: &[(&str, ErrorCode)]) -> StartMirrorTopicsResponse {
        let topics = topics.iter().map(|(name, code)| MirrorTopicResult {
            name: (*name).into(),
            error_code: code.0,
            ..Default::default()
        });
        StartMirrorTopicsResponse { topics: topics.collect(), ..Default::default() }
    }

    #[test]
    fn a_named_topic_must_be_there_and_a_pattern_may_match_later() {
        let asked = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let one = answer(&[("orders", ErrorCode::NONE)]);
        assert_eq!(all_started(&asked(&["orders", "later.*"]), &[], &one), Ok(()));
        let missing = all_started(&asked(&["orders", "no.such.topic"]), &[], &one).unwrap_err();
        assert_eq!(missing.exit_code(), 3);
        assert!(missing.to_string().contains("no.such.topic"));
    }

    #[test]
    fn a_topic_that_is_refused_fails_and_the_others_are_started() {
        let mixed =
            answer(&[("b", ErrorCode::NONE), ("a", ErrorCode::NONE), ("c", ErrorCode::INVALID_CONFIG)]);
        assert_eq!(started(&mixed), ["a", "b"]);
        let failure = all_started(&["[abc]".to_owned()], &refused(&mixed), &mixed).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        assert!(failure.to_string().starts_with("c: "), "{failure}");
        let both = answer(&[("a", ErrorCode::INCONSISTENT_TOPIC_ID), ("b", ErrorCode::INVALID_CONFIG)]);
        assert_eq!(
            all_started(&[], &refused(&both), &both).unwrap_err().exit_code(),
            1,
            "asking again may help one of them"
        );
        let conflict = answer(&[("a", ErrorCode::INCONSISTENT_TOPIC_ID), ("b", ErrorCode::NONE)]);
        assert_eq!(all_started(&[], &refused(&conflict), &conflict).unwrap_err().exit_code(), 3);
    }
}
