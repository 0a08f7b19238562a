//! `tarn mirror pause|resume|recover|delete`, and what `stop` shares with them: asking the controller to want
//! something else of topics.
//!
//! What is given as a name and as a pattern is told apart here: a pattern is matched against the topics that
//! are bound to the mirror, so that no source is needed.

use std::collections::BTreeSet;
use std::io::stdout;

use tarn_image::topic_name;
use tarn_wire::Str;
use tarn_wire::messages::{
    DeleteClusterMirrorRequest, PauseMirrorTopicsRequest, RecoverMirrorTopicsRequest,
    ResumeMirrorTopicsRequest, StopMirrorTopicsRequest,
};

use super::output;
use super::refusal::{self, Range, Refused};
use super::{ChangeArguments, DeleteArguments, RecoverArguments, Style};
use crate::admin::Cluster;
use crate::failure::Failure;
use crate::progress::while_waiting;

/// What is wanted of topics from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Stop,
    Pause,
    Resume,
    Recover(Consent),
}

/// Whether records that only this cluster has may be dropped, once they are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    Refused,
    Given,
}

/// Whether it is done or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Real,
    Dry,
}

impl Run {
    pub(super) fn of(is_dry: bool) -> Run {
        if is_dry { Run::Dry } else { Run::Real }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) change: Change,
    pub(super) mirror: &'a str,
    pub(super) run: Run,
}

/// What a cluster answered for one topic.
struct Answered {
    topic: String,
    refused: Option<Refused>,
}

macro_rules! ask {
    ($cluster:expr, $request:ident, $mirror:expr, $given:expr, $run:expr, { $($field:ident: $value:expr),* }) => {{
        let (names, patterns) = told_apart($given);
        let request = $request {
            mirror_name: $mirror.into(),
            topics: names.into_iter().map(|topic_name| topic_of!($request, topic_name)).collect(),
            patterns,
            validate_only: $run == Run::Dry,
            $($field: $value,)*
            ..$request::default()
        };
        let answer = $cluster.call_mirror_api(&request).await?;
        refusal::check(answer.error_code, answer.error_message.as_deref())?;
        note(answer.error_message.as_deref());
        answer
            .topics
            .iter()
            .map(|topic| Answered {
                topic: topic.name.to_string(),
                refused: Refused::of(
                    &topic.name,
                    topic.error_code,
                    topic.error_message.as_deref(),
                    ranges_of!($request, topic),
                ),
            })
            .collect::<Vec<_>>()
    }};
}

/// The ranges that a refusal is about, of the one request whose refusals have some.
macro_rules! ranges_of {
    (RecoverMirrorTopicsRequest, $topic:ident) => {
        $topic.truncations.iter().map(|one| Range {
            partition: one.partition_index,
            from: one.from_offset,
            to: one.to_offset,
            records: one.records,
        })
    };
    ($other:ident, $topic:ident) => {
        std::iter::empty()
    };
}

macro_rules! topic_of {
    (StopMirrorTopicsRequest, $name:ident) => {
        tarn_wire::messages::stop_mirror_topics_request::MirrorTopicName { topic_name: $name }
    };
    (PauseMirrorTopicsRequest, $name:ident) => {
        tarn_wire::messages::pause_mirror_topics_request::MirrorTopicName { topic_name: $name }
    };
    (ResumeMirrorTopicsRequest, $name:ident) => {
        tarn_wire::messages::resume_mirror_topics_request::MirrorTopicName { topic_name: $name }
    };
    (RecoverMirrorTopicsRequest, $name:ident) => {
        tarn_wire::messages::recover_mirror_topics_request::MirrorTopicName { topic_name: $name }
    };
}

/// Asks for a change of what is wanted. Returns the topics for which it is so now, and those that were refused, so that
/// the others can be waited for first.
pub(super) async fn ask(
    cluster: &Cluster,
    change: Change,
    mirror: &str,
    given: &[String],
    run: Run,
) -> Result<(Vec<String>, Vec<Refused>), Failure> {
    let answered = match change {
        Change::Stop => ask!(cluster, StopMirrorTopicsRequest, mirror, given, run, {}),
        Change::Pause => ask!(cluster, PauseMirrorTopicsRequest, mirror, given, run, {}),
        Change::Resume => ask!(cluster, ResumeMirrorTopicsRequest, mirror, given, run, {}),
        Change::Recover(consent) => ask!(cluster, RecoverMirrorTopicsRequest, mirror, given, run, {
            allow_truncation: consent == Consent::Given
        }),
    };
    if answered.is_empty() {
        return Err(Failure::Precondition(format!(
            "no topic of mirror {mirror} matches {}",
            given.join(", ")
        )));
    }
    Ok(parted(answered))
}

