//! Writing record batches.
//!
//! For what this program writes itself: control records, the metadata log, coordinators, the command line
//! and tests. Batches of clients are never rebuilt record by record; compaction and recompression keep the
//! encoded records and go through [`seal`].

use bytes::Bytes;

use crate::batch::{Attributes, BatchHeader, ControlType, HEADER_BYTES, LOG_OVERHEAD, TimestampType};
use crate::codec::{Compression, compress};
use crate::ids::{Epoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use crate::varint::{bytes_of_i32, bytes_of_i64, write_i32, write_i64};

/// A record to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order; keys may repeat.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
    /// Its timestamp.
    pub timestamp: Timestamp,
}

/// Collects records and writes one batch. The offsets of the records are consecutive.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    compression: Compression,
    level: Option<i32>,
    append_time: Option<Timestamp>,
    base_timestamp: Option<Timestamp>,
    section: Vec<u8>,
}

impl BatchBuilder {
    /// A batch that begins at `base_offset`: 0 where a client sends it.
    pub fn new(base_offset: Offset, compression: Compression) -> BatchBuilder {
        let header = BatchHeader {
            base_offset,
            length: 0,
            leader_epoch: Epoch::NONE,
            magic: 2,
            crc: 0,
            attributes: Attributes::default().with_compression(compression),
            last_offset_delta: 0,
            base_timestamp: Timestamp::NONE.0,
            max_timestamp: Timestamp::NONE.0,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            record_count: 0,
        };
        BatchBuilder {
            header,
            compression,
            level: None,
            append_time: None,
            base_timestamp: None,
            section: Vec::new(),
        }
    }

    /// The base timestamp; without it the first record's is taken.
    pub fn timestamp(mut self, base: Timestamp) -> BatchBuilder {
        self.base_timestamp = Some(base);
        self
    }

    /// The codec's level; see [`compress`].
    pub fn level(mut self, level: Option<i32>) -> BatchBuilder {
        self.level = level;
        self
    }

    /// The idempotent producer and the sequence of its first record here.
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, sequence: Sequence) -> BatchBuilder {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = sequence;
        self
    }

    /// Marks the batch as part of its producer's transaction.
    pub fn transactional(mut self) -> BatchBuilder {
        self.header.attributes = self.header.attributes.transactional();
        self
    }

    /// Marks the batch as one of control records.
    pub fn control(mut self) -> BatchBuilder {
        self.header.attributes = self.header.attributes.control();
        self
    }

    /// The epoch of the leader that appends the batch.
    pub fn leader_epoch(mut self, epoch: Epoch) -> BatchBuilder {
        self.header.leader_epoch = epoch;
        self
    }

    /// Marks the batch as LogAppendTime, at `now`.
    pub fn log_append_time(mut self, now: Timestamp) -> BatchBuilder {
        self.append_time = Some(now);
        self
    }

    /// Adds a record at the next offset.
    ///
    /// A key, value or number of headers beyond `i32::MAX` cannot be written; keep records far below.
    pub fn add(&mut self, record: &Record<'_>) -> &mut BatchBuilder {
        let base = *self.base_timestamp.get_or_insert(record.timestamp);
        let timestamp_delta = record.timestamp.0.saturating_sub(base.0);
        write_record(&mut self.section, record, timestamp_delta, self.header.record_count);
        self.header.record_count += 1;
        self.header.last_offset_delta = self.header.record_count - 1;
        self.header.max_timestamp = self.header.max_timestamp.max(record.timestamp.0);
        self
    }

    /// How many records were added.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// The size the batch would have without compression, in bytes.
    pub fn uncompressed_size(&self) -> usize {
        HEADER_BYTES + self.section.len()
    }

    /// The complete batch. Without records it is an empty one that takes one offset, as compaction leaves
    /// it.
    pub fn build(mut self) -> Bytes {
        self.header.base_timestamp = self.base_timestamp.unwrap_or(Timestamp::NONE).0;
        if let Some(now) = self.append_time {
            self.header.attributes = self.header.attributes.with_timestamp_type(TimestampType::LogAppendTime);
            self.header.max_timestamp = now.0;
        }
        match self.compression {
            Compression::None => seal(self.header, &self.section),
            compression => seal(self.header, &compress(compression, self.level, &self.section)),
        }
    }
}

/// A batch of `header` and `section`, which is compressed as the header's attributes say. Length, magic and
/// CRC are filled in; all else is as the header has it.
pub fn seal(header: BatchHeader, section: &[u8]) -> Bytes {
    let length = i32::try_from(HEADER_BYTES - LOG_OVERHEAD + section.len())
        .expect("a batch is far below 2 GiB: every limit on requests and segments is");
    let mut header = BatchHeader { length, magic: 2, crc: 0, ..header };
    let covered = crc32c::crc32c(&header.write()[crate::batch::AT_CRC_COVERS..]);
    header.crc = crc32c::crc32c_append(covered, section);
    let mut batch = Vec::with_capacity(HEADER_BYTES + section.len());
    batch.extend_from_slice(&header.write());
    batch.extend_from_slice(section);
    Bytes::from(batch)
}

