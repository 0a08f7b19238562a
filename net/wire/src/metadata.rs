//! Records of the metadata log: the frame around them, and one enum over all kinds.
//!
//! The frame is three variable-length numbers, 1 (the framing's version), the record's key and its version;
//! then comes the body. A kind that is not known is carried as bytes, so that a directory written by a newer
//! node can be read and written again.

use bytes::Bytes;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::message::Message;
use crate::messages::*;
use crate::parts;
use crate::sink::{Counter, EncodeError, PartsWriter, Sink};

/// The only framing there is.
const FRAME_VERSION: u32 = 1;

include!(concat!(env!("OUT_DIR"), "/metadata_records.rs"));

impl MetadataRecord {
    /// The record's value in the log, in `version`. An unknown record keeps its own version.
    ///
    /// # Errors
    /// What `Message::encode` says.
    pub fn encode(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut counter = Counter::default();
        self.write(&mut counter, version)?;
        let mut writer = PartsWriter::with_capacity(counter.copied());
        self.write(&mut writer, version)?;
        Ok(parts::flatten(&writer.into_parts()).unwrap_or_default())
    }

    /// Reads a record's value.
    ///
    /// # Errors
    /// `RecordFrame`, `UnsupportedVersion` for a version above the schema's, `Trailing`, or what is malformed.
    pub fn decode(value: Bytes) -> Result<MetadataRecord, DecodeError> {
        let mut cursor = Cursor::new(value);
        let frame = cursor.get_uvarint()?;
        if frame != FRAME_VERSION {
            return Err(DecodeError::RecordFrame { value: frame, expected: "frame version 1" });
        }
        let api_key = small(cursor.get_uvarint()?, "a record key")?;
        let version = small(cursor.get_uvarint()?, "a record version")?;
        let record = MetadataRecord::decode_body(api_key, &mut cursor, version)?;
        cursor.expect_end()?;
        Ok(record)
    }

    fn write<S: Sink>(&self, sink: &mut S, version: i16) -> Result<(), EncodeError> {
        let version = match self {
            MetadataRecord::Unknown { version, .. } => *version,
            _ => version,
        };
        sink.put_uvarint(FRAME_VERSION);
        sink.put_uvarint(u32::from(self.api_key().cast_unsigned()));
        sink.put_uvarint(u32::from(version.cast_unsigned()));
        self.encode_body(sink, version)
    }
}

fn small(value: u32, expected: &'static str) -> Result<i16, DecodeError> {
    i16::try_from(value).map_err(|_| DecodeError::RecordFrame { value, expected })
}
