//! Reading the protocol's primitive values out of a frame.
//!
//! Everything that arrives passes through here, so this is where hostile bytes are met. Owned by whoever
//! decodes a frame. Invariants, whatever the bytes:
//! * nothing panics, and nothing is read past the end of the frame or of the tagged field being read;
//! * strings, bytes and records are slices of the frame, not copies;
//! * a count is believed only as far as the bytes left could hold that many of the smallest elements, and
//!   memory is taken as elements prove real, never because a count announced them.

use bytes::Bytes;
use thiserror::Error;
use uuid::Uuid;

use crate::limits::{ARRAY_ELEMENTS_MAX, STRING_BYTES_MAX, TAGGED_FIELDS_MAX};
use crate::message::Form;
use crate::parts::Records;
use crate::text::Str;

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
    #[error("the section at byte {at} announces {count} tagged fields")]
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

/// Whether a tagged field's reader knew the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Its value has been read.
    Known,
    /// Nothing has been read; the cursor skips the value.
    Unknown,
}

/// A position in a frame.
#[derive(Clone, Debug)]
pub struct Cursor {
    frame: Bytes,
    at: usize,
    /// No value reaches past this: the frame's end, or that of the tagged field being read.
    end: usize,
}

impl Cursor {
    /// At the start of `frame`.
    pub fn new(frame: Bytes) -> Cursor {
        let end = frame.len();
        Cursor { frame, at: 0, end }
    }

    /// The bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// How many bytes have been read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// What has not been read, as a slice of the frame.
    pub fn rest(&self) -> Bytes {
        self.frame.slice(self.at..self.end)
    }

