//! What a round of compaction does with each batch: first it notes the keys, then it decides what stays.
//!
//! The rules are Kafka's:
//! * a record stays if no later one below the end of the round has its key; a tombstone of these goes too once
//!   the delete horizon of its batch has passed. One without a key goes;
//! * records of aborted transactions go; a marker goes when nothing of its transaction is left, after the same
//!   horizon;
//! * the horizon is set by the first round that leaves a tombstone, or a marker without a transaction, in a
//!   batch that has none: every reader gets `delete.retention.ms` to see it;
//! * a batch without records stays, emptied, where it is the last of a producer that is known, since it says
//!   what the producer's next sequence is; and where the round ends.
//!
//! And two of Tarn's own. The last batch of each new segment stays, emptied if need be, so that a segment still
//! begins where the one before it ends and a recovery knows a gap for a loss. And what was the last of a producer
//! where the compacted part ends stays too: a crash may take what came after it.
//!
//! A batch of which everything stays keeps its bytes.

use std::collections::BTreeMap;

use tarn_record::{
    BatchHeader, ControlRecord, Offset, ProducerId, ReadError, Rewrite, Timestamp, ValidBatch,
};

use super::offset_map::{OffsetMap, Room};
use super::transactions::{Fate, Need, Transactions};
use crate::limits::SEARCHED_BATCH_BYTES_MAX;
use crate::producers::LastRecord;
use crate::segment::txn_index::AbortedTransaction;

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All of it stays.
    AsIs,
    /// Some of it stays, or it got a delete horizon.
    Rewritten(ValidBatch),
    /// The header stays.
    Emptied(ValidBatch),
    Gone,
}

/// Of each producer that is known, what has to stay: now, and if a crash took all that is not compacted.
pub(crate) type LastRecords = BTreeMap<ProducerId, [LastRecord; 2]>;

/// Where a batch is in the segment that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Inside,
    /// No batch follows it.
    Last,
}

/// The first half of a round: where each key is newest.
#[derive(Debug)]
pub(crate) struct Mapper<'a> {
    map: &'a mut OffsetMap,
    transactions: Transactions,
    first_dirty: Offset,
}

impl Mapper<'_> {
    /// Begins with an empty map; `aborted` has every aborted transaction that touches what will be noted.
    pub(crate) fn new<'a>(
        map: &'a mut OffsetMap,
        aborted: &[AbortedTransaction],
        first_dirty: Offset,
    ) -> Mapper<'a> {
        Mapper { map, transactions: Transactions::new(aborted), first_dirty }
    }

    /// Notes the keys of the next batch. Where there is no room for all of them the round ends before it.
    pub(crate) fn note(&mut self, batch: &ValidBatch) -> Result<Room, ReadError> {
        let header = batch.header();
        if header.is_control() {
            self.transactions.on_control(header, ControlRecord::parse(batch).as_ref());
            return Ok(Room::Taken);
        }
        if self.transactions.on_records(header) == Fate::Aborted || header.record_count == 0 {
            return Ok(Room::Taken);
        }
        let mut records = batch.reader(SEARCHED_BATCH_BYTES_MAX)?;
        while let Some(record) = records.next() {
            let record = record?;
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            let Some(key) = record.key.filter(|_| offset >= self.first_dirty) else { continue };
            if self.map.put(key, offset) == Room::Full {
                return Ok(Room::Full);
            }
        }
        Ok(Room::Taken)
    }
}

/// The second half: what stays. Batches come in their order, from the first of the log on.
#[derive(Debug)]
pub(crate) struct Filter {
    map: OffsetMap,
    transactions: Transactions,
    last_of_producers: LastRecords,
    /// The offset after the last one whose keys are in the map: from here on everything stays.
    end: Offset,
    now: Timestamp,
    delete_retention_ms: i64,
    /// Of the markers that stay, what the transaction index of their segment has to say.
    aborted: Vec<AbortedTransaction>,
}

impl Filter {
    pub(crate) fn new(
        map: OffsetMap,
        aborted: &[AbortedTransaction],
        last_of_producers: LastRecords,
        end: Offset,
        now: Timestamp,
        delete_retention_ms: i64,
    ) -> Filter {
        let transactions = Transactions::new(aborted);
        Filter { map, transactions, last_of_producers, end, now, delete_retention_ms, aborted: Vec::new() }
    }

