//! Cuts of logs without a core around them, on real files.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_image::mirrors::Truncation;
use tarn_log::limits::EXPORT_RESERVE_BYTES;
use tarn_log::{Descriptors, FirstBatch, Log, LogDir, Opening, ReadFrom};
use tarn_mirror::local_cluster::{Gate, GateOrder, KnownState, MirrorGeneration};
use tarn_mirror::state::MirrorState;
use tarn_record::{Epoch, PartitionIndex, TopicId, TopicIdPartition, ValidBatch};
use tarn_wire::ErrorCode;
use tempfile::TempDir;

use super::*;
use crate::interest::Wanted;
use crate::replica::ending::tests::{ALONE, NOW, commit, idempotent, in_epoch, rules, sent};
use crate::replica::{Binding, Isolation};
use crate::rules::TopicRules;
use crate::watched_disk::WatchedDisk;

#[test]
fn a_log_is_cut_by_its_own_order_alone_and_not_before_its_time() {
    type Change = fn(&mut World);
    let refusals: [(&str, Change); 6] = [
        ("its binding is none, and the order is of version 7", |world| world.bind(None)),
        ("its binding is stopped at version 7", |world| world.bind(Some((DesiredState::Stopped, VERSION)))),
        ("its binding is mirroring at version 8", |world| {
            world.bind(Some((DesiredState::Mirroring, VERSION + 1)))
        }),
        ("its gate is open", |world| {
            let (partition, version) = (world.order.partition, VERSION);
            let order = GateOrder { partition, gate: Gate::Open, version };
            assert!(world.replica.set_gate(&order, MirrorGeneration(1)));
        }),
        ("clients may write to it", |world| {
            world.bind(Some((DesiredState::Stopping, VERSION)));
            world
                .replica
                .set_known_state(KnownState::Known { state: MirrorState::Stopped, version: VERSION });
        }),
        ("it ends at offset 3, and the order is of a log that ends at 2", |world| {
            world.order.log_end = Offset(2);
        }),
    ];
    for (expected, change) in refusals {
        let mut world = World::new(&[idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)]);
        change(&mut world);
        let refused = world.cut().expect_err(expected);
        assert!(matches!(&refused, LocalError::NotTruncated { .. }), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!((world.replica.log().end(), world.copies()), (Offset(3), 0));
    }
}

#[test]
fn no_record_is_dropped_that_is_not_copied() {
    let log = [idempotent(7, 0), sent(4, 0, 0), commit(4, 0, 0), idempotent(7, 1)];
    let from = |offset| Truncate::To(Offset(offset));
    let all = Truncate::Fully { start_at: Offset(9) };
    let lacking = [
        (from(1), None, "1 to 1"),
        (from(3), None, "3 to 3"),
        (from(1), Some(2), "1 to 1"),
        (from(2), Some(4), "3 to 3"),
        (all, None, "0 to 0"),
        (all, Some(3), "0 to 0"),
    ];
    for (cut, export_from, what) in lacking {
        let mut world = World::new(&log);
        (world.order.truncate, world.order.export_from) = (cut, export_from.map(Offset));
        let refused = world.cut().expect_err(what);
        let said = format!("drops the records at offsets {what} and does not export them");
        assert!(
            matches!(&refused, LocalError::NotTruncated { reason, .. } if reason.contains(&said)),
            "{refused}"
        );
        assert_eq!((world.replica.log().end(), world.copies()), (Offset(4), 0));
    }
    let enough = [(from(3), Some(3), 1), (from(2), Some(3), 1), (from(3), Some(1), 3), (all, Some(0), 4)];
    for (cut, export_from, copied) in enough {
        let mut world = World::new(&log);
        (world.order.truncate, world.order.export_from) = (cut, export_from.map(Offset));
        let (end, exported) = world.cut().expect("it is copied");
        let exported = exported.expect("there is something to copy");
        let (from, counts) = (Offset(4 - copied), exported.counts);
        assert_eq!((exported.from, exported.to), (from, Offset(4)));
        assert_eq!((counts.records + counts.control_records) as i64, copied);
        assert_eq!(end, if cut == all { Offset(9) } else { world.replica.log().end() });
    }
}

#[test]
fn control_records_go_without_a_copy() {
    let mut world = World::new(&[idempotent(7, 0), sent(4, 0, 0), commit(4, 0, 0)]);
    world.order = TruncateOrder { truncate: Truncate::To(Offset(2)), export_from: None, ..world.order };
    let (end, exported) = world.cut().expect("nothing is lost");
    assert!(exported.is_none());
    assert_eq!((end, world.copies()), (Offset(2), 0));
    assert_eq!(world.replica.last_stable_offset(), Offset(1), "the transaction is open again");
}

