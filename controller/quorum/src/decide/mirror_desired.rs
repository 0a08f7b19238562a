//! StopMirrorTopics, PauseMirrorTopics, ResumeMirrorTopics and RecoverMirrorTopics (KIP-1279): what is wanted
//! of topics that a mirror has already.
//!
//! A request names topics, and gives patterns, which mean topics bound to the mirror: nothing here needs the
//! source. What each verb makes of each desired state is one table, [`Verb::next`].
//!
//! Invariants:
//! * a verb that changes a topic gives it a new version, the same for all topics of the request; one that
//!   finds it as it should be writes nothing;
//! * a topic that fails does not hinder the others;
//! * stop is refused in no state.

use std::collections::BTreeSet;

use tarn_image::mirrors::{Binding, MirrorImage, Truncation, Wanted};
use tarn_image::{DesiredState, MetadataImage};
use tarn_wire::messages as m;
use tarn_wire::{ErrorCode, MetadataRecord, Str};

use super::mirror_bindings::{bound, check_version, mirror};
use super::mirror_patterns::{Lists, parse_given};
use super::{ApiError, Context, Decision, Run, sentence, wire_result};

/// What is to become of topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Stop,
    Pause,
    Resume,
    Recover(Truncation),
}

/// What a request asks for, whichever it is.
struct Asked<'a> {
    verb: Verb,
    mirror: &'a str,
    topics: Vec<&'a Str>,
    patterns: &'a [Str],
    state_version: i64,
    run: Run,
}

/// What became of a request.
#[derive(Default)]
struct Decided {
    /// The topics that were named or matched, each with what became of it: why nothing was to be done, where that is
    /// worth a word.
    topics: Vec<(Str, Result<Option<Str>, ApiError>)>,
    /// What was left undone beside them, for a person.
    note: Option<Str>,
}

