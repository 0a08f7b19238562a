//! Checksums and lengths made right again after a change, so that what is behind them is reached.

#![allow(clippy::ptr_arg, reason = "each is an engine::Change, which may make an input longer")]

use crate::mutation::Mutator;

const BATCH_HEADER_BYTES: usize = 61;
const LOG_OVERHEAD: usize = 12;
const AT_LENGTH: usize = 8;
const AT_MAGIC: usize = 16;
const AT_CRC: usize = 17;
const AT_CRC_COVERS: usize = 21;

/// Record batches of format 2, one after the other.
pub(crate) fn batches(bytes: &mut Vec<u8>, mutator: &mut Mutator, _: &[u8]) {
    let mut at = 0;
    while bytes.len() - at >= BATCH_HEADER_BYTES {
        let rest = &mut bytes[at..];
        if mutator.random.u8(..8) > 0 {
            rest[AT_MAGIC] = 2;
        }
        let mut size = LOG_OVERHEAD + int32(rest, AT_LENGTH) as usize;
        if !(BATCH_HEADER_BYTES..=rest.len()).contains(&size) {
            if mutator.random.bool() {
                return;
            }
            size = rest.len();
            rest[AT_LENGTH..AT_LENGTH + 4].copy_from_slice(&((size - LOG_OVERHEAD) as i32).to_be_bytes());
        }
        if mutator.random.u8(..16) > 0 {
            let crc = crc32c::crc32c(&rest[AT_CRC_COVERS..size]);
            rest[AT_CRC..AT_CRC_COVERS].copy_from_slice(&crc.to_be_bytes());
        }
        at += size;
    }
}

/// A snapshot of producers: the CRC, and mostly the count.
pub(crate) fn producer_snapshot(bytes: &mut Vec<u8>, mutator: &mut Mutator, _: &[u8]) {
    const ENTRY_BYTES: usize = 46;
    if bytes.len() < 10 {
        return;
    }
    if mutator.random.u8(..4) > 0 {
        let entries = (bytes.len() - 10) / ENTRY_BYTES;
        bytes.truncate(10 + entries * ENTRY_BYTES);
        bytes[6..10].copy_from_slice(&(entries as i32).to_be_bytes());
    }
    let crc = crc32c::crc32c(&bytes[6..]);
    bytes[2..6].copy_from_slice(&crc.to_be_bytes());
}

/// The descriptor of an lz4 frame, whose checksum is a byte of XXH32.
pub(crate) fn lz4_header(bytes: &mut Vec<u8>, _: &mut Mutator, _: &[u8]) {
    const AT_FLAGS: usize = 4;
    const HAS_SIZE: u8 = 0x08;
    const HAS_DICTIONARY: u8 = 0x01;
    let Some(&flags) = bytes.get(AT_FLAGS) else { return };
    let size = 2 + if flags & HAS_SIZE > 0 { 8 } else { 0 } + if flags & HAS_DICTIONARY > 0 { 4 } else { 0 };
    let end = AT_FLAGS + size;
    if let Some(checksum) = bytes.get(AT_FLAGS..end).map(|descriptor| (xxh32_of_few(descriptor) >> 8) as u8)
        && let Some(found) = bytes.get_mut(end)
    {
        *found = checksum;
    }
}

/// XXH32 with seed 0 of fewer than 16 bytes.
fn xxh32_of_few(bytes: &[u8]) -> u32 {
    const PRIMES: [u32; 5] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1];
    let mut hash = PRIMES[4].wrapping_add(bytes.len() as u32);
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIMES[2]));
        hash = hash.rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for byte in rest {
        hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIMES[4]));
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash >> 13).wrapping_mul(PRIMES[2]);
    hash ^ hash >> 16
}

fn int32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As lz4 writes it for the descriptor of a frame of independent blocks of 64 KiB.
    #[test]
    fn the_checksum_of_an_lz4_header_is_lz4s() {
        assert_eq!((xxh32_of_few(&[0x60, 0x40]) >> 8) as u8, 0x82);
        assert_eq!(xxh32_of_few(b""), 0x02CC_5D05);
    }
}
