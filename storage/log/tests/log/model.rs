//! Random operations on a log, compared with a list of batches that does the same.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tarn_log::{FirstBatch, Log, LogConfig, Opening};
use tarn_record::{BatchHeader, Epoch, Offset, ValidBatch};

use crate::world::*;

#[derive(Clone, Debug)]
enum Op {
    /// Batches of so many records, each after a gap, in an epoch so much higher.
    Mirror(Vec<(usize, i64, i32)>),
    /// What a producer sent, of so many records.
    Produce(usize),
    /// Back by so many offsets.
    Truncate(i64),
    /// The log start up by so many offsets.
    AdvanceStart(i64),
    /// Everything goes; the log begins anew so many offsets above its start.
    BeginAnew(i64),
    Flush,
    CloseAndOpen,
    /// A crash that loses nothing the system was given.
    Crash,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let batches =
        prop::collection::vec((1usize..6, prop_oneof![4 => Just(0i64), 1 => 1i64..40], 0i32..2), 1..12);
    let op = prop_oneof![
        6 => batches.prop_map(Op::Mirror),
        3 => (1usize..6).prop_map(Op::Produce),
        2 => (0i64..60).prop_map(Op::Truncate),
        2 => (0i64..40).prop_map(Op::AdvanceStart),
        1 => (-20i64..60).prop_map(Op::BeginAnew),
        2 => Just(Op::Flush),
        1 => Just(Op::CloseAndOpen),
        1 => Just(Op::Crash),
    ];
    prop::collection::vec(op, 1..40)
}

/// What a log is, without files.
#[derive(Debug, Default)]
struct Model {
    batches: Vec<ValidBatch>,
    start: i64,
    end: i64,
    /// Where the files say that the log ends. After a truncation into a gap between batches the end is
    /// known to memory only.
    end_in_files: i64,
    recovery_point: i64,
    /// (epoch, first offset)
    epochs: Vec<(i32, i64)>,
    /// All epochs that ever began.
    begun: BTreeSet<i32>,
}

impl Model {
    fn push(&mut self, batch: ValidBatch) {
        let (epoch, base) = (batch.header().leader_epoch.0, batch.header().base_offset.0);
        if self.epochs.last().is_none_or(|newest| newest.0 < epoch) {
            self.epochs.retain(|&(_, start)| start < base);
            self.epochs.push((epoch, base));
        }
        self.begun.insert(epoch);
        self.end = batch.header().next_offset().0;
        self.end_in_files = self.end;
        self.batches.push(batch);
    }

    fn truncate(&mut self, offset: i64) {
        let keeps = |header: &BatchHeader| header.last_offset().0 < offset;
        let cut = self.batches.iter().find(|batch| !keeps(batch.header()));
        self.end = cut.map_or(offset, |batch| batch.header().base_offset.0.min(offset)).max(self.start);
        self.batches.retain(|batch| keeps(batch.header()));
        self.end_in_files = self.batches.last().map_or(0, |batch| batch.header().next_offset().0);
        self.recovery_point = self.recovery_point.min(self.end);
        self.epochs.retain(|&(_, start)| start < self.end);
    }

    fn begin_anew(&mut self, offset: i64) {
        self.batches.clear();
        self.epochs.clear();
        (self.start, self.end, self.end_in_files) = (offset, offset, offset);
        self.recovery_point = self.recovery_point.min(offset);
    }

    /// A log without a batch may as well begin where it ends, and its files say so.
    fn begin_at_end(&mut self) {
        self.advance_start(self.end);
        self.end_in_files = self.end;
    }

    /// What the files tell is there again.
    fn reopen(&mut self) {
        if self.end_in_files < self.start {
            // The log begins anew at its start. As in Kafka that forgets the epochs.
            self.epochs.clear();
        }
        self.end = self.end_in_files.max(self.start);
        self.end_in_files = self.end;
    }

    fn visible(&self) -> impl Iterator<Item = &ValidBatch> {
        self.batches.iter().filter(|batch| batch.header().last_offset().0 >= self.start)
    }

    /// After a crash the epochs of the batches are known. What is told of the offsets before the first batch
    /// depends on what was flushed: at most epochs that once began, in order, and none of an empty log.
    fn adopt_epochs_before_first(&mut self, found: &[(i32, i64)]) {
        let Some((epoch, base)) = self
            .visible()
            .next()
            .map(|batch| (batch.header().leader_epoch.0, batch.header().base_offset.0.max(self.start)))
        else {
            self.epochs.clear();
            return;
        };
        let from_first = |epochs: &[(i32, i64)]| -> Vec<_> {
            let at_or_newer = epochs.iter().filter(|(one, _)| *one >= epoch);
            at_or_newer.map(|&(one, start)| (one, start.max(base))).collect()
        };
        let once_began = found.iter().all(|(one, _)| self.begun.contains(one));
        if from_first(found) == from_first(&self.epochs) && once_began {
            self.epochs = found.to_vec();
        }
    }

