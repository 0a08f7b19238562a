//! Which partition a key goes to: as in Kafka's Java client, so that records of a key meet whoever wrote
//! them.

/// The partition of `key` among `count`.
pub(crate) fn partition_of(key: &[u8], count: i32) -> i32 {
    (murmur2(key) & i32::MAX) % count.max(1)
}

/// 32-bit MurmurHash2 with the seed of Kafka's clients.
fn murmur2(bytes: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const MULTIPLIER: u32 = 0x5bd1_e995;
    const SHIFT: u32 = 24;
    let mix = |word: u32| {
        let word = word.wrapping_mul(MULTIPLIER);
        (word ^ (word >> SHIFT)).wrapping_mul(MULTIPLIER)
    };
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_mul(MULTIPLIER) ^ mix(u32::from_le_bytes(*word));
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER);
    (hash ^ (hash >> 15)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_kafkas_clients() {
        // From Kafka's own test of its murmur2.
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn every_key_has_a_partition() {
        for key in 0..1000u32 {
            assert!((0..7).contains(&partition_of(&key.to_be_bytes(), 7)));
        }
        assert_eq!(partition_of(b"", 1), 0);
    }
}
