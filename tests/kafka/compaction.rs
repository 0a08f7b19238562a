//! The same history, compacted by Apache Kafka and by Tarn, reads the same; and what Tarn has compacted Kafka's tools
//! and Kafka itself can read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use tarn_tests::compare::await_mirrored;
use tarn_tests::dump;
use tarn_tests::kafka::{KafkaNode, NodeOptions, copy_directory};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{kcat, python, tool};
use tarn_tests::waiting::{until, until_some};

const COPIED: Duration = Duration::from_secs(60);
const COMPACTED: Duration = Duration::from_secs(60);
const LEVELS: [&str; 2] = ["read_committed", "read_uncommitted"];
/// Nothing is compacted while a history is written and copied.
const HELD: &str = "min.cleanable.dirty.ratio=1";
const LET_GO: &str = "min.cleanable.dirty.ratio=0.01";
const KEPT: &str = "kept";
const GONE: &str = "gone";

#[test]
fn a_history_that_kafka_and_tarn_compact_reads_the_same_to_consumers() {
    let source = KafkaNode::start(&NodeOptions::default());
    for (topic, delete_retention) in [(KEPT, "delete.retention.ms=86400000"), (GONE, "delete.retention.ms=1")]
    {
        create(&source.bootstrap(), topic, &["cleanup.policy=compact", HELD, delete_retention]);
    }
    let mut tarn = Tarn::start(&eager(&[]));
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    let mut compacted = BTreeMap::new();
    for round in 0..2 {
        for topic in [KEPT, GONE] {
            write_history(&source.bootstrap(), topic, "transactional", round);
            // So that every transaction ends in a closed segment: Tarn does not go beyond one that does not.
            write_history(&source.bootstrap(), topic, "plain", 100 + round);
        }
        let is_ours = |topic: &str| topic == KEPT || topic == GONE;
        await_mirrored(&source.bootstrap(), &tarn.bootstrap(), is_ours, COPIED);
        for topic in [KEPT, GONE] {
            let raw = LEVELS.map(|level| read(&source.bootstrap(), topic, level));
            assert_eq!(raw, LEVELS.map(|level| read(&tarn.bootstrap(), topic, level)), "{topic}, copied");
            for bootstrap in [source.bootstrap(), tarn.bootstrap()] {
                alter(&bootstrap, topic, LET_GO);
            }
            let before = compacted.get(topic).copied().unwrap_or(0);
            let to = compacted_by_both(&source.data(), &tarn.data(), topic, before);
            compacted.insert(topic, to);
            for (level, raw) in LEVELS.iter().zip(&raw) {
                let (theirs, ours) =
                    (read(&source.bootstrap(), topic, level), read(&tarn.bootstrap(), topic, level));
                assert_same(&format!("{topic} by {level} after round {round}"), &theirs, &ours);
                assert_eq!(newest(&ours), newest(raw), "{topic} by {level}: what each key is");
            }
            let below: Vec<_> = read(&tarn.bootstrap(), topic, LEVELS[0]);
            let below = below.iter().filter(|record| record.offset < to);
            let keys: BTreeSet<&str> = below.clone().map(|record| record.key.as_str()).collect();
            assert_eq!(below.count(), keys.len(), "one record for each key below {to}");
            for bootstrap in [source.bootstrap(), tarn.bootstrap()] {
                alter(&bootstrap, topic, HELD);
            }
        }
    }
    let before = [KEPT, GONE].map(|topic| LEVELS.map(|level| read(&tarn.bootstrap(), topic, level)));
    tarn.stop();
    for topic in [KEPT, GONE] {
        assert_dump_log_is_content(&tarn, topic);
    }
    tarn.start_again();
    let after = [KEPT, GONE].map(|topic| LEVELS.map(|level| read(&tarn.bootstrap(), topic, level)));
    assert!(before == after, "a restart changes nothing");
}