    /// Decides on the next batch.
    pub(crate) fn keep(&mut self, batch: &ValidBatch, place: Place) -> Result<Kept, ReadError> {
        let header = batch.header();
        let has_to_stay = place == Place::Last
            || header.next_offset() == self.end
            || header.base_offset >= self.end
            || self.is_last_of_producer(header);
        if header.is_control() {
            return Ok(self.keep_control(batch, has_to_stay));
        }
        let fate = self.transactions.on_records(header);
        if header.base_offset >= self.end {
            return Ok(Kept::AsIs);
        }
        match fate {
            Fate::Aborted => Ok(without_records(batch, has_to_stay)),
            Fate::Counts => self.keep_records(batch, has_to_stay),
        }
    }

    /// What the transaction index of the segment has to say that the batches since the last call were written
    /// to.
    pub(crate) fn take_aborted(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.aborted)
    }

    fn keep_control(&mut self, batch: &ValidBatch, has_to_stay: bool) -> Kept {
        let header = batch.header();
        let need = self.transactions.on_control(header, ControlRecord::parse(batch).as_ref());
        if let Need::Needed(entry) = need {
            self.aborted.extend(entry);
            return Kept::AsIs;
        }
        if header.base_offset >= self.end {
            return Kept::AsIs;
        }
        if header.record_count == 0 || self.is_past_horizon(header) {
            return without_records(batch, has_to_stay);
        }
        if header.attributes.has_delete_horizon() {
            return Kept::AsIs;
        }
        let mut rewrite = Rewrite::of(header);
        let Ok(mut records) = batch.reader(SEARCHED_BATCH_BYTES_MAX) else { return Kept::AsIs };
        while let Some(record) = records.next() {
            // What it says was read before.
            let Ok(record) = record else { return Kept::AsIs };
            rewrite.keep(&record);
        }
        Kept::Rewritten(rewrite.finish(Some(self.horizon())))
    }

    fn keep_records(&mut self, batch: &ValidBatch, has_to_stay: bool) -> Result<Kept, ReadError> {
        let header = batch.header();
        if header.record_count == 0 {
            return Ok(without_records(batch, has_to_stay));
        }
        let (mut rewrite, mut has_tombstone) = (Rewrite::of(header), false);
        let tombstones_stay = !self.is_past_horizon(header);
        let mut records = batch.reader(SEARCHED_BATCH_BYTES_MAX)?;
        while let Some(record) = records.next() {
            let record = record?;
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            let Some(key) = record.key else { continue };
            let is_newest = self.map.newest(key).is_none_or(|newest| offset >= newest);
            if is_newest && (record.value.is_some() || tombstones_stay) {
                has_tombstone |= record.value.is_none();
                rewrite.keep(&record);
            }
        }
        let lacks_horizon = has_tombstone && !header.attributes.has_delete_horizon();
        Ok(match rewrite.count() {
            0 => without_records(batch, has_to_stay),
            all if all == header.record_count && !lacks_horizon => Kept::AsIs,
            _ => Kept::Rewritten(rewrite.finish(lacks_horizon.then(|| self.horizon()))),
        })
    }

    /// The producer's newest batch; or, where a marker came after it with a newer epoch, such a marker.
    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        if !header.has_producer_id() {
            return false;
        }
        let last = self.last_of_producers.get(&header.producer_id);
        last.into_iter().flatten().any(|last| match last.last_data {
            Some(offset) => header.last_offset() == offset,
            None => header.is_control() && header.producer_epoch == last.epoch,
        })
    }

    fn is_past_horizon(&self, header: &BatchHeader) -> bool {
        header.attributes.has_delete_horizon() && header.base_timestamp <= self.now.0
    }

    fn horizon(&self) -> Timestamp {
        Timestamp(self.now.0.saturating_add(self.delete_retention_ms))
    }
}

