//! SIGKILL again and again while an idempotent producer writes with acks=all: each record is there once, in its order,
//! where its acknowledgement said.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use tarn_tests::lines::{lines, write_lines};
use tarn_tests::process::Process;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{kcat, python_program};
use tarn_tests::waiting::until;
use tempfile::TempDir;

use crate::told::{Told, acknowledged, batches};

const TOPICS: [&str; 3] = ["first", "second", "third"];
/// The producer's own patience is twice as long.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_a_few_kills() {
    kill_again_and_again(6);
}

#[test]
#[ignore = "takes minutes"]
fn nothing_acknowledged_is_lost_or_doubled_by_two_hundred_kills() {
    kill_again_and_again(200);
}

#[test]
fn a_log_that_was_killed_ends_where_it_ended_as_soon_as_it_serves() {
    let mut tarn = Tarn::start(&TarnOptions::default());
    tarn.create_topic("t", 1);
    write_lines(&tarn.bootstrap(), "t", 0, &lines("acknowledged", 50));
    for _ in 0..3 {
        tarn.kill();
        tarn.start_again();
        // Nobody writes, so that nothing else flushes what was recovered.
        assert_eq!(tarn.high_watermark("t"), 50);
    }
}

fn kill_again_and_again(kills: usize) {
    let files = TempDir::with_prefix("tarn-killed-").expect("the temporary directory is writable");
    let mut tarn = Tarn::start(&TarnOptions::default());
    TOPICS.iter().for_each(|topic| tarn.create_topic(topic, 1));
    let stop = files.path().join("stop");
    let mut producer = producer(&tarn, &stop, &files.path().join("producer.log"));
    // How much was acknowledged, and what the node had said, when it was killed.
    let mut killed_at = Vec::with_capacity(kills);
    for kill in 0..kills {
        // More of them each time, so that a kill meets the log at every point.
        let wanted = acknowledged(&producer.output()) + 20 + kill % 7 * 30;
        until("acknowledgements", LIMIT, || acknowledged(&producer.output()) >= wanted);
        tarn.kill();
        killed_at.push((acknowledged(&producer.output()), tarn.output().lines().count()));
        tarn.start_again();
    }
    File::create(&stop).expect("it is ours");
    until("the producer to end", LIMIT, || producer.ended().is_some());
    let said = producer.output();
    assert!(said.ends_with("ended\n"), "{}", said.lines().last().unwrap_or_default());

    let given_up: Vec<&str> = said.lines().filter(|line| line.starts_with("failed ")).collect();
    let stored = TOPICS.map(|topic| stored(&tarn, topic));
    let faults: Vec<String> =
        TOPICS.iter().zip(&stored).filter_map(|(topic, stored)| fault(topic, stored, &said, kills)).collect();
    if !faults.is_empty() || !given_up.is_empty() {
        let kept = files.keep();
        let shown: String = TOPICS.map(|topic| batches(&tarn.data().join(format!("{topic}-0")))).concat();
        std::fs::write(kept.join("batches"), shown).expect("it is ours");
        std::fs::write(kept.join("tarn.log"), tarn.output()).expect("it is ours");
        std::fs::write(kept.join("kills"), format!("{killed_at:?}")).expect("it is ours");
        panic!(
            "{faults:#?}, given up: {given_up:?}; what was said, and the batches, are in {}",
            kept.display()
        );
    }
}

/// What is wrong with a topic after that.
fn fault(topic: &str, stored: &BTreeMap<i64, String>, said: &str, kills: usize) -> Option<String> {
    let told = Told::of(topic, said);
    assert!(told.len() >= kills * 6, "{topic}: {} acknowledged", told.len());
    // The producer writes its numbers in order, in turn to each topic, and gives none up.
    let numbers: Vec<usize> = stored.values().map(|value| number(value)).collect();
    let expected: Vec<usize> = (0..numbers.len()).map(|turn| numbers[0] + turn * TOPICS.len()).collect();
    let misplaced = numbers.iter().zip(&expected).find(|(number, expected)| number != expected);
    let misplaced = misplaced.map(|(number, expected)| format!("{number} is where {expected} should be"));
    told.fault(stored).or(misplaced).map(|fault| format!("{topic}: {fault}"))
}

fn producer(tarn: &Tarn, stop: &Path, log: &Path) -> Process {
    let mut command = python_program("steady_librdkafka.py");
    command.arg(tarn.bootstrap()).arg(stop).args(TOPICS);
    Process::spawn("steady_librdkafka.py", command, log)
}

/// What the topic holds, by offset.
fn stored(tarn: &Tarn, topic: &str) -> BTreeMap<i64, String> {
    let arguments = ["-C", "-b", &tarn.bootstrap(), "-t", topic, "-p", "0", "-o", "0", "-e", "-f", "%o %s\n"];
    let read = kcat(&arguments, None).ok();
    let parsed = read.lines().map(|line| line.split_once(' ').expect("an offset and a value"));
    parsed.map(|(offset, value)| (offset.parse().expect("an offset"), value.to_string())).collect()
}

fn number(value: &str) -> usize {
    value.rsplit('-').next().and_then(|number| number.parse().ok()).expect("a number")
}
