//! The aborted transactions of one segment: its `.txnindex` file.
//!
//! A consumer that reads only committed records gets, with them, the aborted transactions that touch
//! what it got, and leaves their records out. An entry is appended when an abort marker is: 34 bytes,
//! `int16` version 0 and four `int64` (producer id, first offset, offset of the marker, last stable
//! offset at that time). Most segments have no aborts and then no file. Owned by the segment; it opens
//! the file for each operation, so it holds no descriptor.
//!
//! Invariants:
//! * the offsets of the markers strictly increase;
//! * the file is a whole number of entries, and those that are known: what a failed write left is cut off before
//!   anything is added and before a start trusts the file. One that is not whole is damage: recovery builds it anew.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_record::{Offset, ProducerId};
use thiserror::Error;

use crate::disk::{Disk, DiskFile, Open, ReadFrom};
use crate::error::sync_failed;

/// The bytes of one entry.
pub const TXN_INDEX_ENTRY_BYTES: usize = 34;

/// How many entries are read at once.
const ENTRIES_PER_READ: usize = 256;

/// An aborted transaction with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its abort marker.
    pub last_offset: Offset,
    /// Where the first transaction was that was still open then; the offset after the marker if none.
    pub last_stable_offset: Offset,
}

/// What [`TxnIndex::collect`] found in one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The transactions, in the order of their markers.
    pub transactions: Vec<AbortedTransaction>,
    /// True where no later segment can have another one for the same range.
    pub complete: bool,
}

/// A file that cannot be used or an entry that does not fit in.
#[derive(Debug, Error)]
pub enum TxnIndexError {
    /// The system refused.
    #[error("transaction index {path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file has bytes that no entry has.
    #[error("transaction index {path} is damaged at byte {position}: {fault}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        position: u64,
        /// What is wrong there.
        fault: &'static str,
    },
    /// The marker's offset does not follow the one before.
    #[error("transaction index {path}: the marker at offset {offset} cannot follow the one at {last}")]
    OutOfOrder {
        /// The file.
        path: PathBuf,
        /// The marker that was to be added.
        offset: Offset,
        /// The newest in the file.
        last: Offset,
    },
}

/// The transaction index of one segment. A segment has none before its first abort. A copy knows what was in the
/// file when it was made, and nothing of what comes later.
#[derive(Clone, Debug)]
pub struct TxnIndex {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    entries: u64,
    /// The marker of the newest entry; [`Offset::NONE`] without entries.
    last: Offset,
    /// A write failed: a part of it may stand behind the entries.
    is_torn: bool,
}

impl TxnIndex {
    /// The index of a segment that has none yet; the file is made by the first [`TxnIndex::append`].
    pub fn new(disk: Arc<dyn Disk>, path: PathBuf) -> TxnIndex {
        TxnIndex { disk, path, entries: 0, last: Offset::NONE, is_torn: false }
    }

    /// The same index, whose file gets another name.
    pub(crate) fn renamed(self, path: PathBuf) -> TxnIndex {
        TxnIndex { path, ..self }
    }