    fn advance_start(&mut self, offset: i64) {
        if offset <= self.start {
            return;
        }
        self.start = offset;
        let spanning = self.epochs.iter().rposition(|&(_, start)| start <= offset).unwrap_or(0);
        self.epochs.drain(..spanning);
        if let Some(first) = self.epochs.first_mut() {
            first.1 = first.1.max(offset);
        }
    }
}

fn apply(world: &World, mut log: Log, model: &mut Model, op: &Op) -> Log {
    // A log that a truncation left empty takes any epoch.
    let newest = model.epochs.last().map_or(0, |&(epoch, _)| epoch);
    match op {
        Op::Mirror(steps) => {
            let (mut at, mut epoch) = (model.end, newest);
            let mut batches = Vec::new();
            for &(records, gap, newer) in steps {
                epoch += newer;
                batches.push(batch(at + gap, records, epoch));
                at += gap + records as i64;
            }
            mirror(&mut log, &contiguous(&batches)).unwrap();
            batches.into_iter().for_each(|batch| model.push(batch));
        }
        Op::Produce(records) => {
            let sent = client(*records);
            let create_time = tarn_record::TimestampType::CreateTime;
            let appended = log.append_as_leader(&sent, Epoch(newest), create_time, NOW).unwrap();
            let stamp = tarn_record::Stamp::CreateTime { max_timestamp: sent.max_timestamp };
            model.push(sent.batch.restamped(appended.first, Epoch(newest), stamp).to_batch());
        }
        Op::Truncate(by) => {
            let offset = (model.end - by).max(model.start);
            let truncated = log.truncate_to(Offset(offset), NOW).unwrap();
            match offset < model.end {
                true => model.truncate(offset),
                false => model.epochs.retain(|&(_, start)| start < model.end),
            }
            assert_eq!(truncated.end, Offset(model.end));
            if model.visible().next().is_none() && log.start() == log.end() {
                model.begin_at_end();
            }
            truncated.removal.run().unwrap();
        }
        Op::AdvanceStart(by) => {
            let offset = (model.start + by).min(model.end);
            if let Some(removal) = log.advance_start(Offset(offset), NOW).unwrap() {
                removal.run().unwrap();
            }
            model.advance_start(offset);
        }
        Op::BeginAnew(by) => {
            let offset = (model.start + by).max(0);
            log.truncate_fully_and_start_at(Offset(offset), NOW).unwrap().removal.run().unwrap();
            model.begin_anew(offset);
        }
        Op::Flush => {
            flush(&mut log);
            model.recovery_point = log.recovery_point().0;
        }
        Op::CloseAndOpen | Op::Crash => {
            let clean = matches!(op, Op::CloseAndOpen);
            if clean {
                log.close().unwrap();
                model.recovery_point = log.recovery_point().0;
            }
            let log_start = log.start_to_checkpoint().unwrap_or(Offset(0));
            let recovery_point = Offset(model.recovery_point);
            drop(log);
            log = world.open(Opening { clean, recovery_point, log_start }).0;
            model.reopen();
            if !clean {
                model.adopt_epochs_before_first(&starts(&log));
            }
        }
    }
    log
}

fn check(log: &Log, model: &Model) {
    assert_eq!((log.start(), log.end()), (Offset(model.start), Offset(model.end)));
    let visible: Vec<_> =
        model.batches.iter().filter(|batch| batch.header().last_offset().0 >= model.start).cloned().collect();
    assert_eq!(read_all(log, log.start(), 700), visible);
    assert_eq!(starts(log), model.epochs);
    assert!(log.recovery_point() <= log.end());
    let starts = starts(log);
    assert!(starts.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1), "{starts:?}");
    assert!(starts.iter().all(|(_, start)| (model.start..=model.end).contains(start)), "{starts:?}");
    for upper in [model.start, (model.start + model.end) / 2, model.end] {
        let plan = log.read(log.start(), 1 << 20, FirstBatch::MayBeLarger, Offset(upper)).unwrap();
        let read: Vec<_> = tarn_record::batches(plan.read().unwrap()).flatten().collect();
        let below: Vec<_> =
            visible.iter().filter(|batch| batch.header().last_offset().0 < upper).cloned().collect();
        assert_eq!(read, below);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_log_is_a_list_of_batches(ops in ops(), segment_bytes in 300u32..3000) {
        let config = LogConfig { index_interval_bytes: 300, ..segments_of(segment_bytes) };
        let world = World::new(config);
        let (mut log, mut model) = (world.create(), Model::default());
        for op in &ops {
            log = apply(&world, log, &mut model, op);
            check(&log, &model);
        }
    }
}
