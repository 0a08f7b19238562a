//! Record batches of format 2 as views on bytes.
//!
//! A [`ValidBatch`] is a whole batch whose length, format and CRC-32C were checked once, at the edge; from
//! there on it is carried as the same bytes. Nothing here copies record data.
//!
//! Invariants of a `ValidBatch`:
//! * `bytes` is exactly one batch: 12 bytes, then as many as its length field says;
//! * magic is 2 and the CRC matches;
//! * the base offset and the last offset delta are not negative and their sum has a successor.

mod control;
mod header;
mod reader;
mod record;
mod rewrite;
mod stamp;

use bytes::Bytes;
use thiserror::Error;

pub use control::{ControlRecord, ControlType};
pub use header::{Attributes, BatchHeader, HEADER_BYTES, LOG_OVERHEAD, TimestampType};
pub use reader::{ReadError, RecordReader};
pub use record::{HeaderView, HeaderViews, RecordFault, RecordView, Records, records};
pub use rewrite::Rewrite;
pub use stamp::{Stamp, Stamped};

pub(crate) use header::{AT_CRC_COVERS, HEADER_BYTES_TO_MAGIC};

use crate::builder::seal;
use crate::codec::{CodecError, decompress};
use crate::ids::Offset;

/// Bytes that are not a batch of format 2. `offset` is what the batch gives as its base offset.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BatchError {
    /// Fewer bytes than a header or than the batch says it has.
    #[error("a record batch needs {needed} bytes and there are {have}")]
    CutShort {
        /// What there is.
        have: usize,
        /// What there should be at least.
        needed: usize,
    },
    /// A length that no batch has.
    #[error("the record batch at offset {offset} has a length of {length}, less than its header")]
    BadLength {
        /// Its base offset.
        offset: Offset,
        /// The length field.
        length: i32,
    },
    /// Message format 0 or 1, as brokers before Kafka 0.11 wrote it.
    #[error("the records at offset {offset} are in message format {magic}; only format 2 is supported")]
    UnsupportedMagic {
        /// Its base offset.
        offset: Offset,
        /// 0 or 1.
        magic: i8,
    },
    /// A format that does not exist: damage.
    #[error("the record batch at offset {offset} has the unknown magic {magic}")]
    UnknownMagic {
        /// Its base offset.
        offset: Offset,
        /// What stands there.
        magic: i8,
    },
    /// The bytes are not those that were written.
    #[error(
        "the record batch at offset {offset} has the CRC {stored:#010x}, but its bytes give {computed:#010x}"
    )]
    BadChecksum {
        /// Its base offset.
        offset: Offset,
        /// The CRC field.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Offsets that cannot be.
    #[error("a record batch claims the base offset {offset} and the last offset delta {last_offset_delta}")]
    BadOffsets {
        /// Its base offset.
        offset: Offset,
        /// Its last offset delta.
        last_offset_delta: i32,
    },
    /// A batch that begins before the end of the one before it.
    #[error("the record batch at offset {offset} follows one that ends before offset {expected}")]
    OutOfOrder {
        /// Its base offset.
        offset: Offset,
        /// The lowest offset it may have.
        expected: Offset,
    },
}

/// One whole batch, checked. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidBatch {
    bytes: Bytes,
    header: BatchHeader,
}

impl ValidBatch {
    /// Checks that `bytes` is exactly one batch.
    ///
    /// # Errors
    /// Any `BatchError` but `OutOfOrder`; bytes after the batch are `BadLength`.
    pub fn parse(bytes: Bytes) -> Result<ValidBatch, BatchError> {
        let header = BatchHeader::parse(&bytes)?;
        if bytes.len() < header.size() {
            return Err(BatchError::CutShort { have: bytes.len(), needed: header.size() });
        }
        if bytes.len() > header.size() {
            return Err(BatchError::BadLength { offset: header.base_offset, length: header.length });
        }
        header.check_offsets()?;
        header.check_crc(&bytes)?;
        Ok(ValidBatch { bytes, header })
    }

    /// A batch whose every check was made by the caller.
    pub(crate) fn checked_elsewhere(bytes: Bytes, header: BatchHeader) -> ValidBatch {
        debug_assert_eq!(bytes.len(), header.size());
        debug_assert_eq!(header.check_offsets(), Ok(()));
        ValidBatch { bytes, header }
    }

    /// A new batch of this header and section.
    pub(crate) fn sealed(header: BatchHeader, section: &[u8]) -> ValidBatch {
        let bytes = seal(header, section);
        let header = BatchHeader::parse(&bytes).expect("seal writes a header");
        ValidBatch::checked_elsewhere(bytes, header)
    }

    /// The whole batch, header included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The header as it stands in the bytes.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch, header included.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// What follows the header: the records, compressed as the header says.
    pub fn section(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..)
    }

    /// The records without compression: a slice of the batch where it has none.
    ///
    /// # Errors
    /// Where the codec is unknown, the data is damaged or there is more of it than `limit` bytes.
    pub fn decompressed(&self, limit: usize) -> Result<Bytes, CodecError> {
        match self.header.compression()? {
            crate::Compression::None => Ok(self.section()),
            compression => decompress(compression, &self.section(), limit).map(Bytes::from),
        }
    }

    /// Reads the records one by one; never holds more than the largest record and a slice, and gives up
    /// after `limit` decompressed bytes.
    ///
    /// # Errors
    /// Where the codec is unknown.
    pub fn reader(&self, limit: usize) -> Result<RecordReader, CodecError> {
        RecordReader::new(self.header.compression()?, self.section(), self.header.record_count, limit)
    }
}

