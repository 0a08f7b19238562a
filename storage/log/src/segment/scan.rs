//! Going through the batches of a segment, from header to header.
//!
//! A scan reads through a window, so that small batches cost one read for many of them, and jumps over
//! what it does not need. It trusts nothing: a header that cannot be is a step of its own, not a panic.
//! Neither can one whose offsets do not fit into the segment: no checksum covers the base offset.

use std::io;

use bytes::Bytes;
use tarn_record::{BatchError, BatchHeader, ControlRecord, HEADER_BYTES, Offset, ValidBatch};

use crate::disk::{DiskFile, ReadFrom};
use crate::limits::{CONTROL_BATCH_BYTES_MAX, SEGMENT_OFFSETS_MAX};

/// Reads batches from a position on.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    file: &'a dyn DiskFile,
    source: ReadFrom,
    base: Offset,
    position: u64,
    end: u64,
    window_bytes: usize,
    window: Vec<u8>,
    window_start: u64,
}

/// A batch and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
}

/// One step of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A header that can be; the whole batch is in the file.
    Batch(Found),
    /// No whole batch begins here.
    Bad(BatchError),
    /// The end was reached exactly.
    End,
}

/// For a few batches near each other.
pub(crate) const NARROW: usize = 4096;
/// For a whole segment.
pub(crate) const WIDE: usize = 256 * 1024;

impl<'a> Scan<'a> {
    /// Scans `position..end` of a file, reading `window_bytes` at once. Its segment begins at `base`.
    pub(crate) fn new(
        file: &'a dyn DiskFile,
        base: Offset,
        position: u64,
        end: u64,
        window_bytes: usize,
    ) -> Scan<'a> {
        let (source, window) = (ReadFrom::Disk, Vec::new());
        Scan { file, source, base, position, end, window_bytes, window, window_start: position }
    }

    /// The same scan, which takes its headers from `source`.
    pub(crate) fn reading(self, source: ReadFrom) -> Scan<'a> {
        Scan { source, ..self }
    }

    /// Where the next step begins.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Goes on at another place further on.
    pub(crate) fn go_to(&mut self, position: u64) {
        self.position = position;
    }

    /// The next header. Its checksum is left to [`Scan::check`].
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        if self.position >= self.end {
            return Ok(Step::End);
        }
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        if left < HEADER_BYTES {
            return Ok(Step::Bad(BatchError::CutShort { have: left, needed: HEADER_BYTES }));
        }
        let parsed = BatchHeader::parse(self.bytes(self.position, HEADER_BYTES)?);
        let header = match parsed.and_then(|header| fits(&header, self.base).map(|()| header)) {
            Ok(header) if header.size() <= left => header,
            Ok(header) => return Ok(Step::Bad(BatchError::CutShort { have: left, needed: header.size() })),
            Err(error) => return Ok(Step::Bad(error)),
        };
        let found = Found { position: self.position, header };
        self.position += header.size() as u64;
        Ok(Step::Batch(found))
    }

    /// Checks the checksum of a batch that was found.
    pub(crate) fn check(&mut self, found: &Found) -> io::Result<Result<(), BatchError>> {
        if found.header.size() <= self.window_bytes {
            let batch = self.bytes(found.position, found.header.size())?;
            return Ok(found.header.check_crc(batch));
        }
        self.check_in_pieces(found)
    }

    /// The whole batch that was found.
    pub(crate) fn read(&self, found: &Found) -> io::Result<Result<ValidBatch, BatchError>> {
        let mut bytes = vec![0; found.header.size()];
        if self.file.read_at(&mut bytes, found.position)? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(ValidBatch::parse(Bytes::from(bytes)))
    }

    /// The same through the window, for who wants every batch.
    pub(crate) fn take(&mut self, found: &Found) -> io::Result<Result<ValidBatch, BatchError>> {
        if found.header.size() > self.window_bytes {
            return self.read(found);
        }
        let bytes = Bytes::copy_from_slice(self.bytes(found.position, found.header.size())?);
        Ok(ValidBatch::parse(bytes))
    }

    /// The record of a control batch; `None` for other batches, and for what is too large to be one.
    pub(crate) fn read_control(&self, found: &Found) -> io::Result<Option<ControlRecord>> {
        if !found.header.is_control() || found.header.size() > CONTROL_BATCH_BYTES_MAX {
            return Ok(None);
        }
        Ok(self.read(found)?.ok().and_then(|batch| ControlRecord::parse(&batch)))
    }

    /// The same, where what a control batch says, or that it is one, is believed only of one that is what was written.
    pub(crate) fn check_control(
        &mut self,
        found: &Found,
    ) -> io::Result<Result<Option<ControlRecord>, BatchError>> {
        if !found.header.is_control() {
            return Ok(Ok(None));
        }
        match self.check(found)? {
            Ok(()) => Ok(Ok(self.read_control(found)?)),
            Err(fault) => Ok(Err(fault)),
        }
    }

    fn check_in_pieces(&mut self, found: &Found) -> io::Result<Result<(), BatchError>> {
        let end = found.position + found.header.size() as u64;
        let mut at = found.position + CRC_COVERS_FROM;
        let mut computed = 0;
        while at < end {
            let piece = self.window_bytes.min(usize::try_from(end - at).unwrap_or(usize::MAX));
            computed = crc32c::crc32c_append(computed, self.bytes(at, piece)?);
            at += piece as u64;
        }
        let (offset, stored) = (found.header.base_offset, found.header.crc);
        if computed == stored {
            return Ok(Ok(()));
        }
        Ok(Err(BatchError::BadChecksum { offset, stored, computed }))
    }

    /// The bytes `position..position + len`, through the window. `len` is not above the window's size.
    fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let inside = position >= self.window_start
            && position + len as u64 <= self.window_start + self.window.len() as u64;
        if !inside {
            let wanted = (self.end - position).min(self.window_bytes.max(len) as u64) as usize;
            self.window.resize(wanted, 0);
            self.window_start = position;
            let read = match self.source.read_at(self.file, &mut self.window, position) {
                Ok(read) => read,
                Err(error) => {
                    self.window.clear();
                    return Err(error);
                }
            };
            self.window.truncate(read);
            if read < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let from = (position - self.window_start) as usize;
        Ok(&self.window[from..from + len])
    }
}

