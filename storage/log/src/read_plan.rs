//! Which bytes answer a fetch.
//!
//! A plan names files, positions and lengths; the bytes go from the page cache to the socket without a
//! visit to the log. It may be used on any thread and outlive what it names: a slice whose bytes a
//! truncation dropped is no longer current, and whoever sends it must ask before each piece and close the
//! connection instead of sending something else. What is only deleted is read on: the file is kept under another name
//! for a while, and under none as long as it is open.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_record::Offset;

use crate::descriptors::SegmentFile;
use crate::disk::ReadFrom;

/// Whether the first batch of a read may exceed the bytes that are asked for (KIP-74).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBatch {
    /// Nothing has been read yet: without it a large batch could never be fetched.
    MayBeLarger,
    /// Something has been read, and a large batch can wait for its turn.
    MustFit,
}

/// Consecutive bytes of one segment.
#[derive(Clone, Debug)]
pub struct FileSlice {
    file: Arc<SegmentFile>,
    position: u64,
    len: u32,
    generation: u64,
}

/// What a read returns: slices in order of their offsets.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    /// The bytes: whole batches but for the last, which may be cut short.
    pub slices: SmallVec<[FileSlice; 1]>,
    /// The base offset of the first batch; the offset asked for where there are no bytes.
    pub first_offset: Offset,
    /// The sum of the slices' lengths.
    pub bytes: usize,
    /// How many of them are the first batch.
    pub first_batch_bytes: usize,
}

impl FileSlice {
    pub(crate) fn new(file: Arc<SegmentFile>, position: u64, len: u32, generation: u64) -> FileSlice {
        FileSlice { file, position, len, generation }
    }

    /// The base offset of the segment.
    pub(crate) fn base(&self) -> Offset {
        self.file.base()
    }

    /// Of the log directory that the file is in; see [`Log::dir_number`](crate::Log::dir_number).
    pub fn dir_number(&self) -> usize {
        self.file.home().dir_number()
    }

    /// Where the slice begins in its file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many bytes it has; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The log's generation when the plan was made.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whose bytes they are, for a person: the partition and the segment.
    pub fn name(&self) -> String {
        format!("{}, segment {}", self.file.home().name(), self.base())
    }

    /// False once a truncation dropped some of the bytes. What retention, a compaction or the deletion of the partition
    /// removes stays what it was.
    pub fn is_current(&self) -> bool {
        self.file.is_current(self.position, self.len)
    }

    /// The file, open and counted in the budget of descriptors while the `Arc` lives.
    ///
    /// # Errors
    /// `NotFound` once the slice is not current, or where the segment's file was removed before it was opened; `Unsupported` where the disk
    /// has no descriptors; from memory `WouldBlock` where memory does not know the name of a file that is not open.
    pub fn open_file(&self, source: ReadFrom) -> io::Result<Arc<File>> {
        let file = self.file.open_from(source)?;
        self.check_current()?;
        file.file().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The bytes themselves.
    ///
    /// # Errors
    /// As for [`FileSlice::open_file`].
    pub fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.len as usize];
        self.read_into(&mut bytes)?;
        Ok(Bytes::from(bytes))
    }

    fn read_into(&self, bytes: &mut [u8]) -> io::Result<()> {
        let read = self.file.open()?.read_at(bytes, self.position)?;
        // After the read: what was read while it was current is right.
        self.check_current()?;
        if read < bytes.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn check_current(&self) -> io::Result<()> {
        if self.is_current() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl ReadPlan {
    pub(crate) fn empty(at: Offset) -> ReadPlan {
        ReadPlan { slices: SmallVec::new(), first_offset: at, bytes: 0, first_batch_bytes: 0 }
    }

    /// True where there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// All bytes in one piece, for those who look into them: coordinators, replay.
    ///
    /// # Errors
    /// As for [`FileSlice::open_file`].
    pub fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.bytes];
        let mut rest = &mut bytes[..];
        for slice in &self.slices {
            let (part, after) = rest.split_at_mut(slice.len as usize);
            slice.read_into(part)?;
            rest = after;
        }
        Ok(Bytes::from(bytes))
    }
}