/// A batch of one control record, appended at `base_offset` in `leader_epoch`; the value is a message of
/// its own.
pub fn control_batch(
    control_type: ControlType,
    value: &[u8],
    base_offset: Offset,
    leader_epoch: Epoch,
    timestamp: Timestamp,
) -> Bytes {
    let mut batch = BatchBuilder::new(base_offset, Compression::None).leader_epoch(leader_epoch).control();
    batch.add(&Record { key: Some(&control_type.key()), value: Some(value), headers: &[], timestamp });
    batch.build()
}

/// The end of a transaction, as WriteTxnMarkers appends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransaction {
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// With which epoch.
    pub producer_epoch: ProducerEpoch,
    /// Commit or abort.
    pub outcome: Outcome,
    /// The epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its records are to be skipped.
    Abort,
    /// Its records count.
    Commit,
}

/// The batch of 78 bytes that ends a transaction, appended at `base_offset` in `leader_epoch`.
pub fn end_transaction_marker(
    end: &EndTransaction,
    base_offset: Offset,
    leader_epoch: Epoch,
    timestamp: Timestamp,
) -> Bytes {
    let control_type = match end.outcome {
        Outcome::Abort => ControlType::Abort,
        Outcome::Commit => ControlType::Commit,
    };
    let [a, b, c, d] = end.coordinator_epoch.to_be_bytes();
    let mut batch = BatchBuilder::new(base_offset, Compression::None)
        .leader_epoch(leader_epoch)
        .producer(end.producer_id, end.producer_epoch, Sequence::NONE)
        .transactional()
        .control();
    let value = [0, 0, a, b, c, d];
    batch.add(&Record { key: Some(&control_type.key()), value: Some(&value), headers: &[], timestamp });
    batch.build()
}

fn write_record(out: &mut Vec<u8>, record: &Record<'_>, timestamp_delta: i64, offset_delta: i32) {
    let headers: usize =
        record.headers.iter().map(|(key, value)| nullable_bytes(Some(key)) + nullable_bytes(*value)).sum();
    let header_count = record.headers.len() as i32;
    let attributes = 1;
    let body = attributes
        + bytes_of_i64(timestamp_delta)
        + bytes_of_i32(offset_delta)
        + nullable_bytes(record.key)
        + nullable_bytes(record.value)
        + bytes_of_i32(header_count)
        + headers;
    write_i32(out, body as i32);
    let start = out.len();
    out.reserve(body);
    out.push(0);
    write_i64(out, timestamp_delta);
    write_i32(out, offset_delta);
    write_nullable(out, record.key);
    write_nullable(out, record.value);
    write_i32(out, header_count);
    for (key, value) in record.headers {
        write_nullable(out, Some(key));
        write_nullable(out, *value);
    }
    debug_assert_eq!(out.len() - start, body);
}

fn nullable_bytes(field: Option<&[u8]>) -> usize {
    field.map_or(bytes_of_i32(-1), |field| bytes_of_i32(field.len() as i32) + field.len())
}

