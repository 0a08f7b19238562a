//! The part that offset and time index share: ordered entries of one size, the older ones in a file,
//! the newest in memory.
//!
//! Nothing is mapped and nothing allocated ahead: a hundred thousand idle partitions have no index in
//! memory. The file is made when entries are first stored: when there are many, at roll and at close. It
//! is opened for each search, which costs about as much as a search. Owned by the segment.
//!
//! Invariants:
//! * the file's first `stored` entries and then `tail` are the index, in order;
//! * what the file holds beyond them is of no meaning and gets overwritten.

use std::io::{self, IoSlice};
use std::marker::PhantomData;

use tarn_record::Offset;

use crate::disk::{DiskFile, Open, ReadFrom};
use crate::error::LogError;
use crate::home::{Home, Kind};

/// One entry as it stands in the file.
pub(crate) trait Entry: Copy {
    const BYTES: usize;
    const KIND: Kind;

    fn write(self, out: &mut Vec<u8>);
    /// `bytes` has `BYTES` bytes.
    fn read(bytes: &[u8]) -> Self;
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Index<E> {
    stored: u32,
    tail: Vec<E>,
}

/// How much of the file a search reads at once when it has come near.
const SEARCH_BLOCK_BYTES: usize = 4096;

impl<E: Entry> Index<E> {
    /// The index in a file of this size, which is 0 where there is no file.
    pub(crate) fn in_file(len: u64) -> Index<E> {
        Index { stored: u32::try_from(len / E::BYTES as u64).unwrap_or(u32::MAX), tail: Vec::new() }
    }

    pub(crate) fn len(&self) -> u32 {
        self.stored + self.tail.len() as u32
    }

    /// The size of its file once all is stored.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.len()) * E::BYTES as u64
    }

    /// True where one more entry would make the file larger than `bytes_max`.
    pub(crate) fn is_full(&self, bytes_max: u32) -> bool {
        self.len() as usize >= bytes_max as usize / E::BYTES
    }

    /// How many entries are not in the file.
    pub(crate) fn unstored(&self) -> usize {
        self.tail.len()
    }

    pub(crate) fn push(&mut self, entry: E) {
        self.tail.push(entry);
    }

    /// The last entry for which `holds`, given that it holds for the entries up to some point and for
    /// none after.
    pub(crate) fn last_where(
        &self,
        home: &Home,
        base: Offset,
        source: ReadFrom,
        holds: impl Fn(&E) -> bool,
    ) -> Result<Option<E>, LogError> {
        let in_tail = self.tail.partition_point(&holds);
        if in_tail > 0 {
            return Ok(Some(self.tail[in_tail - 1]));
        }
        if self.stored == 0 {
            return Ok(None);
        }
        let file = IndexFile::<E>::open(home, base, source)?;
        file.last_where(self.stored, holds)
    }

    pub(crate) fn last(&self, home: &Home, base: Offset, source: ReadFrom) -> Result<Option<E>, LogError> {
        match self.tail.last() {
            Some(&entry) => Ok(Some(entry)),
            None if self.stored == 0 => Ok(None),
            None => IndexFile::<E>::open(home, base, source)?.entry(self.stored - 1),
        }
    }

    /// What the file lacks, for who writes it elsewhere; it counts as stored from then on.
    pub(crate) fn take_unstored(&mut self) -> Vec<u8> {
        let tail = std::mem::take(&mut self.tail);
        self.stored += tail.len() as u32;
        let mut bytes = Vec::with_capacity(tail.len() * E::BYTES);
        tail.into_iter().for_each(|entry| entry.write(&mut bytes));
        bytes
    }

    /// Makes the file of an index that has no entries yet.
    pub(crate) fn make_file(&self, home: &Home, base: Offset) -> Result<(), LogError> {
        if self.stored > 0 {
            return Ok(());
        }
        let path = home.file(base, E::KIND);
        home.disk.open(&path, Open::Create).map(drop).map_err(|cause| LogError::io("create", &path, cause))
    }

