//! Internal topics are not for clients.

use tarn_wire::ErrorCode;
use tarn_wire::messages::WriteMirrorStatesRequest;
use tarn_wire::messages::write_mirror_states_request::{WriteMirrorStatePartition, WriteMirrorStateTopic};
use uuid::Uuid;

use crate::running::Running;

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
    // Waits for the log, which another core may not have opened yet, and tells how the first write comes out.
    let mut admin = node.client_called("__admin_client");
    let first = admin.produce("__mirror_state", -1, 10);
    assert_eq!((first.error_code, first.base_offset), (0, 0), "nothing is stored");
}
