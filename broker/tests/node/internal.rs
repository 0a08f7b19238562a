//! Internal topics are not for clients.

use std::time::Instant;

use tarn_wire::ErrorCode;
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::write_mirror_states_request::{WriteMirrorStatePartition, WriteMirrorStateTopic};
use tarn_wire::messages::{ListOffsetsRequest, WriteMirrorStatesRequest};
use uuid::Uuid;

use crate::running::{Client, PATIENCE, Running};

#[test]
fn no_client_can_write_what_a_coordinator_keeps() {
    let node = Running::new("");
    let mut admin = node.client_called("__admin_client");
    admin.create("__mirror_state", 1, &[]);
    admin.create("__consumer_offsets", 1, &[]);
    let mut other = node.client();
    let refused = ErrorCode::INVALID_TOPIC_EXCEPTION.0;
    assert_eq!(admin.produce("__mirror_state", -1, 10).error_code, refused);
    assert_eq!(other.produce("__mirror_state", -1, 10).error_code, refused);
    assert_eq!(other.produce("__consumer_offsets", -1, 10).error_code, refused);
    assert_eq!(admin.produce("__consumer_offsets", -1, 10).error_code, 0);
}

#[test]
fn no_client_can_have_the_state_of_something_invented_kept() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("__mirror_state", 1, &[]);
    let write = WriteMirrorStatePartition { state: 2, leader_epoch: 0, ..Default::default() };
    let topic = WriteMirrorStateTopic {
        topic_name: "invented".into(),
        topic_id: Uuid::from_u128(9),
        partitions: vec![write],
    };
    let request = WriteMirrorStatesRequest { mirror_name: "invented".into(), topics: vec![topic] };
    let answer = client.call(0, &request).topics[0].partitions[0].clone();
    assert_eq!(answer.error_code, ErrorCode::UNKNOWN_CLUSTER_MIRROR.0, "{answer:?}");
    assert_eq!(log_end(&mut client, "__mirror_state"), 0, "nothing is stored");
}

/// Where the log of partition 0 of a topic ends, once its core has opened it.
fn log_end(client: &mut Client, topic: &str) -> i64 {
    let began = Instant::now();
    loop {
        let latest = ListOffsetsPartition { timestamp: -1, ..ListOffsetsPartition::default() };
        let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![latest] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
        let answer = client.call(5, &request).topics[0].partitions[0].clone();
        if answer.error_code != ErrorCode::NOT_LEADER_OR_FOLLOWER.0 {
            assert_eq!(answer.error_code, 0, "{answer:?}");
            return answer.offset;
        }
        assert!(began.elapsed() < PATIENCE, "the core never heard of {topic}");
    }
}
