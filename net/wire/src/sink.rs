//! Writing the protocol's primitive values, into parts or into nothing.
//!
//! A message is written twice by the same code: once on a `Counter`, which tells the size that frames and
//! tagged fields announce, and once on a `PartsWriter`. Owned by whoever encodes a frame. Invariants:
//! * the two agree on every byte;
//! * record batches, and other bytes from `SHARED_PART_BYTES_MIN` on, are never copied.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;
use uuid::Uuid;

use crate::limits::{SHARED_PART_BYTES_MIN, STRING_BYTES_MAX};
use crate::message::Form;
use crate::parts::{Part, Records};

/// Why a message cannot be written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// A version that the schema does not have.
    #[error("{message} has versions {min} to {max}, not {version}")]
    UnsupportedVersion {
        /// The message's name.
        message: &'static str,
        /// The version asked for.
        version: i16,
        /// The lowest version there is.
        min: i16,
        /// The highest.
        max: i16,
    },
    /// A field has a value and the version has no place for it, nor may it be dropped.
    #[error("{field} has a value that version {version} cannot carry")]
    UnsupportedField {
        /// The struct and its field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field is null and the version allows no null.
    #[error("{field} is null, which version {version} does not allow")]
    Null {
        /// The struct and its field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A value longer than its length field can say.
    #[error("{what} of {length} bytes or elements is too long to be written")]
    TooLong {
        /// The kind of value.
        what: &'static str,
        /// Its length.
        length: usize,
    },
}

/// Where bytes go.
pub trait Sink {
    /// Writes bytes.
    fn put_slice(&mut self, bytes: &[u8]);

    /// Writes bytes that may be shared instead of copied.
    fn put_shared(&mut self, bytes: &Bytes);

    /// Writes a part of a `records` field.
    fn put_part(&mut self, part: &Part);

    /// A `bool`.
    fn put_bool(&mut self, value: bool) {
        self.put_slice(&[u8::from(value)]);
    }

    /// An `int8`.
    fn put_i8(&mut self, value: i8) {
        self.put_slice(&value.to_be_bytes());
    }

    /// An `int16`.
    fn put_i16(&mut self, value: i16) {
        self.put_slice(&value.to_be_bytes());
    }

    /// A `uint16`.
    fn put_u16(&mut self, value: u16) {
        self.put_slice(&value.to_be_bytes());
    }

    /// An `int32`.
    fn put_i32(&mut self, value: i32) {
        self.put_slice(&value.to_be_bytes());
    }

    /// A `uint32`.
    fn put_u32(&mut self, value: u32) {
        self.put_slice(&value.to_be_bytes());
    }

    /// An `int64`.
    fn put_i64(&mut self, value: i64) {
        self.put_slice(&value.to_be_bytes());
    }

    /// A `float64`.
    fn put_f64(&mut self, value: f64) {
        self.put_slice(&value.to_be_bytes());
    }

    /// A `uuid`.
    fn put_uuid(&mut self, value: Uuid) {
        self.put_slice(value.as_bytes());
    }

    /// An unsigned variable-length number.
    fn put_uvarint(&mut self, mut value: u32) {
        let mut bytes = [0; 5];
        let mut used = 0;
        while value >= 0x80 {
            bytes[used] = value as u8 | 0x80;
            value >>= 7;
            used += 1;
        }
        bytes[used] = value as u8;
        self.put_slice(&bytes[..=used]);
    }

    /// A string, or null.
    ///
    /// # Errors
    /// `TooLong` beyond `STRING_BYTES_MAX`.
    fn put_string(&mut self, form: Form, text: Option<&str>) -> Result<(), EncodeError> {
        let text = text.map(str::as_bytes);
        let length = text.map(<[u8]>::len);
        if length > Some(STRING_BYTES_MAX) {
            return Err(too_long("a string", length));
        }
        match form {
            Form::Fixed => self.put_i16(length.map_or(-1, |length| length as i16)),
            Form::Compact => self.put_uvarint(length.map_or(0, |length| length as u32 + 1)),
        }
        self.put_slice(text.unwrap_or_default());
        Ok(())
    }

    /// Bytes, or null.
    ///
    /// # Errors
    /// `TooLong` beyond 31 bits.
    fn put_bytes(&mut self, form: Form, bytes: Option<&Bytes>) -> Result<(), EncodeError> {
        self.put_length(form, "a byte field", bytes.map(Bytes::len))?;
        if let Some(bytes) = bytes {
            self.put_shared(bytes);
        }
        Ok(())
    }

    /// Record batches, or null.
    ///
    /// # Errors
    /// `TooLong` beyond 31 bits.
    fn put_records(&mut self, form: Form, records: Option<&Records>) -> Result<(), EncodeError> {
        self.put_length(form, "a records field", records.map(Records::len))?;
        for part in records.map(Records::parts).unwrap_or_default() {
            self.put_part(part);
        }
        Ok(())
    }

    /// An array, or null.
    ///
    /// # Errors
    /// `TooLong` beyond 31 bits, and what `element` says.
    fn put_array<T>(
        &mut self,
        form: Form,
        elements: Option<&[T]>,
        mut element: impl FnMut(&mut Self, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.put_length(form, "an array", elements.map(<[T]>::len))?;
        elements.unwrap_or_default().iter().try_for_each(|each| element(self, each))
    }

    /// The byte that says whether a nullable struct follows.
    fn put_presence(&mut self, present: bool) {
        self.put_i8(if present { 1 } else { -1 });
    }

    /// What stands before a tagged field's value.
    ///
    /// # Errors
    /// `TooLong` beyond 31 bits.
    fn put_tag(&mut self, tag: u32, size: usize) -> Result<(), EncodeError> {
        let length = i32::try_from(size).map_err(|_| too_long("a tagged field", Some(size)))?;
        self.put_uvarint(tag);
        self.put_uvarint(length as u32);
        Ok(())
    }

    /// The length of bytes or an array; `None` is null.
    ///
    /// # Errors
    /// `TooLong` beyond 31 bits.
    fn put_length(
        &mut self,
        form: Form,
        what: &'static str,
        length: Option<usize>,
    ) -> Result<(), EncodeError> {
        let fits = length.map(i32::try_from).transpose().map_err(|_| too_long(what, length))?;
        match form {
            Form::Fixed => self.put_i32(fits.unwrap_or(-1)),
            Form::Compact => self.put_uvarint(fits.map_or(0, |length| length as u32 + 1)),
        }
        Ok(())
    }
}

fn too_long(what: &'static str, length: Option<usize>) -> EncodeError {
    EncodeError::TooLong { what, length: length.unwrap_or_default() }
}

/// Whether `part` goes into a frame as it is, uncopied.
fn stays_apart(part: &Part) -> bool {
    match part {
        Part::Bytes(bytes) => bytes.len() >= SHARED_PART_BYTES_MIN,
        Part::File(_) => true,
    }
}

/// Counts what would be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    total: usize,
    copied: usize,
}

impl Counter {
    /// All bytes.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The bytes that a `PartsWriter` would copy into its buffer.
    pub fn copied(&self) -> usize {
        self.copied
    }
}

impl Sink for Counter {
    fn put_slice(&mut self, bytes: &[u8]) {
        self.total += bytes.len();
        self.copied += bytes.len();
    }

    fn put_shared(&mut self, bytes: &Bytes) {
        self.total += bytes.len();
        if bytes.len() < SHARED_PART_BYTES_MIN {
            self.copied += bytes.len();
        }
    }

    fn put_part(&mut self, part: &Part) {
        self.total += part.len();
        if !stays_apart(part) {
            self.copied += part.len();
        }
    }
}

/// The bytes that `write` writes.
///
/// # Errors
/// What `write` says.
pub fn measure(write: impl FnOnce(&mut Counter) -> Result<(), EncodeError>) -> Result<usize, EncodeError> {
    let mut counter = Counter::default();
    write(&mut counter)?;
    Ok(counter.total())
}

/// Gathers parts: small values flow into one buffer, large ones and files stay as they are.
#[derive(Debug, Default)]
pub struct PartsWriter {
    parts: Vec<Part>,
    buffer: BytesMut,
}

impl PartsWriter {
    /// With room for `copied` bytes, as a `Counter` counted them.
    pub fn with_capacity(copied: usize) -> PartsWriter {
        PartsWriter { parts: Vec::new(), buffer: BytesMut::with_capacity(copied) }
    }

    /// The parts, in order and none of them empty.
    pub fn into_parts(mut self) -> Vec<Part> {
        self.close_buffer();
        self.parts
    }

    fn close_buffer(&mut self) {
        if !self.buffer.is_empty() {
            self.parts.push(Part::Bytes(self.buffer.split().freeze()));
        }
    }
}

impl Sink for PartsWriter {
    fn put_slice(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_PART_BYTES_MIN {
            self.buffer.put_slice(bytes);
        } else {
            self.close_buffer();
            self.parts.push(Part::Bytes(bytes.clone()));
        }
    }

    fn put_part(&mut self, part: &Part) {
        match part {
            Part::Bytes(bytes) => self.put_shared(bytes),
            Part::File(_) => {
                self.close_buffer();
                self.parts.push(part.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::Cursor;
    use crate::parts::flatten;
    use proptest::prelude::*;

    #[test]
    fn a_string_longer_than_kafkas_is_refused() {
        let text = "a".repeat(STRING_BYTES_MAX + 1);
        let refused = measure(|sink| sink.put_string(Form::Compact, Some(&text)));
        assert_eq!(refused, Err(EncodeError::TooLong { what: "a string", length: STRING_BYTES_MAX + 1 }));
    }

    #[test]
    fn null_and_empty_are_told_apart_in_both_forms() {
        let written = |form, text| {
            let mut writer = PartsWriter::default();
            writer.put_string(form, text).unwrap();
            flatten(&writer.into_parts()).unwrap().to_vec()
        };
        assert_eq!(written(Form::Fixed, None), [0xff, 0xff]);
        assert_eq!(written(Form::Fixed, Some("")), [0, 0]);
        assert_eq!(written(Form::Compact, None), [0]);
        assert_eq!(written(Form::Compact, Some("")), [1]);
    }

    #[test]
    fn large_bytes_are_shared_and_small_ones_copied() {
        let large = Bytes::from(vec![1; SHARED_PART_BYTES_MIN]);
        let small = Bytes::from(vec![2; SHARED_PART_BYTES_MIN - 1]);
        let mut writer = PartsWriter::default();
        writer.put_shared(&large);
        writer.put_shared(&small);
        let parts = writer.into_parts();
        let [Part::Bytes(first), Part::Bytes(second)] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!(first.as_ptr(), large.as_ptr());
        assert_eq!(second, &small);
        assert_ne!(second.as_ptr(), small.as_ptr());
    }

    proptest! {
        #[test]
        fn a_variable_length_number_comes_back(value: u32) {
            let mut writer = PartsWriter::default();
            writer.put_uvarint(value);
            let bytes = flatten(&writer.into_parts()).unwrap();
            prop_assert_eq!(bytes.len(), (32 - value.leading_zeros()).div_ceil(7).max(1) as usize);
            prop_assert_eq!(Cursor::new(bytes).get_uvarint(), Ok(value));
        }

        /// However records are cut, they are written as if they were one, and the counter knew.
        #[test]
        fn records_are_the_same_however_they_are_cut(
            sizes in prop::collection::vec(0..2 * SHARED_PART_BYTES_MIN, 0..6),
        ) {
            let mut cut = Records::default();
            let mut whole = Vec::new();
            for (index, size) in sizes.iter().enumerate() {
                whole.extend(vec![index as u8; *size]);
                cut.push(Part::Bytes(Bytes::from(vec![index as u8; *size])));
            }
            prop_assert_eq!(&cut, &Records::from(Bytes::from(whole.clone())));

            let mut counter = Counter::default();
            counter.put_records(Form::Compact, Some(&cut)).unwrap();
            let mut writer = PartsWriter::with_capacity(counter.copied());
            writer.put_records(Form::Compact, Some(&cut)).unwrap();
            let written = flatten(&writer.into_parts()).unwrap();
            prop_assert_eq!(written.len(), counter.total());

            let read = Cursor::new(written).get_records(Form::Compact).unwrap();
            prop_assert_eq!(read.to_bytes(), Some(Bytes::from(whole)));
        }
    }
}
