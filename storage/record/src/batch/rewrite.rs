//! A batch without some of its records, as compaction leaves it.
//!
//! Whoever compacts reads the records of a batch one by one, hands those that stay to a [`Rewrite`] and gets a
//! batch that differs in nothing else: offsets, epoch, producer and sequence stay what they were, so that
//! nobody who counts by them notices. The records are copied as they stand. Only a delete horizon (KIP-534)
//! touches them: it takes the place of the base timestamp, so their timestamps are told relative to it.
//!
//! Invariants:
//! * base and last offset of the batch are those of the original, whatever stays;
//! * the largest timestamp is that of a record that stays, or the original's where the leader set it or
//!   nothing stays.

use super::record::{RecordView, read_record};
use super::{BatchHeader, TimestampType, ValidBatch};
use crate::codec::{Compression, compress};
use crate::ids::Timestamp;
use crate::varint::{bytes_of_i64, read_i32, read_i64, write_i32, write_i64};

/// The records of one batch that stay. Holds a copy of them, uncompressed.
#[derive(Clone, Debug)]
pub struct Rewrite {
    header: BatchHeader,
    section: Vec<u8>,
    count: i32,
    largest: i64,
}

impl Rewrite {
    /// Begins with nothing of the batch that has this header.
    pub fn of(header: &BatchHeader) -> Rewrite {
        Rewrite { header: *header, section: Vec::new(), count: 0, largest: Timestamp::NONE.0 }
    }

    /// Keeps a record of the batch. They come in their order.
    pub fn keep(&mut self, record: &RecordView<'_>) {
        self.section.extend_from_slice(record.encoded);
        let timestamp = self.header.timestamp_of(record.timestamp_delta);
        self.largest = if self.count == 0 { timestamp } else { self.largest.max(timestamp) };
        self.count += 1;
    }

    /// How many records stay so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// The batch with what stays, compressed as it was. `horizon` is the time from which on its tombstones may
    /// go; without one the batch keeps that which it has.
    pub fn finish(mut self, horizon: Option<Timestamp>) -> ValidBatch {
        if self.count == 0 {
            return emptied(&self.header);
        }
        if let Some(horizon) = horizon {
            self.section = relative_to(&self.section, &self.header, horizon);
            self.header.base_timestamp = horizon.0;
            self.header.attributes = self.header.attributes.delete_horizon();
        }
        self.header.record_count = self.count;
        if self.header.timestamp_type() == TimestampType::CreateTime {
            self.header.max_timestamp = self.largest;
        }
        let compression = self.header.compression().unwrap_or(Compression::None);
        match compression {
            Compression::None => ValidBatch::sealed(self.header, &self.section),
            compression => ValidBatch::sealed(self.header, &compress(compression, None, &self.section)),
        }
    }
}

impl ValidBatch {
    /// The batch without any record, as Kafka leaves one whose offsets or producer must not be forgotten: it
    /// keeps its largest timestamp, by which its producer expires, and has neither codec nor horizon.
    pub fn emptied(&self) -> ValidBatch {
        emptied(self.header())
    }
}

fn emptied(header: &BatchHeader) -> ValidBatch {
    let attributes = header.attributes.with_compression(Compression::None).without_delete_horizon();
    let base_timestamp = Timestamp::NONE.0;
    ValidBatch::sealed(BatchHeader { attributes, base_timestamp, record_count: 0, ..*header }, &[])
}

