//! The oracle of a compacted log: every batch that was ever appended, and what compaction may have made of them.
//!
//! Written from what compaction promises to readers, and not from how it gets there.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tarn_log::Log;
use tarn_record::{ControlRecord, ControlType, Offset, ValidBatch};

/// One record, as a reader has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) key: u8,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
}

/// One batch, as it was appended.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    pub(crate) base: i64,
    pub(crate) last: i64,
    pub(crate) meaning: Meaning,
}

#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// Of this producer, with this last sequence; 0 for one that is not idempotent. Those above
    /// [`NOT_TRANSACTIONAL_MAX`] write in transactions.
    Records {
        producer: i64,
        last_sequence: i32,
        records: Vec<Kept>,
    },
    Marker {
        producer: i64,
        aborted: bool,
    },
}

pub(crate) const NOT_TRANSACTIONAL_MAX: i64 = 2;

/// The batches from the first that was appended on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batches {
    pub(crate) all: Vec<Rc<Appended>>,
}

/// What is known of a log that is compared with its batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// Nothing from here on was compacted.
    pub(crate) cleaned_to: i64,
    /// What begins below may be known in part.
    pub(crate) start_highest: i64,
    /// Up to where the log was told that all is replicated.
    pub(crate) high_watermark: i64,
    /// When the newest round was, and when the first was that saw each tombstone.
    pub(crate) cleaned_at: i64,
    pub(crate) first_cleaned: &'a BTreeMap<i64, i64>,
    pub(crate) retention_ms: i64,
}

impl Batches {
    /// Leaves the batches that end below `end`.
    pub(crate) fn truncate(&mut self, end: i64) {
        self.all.truncate(self.all.partition_point(|batch| batch.last < end));
    }

    /// Where a log with them ends that starts at `start`: a crash may have taken all above it.
    pub(crate) fn end(&self, start: i64) -> i64 {
        self.all.last().map_or(start, |batch| start.max(batch.last + 1))
    }

    /// The first offset of each open transaction.
    pub(crate) fn open(&self) -> BTreeMap<i64, i64> {
        let mut open = BTreeMap::new();
        for batch in &self.all {
            match &batch.meaning {
                Meaning::Records { producer, .. } if *producer > NOT_TRANSACTIONAL_MAX => {
                    open.entry(*producer).or_insert(batch.base);
                }
                Meaning::Marker { producer, .. } => drop(open.remove(producer)),
                Meaning::Records { .. } => {}
            }
        }
        open
    }

    /// The next sequence of a producer.
    pub(crate) fn next_sequence(&self, of: i64) -> i32 {
        let last = self.all.iter().rev().find_map(|batch| match batch.meaning {
            Meaning::Records { producer, last_sequence, .. } if producer == of => Some(last_sequence),
            _ => None,
        });
        last.map_or(0, |last| last + 1)
    }

