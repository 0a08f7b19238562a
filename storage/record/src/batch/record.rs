//! One record as a view on uncompressed bytes.
//!
//! A record is read whole and checked whole: its length is consumed exactly, and every header lies inside
//! it. So a `RecordView` can be copied to another batch by its `encoded` bytes, duplicate header keys and
//! all.

use thiserror::Error;

use crate::varint::{read_i32, read_i64};

/// A record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// The record as it stands in the section, its length included.
    pub encoded: &'a [u8],
    /// Its timestamp less the batch's base timestamp, in ms; may be negative.
    pub timestamp_delta: i64,
    /// Its offset less the batch's base offset.
    pub offset_delta: i32,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order; keys may repeat.
    pub headers: HeaderViews<'a>,
}

/// The headers of a record, already checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderViews<'a> {
    left: i32,
    rest: &'a [u8],
}

/// A header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderView<'a> {
    /// UTF-8 by convention; not checked.
    pub key: &'a [u8],
    /// Any bytes, or null.
    pub value: Option<&'a [u8]>,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordFault {
    /// The records end before their number is reached.
    #[error("ends before it is complete")]
    CutShort,
    /// A varint longer than five or ten bytes, or one that leaves the record.
    #[error("has a number that does not end")]
    BadNumber,
    /// A negative length of the record itself.
    #[error("has a length of {0} bytes")]
    BadLength(i32),
    /// A field that is longer than the record.
    #[error("has a field of {0} bytes, more than the record holds")]
    FieldTooLong(i32),
    /// A negative number of headers.
    #[error("has {0} headers")]
    BadHeaderCount(i32),
    /// A header whose key has a negative length.
    #[error("has a header key of {0} bytes")]
    BadHeaderKey(i32),
    /// The record's length counts bytes that belong to no field.
    #[error("has {0} bytes after its last header")]
    BytesLeft(usize),
    /// A compressed record that is longer than the reader allows.
    #[error("has {0} bytes decompressed, more than the {1} allowed")]
    TooLarge(usize, usize),
    /// Bytes follow the last record.
    #[error("would be one more than the batch announces")]
    TooMany,
}

/// The records in an uncompressed `section`, of which the batch's header announces `count`.
///
/// Ends after an error. Bytes after the last record are the error `TooMany`.
pub fn records(section: &[u8], count: i32) -> Records<'_> {
    Records { rest: section, left: count.max(0), failed: false }
}

/// See [`records`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    left: i32,
    failed: bool,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, RecordFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || (self.left == 0 && self.rest.is_empty()) {
            return None;
        }
        let read = if self.left == 0 { Err(RecordFault::TooMany) } else { read_record(self.rest) };
        Some(match read {
            Ok((record, rest)) => {
                self.rest = rest;
                self.left -= 1;
                Ok(record)
            }
            Err(fault) => {
                self.failed = true;
                Err(fault)
            }
        })
    }
}

impl<'a> Iterator for HeaderViews<'a> {
    type Item = HeaderView<'a>;

    fn next(&mut self) -> Option<HeaderView<'a>> {
        if self.left <= 0 {
            return None;
        }
        let (header, rest) = read_header(self.rest).ok()?;
        self.rest = rest;
        self.left -= 1;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left.max(0) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for HeaderViews<'_> {}

/// The size of the record at the front of `bytes`, its length field included, where `bytes` hold that
/// field and it says no more than `max`.
pub(super) fn encoded_size(bytes: &[u8], max: usize) -> Result<usize, RecordFault> {
    let (length, rest) = read_i32(bytes).ok_or(RecordFault::BadNumber)?;
    let prefix = bytes.len() - rest.len();
    match usize::try_from(length) {
        Ok(length) if length > max => Err(RecordFault::TooLarge(length, max)),
        Ok(length) => Ok(prefix + length),
        Err(_) => Err(RecordFault::BadLength(length)),
    }
}

/// Reads one record and returns it with the bytes after it.
#[inline]
pub(super) fn read_record(bytes: &[u8]) -> Result<(RecordView<'_>, &[u8]), RecordFault> {
    if bytes.is_empty() {
        return Err(RecordFault::CutShort);
    }
    let (length, after_length) = read_i32(bytes).ok_or(RecordFault::BadNumber)?;
    let length = usize::try_from(length).map_err(|_| RecordFault::BadLength(length))?;
    let (body, rest) = after_length.split_at_checked(length).ok_or(RecordFault::CutShort)?;

    let (_attributes, body) = body.split_first().ok_or(RecordFault::CutShort)?;
    let (timestamp_delta, body) = read_i64(body).ok_or(RecordFault::BadNumber)?;
    let (offset_delta, body) = read_i32(body).ok_or(RecordFault::BadNumber)?;
    let (key, body) = read_nullable(body)?;
    let (value, body) = read_nullable(body)?;
    let (header_count, body) = read_i32(body).ok_or(RecordFault::BadNumber)?;
    let headers = check_headers(header_count, body)?;
    let encoded = &bytes[..bytes.len() - rest.len()];
    Ok((RecordView { encoded, timestamp_delta, offset_delta, key, value, headers }, rest))
}

fn check_headers(count: i32, bytes: &[u8]) -> Result<HeaderViews<'_>, RecordFault> {
    if count < 0 {
        return Err(RecordFault::BadHeaderCount(count));
    }
    let mut rest = bytes;
    for _ in 0..count {
        (_, rest) = read_header(rest)?;
    }
    if !rest.is_empty() {
        return Err(RecordFault::BytesLeft(rest.len()));
    }
    Ok(HeaderViews { left: count, rest: bytes })
}

