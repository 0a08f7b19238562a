//! Writing record batches.
//!
//! For what this program writes itself: control records, the metadata log, coordinators, the command line
//! and tests. Batches of clients are never rebuilt record by record; compaction and recompression keep the
//! encoded records and go through [`seal`].

use bytes::Bytes;

use crate::batch::{Attributes, BatchHeader, ControlType, HEADER_BYTES, LOG_OVERHEAD, TimestampType};
use crate::codec::{Compression, compress};
use crate::ids::{Epoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use crate::varint::{write_i32, write_i64};

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
    let start = out.len();
    out.push(0);
    write_i64(out, timestamp_delta);
    write_i32(out, offset_delta);
    write_nullable(out, record.key);
    write_nullable(out, record.value);
    write_i32(out, record.headers.len() as i32);
    for (key, value) in record.headers {
        write_nullable(out, Some(key));
        write_nullable(out, *value);
    }
    let body_bytes = out.len() - start;
    write_i32(out, body_bytes as i32);
    out[start..].rotate_left(body_bytes);
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
