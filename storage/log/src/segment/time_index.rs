//! The `.timeindex` file: from a timestamp to an offset below which nothing is that late.
//!
//! Kafka's format, 12 bytes an entry: `int64` timestamp and `int32` offset relative to the segment's
//! base. An entry says that the largest timestamp so far is this one and is found in the batch that ends
//! at this offset; timestamps and offsets increase strictly. Entries are added with those of the offset
//! index, and once more when the segment is closed.

use super::index::{Entry, u32_at};
use crate::home::Kind;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    /// The largest timestamp of the segment so far, in ms.
    pub(crate) timestamp: i64,
    /// The last offset of the batch that has it, less the segment's base.
    pub(crate) relative: u32,
}

impl Entry for TimeEntry {
    const BYTES: usize = 12;
    const KIND: Kind = Kind::TimeIndex;

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> TimeEntry {
        let timestamp = i64::from(u32_at(bytes, 0)) << 32 | i64::from(u32_at(bytes, 4));
        TimeEntry { timestamp, relative: u32_at(bytes, 8) }
    }
}
