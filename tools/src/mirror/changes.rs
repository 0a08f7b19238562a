//! `tarn mirror pause|resume|recover|delete`, and what `stop` shares with them: asking the controller to want
//! something else of topics.
//!
//! What is given as a name and as a pattern is told apart here: a pattern is matched against the topics that
//! are bound to the mirror, so that no source is needed.

use std::collections::BTreeSet;
use std::io::{Write, stdout};

use tarn_image::topic_name;
use tarn_wire::Str;
use tarn_wire::messages::{
    DeleteClusterMirrorRequest, PauseMirrorTopicsRequest, RecoverMirrorTopicsRequest,
    ResumeMirrorTopicsRequest, StopMirrorTopicsRequest,
};

use super::change_output::{self, Changed};
use super::refusal::{self, Refused};
use super::truncation::Truncation;
use super::waiting::{Until, Wait, wait};
use super::{
    ChangeArguments, DeleteArguments, HowToWait, RecoverArguments, ResumeArguments, Style, patterns,
};
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
#[derive(Default)]
struct Answered {
    topic: String,
    refused: Option<Refused>,
    /// It was as it was asked to be.
    is_undone: bool,
    /// Of a topic that is not refused.
    truncations: Vec<Truncation>,
}

/// What a cluster answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The topics for which it is so now.
    pub(super) topics: Vec<String>,
    /// Those of them with which nothing was to be done.
    pub(super) undone: Vec<String>,
    /// What stands in the way of them, or would be dropped.
    pub(super) truncations: Vec<Truncation>,
    pub(super) refused: Vec<Refused>,
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
            .map(|topic| {
                let said = topic.error_message.as_deref();
                let mut truncations: Vec<Truncation> = truncations_of!($request, topic);
                let refused = Refused::of(&topic.name, topic.error_code, said, truncations.clone());
                if refused.is_some() {
                    truncations.clear();
                }
                let is_undone = refused.is_none() && said.is_some_and(|said| !said.is_empty());
                Answered { topic: topic.name.to_string(), refused, is_undone, truncations }
            })
            .collect::<Vec<_>>()
    }};
}

/// What would be dropped of a topic, of the one request that is told it.
macro_rules! truncations_of {
    (RecoverMirrorTopicsRequest, $topic:ident) => {
        $topic.truncations.iter().map(|one| Truncation::from((&*$topic.name, one))).collect()
    };
    ($other:ident, $topic:ident) => {
        Vec::new()
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

/// Asks for a change of what is wanted. What was refused is part of the answer, so that the others can be waited for first.
pub(super) async fn ask(
    cluster: &Cluster,
    change: Change,
    mirror: &str,
    given: &[String],
    run: Run,
) -> Result<Answer, Failure> {
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
    Ok(gathered(answered))
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

fn gathered(answered: Vec<Answered>) -> Answer {
    let mut answer = Answer::default();
    for Answered { topic, refused, is_undone, truncations } in answered {
        if let Some(refused) = refused {
            answer.refused.push(refused);
            continue;
        }
        if is_undone {
            answer.undone.push(topic.clone());
        }
        answer.truncations.extend(truncations);
        answer.topics.push(topic);
    }
    answer.topics.sort_unstable();
    answer.undone.sort_unstable();
    answer
        .truncations
        .sort_by(|one, other| (&one.topic, one.partition).cmp(&(&other.topic, other.partition)));
    answer
}

/// Pauses topics.
pub(super) async fn pause(arguments: ChangeArguments, style: Style) -> Result<(), Failure> {
    change(arguments, HowToWait::default(), Change::Pause, style).await
}

/// Goes on with paused topics.
pub(super) async fn resume(arguments: ResumeArguments, style: Style) -> Result<(), Failure> {
    change(arguments.change, arguments.wait, Change::Resume, style).await
}

/// Tries topics again that have failed.
pub(super) async fn recover(arguments: RecoverArguments, style: Style) -> Result<(), Failure> {
    let consent = if arguments.allow_truncation { Consent::Given } else { Consent::Refused };
    change(arguments.change, arguments.wait, Change::Recover(consent), style).await
}

async fn change(
    arguments: ChangeArguments,
    how: HowToWait,
    change: Change,
    style: Style,
) -> Result<(), Failure> {
    let ChangeArguments { named, topics, dry_run, .. } = arguments;
    let topics = patterns::checked(&topics)?;
    let (mirror, address) = (&named.mirror, named.address());
    let cluster = Cluster::connect(&named.connect).await?;
    let run = Run::of(dry_run);
    let asked = ask(&cluster, change, mirror, &topics, run);
    let Answer { topics, undone, truncations, refused } =
        while_waiting("asking the controller", asked).await?;
    let refusal = refusal::of_topics(&refused);
    if refused.is_empty() || !topics.is_empty() || style == Style::Json {
        let asked = Asked { change, mirror, run };
        let told = Changed {
            topics: &topics,
            undone: &undone,
            truncations: &truncations,
            refused: &refused,
            look_at: (!how.wait).then_some(&*address),
        };
        let mut out = stdout().lock();
        change_output::changed(&mut out, &asked, &told, style)?;
        out.flush()?;
    }
    if !how.wait || topics.is_empty() {
        return refusal;
    }
    let until = Until::Mirroring;
    let asked = Wait { mirror, topics: &topics, until, timeout_s: how.timeout, address: &address };
    refusal::after(wait(&cluster, &asked).await, refusal)
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
    change_output::deleted(&mut stdout().lock(), &named.mirror, Run::of(dry_run), style)
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
        let of = |topic: &str| Answered { topic: topic.to_owned(), ..Answered::default() };
        let refused = Refused::of("x", ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR.0, None, []);
        let truncation = |topic: &str, partition| Truncation {
            topic: topic.to_owned(),
            partition,
            ..Truncation::default()
        };
        let answered = vec![
            Answered { truncations: vec![truncation("b", 3), truncation("b", 1)], ..of("b") },
            Answered { refused, ..of("x") },
            Answered { is_undone: true, ..of("a") },
        ];
        let answer = gathered(answered);
        assert_eq!(
            (answer.topics, answer.undone),
            (vec!["a".to_owned(), "b".to_owned()], vec!["a".to_owned()])
        );
        assert_eq!(answer.truncations, [truncation("b", 1), truncation("b", 3)]);
        let failure = refusal::of_topics(&answer.refused).unwrap_err();
        assert_eq!(failure.exit_code(), 3);
        assert!(failure.to_string().starts_with("x: "), "{failure}");
    }
}