#[test]
fn what_was_committed_and_known_above_the_cut_is_so_no_more() {
    let mut world = World::new(&[idempotent(7, 0), idempotent(7, 1), sent(4, 0, 0), idempotent(7, 2)]);
    world.replica.binding.as_mut().expect("it is bound").source_high_watermark = Offset(9);
    assert_eq!(world.fetched_at(4), ErrorCode::NONE);
    world.order.truncate = Truncate::To(Offset(2));
    world.order.export_from = Some(Offset(2));
    assert_eq!(world.cut().expect("nothing is in the way").0, Offset(2));
    let replica = &world.replica;
    assert_eq!((replica.high_watermark(), replica.last_stable_offset()), (Offset(2), Offset(2)));
    assert_eq!([1, 2].map(|at| world.fetched_at(at)), [ErrorCode::NONE; 2]);
    assert_eq!([3, 4, 9].map(|at| world.fetched_at(at)), [ErrorCode::OFFSET_OUT_OF_RANGE; 3]);
    let known = replica.log().producers().iter();
    let known: Vec<_> = known.map(|(id, one)| (id.0, one.last_sequence().0)).collect();
    assert_eq!(known, [(7, 1)], "as if nothing had come after it");
    assert_eq!(replica.log().producers().open_transactions().count(), 0);
    let taken = world.replica.log.append_as_is(&[in_epoch(Epoch(5), idempotent(7, 2)(Offset(2)))], NOW);
    assert!(taken.is_ok(), "the sequence follows: {taken:?}");
}

#[test]
fn a_log_that_loses_everything_begins_where_it_is_told_below_or_above() {
    for start_at in [0, 2, 40].map(Offset) {
        let mut world = World::new(&[idempotent(7, 0), idempotent(7, 1), sent(4, 0, 0)]);
        world.order.truncate = Truncate::Fully { start_at };
        world.order.export_from = Some(Offset(0));
        let (end, exported) = world.cut().expect("nothing is in the way");
        let replica = &world.replica;
        assert_eq!((end, replica.log().start(), replica.log().end()), (start_at, start_at, start_at));
        assert_eq!((replica.high_watermark(), replica.last_stable_offset()), (start_at, start_at));
        assert!(replica.log().producers().is_empty());
        assert_eq!(exported.map(|exported| exported.counts.records), Some(3));
    }
}

#[test]
fn a_log_that_changed_while_it_was_copied_is_not_cut() {
    let mut world = World::new(&[idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)]);
    let ready = world.ready().expect("it can be copied");
    let _ = world.replica.log.truncate_to(Offset(2), NOW).expect("the disk works");
    let other = in_epoch(Epoch(5), idempotent(8, 0)(Offset(2)));
    world.replica.log.append_as_is(std::slice::from_ref(&other), NOW).expect("it follows");
    let refused = world.replica.truncate(&world.order, ready, NOW);
    assert!(matches!(refused, Err(NotTruncated::Changed)), "{refused:?}");
    let ready = world.ready().expect("it can be copied");
    world
        .replica
        .log
        .append_as_is(&[in_epoch(Epoch(5), idempotent(8, 1)(Offset(3)))], NOW)
        .expect("it follows");
    let refused = world.replica.truncate(&world.order, ready, NOW);
    assert!(matches!(refused, Err(NotTruncated::LogEnd { end: Offset(4), .. })), "{refused:?}");
    assert_eq!(world.batches()[2], other);
}

#[test]
fn a_disk_that_fills_while_it_is_copied_to_loses_nothing() {
    let mut world = World::new(&[idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)]);
    let before = world.batches();
    world.disk.says_it_has(10);
    let refused = world.cut().expect_err("there is no room");
    assert!(matches!(&refused, LocalError::Export { reason, .. } if reason.contains("room for 10 bytes")));
    world.disk.says_it_has(EXPORT_RESERVE_BYTES + (1 << 20));
    world.disk.has_room_for(0);
    let refused = world.cut().expect_err("there was room");
    assert!(matches!(&refused, LocalError::Export { .. }), "{refused}");
    assert_eq!((world.batches(), world.copies()), (before, 0));
    world.disk.has_room_for(i64::MAX);
    assert_eq!(world.cut().expect("there is room").0, Offset(1));
    assert_eq!(world.copies(), 1);
}

#[test]
fn a_cut_that_fails_and_is_tried_again_copies_once_and_needs_no_more_room() {
    let mut world = World::new(&[idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)]);
    (world.order.truncate, world.order.export_from) =
        (Truncate::Fully { start_at: Offset(0) }, Some(Offset(0)));
    for _ in 0..3 {
        // For the copy, whose one write there is only once.
        world.disk.has_room_for(if world.copies() == 0 { 1 } else { 0 });
        let refused = world.cut().expect_err("the cut itself writes too");
        assert!(matches!(&refused, LocalError::Storage { .. }), "{refused}");
        assert_eq!((world.replica.log().end(), world.copies()), (Offset(3), 1));
    }
    world.disk.has_room_for(i64::MAX);
    world.disk.says_it_has(0);
    let (end, exported) = world.cut().expect("what was in the way is gone");
    let exported = exported.expect("there was something to keep");
    assert!(exported.was_there);
    assert_eq!((end, exported.from, exported.to, world.copies()), (Offset(0), Offset(0), Offset(3), 1));
}

