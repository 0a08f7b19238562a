//! Sources that run older Apache Kafka, back to 2.1: mirrored byte for byte, followed over restarts and changes
//! of leader that only metadata tells, and left behind by a failover.

use std::collections::BTreeMap;
use std::time::Duration;

use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::old_dataset::{OLD_FORMATS, OldSource, RECORDS, append, holds_old_formats};
use tarn_tests::old_kafka::{
    KAFKA_2_1_1, KAFKA_2_8_2, KAFKA_3_9_2_KRAFT, KAFKA_3_9_2_ZOOKEEPER, OldCluster, Release,
};
use tarn_tests::report::reports;
use tarn_tests::tarn::{MirrorPartition, Tarn, TarnOptions};
use tarn_tests::waiting::until_some;

const COPIED: Duration = Duration::from_secs(60);
const SHOWN: Duration = Duration::from_secs(30);

/// What can be mirrored of a data set.
fn mirrored(topic: &str) -> bool {
    !topic.starts_with("__") && !topic.starts_with("format.")
}

#[test]
fn kafka_2_1_1_is_mirrored_and_left_behind() {
    a_source_is_mirrored_restarted_and_left_behind(KAFKA_2_1_1);
}

#[test]
#[ignore = "kafka_2_1_1 differs most from what other tests mirror"]
fn kafka_2_8_2_is_mirrored_and_left_behind() {
    a_source_is_mirrored_restarted_and_left_behind(KAFKA_2_8_2);
}

#[test]
#[ignore = "kafka_2_1_1 differs most from what other tests mirror"]
fn kafka_3_9_2_with_zookeeper_is_mirrored_and_left_behind() {
    a_source_is_mirrored_restarted_and_left_behind(KAFKA_3_9_2_ZOOKEEPER);
}

#[test]
#[ignore = "kafka_2_1_1 differs most from what other tests mirror"]
fn kafka_3_9_2_with_kraft_is_mirrored_and_left_behind() {
    a_source_is_mirrored_restarted_and_left_behind(KAFKA_3_9_2_KRAFT);
}

fn a_source_is_mirrored_restarted_and_left_behind(release: Release) {
    let mut source = OldSource::start(release);
    // The source's cleaner is off too: both hold what was written.
    let properties = vec![("log.cleaner.enable".to_string(), "false".to_string())];
    let mut tarn = Tarn::start(&TarnOptions { properties, ..TarnOptions::default() });
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    let compared = assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
    assert!(compared.records > RECORDS, "{compared:?}");
    let has_ids = Cluster::connect(&source.bootstrap()).topics().iter().all(|topic| !topic.id.is_nil());
    assert_eq!(has_ids, release.version != KAFKA_2_1_1.version);
    await_old_formats_refused(&tarn, release);

    // Either side is away for a while, and the histories are compared before anything else.
    source.cluster.stop(1);
    source.cluster.start_again(1);
    append(&source.bootstrap(), "epochs.high", "after a restart of the source");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    tarn.kill();
    tarn.start_again();
    append(&source.bootstrap(), "epochs.high", "after a restart here");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), mirrored, COPIED);
    let after = assert_identical(&source.bootstrap(), &tarn.bootstrap(), mirrored);
    assert_eq!(after.records, compared.records + 4);
    await_old_formats_refused(&tarn, release);

    let ends = high_watermarks(&source.bootstrap());
    source.cluster.kill(1);
    let stopped = reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok());
    for (named, end) in &ends {
        // Nothing was copied of what is in a format that cannot be.
        let copied = if mirrored(&named.0) { *end } else { 0 };
        assert_eq!(stopped[named].mirrored_offset, copied, "{named:?}");
    }
    assert_eq!(stopped.len(), ends.len());
    assert!(tarn.describe_mirror("m").iter().all(|one| one.state == "STOPPED"));
    append(&tarn.bootstrap(), "epochs.high", "after the failover");
}

/// Waits until the topics in old formats, and nothing else, are failed for that reason.
fn await_old_formats_refused(tarn: &Tarn, release: Release) {
    until_some("topics in old formats to be refused, and no others", SHOWN, || {
        let partitions = tarn.describe_mirror("m");
        let is_old = |one: &MirrorPartition| OLD_FORMATS.iter().any(|(topic, _)| one.topic == *topic);
        let is_refused = |one: &MirrorPartition| {
            one.state == "FAILED" && one.reason_code.as_deref() == Some("UNSUPPORTED_RECORD_FORMAT")
        };
        let is_well = |one: &MirrorPartition| one.state == "MIRRORING" && one.reason_code.is_none();
        let wrong = partitions.iter().find(|one| if is_old(one) { !is_refused(one) } else { !is_well(one) });
        if let Some(wrong) = wrong {
            return Err(format!("{wrong:?}"));
        }
        let refused = partitions.iter().filter(|one| is_old(one)).count();
        let wanted = if holds_old_formats(release) { 2 * OLD_FORMATS.len() } else { 0 };
        if refused == wanted { Ok(()) } else { Err(format!("{refused} refused")) }
    });
}

#[test]
#[ignore = "mirror_three_nodes moves leaders too, at a newer source"]
fn a_leader_that_dies_is_followed_by_metadata_alone() {
    for release in [KAFKA_2_1_1, KAFKA_2_8_2] {
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let mut source = OldCluster::start(release, directory.path(), 2, &[]);
        source.create_topic("moved", 2, 2, &[]);
        source.await_partitions(1, "moved", |partition| partition.in_sync.len() == 2);
        let tarn = Tarn::start(&TarnOptions::default());
        let only_moved = |topic: &str| topic == "moved";
        append(&source.bootstrap(), "moved", "before");
        tarn.mirror_from(&source.bootstrap(), "m", "moved");
        await_mirrored(&source.bootstrap(), &tarn.bootstrap(), only_moved, COPIED);

        // Each dies in turn, so that every partition has moved at least once.
        for (dies, stays) in [(1, 2), (2, 1)] {
            source.kill(dies);
            source.await_partitions(stays, "moved", |partition| partition.leader == stays);
            append(&source.address(stays), "moved", "while a node is dead");
            await_mirrored(&source.address(stays), &tarn.bootstrap(), only_moved, COPIED);
            source.start_again(dies);
            source.await_partitions(stays, "moved", |partition| partition.in_sync.len() == 2);
        }
        let compared = assert_identical(&source.bootstrap(), &tarn.bootstrap(), only_moved);
        assert_eq!(compared.records, 6, "{compared:?}");
        assert!(compared.newest_epoch > 0, "{compared:?}");
        assert!(tarn.describe_mirror("m").iter().all(|one| one.state == "MIRRORING"));
    }
}

/// The high watermark of every partition that is not internal.
fn high_watermarks(bootstrap: &str) -> BTreeMap<(String, i64), i64> {
    let mut cluster = Cluster::connect(bootstrap);
    let mut ends = BTreeMap::new();
    for topic in cluster.topics() {
        for partition in &topic.partitions {
            let offsets = cluster.offsets(&topic, partition);
            ends.insert((topic.name.clone(), i64::from(partition.index)), offsets.high_watermark);
        }
    }
    ends
}
