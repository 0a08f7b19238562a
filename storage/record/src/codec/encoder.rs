//! Compresses in pieces, so that a long batch does not hold up its core.

use std::io::Write;

use super::{Compression, snappy};

const TO_MEMORY: &str = "writing to a Vec does not fail";

/// One stream of one codec, in memory. What it holds beyond its output is the codec's own state.
pub struct Encoder(Codec);

enum Codec {
    None(Vec<u8>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Snappy(Box<snappy::SnappyWriter>),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Begins a stream of about `expected_bytes`. `level` is the codec's own scale, brought into its range; `None` is
    /// its default. Snappy and lz4 have no levels.
    ///
    /// What zstd looks back over, and the tables for it, are made for a stream of that length: those of its highest
    /// levels alone are hundreds of MB, for each batch.
    ///
    /// # Panics
    /// Where zstd finds no memory.
    pub fn new(compression: Compression, level: Option<i32>, expected_bytes: usize) -> Encoder {
        Encoder(match compression {
            Compression::None => Codec::None(Vec::new()),
            Compression::Gzip => Codec::Gzip(flate2::write::GzEncoder::new(Vec::new(), gzip_level(level))),
            Compression::Snappy => Codec::Snappy(Box::default()),
            Compression::Lz4 => Codec::Lz4(Box::new(lz4())),
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
    use crate::codec::decompress;
    use proptest::prelude::*;

    proptest! {
        /// However the data is cut, the stream is one that gives it back.
        #[test]
        fn pieces_are_one_stream(
            pieces in prop::collection::vec(prop::collection::vec(0u8..5, 0..50_000), 0..6),
        ) {
            let whole = pieces.concat();
            for codec in Compression::ALL {
                let mut encoder = Encoder::new(codec, None, whole.len());
                pieces.iter().for_each(|piece| encoder.write(piece));
                prop_assert_eq!(decompress(codec, &encoder.finish(), whole.len()), Ok(whole.clone()));
            }
        }
    }
}