    /// Writes what is in memory to the file.
    pub(crate) fn store(&mut self, home: &Home, base: Offset) -> Result<(), LogError> {
        if self.tail.is_empty() {
            return Ok(());
        }
        let path = home.file(base, E::KIND);
        let failed = |cause| LogError::io("write", &path, cause);
        let file = home.disk.open(&path, Open::Create).map_err(failed)?;
        let mut bytes = Vec::with_capacity(self.tail.len() * E::BYTES);
        self.tail.iter().for_each(|entry| entry.write(&mut bytes));
        let position = u64::from(self.stored) * E::BYTES as u64;
        file.write_at(&[IoSlice::new(&bytes)], position).map_err(failed)?;
        let len = position + bytes.len() as u64;
        if file.len().map_err(failed)? > len {
            file.set_len(len).map_err(failed)?;
        }
        self.stored += self.tail.len() as u32;
        self.tail = Vec::new();
        Ok(())
    }

    /// Keeps the entries for which `holds`, as for [`Index::last_where`].
    pub(crate) fn truncate_to(
        &mut self,
        home: &Home,
        base: Offset,
        holds: impl Fn(&E) -> bool,
    ) -> Result<(), LogError> {
        self.tail.truncate(self.tail.partition_point(&holds));
        if self.stored == 0 || !self.tail.is_empty() {
            return Ok(());
        }
        let file = IndexFile::<E>::open(home, base, ReadFrom::Disk)?;
        self.stored = file.count_where(self.stored, holds)?;
        let path = home.file(base, E::KIND);
        let file = home.disk.open(&path, Open::ReadWrite);
        file.and_then(|file| file.set_len(u64::from(self.stored) * E::BYTES as u64))
            .map_err(|cause| LogError::io("cut", &path, cause))
    }
}

/// The file of an index, open for one search.
struct IndexFile<'a, E> {
    file: std::sync::Arc<dyn DiskFile>,
    home: &'a Home,
    base: Offset,
    source: ReadFrom,
    entries: PhantomData<E>,
}

impl<E: Entry> IndexFile<'_, E> {
    fn open(home: &Home, base: Offset, source: ReadFrom) -> Result<IndexFile<'_, E>, LogError> {
        let path = home.file(base, E::KIND);
        let file = source.open(home.disk.as_ref(), &path, Open::Read);
        let file = file.map_err(|cause| LogError::io("open", &path, cause))?;
        Ok(IndexFile { file, home, base, source, entries: PhantomData })
    }

    fn last_where(&self, stored: u32, holds: impl Fn(&E) -> bool) -> Result<Option<E>, LogError> {
        match self.count_where(stored, holds)? {
            0 => Ok(None),
            count => self.entry(count - 1),
        }
    }

    /// How many of the first `stored` entries hold.
    fn count_where(&self, stored: u32, holds: impl Fn(&E) -> bool) -> Result<u32, LogError> {
        let block = (SEARCH_BLOCK_BYTES / E::BYTES) as u32;
        // All below `low` hold, none from `high` on.
        let (mut low, mut high) = (0, stored);
        while high - low > block {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? {
                Some(entry) if holds(&entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        let entries = self.entries(low, high - low)?;
        Ok(low + entries.partition_point(holds) as u32)
    }

    fn entry(&self, number: u32) -> Result<Option<E>, LogError> {
        Ok(self.entries(number, 1)?.pop())
    }

    /// Up to `count` entries from `first` on; fewer where the file is shorter than it should be.
    fn entries(&self, first: u32, count: u32) -> Result<Vec<E>, LogError> {
        let mut bytes = vec![0; count as usize * E::BYTES];
        let position = u64::from(first) * E::BYTES as u64;
        let read = self.source.read_at(self.file.as_ref(), &mut bytes, position);
        let read = read.map_err(|cause| self.failed(cause))?;
        Ok(bytes[..read].chunks_exact(E::BYTES).map(E::read).collect())
    }

    fn failed(&self, cause: io::Error) -> LogError {
        LogError::io("read", &self.home.file(self.base, E::KIND), cause)
    }
}

/// A number of four bytes at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}
