//! A node compacts what it is told to, and lets go of it when something else is to become of a log.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use tarn_record::builder::{BatchBuilder, Record};
use tarn_record::{Compression, Offset, Timestamp, batches};
use tarn_wire::Records;
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::messages::{DescribeTopicPartitionsRequest, ProduceRequest};

use crate::running::{Client, Running, is_unheard_of, until};

/// The lines of a node that compacts soon, and knows soon what is on its disk.
const EAGER: &str = "log.cleaner.backoff.ms=50\nlog.flush.offset.checkpoint.interval.ms=100\n";
/// The same with a cleaner that takes some seconds for a round.
const SLOW: &str = "log.cleaner.backoff.ms=50\nlog.flush.offset.checkpoint.interval.ms=100\n\
                    log.cleaner.io.max.bytes.per.second=1500000\n";
const RATE: &str = "log.cleaner.io.max.bytes.per.second";
const COMPACTED: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("segment.bytes", "1048576"), ("min.cleanable.dirty.ratio", "0.01")];
const CHECKPOINT: &str = "cleaner-offset-checkpoint";
const NOW: Timestamp = Timestamp(1_700_000_000_000);
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Records of 100 kB, of keys in turn, so that a segment has some ten of them.
pub(crate) fn fill(client: &mut Client, topic: &str, keys: usize, records: usize) {
    for number in 0..records {
        let key = format!("key {}", number % keys);
        produce(client, topic, &[(key, vec![number as u8; 100_000])]);
    }
}

fn produce(client: &mut Client, topic: &str, records: &[(String, Vec<u8>)]) {
    let mut batch = BatchBuilder::new(Offset(0), Compression::None).timestamp(NOW);
    for (key, value) in records {
        let (key, value) = (Some(key.as_bytes()), Some(&value[..]));
        batch.add(&Record { key, value, timestamp: NOW, ..Record::default() });
    }
    let data = PartitionProduceData { index: 0, records: Some(Records::from(batch.build())) };
    let topic_data =
        vec![TopicProduceData { name: topic.into(), partition_data: vec![data], ..Default::default() }];
    let request = ProduceRequest { acks: 1, timeout_ms: 30_000, topic_data, ..Default::default() };
    until(&format!("{topic} is here"), || {
        let answer = client.call(9, &request).responses[0].partition_responses[0].clone();
        let is_absent = is_unheard_of(answer.error_code);
        assert!(is_absent || answer.error_code == 0, "{answer:?}");
        !is_absent
    });
}

/// How many records the segments of a log hold, and of each key the offset of the newest.
fn contents(log: &Path) -> (usize, BTreeMap<Vec<u8>, i64>) {
    let (mut records, mut newest) = (0, BTreeMap::new());
    for segment in files(log, "log") {
        // It may be replaced this moment.
        let Ok(bytes) = std::fs::read(&segment) else { continue };
        for batch in batches(bytes.into()).map_while(Result::ok) {
            let mut reader = batch.reader(1 << 24).expect("it is not compressed");
            while let Some(record) = reader.next() {
                let record = record.expect("it is whole");
                let offset = batch.header().base_offset.0 + i64::from(record.offset_delta);
                records += 1;
                let key = record.key.expect("it has one").to_vec();
                newest.entry(key).and_modify(|at: &mut i64| *at = offset.max(*at)).or_insert(offset);
            }
        }
    }
    (records, newest)
}