/// The batches in `bytes`, one after the other, each checked.
///
/// A last batch cut short ends the iteration silently: that is how Fetch ends a response. An error ends
/// it too.
pub fn batches(bytes: Bytes) -> Batches {
    Batches { rest: bytes, failed: false }
}

/// See [`batches`].
#[derive(Clone, Debug)]
pub struct Batches {
    rest: Bytes,
    failed: bool,
}

impl Batches {
    /// The bytes not yet returned: after the end, a batch cut short or nothing; after an error, the batch
    /// at fault and all that follows.
    pub fn remaining(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for Batches {
    type Item = Result<ValidBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match take_batch(&mut self.rest) {
            Ok(batch) => batch.map(Ok),
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

/// Takes a whole batch off the front of `bytes`; `None` leaves what is there cut short.
fn take_batch(bytes: &mut Bytes) -> Result<Option<ValidBatch>, BatchError> {
    let Some(size) = whole_batch(bytes)? else { return Ok(None) };
    let header = BatchHeader::parse(bytes)?;
    header.check_offsets()?;
    header.check_crc(&bytes[..size])?;
    Ok(Some(ValidBatch { bytes: bytes.split_to(size), header }))
}

/// The size of the batch at the front of `bytes`, where all of it is there.
///
/// # Errors
/// As soon as the first 17 bytes show a wrong length or format.
pub(crate) fn whole_batch(bytes: &[u8]) -> Result<Option<usize>, BatchError> {
    let Some(size) = announced_size(bytes)? else { return Ok(None) };
    Ok((bytes.len() >= size).then_some(size))
}

/// The size that the batch at the front of `bytes` says it has; `None` before its length and magic are
/// there.
pub(crate) fn announced_size(bytes: &[u8]) -> Result<Option<usize>, BatchError> {
    if bytes.len() < HEADER_BYTES_TO_MAGIC {
        return Ok(None);
    }
    header::read_size(bytes).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Compression, Record};
    use proptest::prelude::*;

    #[test]
    fn batches_are_slices_of_what_was_received() {
        let received = Bytes::from([batch(0, 2), batch(2, 1)].concat());
        let read: Vec<_> = batches(received.clone()).map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].bytes().as_ptr(), received.as_ptr(), "no copy");
        assert_eq!(read[1].header().base_offset, Offset(2));
        assert_eq!(read[0].header().next_offset(), Offset(2));
    }

    #[test]
    fn a_last_batch_cut_short_ends_without_an_error() {
        let whole = batch(0, 3);
        for cut in 0..whole.len() {
            let mut received = batches(Bytes::from([&whole[..], &whole[..cut]].concat()));
            assert_eq!(received.next(), Some(ValidBatch::parse(whole.clone())));
            assert_eq!(received.next(), None, "cut at {cut}");
            assert_eq!(received.remaining().len(), cut);
        }
    }

    #[test]
    fn old_message_formats_are_told_apart_from_damage() {
        for (magic, expected) in [
            (0, BatchError::UnsupportedMagic { offset: Offset(7), magic: 0 }),
            (1, BatchError::UnsupportedMagic { offset: Offset(7), magic: 1 }),
            (3, BatchError::UnknownMagic { offset: Offset(7), magic: 3 }),
            (-1, BatchError::UnknownMagic { offset: Offset(7), magic: -1 }),
        ] {
            let mut bytes = batch(7, 1).to_vec();
            bytes[16] = magic as u8;
            let mut read = batches(bytes.into());
            assert_eq!(read.next(), Some(Err(expected)));
            assert_eq!(read.next(), None, "an error ends the iteration");
        }
    }

    #[test]
    fn offsets_that_cannot_be_are_refused() {
        let negative = batch(-5, 1);
        assert_eq!(
            ValidBatch::parse(negative),
            Err(BatchError::BadOffsets { offset: Offset(-5), last_offset_delta: 0 })
        );
        let too_large = batch(i64::MAX, 1);
        assert_eq!(
            ValidBatch::parse(too_large),
            Err(BatchError::BadOffsets { offset: Offset(i64::MAX), last_offset_delta: 0 })
        );
    }

    #[test]
    fn exactly_one_batch_is_not_two() {
        let two = Bytes::from([batch(0, 1), batch(1, 1)].concat());
        assert!(matches!(ValidBatch::parse(two), Err(BatchError::BadLength { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_batches_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let whole = bytes.len();
            let mut read = batches(bytes.into());
            let taken: usize = read.by_ref().flatten().map(|batch| batch.bytes().len()).sum();
            prop_assert_eq!(taken + read.remaining().len(), whole);
        }

        /// The CRC covers all that it should: no bit from the CRC on can flip unnoticed.
        #[test]
        fn a_flipped_bit_is_found(records in 1usize..20, at in 16usize..1000, bit in 0u8..8) {
            let mut bytes = batch(3, records).to_vec();
            let at = 16 + at % (bytes.len() - 16);
            bytes[at] ^= 1 << bit;
            prop_assert!(ValidBatch::parse(bytes.into()).is_err());
        }
    }

    fn batch(base_offset: i64, records: usize) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(base_offset), Compression::None);
        for _ in 0..records {
            builder.add(&Record { value: Some(b"value"), ..Record::default() });
        }
        builder.build()
    }
}
