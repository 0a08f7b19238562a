//! What is deleted: by clients, by retention, with its topic; who is told, and when the files go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tarn_wire::ErrorCode;
use tarn_wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use tarn_wire::messages::delete_records_response::DeleteRecordsPartitionResult;
use tarn_wire::messages::describe_log_dirs_request::DescribableLogDirTopic;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::{
    DeleteRecordsRequest, DescribeLogDirsRequest, FetchRequest, FetchResponse, ListOffsetsRequest,
    StopMirrorTopicsRequest,
};

use crate::mirrored::{Source, await_state, topic_id};
use crate::running::{Client, Running, until};

/// How long a fetch would wait for records.
const WAIT: Duration = Duration::from_secs(50);
const HIGH_WATERMARK: i64 = -1;

#[test]
fn records_are_deleted_up_to_an_offset_and_all_others_stay() {
    let node = Running::new("");
    let mut client = filled(&node, 5);
    assert_eq!(delete_records(&mut client, "t", 3), (3, 0));
    assert_eq!(delete_records(&mut client, "t", 1), (3, 0), "they are deleted already");
    assert_eq!(earliest(&mut client, "t"), 3);
    let out_of_range = (-1, ErrorCode::OFFSET_OUT_OF_RANGE.0);
    assert_eq!(delete_records(&mut client, "t", 6), out_of_range, "it is not committed");
    assert_eq!(delete_records(&mut client, "t", -2), out_of_range);
    assert_eq!(delete_records(&mut client, "t", HIGH_WATERMARK), (5, 0));
    assert_eq!(earliest(&mut client, "t"), 5);
    assert_eq!(client.produce("t", -1, 10).base_offset, 5);
    assert_eq!(delete_records(&mut client, "nothing", 0), (-1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0));
}

#[test]
fn what_is_only_compacted_keeps_its_records() {
    let node = Running::new("");
    let mut client = node.client();
    for (policy, code) in
        [("compact", ErrorCode::POLICY_VIOLATION), ("compact,delete", ErrorCode::NONE), ("", ErrorCode::NONE)]
    {
        let topic = format!("t{}", policy.len());
        client.create(&topic, 1, &[("cleanup.policy", policy)]);
        assert_eq!(delete_records(&mut client, &topic, HIGH_WATERMARK).1, code.0, "{policy:?}");
    }
}

#[test]
fn what_a_client_was_told_is_deleted_stays_so_after_a_crash() {
    let node = Running::new("");
    let mut client = filled(&node, 5);
    assert_eq!(delete_records(&mut client, "t", 4), (4, 0));
    // A copy of what is there while the node runs is what a crash would leave.
    let again = Running::again(&directory(&node));
    let mut client = again.client();
    until("the log to be recovered", || earliest(&mut client, "t") == 4);
    let stopped = again.stop();
    assert_eq!(earliest(&mut Running::again(stopped.path()).client(), "t"), 4);
}

#[test]
fn a_log_start_is_on_the_disk_before_the_client_is_told() {
    let node = Running::new("replica.high.watermark.checkpoint.interval.ms=60000\n");
    let mut client = filled(&node, 9);
    for offset in 1..=9 {
        assert_eq!(delete_records(&mut client, "t", offset), (offset, 0));
        let text = fs::read_to_string(directory(&node).join("log-start-offset-checkpoint"));
        let text = text.expect("it is there");
        assert!(text.contains(&format!("t 0 {offset}")), "{offset}: {text}");
    }
}

#[test]
fn who_waits_below_what_is_deleted_is_told_at_once() {
    let node = Running::new("");
    let mut admin = filled(&node, 3);
    let mut consumer = node.client();
    let began = Instant::now();
    consumer.send(12, &waiting_at(1));
    // The answer to a request of another partition says that the fetch was taken up before it.
    consumer.send(12, &FetchRequest { session_epoch: -1, ..Default::default() });
    assert_eq!(delete_records(&mut admin, "t", 2), (2, 0));
    let fetched = consumer.receive::<FetchRequest>(12);
    assert!(began.elapsed() < WAIT, "it did not wait its time out");
    assert_eq!(fetched.responses[0].partitions[0].error_code, ErrorCode::OFFSET_OUT_OF_RANGE.0);
}