fn files(log: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(log).expect("the log is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension() == Some(extension.as_ref())).collect();
    paths.sort();
    paths
}

/// Waits until a round is writing a segment of this log, and has it take hours from there.
fn catch_a_round(client: &mut Client, log: &Path) {
    client.alter(BROKER, "", RATE, "1500000");
    until("a round is under way", || is_being_cleaned(log));
    client.alter(BROKER, "", RATE, "1");
    assert!(is_being_cleaned(log));
}

/// True while a round is writing a segment of this log.
fn is_being_cleaned(log: &Path) -> bool {
    !files(log, "cleaned").is_empty()
}

/// Where compaction of a topic's only partition goes on, as the file says.
fn checkpoint(log: &Path) -> Option<i64> {
    let text = std::fs::read_to_string(log.parent()?.join(CHECKPOINT)).ok()?;
    let name = log.file_name()?.to_str()?.strip_suffix("-0")?.to_owned() + " 0 ";
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
}

#[test]
fn a_compacted_topic_keeps_the_newest_of_each_key_and_goes_on_there_after_a_restart() {
    let node = Running::new(EAGER);
    let mut client = node.client();
    client.create("t", 1, &COMPACTED);
    client.create("kept", 1, &[("segment.bytes", "1048576")]);
    for topic in ["t", "kept"] {
        fill(&mut client, topic, 3, 45);
    }
    let log = node.log("t", 0);
    until("all but what is not closed is compacted", || contents(&log).0 <= 3 + 10);
    until("that is written down", || checkpoint(&log).is_some_and(|at| at > 30));
    let newest = contents(&log).1;
    assert_eq!(newest, BTreeMap::from([0, 1, 2].map(|key| (format!("key {key}").into_bytes(), 42 + key))));
    assert_eq!(contents(&node.log("kept", 0)).0, 45, "nobody asked for that");
    assert_eq!(checkpoint(&node.log("kept", 0)), None);
    let before = checkpoint(&log);
    let left = node.stop();

    let node = Running::again_with(left.path(), EAGER);
    let mut client = node.client();
    let log = node.log("t", 0);
    assert_eq!((checkpoint(&log), contents(&log).1), (before, newest));
    fill(&mut client, "t", 3, 20);
    until("what came after is compacted too", || checkpoint(&log) > before && contents(&log).0 <= 3 + 10);
}

#[test]
fn what_is_dirty_enough_is_told_by_the_topic() {
    let node = Running::new(EAGER);
    let mut client = node.client();
    let lazy = [("cleanup.policy", "compact"), ("segment.bytes", "1048576")];
    for topic in ["lazy", "eager"] {
        client.create(topic, 1, &lazy);
        client.alter(TOPIC, topic, "min.cleanable.dirty.ratio", "1");
        fill(&mut client, topic, 3, 30);
    }
    client.alter(TOPIC, "eager", "min.cleanable.dirty.ratio", "0.1");
    until("the one is compacted", || contents(&node.log("eager", 0)).0 <= 3 + 10);
    assert_eq!(contents(&node.log("lazy", 0)).0, 30, "all of it is dirty, and no more than that");
}

#[test]
fn a_policy_that_changes_ends_a_round_and_begins_the_next() {
    let node = Running::new(SLOW);
    let mut client = node.client();
    client.create("t", 1, &COMPACTED);
    fill(&mut client, "t", 3, 30);
    let log = node.log("t", 0);
    catch_a_round(&mut client, &log);
    client.alter(TOPIC, "t", "cleanup.policy", "delete");
    until("it has ended", || !is_being_cleaned(&log));
    client.alter(BROKER, "", RATE, "1e12");
    // Another topic is compacted meanwhile, so the cleaner has been here.
    client.create("other", 1, &COMPACTED);
    fill(&mut client, "other", 3, 30);
    until("the other is compacted", || contents(&node.log("other", 0)).0 <= 3 + 10);
    assert_eq!(contents(&log).0, 30);
    client.alter(TOPIC, "t", "cleanup.policy", "compact");
    until("it is compacted after all", || contents(&log).0 <= 3 + 10);
}

#[test]
fn a_topic_that_is_deleted_while_it_is_compacted_is_gone_and_the_next_one_has_a_log_of_its_own() {
    let node = Running::new(SLOW);
    let mut client = node.client();
    for _ in 0..3 {
        client.create("t", 1, &COMPACTED);
        fill(&mut client, "t", 3, 30);
        catch_a_round(&mut client, &node.log("t", 0));
        client.delete("t");
    }
    client.create("t", 1, &COMPACTED);
    produce(&mut client, "t", &[("key".to_owned(), vec![1])]);
    assert!(!is_being_cleaned(&node.log("t", 0)) && files(&node.log("t", 0), "log").len() == 1);
    assert_eq!(contents(&node.log("t", 0)).1, BTreeMap::from([(b"key".to_vec(), 0)]));
}

#[test]
fn a_stop_waits_for_no_round_and_leaves_nothing_of_it() {
    let node = Running::new(SLOW);
    let mut client = node.client();
    client.create("t", 1, &COMPACTED);
    fill(&mut client, "t", 3, 30);
    catch_a_round(&mut client, &node.log("t", 0));
    let began = Instant::now();
    let left = node.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "the round would have taken minutes");
    assert!(left.path().join(".kafka_cleanshutdown").exists());
    assert!(!is_being_cleaned(&left.path().join("t-0")));
    let node = Running::again_with(left.path(), EAGER);
    node.client().alter(BROKER, "", RATE, "1e12");
    until("it is compacted", || contents(&node.log("t", 0)).0 <= 3 + 10);
    assert_eq!(contents(&node.log("t", 0)).1.len(), 3);
}

