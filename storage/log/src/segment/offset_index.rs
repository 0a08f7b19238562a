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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Descriptors;
    use crate::disk::{Disk, ReadFrom, RealDisk};
    use crate::home::Home;
    use crate::segment::index::Index;
    use std::sync::{Arc, RwLock};
    use tarn_record::Offset;

    #[test]
    fn a_search_finds_the_same_in_memory_and_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home {
            disk: Arc::new(RealDisk),
            file_system: RealDisk.file_system(directory.path()).unwrap(),
            descriptors: Descriptors::new(1),
            path: directory.path().to_owned(),
            deleted_as: RwLock::default(),
        };
        let base = Offset(0);
        let mut index = Index::in_file(0);
        for number in 0..3000 {
            if number % 700 == 0 {
                index.store(&home, base).unwrap();
            }
            index.push(OffsetEntry { relative: number * 10, position: number * 1000 });
        }
        for asked in [0, 9, 10, 6995, 20_999, 21_000, 29_990, u32::MAX] {
            let found = index
                .last_where(&home, base, ReadFrom::Disk, |entry| entry.relative <= asked)
                .unwrap()
                .unwrap();
            assert_eq!(found.relative, (asked / 10).min(2999) * 10, "{asked}");
        }
        index.truncate_to(&home, base, |entry| entry.position < 5000).unwrap();
        assert_eq!((index.len(), index.unstored()), (5, 0));
        assert_eq!(
            index.last(&home, base, ReadFrom::Disk).unwrap(),
            Some(OffsetEntry { relative: 40, position: 4000 })
        );
        assert_eq!(std::fs::metadata(home.file(base, Kind::OffsetIndex)).unwrap().len(), 40);
    }

    #[test]
    fn entries_are_big_endian_as_kafka_writes_them() {
        let mut bytes = Vec::new();
        OffsetEntry { relative: 0x0102_0304, position: 5 }.write(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 0, 5]);
        assert_eq!(OffsetEntry::read(&bytes), OffsetEntry { relative: 0x0102_0304, position: 5 });
    }
}
