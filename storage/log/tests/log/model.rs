//! Random operations on a log, compared with a list of batches that does the same.

use proptest::prelude::*;
use tarn_log::{Log, LogConfig, Opening};
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
        1 => (0i64..40).prop_map(Op::AdvanceStart),
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
    recovery_point: i64,
    /// (epoch, first offset)
    epochs: Vec<(i32, i64)>,
}

impl Model {
    fn push(&mut self, batch: ValidBatch) {
        let (epoch, base) = (batch.header().leader_epoch.0, batch.header().base_offset.0);
        if self.epochs.last().is_none_or(|newest| newest.0 < epoch) {
            self.epochs.retain(|&(_, start)| start < base);
            self.epochs.push((epoch, base));
        }
        self.end = batch.header().next_offset().0;
        self.batches.push(batch);
    }

    fn truncate(&mut self, offset: i64) {
        let keeps = |header: &BatchHeader| header.last_offset().0 < offset;
        let cut = self.batches.iter().find(|batch| !keeps(batch.header()));
        self.end = cut.map_or(offset, |batch| batch.header().base_offset.0.min(offset)).max(self.start);
        self.batches.retain(|batch| keeps(batch.header()));
        self.recovery_point = self.recovery_point.min(self.end);
        self.epochs.retain(|&(_, start)| start < self.end);
    }

    fn visible(&self) -> impl Iterator<Item = &ValidBatch> {
        self.batches.iter().filter(|batch| batch.header().last_offset().0 >= self.start)
    }

    /// What is told of the epoch at the log start, where no batch tells it, depends on what a crash left.
    fn adopt_first_epoch(&mut self, found: &[(i32, i64)]) {
        let told =
            self.visible().next().map(|batch| (batch.header().leader_epoch.0, batch.header().base_offset.0));
        let Some((epoch, base)) = told else {
            self.epochs = found.to_vec();
            return;
        };
        let newer = |epochs: &[(i32, i64)]| -> Vec<_> {
            epochs.iter().filter(|(later, _)| *later > epoch).copied().collect()
        };
        let older_begin_in_time = found.iter().all(|&(earlier, start)| earlier > epoch || start <= base);
        if newer(found) == newer(&self.epochs) && older_begin_in_time {
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
    let newest = model.batches.last().map_or(0, |batch| batch.header().leader_epoch.0);
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
                // A log without a batch may as well begin where it ends.
                model.start = model.end;
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
            if let Some(last) = model.batches.last().map(|batch| batch.header().next_offset().0)
                && log.end().0 == last.max(model.start)
            {
                // After a truncation into a gap the end is known to memory only.
                model.end = log.end().0;
            }
            if !clean {
                model.adopt_first_epoch(&epochs(&log));
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
    assert_eq!(epochs(log), model.epochs);
    assert!(log.recovery_point() <= log.end());
    for upper in [model.start, (model.start + model.end) / 2, model.end] {
        let plan = log.read(log.start(), 1 << 20, true, Offset(upper)).unwrap();
        let read: Vec<_> = tarn_record::batches(plan.read().unwrap()).flatten().collect();
        let below: Vec<_> =
            visible.iter().filter(|batch| batch.header().last_offset().0 < upper).cloned().collect();
        assert_eq!(read, below);
    }
}

fn epochs(log: &Log) -> Vec<(i32, i64)> {
    log.epochs().starts().iter().map(|entry| (entry.epoch.0, entry.start.0)).collect()
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
