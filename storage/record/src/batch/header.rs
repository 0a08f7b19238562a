//! The 61 bytes before the records of a batch.
//!
//! A header is plain numbers: it can be read from damaged bytes, and what it says is to be believed only
//! after [`BatchHeader::check_crc`] and [`BatchHeader::check_offsets`].

use super::BatchError;
use crate::codec::{CodecError, Compression};
use crate::ids::{Epoch, Offset, ProducerEpoch, ProducerId, Sequence};

/// The size of a batch header, and so of the smallest batch.
pub const HEADER_BYTES: usize = 61;
/// The base offset and the length field: what the length field does not count.
pub const LOG_OVERHEAD: usize = 12;

/// Where the magic is known, whatever the message format.
pub(crate) const HEADER_BYTES_TO_MAGIC: usize = 17;
/// Where the CRC field stands.
const AT_CRC: usize = 17;
/// The first byte that the CRC covers.
pub(crate) const AT_CRC_COVERS: usize = 21;

const MAGIC: i8 = 2;
/// The smallest message of format 0: the least that the length field of any format can hold.
const MIN_LENGTH: i32 = 14;
const MIN_LENGTH_V2: i32 = (HEADER_BYTES - LOG_OVERHEAD) as i32;

/// The header of a record batch of format 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The offset of the first record, or what it was before compaction removed it.
    pub base_offset: Offset,
    /// How many bytes follow the length field.
    pub length: i32,
    /// The epoch of the leader that appended the batch. Not covered by the CRC.
    pub leader_epoch: Epoch,
    /// The message format: 2.
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type and flags.
    pub attributes: Attributes,
    /// The last offset less the base offset. Survives compaction, so it may exceed the record count.
    pub last_offset_delta: i32,
    /// What the records' timestamp deltas are relative to, in ms; the delete horizon where that flag is set.
    pub base_timestamp: i64,
    /// The largest timestamp, in ms; for LogAppendTime the timestamp of every record.
    pub max_timestamp: i64,
    /// The idempotent producer, or `ProducerId::NONE`.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// The sequence of the first record.
    pub base_sequence: Sequence,
    /// How many records follow.
    pub record_count: i32,
}

/// The flags of a batch: bits 0–2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

/// Who set the timestamps of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer did.
    #[default]
    CreateTime,
    /// The leader did, when it appended the batch.
    LogAppendTime,
}

impl Attributes {
    const CODEC: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// The codec of the records.
    ///
    /// # Errors
    /// `UnknownCodec` for the ids 5 to 7.
    pub fn compression(self) -> Result<Compression, CodecError> {
        Compression::from_id((self.0 & Self::CODEC) as i8)
    }

    /// Who set the timestamps.
    pub fn timestamp_type(self) -> TimestampType {
        match self.0 & Self::LOG_APPEND_TIME {
            0 => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        }
    }

    /// Whether the batch belongs to a transaction; its end marker does too.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch is for brokers and clients, not for applications.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is the time from which compaction may drop the tombstones (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same flags with another codec.
    pub fn with_compression(self, compression: Compression) -> Attributes {
        Attributes(self.0 & !Self::CODEC | i16::from(compression.id()))
    }

    /// The same flags with another timestamp type.
    pub fn with_timestamp_type(self, kind: TimestampType) -> Attributes {
        match kind {
            TimestampType::CreateTime => Attributes(self.0 & !Self::LOG_APPEND_TIME),
            TimestampType::LogAppendTime => Attributes(self.0 | Self::LOG_APPEND_TIME),
        }
    }

    /// The same flags, in a transaction.
    pub fn transactional(self) -> Attributes {
        Attributes(self.0 | Self::TRANSACTIONAL)
    }

    /// The same flags, for control records.
    pub fn control(self) -> Attributes {
        Attributes(self.0 | Self::CONTROL)
    }

    /// The same flags, saying that the base timestamp is none.
    pub(crate) fn without_delete_horizon(self) -> Attributes {
        Attributes(self.0 & !Self::DELETE_HORIZON)
    }