#[test]
fn a_node_that_is_killed_while_it_compacts_loses_nothing() {
    let mut tarn = Tarn::start(&eager(&[("log.cleaner.io.max.bytes.per.second", "8000000")]));
    create(&tarn.bootstrap(), "t", &["cleanup.policy=compact", HELD]);
    (0..3).for_each(|seed| write_history(&tarn.bootstrap(), "t", "plain", seed));
    let raw = read(&tarn.bootstrap(), "t", LEVELS[0]);
    alter(&tarn.bootstrap(), "t", LET_GO);
    let log = tarn.data().join("t-0");
    for kill in 0..6 {
        // Every second time in the middle of a round that has replaced something.
        let bytes = bytes_of(&log);
        until("a round is under way", COMPACTED, || {
            holds(&log, "cleaned") && (kill % 2 == 0 || bytes_of(&log) < bytes)
        });
        tarn.kill();
        tarn.start_again();
        assert!(newest(&read(&tarn.bootstrap(), "t", LEVELS[0])) == newest(&raw), "after kill {kill}");
    }
    alter_node(&tarn.bootstrap(), "log.cleaner.io.max.bytes.per.second=1000000000");
    settled(&tarn.data(), "t");
    let last = read(&tarn.bootstrap(), "t", LEVELS[0]);
    assert!(newest(&last) == newest(&raw) && last.len() * 2 < raw.len(), "{} of {}", last.len(), raw.len());
    tarn.stop();
    assert_dump_log_is_content(&tarn, "t");
}

#[test]
fn kafka_reads_what_tarn_has_compacted_and_goes_on_there() {
    let mut tarn = Tarn::start(&eager(&[]));
    create(&tarn.bootstrap(), "t", &["cleanup.policy=compact", LET_GO, "delete.retention.ms=1"]);
    for round in 0..2 {
        let before = checkpoint(&tarn.data(), "t");
        write_history(&tarn.bootstrap(), "t", "plain", round);
        until("it is compacted", COMPACTED, || checkpoint(&tarn.data(), "t") > before.max(Some(0)));
    }
    settled(&tarn.data(), "t");
    let ours = read(&tarn.bootstrap(), "t", LEVELS[0]);
    tarn.stop();
    let copy = tempfile::tempdir().unwrap();
    let data = copy.path().join("data");
    copy_directory(&tarn.data(), &data);
    let node = KafkaNode::start(&NodeOptions { data: Some(data.clone()), ..NodeOptions::default() });
    assert_same("what Kafka reads of it", &ours, &read(&node.bootstrap(), "t", LEVELS[0]));
    write_history(&node.bootstrap(), "t", "plain", 3);
    let before = checkpoint(&tarn.data(), "t");
    until("Kafka compacts it further", COMPACTED, || checkpoint(&data, "t") > before);
    tarn.start_again();
    assert_same("what we read of it again", &ours, &read(&tarn.bootstrap(), "t", LEVELS[0]));
}

#[test]
fn who_reads_while_rounds_run_sees_each_record_once_and_the_newest_of_each_key() {
    let tarn = Tarn::start(&eager(&[
        ("log.cleaner.io.max.bytes.per.second", "5000000"),
        ("log.cleaner.threads", "2"),
        ("log.cleaner.dedupe.buffer.size", "4000000"),
    ]));
    create(&tarn.bootstrap(), "t", &["cleanup.policy=compact", HELD]);
    (0..3).for_each(|seed| write_history(&tarn.bootstrap(), "t", "plain", seed));
    let raw = read(&tarn.bootstrap(), "t", LEVELS[0]);
    alter(&tarn.bootstrap(), "t", LET_GO);
    let mut lengths = Vec::new();
    while !is_settled(&tarn.data(), "t") {
        let records = read(&tarn.bootstrap(), "t", LEVELS[0]);
        assert!(records.windows(2).all(|two| two[0].offset < two[1].offset), "each once, in order");
        assert!(newest(&records) == newest(&raw), "the newest of each key, whenever it is read");
        lengths.push(records.len());
    }
    assert!(lengths.len() > 3 && lengths.iter().any(|length| *length < raw.len()), "{lengths:?}");
}

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    offset: i64,
    key: String,
    /// `None` of a tombstone.
    value: Option<String>,
}

