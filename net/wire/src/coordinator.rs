//! Records of coordinators: `__consumer_offsets`, `__transaction_state`, `__mirror_state` and their like.
//!
//! An `int16` stands before the key, the record's type, and another before the value, the value's version.
//! The types are numbered for each topic anew, so a reader has to know which topic it reads. A record of a
//! type that it does not serve is skipped by its number alone.

use bytes::Bytes;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::message::{CoordinatorKey, CoordinatorValue, Message};
use crate::parts;
use crate::sink::{Counter, EncodeError, PartsWriter, Sink};

/// Keys have one version each; their type stands where other messages have the version.
const KEY_BODY_VERSION: i16 = 0;

/// A record's key.
///
/// # Errors
/// What `Message::encode` says.
pub fn encode_key<K: CoordinatorKey>(key: &K) -> Result<Bytes, EncodeError> {
    encode(K::TYPE, key, KEY_BODY_VERSION)
}

/// A record's value in `version`.
///
/// # Errors
/// What `Message::encode` says.
pub fn encode_value<V: CoordinatorValue>(value: &V, version: i16) -> Result<Bytes, EncodeError> {
    encode_versioned(value, version)
}

/// A message that stands behind its version, as the values of some control records do.
///
/// # Errors
/// What `Message::encode` says.
pub fn encode_versioned<M: Message>(message: &M, version: i16) -> Result<Bytes, EncodeError> {
    encode(version, message, version)
}

/// The type of the record that has this key.
///
/// # Errors
/// `Truncated` where there is none.
pub fn coordinator_key_type(key: &Bytes) -> Result<i16, DecodeError> {
    Cursor::new(key.clone()).get_i16()
}

/// Reads a key of a known type.
///
/// # Errors
/// `RecordType` where it is of another, or what is malformed.
pub fn decode_key<K: CoordinatorKey>(key: Bytes) -> Result<K, DecodeError> {
    let mut cursor = Cursor::new(key);
    let found = cursor.get_i16()?;
    if found != K::TYPE {
        return Err(DecodeError::RecordType { record: K::NAME, expected: K::TYPE, found });
    }
    let key = K::decode(&mut cursor, KEY_BODY_VERSION)?;
    cursor.expect_end()?;
    Ok(key)
}

/// Reads a value of a known type, in whatever version it was written.
///
/// # Errors
/// `UnsupportedVersion`, or what is malformed.
pub fn decode_value<V: CoordinatorValue>(value: Bytes) -> Result<V, DecodeError> {
    let mut cursor = Cursor::new(value);
    let version = cursor.get_i16()?;
    let value = V::decode(&mut cursor, version)?;
    cursor.expect_end()?;
    Ok(value)
}

fn encode<M: Message>(prefix: i16, message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut counter = Counter::default();
    message.encode(&mut counter, version)?;
    let mut writer = PartsWriter::with_capacity(size_of::<i16>() + counter.copied());
    writer.put_i16(prefix);
    message.encode(&mut writer, version)?;
    Ok(parts::flatten(&writer.into_parts()).unwrap_or_default())
}
