//! Fetch sessions over the wire: what a client is told where there is no room for its session.

use std::time::{Duration, Instant};

use tarn_broker::limits::FETCH_SESSION_PARTITIONS_PER_CORE;
use tarn_wire::ErrorCode;
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

#[test]
fn a_session_is_gone_on_with_by_its_rules_alone() {
    let node = Running::new("tarn.cores=0\n");
    let mut client = node.client();
    client.create("t", 3, &[]);
    let refused = |client: &mut Client, session, version| {
        let answer = client.call(version, &request(session, 0..0));
        assert!(answer.responses.is_empty() && answer.session_id == 0);
        ErrorCode(answer.error_code)
    };
    let session = fetch(&mut client, (0, 0), 0..3);
    assert_eq!(refused(&mut client, (session, 2), 12), ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(refused(&mut client, (session ^ 1, 1), 12), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(refused(&mut client, (0, 1), 12), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(refused(&mut client, (session, 1), 13), ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
    assert_eq!(client.call(12, &request((session, 1), 0..0)).session_id, session, "none of them counted");
    let other = fetch(&mut client, (session, 0), 0..3);
    assert_ne!(other, session, "a full fetch begins anew");
    assert_eq!(refused(&mut client, (session, 2), 12), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(fetch(&mut client, (other, -1), 0..3), 0, "a last fetch is full, and has no session");
    assert_eq!(refused(&mut client, (other, 1), 12), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn an_incremental_answer_tells_what_has_changed_and_an_empty_session_ends() {
    let node = Running::new("tarn.cores=0\n");
    let mut client = node.client();
    client.create("t", 3, &[]);
    let session = fetch(&mut client, (0, 0), 0..3);
    assert!(client.call(12, &request((session, 1), 0..0)).responses.is_empty());
    assert_eq!(client.produce("t", -1, 10).error_code, 0);
    let told = client.call(12, &request((session, 2), 0..0));
    let partitions = &told.responses[0].partitions;
    assert_eq!((partitions.len(), partitions[0].partition_index, partitions[0].high_watermark), (1, 0, 1));
    assert!(partitions[0].records.as_ref().is_some_and(|records| !records.is_empty()));
    let forgotten = ForgottenTopic { topic: "t".into(), partitions: vec![0, 1], ..Default::default() };
    let forget = FetchRequest { forgotten_topics_data: vec![forgotten], ..request((session, 3), 0..0) };
    let left = client.call(12, &forget);
    assert!(left.session_id == session && left.responses.is_empty(), "what is forgotten is not told");
    let unknown = client.call(12, &request((session, 4), 5..6));
    assert_eq!(unknown.responses[0].partitions[0].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0);
    let forgotten = ForgottenTopic { topic: "t".into(), partitions: vec![2, 5], ..Default::default() };
    let forget = FetchRequest { forgotten_topics_data: vec![forgotten], ..request((session, 5), 0..0) };
    assert_eq!(client.call(12, &forget).session_id, 0, "an empty session ends");
    let next = client.call(12, &request((session, 6), 0..0));
    assert_eq!(next.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0);
}

#[test]
fn a_session_that_is_behind_gets_to_the_end_of_the_partitions_of_every_core() {
    const BATCHES: usize = 6;
    let node = Running::new("tarn.cores=0,0\n");
    let mut client = node.client();
    client.create("t", PARTITIONS as i32, &[]);
    for _ in 0..BATCHES {
        (0..PARTITIONS).for_each(|partition| client.produce_to("t", partition as i32, 600));
    }
    let mut offsets = [0; PARTITIONS];
    let mut answer = client.call(12, &from((0, 0), &offsets, &[-1; PARTITIONS]));
    for epoch in 1.. {
        let before = offsets;
        for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            let bytes = partition.records.as_ref().and_then(|records| records.to_bytes()).unwrap_or_default();
            let whole = tarn_record::batches(bytes).map_while(Result::ok).count();
            offsets[partition.partition_index as usize] += whole as i64;
        }
        if offsets == [BATCHES as i64; PARTITIONS] {
            return;
        }
        assert!(epoch <= (BATCHES * PARTITIONS) as i32, "there is a batch in each answer: {offsets:?}");
        answer = client.call(12, &from((answer.session_id, epoch), &offsets, &before));
        assert_eq!(answer.error_code, 0);
    }
}

const PARTITIONS: usize = 8;

/// What has changed of these offsets, for one batch at a time.
fn from(session: (i32, i32), offsets: &[i64], told: &[i64]) -> FetchRequest {
    let of = |(index, offset): (usize, &i64)| FetchPartition {
        partition: index as i32,
        fetch_offset: *offset,
        partition_max_bytes: 1000,
        last_fetched_epoch: -1,
        current_leader_epoch: -1,
        ..Default::default()
    };
    let changed = offsets.iter().enumerate().filter(|(index, offset)| told[*index] != **offset);
    let topic = FetchTopic { topic: "t".into(), partitions: changed.map(of).collect(), ..Default::default() };
    FetchRequest {
        max_bytes: 600,
        topics: vec![topic],
        max_wait_ms: 500,
        min_bytes: 1,
        ..request(session, 0..0)
    }
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
