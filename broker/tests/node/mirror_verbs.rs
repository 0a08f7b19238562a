//! What can be asked of a mirror's topics over the wire.

use std::time::Instant;

use tarn_wire::ErrorCode;
use tarn_wire::messages::*;

use crate::mirrored::Source;
use crate::running::{Client, PATIENCE, Running};

macro_rules! ask {
    ($client:expr, $request:ident, $mirror:literal) => {{
        let request =
            $request { mirror_name: $mirror.into(), patterns: vec![".*".into()], ..Default::default() };
        let answer = $client.call(0, &request);
        let topics = answer.topics.iter().map(|topic| (topic.name.to_string(), ErrorCode(topic.error_code)));
        (ErrorCode(answer.error_code), topics.collect::<Vec<_>>())
    }};
}

#[test]
fn each_verb_changes_what_is_wanted_of_a_topic() {
    let (_source, node) = Source::mirrored();
    let mut client = node.client();
    let of_t = |code| (ErrorCode::NONE, vec![("t".to_owned(), code)]);
    assert_eq!(ask!(client, RecoverMirrorTopicsRequest, "m"), of_t(ErrorCode::NONE));
    assert_eq!(desired(&mut client), "mirroring");
    assert_eq!(ask!(client, PauseMirrorTopicsRequest, "m"), of_t(ErrorCode::NONE));
    assert_eq!(desired(&mut client), "paused");
    let began = Instant::now();
    let refused = loop {
        let refused = client.produce("t", -1, 10);
        // Until the state is known.
        if refused.error_code != ErrorCode::NOT_ENOUGH_REPLICAS.0 {
            break refused;
        }
        assert!(began.elapsed() < PATIENCE, "{refused:?}");
    };
    assert_eq!(refused.error_code, ErrorCode::POLICY_VIOLATION.0);
    assert!(refused.error_message.unwrap().ends_with("tarn mirror stop --mirror m --topics t"));
    let why = ErrorCode::INVALID_CLUSTER_MIRROR_STATE;
    assert_eq!(ask!(client, RecoverMirrorTopicsRequest, "m"), of_t(why));
    assert_eq!(ask!(client, ResumeMirrorTopicsRequest, "m"), of_t(ErrorCode::NONE));
    assert_eq!(desired(&mut client), "mirroring");
    let delete = DeleteClusterMirrorRequest { mirror_name: "m".into(), ..Default::default() };
    let refused = client.call(0, &delete);
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::CLUSTER_MIRROR_NOT_EMPTY);
    for _ in 0..2 {
        assert_eq!(ask!(client, StopMirrorTopicsRequest, "m"), of_t(ErrorCode::NONE));
        assert!(["stopping", "stopped"].contains(&&*desired(&mut client)));
    }
    assert_eq!(ask!(client, ResumeMirrorTopicsRequest, "m"), of_t(ErrorCode::MIRROR_TOPIC_NOT_PAUSED));
}

#[test]
fn a_mirror_that_does_not_exist_is_named_by_each_verb() {
    let node = Running::new("");
    let mut client = node.client();
    let unknown = (ErrorCode::UNKNOWN_CLUSTER_MIRROR, vec![]);
    assert_eq!(ask!(client, StopMirrorTopicsRequest, "m"), unknown);
    assert_eq!(ask!(client, PauseMirrorTopicsRequest, "m"), unknown);
    assert_eq!(ask!(client, ResumeMirrorTopicsRequest, "m"), unknown);
    assert_eq!(ask!(client, RecoverMirrorTopicsRequest, "m"), unknown);
    let delete = DeleteClusterMirrorRequest { mirror_name: "m".into(), ..Default::default() };
    assert_eq!(ErrorCode(client.call(0, &delete).error_code), unknown.0);
}

#[test]
fn what_mirrors_is_not_recovered_and_no_consent_is_kept_for_it() {
    let (_source, node) = Source::mirrored();
    let mut client = node.client();
    let began = Instant::now();
    let version = loop {
        let topic = described(&mut client);
        if topic.partitions.iter().all(|partition| &*partition.state_value == "MIRRORING") {
            break topic.state_version;
        }
        assert!(began.elapsed() < PATIENCE, "{topic:?}");
    };
    let request = RecoverMirrorTopicsRequest {
        mirror_name: "m".into(),
        patterns: vec![".*".into()],
        allow_truncation: true,
        ..RecoverMirrorTopicsRequest::default()
    };
    let answer = client.call(0, &request);
    let [topic] = &answer.topics[..] else { panic!("{answer:?}") };
    assert_eq!((&*topic.name, topic.error_code, topic.truncations.len()), ("t", 0, 0));
    let said = "Every partition of topic 't' is mirroring, so there is nothing to recover.";
    assert_eq!(topic.error_message.as_deref(), Some(said));
    let after = described(&mut client);
    assert_eq!((after.state_version, &*after.partitions[0].state_value), (version, "MIRRORING"));
}

/// What is wanted of `t`, as `describe` tells it.
fn desired(client: &mut Client) -> String {
    described(client).desired_state.expect("it is bound").to_string()
}

/// What `describe` tells of `t`.
fn described(client: &mut Client) -> describe_cluster_mirrors_response::DescribedMirrorTopic {
    let request = DescribeClusterMirrorsRequest {
        mirror_names: Some(vec!["m".into()]),
        topics: None,
        cluster_id: None,
        ..Default::default()
    };
    client.call(0, &request).mirrors.remove(0).topics.remove(0)
}