fn write_nullable(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => write_i32(out, -1),
        Some(field) => {
            write_i32(out, field.len() as i32);
            out.extend_from_slice(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{ControlRecord, HeaderView, ValidBatch, records};
    use proptest::prelude::*;

    #[test]
    fn a_batch_has_kafkas_bytes() {
        let mut builder = BatchBuilder::new(Offset(5), Compression::None).leader_epoch(Epoch(3)).producer(
            ProducerId(7),
            ProducerEpoch(1),
            Sequence(9),
        );
        builder.add(&Record { key: Some(b"k"), value: Some(b"v"), headers: &[], timestamp: Timestamp(1000) });
        builder.add(&Record { value: Some(b""), timestamp: Timestamp(998), ..Record::default() });
        let expected: [&[u8]; 14] = [
            &5i64.to_be_bytes(),
            &65i32.to_be_bytes(),
            &3i32.to_be_bytes(),
            &[2],
            &0x51d7_a9e7u32.to_be_bytes(),
            &[0, 0],
            &1i32.to_be_bytes(),
            &1000i64.to_be_bytes(),
            &1000i64.to_be_bytes(),
            &7i64.to_be_bytes(),
            &[0, 1, 0, 0, 0, 9],
            &2i32.to_be_bytes(),
            &[16, 0, 0, 0, 2, b'k', 2, b'v', 0],
            &[12, 0, 3, 2, 1, 0, 0],
        ];
        assert_eq!(&builder.build()[..], expected.concat());
    }

    #[test]
    fn a_transaction_ends_with_78_bytes() {
        let end = EndTransaction {
            producer_id: ProducerId(4000),
            producer_epoch: ProducerEpoch(2),
            outcome: Outcome::Commit,
            coordinator_epoch: 11,
        };
        let bytes = end_transaction_marker(&end, Offset(50), Epoch(6), Timestamp(1_700_000_000_000));
        assert_eq!(bytes.len(), 78);
        let batch = ValidBatch::parse(bytes).unwrap();
        let header = batch.header();
        assert!(header.is_transactional() && header.is_control());
        assert_eq!((header.producer_id, header.producer_epoch), (ProducerId(4000), ProducerEpoch(2)));
        assert_eq!((header.base_sequence, header.last_sequence()), (Sequence::NONE, Sequence::NONE));
        assert_eq!((header.base_offset, header.leader_epoch), (Offset(50), Epoch(6)));
        let control = ControlRecord::parse(&batch).unwrap();
        assert_eq!((control.control_type, control.coordinator_epoch), (ControlType::Commit, Some(11)));
    }

    #[test]
    fn a_control_batch_carries_its_value() {
        let bytes = control_batch(ControlType::MirrorPidReset, b"body", Offset(9), Epoch(1), Timestamp(5));
        let batch = ValidBatch::parse(bytes).unwrap();
        assert!(!batch.header().has_producer_id(), "no producer wrote it");
        let control = ControlRecord::parse(&batch).unwrap();
        assert_eq!(control.control_type, ControlType::MirrorPidReset);
        assert_eq!(&control.value[..], b"body");
    }

    #[test]
    fn an_empty_batch_takes_one_offset_for_every_codec() {
        for codec in Compression::ALL {
            let batch = ValidBatch::parse(BatchBuilder::new(Offset(3), codec).build()).unwrap();
            assert_eq!((batch.header().record_count, batch.header().next_offset()), (0, Offset(4)));
            assert_eq!(batch.decompressed(0).as_deref(), Ok(&[][..]), "{codec}");
        }
    }

    #[test]
    fn log_append_time_replaces_the_records_timestamps() {
        let mut builder = BatchBuilder::new(Offset(0), Compression::None).log_append_time(Timestamp(77));
        builder.add(&Record { timestamp: Timestamp(5000), ..Record::default() });
        let batch = ValidBatch::parse(builder.build()).unwrap();
        assert_eq!(batch.header().max_timestamp, 77);
        assert_eq!(batch.header().timestamp_of(0), 77);
    }

    #[test]
    fn sealing_again_with_another_codec_keeps_the_records() {
        let mut builder = BatchBuilder::new(Offset(8), Compression::Gzip);
        let twice = [(&b"h"[..], Some(&b"1"[..])), (&b"h"[..], None)];
        builder.add(&Record { value: Some(b"v"), headers: &twice, ..Record::default() });
        let before = ValidBatch::parse(builder.build()).unwrap();
        let section = before.decompressed(1000).unwrap();
        let mut header = *before.header();
        header.attributes = header.attributes.with_compression(Compression::Zstd);
        let after = ValidBatch::parse(seal(header, &compress(Compression::Zstd, None, &section))).unwrap();
        assert_eq!(after.decompressed(1000), Ok(section));
        assert_eq!(after.header().base_offset, Offset(8));
    }

    type Field = Option<Vec<u8>>;

    proptest! {
        /// Whatever is added comes back, in order, for every codec.
        #[test]
        fn what_is_added_is_read(
            added in prop::collection::vec(record(), 0..20),
            base in any::<i32>(),
            id in 0i8..5,
        ) {
            let codec = Compression::from_id(id).unwrap();
            let mut builder = BatchBuilder::new(Offset(1), codec).timestamp(Timestamp(base.into()));
            for (key, value, headers, timestamp) in &added {
                let headers: Vec<_> = headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
                builder.add(&Record {
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers: &headers,
                    timestamp: Timestamp(*timestamp),
                });
            }
            let batch = ValidBatch::parse(builder.build()).unwrap();
            let section = batch.decompressed(1 << 20).unwrap();
            let read: Vec<_> = records(&section, batch.header().record_count).map(Result::unwrap).collect();
            prop_assert_eq!(read.len(), added.len());
            for (index, (record, (key, value, headers, timestamp))) in read.iter().zip(&added).enumerate() {
                prop_assert_eq!(record.offset_delta, index as i32);
                prop_assert_eq!(batch.header().timestamp_of(record.timestamp_delta), *timestamp);
                prop_assert_eq!((record.key, record.value), (key.as_deref(), value.as_deref()));
                let expected: Vec<_> =
                    headers.iter().map(|(key, value)| HeaderView { key, value: value.as_deref() }).collect();
                prop_assert_eq!(record.headers.collect::<Vec<_>>(), expected);
            }
        }
    }

    fn record() -> impl Strategy<Value = (Field, Field, Vec<(Vec<u8>, Field)>, i64)> {
        let field = || prop::option::of(prop::collection::vec(any::<u8>(), 0..100));
        let headers = prop::collection::vec((prop::collection::vec(b'a'..b'd', 0..3), field()), 0..4);
        (field(), field(), headers, -1_000_000i64..2_000_000_000_000)
    }
}