#[test]
fn old_records_go_and_the_files_follow_after_their_delay() {
    let node = Running::new("log.retention.check.interval.ms=20\n");
    let mut client = node.client();
    client.create("old", 1, &[("retention.ms", "1000"), ("file.delete.delay.ms", "0")]);
    client.create("waits", 1, &[("retention.ms", "1000")]);
    client.create("large", 1, &[("retention.ms", "-1"), ("retention.bytes", "0")]);
    client.create("kept", 1, &[("retention.ms", "-1")]);
    client.create("compacted", 1, &[("retention.ms", "1000"), ("cleanup.policy", "")]);
    for topic in ["old", "waits", "large", "kept", "compacted"] {
        assert_eq!(client.produce(topic, -1, 10).error_code, 0);
    }
    for topic in ["old", "waits", "large"] {
        until(topic, || earliest(&mut client, topic) == 1);
    }
    let first = "00000000000000000000.log.deleted";
    until("the files to go", || !node.log("old", 0).join(first).exists());
    assert!(!node.log("old", 0).join("00000000000000000000.log").exists());
    assert!(node.log("waits", 0).join(first).exists(), "a minute is not over");
    for topic in ["kept", "compacted"] {
        assert_eq!(earliest(&mut client, topic), 0);
    }
    let left = node.stop();
    assert!(left.path().join("waits-0").join(first).exists());
    let again = Running::again(left.path());
    assert!(!again.log("waits", 0).join(first).exists(), "the next start removes it");
    assert_eq!(earliest(&mut again.client(), "waits"), 1);
}

#[test]
fn the_directory_of_a_deleted_topic_goes_after_its_delay_and_by_the_next_start() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("soon", 3, &[("file.delete.delay.ms", "0")]);
    client.create("later", 1, &[]);
    client.delete("soon");
    client.delete("later");
    until("the directories to go", || deleted(&directory(&node), "soon").is_empty());
    until("the other to be renamed", || deleted(&directory(&node), "later").len() == 1);
    let left = node.stop();
    let again = Running::again(left.path());
    until("what is left to go", || deleted(&directory(&again), "later").is_empty());
}

#[test]
fn an_answer_that_is_being_sent_is_finished_whatever_is_deleted_meanwhile() {
    let node = Running::new("");
    let mut admin = node.client();
    for (way, wait) in
        [(Deletion::OfRecords, "the segments to go"), (Deletion::OfTopic, "the directory to go")]
    {
        admin.create("t", 1, &[("segment.bytes", "4194304"), ("file.delete.delay.ms", "0")]);
        for _ in 0..LARGE {
            assert_eq!(admin.produce("t", -1, 1_000_000).error_code, 0);
        }
        let mut consumer = node.client();
        let whole = consumer.call(12, &fetch_of_all());
        let records = |answer: &FetchResponse| answer.responses[0].partitions[0].records.clone();
        assert!(records(&whole).is_some_and(|records| records.len() > 30_000_000), "more than sockets hold");
        consumer.send(12, &fetch_of_all());
        assert_eq!(consumer.stream().peek(&mut [0]).ok(), Some(1), "it is being sent");
        match way {
            Deletion::OfRecords => assert_eq!(delete_records(&mut admin, "t", HIGH_WATERMARK).1, 0),
            Deletion::OfTopic => admin.delete("t"),
        }
        let first = node.log("t", 0).join("00000000000000000000.log");
        let is_gone = || {
            let waits = first.with_extension("log.deleted");
            !first.exists() && !waits.exists() && deleted(&directory(&node), "t").is_empty()
        };
        until(wait, is_gone);
        assert!(records(&consumer.receive::<FetchRequest>(12)) == records(&whole), "{wait}");
        if way == Deletion::OfRecords {
            admin.delete("t");
        }
    }
}

#[test]
fn what_is_mirrored_is_deleted_by_nobody_here_until_it_is_stopped() {
    let (source, node) = Source::mirrored();
    let mut client = node.client();
    let topic = topic_id(&mut client);
    await_state(&mut client, topic, |one| one.error_code == 0);
    let (_, code) = delete_records(&mut client, "t", HIGH_WATERMARK);
    assert_eq!(code, ErrorCode::POLICY_VIOLATION.0);
    let stop =
        StopMirrorTopicsRequest { mirror_name: "m".into(), patterns: vec!["t".into()], ..Default::default() };
    assert_eq!(client.call(0, &stop).error_code, 0);
    until("it to be writable", || client.produce("t", -1, 10).error_code == 0);
    until("its records to go", || delete_records(&mut client, "t", HIGH_WATERMARK).1 == 0);
    drop(source);
}

