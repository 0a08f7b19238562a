//! Every message of Kafka's protocol, as it is on the wire and in the logs of the controller and the
//! coordinators.
//!
//! The structs in [`messages`] are generated from `schemas/` when the crate is built. Reading goes through a
//! [`Cursor`], which never panics and never believes a count; writing goes to a [`Sink`], which keeps record
//! batches as they are, in memory or in files. [`frame`] puts headers and sizes around messages,
//! [`metadata`] and [`coordinator`] the frames of records; [`errors`] has every error code once.

pub mod api;
pub mod coordinator;
pub mod cursor;
pub mod decode_error;
pub mod errors;
pub mod frame;
pub mod limits;
pub mod message;
pub mod messages;
pub mod metadata;
pub mod mirror_numbers;
pub mod parts;
pub mod sink;
pub mod text;

pub use api::{API_TABLE, ApiInfo, ApiKey, Listeners, api};
pub use coordinator::{
    coordinator_key_type, decode_key, decode_value, encode_key, encode_value, encode_versioned,
};
pub use cursor::Cursor;
pub use decode_error::DecodeError;
pub use errors::ErrorCode;
pub use frame::{
    Frame, HeaderError, RequestHeader, decode_request_header, decode_response_header, encode_request,
    encode_response,
};
pub use message::{CoordinatorKey, CoordinatorValue, Form, Message, Request, Response};
pub use metadata::MetadataRecord;
pub use parts::{FilePart, FileRange, Part, Records};
pub use sink::{Counter, EncodeError, PartsWriter, Sink};
pub use text::Str;