    /// The offsets of all tombstones below `end`.
    pub(crate) fn tombstones(&self, end: i64) -> impl Iterator<Item = i64> + '_ {
        let all = self.all.iter().flat_map(|batch| records(batch));
        all.filter(move |(offset, kept)| *offset < end && kept.value.is_none()).map(|(offset, _)| offset)
    }

    /// The records that count, from `start` on: those of aborted and of open transactions do not.
    fn committed(&self, start: i64) -> Vec<(i64, &Kept)> {
        let (mut committed, mut undecided) = (Vec::new(), BTreeMap::<i64, Vec<(i64, &Kept)>>::new());
        for batch in &self.all {
            match &batch.meaning {
                Meaning::Records { producer, .. } if *producer > NOT_TRANSACTIONAL_MAX => {
                    undecided.entry(*producer).or_default().extend(records(batch));
                }
                Meaning::Records { .. } => committed.extend(records(batch)),
                Meaning::Marker { producer, aborted } => {
                    let decided = undecided.remove(producer).unwrap_or_default();
                    committed.extend(decided.into_iter().filter(|_| !aborted));
                }
            }
        }
        committed.retain(|(offset, _)| *offset >= start);
        committed
    }

    /// The batch of just these offsets.
    fn has_batch(&self, base: i64, last: i64) -> bool {
        let found = self.all.binary_search_by_key(&base, |batch| batch.base);
        found.is_ok_and(|found| self.all[found].last == last)
    }

    /// The record that was appended with this offset.
    fn record(&self, offset: i64) -> Option<&Kept> {
        let batch = self.all.get(self.all.partition_point(|batch| batch.last < offset))?;
        records(batch).find(|(found, _)| *found == offset).map(|(_, kept)| kept)
    }

    /// Compares a log that ends where these do with them; returns how many keys are gone with their tombstone.
    pub(crate) fn compare(
        &self,
        log: &Log,
        found: &[ValidBatch],
        expected: &Expected<'_>,
    ) -> Result<u64, String> {
        let start = log.start().0;
        let (mut there, mut decoded) = (Vec::new(), Vec::with_capacity(found.len()));
        let mut next = 0;
        for batch in found {
            let (base, last) = (batch.header().base_offset.0, batch.header().last_offset().0);
            if base < next || !self.has_batch(base, last) {
                return Err(format!("a batch of offsets {base} to {last} was never there"));
            }
            next = last + 1;
            let records = read(batch)?;
            for (offset, record) in &records {
                if !(base..=last).contains(offset) || there.last().is_some_and(|before| before >= offset) {
                    return Err(format!(
                        "offset {offset} is in a batch of {base} to {last}, or not in order"
                    ));
                }
                if !batch.header().is_control() && self.record(*offset) != Some(record) {
                    return Err(format!("another record at offset {offset}: {record:?}"));
                }
                there.push(*offset);
            }
            decoded.push(records);
        }
        let lowest = expected.cleaned_to.max(start);
        let above = self.all.partition_point(|batch| batch.last < lowest);
        let above = self.all[above..].iter().flat_map(|batch| offsets(batch));
        if let Some(gone) =
            above.filter(|offset| *offset >= lowest).find(|it| there.binary_search(it).is_err())
        {
            return Err(format!(
                "offset {gone} is gone, and only what is below {} was compacted",
                expected.cleaned_to
            ));
        }
        self.compare_producers(log, expected)?;
        self.compare_readers(log, found, decoded, expected)
    }

    /// A reader of committed records comes to the same state, and sees tombstones for as long as promised.
    fn compare_readers(
        &self,
        log: &Log,
        found: &[ValidBatch],
        decoded: Vec<Vec<(i64, Kept)>>,
        expected: &Expected<'_>,
    ) -> Result<u64, String> {
        let (start, end) = (log.start().0, log.end().0);
        let open = self.open();
        let stable = open.values().min().copied().unwrap_or(end);
        let begun_before = open.values().any(|first| *first < expected.start_highest);
        let is_told = expected.high_watermark == end;
        if is_told && !begun_before && log.last_stable_offset(Offset(end)).0 != stable {
            return Err(format!("stable up to {} instead of {stable}", log.last_stable_offset(Offset(end))));
        }
        let seen = seen_as_committed(log, found, decoded, stable)?;
        let committed = self.committed(start);
        let wanted = newest(committed.into_iter().filter(|(offset, _)| *offset < stable));
        let got = newest(seen.iter().map(|(offset, kept)| (*offset, kept)));
        let mut gone = 0;
        for (key, (offset, kept)) in &wanted {
            let is_tombstone = kept.value.is_none();
            let promised = match expected.first_cleaned.get(offset) {
                Some(since) => expected.cleaned_at < since + expected.retention_ms,
                None => true,
            };
            match got.get(key) {
                Some((found, _)) if found == offset => {}
                None if is_tombstone && !promised => gone += 1,
                other => {
                    let other = other.map(|(offset, _)| offset);
                    return Err(format!(
                        "key {key} is newest at offset {offset}, but at {other:?} to a reader"
                    ));
                }
            }
        }
        match got.keys().find(|key| !wanted.contains_key(key)) {
            Some(key) => Err(format!("key {key} is nowhere")),
            None => Ok(gone),
        }
    }

    /// What is known of a producer survives with its newest batch.
    fn compare_producers(&self, log: &Log, expected: &Expected<'_>) -> Result<(), String> {
        let mut last = BTreeMap::new();
        for batch in &self.all {
            if let Meaning::Records { producer, last_sequence, .. } = batch.meaning {
                last.insert(producer, (batch.last, last_sequence));
            }
        }
        for (producer, (offset, sequence)) in last.into_iter().filter(|(producer, _)| *producer > 0) {
            let found =
                log.producers().get(tarn_record::ProducerId(producer)).map(|found| found.last_sequence().0);
            if offset >= expected.start_highest && found != Some(sequence) {
                return Err(format!(
                    "producer {producer} wrote sequence {sequence} last, {found:?} is known"
                ));
            }
        }
        Ok(())
    }
}

