//! A log that cannot be made or opened: what its clients are told, and that it comes into service by itself.

use std::fs;
use std::time::{Duration, Instant};

use tarn_wire::ErrorCode;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::{FetchRequest, ListOffsetsRequest};

use crate::running::{Client, PATIENCE, Running};

#[test]
fn a_log_that_could_not_be_made_is_made_once_it_can_be() {
    let node = Running::new("");
    let in_the_way = node.log("t", 0);
    fs::write(&in_the_way, "no directory").expect("there is room");
    let mut client = node.client();
    client.create("t", 2, &[]);
    let offline = ErrorCode::KAFKA_STORAGE_ERROR.0;
    assert_eq!(client.produce("t", 1, 10).error_code, offline);
    assert_eq!(fetch(&mut client, 12), offline);
    assert_eq!(fetch(&mut client, 5), ErrorCode::NOT_LEADER_OR_FOLLOWER.0, "it does not know the other");
    assert_eq!(end(&mut client), offline);
    fs::remove_file(&in_the_way).expect("it is there");
    await_service(&mut client);
    assert_eq!((fetch(&mut client, 12), end(&mut client)), (0, 0));
}

#[test]
fn a_log_that_could_not_be_opened_at_the_start_is_opened_once_it_can_be() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    assert_eq!(node.client().produce("t", -1, 10).base_offset, 0);
    let files = node.stop();
    let name = "00000000000000000000.log.swap";
    fs::write(files.path().join("t-0").join(name), "an interrupted compaction").expect("there is room");
    let node = Running::again(files.path());
    let mut client = node.client();
    assert_eq!(client.produce("t", 1, 10).error_code, ErrorCode::KAFKA_STORAGE_ERROR.0);
    fs::remove_file(node.log("t", 0).join(name)).expect("it is there");
    assert_eq!(await_service(&mut client), 1, "with what was in it");
}

#[test]
fn a_topic_whose_log_could_not_be_made_can_be_deleted() {
    let node = Running::new("");
    let in_the_way = node.log("t", 0);
    fs::write(&in_the_way, "no directory").expect("there is room");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.delete("t");
    fs::remove_file(&in_the_way).expect("nobody took it away");
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", 1, 10).error_code, 0);
}

/// Writes until it is taken; its offset.
fn await_service(client: &mut Client) -> i64 {
    let began = Instant::now();
    loop {
        let produced = client.produce("t", 1, 10);
        if produced.error_code == 0 {
            return produced.base_offset;
        }
        assert_eq!(produced.error_code, ErrorCode::KAFKA_STORAGE_ERROR.0);
        assert!(began.elapsed() < PATIENCE, "it is not tried again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The error of a fetch from partition 0.
fn fetch(client: &mut Client, version: i16) -> i16 {
    let partition = FetchPartition { partition_max_bytes: 1000, ..Default::default() };
    let topics = vec![FetchTopic { topic: "t".into(), partitions: vec![partition], ..Default::default() }];
    let request =
        FetchRequest { replica_id: -1, max_bytes: 1000, session_epoch: -1, topics, ..Default::default() };
    client.call(version, &request).responses[0].partitions[0].error_code
}

/// The error of a question for the end of partition 0.
fn end(client: &mut Client) -> i16 {
    let partition = ListOffsetsPartition { timestamp: -1, current_leader_epoch: -1, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: "t".into(), partitions: vec![partition] }];
    let answer = client.call(5, &ListOffsetsRequest { replica_id: -1, topics, ..Default::default() });
    answer.topics[0].partitions[0].error_code
}
