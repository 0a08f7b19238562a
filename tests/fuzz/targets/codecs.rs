//! The codecs: each with what ours and others write. The output is limited, and memory follows the limit.

use bytes::Bytes;
use tarn_record::{Compression, Decoder, compress, decompress};

use crate::checksums;
use crate::engine::{Says, Steps, Target};

/// The most that is decompressed.
const LIMIT: usize = 256 * 1024;

/// The output while it grows: twice its size, once at up to double that.
const OUTPUT_BYTES: usize = 4 * LIMIT;

/// lz4 frames have blocks of up to 4 MiB, and the decoder has room for two and what came before.
const LZ4_BYTES: usize = 13 << 20;

/// Of zstd nothing is counted: its memory is the C library's.
const WINDOW_BYTES: usize = 64 * 1024;

/// Bytes that are asked for at once.
const SLICE_BYTES: usize = 5000;

pub(crate) fn all() -> Vec<Target> {
    vec![
        target(Compression::None, "codec.none", OUTPUT_BYTES).inputs(1000),
        target(Compression::Gzip, "codec.gzip", OUTPUT_BYTES + WINDOW_BYTES).inputs(3000),
        target(Compression::Snappy, "codec.snappy", OUTPUT_BYTES + 2 * LIMIT).seeds(snappy()),
        target(Compression::Lz4, "codec.lz4", OUTPUT_BYTES + LZ4_BYTES)
            .seeds(lz4())
            .inputs(4000)
            .repair(checksums::lz4_header),
        target(Compression::Zstd, "codec.zstd", OUTPUT_BYTES + WINDOW_BYTES),
    ]
}

fn target(compression: Compression, name: &str, memory: usize) -> Target {
    let seeds = plain().into_iter().map(move |data| compress(compression, None, &data));
    let decode = move |input: Bytes, steps: &mut Steps| {
        let whole = decompress(compression, &input, LIMIT);
        let in_slices = in_slices(compression, &input, steps);
        assert_eq!(whole.is_ok(), in_slices.is_ok(), "{whole:?}, in slices {in_slices:?}");
        if let (Ok(whole), Ok(sliced)) = (&whole, &in_slices) {
            assert_eq!(whole.len(), *sliced, "in slices there are others");
        }
        Says::result(&whole, Vec::len)
    };
    Target::new(name, decode).seeds(seeds).memory(16, memory).steps(0, LIMIT + 2).inputs(8000)
}

fn in_slices(compression: Compression, input: &Bytes, steps: &mut Steps) -> Result<usize, String> {
    let decoder = Decoder::new(compression, input, LIMIT);
    let mut decoder = decoder.map_err(|error| error.to_string())?;
    let (mut read, mut out) = (0, Vec::new());
    loop {
        steps.take();
        out.clear();
        match decoder.read_slice(&mut out, SLICE_BYTES).map_err(|error| error.to_string())? {
            0 => return Ok(read),
            more => read += more,
        }
        assert!(read <= LIMIT, "{read} bytes, more than the limit");
    }
}

/// Nothing, text, what repeats for long, what does not repeat.
fn plain() -> [Vec<u8>; 5] {
    let noise: Vec<u8> = (0..600u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
    [
        Vec::new(),
        b"a".to_vec(),
        b"the same words again and again ".repeat(30),
        b"0123456789".repeat(10_000),
        [noise, vec![7; 70_000]].concat(),
    ]
}

/// One raw block without a frame, as some clients send it, and two streams one after the other.
fn snappy() -> Vec<Vec<u8>> {
    let framed = compress(Compression::Snappy, None, &plain()[2]);
    // Behind magic, two versions and the length of the only block.
    vec![framed[20..].to_vec(), [framed.clone(), framed].concat()]
}

/// Frames that ours does not write: of blocks that depend on each other, with sizes and checksums.
fn lz4() -> Vec<Vec<u8>> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;

    let mut frames = Vec::new();
    for (mode, checked) in
        [(BlockMode::Linked, false), (BlockMode::Linked, true), (BlockMode::Independent, true)]
    {
        for data in &plain()[1..] {
            let info = FrameInfo::new().block_mode(mode).block_size(BlockSize::Max64KB);
            let info = info.block_checksums(checked).content_checksum(checked);
            let info = info.content_size(checked.then_some(data.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(data).expect("it fits in memory");
            frames.push(encoder.finish().expect("it fits in memory"));
        }
    }
    frames
}