    /// Opens the index in a file; `None` where there is no file.
    ///
    /// # Errors
    /// Where the file cannot be read or is not a whole number of entries.
    pub fn open(disk: Arc<dyn Disk>, path: PathBuf) -> Result<Option<TxnIndex>, TxnIndexError> {
        let mut index = TxnIndex::new(disk, path);
        let file = match index.disk.open(&index.path, Open::Read) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|cause| index.io(cause))?,
        };
        let len = file.len().map_err(|cause| index.io(cause))?;
        if len % TXN_INDEX_ENTRY_BYTES as u64 != 0 {
            return Err(index.damaged(len, "a part of an entry"));
        }
        index.entries = len / TXN_INDEX_ENTRY_BYTES as u64;
        if let Some(newest) = index.entries.checked_sub(1) {
            index.last = index.entry(file.as_ref(), newest)?.last_offset;
        }
        Ok(Some(index))
    }

    /// Checks that the newest entry is one of a segment with these offsets: all that opening the index has read.
    ///
    /// # Errors
    /// `Damaged` where it is not.
    pub fn check_newest(&self, segment: &Range<Offset>) -> Result<(), TxnIndexError> {
        match self.entries.checked_sub(1) {
            Some(newest) if !segment.contains(&self.last) => {
                Err(self.damaged(newest * TXN_INDEX_ENTRY_BYTES as u64, "a marker outside the segment"))
            }
            _ => Ok(()),
        }
    }

    /// Checks every entry against the order of the file and the offsets of the segment.
    ///
    /// # Errors
    /// `Damaged` for the first entry that is out of order or not of the segment.
    pub fn sanity_check(&self, segment: &Range<Offset>) -> Result<(), TxnIndexError> {
        let mut lowest = segment.start;
        self.scan(0, ReadFrom::Disk, |number, entry| {
            let fault = if !segment.contains(&entry.last_offset) {
                "a marker outside the segment"
            } else if entry.last_offset < lowest {
                "a marker that is not above the one before"
            } else if entry.first_offset > entry.last_offset {
                "a transaction that ends before it begins"
            } else {
                lowest = entry.last_offset.plus(1);
                return Ok(Scan::Continue);
            };
            Err(self.damaged(number * TXN_INDEX_ENTRY_BYTES as u64, fault))
        })
    }

    /// Adds the transactions that abort markers just ended, with one write.
    ///
    /// # Errors
    /// `OutOfOrder` where a marker is not above the one before; the index stays as it was.
    pub fn append(&mut self, aborted: &[AbortedTransaction]) -> Result<(), TxnIndexError> {
        let last = self.last_after(aborted)?;
        self.mend()?;
        let file = self.disk.open(&self.path, Open::Create).map_err(|cause| self.io(cause))?;
        let bytes: Vec<u8> = aborted.iter().flat_map(encode).collect();
        if let Err(cause) = file.write_at(&[IoSlice::new(&bytes)], self.bytes()) {
            self.is_torn = true;
            // What cannot be cut off now is before more is added.
            let _ = self.mend();
            return Err(self.io(cause));
        }
        self.entries += aborted.len() as u64;
        self.last = last;
        Ok(())
    }

    /// The index of these transactions, in the place of what is in its file; it is on the disk then.
    ///
    /// # Errors
    /// As for [`TxnIndex::append`]; the file stays as it was.
    pub(crate) fn write_anew(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        aborted: &[AbortedTransaction],
    ) -> Result<TxnIndex, TxnIndexError> {
        let mut index = TxnIndex::new(disk, path);
        let last = index.last_after(aborted)?;
        let bytes: Vec<u8> = aborted.iter().flat_map(encode).collect();
        index.disk.write_atomically(&index.path, &bytes).map_err(|cause| index.io(cause))?;
        (index.entries, index.last) = (aborted.len() as u64, last);
        Ok(index)
    }

    /// The newest marker once these are added.
    fn last_after(&self, aborted: &[AbortedTransaction]) -> Result<Offset, TxnIndexError> {
        aborted.iter().try_fold(self.last, |last, entry| match entry.last_offset {
            offset if offset > last => Ok(offset),
            offset => Err(TxnIndexError::OutOfOrder { path: self.path.clone(), offset, last }),
        })
    }

    /// Cuts off what a failed write left.
    ///
    /// # Errors
    /// Where the file cannot be cut; it is tried again then.
    pub(crate) fn mend(&mut self) -> Result<(), TxnIndexError> {
        if self.is_torn {
            let file = self.disk.open(&self.path, Open::ReadWrite).map_err(|cause| self.io(cause))?;
            file.set_len(self.bytes()).map_err(|cause| self.io(cause))?;
            self.is_torn = false;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.entries * TXN_INDEX_ENTRY_BYTES as u64
    }

    /// The aborted transactions that touch the offsets from `fetch_offset` up to, not including, `upper`.
    ///
    /// # Errors
    /// Where the file cannot be read or is damaged, or is not in memory and is to be read from there.
    pub fn collect(
        &self,
        fetch_offset: Offset,
        upper: Offset,
        source: ReadFrom,
    ) -> Result<Collected, TxnIndexError> {
        let mut collected = Collected::default();
        if self.last < fetch_offset {
            return Ok(collected);
        }
        let first = self.first_at_or_above(fetch_offset, source)?;
        self.scan(first, source, |_, entry| {
            if entry.last_offset >= fetch_offset && entry.first_offset < upper {
                collected.transactions.push(entry);
            }
            collected.complete = entry.last_stable_offset >= upper;
            Ok(if collected.complete { Scan::Stop } else { Scan::Continue })
        })?;
        Ok(collected)
    }

    /// Drops the entries whose marker is at `offset` or above.
    ///
    /// # Errors
    /// Where the file cannot be read, is damaged or cannot be cut.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<(), TxnIndexError> {
        self.mend()?;
        if self.last < offset {
            return Ok(());
        }
        let keep = self.first_at_or_above(offset, ReadFrom::Disk)?;
        let file = self.disk.open(&self.path, Open::ReadWrite).map_err(|cause| self.io(cause))?;
        file.set_len(keep * TXN_INDEX_ENTRY_BYTES as u64).map_err(|cause| self.io(cause))?;
        self.entries = keep;
        self.last = match keep.checked_sub(1) {
            Some(newest) => self.entry(file.as_ref(), newest)?.last_offset,
            None => Offset::NONE,
        };
        Ok(())
    }

    /// Makes the entries survive a crash.
    ///
    /// # Errors
    /// Where the disk fails.
    pub fn sync(&self) -> Result<(), TxnIndexError> {
        if self.entries == 0 {
            return Ok(());
        }
        let file = self.disk.open(&self.path, Open::ReadWrite).map_err(|cause| self.io(cause))?;
        file.sync_data().map_err(|cause| self.io(sync_failed(cause)))
    }

    /// How many aborted transactions there are.
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// True where no transaction was aborted.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Where the file is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the first entry whose marker is at `offset` or above: they are in order, so a few
    /// reads find it in an index of any length.
    fn first_at_or_above(&self, offset: Offset, source: ReadFrom) -> Result<u64, TxnIndexError> {
        let (mut low, mut high) = (0, self.entries);
        if low == high {
            return Ok(0);
        }
        let file = self.open_from(source)?;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry_from(file.as_ref(), middle, source)?.last_offset < offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Hands the entries from number `first` on to `visit`, until it has enough.
    fn scan(
        &self,
        first: u64,
        source: ReadFrom,
        mut visit: impl FnMut(u64, AbortedTransaction) -> Result<Scan, TxnIndexError>,
    ) -> Result<(), TxnIndexError> {
        if first >= self.entries {
            return Ok(());
        }
        let file = self.open_from(source)?;
        let mut bytes = [0; TXN_INDEX_ENTRY_BYTES * ENTRIES_PER_READ];
        let mut number = first;
        while number < self.entries {
            let wanted = (self.entries - number).min(ENTRIES_PER_READ as u64) as usize;
            let wanted = &mut bytes[..wanted * TXN_INDEX_ENTRY_BYTES];
            let position = number * TXN_INDEX_ENTRY_BYTES as u64;
            let read = source.read_at(file.as_ref(), wanted, position).map_err(|cause| self.io(cause))?;
            if read < wanted.len() {
                return Err(self.damaged(position + read as u64, "the file ends early"));
            }
            for entry in wanted.as_chunks().0 {
                let entry = decode(entry)
                    .map_err(|fault| self.damaged(number * TXN_INDEX_ENTRY_BYTES as u64, fault))?;
                if let Scan::Stop = visit(number, entry)? {
                    return Ok(());
                }
                number += 1;
            }
        }
        Ok(())
    }

    fn open_from(&self, source: ReadFrom) -> Result<Arc<dyn DiskFile>, TxnIndexError> {
        source.open(self.disk.as_ref(), &self.path, Open::Read).map_err(|cause| self.io(cause))
    }

    fn entry(&self, file: &dyn DiskFile, number: u64) -> Result<AbortedTransaction, TxnIndexError> {
        self.entry_from(file, number, ReadFrom::Disk)
    }

    fn entry_from(
        &self,
        file: &dyn DiskFile,
        number: u64,
        source: ReadFrom,
    ) -> Result<AbortedTransaction, TxnIndexError> {
        let mut bytes = [0; TXN_INDEX_ENTRY_BYTES];
        let position = number * TXN_INDEX_ENTRY_BYTES as u64;
        if source.read_at(file, &mut bytes, position).map_err(|cause| self.io(cause))? < bytes.len() {
            return Err(self.damaged(position, "the file ends early"));
        }
        decode(&bytes).map_err(|fault| self.damaged(position, fault))
    }

    fn io(&self, cause: io::Error) -> TxnIndexError {
        TxnIndexError::Io { path: self.path.clone(), cause }
    }

    fn damaged(&self, position: u64, fault: &'static str) -> TxnIndexError {
        TxnIndexError::Damaged { path: self.path.clone(), position, fault }
    }
}