    /// That everything has been read.
    ///
    /// # Errors
    /// `Trailing` where something is left.
    pub fn expect_end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing { at: self.at, left }),
        }
    }

    /// The next `size` bytes, as a slice of the frame.
    ///
    /// # Errors
    /// `Truncated` where fewer are left.
    pub fn take(&mut self, size: usize) -> Result<Bytes, DecodeError> {
        let from = self.advance(size)?;
        Ok(if size == 0 { Bytes::new() } else { self.frame.slice(from..from + size) })
    }

    /// A `bool`: any byte but 0 is true.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.array::<1>()?[0] != 0)
    }

    /// An `int8`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    /// An `int16`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// A `uint16`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// An `int32`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A `uint32`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// An `int64`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A `float64`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_f64(&mut self) -> Result<f64, DecodeError> {
        Ok(f64::from_be_bytes(self.array()?))
    }

    /// A `uuid`.
    ///
    /// # Errors
    /// `Truncated` at the end of the bytes.
    pub fn get_uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    /// An unsigned variable-length number of at most 32 bits.
    ///
    /// # Errors
    /// `Truncated`, or `VarintTooLong`.
    pub fn get_uvarint(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        let mut value = 0u32;
        for group in 0..5 {
            let byte = self.array::<1>()?[0];
            if group == 4 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << (7 * group);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong { at })
    }

    /// A string that is there.
    ///
    /// # Errors
    /// What `get_nullable_string` says, and `Null`.
    pub fn get_string(&mut self, form: Form) -> Result<Str, DecodeError> {
        let at = self.at;
        self.get_nullable_string(form)?.ok_or(DecodeError::Null { at, what: "a string" })
    }

    /// A string, or null.
    ///
    /// # Errors
    /// `Truncated`, `NegativeLength`, `StringTooLong` or `NotUtf8`.
    pub fn get_nullable_string(&mut self, form: Form) -> Result<Option<Str>, DecodeError> {
        let at = self.at;
        let length = match form {
            Form::Fixed => {
                let length = self.get_i16()?;
                non_negative(at, i32::from(length))?
            }
            Form::Compact => self.compact_length()?,
        };
        let Some(length) = length else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::StringTooLong { at, length });
        }
        let text_at = self.at;
        let text = self.take(length)?;
        Str::from_utf8(text).map(Some).ok_or(DecodeError::NotUtf8 { at: text_at })
    }

    /// Bytes that are there.
    ///
    /// # Errors
    /// What `get_nullable_bytes` says, and `Null`.
    pub fn get_bytes(&mut self, form: Form) -> Result<Bytes, DecodeError> {
        let at = self.at;
        self.get_nullable_bytes(form)?.ok_or(DecodeError::Null { at, what: "a byte field" })
    }

    /// Bytes, or null.
    ///
    /// # Errors
    /// `Truncated` or `NegativeLength`.
    pub fn get_nullable_bytes(&mut self, form: Form) -> Result<Option<Bytes>, DecodeError> {
        match self.length(form)? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    /// Record batches that are there.
    ///
    /// # Errors
    /// What `get_nullable_bytes` says, and `Null`.
    pub fn get_records(&mut self, form: Form) -> Result<Records, DecodeError> {
        self.get_bytes(form).map(Records::from)
    }

    /// Record batches, or null.
    ///
    /// # Errors
    /// What `get_nullable_bytes` says.
    pub fn get_nullable_records(&mut self, form: Form) -> Result<Option<Records>, DecodeError> {
        Ok(self.get_nullable_bytes(form)?.map(Records::from))
    }

    /// An array that is there. `smallest` is the least that an element takes, at least 1.
    ///
    /// # Errors
    /// What `get_nullable_array` says, and `Null`.
    pub fn get_array<T>(
        &mut self,
        form: Form,
        smallest: usize,
        element: impl FnMut(&mut Cursor) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let at = self.at;
        self.get_nullable_array(form, smallest, element)?.ok_or(DecodeError::Null { at, what: "an array" })
    }

    /// An array, or null. `smallest` is the least that an element takes, at least 1.
    ///
    /// # Errors
    /// `Truncated`, `NegativeLength`, `TooManyElements`, and what `element` says.
    pub fn get_nullable_array<T>(
        &mut self,
        form: Form,
        smallest: usize,
        mut element: impl FnMut(&mut Cursor) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let at = self.at;
        let Some(count) = self.length(form)? else { return Ok(None) };
        let possible = (self.remaining() / smallest.max(1)).min(ARRAY_ELEMENTS_MAX);
        if count > possible {
            return Err(DecodeError::TooManyElements { at, count, possible });
        }
        let believed = count.min(self.remaining() / size_of::<T>().max(1));
        let mut elements = Vec::with_capacity(believed);
        for read in 0..count {
            if elements.len() == elements.capacity() {
                elements.reserve_exact((count - read).min(read.max(4)));
            }
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// The byte that says whether a nullable struct follows.
    ///
    /// # Errors
    /// `Truncated` or `Presence`.
    pub fn get_presence(&mut self) -> Result<bool, DecodeError> {
        let at = self.at;
        match self.get_i8()? {
            1 => Ok(true),
            -1 => Ok(false),
            value => Err(DecodeError::Presence { at, value }),
        }
    }

    /// A section of tagged fields. `field` reads the value of a tag it knows; the value of another is
    /// skipped.
    ///
    /// # Errors
    /// `Truncated`, `TooManyTags`, `TagOrder`, `Trailing` where a known value does not fill its field, and
    /// what `field` says.
    pub fn get_tags(
        &mut self,
        mut field: impl FnMut(u32, &mut Cursor) -> Result<Tag, DecodeError>,
    ) -> Result<(), DecodeError> {
        let at = self.at;
        let count = self.get_uvarint()? as usize;
        if count > TAGGED_FIELDS_MAX {
            return Err(DecodeError::TooManyTags { at, count });
        }
        let mut previous = None;
        for _ in 0..count {
            let at = self.at;
            let tag = self.get_uvarint()?;
            if previous >= Some(tag) {
                return Err(DecodeError::TagOrder { at, tag });
            }
            previous = Some(tag);
            let size = self.get_uvarint()? as usize;
            self.within(size, |cursor| field(tag, cursor))?;
        }
        Ok(())
    }

    /// Skips a section of tagged fields of which none is known.
    ///
    /// # Errors
    /// What `get_tags` says.
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        self.get_tags(|_, _| Ok(Tag::Unknown))
    }

    /// Runs `read` on the next `size` bytes alone.
    fn within(
        &mut self,
        size: usize,
        read: impl FnOnce(&mut Cursor) -> Result<Tag, DecodeError>,
    ) -> Result<(), DecodeError> {
        let outer_end = self.end;
        let from = self.at;
        self.advance(size)?;
        (self.end, self.at) = (self.at, from);
        if read(self)? == Tag::Unknown {
            self.at = self.end;
        }
        self.expect_end()?;
        self.end = outer_end;
        Ok(())
    }

    /// The length of bytes or an array; `None` is null.
    fn length(&mut self, form: Form) -> Result<Option<usize>, DecodeError> {
        let at = self.at;
        match form {
            Form::Fixed => {
                let length = self.get_i32()?;
                non_negative(at, length)
            }
            Form::Compact => self.compact_length(),
        }
    }

    fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        Ok((self.get_uvarint()? as usize).checked_sub(1))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.frame[self.at..self.end].first_chunk::<N>() {
            Some(chunk) => {
                let chunk = *chunk;
                self.at += N;
                Ok(chunk)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// Moves past `size` bytes and says where they began.
    fn advance(&mut self, size: usize) -> Result<usize, DecodeError> {
        if size > self.remaining() {
            return Err(self.truncated(size));
        }
        let from = self.at;
        self.at += size;
        Ok(from)
    }

    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated { at: self.at, needed, left: self.remaining() }
    }
}

/// -1 is null; less is malformed.
fn non_negative(at: usize, length: i32) -> Result<Option<usize>, DecodeError> {
    match length {
        -1 => Ok(None),
        _ => usize::try_from(length).map(Some).map_err(|_| DecodeError::NegativeLength { at, length }),
    }
}
