//! Control records: what brokers write into a log for brokers and clients.
//!
//! The key is an `int16` version and an `int16` type; newer versions may only add to it. The value of the
//! end of a transaction is an `int16` version and the `int32` epoch of the coordinator; the other values
//! are messages of their own and are left to whoever writes them.

use bytes::Bytes;

use super::ValidBatch;
use super::record::records;

/// Larger than any control batch; one that decompresses to more is not read.
const CONTROL_BYTES_MAX: usize = 1 << 20;

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum ControlType {
    /// The transaction of the batch's producer was aborted.
    Abort = 0,
    /// The transaction of the batch's producer was committed.
    Commit = 1,
    /// A quorum leader began its epoch (KIP-595).
    LeaderChange = 2,
    /// A snapshot begins (KIP-630).
    SnapshotHeader = 3,
    /// A snapshot is complete (KIP-630).
    SnapshotFooter = 4,
    /// The version of the quorum's own features (KIP-853).
    KRaftVersion = 5,
    /// The quorum's voters (KIP-853).
    KRaftVoters = 6,
    /// A mirrored partition became writable: all producer state before is void (KIP-1279).
    MirrorPidReset = 7,
}

/// A control batch's one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRecord {
    /// What it says.
    pub control_type: ControlType,
    /// For `Abort` and `Commit` the epoch of the coordinator that decided.
    pub coordinator_epoch: Option<i32>,
    /// The whole value.
    pub value: Bytes,
}

impl ControlType {
    /// The type with this number.
    pub fn from_id(id: i16) -> Option<ControlType> {
        Some(match id {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            2 => ControlType::LeaderChange,
            3 => ControlType::SnapshotHeader,
            4 => ControlType::SnapshotFooter,
            5 => ControlType::KRaftVersion,
            6 => ControlType::KRaftVoters,
            7 => ControlType::MirrorPidReset,
            _ => return None,
        })
    }

    /// The number in the key.
    pub fn id(self) -> i16 {
        self as i16
    }

    /// Whether it ends a transaction.
    pub fn ends_transaction(self) -> bool {
        matches!(self, ControlType::Abort | ControlType::Commit)
    }

    /// The key of such a record: version 0 and the type.
    pub fn key(self) -> [u8; 4] {
        let [high, low] = self.id().to_be_bytes();
        [0, 0, high, low]
    }
}

impl ControlRecord {
    /// The first record of a control batch. `None` for other batches, for unknown types and for what
    /// cannot be read.
    pub fn parse(batch: &ValidBatch) -> Option<ControlRecord> {
        if !batch.header().is_control() {
            return None;
        }
        let section = batch.decompressed(CONTROL_BYTES_MAX).ok()?;
        let record = records(&section, batch.header().record_count).next()?.ok()?;
        let &[_, _, high, low, ..] = record.key? else { return None };
        let control_type = ControlType::from_id(i16::from_be_bytes([high, low]))?;
        let value = record.value.unwrap_or_default();
        let coordinator_epoch = match value {
            &[_, _, a, b, c, d, ..] if control_type.ends_transaction() => {
                Some(i32::from_be_bytes([a, b, c, d]))
            }
            _ => None,
        };
        Some(ControlRecord { control_type, coordinator_epoch, value: section.slice_ref(value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Compression, Offset, Record};

    #[test]
    fn types_and_numbers_agree() {
        for id in 0..8 {
            assert_eq!(ControlType::from_id(id).map(ControlType::id), Some(id));
        }
        assert_eq!(ControlType::from_id(8), None);
        assert_eq!(ControlType::from_id(-1), None);
    }

    #[test]
    fn a_batch_of_data_is_no_control_record_whatever_its_key() {
        let mut builder = BatchBuilder::new(Offset(0), Compression::None);
        builder.add(&Record { key: Some(&[0, 0, 0, 1]), ..Record::default() });
        let batch = ValidBatch::parse(builder.build()).unwrap();
        assert_eq!(ControlRecord::parse(&batch), None);
    }

    #[test]
    fn keys_that_are_short_or_unknown_are_no_control_record() {
        for key in [None, Some(&[0, 0, 0][..]), Some(&[0, 0, 0, 99])] {
            let mut builder = BatchBuilder::new(Offset(0), Compression::None).control();
            builder.add(&Record { key, ..Record::default() });
            let batch = ValidBatch::parse(builder.build()).unwrap();
            assert_eq!(ControlRecord::parse(&batch), None, "{key:?}");
        }
    }

    #[test]
    fn a_later_version_of_the_key_may_be_longer() {
        let mut builder = BatchBuilder::new(Offset(0), Compression::Gzip).control();
        builder.add(&Record { key: Some(&[0, 1, 0, 2, 9]), value: Some(b"v"), ..Record::default() });
        let control = ControlRecord::parse(&ValidBatch::parse(builder.build()).unwrap()).unwrap();
        assert_eq!(control.control_type, ControlType::LeaderChange);
        assert_eq!((control.coordinator_epoch, &control.value[..]), (None, &b"v"[..]));
    }
}