#[cfg(test)]
impl TxnIndex {
    /// A write of two entries fails when one and a half are written.
    pub(super) fn tear(&mut self) {
        let file = self.disk.open(&self.path, Open::ReadWrite).unwrap();
        file.write_at(&[IoSlice::new(&[7; 51])], self.bytes()).unwrap();
        self.is_torn = true;
    }
}

/// Whether a scan has enough.
enum Scan {
    Continue,
    Stop,
}

const VERSION: i16 = 0;

fn encode(aborted: &AbortedTransaction) -> [u8; TXN_INDEX_ENTRY_BYTES] {
    let mut bytes = [0; TXN_INDEX_ENTRY_BYTES];
    bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
    bytes[2..10].copy_from_slice(&aborted.producer_id.0.to_be_bytes());
    bytes[10..18].copy_from_slice(&aborted.first_offset.0.to_be_bytes());
    bytes[18..26].copy_from_slice(&aborted.last_offset.0.to_be_bytes());
    bytes[26..].copy_from_slice(&aborted.last_stable_offset.0.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8; TXN_INDEX_ENTRY_BYTES]) -> Result<AbortedTransaction, &'static str> {
    let number = |at: usize| {
        let mut field = [0; 8];
        field.copy_from_slice(&bytes[at..at + 8]);
        i64::from_be_bytes(field)
    };
    if i16::from_be_bytes([bytes[0], bytes[1]]) != VERSION {
        return Err("an entry that is not version 0");
    }
    Ok(AbortedTransaction {
        producer_id: ProducerId(number(2)),
        first_offset: Offset(number(10)),
        last_offset: Offset(number(18)),
        last_stable_offset: Offset(number(26)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use proptest::prelude::*;

    #[test]
    fn an_entry_has_kafkas_bytes() {
        let (_kept, mut index) = empty();
        assert!(!index.path().exists(), "no file before the first abort");
        index.append(&[aborted(0x0a, 0x0b, 0x0c, 0x0d)]).unwrap();
        let bytes = std::fs::read(index.path()).unwrap();
        let expected: Vec<u8> = [0, 0]
            .into_iter()
            .chain([0x0a, 0x0b, 0x0c, 0x0d].into_iter().flat_map(i64::to_be_bytes))
            .collect();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn transactions_that_touch_the_range_are_collected() {
        let (_kept, mut index) = empty();
        for entry in [aborted(1, 0, 10, 5), aborted(2, 5, 20, 11), aborted(3, 12, 30, 31)] {
            index.append(&[entry]).unwrap();
        }
        let found = |from, upper| {
            let collected = index.collect(Offset(from), Offset(upper), ReadFrom::Disk).unwrap();
            let ids: Vec<_> = collected.transactions.iter().map(|entry| entry.producer_id.0).collect();
            (ids, collected.complete)
        };
        assert_eq!(found(0, 5), (vec![1], true), "all later ones begin at 5 or above");
        assert_eq!(found(0, 6), (vec![1, 2], true));
        assert_eq!(found(11, 12), (vec![2], true));
        assert_eq!(found(20, 40), (vec![2, 3], false), "a later segment may hold more");
        assert_eq!(found(31, 40), (vec![], false));
    }

    #[test]
    fn what_a_failed_write_left_is_cut_off_before_more_is_added_or_cut() {
        let (_kept, mut index) = empty();
        index.append(&[aborted(1, 0, 10, 5)]).unwrap();
        let len = |index: &TxnIndex| std::fs::metadata(index.path()).unwrap().len();
        index.tear();
        index.truncate_to(Offset(11)).unwrap();
        assert_eq!(len(&index), 34);
        index.tear();
        index.append(&[aborted(2, 5, 20, 11)]).unwrap();
        assert_eq!(len(&index), 68);
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn a_write_that_fails_is_known_to_have_torn_the_file() {
        let path = PathBuf::from("/dev/full");
        let mut index = TxnIndex::new(Arc::new(RealDisk), path);
        index.append(&[aborted(1, 0, 10, 5)]).unwrap_err();
        assert!(index.is_torn && index.is_empty());
    }

    #[test]
    fn a_marker_must_follow_the_one_before() {
        let (_kept, mut index) = empty();
        index.append(&[aborted(1, 0, 10, 5)]).unwrap();
        let refused = index.append(&[aborted(2, 0, 10, 5)]);
        assert!(
            matches!(refused, Err(TxnIndexError::OutOfOrder { offset: Offset(10), last: Offset(10), .. })),
            "{refused:?}"
        );
        assert!(index.append(&[aborted(3, 0, 12, 5), aborted(4, 0, 11, 5)]).is_err());
        assert_eq!(index.len(), 1);
    }

    #[test]
    fn truncation_drops_what_ended_above() {
        let (_kept, mut index) = empty();
        for entry in [aborted(1, 0, 10, 5), aborted(2, 5, 20, 11), aborted(3, 12, 30, 31)] {
            index.append(&[entry]).unwrap();
        }
        index.truncate_to(Offset(20)).unwrap();
        assert_eq!(index.len(), 1);
        let reopened = TxnIndex::open(index.disk.clone(), index.path.clone()).unwrap().unwrap();
        assert_eq!((reopened.len(), reopened.last), (1, Offset(10)));
        index.append(&[aborted(4, 11, 15, 16)]).unwrap();
        index.truncate_to(Offset(0)).unwrap();
        assert!(index.is_empty());
        index.append(&[aborted(4, 0, 1, 2)]).unwrap();
    }

    #[test]
    fn a_file_that_no_index_has_is_told() {
        let (kept, mut index) = empty();
        index.append(&[aborted(1, 0, 10, 5)]).unwrap();
        index.append(&[aborted(1, 11, 20, 21)]).unwrap();
        let check = |index: &TxnIndex, from, upper| index.sanity_check(&(Offset(from)..Offset(upper)));
        check(&index, 10, 21).unwrap();
        let below = check(&index, 11, 21).unwrap_err();
        assert!(matches!(below, TxnIndexError::Damaged { position: 0, .. }), "{below}");
        let above = check(&index, 10, 20).unwrap_err();
        assert!(matches!(above, TxnIndexError::Damaged { position: 34, .. }), "{above}");
        index.check_newest(&(Offset(11)..Offset(21))).unwrap();
        assert_eq!(index.check_newest(&(Offset(10)..Offset(20))).unwrap_err().to_string(), above.to_string());

        let mut bytes = std::fs::read(index.path()).unwrap();
        bytes[35] = 1;
        std::fs::write(index.path(), &bytes).unwrap();
        let version = check(&index, 0, 21).unwrap_err();
        assert!(matches!(version, TxnIndexError::Damaged { position: 34, .. }), "{version}");
        std::fs::write(index.path(), &bytes[..40]).unwrap();
        let torn = TxnIndex::open(index.disk.clone(), index.path.clone());
        assert!(matches!(torn, Err(TxnIndexError::Damaged { position: 40, .. })), "{torn:?}");
        let absent = TxnIndex::open(index.disk.clone(), kept.path().join("1.txnindex")).unwrap();
        assert!(absent.is_none());
    }

    proptest! {
        /// The same answer as from looking at every entry, also over more than one read.
        #[test]
        fn collecting_finds_what_a_plain_search_finds(
            steps in prop::collection::vec((1i64..20, 0i64..50), 0..600),
            (from, width) in (0i64..6000, 1i64..500),
        ) {
            let (_kept, mut index) = empty();
            let mut marker = 0;
            let mut entries = Vec::new();
            for (producer, (gap, back)) in steps.into_iter().enumerate() {
                marker += gap;
                let entry = aborted(producer as i64, (marker - back).max(0), marker, marker + 1);
                entries.push(entry);
            }
            entries.chunks(7).for_each(|some| index.append(some).unwrap());
            let upper = Offset(from + width);
            // No transaction was open beside another one, so an entry at or above `upper` ends the search.
            let decisive = entries.iter().position(|entry| entry.last_stable_offset >= upper);
            let seen = decisive.map_or(&entries[..], |last| &entries[..=last]);
            let touches = |entry: &&AbortedTransaction| {
                entry.last_offset >= Offset(from) && entry.first_offset < upper
            };
            let collected = index.collect(Offset(from), upper, ReadFrom::Disk).unwrap();
            let expected: Vec<_> = seen.iter().filter(touches).copied().collect();
            prop_assert_eq!(collected.transactions, expected);
        }
    }

    fn empty() -> (tempfile::TempDir, TxnIndex) {
        let kept = tempfile::tempdir().unwrap();
        let path = kept.path().join("00000000000000000000.txnindex");
        (kept, TxnIndex::new(Arc::new(RealDisk), path))
    }

    fn aborted(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }
}