/// Partition 0 of a topic, from its beginning to its end.
fn read(bootstrap: &str, topic: &str, level: &str) -> Vec<Seen> {
    let level = format!("isolation.level={level}");
    let arguments = [
        "-C",
        "-b",
        bootstrap,
        "-t",
        topic,
        "-p",
        "0",
        "-o",
        "beginning",
        "-e",
        "-q",
        "-X",
        &level,
        "-f",
        "%o %k %S %s\n",
    ];
    let text = kcat(&arguments, None).ok();
    let seen = |line: &str| {
        let mut parts = line.splitn(4, ' ');
        let (offset, key) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let length: i64 = parts.next()?.parse().ok()?;
        Some(Seen { offset, key, value: parts.next().filter(|_| length >= 0).map(str::to_owned) })
    };
    text.lines().map(|line| seen(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// What each key is in the end; not those that were deleted.
fn newest(records: &[Seen]) -> BTreeMap<&str, (i64, &str)> {
    let mut newest = BTreeMap::new();
    for Seen { offset, key, value } in records {
        match value {
            Some(value) => newest.insert(key.as_str(), (*offset, value.as_str())),
            None => newest.remove(key.as_str()),
        };
    }
    newest
}

fn assert_same(what: &str, theirs: &[Seen], ours: &[Seen]) {
    assert!(!theirs.is_empty(), "{what}: there is something");
    let differs = theirs.iter().zip(ours).find(|(theirs, ours)| theirs != ours);
    assert!(differs.is_none(), "{what}: {differs:?}");
    assert_eq!(theirs.len(), ours.len(), "{what}");
}

fn write_history(bootstrap: &str, topic: &str, kind: &str, seed: i32) {
    python("keyed_history.py", &[bootstrap, topic, kind, &seed.to_string(), "10000"]).ok();
}

/// A Tarn that compacts soon, and knows soon what is on its disk.
fn eager(more: &[(&str, &str)]) -> TarnOptions {
    let eager = [("log.cleaner.backoff.ms", "100"), ("log.flush.offset.checkpoint.interval.ms", "100")];
    let properties = eager.iter().chain(more).map(|(key, value)| ((*key).to_string(), (*value).to_string()));
    TarnOptions { properties: properties.collect(), ..TarnOptions::default() }
}

fn create(bootstrap: &str, topic: &str, configs: &[&str]) {
    let mut arguments =
        vec!["--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", "1"];
    for config in configs.iter().chain(&["segment.bytes=1048576"]) {
        arguments.extend(["--config", config]);
    }
    tool("TopicCommand", &arguments).ok();
}

fn alter(bootstrap: &str, topic: &str, config: &str) {
    let arguments = ["--bootstrap-server", bootstrap, "--alter", "--topic", topic, "--add-config", config];
    tool("ConfigCommand", &arguments).ok();
}

fn alter_node(bootstrap: &str, config: &str) {
    let arguments = [
        "--bootstrap-server",
        bootstrap,
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-default",
        "--add-config",
        config,
    ];
    tool("ConfigCommand", &arguments).ok();
}

/// Waits until both have compacted a topic beyond `before`, and as far as they can; up to where.
fn compacted_by_both(theirs: &Path, ours: &Path, topic: &str, before: i64) -> i64 {
    until_some("both to have compacted it as far", COMPACTED, || {
        match (checkpoint(theirs, topic), checkpoint(ours, topic)) {
            (Some(theirs), Some(ours)) if theirs == ours && ours > before => Ok(ours),
            different => Err(format!("Kafka and Tarn are at {different:?}")),
        }
    })
}

fn settled(data: &Path, topic: &str) {
    until("all that is closed is compacted", COMPACTED, || is_settled(data, topic));
}

/// True once all that is closed of a log is compacted.
fn is_settled(data: &Path, topic: &str) -> bool {
    let log = data.join(format!("{topic}-0"));
    let segments = dump::files_with(&log, "log");
    let active = segments.last().and_then(|path| path.file_stem()?.to_str()?.parse::<i64>().ok());
    checkpoint(data, topic) == active && !holds(&log, "cleaned")
}

/// Where compaction of partition 0 of a topic goes on.
fn checkpoint(data: &Path, topic: &str) -> Option<i64> {
    let text = fs::read_to_string(data.join("cleaner-offset-checkpoint")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(&format!("{topic} 0 "))?.parse().ok())
}

fn holds(log: &Path, extension: &str) -> bool {
    !dump::files_with(log, extension).is_empty()
}

fn bytes_of(log: &Path) -> u64 {
    // One may be replaced this moment.
    dump::files_with(log, "log").iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum()
}

/// What is said of gaps is no fault of a log that was compacted.
fn assert_dump_log_is_content(tarn: &Tarn, topic: &str) {
    let found = dump::problems(&dump::files_of(&tarn.data().join(format!("{topic}-0"))));
    let faults: Vec<_> =
        found.iter().filter(|fault| !fault.starts_with("Non-consecutive offsets in")).collect();
    assert!(faults.is_empty(), "{faults:?}");
}
