//! A mirror of a real Kafka's partitions of every kind is the same, whoever looks: byte by byte on the
//! wire, with Kafka's consumers and tools, in the files.

use std::collections::BTreeSet;
use std::time::Duration;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dataset::{EPOCHS_AHEAD, RECORDS, Source};
use tarn_tests::dump;
use tarn_tests::golden::{in_words, replaced};
use tarn_tests::process::Finished;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{java_program, tool};

const COPIED: Duration = Duration::from_secs(60);

/// All topics but Kafka's own, which never mirror.
fn mirrored(topic: &str) -> bool {
    !topic.starts_with("__")
}

#[test]
fn every_partition_of_a_real_kafka_is_copied_byte_for_byte() {
    let source = Source::start();
    let mut tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    assert_same_bytes(&source, &tarn);

    let bootstraps = [source.bootstrap(), tarn.bootstrap()];
    let [at_source, at_mirror] = console_digests(&bootstraps);
    assert!(at_source.lines().count() > 70, "{at_source}");
    assert_same_lines(&at_source, &at_mirror);
    for time in ["earliest", "latest", "max-timestamp"] {
        let [at_source, at_mirror] = both(&bootstraps, |bootstrap| offsets(bootstrap, time));
        assert_same_lines(&without_removed_records(&at_source, time), &at_mirror);
    }
    let [at_source, at_mirror] = both(&bootstraps, described_topics);
    assert!(at_mirror.contains("mirror.name=m"), "{at_mirror}");
    assert_same_lines(&at_source, &without_mirror_configs(&at_mirror));

    for partition in tarn.describe_mirror("m") {
        assert_eq!(partition.state, "MIRRORING", "{partition:?}");
        assert_eq!(partition.lag, Some(0), "{partition:?}");
        assert_eq!(partition.error_message, None, "{partition:?}");
    }
    // What a restart reads from the files is what came over the link.
    tarn.stop();
    tarn.start_again();
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    assert_same_bytes(&source, &tarn);
    tarn.stop();
    assert_dump_log_finds_only_the_gaps_of_compaction(&tarn);
}

fn assert_same_bytes(source: &Source, tarn: &Tarn) {
    let compared = assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
    assert!(compared.records > RECORDS, "{compared:?}");
    assert!(compared.newest_epoch >= EPOCHS_AHEAD, "{compared:?}");
}

/// Runs the same against both clusters at once.
fn both(bootstraps: &[String; 2], run: impl Fn(&str) -> String + Sync) -> [String; 2] {
    std::thread::scope(|scope| {
        let jobs = bootstraps.each_ref().map(|bootstrap| scope.spawn(|| run(bootstrap)));
        jobs.map(|job| job.join().expect("the tool ran"))
    })
}

/// What the console consumer prints of each partition, in digests. Its only sign of the end is that no
/// record came for a while, and on a busy machine one may pause for longer: what differs is read again, on
/// both sides, with a patience that would be minutes for all.
fn console_digests(bootstraps: &[String; 2]) -> [String; 2] {
    let of = |topics: &[&str], patience: &str| {
        both(bootstraps, |bootstrap| {
            let arguments = [&[bootstrap, patience], topics].concat();
            java_program("ConsoleDigests", &arguments, None, Duration::from_secs(240)).ok()
        })
    };
    let [at_source, at_mirror] = of(&[], "2000");
    let unequal = at_source.lines().zip(at_mirror.lines()).filter(|(ours, theirs)| ours != theirs);
    let topics: BTreeSet<&str> = unequal.filter_map(|(line, _)| line.split(' ').next()).collect();
    if topics.is_empty() {
        return [at_source, at_mirror];
    }
    let again = of(&topics.iter().copied().collect::<Vec<_>>(), "20000");
    [(&at_source, &again[0]), (&at_mirror, &again[1])].map(|(first, again)| {
        let kept = first.lines().filter(|line| !topics.contains(line.split(' ').next().unwrap_or_default()));
        kept.chain(again.lines()).map(|line| format!("{line}\n")).collect()
    })
}

fn offsets(bootstrap: &str, time: &str) -> String {
    tool("GetOffsetShell", &["--bootstrap-server", bootstrap, "--exclude-internal-topics", "--time", time])
        .ok()
}

fn described_topics(bootstrap: &str) -> String {
    let arguments = ["--bootstrap-server", bootstrap, "--describe", "--exclude-internal"];
    let described = Finished { stderr: String::new(), ..tool("TopicCommand", &arguments) };
    let text = in_words(&described);
    // A Kafka with eligible leader replicas has a default of its own, which no topic has set.
    let text = replaced(&text, r"min\.insync\.replicas=1,?", "");
    // The proposal's `topic.properties.exclude` leaves it out by default.
    let text = replaced(&text, r",?message\.timestamp\.type=LogAppendTime", "");
    // Who holds a partition is the cluster's own affair; so are its eligible leaders.
    replaced(&text, r"\tLeader: .*", "")
}

/// Kafka names a record that DeleteRecords has removed as the one with the largest timestamp, though it can
/// no longer be read; Tarn, to which it was never copied, names none.
fn without_removed_records(offsets: &str, time: &str) -> String {
    let removed = |line: &&str| time == "max-timestamp" && line.starts_with("prefix.removed:2:");
    offsets.lines().filter(|line| !removed(line)).map(|line| format!("{line}\n")).collect()
}

/// What only a mirror topic shows.
fn without_mirror_configs(described: &str) -> String {
    replaced(described, r"mirror\.(name|desired\.state)=[^,\t\n]*,?", "").replace(",\n", "\n")
}

fn assert_same_lines(source: &str, mirror: &str) {
    let difference = source.lines().zip(mirror.lines()).find(|(ours, theirs)| ours != theirs);
    assert_eq!(difference, None, "the source's line and the mirror's");
    assert_eq!(source.lines().count(), mirror.lines().count());
}

fn assert_dump_log_finds_only_the_gaps_of_compaction(tarn: &Tarn) {
    for partition in [
        "codec.none-0",
        "codec.zstd-1",
        "producers.interleaved-0",
        "transactions-0",
        "transaction.open-0",
        "compacted.gaps-0",
        "compacted.gaps-1",
        "prefix.removed-0",
        "prefix.removed-2",
        "values.odd-0",
        "time.append-0",
        "epochs.high-0",
        "empty-0",
    ] {
        let directory = tarn.data().join(partition);
        let found = dump::problems(&dump::files_of(&directory));
        let gaps = partition.starts_with("compacted.gaps");
        let unexplained: Vec<_> =
            found.iter().filter(|fault| !(gaps && fault.starts_with("Non-consecutive offsets in"))).collect();
        assert!(unexplained.is_empty(), "{partition}: {unexplained:?}");
    }
}
