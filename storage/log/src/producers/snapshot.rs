//! The `.snapshot` file: the producers of a partition at one offset, in Kafka's format version 1.
//!
//! `int16` version, `uint32` CRC-32C of what follows, `int32` count, then 46 bytes for each producer. Only
//! the last batch of a producer is in it, and no completed transaction. A file may be anything: it is
//! refused with an error, and the count is compared with the bytes before it is believed.

use tarn_record::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, crc32c};
use thiserror::Error;

use super::ProducerStates;
use super::producer::{AppendedBatch, Producer};

const VERSION: i16 = 1;
/// Version and CRC.
const PREFIX_BYTES: usize = 6;
/// The count.
const COUNT_BYTES: usize = 4;
const ENTRY_BYTES: usize = 46;

/// Bytes that are not a producer snapshot.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SnapshotError {
    /// The bytes end too early, or do not end.
    #[error("a producer snapshot of {found} bytes should have {expected}")]
    Length {
        /// What there is.
        found: usize,
        /// What there should be.
        expected: usize,
    },
    /// A version that is not known.
    #[error("producer snapshots of version {0} are not known")]
    Version(i16),
    /// The bytes are not those that were written.
    #[error("the producer snapshot has the CRC {found:#010x}, but {computed:#010x} was computed")]
    Checksum {
        /// What the file says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A producer with numbers that cannot be, or one that is there twice.
    #[error("the producer snapshot has an impossible entry for producer {0}")]
    Entry(ProducerId),
}

impl ProducerStates {
    /// The content of a `.snapshot` file.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + COUNT_BYTES + ENTRY_BYTES * self.len());
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(self.len() as i32).to_be_bytes());
        for (id, producer) in self.iter() {
            write_entry(&mut bytes, id, producer);
        }
        let crc = crc32c(&bytes[PREFIX_BYTES..]);
        bytes[2..PREFIX_BYTES].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads a `.snapshot` file. Producers that have expired meanwhile are still in it:
    /// see [`ProducerStates::expire`].
    ///
    /// # Errors
    /// Where the bytes are not a whole, undamaged snapshot.
    pub fn load(bytes: &[u8]) -> Result<ProducerStates, SnapshotError> {
        let entries = checked_entries(bytes)?;
        let mut states = ProducerStates::default();
        for entry in entries {
            let (id, producer) = read_entry(entry)?;
            if let Some(first_offset) = producer.transaction_start()
                && states.open.insert(first_offset, id).is_some()
            {
                return Err(SnapshotError::Entry(id));
            }
            if states.producers.insert(id, Box::new(producer)).is_some() {
                return Err(SnapshotError::Entry(id));
            }
        }
        Ok(states)
    }
}

/// The entries, once version, CRC and count are found right.
fn checked_entries(bytes: &[u8]) -> Result<&[[u8; ENTRY_BYTES]], SnapshotError> {
    let too_short = SnapshotError::Length { found: bytes.len(), expected: PREFIX_BYTES + COUNT_BYTES };
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX_BYTES>().ok_or(too_short.clone())?;
    let version = i16::from_be_bytes([prefix[0], prefix[1]]);
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let (count, entries) = rest.split_first_chunk::<COUNT_BYTES>().ok_or(too_short)?;
    let found = u32::from_be_bytes([prefix[2], prefix[3], prefix[4], prefix[5]]);
    let computed = crc32c(rest);
    if found != computed {
        return Err(SnapshotError::Checksum { found, computed });
    }
    let count = usize::try_from(i32::from_be_bytes(*count)).unwrap_or(usize::MAX);
    let expected = count.saturating_mul(ENTRY_BYTES);
    if entries.len() != expected {
        let around = PREFIX_BYTES + COUNT_BYTES;
        return Err(SnapshotError::Length { found: bytes.len(), expected: expected.saturating_add(around) });
    }
    Ok(entries.as_chunks().0)
}

fn write_entry(bytes: &mut Vec<u8>, id: ProducerId, producer: &Producer) {
    let last = producer.last_batch().copied().unwrap_or(AppendedBatch::NONE);
    bytes.extend_from_slice(&id.0.to_be_bytes());
    bytes.extend_from_slice(&producer.epoch().0.to_be_bytes());
    bytes.extend_from_slice(&last.last_sequence.0.to_be_bytes());
    bytes.extend_from_slice(&last.last_offset.0.to_be_bytes());
    bytes.extend_from_slice(&last.offset_delta.to_be_bytes());
    bytes.extend_from_slice(&producer.last_timestamp().0.to_be_bytes());
    bytes.extend_from_slice(&producer.coordinator_epoch().to_be_bytes());
    bytes.extend_from_slice(&producer.transaction_start().unwrap_or(Offset::NONE).0.to_be_bytes());
}

fn read_entry(entry: &[u8; ENTRY_BYTES]) -> Result<(ProducerId, Producer), SnapshotError> {
    let int64 = |at: usize| i64::from(int32(entry, at)) << 32 | i64::from(int32(entry, at + 4) as u32);
    let id = ProducerId(int64(0));
    let timestamp = Timestamp(int64(26));
    let last = AppendedBatch {
        last_sequence: Sequence(int32(entry, 10)),
        last_offset: Offset(int64(14)),
        offset_delta: int32(entry, 22),
        timestamp,
    };
    let transaction = Offset(int64(38));
    let possible = id > ProducerId::NONE
        && last.last_sequence >= Sequence::NONE
        && last.last_offset < Offset(i64::MAX)
        && (last.last_offset.0 < 0 || (0..=last.last_offset.0).contains(&i64::from(last.offset_delta)));
    if !possible {
        return Err(SnapshotError::Entry(id));
    }
    let producer = Producer::restored(
        ProducerEpoch(i16::from_be_bytes([entry[8], entry[9]])),
        (last.last_offset >= Offset(0)).then_some(last),
        int32(entry, 34),
        timestamp,
        if transaction < Offset(0) { Offset::NONE } else { transaction },
    );
    Ok((id, producer))
}

fn int32(entry: &[u8; ENTRY_BYTES], at: usize) -> i32 {
    i32::from_be_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
}
