//! The `.index` file: from an offset to about where its batch is.
//!
//! Kafka's format, 8 bytes an entry: `int32` last offset of a batch, relative to the segment's base, and
//! `int32` position of that batch. An entry is added for the first batch after more than
//! `index.interval.bytes`, so what lies between two entries is found by hopping from header to header.

use super::index::{Entry, u32_at};
use crate::home::Kind;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    /// The last offset of the batch, less the segment's base.
    pub(crate) relative: u32,
    /// Where the batch begins.
    pub(crate) position: u32,
}

impl Entry for OffsetEntry {
    const BYTES: usize = 8;
    const KIND: Kind = Kind::OffsetIndex;

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> OffsetEntry {
        OffsetEntry { relative: u32_at(bytes, 0), position: u32_at(bytes, 4) }
    }
}
