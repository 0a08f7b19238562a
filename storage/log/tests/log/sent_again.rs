//! What producers send again after a crash: the batches that they had under way.

use std::fs::OpenOptions;

use tarn_log::{Log, RecoveryReport};
use tarn_record::{
    BatchBuilder, Compression, Epoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, TimestampType,
    ValidBatch,
};

use crate::world::*;

const MIB: usize = 1 << 20;

/// A log of which all is flushed when a crash comes.
struct Crashed {
    world: World,
    log: Log,
    /// Each batch that was sent, with the offset that it got.
    sent: Vec<(ValidBatch, Offset)>,
    /// How many batches each producer has sent.
    counts: Vec<i32>,
    records: i32,
    bytes: usize,
}

impl Crashed {
    /// One whose producers send batches of so many records of so many bytes.
    fn new(segment_bytes: u32, producers: usize, records: i32, bytes: usize) -> Crashed {
        let world = World::new(segments_of(segment_bytes));
        let log = world.create();
        Crashed { world, log, sent: Vec::new(), counts: vec![0; producers], records, bytes }
    }

    fn send(&mut self, producer: usize) {
        let number = self.counts[producer];
        self.counts[producer] += 1;
        let sequence = Sequence(number * self.records);
        let value = vec![7; self.bytes];
        let mut batch = BatchBuilder::new(Offset(0), Compression::None).producer(
            ProducerId(producer as i64),
            ProducerEpoch(0),
            sequence,
        );
        for _ in 0..self.records {
            batch.add(&Record { value: Some(&value), timestamp: NOW, ..Record::default() });
        }
        let batch = ValidBatch::parse(batch.build()).unwrap();
        let first = append(&mut self.log, &batch).0;
        self.sent.push((batch, first));
    }

    /// Opens it again.
    fn again(&mut self) -> RecoveryReport {
        flush(&mut self.log);
        let (log, report) = self.world.open_unclean(self.log.end().0);
        self.log = log;
        report
    }

    /// Sends the last five batches of each producer again, in the order in which they were sent.
    fn expect_known(&mut self) {
        let end = self.log.end();
        for producer in 0..self.counts.len() {
            let of = |batch: &ValidBatch| batch.header().producer_id == ProducerId(producer as i64);
            let own: Vec<_> = self.sent.iter().filter(|(batch, _)| of(batch)).cloned().collect();
            for (batch, first) in &own[own.len() - 5..] {
                assert_eq!(append(&mut self.log, batch), (*first, true), "{producer}");
            }
        }
        assert_eq!(self.log.end(), end);
    }
}

/// The first offset, and whether it was there already.
fn append(log: &mut Log, batch: &ValidBatch) -> (Offset, bool) {
    let client = client_of(batch.clone());
    let appended = log.append_as_leader(&client, Epoch(0), TimestampType::CreateTime, NOW).unwrap();
    (appended.first, appended.duplicate_of.is_some())
}

#[test]
fn batches_of_very_many_records_are_known_again() {
    let mut world = Crashed::new(300_000, 1, 10_000, 5);
    while world.log.segment_count() < 4 {
        world.send(0);
    }
    assert!(world.sent.len() > 5);
    world.again();
    world.expect_known();
}

#[test]
fn the_batches_of_very_many_producers_are_known_again() {
    let mut world = Crashed::new(300_000, 100, 30, 5);
    for _ in 0..7 {
        (0..100).for_each(|producer| world.send(producer));
    }
    while world.log.segment_count() < 3 {
        world.send(0);
    }
    assert!(world.log.end() > Offset(20_000));
    world.again();
    world.expect_known();
}

/// A torn write, or a disk that was full at a roll, leaves a snapshot as long as one without producers.
#[test]
fn a_snapshot_that_was_cut_is_not_one_without_producers() {
    let mut world = Crashed::new(3000, 2, 1, 100);
    (0..5).for_each(|_| world.send(1));
    while world.log.segment_count() < 4 {
        world.send(0);
    }
    flush(&mut world.log);
    let mut names = world.world.names();
    names.retain(|name| name.ends_with(".snapshot"));
    names.sort();
    let newest = world.world.path().join(names.last().unwrap());
    assert!(newest.metadata().unwrap().len() > 10);
    OpenOptions::new().write(true).open(newest).unwrap().set_len(10).unwrap();
    world.again();
    world.expect_known();
}

#[test]
fn no_more_is_looked_through_than_it_takes() {
    let mut world = Crashed::new(8 * MIB as u32, 2, 1, MIB / 10);
    (0..2).for_each(|_| world.send(1));
    while world.log.segment_count() < 2 {
        world.send(0);
    }
    let report = world.again();
    let below = 8 * MIB - 8 * MIB % world.sent[0].0.bytes().len();
    assert_eq!(report.looked_through_bytes, (MIB + below) as u64, "those of the other are far below");
    let mut world = Crashed::new(8 * MIB as u32, 1, 1, MIB / 10);
    while world.log.segment_count() < 2 {
        world.send(0);
    }
    assert_eq!(world.again().looked_through_bytes, MIB as u64, "there are ten in it");
    world.expect_known();
    let mut world = Crashed::new(8 * MIB as u32, 1, 1, MIB + 100);
    while world.log.segment_count() < 2 {
        world.send(0);
    }
    assert!(world.again().looked_through_bytes > MIB as u64, "there is none");
    world.expect_known();
}