#[test]
fn log_dirs_are_described_with_what_is_in_them() {
    let node = Running::new("");
    let mut client = filled(&node, 2);
    client.create("other", 12, &[]);
    let all = client.call(4, &DescribeLogDirsRequest { topics: None });
    assert_eq!((all.error_code, all.results.len()), (0, 1));
    let dir = &all.results[0];
    assert_eq!((dir.error_code, Path::new(&*dir.log_dir)), (0, &*directory(&node)));
    assert!(dir.total_bytes > dir.usable_bytes && dir.usable_bytes > 0, "{dir:?}");
    let found: Vec<_> = dir.topics.iter().map(|topic| (&*topic.name, topic.partitions.len())).collect();
    assert_eq!(found, [("other", 12), ("t", 1)]);
    let partition = &dir.topics[1].partitions[0];
    let size = fs::metadata(node.log("t", 0).join("00000000000000000000.log")).expect("it is there").len();
    assert_eq!((partition.partition_size as u64, partition.offset_lag), (size, 0));
    assert!(!partition.is_future_key);

    let topic = DescribableLogDirTopic { topic: "other".into(), partitions: vec![3, 99] };
    let nothing = DescribableLogDirTopic { topic: "nothing".into(), partitions: vec![0] };
    let some = client.call(1, &DescribeLogDirsRequest { topics: Some(vec![topic, nothing]) });
    let topics = &some.results[0].topics;
    assert_eq!((topics.len(), topics[0].partitions.len()), (1, 1));
    assert_eq!(topics[0].partitions[0].partition_index, 3);
    assert_eq!(some.results[0].total_bytes, -1, "version 1 does not say it");
}

/// What goes while somebody reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    OfRecords,
    OfTopic,
}

/// Records of 1 MB in a topic that is read in one answer.
const LARGE: usize = 32;

fn fetch_of_all() -> FetchRequest {
    let mut fetch = waiting_at(0);
    (fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) = (0, 1, 50_000_000);
    fetch.topics[0].partitions[0].partition_max_bytes = 50_000_000;
    fetch
}

/// A client of a node whose topic `t` has so many records.
fn filled(node: &Running, records: usize) -> Client {
    let mut client = node.client();
    client.create("t", 1, &[]);
    for _ in 0..records {
        assert_eq!(client.produce("t", -1, 10).error_code, 0);
    }
    client
}

/// Where the log starts after it, and the error.
fn delete_records(client: &mut Client, topic: &str, offset: i64) -> (i64, i16) {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
    let topics = vec![DeleteRecordsTopic { name: topic.into(), partitions }];
    let answer = client.call(2, &DeleteRecordsRequest { topics, timeout_ms: 10_000 });
    let DeleteRecordsPartitionResult { low_watermark, error_code, .. } = answer.topics[0].partitions[0];
    (low_watermark, error_code)
}

fn earliest(client: &mut Client, topic: &str) -> i64 {
    let partition = ListOffsetsPartition { partition_index: 0, current_leader_epoch: -1, timestamp: -2 };
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    client.call(7, &request).topics[0].partitions[0].offset
}

/// A fetch of `t` that has to wait for many more bytes than there are.
fn waiting_at(fetch_offset: i64) -> FetchRequest {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    FetchRequest {
        replica_id: -1,
        max_wait_ms: WAIT.as_millis() as i32,
        min_bytes: 1 << 20,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: "t".into(), partitions: vec![partition], ..Default::default() }],
        ..Default::default()
    }
}

fn directory(node: &Running) -> PathBuf {
    node.log("t", 0).parent().expect("it is in a directory").to_owned()
}

/// The directories of a topic that wait to be removed.
fn deleted(dir: &Path, topic: &str) -> Vec<String> {
    let names = fs::read_dir(dir).expect("it is a directory").filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        (name.starts_with(topic) && name.ends_with("-delete")).then_some(name)
    });
    names.collect()
}