    /// The same flags, saying that the base timestamp is a delete horizon.
    pub fn delete_horizon(self) -> Attributes {
        Attributes(self.0 | Self::DELETE_HORIZON)
    }
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`; more may follow. Neither CRC nor offsets are checked.
    ///
    /// # Errors
    /// `CutShort`, `BadLength`, `UnsupportedMagic` or `UnknownMagic`.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        if bytes.len() >= HEADER_BYTES_TO_MAGIC {
            read_size(bytes)?;
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::CutShort { have: bytes.len(), needed: HEADER_BYTES });
        };
        Ok(BatchHeader {
            base_offset: Offset(i64_at(header, 0)),
            length: i32_at(header, 8),
            leader_epoch: Epoch(i32_at(header, 12)),
            magic: header[16] as i8,
            crc: i32_at(header, AT_CRC) as u32,
            attributes: Attributes(i16_at(header, AT_CRC_COVERS)),
            last_offset_delta: i32_at(header, 23),
            base_timestamp: i64_at(header, 27),
            max_timestamp: i64_at(header, 35),
            producer_id: ProducerId(i64_at(header, 43)),
            producer_epoch: ProducerEpoch(i16_at(header, 51)),
            base_sequence: Sequence(i32_at(header, 53)),
            record_count: i32_at(header, 57),
        })
    }

    /// The header as bytes, with the CRC as it stands in the field.
    pub fn write(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.length.to_be_bytes());
        out[12..16].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        out[16] = self.magic as u8;
        out[AT_CRC..AT_CRC_COVERS].copy_from_slice(&self.crc.to_be_bytes());
        out[AT_CRC_COVERS..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.0.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.0.to_be_bytes());
        out[57..].copy_from_slice(&self.record_count.to_be_bytes());
        out
    }

    /// The size of the whole batch in bytes, at least that of a header.
    pub fn size(&self) -> usize {
        LOG_OVERHEAD + self.length.max(MIN_LENGTH_V2) as usize
    }

    /// The offset of the last record, or what it was before compaction.
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.last_offset_delta))
    }

    /// The offset of the record after this batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().plus(1)
    }

    /// The sequence of the last record, or `Sequence::NONE`.
    pub fn last_sequence(&self) -> Sequence {
        match self.base_sequence {
            Sequence::NONE => Sequence::NONE,
            base => base.plus(self.last_offset_delta.max(0)),
        }
    }

    /// See [`Attributes::is_transactional`].
    pub fn is_transactional(&self) -> bool {
        self.attributes.is_transactional()
    }

    /// See [`Attributes::is_control`].
    pub fn is_control(&self) -> bool {
        self.attributes.is_control()
    }

    /// See [`Attributes::compression`].
    ///
    /// # Errors
    /// `UnknownCodec` for the ids 5 to 7.
    pub fn compression(&self) -> Result<Compression, CodecError> {
        self.attributes.compression()
    }

    /// See [`Attributes::timestamp_type`].
    pub fn timestamp_type(&self) -> TimestampType {
        self.attributes.timestamp_type()
    }

    /// The timestamp of a record with this delta, in ms.
    pub fn timestamp_of(&self, timestamp_delta: i64) -> i64 {
        match self.timestamp_type() {
            TimestampType::CreateTime => self.base_timestamp.saturating_add(timestamp_delta),
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    /// Whether an idempotent or transactional producer wrote the batch.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }

    /// Checks the CRC of `batch`, which begins with this header and holds nothing after the batch.
    ///
    /// # Errors
    /// `BadChecksum`.
    #[inline]
    pub fn check_crc(&self, batch: &[u8]) -> Result<(), BatchError> {
        let computed = crc32c::crc32c(batch.get(AT_CRC_COVERS..).unwrap_or_default());
        if computed == self.crc {
            return Ok(());
        }
        Err(BatchError::BadChecksum { offset: self.base_offset, stored: self.crc, computed })
    }

    /// Checks that the offsets can be: not negative, in order and with a successor.
    ///
    /// # Errors
    /// `BadOffsets`.
    #[inline]
    pub fn check_offsets(&self) -> Result<(), BatchError> {
        let last = self.base_offset.0.checked_add(i64::from(self.last_offset_delta));
        if self.base_offset.0 >= 0 && self.last_offset_delta >= 0 && last.is_some_and(|last| last < i64::MAX)
        {
            return Ok(());
        }
        Err(BatchError::BadOffsets { offset: self.base_offset, last_offset_delta: self.last_offset_delta })
    }
}

/// The size of the batch that `bytes` begin with. They hold its magic at least.
pub(super) fn read_size(bytes: &[u8]) -> Result<usize, BatchError> {
    let Some(start) = bytes.first_chunk::<HEADER_BYTES_TO_MAGIC>() else {
        return Err(BatchError::CutShort { have: bytes.len(), needed: HEADER_BYTES_TO_MAGIC });
    };
    let (offset, length, magic) = (Offset(i64_at(start, 0)), i32_at(start, 8), start[16] as i8);
    match magic {
        _ if length < MIN_LENGTH => Err(BatchError::BadLength { offset, length }),
        0 | 1 => Err(BatchError::UnsupportedMagic { offset, magic }),
        MAGIC if length < MIN_LENGTH_V2 => Err(BatchError::BadLength { offset, length }),
        MAGIC => Ok(LOG_OVERHEAD + length as usize),
        _ => Err(BatchError::UnknownMagic { offset, magic }),
    }
}

fn i16_at<const N: usize>(bytes: &[u8; N], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn i32_at<const N: usize>(bytes: &[u8; N], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn i64_at<const N: usize>(bytes: &[u8; N], at: usize) -> i64 {
    i64::from(i32_at(bytes, at)) << 32 | i64::from(i32_at(bytes, at + 4) as u32)
}
