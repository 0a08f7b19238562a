//! What a leader writes into a batch when it appends it: base offset, leader epoch and timestamp.
//!
//! Only the 61 bytes of the header change; the records stay the same bytes. Base offset and leader epoch lie
//! outside the CRC, so a batch whose maximal timestamp was right keeps its CRC and its records are not even
//! read. Where timestamp or attributes change, the CRC is computed again.

use bytes::{Bytes, BytesMut};

use super::{AT_CRC_COVERS, BatchHeader, HEADER_BYTES, TimestampType, ValidBatch};
use crate::ids::{Epoch, Offset, Timestamp};

/// The timestamps that an appended batch gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The producer's stay; the header gets their maximum, as validation found it, in ms.
    CreateTime {
        /// The largest timestamp of a record.
        max_timestamp: i64,
    },
    /// The time of the append becomes the timestamp of all records (`message.timestamp.type`).
    LogAppendTime(Timestamp),
}

/// A batch as it is appended: the new header and the old records, to be written one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// The new header.
    pub header: BatchHeader,
    /// The new header as bytes.
    pub header_bytes: [u8; HEADER_BYTES],
    /// Everything after the header: a slice of the batch that was stamped.
    pub body: Bytes,
}

impl ValidBatch {
    /// The batch as its leader appends it. Reads the records only where the CRC changes: for LogAppendTime,
    /// and where the producer's maximal timestamp was wrong.
    ///
    /// `base_offset` plus the batch's last offset delta must be below `i64::MAX`.
    pub fn restamped(&self, base_offset: Offset, epoch: Epoch, stamp: Stamp) -> Stamped {
        let old = self.header();
        let (kind, max_timestamp) = match stamp {
            Stamp::CreateTime { max_timestamp } => (TimestampType::CreateTime, max_timestamp),
            Stamp::LogAppendTime(now) => (TimestampType::LogAppendTime, now.0),
        };
        let mut header = BatchHeader {
            base_offset,
            leader_epoch: epoch,
            attributes: old.attributes.with_timestamp_type(kind),
            max_timestamp,
            ..*old
        };
        let body = self.section();
        if header.attributes != old.attributes || header.max_timestamp != old.max_timestamp {
            header.crc = crc32c::crc32c_append(crc32c::crc32c(&header.write()[AT_CRC_COVERS..]), &body);
        }
        Stamped { header, header_bytes: header.write(), body }
    }
}

impl Stamped {
    /// The size of the whole batch in bytes.
    pub fn size(&self) -> usize {
        self.header.size()
    }

    /// The batch in one piece. Copies it.
    pub fn to_batch(&self) -> ValidBatch {
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.body.len());
        bytes.extend_from_slice(&self.header_bytes);
        bytes.extend_from_slice(&self.body);
        debug_assert_eq!(self.header.check_crc(&bytes), Ok(()));
        ValidBatch::checked_elsewhere(bytes.freeze(), self.header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Compression, Record};
    use proptest::prelude::*;

    #[test]
    fn offset_and_epoch_leave_the_crc_alone() {
        let batch = batch(b"value");
        let stamp = Stamp::CreateTime { max_timestamp: 1000 };
        let stamped = batch.restamped(Offset(77), Epoch(5), stamp);
        assert_eq!(stamped.header.crc, batch.header().crc);
        assert_eq!((stamped.header.base_offset, stamped.header.leader_epoch), (Offset(77), Epoch(5)));
        assert_eq!(stamped.header_bytes[21..], batch.bytes()[21..HEADER_BYTES]);
        assert_eq!(stamped.body.as_ptr(), batch.bytes()[HEADER_BYTES..].as_ptr(), "no copy");
    }

    #[test]
    fn log_append_time_is_the_timestamp_of_every_record() {
        let stamped = batch(b"value").restamped(Offset(0), Epoch(0), Stamp::LogAppendTime(Timestamp(9000)));
        assert_eq!(stamped.header.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!(stamped.header.max_timestamp, 9000);
        assert_eq!(stamped.header.timestamp_of(123), 9000);
        assert_eq!(stamped.header.base_timestamp, 1000, "deltas stay relative to the producer's time");
        assert!(ValidBatch::parse(stamped.to_batch().into_bytes()).is_ok());
    }

    proptest! {
        /// Header and body together are a batch that passes every check, whatever was stamped.
        #[test]
        fn a_stamped_batch_is_valid(
            value in prop::collection::vec(any::<u8>(), 0..500),
            offset in 0..i64::MAX / 2,
            epoch in any::<i32>(),
            time in any::<i64>(),
            append_time in any::<bool>(),
        ) {
            let stamp = match append_time {
                true => Stamp::LogAppendTime(Timestamp(time)),
                false => Stamp::CreateTime { max_timestamp: time },
            };
            let stamped = batch(&value).restamped(Offset(offset), Epoch(epoch), stamp);
            let bytes = [&stamped.header_bytes[..], &stamped.body[..]].concat();
            prop_assert_eq!(bytes.len(), stamped.size());
            let read = ValidBatch::parse(bytes.into());
            prop_assert_eq!(read.map(|batch| *batch.header()), Ok(stamped.header));
        }
    }

    fn batch(value: &[u8]) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(0), Compression::None);
        builder.add(&Record { value: Some(value), timestamp: Timestamp(1000), ..Record::default() });
        ValidBatch::parse(builder.build()).unwrap()
    }
}