#[test]
fn a_log_that_was_closed_while_it_was_copied_and_opened_again_is_another() {
    let mut world = World::new(&[idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)]);
    let ready = world.ready().expect("it can be copied");
    let generation = world.replica.log().generation();
    Replica::close_all(std::slice::from_mut(&mut world.replica)).expect("the disk works");
    let opening = Opening { clean: true, recovery_point: Offset(3), log_start: Offset(0) };
    let (partition, config) = (world.order.partition, world.rules.log.clone());
    let log = Log::open(&world.dir, "t", partition.partition, config, opening, NOW).expect("it is there").0;
    world.replica = Replica::new(partition, "t".into(), log, ALONE, Offset(3), world.rules.clone());
    world.bind(Some((DesiredState::Mirroring, VERSION)));
    assert_eq!((world.replica.log().generation(), world.replica.log().end()), (generation, Offset(3)));
    let refused = world.replica.truncate(&world.order, ready, NOW);
    assert!(matches!(refused, Err(NotTruncated::Changed)), "{refused:?}");
    assert_eq!(world.cut().expect("it is looked at again").0, Offset(1));
}

/// A partition whose mirror is about to cut off all but its first record.
struct World {
    replica: Replica,
    order: TruncateOrder,
    disk: WatchedDisk,
    dir: Arc<LogDir>,
    rules: Arc<TopicRules>,
    files: TempDir,
}

const VERSION: i64 = 7;

/// A new partition in `dir` that holds one record of the source's and others, and the order to cut these off.
pub(crate) fn divergent(
    dir: &Arc<LogDir>,
    partition: i32,
    rules: &Arc<TopicRules>,
    batches: &[Box<dyn Fn(Offset) -> ValidBatch>],
) -> (Replica, TruncateOrder) {
    let partition = TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) };
    let config = rules.log.clone();
    let mut log =
        Log::create(dir, "t", partition.partition, partition.topic_id, config, NOW).expect("it is new");
    for batch in batches {
        log.append_as_is(&[in_epoch(Epoch(5), batch(log.end()))], NOW).expect("they follow each other");
    }
    let log_end = log.end();
    let mut replica = Replica::new(partition, "t".into(), log, ALONE, log_end, rules.clone());
    bind(&mut replica, rules, Some((DesiredState::Mirroring, VERSION)));
    let (truncate, export_from) = (Truncate::To(Offset(1)), Some(Offset(1)));
    (replica, TruncateOrder { partition, version: VERSION, log_end, truncate, export_from })
}

/// The metadata binds the partition, or no longer does.
pub(crate) fn bind(replica: &mut Replica, rules: &Arc<TopicRules>, desired: Option<(DesiredState, i64)>) {
    let binding = desired.map(|(desired, version)| {
        let truncation = Truncation::Refused;
        Binding::new(tarn_image::Binding { mirror: "m".into(), desired, version, truncation })
    });
    replica.on_metadata(ALONE, rules.clone(), binding);
}

impl World {
    fn new(batches: &[Box<dyn Fn(Offset) -> ValidBatch>]) -> World {
        let (files, disk) = (tempfile::tempdir().expect("a directory"), WatchedDisk::default());
        let dir = LogDir::open(disk.disk(), files.path(), Descriptors::new(100)).expect("it is new");
        let rules = rules(1 << 20);
        let (replica, order) = divergent(&dir, 0, &rules, batches);
        World { replica, order, disk, dir, rules, files }
    }

    fn bind(&mut self, desired: Option<(DesiredState, i64)>) {
        bind(&mut self.replica, &self.rules, desired);
    }

    fn exports(&self) -> PathBuf {
        self.files.path().join("mirror-exports")
    }

    /// How many copies there are, complete or not.
    fn copies(&self) -> usize {
        std::fs::read_dir(self.exports().join("t-0")).map_or(0, Iterator::count)
    }

    fn ready(&self) -> Result<ReadyToTruncate, NotTruncated> {
        self.replica.truncation_work(&self.order)?.run(&ExportDir::new(self.exports()), NOW, || true)
    }

    fn cut(&mut self) -> Result<(Offset, Option<Exported>), LocalError> {
        let cut = |world: &mut World| {
            let mut ready = world.ready()?;
            let exported = ready.exported.take();
            Ok((world.replica.truncate(&world.order, ready, NOW)?, exported))
        };
        cut(self).map_err(|why: NotTruncated| why.of(&self.order))
    }

    fn batches(&self) -> Vec<ValidBatch> {
        let log = self.replica.log();
        let plan = log.read(Offset(0), 1 << 20, FirstBatch::MayBeLarger, log.end()).expect("it is there");
        let bytes = plan.read().expect("it can be read");
        tarn_record::batches(bytes).map(|batch| batch.expect("it is whole")).collect()
    }

    /// What a consumer is told that asks for this offset.
    fn fetched_at(&self, offset: i64) -> ErrorCode {
        let wanted = Wanted {
            fetch_offset: Offset(offset),
            max_bytes: 1000,
            current_leader_epoch: Epoch::NONE,
            last_fetched_epoch: Epoch::NONE,
        };
        let first = FirstBatch::MayBeLarger;
        let read = self.replica.read(&wanted, 1000, first, Isolation::ReadUncommitted, ReadFrom::Disk);
        read.into_fetched().error
    }
}
