//! The limits of what this crate decodes and how it encodes. Apache Kafka 4.4 draws the first three too.

/// The most elements that one array may announce.
pub const ARRAY_ELEMENTS_MAX: usize = 1_000_000;

/// The most fields that one tagged-field section may announce.
pub const TAGGED_FIELDS_MAX: usize = 10_000;

/// The longest string, in bytes of UTF-8.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// From this size on, bytes go into a frame as a part of their own instead of being copied.
pub const SHARED_PART_BYTES_MIN: usize = 4096;
