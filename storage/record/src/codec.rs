//! The five codecs of record batches, bounded.
//!
//! Whatever the input, decompression stops at the caller's limit and memory follows the output, not what
//! the input announces: apart from the output, a decoder reserves at most its codec's window (zstd
//! 128 MiB, lz4 12 MiB; address space that is touched only as output fills it).
//!
//! What Kafka's Java clients demand of each format, and so what is written here:
//! * snappy: the stream framing of xerial's library; when reading, one raw block is accepted too;
//! * lz4: a frame of independent blocks of 64 KiB with a header checksum; when reading, dependent blocks
//!   are accepted too, and bytes after the frame are ignored as Kafka ignores them;
//! * gzip and zstd: one member or frame; when reading, several, and what follows the last gzip member and
//!   does not begin another is ignored.
//!
//! An empty input decompresses to nothing for every codec.

mod encoder;
mod gzip;
mod snappy;

use std::fmt;
use std::io::{self, Cursor, Read};
use std::str::FromStr;

use thiserror::Error;

use gzip::GzipReader;
use snappy::SnappyReader;

pub use encoder::Encoder;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// A gzip stream.
    Gzip = 1,
    /// Snappy blocks in xerial's framing.
    Snappy = 2,
    /// An lz4 frame.
    Lz4 = 3,
    /// A zstd frame (KIP-110).
    Zstd = 4,
}

/// Data that cannot be decompressed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    /// An id that Kafka does not define.
    #[error("there is no compression codec with the id {0}")]
    UnknownId(i8),
    /// A name that Kafka does not define.
    #[error("'{0}' is not a compression type: none, gzip, snappy, lz4 or zstd is expected")]
    UnknownName(String),
    /// The data is not what the codec writes.
    #[error("the {compression} data is damaged: {reason}")]
    Corrupt {
        /// The codec that refused it.
        compression: Compression,
        /// What the codec says.
        reason: String,
    },
    /// There is more data than the caller allows.
    #[error("the records decompress to more than {limit} bytes")]
    LimitExceeded {
        /// The limit, in bytes.
        limit: usize,
    },
}

impl Compression {
    /// Every codec, by id.
    pub const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    /// The codec with this id.
    ///
    /// # Errors
    /// `UnknownId`.
    pub fn from_id(id: i8) -> Result<Compression, CodecError> {
        usize::try_from(id)
            .ok()
            .and_then(|index| Self::ALL.get(index).copied())
            .ok_or(CodecError::UnknownId(id))
    }

    /// Its number in the attributes of a batch.
    pub fn id(self) -> i8 {
        self as i8
    }

    /// Its name as `compression.type` has it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Compression {
    type Err = CodecError;

    fn from_str(name: &str) -> Result<Compression, CodecError> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| CodecError::UnknownName(name.to_owned()))
    }
}

/// Decompresses all of `data`, which may give up to `limit` bytes.
///
/// # Errors
/// `Corrupt`, or `LimitExceeded` as soon as the limit is passed.
pub fn decompress(compression: Compression, data: &[u8], limit: usize) -> Result<Vec<u8>, CodecError> {
    let mut decoder = Decoder::new(compression, data, limit)?;
    let mut out = Vec::new();
    while decoder.read_slice(&mut out, SLICE_BYTES)? > 0 {}
    Ok(out)
}

/// Compresses `data` as Kafka's clients expect it. `level` is the codec's own scale, brought into its
/// range; `None` is its default. Snappy has no levels.
pub fn compress(compression: Compression, level: Option<i32>, data: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(compression, level, data.len());
    encoder.write(data);
    encoder.finish()
}

const SLICE_BYTES: usize = 64 * 1024;

/// Decompresses in slices, so that a long batch does not hold up its core. It yields at most `limit` bytes
/// and then fails.
pub struct Decoder<T: AsRef<[u8]>> {
    codec: Codec<T>,
    compression: Compression,
    limit: usize,
    left: usize,
}

enum Codec<T: AsRef<[u8]>> {
    None(Cursor<T>),
    Gzip(GzipReader<T>),
    Snappy(SnappyReader<T>),
    Lz4 {
        frame: Box<lz4_flex::frame::FrameDecoder<Cursor<T>>>,
        ended: bool,
    },
    Zstd(zstd::stream::read::Decoder<'static, Cursor<T>>),
    /// Nothing was compressed, or all is decompressed.
    Ended,
}

impl<T: AsRef<[u8]>> Decoder<T> {
    /// Decompresses `data`, up to `limit` bytes.
    ///
    /// # Errors
    /// Where zstd finds no memory.
    pub fn new(compression: Compression, data: T, limit: usize) -> Result<Decoder<T>, CodecError> {
        let empty = data.as_ref().is_empty();
        let data = Cursor::new(data);
        let codec = match compression {
            _ if empty => Codec::Ended,
            Compression::None => Codec::None(data),
            Compression::Gzip => Codec::Gzip(GzipReader::new(data)),
            Compression::Snappy => Codec::Snappy(SnappyReader::new(data.into_inner(), limit)),
            Compression::Lz4 => {
                let frame = Box::new(lz4_flex::frame::FrameDecoder::new(data));
                Codec::Lz4 { frame, ended: false }
            }
            Compression::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(data);
                Codec::Zstd(decoder.map_err(|error| corrupt(compression, &error))?)
            }
        };
        Ok(Decoder { codec, compression, limit, left: limit })
    }

