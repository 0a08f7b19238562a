//! Sources that come back with another newest batch than the one that was mirrored.

use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;

use super::cluster::Cluster;
use super::source::{Serving, Source};
use super::{Mirroring, caught_up, eventually, eventually_some, produce};

#[test]
fn a_source_that_was_restored_with_other_records_in_the_same_epoch_fails_the_partition() {
    // Applications that repeat what they sent fill it up to the very end that was mirrored.
    for records_more in [0, 1] {
        let (source, _serving, cluster, mirror) = restored(records_more, |_| {});
        let standing = eventually_some(|| {
            mirror.standing(&cluster, "orders", 0).filter(|now| now.state == MirrorState::Failed)
        });
        assert_eq!((standing.reason, standing.retry_attempt), (Some(Reason::SourceTruncated), -1));
        let message = standing.message.unwrap_or_default();
        assert!(message.contains("newest batch here"), "{message}");
        let partition = cluster.partition("orders", 0).expect("it was begun");
        let newest =
            cluster.state().logs[&partition].batches.last().map(|batch| batch.header().last_offset().0);
        assert_eq!(source.state().compared_at.first().copied(), newest, "it was fetched again");
        assert_eq!(
            cluster.state().logs[&partition].batches.len(),
            6,
            "nothing was dropped and nothing appended"
        );
    }
}

#[test]
fn a_newest_batch_that_is_not_there_proves_nothing_where_the_source_compacts() {
    let is_removed: fn(&Source) =
        |source| drop(source.log("orders", 0, |log| log.batches.remove(log.batches.len() - 2)));
    let is_not_sent: fn(&Source) = |source| source.state().sends_nothing_below = i64::MAX;
    for change in [is_removed, is_not_sent] {
        let (source, _serving, cluster, _mirror) = restored(1, |source| {
            source.state().compacted = true;
            change(source);
        });
        let end = source.log("orders", 0, |log| log.end());
        eventually(|| {
            let partition = cluster.partition("orders", 0).expect("it was begun");
            cluster.state().logs[&partition].end() == end
        });
    }
}

#[test]
fn another_batch_in_the_place_of_the_newest_is_another_history_where_the_source_compacts_too() {
    let (_source, _serving, cluster, mirror) = restored(1, |source| source.state().compacted = true);
    let standing = eventually_some(|| {
        mirror.standing(&cluster, "orders", 0).filter(|now| now.state == MirrorState::Failed)
    });
    assert_eq!((standing.reason, standing.retry_attempt), (Some(Reason::SourceTruncated), -1));
    assert!(standing.message.is_some_and(|said| said.contains("CRC")));
}

/// A mirror that begins again after its source came back with another newest batch, and more records.
fn restored(records_more: usize, change: impl FnOnce(&Source)) -> (Source, Serving, Cluster, Mirroring) {
    let source = Source::new("source");
    source.topic("orders", 1, 3);
    produce(&source, "orders", 0, 6);
    let serving = source.serve();
    let cluster = Cluster::new(source.state().port, "orders");
    let first = Mirroring::begin(&cluster);
    eventually(|| caught_up(&source, &cluster, "orders", 1));
    drop(first);
    source.log("orders", 0, |log| {
        log.rewrite_newest();
        (0..records_more).for_each(|_| log.produce(1));
    });
    change(&source);
    let mirror = Mirroring::begin(&cluster);
    (source, serving, cluster, mirror)
}