/// Of each key the record with the highest offset.
fn newest<'a>(records: impl Iterator<Item = (i64, &'a Kept)>) -> BTreeMap<u8, (i64, &'a Kept)> {
    let mut newest = BTreeMap::new();
    for (offset, kept) in records {
        let known = newest.entry(kept.key).or_insert((offset, kept));
        if known.0 < offset {
            *known = (offset, kept);
        }
    }
    newest
}

/// The offsets that have something in them.
fn offsets(batch: &Appended) -> std::ops::RangeInclusive<i64> {
    batch.base..=batch.last
}

fn records(batch: &Appended) -> impl Iterator<Item = (i64, &Kept)> {
    let records: &[Kept] = match &batch.meaning {
        Meaning::Records { records, .. } => records,
        Meaning::Marker { .. } => &[],
    };
    records.iter().enumerate().map(|(delta, kept)| (batch.base + delta as i64, kept))
}

fn read(batch: &ValidBatch) -> Result<Vec<(i64, Kept)>, String> {
    let (header, mut found) = (batch.header(), Vec::new());
    let mut records = batch.reader(1 << 20).map_err(|error| error.to_string())?;
    while let Some(record) = records.next() {
        let record = record.map_err(|error| error.to_string())?;
        let kept = Kept {
            key: record.key.and_then(|key| key.first().copied()).unwrap_or(u8::MAX),
            value: record.value.map(<[u8]>::to_vec),
            timestamp: header.timestamp_of(record.timestamp_delta),
        };
        found.push((header.base_offset.0 + i64::from(record.offset_delta), kept));
    }
    Ok(found)
}

/// What a consumer makes of the batches, with the list of aborted transactions and the markers.
fn seen_as_committed(
    log: &Log,
    found: &[ValidBatch],
    decoded: Vec<Vec<(i64, Kept)>>,
    stable: i64,
) -> Result<Vec<(i64, Kept)>, String> {
    let aborted = log.aborted_transactions(log.start(), Offset(stable));
    let mut aborted = aborted.map_err(|error| error.to_string())?;
    aborted.sort_by_key(|entry| std::cmp::Reverse(entry.first_offset));
    let (mut skipped, mut seen) = (BTreeSet::new(), Vec::new());
    for (batch, records) in found.iter().zip(decoded) {
        let header = batch.header();
        if header.base_offset >= Offset(stable) {
            break;
        }
        while let Some(entry) = aborted.pop_if(|entry| entry.first_offset <= header.last_offset()) {
            skipped.insert(entry.producer_id);
        }
        if header.is_control() {
            if ControlRecord::parse(batch).is_some_and(|control| control.control_type == ControlType::Abort) {
                skipped.remove(&header.producer_id);
            }
        } else if !header.is_transactional() || !skipped.contains(&header.producer_id) {
            seen.extend(records.into_iter().filter(|(offset, _)| *offset >= log.start().0));
        }
    }
    Ok(seen)
}
