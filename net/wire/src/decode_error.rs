//! Why bytes are refused.

use thiserror::Error;

use crate::limits::{STRING_BYTES_MAX, TAGGED_FIELDS_MAX};

/// Why bytes are not the message they should be. `at` is the position in the frame.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The value ends after the bytes do.
    #[error("the value at byte {at} takes {needed} bytes and {left} are left")]
    Truncated {
        /// Where the value begins.
        at: usize,
        /// Its size.
        needed: usize,
        /// The bytes left.
        left: usize,
    },
    /// A length or count below -1.
    #[error("the length at byte {at} is {length}")]
    NegativeLength {
        /// Where the length is.
        at: usize,
        /// What it says.
        length: i32,
    },
    /// A null where the version allows none.
    #[error("{what} at byte {at} is null")]
    Null {
        /// Where it is.
        at: usize,
        /// The field or kind of value.
        what: &'static str,
    },
    /// More elements than the bytes left can hold, or than `ARRAY_ELEMENTS_MAX`.
    #[error("the array at byte {at} announces {count} elements where at most {possible} are possible")]
    TooManyElements {
        /// Where the count is.
        at: usize,
        /// What it says.
        count: usize,
        /// What would have been possible.
        possible: usize,
    },
    /// A string longer than Kafka's.
    #[error("the string at byte {at} has {length} bytes, more than {STRING_BYTES_MAX}")]
    StringTooLong {
        /// Where the length is.
        at: usize,
        /// What it says.
        length: usize,
    },
    /// A string that is not UTF-8.
    #[error("the string at byte {at} is not UTF-8")]
    NotUtf8 {
        /// Where the text begins.
        at: usize,
    },
    /// A variable-length number that does not end within five bytes, or exceeds 32 bits.
    #[error("the variable-length number at byte {at} does not fit 32 bits")]
    VarintTooLong {
        /// Where it begins.
        at: usize,
    },
    /// More than `TAGGED_FIELDS_MAX` tagged fields.
    #[error("the section at byte {at} announces {count} tagged fields, more than {TAGGED_FIELDS_MAX}")]
    TooManyTags {
        /// Where the count is.
        at: usize,
        /// What it says.
        count: usize,
    },
    /// A tag that is not above the one before it.
    #[error("tag {tag} at byte {at} is not above the one before it")]
    TagOrder {
        /// Where the tag is.
        at: usize,
        /// The tag.
        tag: u32,
    },
    /// A presence byte other than -1 and 1.
    #[error("the presence byte at byte {at} is {value}")]
    Presence {
        /// Where it is.
        at: usize,
        /// What it says.
        value: i8,
    },
    /// Bytes after the end of the value.
    #[error("{left} bytes follow the value that ends at byte {at}")]
    Trailing {
        /// Where the value ends.
        at: usize,
        /// How many bytes follow.
        left: usize,
    },
    /// A version that the schema does not have.
    #[error("{message} has versions {min} to {max}, not {version}")]
    UnsupportedVersion {
        /// The message's name.
        message: &'static str,
        /// The version asked for.
        version: i32,
        /// The lowest version there is.
        min: i16,
        /// The highest.
        max: i16,
    },
    /// A framing version of metadata records other than 1, or a key that cannot be one.
    #[error("a metadata record begins with {value} where {expected} is expected")]
    RecordFrame {
        /// What was read.
        value: u32,
        /// What should stand there.
        expected: &'static str,
    },
    /// A coordinator record of another type than the one asked for.
    #[error("a {record} has type {expected}, not {found}")]
    RecordType {
        /// The record asked for.
        record: &'static str,
        /// Its type.
        expected: i16,
        /// The type found.
        found: i16,
    },
}