/// The same records, with timestamps relative to `base`.
fn relative_to(section: &[u8], header: &BatchHeader, base: Timestamp) -> Vec<u8> {
    const ATTRIBUTES: usize = 1;
    let mut out = Vec::with_capacity(section.len() + section.len() / 8);
    let mut rest = section;
    while let Ok((record, after)) = read_record(rest) {
        rest = after;
        let timestamp = header.timestamp_of(record.timestamp_delta);
        let delta = timestamp.wrapping_sub(base.0);
        // It was read as a record, so that length, attributes and delta are there.
        let body = read_i32(record.encoded).map_or(record.encoded, |(_, body)| body);
        let (attributes, after_attributes) = body.split_at(ATTRIBUTES);
        let unchanged = read_i64(after_attributes).map_or(after_attributes, |(_, unchanged)| unchanged);
        write_i32(&mut out, (ATTRIBUTES + bytes_of_i64(delta) + unchanged.len()) as i32);
        out.extend_from_slice(attributes);
        write_i64(&mut out, delta);
        out.extend_from_slice(unchanged);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Epoch, Offset, ProducerEpoch, ProducerId, Record, Sequence};
    use proptest::prelude::*;

    #[test]
    fn what_stays_keeps_its_offsets_and_the_batch_its_ends() {
        for compression in Compression::ALL {
            let batch = batch(compression, &[100, 90, 130, 120]);
            let kept = rewritten(&batch, &[1, 3], None);
            let (header, original) = (*kept.header(), *batch.header());
            assert_eq!((header.base_offset, header.last_offset()), (Offset(7), Offset(10)));
            assert_eq!((header.record_count, header.max_timestamp), (2, 120));
            assert_eq!(header.compression(), Ok(compression));
            assert_eq!(header.last_sequence(), original.last_sequence());
            assert_eq!(
                (header.producer_id, header.producer_epoch, header.leader_epoch),
                (original.producer_id, original.producer_epoch, original.leader_epoch)
            );
            assert_eq!(read(&kept), [(8, 90), (10, 120)]);
        }
    }

    #[test]
    fn a_horizon_takes_the_place_of_the_base_and_no_timestamp_changes() {
        let batch = batch(Compression::None, &[100, 90, 130]);
        let kept = rewritten(&batch, &[0, 1, 2], Some(Timestamp(1_000_000)));
        assert!(kept.header().attributes.has_delete_horizon());
        assert_eq!((kept.header().base_timestamp, kept.header().max_timestamp), (1_000_000, 130));
        assert_eq!(read(&kept), [(7, 100), (8, 90), (9, 130)]);
        let again = rewritten(&kept, &[1], None);
        assert!(again.header().attributes.has_delete_horizon());
        assert_eq!(again.header().base_timestamp, 1_000_000, "a horizon is set once");
        assert_eq!(read(&again), [(8, 90)]);
    }

    #[test]
    fn an_emptied_batch_is_a_header_that_keeps_producer_and_offsets() {
        let marked = rewritten(&batch(Compression::Gzip, &[100, 130]), &[0, 1], Some(Timestamp(5000)));
        let empty = marked.emptied();
        assert_eq!(empty.bytes().len(), crate::HEADER_BYTES);
        assert_eq!(empty.header().last_sequence(), marked.header().last_sequence());
        assert_eq!((empty.header().last_offset(), empty.header().max_timestamp), (Offset(8), 130));
        assert_eq!((empty.header().base_timestamp, empty.header().record_count), (-1, 0));
        assert!(!empty.header().attributes.has_delete_horizon());
        assert_eq!(empty.header().compression(), Ok(Compression::None));
        assert_eq!(rewritten(&marked, &[], None), empty);
        assert_eq!(empty.emptied(), empty);
    }

    #[test]
    fn the_leaders_timestamp_stays_that_of_every_record() {
        let mut builder = BatchBuilder::new(Offset(0), Compression::None).log_append_time(Timestamp(500));
        for at in [3, 900] {
            builder.add(&Record { key: Some(b"k"), timestamp: Timestamp(at), ..Record::default() });
        }
        let batch = ValidBatch::parse(builder.build()).unwrap();
        for horizon in [None, Some(Timestamp(7))] {
            let kept = rewritten(&batch, &[1], horizon);
            assert_eq!((kept.header().max_timestamp, read(&kept)), (500, vec![(1, 500)]));
        }
    }

    proptest! {
        /// Whatever stays reads back as it was, with its own offset and timestamp, and passes every check.
        #[test]
        fn what_stays_reads_back(
            timestamps in prop::collection::vec(-5i64..i64::MAX / 4, 1..20),
            stay in prop::collection::vec(any::<bool>(), 20),
            horizon in prop::option::of(0i64..i64::MAX / 4),
            codec in 0i8..5,
        ) {
            let batch = batch(Compression::from_id(codec).unwrap(), &timestamps);
            let kept: Vec<usize> = (0..timestamps.len()).filter(|&at| stay[at]).collect();
            let written = rewritten(&batch, &kept, horizon.map(Timestamp));
            prop_assert_eq!(ValidBatch::parse(written.bytes().clone()), Ok(written.clone()));
            let expected: Vec<_> = kept.iter().map(|&at| (7 + at as i64, timestamps[at])).collect();
            prop_assert_eq!(read(&written), expected);
        }
    }

    fn batch(compression: Compression, timestamps: &[i64]) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(7), compression)
            .producer(ProducerId(4), ProducerEpoch(2), Sequence(9))
            .leader_epoch(Epoch(3));
        for (number, &at) in timestamps.iter().enumerate() {
            let value = format!("value {number}");
            builder.add(&Record {
                key: Some(b"k"),
                value: Some(value.as_bytes()),
                timestamp: Timestamp(at),
                headers: &[(b"h", None)],
            });
        }
        ValidBatch::parse(builder.build()).unwrap()
    }

    fn rewritten(batch: &ValidBatch, kept: &[usize], horizon: Option<Timestamp>) -> ValidBatch {
        let mut rewrite = Rewrite::of(batch.header());
        let mut records = batch.reader(1 << 20).unwrap();
        let mut number = 0;
        while let Some(record) = records.next() {
            if kept.contains(&number) {
                rewrite.keep(&record.unwrap());
            }
            number += 1;
        }
        rewrite.finish(horizon)
    }

    /// Offset and timestamp of each record; its value says which one it is.
    fn read(batch: &ValidBatch) -> Vec<(i64, i64)> {
        let mut records = batch.reader(1 << 20).unwrap();
        let mut found = Vec::new();
        while let Some(record) = records.next() {
            let record = record.unwrap();
            let offset = batch.header().base_offset.0 + i64::from(record.offset_delta);
            if let Some(value) = record.value {
                assert_eq!(value, format!("value {}", record.offset_delta).as_bytes());
            }
            found.push((offset, batch.header().timestamp_of(record.timestamp_delta)));
        }
        found
    }
}
