//! Compresses in pieces, so that a long batch does not hold up its core.

use std::io::Write;

use super::{Compression, snappy};

const TO_MEMORY: &str = "writing to a Vec does not fail";

/// Kafka's default of `compression.lz4.level`, for which it takes the fast compressor: its levels are those of the other.
const LZ4_FAST: i32 = 9;
/// The quickest and the slowest level of that; below is another method, which Kafka's library does not have.
const LZ4_LEAST: i32 = 3;
const LZ4_MOST: i32 = 12;

/// One stream of one codec, in memory. What it holds beyond its output is the codec's own state.
pub struct Encoder(Codec);

enum Codec {
    None(Vec<u8>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Snappy(Box<snappy::SnappyWriter>),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Vec<u8>>>),
    Lz4High(lz4::Encoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Begins a stream of about `expected_bytes`. `level` is the codec's own scale, brought into its range; `None` is
    /// its default. Snappy has no levels. Lz4's 9 is its fast way, as for Kafka's Java clients; all others are slower and
    /// make less of it.
    ///
    /// What zstd looks back over, and the tables for it, are made for a stream of that length: those of its highest
    /// levels alone are hundreds of MB, for each batch.
    ///
    /// # Panics
    /// Where zstd, or lz4 for another level than 9, finds no memory.
    pub fn new(compression: Compression, level: Option<i32>, expected_bytes: usize) -> Encoder {
        Encoder(match compression {
            Compression::None => Codec::None(Vec::new()),
            Compression::Gzip => Codec::Gzip(flate2::write::GzEncoder::new(Vec::new(), gzip_level(level))),
            Compression::Snappy => Codec::Snappy(Box::default()),
            Compression::Lz4 => match level {
                None | Some(LZ4_FAST) => Codec::Lz4(Box::new(lz4())),
                Some(level) => Codec::Lz4High(lz4_high(level)),
            },
            Compression::Zstd => {
                let encoder = zstd::stream::write::Encoder::new(Vec::new(), zstd_level(level));
                let mut encoder = encoder.expect("there is memory for zstd's window");
                encoder.window_log(window_log(expected_bytes)).expect("it is in zstd's range");
                Codec::Zstd(encoder)
            }
        })
    }

    /// Adds `data` to the stream.
    pub fn write(&mut self, data: &[u8]) {
        match &mut self.0 {
            Codec::None(out) => out.extend_from_slice(data),
            Codec::Gzip(encoder) => encoder.write_all(data).expect(TO_MEMORY),
            Codec::Snappy(writer) => writer.write(data),
            Codec::Lz4(encoder) => encoder.write_all(data).expect(TO_MEMORY),
            Codec::Lz4High(encoder) => encoder.write_all(data).expect(TO_MEMORY),
            Codec::Zstd(encoder) => encoder.write_all(data).expect(TO_MEMORY),
        }
    }

    /// How much of the stream is there so far; the codec may hold back some more.
    pub fn written(&self) -> usize {
        match &self.0 {
            Codec::None(out) => out.len(),
            Codec::Gzip(encoder) => encoder.get_ref().len(),
            Codec::Snappy(writer) => writer.written(),
            Codec::Lz4(encoder) => encoder.get_ref().len(),
            Codec::Lz4High(encoder) => encoder.writer().len(),
            Codec::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    /// Ends the stream: all of it.
    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            Codec::None(out) => out,
            Codec::Gzip(encoder) => encoder.finish().expect(TO_MEMORY),
            Codec::Snappy(writer) => writer.finish(),
            Codec::Lz4(encoder) => encoder.finish().expect(TO_MEMORY),
            Codec::Lz4High(encoder) => {
                let (out, ended) = encoder.finish();
                ended.expect(TO_MEMORY);
                out
            }
            Codec::Zstd(encoder) => encoder.finish().expect(TO_MEMORY),
        }
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

fn gzip_level(level: Option<i32>) -> flate2::Compression {
    level
        .filter(|&level| level >= 0)
        .map_or(flate2::Compression::default(), |level| flate2::Compression::new(level.clamp(0, 9) as u32))
}

fn lz4() -> lz4_flex::frame::FrameEncoder<Vec<u8>> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    FrameEncoder::with_frame_info(info, Vec::new())
}

/// The same frames, in which the C library has looked for longer matches. It reads nothing of them.
fn lz4_high(level: i32) -> lz4::Encoder<Vec<u8>> {
    let encoder = lz4::EncoderBuilder::new()
        .level(level.clamp(LZ4_LEAST, LZ4_MOST).unsigned_abs())
        .block_size(lz4::BlockSize::Max64KB)
        .block_mode(lz4::BlockMode::Independent)
        .block_checksum(lz4::liblz4::BlockChecksum::NoBlockChecksum)
        .checksum(lz4::ContentChecksum::NoChecksum)
        .build(Vec::new());
    encoder.expect("there is memory for lz4's tables")
}

/// The logarithm of the window for a stream of so many bytes, from 1 KiB to 1 MiB.
fn window_log(bytes: usize) -> u32 {
    bytes.clamp(1 << 10, 1 << 20).next_power_of_two().trailing_zeros()
}

fn zstd_level(level: Option<i32>) -> i32 {
    let range = zstd::compression_level_range();
    level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL).clamp(*range.start(), *range.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decompress, kafka_reads_lz4};
    use proptest::prelude::*;

    proptest! {
        /// However the data is cut, the stream is one that gives it back.
        #[test]
        fn pieces_are_one_stream(
            pieces in prop::collection::vec(prop::collection::vec(0u8..5, 0..50_000), 0..6),
        ) {
            let whole = pieces.concat();
            let with_level = [(Compression::Lz4, Some(2)), (Compression::Lz4, Some(17))];
            for (codec, level) in Compression::ALL.map(|codec| (codec, None)).into_iter().chain(with_level) {
                let mut encoder = Encoder::new(codec, level, whole.len());
                pieces.iter().for_each(|piece| encoder.write(piece));
                prop_assert_eq!(decompress(codec, &encoder.finish(), whole.len()), Ok(whole.clone()));
            }
        }
    }

    #[test]
    fn every_level_of_lz4_is_a_frame_that_kafka_reads_and_the_slow_ones_are_smaller() {
        let words = [&b"orders "[..], b"customers ", b"shipments ", b"invoices "];
        let data: Vec<u8> = (0u32..30_000).flat_map(|n| words[(n * n % 11 % 4) as usize]).copied().collect();
        let packed = |level| {
            let mut encoder = Encoder::new(Compression::Lz4, level, data.len());
            encoder.write(&data);
            let packed = encoder.finish();
            assert!(kafka_reads_lz4(&packed), "{level:?}");
            // Independent blocks of 64 KiB, no checksum but the header's, no size.
            assert_eq!(packed[4..6], [0x60, 0x40], "{level:?}");
            assert_eq!(decompress(Compression::Lz4, &packed, data.len()).as_ref(), Ok(&data), "{level:?}");
            packed.len()
        };
        let fast = packed(None);
        assert_eq!(packed(Some(9)), fast, "it is the default");
        let others: Vec<usize> =
            (1..=17).filter(|level| *level != 9).map(|level| packed(Some(level))).collect();
        assert!(others.iter().all(|bytes| *bytes < fast), "{fast}: {others:?}");
        assert_eq!(packed(Some(i32::MAX)), packed(Some(17)));
        packed(Some(i32::MIN));
    }
}
