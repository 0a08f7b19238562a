//! What a mirror may append: whole batches of format 2, undamaged, in order.
//!
//! Every byte of every mirrored topic comes through here, so nothing is copied and nothing is allocated for
//! a batch but its place in the result. Compressed records stay compressed: their leader checked them.
//!
//! Invariant of a scanner: the batches it returned have strictly increasing offsets that do not overlap.

use bytes::Bytes;

use crate::batch::{BatchError, Batches, ValidBatch, batches, whole_batch};
use crate::ids::Offset;

/// The batches of one partition in one response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrored {
    /// The whole ones.
    pub batches: Vec<ValidBatch>,
    /// Whether a batch cut short came after them.
    pub cut_short: bool,
}

/// Checks what a Fetch response holds for one partition: length, format, CRC and order of each batch. A last
/// batch cut short is how Fetch ends a response.
///
/// # Errors
/// The first fault, with the offset of its batch; nothing of the response is to be appended then.
/// `UnsupportedMagic` is for ever, the others may be damage on the way.
pub fn mirrored(records: Bytes) -> Result<Mirrored, BatchError> {
    let mut read = batches(records);
    let batches = MirroredScanner::new().collect(&mut read)?;
    Ok(Mirrored { batches, cut_short: !read.remaining().is_empty() })
}

/// Checks the same while the response is still arriving, so that a batch is looked at while it is in the
/// CPU's cache.
///
/// The driver reads into a `BytesMut`, asks [`MirroredScanner::whole_bytes`] how much of it is whole
/// batches, splits that off, freezes it and hands it to [`MirroredScanner::scan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirroredScanner {
    expected: Offset,
}

impl MirroredScanner {
    /// A scanner for one partition of one response.
    pub fn new() -> MirroredScanner {
        MirroredScanner::default()
    }

    /// How many of `received` bytes are whole batches. Looks at the lengths only.
    ///
    /// # Errors
    /// `BadLength`, `UnsupportedMagic` or `UnknownMagic`, so that nobody waits for the rest of a batch that
    /// cannot be.
    pub fn whole_bytes(received: &[u8]) -> Result<usize, BatchError> {
        let mut end = 0;
        while let Some(size) = whole_batch(&received[end..])? {
            end += size;
        }
        Ok(end)
    }

    /// The whole batches in `received` from `from` on, and where they end; what follows must be given again
    /// together with the rest of its batch.
    ///
    /// # Errors
    /// The first fault, as [`mirrored`] has it.
    pub fn scan(&mut self, received: &Bytes, from: usize) -> Result<(Vec<ValidBatch>, usize), BatchError> {
        let mut read = batches(received.slice(from.min(received.len())..));
        let batches = self.collect(&mut read)?;
        Ok((batches, received.len() - read.remaining().len()))
    }

    fn collect(&mut self, read: &mut Batches) -> Result<Vec<ValidBatch>, BatchError> {
        let mut batches = Vec::new();
        for batch in read {
            let batch = batch?;
            let header = batch.header();
            if header.base_offset < self.expected {
                return Err(BatchError::OutOfOrder { offset: header.base_offset, expected: self.expected });
            }
            self.expected = header.next_offset();
            batches.push(batch);
        }
        Ok(batches)
    }
}
