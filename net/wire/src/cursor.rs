//! Reading the protocol's primitive values out of a frame.
//!
//! Everything that arrives passes through here, so this is where hostile bytes are met. Owned by whoever
//! decodes a frame. Invariants, whatever the bytes:
//! * nothing panics, and nothing is read past the end of the frame or of the tagged field being read;
//! * strings, bytes and records are slices of the frame, not copies;
//! * a count is believed only as far as the bytes left could hold that many of the smallest elements, and
//!   memory is taken as elements prove real, never because a count announced them.

use bytes::Bytes;
use uuid::Uuid;

use crate::decode_error::DecodeError;
use crate::limits::{ARRAY_ELEMENTS_MAX, STRING_BYTES_MAX, TAGGED_FIELDS_MAX};
use crate::message::Form;
use crate::parts::Records;
use crate::text::Str;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_once_and_the_next_follows() {
        let mut cursor = cursor(&[0x01, 0x02, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(cursor.get_i16(), Ok(0x0102));
        assert_eq!(cursor.get_i32(), Ok(-1));
        assert_eq!(cursor.get_i8(), Err(DecodeError::Truncated { at: 6, needed: 1, left: 0 }));
    }

    #[test]
    fn a_variable_length_number_ends_within_five_bytes() {
        assert_eq!(cursor(&[0x7f]).get_uvarint(), Ok(127));
        assert_eq!(cursor(&[0xac, 0x02]).get_uvarint(), Ok(300));
        assert_eq!(cursor(&[0xff, 0xff, 0xff, 0xff, 0x0f]).get_uvarint(), Ok(u32::MAX));
        let too_large = [0xff, 0xff, 0xff, 0xff, 0x1f];
        assert_eq!(cursor(&too_large).get_uvarint(), Err(DecodeError::VarintTooLong { at: 0 }));
        assert_eq!(cursor(&[0x80; 6]).get_uvarint(), Err(DecodeError::VarintTooLong { at: 0 }));
    }

    #[test]
    fn minus_one_is_null_and_less_is_malformed() {
        assert_eq!(cursor(&[0xff, 0xff]).get_nullable_string(Form::Fixed), Ok(None));
        assert_eq!(cursor(&[0x00]).get_nullable_string(Form::Compact), Ok(None));
        let below = cursor(&[0xff, 0xfe]).get_nullable_string(Form::Fixed);
        assert_eq!(below, Err(DecodeError::NegativeLength { at: 0, length: -2 }));
        let null = cursor(&[0x00]).get_string(Form::Compact);
        assert_eq!(null, Err(DecodeError::Null { at: 0, what: "a string" }));
    }

    #[test]
    fn a_string_longer_than_kafkas_is_refused() {
        let mut bytes = vec![0x81, 0x80, 0x02];
        bytes.extend([b'a'; STRING_BYTES_MAX + 1]);
        let refused = cursor(&bytes).get_string(Form::Compact);
        assert_eq!(refused, Err(DecodeError::StringTooLong { at: 0, length: STRING_BYTES_MAX + 1 }));
    }

    #[test]
    fn a_count_that_the_bytes_cannot_hold_is_refused() {
        let mut cursor = cursor(&[0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8]);
        let refused = cursor.get_array(Form::Fixed, 4, Cursor::get_i32);
        assert_eq!(refused, Err(DecodeError::TooManyElements { at: 0, count: 3, possible: 2 }));
    }

    #[test]
    fn more_than_a_million_elements_are_refused_even_where_they_are_there() {
        let mut bytes = (ARRAY_ELEMENTS_MAX as i32 + 1).to_be_bytes().to_vec();
        bytes.extend(vec![0; ARRAY_ELEMENTS_MAX + 1]);
        let refused = cursor(&bytes).get_array(Form::Fixed, 1, Cursor::get_i8);
        let count = ARRAY_ELEMENTS_MAX + 1;
        assert_eq!(refused, Err(DecodeError::TooManyElements { at: 0, count, possible: ARRAY_ELEMENTS_MAX }));
    }

    #[test]
    fn an_unknown_tagged_field_is_skipped_whatever_is_in_it() {
        let mut cursor = cursor(&[2, 5, 2, 0xaa, 0xbb, 9, 1, 7, 0x11]);
        let mut seen = Vec::new();
        cursor
            .get_tags(|tag, field| {
                if tag != 9 {
                    return Ok(Tag::Unknown);
                }
                seen.push(field.get_i8()?);
                Ok(Tag::Known)
            })
            .unwrap();
        assert_eq!(seen, [7]);
        assert_eq!(cursor.rest()[..], [0x11]);
    }

    #[test]
    fn tags_ascend() {
        let repeated = cursor(&[2, 5, 0, 5, 0]).skip_tags();
        assert_eq!(repeated, Err(DecodeError::TagOrder { at: 3, tag: 5 }));
        let descending = cursor(&[2, 5, 0, 4, 0]).skip_tags();
        assert_eq!(descending, Err(DecodeError::TagOrder { at: 3, tag: 4 }));
    }

    #[test]
    fn too_many_tagged_fields_are_refused_before_the_first() {
        let refused = cursor(&[0x91, 0x4e]).skip_tags();
        assert_eq!(refused, Err(DecodeError::TooManyTags { at: 0, count: 10_001 }));
    }

    #[test]
    fn a_known_tagged_field_fills_its_size_exactly() {
        let read = |bytes: &[u8]| {
            cursor(bytes).get_tags(|_, field| {
                field.get_i16()?;
                Ok(Tag::Known)
            })
        };
        assert_eq!(read(&[1, 0, 2, 0, 0]), Ok(()));
        assert_eq!(read(&[1, 0, 3, 0, 0, 0]), Err(DecodeError::Trailing { at: 5, left: 1 }));
        let over_the_end = DecodeError::Truncated { at: 3, needed: 2, left: 1 };
        assert_eq!(read(&[1, 0, 1, 0, 0]), Err(over_the_end), "a value cannot reach past its field");
    }

    fn cursor(bytes: &[u8]) -> Cursor {
        Cursor::new(Bytes::copy_from_slice(bytes))
    }
}
