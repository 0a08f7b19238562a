//! Compaction against a plain model: whatever the history, after each round a reader of committed records finds
//! the same state, and everybody who counts by offsets and sequences finds what was there.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tarn_record::{
    BatchBuilder, Compression, ControlRecord, ControlType, EndTransaction, Epoch, Offset, Outcome,
    ProducerEpoch, ProducerId, Record, Sequence, Timestamp, ValidBatch, end_transaction_marker,
};

use super::OffsetMap;
use super::filter::{Filter, Kept, Mapper, Place};
use super::offset_map::Room;
use crate::log::aborted_entry;
use crate::producers::ProducerStates;
use crate::segment::txn_index::AbortedTransaction;

const RETENTION_MS: i64 = 1000;
/// Producers 1 and 2 are idempotent, 3 and 4 transactional; 0 stands for one that is neither.
const PRODUCERS: i64 = 5;

#[derive(Clone, Debug)]
enum Step {
    Records {
        producer: i64,
        /// Key, value or tombstone, timestamp.
        records: Vec<(u8, Option<u8>, i64)>,
        codec: i8,
    },
    End {
        producer: i64,
        commits: bool,
        bumps: bool,
    },
    Gap(i64),
}

/// A round: how far it may go, what time it is since the one before, what fits into its map, and which batches
/// end a segment.
#[derive(Clone, Debug)]
struct Round {
    upto: prop::sample::Index,
    later_ms: i64,
    slots: usize,
    segment_batches: usize,
}

/// A record as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    offset: i64,
    timestamp: i64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// A log without files.
#[derive(Clone, Debug, Default)]
struct History {
    batches: Vec<ValidBatch>,
    aborted: Vec<AbortedTransaction>,
    states: ProducerStates,
    end: i64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn compaction_equals_the_model(
        steps in prop::collection::vec(step(), 1..60),
        rounds in prop::collection::vec(round(), 1..6),
    ) {
        let original = played(&steps);
        let (mut log, mut first_dirty, mut now) = (original.clone(), 0, 10_000);
        let mut tombstones_seen: BTreeMap<i64, i64> = BTreeMap::new();
        for round in &rounds {
            now += round.later_ms;
            let before = log.clone();
            first_dirty = compact(&mut log, first_dirty, now, round);
            let first_dirty = Offset(first_dirty);
            compare_readers(&original, &log, first_dirty);
            compare_bytes(&before, &log, round);
            compare_producers(&original, &log);
            compare_markers(&log);
            compare_tombstones(&before, &log, first_dirty, now, &mut tombstones_seen);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0u8..6, prop::option::weighted(0.8, any::<u8>()), 0i64..2000);
    let records = prop::collection::vec(record, 1..6);
    prop_oneof![
        5 => (0..PRODUCERS, records, 0i8..5).prop_map(|(producer, records, codec)| Step::Records { producer, records, codec }),
        2 => (3..PRODUCERS, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(producer, commits, bumps)| Step::End { producer, commits, bumps }),
        1 => (1i64..20).prop_map(Step::Gap),
    ]
}

fn round() -> impl Strategy<Value = Round> {
    let slots = prop_oneof![Just(2usize), Just(8), Just(1000)];
    (any::<prop::sample::Index>(), 0i64..900, slots, 1usize..12)
        .prop_map(|(upto, later_ms, slots, segment_batches)| Round { upto, later_ms, slots, segment_batches })
}

fn played(steps: &[Step]) -> History {
    let mut history = History::default();
    let (mut sequences, mut epochs) = ([0i32; PRODUCERS as usize], [0i16; PRODUCERS as usize]);
    for step in steps {
        match step {
            Step::Records { producer, records, codec } => {
                let at = *producer as usize;
                let codec = Compression::from_id(*codec).unwrap();
                let mut builder = BatchBuilder::new(Offset(history.end), codec).leader_epoch(Epoch(1));
                if at > 0 {
                    let (id, epoch) = (ProducerId(*producer), ProducerEpoch(epochs[at]));
                    builder = builder.producer(id, epoch, Sequence(sequences[at]));
                    sequences[at] += records.len() as i32;
                }
                builder = if at > 2 { builder.transactional() } else { builder };
                for (key, value, timestamp) in records {
                    let (key, value) = ([*key], value.map(|value| [value; 30]));
                    builder.add(&Record {
                        key: Some(&key),
                        value: value.as_ref().map(|value| &value[..]),
                        timestamp: Timestamp(*timestamp),
                        headers: &[(b"h", None)],
                    });
                }
                history.append(ValidBatch::parse(builder.build()).unwrap());
            }
            Step::End { producer, commits, bumps } => {
                let at = *producer as usize;
                if *bumps {
                    (epochs[at], sequences[at]) = (epochs[at] + 1, 0);
                }
                let end = EndTransaction {
                    producer_id: ProducerId(*producer),
                    producer_epoch: ProducerEpoch(epochs[at]),
                    outcome: if *commits { Outcome::Commit } else { Outcome::Abort },
                    coordinator_epoch: 1,
                };
                let marker = end_transaction_marker(&end, Offset(history.end), Epoch(1), Timestamp(5));
                history.append(ValidBatch::parse(marker).unwrap());
            }
            Step::Gap(offsets) => history.end += offsets,
        }
    }
    history
}

impl History {
    fn append(&mut self, batch: ValidBatch) {
        let ended = self.states.update(batch.header(), ControlRecord::parse(&batch).as_ref());
        self.aborted.extend(ended.and_then(aborted_entry));
        self.states.on_high_watermark(batch.header().next_offset());
        self.end = batch.header().next_offset().0;
        self.batches.push(batch);
    }

