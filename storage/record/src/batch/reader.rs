//! Reads the records of a batch one by one, decompressing in slices.
//!
//! Whoever must look into a batch of unknown content uses this: the validation of what clients send, the
//! search for a timestamp, compaction. Memory is bounded by the largest record plus one slice, work
//! between two calls by the same, and the whole by the limit given.
//!
//! Invariant: `window[at..filled]` is decompressed and not yet returned; what lies behind it has no meaning.

use bytes::Bytes;
use thiserror::Error;

use super::record::{RecordFault, RecordView, encoded_size, read_record};
use crate::codec::{CodecError, Compression, Decoder};
use crate::varint::MAX_I32_BYTES;

const SLICE_BYTES: usize = 32 * 1024;

/// Why the records of a batch could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    /// The section could not be decompressed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A record is malformed.
    #[error("record {index} of the batch {fault}")]
    Malformed {
        /// Which one, from 0.
        index: i32,
        /// What is wrong.
        fault: RecordFault,
    },
}

/// See the module.
#[derive(Debug)]
pub struct RecordReader {
    section: Section,
    index: i32,
    count: i32,
    taken: usize,
    record_max: usize,
    finished: bool,
}

#[derive(Debug)]
enum Section {
    Plain { bytes: Bytes, at: usize },
    Compressed { decoder: Box<Decoder<Bytes>>, window: Vec<u8>, at: usize, filled: usize },
}

impl RecordReader {
    /// Reads `count` records from a batch's `section`, giving up after `limit` decompressed bytes.
    ///
    /// # Errors
    /// Where the decoder cannot be set up.
    pub fn new(
        compression: Compression,
        section: Bytes,
        count: i32,
        limit: usize,
    ) -> Result<RecordReader, CodecError> {
        let section = match compression {
            Compression::None => Section::Plain { bytes: section, at: 0 },
            compression => {
                let decoder = Box::new(Decoder::new(compression, section, limit)?);
                Section::Compressed { decoder, window: Vec::new(), at: 0, filled: 0 }
            }
        };
        Ok(RecordReader {
            section,
            index: 0,
            count: count.max(0),
            taken: 0,
            record_max: usize::MAX,
            finished: false,
        })
    }

    /// The same, but a record that is longer than `max` bytes is an error before it is decompressed.
    pub fn with_record_max(self, max: usize) -> RecordReader {
        RecordReader { record_max: max, ..self }
    }

    /// The same, but a codec that has to hold more than `max` bytes at a time fails.
    ///
    /// # Errors
    /// Where the codec takes no such limit.
    pub fn with_block_max(mut self, max: usize) -> Result<RecordReader, CodecError> {
        if let Section::Compressed { decoder, .. } = &mut self.section {
            decoder.limit_blocks(max)?;
        }
        Ok(self)
    }

    /// The next record; `None` after the last or after an error. Bytes after the last record are an error.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<RecordView<'_>, ReadError>> {
        if self.finished {
            return None;
        }
        if self.index == self.count {
            self.finished = true;
            return self.check_end().err().map(Err);
        }
        let index = self.index;
        match self.section.take_record(self.record_max) {
            Ok(record) => {
                self.index += 1;
                self.taken += record.encoded.len();
                Some(Ok(record))
            }
            Err(fault) => {
                self.finished = true;
                Some(Err(fault.at(index)))
            }
        }
    }

    /// How many decompressed bytes the records returned so far took.
    pub fn bytes_read(&self) -> usize {
        self.taken
    }

    fn check_end(&mut self) -> Result<(), ReadError> {
        match self.section.available(1) {
            Ok([]) => Ok(()),
            Ok(_) => Err(ReadError::Malformed { index: self.index, fault: RecordFault::TooMany }),
            Err(error) => Err(error.into()),
        }
    }
}

/// A `ReadError` that does not know its record yet.
enum Fault {
    Codec(CodecError),
    Record(RecordFault),
}

impl Fault {
    fn at(self, index: i32) -> ReadError {
        match self {
            Fault::Codec(error) => ReadError::Codec(error),
            Fault::Record(fault) => ReadError::Malformed { index, fault },
        }
    }
}

