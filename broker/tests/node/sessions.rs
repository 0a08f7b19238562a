//! Fetch sessions over the wire: what a client is told where there is no room for its session.

use std::time::{Duration, Instant};

use tarn_broker::limits::FETCH_SESSION_PARTITIONS_PER_CORE;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use tarn_wire::messages::{FetchRequest, FetchResponse};

use crate::running::{Client, Running};

#[test]
fn a_session_of_more_partitions_than_there_is_room_for_is_none() {
    let node = Running::new("tarn.cores=0\n");
    let mut client = node.client();
    client.create("t", 1, &[]);
    let limit = FETCH_SESSION_PARTITIONS_PER_CORE as i32;
    assert_eq!(fetch(&mut client, (0, 0), 0..limit + 1), 0, "it is answered, and no session");
    let session = fetch(&mut client, (0, 0), 0..3);
    assert!(session > 0, "what did not fit takes no room");
    assert_eq!(client.call(12, &request((session, 1), 0..0)).session_id, session);
}

#[test]
fn what_a_request_forgets_stays_forgotten_though_its_topic_was_made_again_since_the_last() {
    let node = Running::new("tarn.cores=0\n");
    let mut client = node.client();
    client.create("t", 2, &[]);
    let session = fetch(&mut client, (0, 0), 0..2);
    assert!(session > 0);
    client.delete("t");
    client.create("t", 2, &[]);
    let forgotten = ForgottenTopic { topic: "t".into(), partitions: vec![0], ..Default::default() };
    let forget = FetchRequest { forgotten_topics_data: vec![forgotten], ..request((session, 1), 0..0) };
    let named = |answer: &FetchResponse| -> Vec<i32> {
        let topics = answer.responses.iter();
        topics.flat_map(|topic| topic.partitions.iter().map(|one| one.partition_index)).collect()
    };
    assert_eq!(named(&client.call(12, &forget)), [1]);
    assert_eq!(client.produce("t", 1, 10).base_offset, 0, "partition 0 has something to say");
    let began = Instant::now();
    let waits = FetchRequest { max_wait_ms: 500, min_bytes: 1, ..request((session, 2), 0..0) };
    assert_eq!(named(&client.call(12, &waits)), [0; 0]);
    assert!(began.elapsed() >= Duration::from_millis(500), "it has nothing to say to this session");
}

/// Fetches these partitions of "t" in a session and an epoch; the session of the answer.
fn fetch(client: &mut Client, session: (i32, i32), partitions: std::ops::Range<i32>) -> i32 {
    let fetched = client.call(12, &request(session, partitions));
    assert_eq!(fetched.error_code, 0);
    assert!(!fetched.responses[0].partitions.is_empty(), "whatever becomes of the session");
    fetched.session_id
}

fn request((session_id, session_epoch): (i32, i32), partitions: std::ops::Range<i32>) -> FetchRequest {
    let of = |partition| FetchPartition { partition, partition_max_bytes: 1000, ..Default::default() };
    let topic =
        FetchTopic { topic: "t".into(), partitions: partitions.map(of).collect(), ..Default::default() };
    FetchRequest {
        replica_id: -1,
        max_bytes: 1000,
        session_id,
        session_epoch,
        topics: if topic.partitions.is_empty() { Vec::new() } else { vec![topic] },
        ..Default::default()
    }
}