#[test]
fn keys_that_do_not_fit_into_the_memory_take_several_rounds() {
    let node =
        Running::new(&format!("{EAGER}log.cleaner.threads=2\nlog.cleaner.dedupe.buffer.size=2097200\n"));
    let mut client = node.client();
    client.create("t", 1, &COMPACTED);
    // A thread has room for less than 44,000 keys.
    let keys = 60_000;
    for round in 0..2u8 {
        for first in (0..keys).step_by(5000) {
            let records: Vec<_> =
                (first..first + 5000).map(|key| (format!("key {key}"), vec![round; 20])).collect();
            produce(&mut client, "t", &records);
        }
    }
    let log = node.log("t", 0);
    let in_a_segment = 1024 * 1024 / 30;
    until("only the newest of each is left", || contents(&log).0 <= keys + in_a_segment);
    assert_eq!(contents(&log).1.len(), keys);
}

#[test]
fn a_damaged_log_is_left_alone_and_the_others_are_compacted() {
    let node = Running::new(&format!("{EAGER}log.cleaner.threads=0\n"));
    let mut client = node.client();
    for topic in ["damaged", "t"] {
        client.create(topic, 1, &COMPACTED);
        fill(&mut client, topic, 3, 30);
    }
    let first = files(&node.log("damaged", 0), "log")[0].clone();
    let mut bytes = std::fs::read(&first).expect("it is there");
    bytes[50_000] ^= 1;
    std::fs::write(&first, &bytes).expect("there is room");
    client.alter(BROKER, "", "log.cleaner.threads", "1");
    until("the other is compacted", || contents(&node.log("t", 0)).0 <= 3 + 10);
    let again = [("t", 20), ("damaged", 20)];
    again.iter().for_each(|(topic, records)| fill(&mut client, topic, 3, *records));
    until("and again", || checkpoint(&node.log("t", 0)).is_some_and(|at| at > 30));
    assert_eq!(std::fs::read(&first).expect("it is there"), bytes);
    assert_eq!(checkpoint(&node.log("damaged", 0)), Some(0));
}

#[test]
fn a_cleaner_that_is_not_enabled_compacts_nothing() {
    let node = Running::new(&format!("{EAGER}log.cleaner.enable=false\n"));
    let mut client = node.client();
    client.create("t", 1, &COMPACTED);
    fill(&mut client, "t", 3, 30);
    until("the recovery point is written down", || {
        let points = node.log("t", 0).with_file_name("recovery-point-offset-checkpoint");
        std::fs::read_to_string(points).is_ok_and(|text| text.contains("t 0 30"))
    });
    client.call(0, &DescribeTopicPartitionsRequest::default());
    assert_eq!(contents(&node.log("t", 0)).0, 30);
}
