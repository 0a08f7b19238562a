//! Who waits for something that will not come is told so at once.

use std::time::{Duration, Instant};

use tarn_wire::ErrorCode;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::{FetchRequest, MetadataRequest};
use uuid::Uuid;

use crate::running::{Client, Running};

/// How long the fetches would wait for records.
const WAIT: Duration = Duration::from_secs(50);

#[test]
fn a_fetch_that_waits_on_a_topic_is_answered_when_it_is_deleted() {
    let node = Running::new("");
    let mut admin = node.client();
    admin.create("t", 1, &[]);
    assert_eq!(admin.produce("t", -1, 10).error_code, 0);
    let id = topic_id(&mut admin, "t");
    for (version, why) in [(12, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), (16, ErrorCode::UNKNOWN_TOPIC_ID)] {
        let mut consumer = node.client();
        let began = Instant::now();
        if version == 12 {
            admin.create("by-name", 1, &[]);
            assert_eq!(admin.produce("by-name", -1, 10).error_code, 0);
        }
        let (name, id) = if version == 12 { ("by-name", Uuid::nil()) } else { ("t", id) };
        consumer.send(version, &fetch(name, id));
        // The answer to a request of another partition says that the fetch was taken up before it.
        consumer.send(version, &FetchRequest { session_epoch: -1, ..Default::default() });
        admin.delete(name);
        let fetched = consumer.receive::<FetchRequest>(version);
        assert!(began.elapsed() < WAIT, "it did not wait its time out");
        assert_eq!(fetched.responses[0].partitions[0].error_code, why.0, "v{version}");
    }
}

fn fetch(topic: &str, topic_id: Uuid) -> FetchRequest {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset: 1,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        partition_max_bytes: 1000,
        ..Default::default()
    };
    FetchRequest {
        replica_id: -1,
        max_wait_ms: WAIT.as_millis() as i32,
        min_bytes: 1,
        max_bytes: 1000,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: topic.into(), topic_id, partitions: vec![partition] }],
        ..Default::default()
    }
}

fn topic_id(client: &mut Client, topic: &str) -> Uuid {
    let topics = vec![MetadataRequestTopic { name: Some(topic.into()), ..Default::default() }];
    client.call(12, &MetadataRequest { topics: Some(topics), ..Default::default() }).topics[0].topic_id
}