/// Says what an answer has to say beside that it is done.
fn note(said: Option<&str>) {
    if let Some(said) = said.filter(|said| !said.is_empty()) {
        eprintln!("tarn: {said}");
    }
}

/// What is meant as names, and what as patterns.
fn told_apart(given: &[String]) -> (Vec<Str>, Vec<Str>) {
    // Twice is no more than once.
    let given: BTreeSet<&str> =
        given.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    let (names, patterns): (Vec<&str>, Vec<&str>) =
        given.into_iter().partition(|text| topic_name::is_legal(text));
    let texts = |texts: Vec<&str>| texts.into_iter().map(Str::from).collect();
    (texts(names), texts(patterns))
}

fn parted(answered: Vec<Answered>) -> (Vec<String>, Vec<Refused>) {
    let (mut good, mut all_refused) = (Vec::new(), Vec::new());
    for Answered { topic, refused } in answered {
        match refused {
            None => good.push(topic),
            Some(refused) => all_refused.push(refused),
        }
    }
    good.sort_unstable();
    (good, all_refused)
}

/// Pauses topics.
pub(super) async fn pause(arguments: ChangeArguments, style: Style) -> Result<(), Failure> {
    change(arguments, Change::Pause, style).await
}

/// Goes on with paused topics.
pub(super) async fn resume(arguments: ChangeArguments, style: Style) -> Result<(), Failure> {
    change(arguments, Change::Resume, style).await
}

/// Tries topics again that have failed.
pub(super) async fn recover(arguments: RecoverArguments, style: Style) -> Result<(), Failure> {
    let consent = if arguments.allow_truncation { Consent::Given } else { Consent::Refused };
    change(arguments.change, Change::Recover(consent), style).await
}

async fn change(arguments: ChangeArguments, change: Change, style: Style) -> Result<(), Failure> {
    let ChangeArguments { named, topics, dry_run, .. } = arguments;
    let cluster = Cluster::connect(&named.connect).await?;
    let run = Run::of(dry_run);
    let asked = ask(&cluster, change, &named.mirror, &topics, run);
    let (changed, refused) = while_waiting("asking the controller", asked).await?;
    if refused.is_empty() || !changed.is_empty() || style == Style::Json {
        let asked = Asked { change, mirror: &named.mirror, run };
        output::changed(&mut stdout().lock(), &asked, &changed, &refused, style)?;
    }
    refusal::of_topics(&refused)
}

/// Deletes a mirror whose topics are all stopped.
pub(super) async fn delete(arguments: DeleteArguments, style: Style) -> Result<(), Failure> {
    let DeleteArguments { named, dry_run, .. } = arguments;
    let cluster = Cluster::connect(&named.connect).await?;
    let request = DeleteClusterMirrorRequest {
        mirror_name: named.mirror.as_str().into(),
        validate_only: dry_run,
        ..DeleteClusterMirrorRequest::default()
    };
    let answer = while_waiting("asking the controller", cluster.call_mirror_api(&request)).await?;
    refusal::check(answer.error_code, answer.error_message.as_deref())?;
    note(answer.error_message.as_deref());
    output::deleted(&mut stdout().lock(), &named.mirror, Run::of(dry_run), style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_wire::ErrorCode;

    #[test]
    fn names_and_patterns_are_told_apart() {
        let given = ["orders", " a.b-c_d ", "", "pay.*", "[ab]", "orders"].map(str::to_owned);
        let (names, patterns) = told_apart(&given);
        assert_eq!(names, ["a.b-c_d", "orders"].map(Str::from), "each once");
        assert_eq!(patterns, ["[ab]", "pay.*"].map(Str::from));
    }

    #[test]
    fn what_is_refused_does_not_hide_what_is_done() {
        let refused = Refused::of("x", ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR.0, None, []);
        let answered = vec![
            Answered { topic: "b".to_owned(), refused: None },
            Answered { topic: "x".to_owned(), refused },
            Answered { topic: "a".to_owned(), refused: None },
        ];
        let (good, refused) = parted(answered);
        assert_eq!(good, ["a", "b"]);
        let failure = refusal::of_topics(&refused).unwrap_err();
        assert_eq!(failure.exit_code(), 3);
        assert!(failure.to_string().starts_with("x: "), "{failure}");
    }
}