    /// From now on a snappy block or a window of zstd larger than `max` bytes is an error.
    ///
    /// # Errors
    /// Where zstd takes no such limit.
    pub fn limit_blocks(&mut self, max: usize) -> Result<(), CodecError> {
        match &mut self.codec {
            Codec::Snappy(reader) => reader.limit_blocks(max),
            Codec::Zstd(decoder) => {
                let set = decoder.window_log_max(max.max(1).ilog2());
                set.map_err(|error| corrupt(self.compression, &error))?;
            }
            // Their windows are never large.
            Codec::None(_) | Codec::Gzip(_) | Codec::Lz4 { .. } | Codec::Ended => {}
        }
        Ok(())
    }

    /// Appends up to `most` bytes, at least one, to `out` and says how many; 0 at the end.
    ///
    /// # Errors
    /// `Corrupt`, or `LimitExceeded` once there is more than the limit.
    pub fn read_slice(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, CodecError> {
        let start = out.len();
        out.resize(start + most, 0);
        let read = self.read_some(&mut out[start..]);
        out.truncate(start + read.as_ref().copied().unwrap_or(0));
        read
    }

    /// Fills `out`, or a part of it, and says how much; 0 at the end.
    ///
    /// # Errors
    /// As for [`Decoder::read_slice`].
    pub(crate) fn read_some(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        // One byte more than is left tells an end at the limit from a limit passed.
        let most = out.len().min(self.left.saturating_add(1));
        let read =
            self.codec.read(&mut out[..most]).map_err(|error| match SnappyReader::<T>::passed(&error) {
                true => CodecError::LimitExceeded { limit: self.limit },
                false => corrupt(self.compression, &error),
            })?;
        match self.left.checked_sub(read) {
            Some(left) => self.left = left,
            None => return Err(CodecError::LimitExceeded { limit: self.limit }),
        }
        Ok(read)
    }
}

impl<T: AsRef<[u8]>> Read for Decoder<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.read_some(out).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl<T: AsRef<[u8]>> fmt::Debug for Decoder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("compression", &self.compression)
            .field("limit", &self.limit)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl<T: AsRef<[u8]>> Codec<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        match self {
            Codec::None(data) => data.read(out),
            Codec::Gzip(decoder) => decoder.read(out),
            Codec::Snappy(reader) => reader.read(out),
            // After its end mark the decoder would begin another frame, which Kafka never does.
            Codec::Lz4 { ended: true, .. } | Codec::Ended => Ok(0),
            Codec::Lz4 { frame, ended } => {
                let read = frame.read(out)?;
                *ended = read == 0;
                Ok(read)
            }
            Codec::Zstd(decoder) => decoder.read(out),
        }
    }
}

/// Whether Kafka's own lz4 reader takes this frame: it refuses the legacy format, and blocks that depend on
/// earlier ones.
pub(crate) fn kafka_reads_lz4(data: &[u8]) -> bool {
    const MAGIC: u32 = 0x184D_2204;
    const INDEPENDENT: u8 = 0x20;
    match data {
        &[a, b, c, d, flags, ..] => u32::from_le_bytes([a, b, c, d]) == MAGIC && flags & INDEPENDENT != 0,
        _ => false,
    }
}

