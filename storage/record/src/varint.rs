//! Zig-zag varints: how every number inside a record is written.
//!
//! Readers return `None` both where the bytes end too early and where a number is longer than its type
//! allows. Bits that do not fit the type are dropped, as Kafka drops them.

/// The longest `int32` takes this many bytes.
pub(crate) const MAX_I32_BYTES: usize = 5;
const MAX_I64_BYTES: usize = 10;

/// Reads a `varint` and returns it with the bytes after it.
#[inline]
pub(crate) fn read_i32(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (raw, rest) = read_unsigned(bytes, MAX_I32_BYTES)?;
    let raw = raw as u32;
    Some(((raw >> 1) as i32 ^ -((raw & 1) as i32), rest))
}

/// Reads a `varlong` and returns it with the bytes after it.
#[inline]
pub(crate) fn read_i64(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (raw, rest) = read_unsigned(bytes, MAX_I64_BYTES)?;
    Some(((raw >> 1) as i64 ^ -((raw & 1) as i64), rest))
}

/// Appends `value` as a `varint`.
pub(crate) fn write_i32(out: &mut Vec<u8>, value: i32) {
    write_unsigned(out, zig_zag_i32(value));
}

/// Appends `value` as a `varlong`.
pub(crate) fn write_i64(out: &mut Vec<u8>, value: i64) {
    write_unsigned(out, zig_zag_i64(value));
}

/// How many bytes `write_i32` appends.
pub(crate) fn bytes_of_i32(value: i32) -> usize {
    unsigned_bytes(zig_zag_i32(value))
}

/// How many bytes `write_i64` appends.
pub(crate) fn bytes_of_i64(value: i64) -> usize {
    unsigned_bytes(zig_zag_i64(value))
}

fn zig_zag_i32(value: i32) -> u64 {
    u64::from(((value << 1) ^ (value >> 31)) as u32)
}

fn zig_zag_i64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unsigned_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn read_unsigned(bytes: &[u8], longest: usize) -> Option<(u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((u64::from(first), rest));
    }
    let mut value = u64::from(first & 0x7f);
    for (index, &byte) in bytes.iter().enumerate().take(longest).skip(1) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

fn write_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_zig_zag_so_that_small_negatives_stay_small() {
        for (value, bytes) in [
            (0, &[0u8][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (64, &[0x80, 1]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut written = Vec::new();
            write_i32(&mut written, value);
            assert_eq!(written, bytes, "{value}");
            assert_eq!(read_i32(bytes), Some((value, &[][..])));
        }
    }

    #[test]
    fn a_number_that_ends_early_or_never_is_none() {
        assert_eq!(read_i32(&[]), None);
        assert_eq!(read_i32(&[0x80, 0x80]), None);
        assert_eq!(read_i32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!(read_i64(&[0xff; 11]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(int in any::<i32>(), long in any::<i64>()) {
            let mut bytes = Vec::new();
            write_i32(&mut bytes, int);
            prop_assert_eq!(bytes.len(), bytes_of_i32(int));
            write_i64(&mut bytes, long);
            prop_assert_eq!(bytes.len(), bytes_of_i32(int) + bytes_of_i64(long));
            let (read_int, rest) = read_i32(&bytes).unwrap();
            prop_assert_eq!(read_int, int);
            prop_assert_eq!(read_i64(rest), Some((long, &[][..])));
        }
    }
}
