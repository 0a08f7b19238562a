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

#[cfg(test)]
mod tests {
    use super::super::tests::{data, end, in_transaction, marker};
    use super::super::{Check, Origin};
    use super::*;
    use proptest::prelude::*;
    use tarn_record::ControlType;

    #[test]
    fn a_snapshot_has_kafkas_bytes() {
        let mut states = ProducerStates::default();
        states.update(&marker(0x0102, 3, 9), Some(&end(ControlType::Commit, 4)));
        states.update(&in_transaction(data(0x0102, 3, 0x10, 8, 0x20)), None);
        let bytes = states.snapshot();
        let entry = [
            &[0, 0, 0, 0, 0, 0, 1, 2, 0, 3][..], // id, epoch
            &[0, 0, 0, 0x17],                    // last sequence
            &[0, 0, 0, 0, 0, 0, 0, 0x27],        // last offset
            &[0, 0, 0, 7],                       // offset delta
            &[0, 0, 0, 0, 0, 0, 4, 0x0f],        // timestamp: 1000 + 0x27
            &[0, 0, 0, 4],                       // coordinator epoch
            &[0, 0, 0, 0, 0, 0, 0, 0x20],        // first offset of the transaction
        ]
        .concat();
        assert_eq!(bytes[..2], [0, 1]);
        assert_eq!(bytes[6..10], [0, 0, 0, 1]);
        assert_eq!(bytes[10..], entry);
        assert_eq!(bytes[2..6], crc32c(&bytes[6..]).to_be_bytes());
    }

    #[test]
    fn a_producer_without_a_batch_has_none_after_loading() {
        let mut states = ProducerStates::default();
        states.update(&marker(1, 3, 9), Some(&end(ControlType::Commit, 4)));
        let loaded = ProducerStates::load(&states.snapshot()).unwrap();
        let producer = loaded.get(ProducerId(1)).unwrap();
        assert_eq!(producer, states.get(ProducerId(1)).unwrap());
        assert_eq!(producer.last_batch(), None);
        assert_eq!(loaded.check(&data(1, 3, 5, 1, 0), Origin::Client).unwrap_err().code(), 45);
    }

    #[test]
    fn the_last_batch_and_the_open_transaction_survive() {
        let mut states = ProducerStates::default();
        states.update(&in_transaction(data(1, 3, 0, 4, 9)), None);
        states.update(&in_transaction(data(1, 3, 4, 2, 13)), None);
        let loaded = ProducerStates::load(&states.snapshot()).unwrap();
        assert_eq!(loaded.first_unstable(), Some(Offset(9)));
        assert_eq!(loaded.open_transactions().count(), 1);
        let again = loaded.check(&in_transaction(data(1, 3, 4, 2, 0)), Origin::Client);
        assert!(matches!(again, Ok(Check::Duplicate { base_offset: Offset(13), .. })), "{again:?}");
        let older = loaded.check(&in_transaction(data(1, 3, 0, 4, 0)), Origin::Client);
        assert_eq!(older.unwrap_err().code(), 45, "only the last batch is in a snapshot");
    }

    #[test]
    fn damage_is_told_by_kind() {
        let good = some_states().snapshot();
        let with = |at: usize, value: u8| [&good[..at], &[value], &good[at + 1..]].concat();
        assert_eq!(load_error(&with(1, 2)), SnapshotError::Version(2));
        assert!(matches!(load_error(&with(20, 0xee)), SnapshotError::Checksum { .. }));
        assert!(matches!(load_error(&good[..5]), SnapshotError::Length { found: 5, .. }));
        assert!(matches!(load_error(&[]), SnapshotError::Length { found: 0, .. }));
        let huge = sealed(&[&[0x7f, 0xff, 0xff, 0xff][..], &good[10..]].concat());
        assert!(matches!(load_error(&huge), SnapshotError::Length { .. }));
        let twice = sealed(&[&[0, 0, 0, 2][..], &good[10..56], &good[10..56]].concat());
        assert_eq!(load_error(&twice), SnapshotError::Entry(ProducerId(1)));
    }

    proptest! {
        /// Whatever a file holds, even under a right CRC, is loaded or refused, and a loaded state works.
        #[test]
        fn any_entries_are_loaded_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ProducerStates::load(&body).is_err() || body.len() >= 10);
            let count = (body.len() / ENTRY_BYTES) as u8;
            let whole = &body[..usize::from(count) * ENTRY_BYTES];
            if let Ok(states) = ProducerStates::load(&sealed(&[&[0, 0, 0, count][..], whole].concat())) {
                for (id, producer) in states.iter() {
                    let batch = data(id.0, producer.epoch().0, 0, 1, 0);
                    let _ = states.check(&batch, Origin::Client);
                    prop_assert!(producer.last_batch().is_none_or(|batch| batch.base_offset() >= Offset(0)));
                }
                prop_assert_eq!(ProducerStates::load(&states.snapshot()).unwrap().snapshot(), states.snapshot());
            }
        }

        /// No byte of a snapshot can change unnoticed.
        #[test]
        fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = some_states().snapshot();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(ProducerStates::load(&bytes).is_err());
        }
    }

    fn some_states() -> ProducerStates {
        let mut states = ProducerStates::default();
        states.update(&data(1, 0, 0, 4, 9), None);
        states.update(&in_transaction(data(2, 1, 0, 4, 13)), None);
        states
    }

    /// A file with this content after the CRC.
    fn sealed(body: &[u8]) -> Vec<u8> {
        [&[0, 1][..], &crc32c(body).to_be_bytes(), body].concat()
    }

    fn load_error(bytes: &[u8]) -> SnapshotError {
        ProducerStates::load(bytes).unwrap_err()
    }
}