fn corrupt(compression: Compression, error: &io::Error) -> CodecError {
    CodecError::Corrupt { compression, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_section_survives_every_codec() {
        for codec in Compression::ALL {
            assert_eq!(decompress(codec, &compress(codec, None, b""), 0), Ok(vec![]), "{codec}");
            assert_eq!(decompress(codec, b"", 0), Ok(vec![]), "{codec}");
        }
    }

    #[test]
    fn the_limit_itself_is_allowed_and_one_byte_more_is_not() {
        let data = b"abc".repeat(50_000);
        for codec in Compression::ALL {
            let packed = compress(codec, None, &data);
            assert_eq!(decompress(codec, &packed, data.len()).as_deref(), Ok(&data[..]), "{codec}");
            let limit = data.len() - 1;
            assert_eq!(
                decompress(codec, &packed, limit),
                Err(CodecError::LimitExceeded { limit }),
                "{codec}"
            );
        }
    }

    #[test]
    fn a_truncated_stream_never_gives_more_than_the_whole() {
        let data: Vec<u8> = (0..200_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for codec in Compression::ALL {
            let packed = compress(codec, None, &data);
            for cut in [1, 5, packed.len() / 2, packed.len() - 1] {
                if let Ok(read) = decompress(codec, &packed[..cut], data.len()) {
                    assert!(data.starts_with(&read), "{codec} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn several_gzip_members_and_zstd_frames_are_one_stream() {
        for codec in [Compression::Gzip, Compression::Zstd] {
            let packed = [compress(codec, None, b"one "), compress(codec, None, b"two")].concat();
            assert_eq!(decompress(codec, &packed, 100).as_deref(), Ok(&b"one two"[..]), "{codec}");
        }
    }

    #[test]
    fn lz4_is_written_as_kafka_reads_it() {
        let packed = compress(Compression::Lz4, None, &[7; 100_000]);
        assert_eq!(packed[..4], 0x184D_2204u32.to_le_bytes());
        assert_eq!(packed[4], 0x60, "version 1, independent blocks, no checksums");
        assert_eq!(packed[5], 0x40, "blocks of 64 KiB");
        assert_eq!(packed[6], 0x82, "second byte of XXH32 over the two before");
        assert_eq!(packed[packed.len() - 4..], [0; 4], "end mark");
        assert!(kafka_reads_lz4(&packed));
    }

    #[test]
    fn lz4_frames_of_dependent_blocks_are_read_and_told_apart() {
        let data = b"the same words again and again ".repeat(20_000);
        let packed = linked_lz4(&data);
        assert_eq!(decompress(Compression::Lz4, &packed, data.len()).as_deref(), Ok(&data[..]));
        assert!(!kafka_reads_lz4(&packed));
    }

    #[test]
    fn what_follows_an_lz4_frame_is_ignored() {
        let packed = [compress(Compression::Lz4, None, b"data"), vec![0xff; 40]].concat();
        assert_eq!(decompress(Compression::Lz4, &packed, 100).as_deref(), Ok(&b"data"[..]));
    }

    #[test]
    fn levels_beyond_the_scale_are_brought_into_it() {
        for codec in [Compression::Gzip, Compression::Zstd] {
            for level in [i32::MIN, -1, 0, 1, 9, 1000] {
                let packed = compress(codec, Some(level), b"data data data");
                assert_eq!(
                    decompress(codec, &packed, 100).as_deref(),
                    Ok(&b"data data data"[..]),
                    "{codec} {level}"
                );
            }
        }
    }

    #[test]
    fn names_and_ids_are_kafkas() {
        for (id, name) in ["none", "gzip", "snappy", "lz4", "zstd"].into_iter().enumerate() {
            let codec = Compression::from_id(id as i8).unwrap();
            assert_eq!((codec.name(), codec.id()), (name, id as i8));
            assert_eq!(name.parse(), Ok(codec));
        }
        assert_eq!(Compression::from_id(5), Err(CodecError::UnknownId(5)));
        assert_eq!(Compression::from_id(-1), Err(CodecError::UnknownId(-1)));
        assert_eq!("zip".parse::<Compression>(), Err(CodecError::UnknownName("zip".into())));
    }

    proptest! {
        #[test]
        fn what_is_compressed_decompresses(
            data in prop::collection::vec(0u8..8, 0..3000),
            repeat in 1usize..100,
        ) {
            let data = data.repeat(repeat);
            for codec in Compression::ALL {
                let packed = compress(codec, None, &data);
                prop_assert_eq!(decompress(codec, &packed, data.len()), Ok(data.clone()));
            }
        }

        #[test]
        fn any_bytes_decompress_or_are_refused(data in prop::collection::vec(any::<u8>(), 0..400)) {
            for codec in Compression::ALL {
                if let Ok(out) = decompress(codec, &data, 5000) {
                    prop_assert!(out.len() <= 5000);
                }
            }
        }

        /// Damage in the middle of a real stream reaches deeper into the decoders than noise does.
        #[test]
        fn damaged_streams_stay_bounded(
            seed in prop::collection::vec(0u8..4, 1..2000),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            for codec in Compression::ALL {
                let mut packed = compress(codec, None, &seed);
                let at = at.index(packed.len());
                packed[at] = byte;
                if let Ok(out) = decompress(codec, &packed, 5000) {
                    prop_assert!(out.len() <= 5000);
                }
            }
        }

        /// Blocks that refer to each other through the decoder's window are damaged likewise.
        #[test]
        fn damaged_windows_stay_bounded(
            seed in prop::collection::vec(0u8..4, 1..2000),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let data = seed.repeat(400_000 / seed.len());
            for (codec, mut packed) in
                [(Compression::Lz4, linked_lz4(&data)), (Compression::Zstd, compress(Compression::Zstd, None, &data))]
            {
                let at = at.index(packed.len());
                packed[at] = byte;
                if let Ok(out) = decompress(codec, &packed, 500_000) {
                    prop_assert!(out.len() <= 500_000);
                }
            }
        }
    }

    fn linked_lz4(data: &[u8]) -> Vec<u8> {
        use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
        let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Linked);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        io::Write::write_all(&mut encoder, data).unwrap();
        encoder.finish().unwrap()
    }
}