    /// The boundaries between batches up to which all transactions are decided.
    fn stable_ends(&self) -> Vec<i64> {
        let stable = self.states.first_unstable().map_or(i64::MAX, |offset| offset.0);
        let ends = self.batches.iter().map(|batch| batch.header().next_offset().0);
        [0].into_iter().chain(ends.filter(|end| *end <= stable)).collect()
    }
}

/// One round, from the first batch that it has not seen; returns where the next one begins.
fn compact(log: &mut History, first_dirty: i64, now: i64, round: &Round) -> i64 {
    let ends = log.stable_ends();
    let upper = ends[round.upto.index(ends.len())].max(first_dirty);
    let mut map = OffsetMap::new(round.slots * 24);
    let mut mapper = Mapper::new(&mut map, &log.aborted, Offset(first_dirty));
    let mut end = first_dirty;
    for batch in &log.batches {
        let header = batch.header();
        if header.next_offset().0 <= first_dirty {
            continue;
        }
        if header.base_offset.0 >= upper || mapper.note(batch).unwrap() == Room::Full {
            break;
        }
        end = header.next_offset().0;
    }
    let last = log.states.last_records().into_iter().map(|(id, last)| (id, [last; 2])).collect();
    let mut filter = Filter::new(map, &log.aborted, last, Offset(end), Timestamp(now), RETENTION_MS);
    let mut kept = Vec::new();
    for (number, batch) in log.batches.iter().enumerate() {
        let place = if ends_segment(number, log, round) { Place::Last } else { Place::Inside };
        match filter.keep(batch, place).unwrap() {
            Kept::AsIs => kept.push(batch.clone()),
            Kept::Rewritten(batch) | Kept::Emptied(batch) => kept.push(batch),
            Kept::Gone => {}
        }
    }
    log.aborted = filter.take_aborted();
    log.batches = kept;
    end
}

fn ends_segment(number: usize, log: &History, round: &Round) -> bool {
    number % round.segment_batches == round.segment_batches - 1 || number + 1 == log.batches.len()
}

/// What a reader of committed records gets, by the same means as Kafka's consumer: the list of aborted
/// transactions, and the markers.
fn committed(log: &History) -> Vec<Seen> {
    let mut aborted = log.aborted.clone();
    aborted.sort_by_key(|entry| entry.first_offset);
    let (mut next, mut skipped, mut seen) = (0, BTreeSet::new(), Vec::new());
    for batch in &log.batches {
        let header = batch.header();
        while next < aborted.len() && aborted[next].first_offset <= header.last_offset() {
            skipped.insert(aborted[next].producer_id);
            next += 1;
        }
        if let Some(control) = ControlRecord::parse(batch) {
            if control.control_type == ControlType::Abort {
                skipped.remove(&header.producer_id);
            }
        } else if !header.is_control() {
            let is_skipped = header.is_transactional() && skipped.contains(&header.producer_id);
            seen.extend(if is_skipped { Vec::new() } else { records_of(batch) });
        }
    }
    seen
}

fn records_of(batch: &ValidBatch) -> Vec<Seen> {
    let (header, mut seen) = (batch.header(), Vec::new());
    let mut records = batch.reader(1 << 20).unwrap();
    while let Some(record) = records.next() {
        let record = record.unwrap();
        assert_eq!(record.headers.len(), usize::from(!header.is_control()));
        seen.push(Seen {
            offset: header.base_offset.0 + i64::from(record.offset_delta),
            timestamp: header.timestamp_of(record.timestamp_delta),
            key: record.key.unwrap_or_default().to_vec(),
            value: record.value.map(<[u8]>::to_vec),
        });
    }
    seen
}

/// Every reader comes to the same state, by records that were there; below the end each key is there once, and
/// above it everything is as it was.
fn compare_readers(original: &History, log: &History, end: Offset) {
    let (before, after) = (committed(original), committed(log));
    let state = |seen: &[Seen]| -> BTreeMap<Vec<u8>, Vec<u8>> {
        let newest: BTreeMap<_, _> = seen.iter().map(|seen| (seen.key.clone(), seen.value.clone())).collect();
        newest.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    };
    assert_eq!(state(&before), state(&after));
    let known: BTreeMap<i64, &Seen> = before.iter().map(|seen| (seen.offset, seen)).collect();
    let mut keys = BTreeSet::new();
    for seen in &after {
        assert_eq!(known.get(&seen.offset), Some(&seen), "a record changed or was none of the history");
        assert!(seen.offset >= end.0 || keys.insert(&seen.key), "key {:?} is there twice", seen.key);
    }
    let above = |seen: &[Seen]| seen.iter().filter(|seen| seen.offset >= end.0).cloned().collect::<Vec<_>>();
    assert_eq!(above(&before), above(&after));
    let aborted_records = |batch: &ValidBatch| {
        let covers = |entry: &AbortedTransaction| {
            let header = batch.header();
            header.producer_id == entry.producer_id
                && (entry.first_offset..entry.last_offset).contains(&header.base_offset)
        };
        let is_below = batch.header().base_offset < end && !batch.header().is_control();
        is_below && batch.header().record_count > 0 && original.aborted.iter().any(covers)
    };
    assert!(!log.batches.iter().any(aborted_records), "records of an aborted transaction are left");
}

/// No batch moves or grows another's offsets; one whose records all stay, and which got no horizon, is the same.
fn compare_bytes(before: &History, log: &History, round: &Round) {
    let known: BTreeMap<Offset, &ValidBatch> =
        before.batches.iter().map(|batch| (batch.header().base_offset, batch)).collect();
    for batch in &log.batches {
        let known = known[&batch.header().base_offset];
        assert_eq!(batch.header().last_offset(), known.header().last_offset());
        let is_marked = |batch: &ValidBatch| batch.header().attributes.has_delete_horizon();
        if records_of(batch) == records_of(known) && is_marked(batch) == is_marked(known) {
            assert_eq!(batch.bytes(), known.bytes());
        }
        assert_eq!(ValidBatch::parse(batch.bytes().clone()).as_ref(), Ok(batch));
    }
    for (number, batch) in before.batches.iter().enumerate() {
        let base = batch.header().base_offset;
        let is_there = log.batches.iter().any(|kept| kept.header().base_offset == base);
        assert!(
            is_there || !ends_segment(number, before, round),
            "a segment does not end where the next begins"
        );
    }
}

/// What is read of producers from the log is what was known of them.
fn compare_producers(original: &History, log: &History) {
    let mut states = ProducerStates::default();
    for batch in &log.batches {
        states.update(batch.header(), ControlRecord::parse(batch).as_ref());
    }
    for (id, producer) in original.states.iter() {
        let Some(last) = producer.last_batch() else { continue };
        let found = states.get(id).expect("a producer that is known has a batch");
        assert_eq!(found.epoch(), producer.epoch());
        assert_eq!(found.last_batch().map(|batch| batch.last_sequence), Some(last.last_sequence));
    }
    let open =
        |states: &ProducerStates| states.open_transactions().map(|open| open.producer_id).collect::<Vec<_>>();
    assert_eq!(open(&states), open(&original.states));
}

/// An aborted transaction is told as long as a batch of it is there, and then its marker is there too.
fn compare_markers(log: &History) {
    for entry in &log.aborted {
        let marker = log.batches.iter().find(|batch| batch.header().base_offset == entry.last_offset);
        let control = marker.and_then(ControlRecord::parse).map(|control| control.control_type);
        assert_eq!(control, Some(ControlType::Abort));
    }
}

/// A tombstone that is the newest of its key stays for the time it was promised from the first round on that saw
/// it, and no round after that leaves it.
fn compare_tombstones(
    before: &History,
    log: &History,
    end: Offset,
    now: i64,
    first_seen: &mut BTreeMap<i64, i64>,
) {
    let left: BTreeSet<i64> = committed(log).into_iter().map(|seen| seen.offset).collect();
    let all = committed(before);
    for (number, tombstone) in all.iter().enumerate() {
        let replaced = all[number + 1..].iter().any(|later| later.key == tombstone.key);
        if tombstone.value.is_some() || tombstone.offset >= end.0 || replaced {
            continue;
        }
        let seen = *first_seen.entry(tombstone.offset).or_insert(now);
        let is_left = left.contains(&tombstone.offset);
        assert_eq!(is_left, now < seen + RETENTION_MS, "a tombstone after {} ms", now - seen);
    }
}