impl Section {
    #[inline]
    fn take_record(&mut self, max: usize) -> Result<RecordView<'_>, Fault> {
        if let Section::Compressed { .. } = self {
            self.decompress_record(max)?;
        }
        let (unread, at) = match self {
            Section::Plain { bytes, at } => (&bytes[*at..], at),
            Section::Compressed { window, at, filled, .. } => (&window[*at..*filled], at),
        };
        let (record, _) = read_record(unread).map_err(Fault::Record)?;
        *at += record.encoded.len();
        Ok(record)
    }

    /// Brings the whole next record into the window.
    fn decompress_record(&mut self, max: usize) -> Result<(), Fault> {
        let start = self.available(MAX_I32_BYTES).map_err(Fault::Codec)?;
        if start.is_empty() {
            return Err(Fault::Record(RecordFault::CutShort));
        }
        let size = encoded_size(start, max).map_err(Fault::Record)?;
        self.available(size).map(|_| ()).map_err(Fault::Codec)
    }

    /// The bytes not yet taken: `wanted` at least, unless the section ends before.
    fn available(&mut self, wanted: usize) -> Result<&[u8], CodecError> {
        match self {
            Section::Plain { bytes, at } => Ok(&bytes[*at..]),
            Section::Compressed { decoder, window, at, filled } => {
                if *filled - *at < wanted {
                    window.copy_within(*at..*filled, 0);
                    (*at, *filled) = (0, *filled - *at);
                    while *filled < wanted {
                        // Memory is zeroed once, not for each slice.
                        window.resize(window.len().max(*filled + SLICE_BYTES), 0);
                        match decoder.read_some(&mut window[*filled..*filled + SLICE_BYTES])? {
                            0 => break,
                            read => *filled += read,
                        }
                    }
                }
                Ok(&window[*at..*filled])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Offset, Record, ValidBatch};
    use proptest::prelude::*;

    const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    #[test]
    fn records_larger_than_a_slice_are_read_whole() {
        let large = vec![b'x'; 5 * SLICE_BYTES + 7];
        for compression in ALL {
            let batch = batch(compression, &[b"first", &large, b"last"]);
            let mut reader = batch.reader(1 << 20).unwrap();
            assert_eq!(value(&mut reader), b"first");
            assert_eq!(value(&mut reader), large);
            assert_eq!(value(&mut reader), b"last");
            assert!(reader.next().is_none());
        }
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit() {
        let large = vec![0; 1 << 20];
        for compression in &ALL[1..] {
            let batch = batch(*compression, &[&large]);
            assert!(batch.bytes().len() < 64 * 1024, "{compression} compresses zeros");
            let mut reader = batch.reader(100_000).unwrap();
            assert_eq!(
                reader.next(),
                Some(Err(ReadError::Codec(CodecError::LimitExceeded { limit: 100_000 }))),
                "{compression}"
            );
            assert!(reader.next().is_none());
        }
    }

    #[test]
    fn too_few_and_too_many_records_are_faults_for_every_codec() {
        for compression in ALL {
            let batch = batch(compression, &[b"a", b"b"]);
            let read = |count| {
                let mut reader = RecordReader::new(compression, batch.section(), count, 1000).unwrap();
                assert!(reader.next().unwrap().is_ok());
                if count == 3 {
                    assert!(reader.next().unwrap().is_ok());
                }
                reader.next().unwrap().unwrap_err()
            };
            assert_eq!(read(1), ReadError::Malformed { index: 1, fault: RecordFault::TooMany });
            assert_eq!(read(3), ReadError::Malformed { index: 2, fault: RecordFault::CutShort });
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), id in 0i8..5) {
            let compression = Compression::from_id(id).unwrap();
            let mut reader = RecordReader::new(compression, bytes.into(), 20, 10_000).unwrap();
            while let Some(Ok(record)) = reader.next() {
                prop_assert!(record.encoded.len() <= 10_000);
            }
        }
    }

    fn batch(compression: Compression, values: &[&[u8]]) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(0), compression);
        for value in values {
            builder.add(&Record { value: Some(value), ..Record::default() });
        }
        ValidBatch::parse(builder.build()).unwrap()
    }

    fn value(reader: &mut RecordReader) -> Vec<u8> {
        reader.next().unwrap().unwrap().value.unwrap().to_vec()
    }
}