fn read_header(bytes: &[u8]) -> Result<(HeaderView<'_>, &[u8]), RecordFault> {
    let (length, rest) = read_i32(bytes).ok_or(RecordFault::BadNumber)?;
    let known = usize::try_from(length).map_err(|_| RecordFault::BadHeaderKey(length))?;
    let (key, rest) = rest.split_at_checked(known).ok_or(RecordFault::FieldTooLong(length))?;
    let (value, rest) = read_nullable(rest)?;
    Ok((HeaderView { key, value }, rest))
}

/// A length and as many bytes; any negative length is null.
#[inline]
fn read_nullable(bytes: &[u8]) -> Result<(Option<&[u8]>, &[u8]), RecordFault> {
    let (length, rest) = read_i32(bytes).ok_or(RecordFault::BadNumber)?;
    let Ok(known) = usize::try_from(length) else { return Ok((None, rest)) };
    let (field, rest) = rest.split_at_checked(known).ok_or(RecordFault::FieldTooLong(length))?;
    Ok((Some(field), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// length 14, attributes 0, timestamp delta −3, offset delta 1, key "k", value "val", two headers "h".
    const RECORD: &[u8] = &[34, 0, 5, 2, 2, b'k', 6, b'v', b'a', b'l', 4, 2, b'h', 2, b'1', 2, b'h', 1];

    #[test]
    fn a_record_is_read_field_by_field() {
        let all: Vec<_> = records(RECORD, 1).map(Result::unwrap).collect();
        assert_eq!(all.len(), 1);
        let record = all[0];
        assert_eq!((record.timestamp_delta, record.offset_delta), (-3, 1));
        assert_eq!((record.key, record.value), (Some(&b"k"[..]), Some(&b"val"[..])));
        assert_eq!(record.encoded, RECORD);
        let headers: Vec<_> = record.headers.collect();
        let twice = [HeaderView { key: b"h", value: Some(b"1") }, HeaderView { key: b"h", value: None }];
        assert_eq!(headers, twice, "a repeated header key is kept");
    }

    #[test]
    fn a_null_is_not_an_empty_value() {
        let section = [14, 0, 0, 0, 1, 1, 0, 0, 12, 0, 0, 0, 0, 0, 0];
        let mut read = records(&section[8..], 1);
        let empty = read.next().unwrap().unwrap();
        assert_eq!((empty.key, empty.value), (Some(&b""[..]), Some(&b""[..])));
        let null = records(&[12, 0, 0, 0, 1, 1, 0], 1).next().unwrap().unwrap();
        assert_eq!((null.key, null.value), (None, None));
    }

    #[test]
    fn each_fault_is_named() {
        let fault = |bytes: &[u8]| records(bytes, 1).next().unwrap().unwrap_err();
        assert_eq!(fault(&RECORD[..10]), RecordFault::CutShort);
        assert_eq!(fault(&[1]), RecordFault::BadLength(-1));
        assert_eq!(fault(&[0x80; 6]), RecordFault::BadNumber);
        assert_eq!(fault(&[12, 0, 0, 0, 1, 1, 1]), RecordFault::BadHeaderCount(-1));
        assert_eq!(fault(&[14, 0, 0, 0, 1, 1, 0, 9]), RecordFault::BytesLeft(1));
        assert_eq!(fault(&[12, 0, 0, 0, 20, 1, 0]), RecordFault::FieldTooLong(10));
        assert_eq!(fault(&[14, 0, 0, 0, 1, 1, 2, 1]), RecordFault::BadHeaderKey(-1));
        assert_eq!(fault(&[0]), RecordFault::CutShort, "not even attributes");
    }

    #[test]
    fn too_few_and_too_many_records_are_faults() {
        let two = [RECORD, RECORD].concat();
        let mut read = records(&two, 1);
        assert!(read.next().unwrap().is_ok());
        assert_eq!(read.next(), Some(Err(RecordFault::TooMany)));
        assert_eq!(read.next(), None);
        let mut read = records(RECORD, 2);
        assert!(read.next().unwrap().is_ok());
        assert_eq!(read.next(), Some(Err(RecordFault::CutShort)));
        assert_eq!(read.next(), None);
    }

    #[test]
    fn a_huge_announced_count_costs_nothing() {
        assert_eq!(records(&[], i32::MAX).next(), Some(Err(RecordFault::CutShort)));
        let headers = [20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(records(&headers, 1).next(), Some(Err(RecordFault::BadNumber)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..200), count in -1i32..20) {
            let mut taken = 0;
            for record in records(&bytes, count).flatten() {
                taken += record.encoded.len();
                prop_assert_eq!(record.headers.count(), record.headers.len());
            }
            prop_assert!(taken <= bytes.len());
        }
    }
}