macro_rules! verbs {
    ($(
        $(#[$doc:meta])*
        $name:ident($request:ident) -> $response:ident, $results:ident $({ $none:ident })?, $verb:expr;
    )*) => {
        $($(#[$doc])*
        pub fn $name(
            image: &MetadataImage,
            request: &m::$request,
            context: &Context<'_>,
        ) -> Decision<m::$response> {
            let verb: fn(&m::$request) -> Verb = $verb;
            let asked = Asked {
                verb: verb(request),
                mirror: &request.mirror_name,
                topics: request.topics.iter().map(|topic| &topic.topic_name).collect(),
                patterns: &request.patterns,
                state_version: request.state_version,
                run: Run::of(request.validate_only),
            };
            decide(image, &asked, context).map(|decided| {
                let (error_code, error_message) = wire_result(&decided);
                let Decided { topics, note } = decided.unwrap_or_default();
                let error_message = error_message.or(note);
                let topics = topics.into_iter().map(|(name, result)| {
                    let (error_code, error_message) = wire_result(&result);
                    let error_message = error_message.or(result.ok().flatten());
                    m::$results::MirrorTopicResult { name, error_code, error_message, $($none: Vec::new())? }
                });
                m::$response { error_code, error_message, topics: topics.collect(), ..Default::default() }
            })
        })*
    };
}

verbs! {
    /// Decides that topics become writable here. Patterns also end the discovery of more.
    stop(StopMirrorTopicsRequest) -> StopMirrorTopicsResponse,
        stop_mirror_topics_response, |_| Verb::Stop;
    /// Decides that topics are neither filled nor writable for now.
    pause(PauseMirrorTopicsRequest) -> PauseMirrorTopicsResponse,
        pause_mirror_topics_response, |_| Verb::Pause;
    /// Decides that paused topics are filled again.
    resume(ResumeMirrorTopicsRequest) -> ResumeMirrorTopicsResponse,
        resume_mirror_topics_response, |_| Verb::Resume;
    /// Decides that topics whose partitions have failed are tried again.
    recover(RecoverMirrorTopicsRequest) -> RecoverMirrorTopicsResponse,
        recover_mirror_topics_response { truncations }, |request| Verb::Recover(consent(request));
}

fn consent(request: &m::RecoverMirrorTopicsRequest) -> Truncation {
    if request.allow_truncation { Truncation::Allowed } else { Truncation::Refused }
}

impl Verb {
    /// What it makes of a topic; `None` where nothing is to be done.
    fn next(self, topic: &str, desired: DesiredState) -> Result<Option<DesiredState>, ApiError> {
        use DesiredState::{Mirroring, Paused, Stopped, Stopping};
        let refuse = |code, why: &str| Err(ApiError::new(code, format!("Topic '{topic}' {why}.")));
        match (self, desired) {
            (Verb::Stop, Mirroring | Paused) => Ok(Some(Stopping)),
            (Verb::Stop, Stopping | Stopped) => Ok(None),
            (Verb::Pause, Mirroring) => Ok(Some(Paused)),
            (Verb::Pause, Paused) => Ok(None),
            (Verb::Resume, Paused) => Ok(Some(Mirroring)),
            (Verb::Resume, Mirroring) => Ok(None),
            (Verb::Recover(_), Mirroring) => Ok(Some(Mirroring)),
            (Verb::Pause | Verb::Recover(_), Stopping) => {
                refuse(ErrorCode::MIRROR_TOPIC_BEING_STOPPED, "is being stopped")
            }
            (Verb::Pause, Stopped) => refuse(
                ErrorCode::MIRROR_TOPIC_BEING_STOPPED,
                "has been stopped; only what mirrors can be paused",
            ),
            (Verb::Resume, Stopping) => {
                refuse(ErrorCode::MIRROR_TOPIC_NOT_PAUSED, "is not paused: it is being stopped")
            }
            (Verb::Resume, Stopped) => {
                refuse(ErrorCode::MIRROR_TOPIC_NOT_PAUSED, "is not paused: it has been stopped; start it")
            }
            (Verb::Recover(_), Paused) => {
                refuse(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, "is paused; resume it first")
            }
            (Verb::Recover(_), Stopped) => refuse(
                ErrorCode::INVALID_CLUSTER_MIRROR_STATE,
                "has been stopped; start it to mirror it again",
            ),
        }
    }

    /// Why nothing was to be done with a topic, for those who may not expect that it is so already.
    fn undone(self, topic: &str) -> Option<Str> {
        let why = || sentence(&format!("Topic '{topic}' is not paused, so there is nothing to resume."));
        (self == Verb::Resume).then(why)
    }

    /// The consent that a new version carries.
    fn truncation(self) -> Truncation {
        match self {
            Verb::Recover(truncation) => truncation,
            Verb::Stop | Verb::Pause | Verb::Resume => Truncation::Refused,
        }
    }
}

fn decide(
    image: &MetadataImage,
    asked: &Asked<'_>,
    context: &Context<'_>,
) -> Decision<Result<Decided, ApiError>> {
    match try_decide(image, asked, context) {
        Ok(decision) => decision.carried_out(asked.run).map(Ok),
        Err(error) => Decision::unchanged(Err(error)),
    }
}

fn try_decide(
    image: &MetadataImage,
    asked: &Asked<'_>,
    context: &Context<'_>,
) -> Result<Decision<Decided>, ApiError> {
    let mirror = mirror(image, asked.mirror)?;
    let topics = meant(image, asked)?;
    check_version(image, asked.state_version, topics.iter().map(|topic| &**topic))?;
    let (mut records, note) = match asked.verb {
        Verb::Stop => end_of_discovery(image, asked, &mirror),
        Verb::Pause | Verb::Resume | Verb::Recover(_) => (Vec::new(), None),
    };
    let mut seen = BTreeSet::new();
    let results = topics.iter().map(|topic| {
        let changed = if seen.insert(&**topic) {
            change(image, asked, topic, context)
        } else {
            Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name."))
        };
        let decided = changed.map(|more| {
            let undone = if more.is_empty() { asked.verb.undone(topic) } else { None };
            records.extend(more);
            undone
        });
        (topic.clone(), decided)
    });
    let topics = results.collect();
    Ok(Decision::of(records, Decided { topics, note }))
}

/// The records that keep discovery from beginning with more of what is stopped. A list that does not take it does
/// not hold up the stop: that is said beside it.
fn end_of_discovery(
    image: &MetadataImage,
    asked: &Asked<'_>,
    mirror: &MirrorImage<'_>,
) -> (Vec<MetadataRecord>, Option<Str>) {
    let mut lists = Lists::of(mirror);
    let bound: Vec<&str> = image.bindings().topics_of(asked.mirror).map(|topic| &**topic).collect();
    let changed = lists
        .stopped(asked.patterns, asked.topics.iter().map(|topic| &***topic), &bound)
        .and_then(|()| lists.records(mirror.name));
    match changed {
        Ok(records) => (records, None),
        Err(error) => {
            let why = error.message.unwrap_or_default();
            (Vec::new(), Some(sentence(&format!("Discovery of more such topics does not end: {why}"))))
        }
    }
}

/// The topics that a request names, as it does, and those that its patterns match beside them.
fn meant(image: &MetadataImage, asked: &Asked<'_>) -> Result<Vec<Str>, ApiError> {
    let patterns = parse_given(asked.patterns)?;
    let named: BTreeSet<&str> = asked.topics.iter().map(|topic| &***topic).collect();
    let bound = image.bindings().topics_of(asked.mirror).map(|topic| &**topic);
    let matched = bound.filter(|topic| patterns.matches(topic) && !named.contains(topic));
    Ok(asked.topics.iter().copied().cloned().chain(matched.map(Str::from)).collect())
}

/// The records that change one topic; none where it is as it should be.
fn change(
    image: &MetadataImage,
    asked: &Asked<'_>,
    topic: &str,
    context: &Context<'_>,
) -> Result<Vec<MetadataRecord>, ApiError> {
    let binding = binding(image, asked.mirror, topic)?;
    let Some(state) = asked.verb.next(topic, binding.desired)? else { return Ok(Vec::new()) };
    let wanted = Wanted { state, version: context.next_offset.0, truncation: asked.verb.truncation() };
    Ok(bound(topic, asked.mirror, &wanted).into())
}

/// A topic's place in the mirror that is asked to change it.
fn binding<'a>(image: &'a MetadataImage, mirror: &str, topic: &str) -> Result<&'a Binding, ApiError> {
    if image.topics().id_of(topic).is_none() {
        let why = format!("There is no topic '{topic}'.");
        return Err(ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, why));
    }
    let foreign = |why: String| ApiError::new(ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR, why);
    match image.bindings().of(topic) {
        Some(binding) if *binding.mirror == *mirror => Ok(binding),
        Some(binding) => {
            let other = &binding.mirror;
            Err(foreign(format!("Topic '{topic}' belongs to cluster mirror '{other}', not to '{mirror}'.")))
        }
        None => Err(foreign(format!("Topic '{topic}' belongs to no cluster mirror."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_wire::messages::stop_mirror_topics_request::MirrorTopicName;

    const STATES: [&str; 4] = ["mirroring:5", "paused:5", "stopping:5", "stopped:5"];

    /// What each verb makes of each of these states: the state after it, or why it is refused. A new version is
    /// written as `*`.
    #[test]
    fn what_each_verb_makes_of_each_state() {
        use ErrorCode as Code;
        let unpaused = Err(Code::MIRROR_TOPIC_NOT_PAUSED);
        let stopping = Err(Code::MIRROR_TOPIC_BEING_STOPPED);
        let other = Err(Code::INVALID_CLUSTER_MIRROR_STATE);
        let again = Verb::Recover(Truncation::Refused);
        let dropping = Verb::Recover(Truncation::Allowed);
        let table = [
            (Verb::Stop, [Ok("stopping:*"), Ok("stopping:*"), Ok("stopping:5"), Ok("stopped:5")]),
            (Verb::Pause, [Ok("paused:*"), Ok("paused:5"), stopping, stopping]),
            (Verb::Resume, [Ok("mirroring:5"), Ok("mirroring:*"), unpaused, unpaused]),
            (again, [Ok("mirroring:*"), other, stopping, other]),
            (dropping, [Ok("mirroring:*:truncate"), other, stopping, other]),
        ];
        for (verb, cells) in table {
            for (before, expected) in STATES.into_iter().zip(cells) {
                let mut world = world();
                world.bind("a", "m", before);
                let version = world.next_offset.0.to_string();
                let (code, topics) = ask(&mut world, verb, &names(&["a"]), &[], -1);
                assert_eq!((code, topics.len()), (Code::NONE, 1), "{verb:?} {before}");
                let (mirror, after) = world.bound("a").unwrap();
                assert_eq!((&*mirror, &*topics[0].0), ("m", "a"));
                let (code, state) = match expected {
                    Ok(state) => (Code::NONE, state.replace('*', &version)),
                    Err(code) => (code, before.to_owned()),
                };
                assert_eq!((topics[0].1, after), (code, state), "{verb:?} {before}");
            }
        }
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        let said = |verb: Verb, before: &str| {
            let mut world = world();
            world.bind("a", "m", before);
            let (_, mut topics) = ask(&mut world, verb, &names(&["a"]), &[], -1);
            topics.remove(0).2.unwrap()
        };
        assert_eq!(said(Verb::Pause, "stopping:5"), "Topic 'a' is being stopped.");
        assert!(said(Verb::Pause, "stopped:5").starts_with("Topic 'a' has been stopped"));
        assert_eq!(said(Verb::Resume, "stopping:5"), "Topic 'a' is not paused: it is being stopped.");
        let again = Verb::Recover(Truncation::Refused);
        assert_eq!(said(again, "paused:5"), "Topic 'a' is paused; resume it first.");
        assert!(said(again, "stopped:5").contains("start it"));
    }

    #[test]
    fn resuming_what_is_not_paused_is_no_error_and_says_that_nothing_was_to_be_done() {
        let mut world = world();
        world.bind("b", "m", "paused:5");
        let (code, topics) = ask(&mut world, Verb::Resume, &names(&["a", "b"]), &[], -1);
        assert_eq!(code, ErrorCode::NONE);
        let undone = Some("Topic 'a' is not paused, so there is nothing to resume.".into());
        assert_eq!(topics[0], ("a".into(), ErrorCode::NONE, undone));
        assert_eq!(topics[1], ("b".into(), ErrorCode::NONE, None));
    }

    #[test]
    fn doing_it_again_writes_nothing() {
        for verb in [Verb::Stop, Verb::Pause] {
            let mut world = world();
            ask(&mut world, verb, &[], &patterns(&[".*"]), -1);
            let before = (world.image.clone(), world.next_offset);
            let (code, topics) = ask(&mut world, verb, &[], &patterns(&[".*"]), -1);
            assert!(code == ErrorCode::NONE && topics.iter().all(|topic| topic.1 == ErrorCode::NONE));
            assert_eq!((world.image, world.next_offset), before, "{verb:?}");
        }
    }

    #[test]
    fn a_pattern_means_all_of_a_name_of_a_topic_that_the_mirror_has() {
        let mut world = world();
        world.create_with("abroad", 1, 1);
        world.bind("abroad", "other", "mirroring:5");
        world.create_with("alone", 1, 1);
        let (_, topics) = ask(&mut world, Verb::Pause, &names(&["ab"]), &patterns(&["a.*", "b"]), -1);
        let named: Vec<&str> = topics.iter().map(|topic| &*topic.0).collect();
        assert_eq!(named, ["ab", "a", "b"], "each once, what was named first");
        assert_eq!(world.bound("abroad").unwrap().1, "mirroring:5");
        let (code, topics) = ask(&mut world, Verb::Pause, &[], &patterns(&["nothing"]), -1);
        assert_eq!((code, topics.len()), (ErrorCode::NONE, 0));
    }

    #[test]
    fn one_topic_that_fails_does_not_hinder_the_others_and_all_get_one_version() {
        let mut world = world();
        world.create_with("foreign", 1, 1);
        world.bind("foreign", "other", "mirroring:5");
        world.create_with("alone", 1, 1);
        let version = world.next_offset.0;
        let asked = names(&["nosuch", "a", "foreign", "alone", "a", "b"]);
        let decision = world.decided(|image, context| {
            let request = m::StopMirrorTopicsRequest {
                mirror_name: "m".into(),
                topics: topic_names(&asked),
                ..Default::default()
            };
            let decision = stop(image, &request, context);
            assert_eq!(decision.batches.len(), 1, "it is atomic");
            decision
        });
        let codes: Vec<_> = decision.topics.iter().map(|topic| ErrorCode(topic.error_code)).collect();
        let foreign = ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR;
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        let (fine, twice) = (ErrorCode::NONE, ErrorCode::INVALID_REQUEST);
        assert_eq!(codes, [unknown, fine, foreign, foreign, twice, fine]);
        let why = decision.topics[2].error_message.as_deref();
        assert_eq!(why, Some("Topic 'foreign' belongs to cluster mirror 'other', not to 'm'."));
        for topic in ["a", "b"] {
            assert_eq!(world.bound(topic).unwrap().1, format!("stopping:{version}"));
        }
        assert_eq!(world.bound("foreign").unwrap().1, "mirroring:5");
    }

    #[test]
    fn what_is_wrong_with_a_whole_request_changes_nothing() {
        let mut world = world();
        let before = world.image.clone();
        for bad in ["(", "a,b", " "] {
            for verb in [Verb::Stop, Verb::Pause, Verb::Resume, Verb::Recover(Truncation::Refused)] {
                let (code, topics) = ask(&mut world, verb, &names(&["a"]), &patterns(&[bad]), -1);
                assert_eq!((code, topics.len()), (ErrorCode::INVALID_REQUEST, 0), "{verb:?} {bad}");
            }
        }
        let nowhere = m::PauseMirrorTopicsRequest { mirror_name: "nosuch".into(), ..Default::default() };
        let response = world.decided(|image, context| pause(image, &nowhere, context));
        assert_eq!(ErrorCode(response.error_code), ErrorCode::UNKNOWN_CLUSTER_MIRROR);
        assert_eq!(world.image, before);
    }

    #[test]
    fn a_decision_on_an_older_state_is_refused_whole() {
        let mut world = world();
        world.bind("b", "m", "mirroring:9");
        for (topics, patterns) in [(names(&["a", "b"]), vec![]), (vec![], patterns(&[".*"]))] {
            let (code, results) = ask(&mut world, Verb::Stop, &topics, &patterns, 8);
            assert_eq!((code, results.len()), (ErrorCode::INVALID_CLUSTER_MIRROR_STATE, 0));
        }
        assert_eq!(world.bound("a").unwrap().1, "mirroring:5");
        let (code, _) = ask(&mut world, Verb::Stop, &names(&["a"]), &[], 8);
        assert_eq!(code, ErrorCode::NONE, "only what the request means counts");
        let (code, _) = ask(&mut world, Verb::Stop, &names(&["b"]), &[], 9);
        assert_eq!(code, ErrorCode::NONE);
    }

    #[test]
    fn what_is_only_to_be_validated_changes_nothing() {
        let mut world = world();
        let before = world.image.clone();
        let request = m::StopMirrorTopicsRequest {
            mirror_name: "m".into(),
            topics: topic_names(&names(&["a", "nosuch"])),
            patterns: patterns(&["b"]),
            validate_only: true,
            ..Default::default()
        };
        let response = world.decided(|image, context| stop(image, &request, context));
        let codes: Vec<_> = response.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0, 0]);
        assert_eq!(world.image, before);
    }

    #[test]
    fn a_stop_ends_the_discovery_of_what_it_means_and_nothing_else_does() {
        let lists = |verb: Verb, named: &[&str], given: &[&str]| {
            let mut world = world();
            let start = m::StartMirrorTopicsRequest {
                mirror_name: "m".into(),
                include_patterns: patterns(&["a", "orders.*", "ab"]),
                ..Default::default()
            };
            world.start_with(&start);
            ask(&mut world, verb, &names(named), &patterns(given), -1);
            (world.mirror_config("m", "topics.include"), world.mirror_config("m", "topics.exclude"))
        };
        let text = |text: &str| Some(text.to_owned());
        let untouched = (text("a,orders.*,ab"), None);
        assert_eq!(lists(Verb::Stop, &["b"], &[]), untouched);
        assert_eq!(lists(Verb::Stop, &["a"], &["orders.*"]), (text("ab"), None));
        assert_eq!(lists(Verb::Stop, &[], &["a.*"]), (text("orders.*"), text("__.*,a.*")));
        assert_eq!(lists(Verb::Stop, &[], &["a.*", "orders.*", "b.*"]), (text(""), None));
        assert_eq!(lists(Verb::Stop, &[], &["oders.*"]), untouched, "a slip");
        assert_eq!(
            lists(Verb::Stop, &[], &[".*"]),
            (text(""), None),
            "what is started again is not excluded"
        );
        assert_eq!(lists(Verb::Stop, &["nosuch", "ab"], &["__.*"]), (text("a,orders.*"), None));
        for verb in [Verb::Pause, Verb::Resume, Verb::Recover(Truncation::Allowed)] {
            assert_eq!(lists(verb, &["a"], &["orders.*", ".*"]), untouched, "{verb:?}");
        }
    }

    #[test]
    fn a_list_that_is_full_does_not_hold_up_a_stop() {
        let mut world = world();
        let long: Vec<String> = (0..300).map(|i| format!("{i:0>100}.*")).collect();
        let start = m::StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            include_patterns: patterns(&["a.*|b"]),
            exclude_patterns: long.iter().map(|pattern| Str::from(pattern.as_str())).collect(),
            ..Default::default()
        };
        world.start_with(&start);
        let before = world.mirror_config("m", "topics.exclude");
        let slips = format!("a|{}", "x".repeat(3000));
        let request = m::StopMirrorTopicsRequest {
            mirror_name: "m".into(),
            patterns: patterns(&[&slips]),
            ..Default::default()
        };
        let response = world.decided(|image, context| stop(image, &request, context));
        assert_eq!((response.error_code, response.topics[0].error_code), (0, 0));
        let said = response.error_message.expect("it is said");
        assert!(said.contains("topics.exclude"), "{said}");
        assert_eq!(
            world.bound("a").map(|(_, after)| after.split(':').next() == Some("stopping")),
            Some(true)
        );
        assert_eq!(world.mirror_config("m", "topics.exclude"), before);
    }

    /// Topics `a`, `ab` and `b` of mirror `m`, with a version of 5; mirror `other` has none.
    fn world() -> World {
        let mut world = World::with_topics(&["a", "ab", "b"]);
        for mirror in ["m", "other"] {
            world.create_mirror(mirror, &[("bootstrap.servers", "a:1"), ("source.cluster.id", "S")]).unwrap();
        }
        for topic in ["a", "ab", "b"] {
            world.bind(topic, "m", "mirroring:5");
        }
        world
    }

    fn names(names: &[&str]) -> Vec<Str> {
        names.iter().map(|name| Str::from(*name)).collect()
    }

    fn patterns(given: &[&str]) -> Vec<Str> {
        names(given)
    }

    fn topic_names(names: &[Str]) -> Vec<MirrorTopicName> {
        names.iter().map(|name| MirrorTopicName { topic_name: name.clone() }).collect()
    }

    /// The code of the whole, and each topic with its code and message.
    fn ask(
        world: &mut World,
        verb: Verb,
        topics: &[Str],
        patterns: &[Str],
        state_version: i64,
    ) -> (ErrorCode, Vec<(Str, ErrorCode, Option<Str>)>) {
        macro_rules! ask {
            ($decide:ident, $request:ident, $names:ident $(, $field:ident: $value:expr)?) => {{
                let topic = |name: &Str| m::$names::MirrorTopicName { topic_name: name.clone() };
                let request = m::$request {
                    mirror_name: "m".into(),
                    topics: topics.iter().map(topic).collect(),
                    patterns: patterns.to_vec(),
                    state_version,
                    $($field: $value,)?
                    ..Default::default()
                };
                let response = world.decided(|image, context| $decide(image, &request, context));
                let topics = response.topics.into_iter();
                let topics = topics.map(|topic| (topic.name, ErrorCode(topic.error_code), topic.error_message));
                (ErrorCode(response.error_code), topics.collect())
            }};
        }
        match verb {
            Verb::Stop => ask!(stop, StopMirrorTopicsRequest, stop_mirror_topics_request),
            Verb::Pause => ask!(pause, PauseMirrorTopicsRequest, pause_mirror_topics_request),
            Verb::Resume => ask!(resume, ResumeMirrorTopicsRequest, resume_mirror_topics_request),
            Verb::Recover(truncation) => ask!(
                recover, RecoverMirrorTopicsRequest, recover_mirror_topics_request,
                allow_truncation: truncation == Truncation::Allowed
            ),
        }
    }
}