impl Found {
    /// Whether it can come next where the offsets below `expected` are taken, in a segment that ends at `upper`.
    pub(crate) fn follows(&self, expected: Offset, upper: Offset) -> Result<(), BatchError> {
        let BatchHeader { base_offset: offset, last_offset_delta, .. } = self.header;
        if offset < expected {
            return Err(BatchError::OutOfOrder { offset, expected });
        }
        if self.header.next_offset() > upper {
            return Err(BatchError::BadOffsets { offset, last_offset_delta });
        }
        Ok(())
    }
}

/// Whether the offsets of a batch can be in the indexes of a segment that begins at `base`.
fn fits(header: &BatchHeader, base: Offset) -> Result<(), BatchError> {
    header.check_offsets()?;
    let BatchHeader { base_offset: offset, last_offset_delta, .. } = *header;
    if offset < base {
        return Err(BatchError::OutOfOrder { offset, expected: base });
    }
    if header.last_offset().0 - base.0 > SEGMENT_OFFSETS_MAX {
        return Err(BatchError::BadOffsets { offset, last_offset_delta });
    }
    Ok(())
}

/// The first byte of a batch that its checksum covers.
const CRC_COVERS_FROM: u64 = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, Open, RealDisk};
    use proptest::prelude::*;
    use std::io::IoSlice;
    use tarn_record::{BatchBuilder, Compression, Record};

    #[test]
    fn a_batch_larger_than_the_window_is_checked_in_pieces() {
        let mut bytes = batch(0, 3 * NARROW).to_vec();
        assert_eq!(steps(&bytes), (vec![(0, true)], true));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(steps(&bytes), (vec![(0, false)], true));
    }

    /// No checksum covers the base offset, and a closed segment is not checked after a clean stop.
    #[test]
    fn offsets_that_do_not_fit_into_the_segment_are_no_batch() {
        let directory = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&directory.path().join("100.log"), Open::Create).unwrap();
        let step_of = |base| {
            let bytes = batch(base, 10);
            file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
            Scan::new(file.as_ref(), Offset(100), 0, bytes.len() as u64, NARROW).step().unwrap()
        };
        let last = 100 + SEGMENT_OFFSETS_MAX;
        assert!(matches!(step_of(100), Step::Batch(_)));
        assert!(matches!(step_of(last), Step::Batch(_)));
        let below = BatchError::OutOfOrder { offset: Offset(99), expected: Offset(100) };
        assert_eq!(step_of(99), Step::Bad(below));
        let above = BatchError::BadOffsets { offset: Offset(last + 1), last_offset_delta: 0 };
        assert_eq!(step_of(last + 1), Step::Bad(above));
    }

    proptest! {
        /// Whatever the bytes, a scan ends; and what is before the damage is found.
        #[test]
        fn damage_ends_a_scan_and_hides_nothing_before_it(
            sizes in prop::collection::vec(1usize..6000, 1..8),
            garbage in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = Vec::new();
            for (number, size) in sizes.iter().enumerate() {
                bytes.extend_from_slice(&batch(number as i64, *size));
            }
            bytes.extend_from_slice(&garbage);
            let (found, _) = steps(&bytes);
            let expected: Vec<_> = (0..sizes.len() as i64).map(|base| (base, true)).collect();
            prop_assert_eq!(&found[..sizes.len()], &expected[..]);
        }
    }

    /// The base offsets found, each with whether its checksum is right; and whether the end was reached.
    fn steps(bytes: &[u8]) -> (Vec<(i64, bool)>, bool) {
        let directory = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&directory.path().join("0.log"), Open::Create).unwrap();
        file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
        let mut scan = Scan::new(file.as_ref(), Offset(0), 0, bytes.len() as u64, NARROW);
        let mut found = Vec::new();
        loop {
            match scan.step().unwrap() {
                Step::Batch(batch) => {
                    found.push((batch.header.base_offset.0, scan.check(&batch).unwrap().is_ok()));
                }
                Step::Bad(_) => return (found, false),
                Step::End => return (found, true),
            }
        }
    }

    fn batch(base: i64, bytes: usize) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(base), Compression::None);
        builder.add(&Record { value: Some(&vec![7; bytes]), ..Record::default() });
        builder.build()
    }
}
