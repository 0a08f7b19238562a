//! Segments whose files somebody has removed.

use std::fs;

use tarn_log::{FirstBatch, Hole, Log, Opening, RecoveryReport};
use tarn_record::{Offset, ValidBatch};

use crate::world::*;

/// A log of many segments that was closed in order.
struct Closed {
    world: World,
    batches: Vec<ValidBatch>,
    bases: Vec<i64>,
}

impl Closed {
    fn new() -> Closed {
        let world = World::new(segments_of(600));
        let mut log = world.create();
        let batches: Vec<_> = (0..30).map(|number| batch(number * 2, 2, 0)).collect();
        mirror(&mut log, &contiguous(&batches)).unwrap();
        log.close().unwrap();
        let bases = world.names().iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect();
        Closed { world, batches, bases }
    }

    fn remove(&self, base: i64, suffix: &str) {
        fs::remove_file(self.world.path().join(format!("{base:020}{suffix}"))).unwrap();
    }

    fn open(&self, clean: bool) -> (Log, RecoveryReport) {
        self.world.open(Opening { clean, recovery_point: Offset(60), log_start: Offset(0) })
    }

    /// The batches but for those of these offsets.
    fn without(&self, from: i64, to: i64) -> Vec<ValidBatch> {
        let is_left = |batch: &&ValidBatch| !(from..to).contains(&batch.header().base_offset.0);
        self.batches.iter().filter(is_left).cloned().collect()
    }
}

#[test]
fn segments_that_are_missing_between_others_are_named_and_reads_go_on_behind_them() {
    for clean in [true, false] {
        for missing in [2..3, 2..4] {
            let closed = Closed::new();
            let (from, to) = (closed.bases[missing.start], closed.bases[missing.end]);
            closed.bases[missing].iter().for_each(|&base| closed.remove(base, ".log"));
            let (log, report) = closed.open(clean);
            assert_eq!(report.holes, [Hole { from: Offset(from), to: Offset(to) }], "{clean}");
            assert_eq!((log.start(), log.end(), report.cut_from), (Offset(0), Offset(60), None));
            assert_eq!(read_all(&log, Offset(0), 1 << 20), closed.without(from, to));
            let inside = log.read(Offset(from + 1), 1 << 20, FirstBatch::MayBeLarger, log.end()).unwrap();
            assert_eq!(inside.first_offset, Offset(to));
            drop(log);
            assert_eq!(closed.open(clean).1.holes, [], "it is said once");
        }
    }
}

#[test]
fn an_index_that_a_compaction_left_behind_is_no_hole() {
    for clean in [true, false] {
        let closed = Closed::new();
        let within = closed.bases[1] + 2;
        fs::write(closed.world.path().join(format!("{within:020}.index")), [0; 8]).unwrap();
        fs::write(closed.world.path().join(format!("{:020}.index", 100)), [0; 8]).unwrap();
        let (log, report) = closed.open(clean);
        assert_eq!((report.holes, log.end()), (vec![], Offset(60)));
        assert!(!closed.world.names().contains(&format!("{within:020}.index")));
    }
}

#[test]
fn records_that_are_missing_at_the_end_are_told_after_a_stop_in_order_too() {
    for clean in [true, false] {
        let closed = Closed::new();
        let last = *closed.bases.last().unwrap();
        closed.remove(last, ".log");
        let (log, report) = closed.open(clean);
        assert_eq!((log.end(), report.ends_below_flushed), (Offset(last), true), "{clean}");
        assert_eq!(report.holes, []);
    }
    assert!(!Closed::new().open(true).1.ends_below_flushed);
}

#[test]
fn the_end_of_a_log_that_was_cut_into_a_gap_is_not_missing() {
    let world = World::new(segments_of(1));
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 1, 0), batch(36, 1, 0)]).unwrap();
    let _ = log.truncate_to(Offset(36), NOW).unwrap();
    log.close().unwrap();
    let open = |recovery_point| {
        let (log, report) = world.open(Opening { clean: true, recovery_point, log_start: Offset(0) });
        (log.end(), report.ends_below_flushed)
    };
    assert_eq!((log.end(), open(log.recovery_point())), (Offset(36), (Offset(1), false)));
    fs::write(world.path().join(format!("{:020}.log", 1)), []).unwrap();
    assert_eq!(open(Offset(36)), (Offset(1), false), "a segment without a batch tells no end");
}