fn without_records(batch: &ValidBatch, has_to_stay: bool) -> Kept {
    match has_to_stay {
        true if batch.header().record_count == 0 => Kept::AsIs,
        true => Kept::Emptied(batch.emptied()),
        false => Kept::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{
        BatchBuilder, Compression, ControlType, EndTransaction, Epoch, Outcome, ProducerEpoch, Record,
        Sequence, control_batch, end_transaction_marker,
    };

    const RETENTION_MS: i64 = 100;

    #[test]
    fn a_tombstone_stays_for_its_time_and_takes_what_was_before_with_it_at_once() {
        let batches = [of_keys(0, &[("a", Some("1")), ("b", Some("1"))]), of_keys(2, &[("a", None)])];
        let first = pass(&batches, &[], 4, 1000);
        assert_eq!(offsets(&first), [vec![1], vec![2]]);
        assert!(first[1].header().attributes.has_delete_horizon());
        assert_eq!(first[1].header().base_timestamp, 1000 + RETENTION_MS);
        assert_eq!(pass(&first, &[], 4, 1000 + RETENTION_MS - 1), first, "not a byte changes before");
        assert_eq!(offsets(&pass(&first, &[], 4, 1000 + RETENTION_MS)), [vec![1]]);
    }

    #[test]
    fn records_without_a_key_and_replaced_ones_go_and_what_is_above_the_end_stays() {
        let keyless = {
            let mut builder = BatchBuilder::new(Offset(0), Compression::None);
            builder.add(&Record { value: Some(b"1"), ..Record::default() });
            ValidBatch::parse(builder.build()).unwrap()
        };
        let batches = [
            keyless,
            of_keys(1, &[("a", Some("1"))]),
            of_keys(2, &[("a", Some("2"))]),
            of_keys(3, &[("a", Some("3"))]),
        ];
        let kept = pass(&batches, &[], 3, 0);
        assert_eq!(offsets(&kept), [vec![2], vec![3]], "the last one was not looked at");
    }

    #[test]
    fn a_marker_goes_in_the_third_pass_and_the_index_forgets_it_in_the_second() {
        let entry = aborted(7, 0, 1);
        let batches = [in_transaction(0, 7), marker(7, 1), of_keys(2, &[("a", Some("1"))])];
        let mut filter = filter_of(&[entry], BTreeMap::new(), 3, 1000);
        let first = through(&mut filter, &batches);
        assert_eq!((offsets(&first), filter.take_aborted()), (vec![vec![1], vec![2]], vec![entry]));
        assert_eq!(first[0], batches[1], "its data was there in this pass");
        let mut filter = filter_of(&[entry], BTreeMap::new(), 3, 2000);
        let second = through(&mut filter, &first);
        assert_eq!((offsets(&second), filter.take_aborted()), (vec![vec![1], vec![2]], vec![]));
        assert_eq!(second[0].header().base_timestamp, 2000 + RETENTION_MS);
        let control = ControlRecord::parse(&second[0]).unwrap();
        assert_eq!((control.control_type, control.coordinator_epoch), (ControlType::Abort, Some(1)));
        assert_eq!(offsets(&pass(&second, &[], 3, 2000 + RETENTION_MS)), [vec![2]]);
    }

    #[test]
    fn the_newest_batch_of_a_producer_stays_without_records() {
        let newest = BTreeMap::from([(ProducerId(7), last(Some(0)))]);
        let batches = [in_transaction(0, 7), marker(7, 1), of_keys(2, &[("a", Some("1"))])];
        let kept = through(&mut filter_of(&[aborted(7, 0, 1)], newest.clone(), 3, 0), &batches);
        assert_eq!(offsets(&kept), [vec![], vec![1], vec![2]]);
        assert_eq!(kept[0].header().last_sequence(), batches[0].header().last_sequence());
        let mut filter = filter_of(&[aborted(7, 0, 1)], newest, 3, i64::MAX / 2);
        assert_eq!(through(&mut filter, &kept), kept, "and keeps its marker");
        let kept = through(&mut filter_of(&[], BTreeMap::new(), 3, 0), &kept);
        assert_eq!(offsets(&kept), [vec![1], vec![2]], "until the producer is forgotten");
    }

    #[test]
    fn what_a_producer_wrote_last_before_a_crash_could_stays_too() {
        let at = |offset| LastRecord { last_data: Some(Offset(offset)), epoch: ProducerEpoch(0) };
        let newest = BTreeMap::from([(ProducerId(7), [at(90), at(1)])]);
        let entries = [aborted(7, 0, 2)];
        let batches =
            [in_transaction(0, 7), in_transaction(1, 7), marker(7, 2), of_keys(3, &[("a", Some("1"))])];
        let kept = through(&mut filter_of(&entries, newest, 4, 0), &batches);
        assert_eq!(kept[0], batches[1].emptied());
        assert_eq!(offsets(&kept), [vec![], vec![2], vec![3]]);
    }

    #[test]
    fn a_marker_that_alone_tells_the_epoch_of_a_producer_stays() {
        let newest = BTreeMap::from([(ProducerId(7), last(None))]);
        let marked = through(&mut filter_of(&[], newest.clone(), 3, 0), &[marker(7, 1), marker(7, 2)]);
        let kept = through(&mut filter_of(&[], newest, 3, i64::MAX / 2), &marked);
        assert_eq!(kept.len(), 2, "emptied or not");
        let of_epoch_9 = [LastRecord { last_data: None, epoch: ProducerEpoch(9) }; 2];
        let of_another = BTreeMap::from([(ProducerId(7), of_epoch_9)]);
        let kept = through(&mut filter_of(&[], of_another, 9, i64::MAX / 2), &marked);
        assert!(kept.is_empty());
    }

    #[test]
    fn control_records_of_other_kinds_stay_for_ever() {
        let (base, epoch) = (Offset(0), Epoch(0));
        let reset = control_batch(ControlType::MirrorPidReset, &[0, 0], base, epoch, Timestamp(0));
        let batches = [ValidBatch::parse(reset).unwrap(), of_keys(1, &[("a", Some("1"))])];
        let once = pass(&batches, &[], 2, 0);
        assert_eq!(pass(&once, &[], 2, i64::MAX / 2), batches);
    }

    #[test]
    fn the_last_batch_of_a_segment_and_of_the_round_stay_as_headers() {
        let batches = [of_keys(0, &[("a", Some("1"))]), of_keys(1, &[("a", Some("2"))])];
        let mut map = mapped(&batches, 2);
        map.put(b"a", Offset(9));
        let mut filter = Filter::new(map, &[], BTreeMap::new(), Offset(2), Timestamp(0), RETENTION_MS);
        let empty = |batch: &ValidBatch| Kept::Emptied(batch.emptied());
        assert_eq!(filter.keep(&batches[0], Place::Inside), Ok(Kept::Gone));
        assert_eq!(filter.keep(&batches[0], Place::Last), Ok(empty(&batches[0])));
        assert_eq!(filter.keep(&batches[1], Place::Inside), Ok(empty(&batches[1])));
        assert_eq!(filter.keep(&batches[1].emptied(), Place::Last), Ok(Kept::AsIs));
    }

    /// What stays of the batches after a pass up to `end`.
    fn pass(batches: &[ValidBatch], aborted: &[AbortedTransaction], end: i64, now: i64) -> Vec<ValidBatch> {
        let map = mapped(batches, end);
        let (end, now) = (Offset(end), Timestamp(now));
        through(&mut Filter::new(map, aborted, BTreeMap::new(), end, now, RETENTION_MS), batches)
    }

    fn mapped(batches: &[ValidBatch], end: i64) -> OffsetMap {
        let mut map = OffsetMap::new(1 << 20);
        let mut mapper = Mapper::new(&mut map, &[], Offset(0));
        for batch in batches.iter().filter(|batch| batch.header().base_offset < Offset(end)) {
            assert_eq!(mapper.note(batch), Ok(Room::Taken));
        }
        map
    }

    /// A filter for which no key is anywhere else.
    fn filter_of(aborted: &[AbortedTransaction], last: LastRecords, end: i64, now: i64) -> Filter {
        Filter::new(OffsetMap::new(1 << 10), aborted, last, Offset(end), Timestamp(now), RETENTION_MS)
    }

    fn through(filter: &mut Filter, batches: &[ValidBatch]) -> Vec<ValidBatch> {
        let mut kept = Vec::new();
        for batch in batches {
            match filter.keep(batch, Place::Inside).unwrap() {
                Kept::AsIs => kept.push(batch.clone()),
                Kept::Rewritten(changed) | Kept::Emptied(changed) => kept.push(changed),
                Kept::Gone => {}
            }
        }
        kept
    }

    /// The offsets of the records of each batch.
    fn offsets(batches: &[ValidBatch]) -> Vec<Vec<i64>> {
        let of = |batch: &ValidBatch| {
            let (mut offsets, mut records) = (Vec::new(), batch.reader(1 << 20).unwrap());
            while let Some(record) = records.next() {
                let delta = record.unwrap().offset_delta;
                offsets.push(batch.header().base_offset.0 + i64::from(delta));
            }
            offsets
        };
        batches.iter().map(of).collect()
    }

    fn of_keys(base: i64, records: &[(&str, Option<&str>)]) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(base), Compression::None);
        for (key, value) in records {
            let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
            builder.add(&Record { key, value, ..Record::default() });
        }
        ValidBatch::parse(builder.build()).unwrap()
    }

    fn in_transaction(base: i64, producer: i64) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(base), Compression::None)
            .producer(ProducerId(producer), ProducerEpoch(0), Sequence(5))
            .transactional();
        builder.add(&Record { key: Some(b"t"), value: Some(b"1"), ..Record::default() });
        ValidBatch::parse(builder.build()).unwrap()
    }

    fn marker(producer: i64, base: i64) -> ValidBatch {
        let (producer_id, producer_epoch) = (ProducerId(producer), ProducerEpoch(0));
        let end =
            EndTransaction { producer_id, producer_epoch, outcome: Outcome::Abort, coordinator_epoch: 1 };
        ValidBatch::parse(end_transaction_marker(&end, Offset(base), Epoch(0), Timestamp(0))).unwrap()
    }

    fn aborted(producer: i64, first: i64, last: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }

    fn last(last_data: Option<i64>) -> [LastRecord; 2] {
        [LastRecord { last_data: last_data.map(Offset), epoch: ProducerEpoch(0) }; 2]
    }
}
