//! What all generated messages have in common: the traits they implement, and the names that the generated
//! code finds in `crate::message`, whatever the types of its schema are called.

pub use crate::cursor::{Cursor, Tag};
pub use crate::decode_error::DecodeError;
pub use crate::errors::ErrorCode;
pub use crate::parts::Records;
pub use crate::sink::{Counter, EncodeError, Sink, measure};
pub use crate::text::Str;

/// How lengths and counts are written: Kafka's flexible versions (KIP-482) are compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An `int16` before strings, an `int32` before bytes and arrays.
    Fixed,
    /// A variable-length number, one more than the length.
    Compact,
}

impl Form {
    /// The form of `version` in a message that is flexible from `first` on.
    pub const fn of(version: i16, first: i16) -> Form {
        if version >= first { Form::Compact } else { Form::Fixed }
    }
}

/// A message of a schema.
pub trait Message: Sized + Default {
    /// Its name in the schema.
    const NAME: &'static str;
    /// The lowest version.
    const MIN_VERSION: i16;
    /// The highest version.
    const MAX_VERSION: i16;
    /// The first flexible version; `i16::MAX` where none is.
    const FLEXIBLE_FROM: i16;

    /// Reads a message. What follows it stays in `cursor`.
    ///
    /// # Errors
    /// `UnsupportedVersion`, or what is malformed.
    fn decode(cursor: &mut Cursor, version: i16) -> Result<Self, DecodeError>;

    /// Writes the message.
    ///
    /// # Errors
    /// `UnsupportedVersion`; `UnsupportedField` where a field that may not be dropped has a value and
    /// `version` lacks it; `Null`, `TooLong`.
    fn encode<S: Sink>(&self, sink: &mut S, version: i16) -> Result<(), EncodeError>;

    /// The bytes that `encode` would write.
    ///
    /// # Errors
    /// What `encode` says.
    fn encoded_size(&self, version: i16) -> Result<usize, EncodeError> {
        measure(|counter| self.encode(counter, version))
    }

    /// Whether `version` is in the schema.
    fn has_version(version: i16) -> bool {
        (Self::MIN_VERSION..=Self::MAX_VERSION).contains(&version)
    }
}

/// A request.
pub trait Request: Message {
    /// Its API key.
    const KEY: i16;
    /// What answers it.
    type Response: Response;

    /// The version of its header: 2 where it is flexible, else 1.
    fn request_header_version(version: i16) -> i16 {
        if version >= Self::FLEXIBLE_FROM { 2 } else { 1 }
    }

    /// The version of its response's header.
    fn response_header_version(version: i16) -> i16 {
        Self::Response::header_version(version)
    }
}

/// A response.
pub trait Response: Message {
    /// The API key of its request.
    const KEY: i16;

    /// Tells every error code that it has in `version`, `NONE` included: one for each thing that was asked for.
    fn each_error(&self, version: i16, tell: &mut dyn FnMut(ErrorCode));

    /// The version of its header: 1 where it is flexible, else 0. ApiVersions always has 0, because its
    /// reader does not know yet what the broker can do (KIP-511).
    fn header_version(version: i16) -> i16 {
        const API_VERSIONS: i16 = 18;
        i16::from(version >= Self::FLEXIBLE_FROM && Self::KEY != API_VERSIONS)
    }
}

/// The key of a record that a coordinator writes.
pub trait CoordinatorKey: Message {
    /// The number that stands before it.
    const TYPE: i16;
}

/// The value of a record that a coordinator writes; its version stands before it.
pub trait CoordinatorValue: Message {
    /// The number that stands before its key.
    const TYPE: i16;
}

/// That `M` has `version`, before reading.
pub(crate) fn check_read<M: Message>(version: i16) -> Result<(), DecodeError> {
    if M::has_version(version) {
        return Ok(());
    }
    let (message, min, max) = (M::NAME, M::MIN_VERSION, M::MAX_VERSION);
    Err(DecodeError::UnsupportedVersion { message, version: i32::from(version), min, max })
}

/// That `M` has `version`, before writing.
pub(crate) fn check_write<M: Message>(version: i16) -> Result<(), EncodeError> {
    if M::has_version(version) {
        return Ok(());
    }
    let (message, min, max) = (M::NAME, M::MIN_VERSION, M::MAX_VERSION);
    Err(EncodeError::UnsupportedVersion { message, version, min, max })
}
