//! A node that mirrors topic `t` of another, and what its coordinators keep of it.

use std::time::Instant;

use tarn_wire::messages::create_cluster_mirror_request::MirrorConfig;
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::read_mirror_states_request::{MirrorStatePartition, MirrorStateTopic};
use tarn_wire::messages::read_mirror_states_response::MirrorStatePartitionResult;
use tarn_wire::messages::*;
use uuid::Uuid;

use crate::running::{Client, PATIENCE, Running};

/// A node with the empty topic `t`, to be mirrored.
pub(crate) struct Source(Running);

impl Source {
    /// It, and a node that mirrors it as `m` from now on.
    pub(crate) fn mirrored() -> (Source, Running) {
        Source::mirrored_with("")
    }

    /// The same, where the node has more in its configuration.
    pub(crate) fn mirrored_with(more: &str) -> (Source, Running) {
        let source = Source(Running::of_cluster("c291cmNlc291cmNlc291cg", ""));
        source.0.client().create("t", 1, &[]);
        let node = Running::new(more);
        source.begin(&node);
        (source, node)
    }

    /// Makes mirror `m` on a node, with `t`.
    pub(crate) fn begin(&self, node: &Running) {
        let mut client = node.client();
        let bootstrap = self.0.address().to_string();
        let config = MirrorConfig { name: "bootstrap.servers".into(), value: Some(bootstrap.into()) };
        let create = CreateClusterMirrorRequest {
            mirror_name: "m".into(),
            configs: vec![config],
            ..CreateClusterMirrorRequest::default()
        };
        let created = client.call(0, &create);
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        start(&mut client);
    }
}

/// Has mirror `m` begin `t`.
pub(crate) fn start(client: &mut Client) {
    let start = StartMirrorTopicsRequest {
        mirror_name: "m".into(),
        include_patterns: vec!["t".into()],
        ..StartMirrorTopicsRequest::default()
    };
    let started = client.call(0, &start);
    assert_eq!(started.error_code, 0, "{:?}", started.error_message);
    let codes: Vec<_> = started.topics.iter().map(|topic| (&*topic.name, topic.error_code)).collect();
    assert_eq!(codes, [("t", 0)], "{started:?}");
}

/// The id of `t`.
pub(crate) fn topic_id(client: &mut Client) -> Uuid {
    let topic = MetadataRequestTopic { name: Some("t".into()), ..MetadataRequestTopic::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
    client.call(12, &request).topics[0].topic_id
}

/// What the coordinator of `t` knows of it in mirror `m`.
pub(crate) fn state(client: &mut Client, topic_id: Uuid) -> MirrorStatePartitionResult {
    let topic = MirrorStateTopic {
        topic_name: "t".into(),
        topic_id,
        partitions: vec![MirrorStatePartition { partition_index: 0 }],
    };
    let request = ReadMirrorStatesRequest { mirror_name: "m".into(), topics: vec![topic] };
    client.call(0, &request).topics.remove(0).partitions.remove(0)
}

/// The same, once it is as wanted.
pub(crate) fn await_state(
    client: &mut Client,
    topic_id: Uuid,
    wanted: impl Fn(&MirrorStatePartitionResult) -> bool,
) -> MirrorStatePartitionResult {
    let began = Instant::now();
    loop {
        let state = state(client, topic_id);
        if state.error_code == 0 && wanted(&state) {
            return state;
        }
        assert!(began.elapsed() < PATIENCE, "{state:?}");
    }
}
