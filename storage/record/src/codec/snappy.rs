//! Snappy as Kafka has it: raw blocks in the stream framing of xerial's Java library.
//!
//! The stream begins with a magic, a version and the oldest compatible version (big-endian `int32`, both 1);
//! then each block follows its `int32` length. Streams may be concatenated, so the magic may come again
//! where a length is expected. Some clients send one raw block without any of it; it is told by the missing
//! magic.
//!
//! Invariant: a block is decompressed only if what it announces fits the limit and can come from so few
//! bytes.

use std::error::Error;
use std::fmt;
use std::io;

const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const HEADER_BYTES: usize = 16;
const BLOCK_BYTES: usize = 32 * 1024;
/// A copy of 3 bytes gives at most 64; no snappy block expands more.
const EXPANSION_MAX: usize = 22;

/// Reads either form, one block at a time.
pub(super) struct SnappyReader<T> {
    data: T,
    at: usize,
    limit: usize,
    block: Vec<u8>,
    block_at: usize,
    framed: bool,
}

/// The data has more bytes than the limit.
#[derive(Debug)]
struct LimitPassed;

impl fmt::Display for LimitPassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snappy block exceeds the limit")
    }
}

impl Error for LimitPassed {}

impl<T: AsRef<[u8]>> SnappyReader<T> {
    /// Reads `data`; no block larger than `limit` is decompressed.
    pub(super) fn new(data: T, limit: usize) -> SnappyReader<T> {
        let framed = data.as_ref().starts_with(MAGIC);
        SnappyReader { data, at: 0, limit, block: Vec::new(), block_at: 0, framed }
    }

    /// From now on no block larger than `max` is decompressed.
    pub(super) fn limit_blocks(&mut self, max: usize) {
        self.limit = self.limit.min(max);
    }

    /// Whether `error` says that the limit was passed.
    pub(super) fn passed(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<LimitPassed>())
    }

    /// Fills `out` as far as the current block goes; 0 at the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.block_at == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let ready = &self.block[self.block_at..];
        let count = ready.len().min(out.len());
        out[..count].copy_from_slice(&ready[..count]);
        self.block_at += count;
        Ok(count)
    }

    fn next_block(&mut self) -> io::Result<bool> {
        let Some(range) = self.next_range()? else { return Ok(false) };
        let packed = &self.data.as_ref()[range.clone()];
        let announced = snap::raw::decompress_len(packed).map_err(invalid)?;
        if announced > self.limit {
            return Err(io::Error::other(LimitPassed));
        }
        if announced > packed.len().saturating_mul(EXPANSION_MAX) {
            return Err(invalid("a block announces more bytes than it can hold"));
        }
        self.block.clear();
        self.block.resize(announced, 0);
        snap::raw::Decoder::new().decompress(packed, &mut self.block).map_err(invalid)?;
        self.block_at = 0;
        self.at = range.end;
        Ok(true)
    }

    /// Where the next block lies in the data.
    fn next_range(&mut self) -> io::Result<Option<std::ops::Range<usize>>> {
        let data = self.data.as_ref();
        if self.at == data.len() {
            return Ok(None);
        }
        if !self.framed {
            return Ok(Some(self.at..data.len()));
        }
        while data[self.at..].starts_with(MAGIC) {
            if data.len() - self.at < HEADER_BYTES {
                return Err(invalid("the stream header is cut short"));
            }
            self.at += HEADER_BYTES;
        }
        let rest = &data[self.at..];
        let Some((length, block)) = rest.split_first_chunk::<4>() else {
            return if rest.is_empty() { Ok(None) } else { Err(invalid("a block length is cut short")) };
        };
        let length = i32::from_be_bytes(*length);
        match usize::try_from(length) {
            Ok(length) if length > 0 && length <= block.len() => {
                let start = self.at + 4;
                Ok(Some(start..start + length))
            }
            _ => Err(invalid(format!("a block of {length} bytes, and {} are left", block.len()))),
        }
    }
}

/// Writes one framed stream of blocks of 32 KiB.
pub(super) struct SnappyWriter {
    out: Vec<u8>,
    /// What is not a whole block yet.
    block: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl Default for SnappyWriter {
    fn default() -> SnappyWriter {
        let version = 1i32.to_be_bytes();
        let out = [&MAGIC[..], &version, &version].concat();
        SnappyWriter { out, block: Vec::new(), encoder: snap::raw::Encoder::new() }
    }
}

impl SnappyWriter {
    /// How much of the stream is there.
    pub(super) fn written(&self) -> usize {
        self.out.len()
    }

    /// Adds `data` to the stream.
    pub(super) fn write(&mut self, mut data: &[u8]) {
        while self.block.len() + data.len() >= BLOCK_BYTES {
            let (fills, rest) = data.split_at(BLOCK_BYTES - self.block.len());
            self.block.extend_from_slice(fills);
            data = rest;
            self.end_block();
        }
        self.block.extend_from_slice(data);
    }

    /// Ends the stream: all of it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if !self.block.is_empty() {
            self.end_block();
        }
        self.out
    }

    fn end_block(&mut self) {
        let length_at = self.out.len();
        let start = length_at + 4;
        self.out.resize(start + snap::raw::max_compress_len(self.block.len()), 0);
        let length = self.encoder.compress(&self.block, &mut self.out[start..]);
        let length = length.expect("32 KiB fit the space reserved");
        self.out.truncate(start + length);
        self.out[length_at..start].copy_from_slice(&(length as i32).to_be_bytes());
        self.block.clear();
    }
}

fn invalid(reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{CodecError, Compression, decompress};

    const HEADER: [u8; HEADER_BYTES] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
    /// A literal of 3 bytes after its length.
    const BLOCK: &[u8] = &[3, 2 << 2, b'a', b'b', b'c'];

    #[test]
    fn a_stream_is_a_header_and_blocks_with_lengths() {
        let expected = [&HEADER[..], &[0, 0, 0, 5], BLOCK].concat();
        assert_eq!(compress(b"abc"), expected);
        assert_eq!(unpack(&expected), Ok(b"abc".to_vec()));
    }

    #[test]
    fn a_raw_block_is_read_too() {
        assert_eq!(unpack(BLOCK), Ok(b"abc".to_vec()));
    }

    #[test]
    fn concatenated_streams_are_one() {
        let twice = compress(b"abc").repeat(2);
        assert_eq!(unpack(&twice), Ok(b"abcabc".to_vec()));
    }

    #[test]
    fn lengths_that_lead_nowhere_are_refused() {
        for length in [-1i32, 0, 6, i32::MAX] {
            let stream = [&HEADER[..], &length.to_be_bytes(), BLOCK].concat();
            assert!(matches!(unpack(&stream), Err(CodecError::Corrupt { .. })), "{length}");
        }
        assert!(unpack(&compress(b"abc")[..HEADER_BYTES + 2]).is_err());
        assert!(unpack(&HEADER[..12]).is_err());
    }

    #[test]
    fn a_block_that_announces_much_costs_nothing() {
        let large = [0xff, 0xff, 0xff, 0x7f, 0, b'a'];
        assert_eq!(unpack(&large), Err(CodecError::LimitExceeded { limit: 1000 }));
        let within_limit = [0xe7, 0x07, 0, b'a'];
        assert!(matches!(unpack(&within_limit), Err(CodecError::Corrupt { .. })));
    }

    fn compress(data: &[u8]) -> Vec<u8> {
        let mut writer = SnappyWriter::default();
        writer.write(data);
        writer.finish()
    }

    fn unpack(data: &[u8]) -> Result<Vec<u8>, CodecError> {
        decompress(Compression::Snappy, data, 1000)
    }
}
