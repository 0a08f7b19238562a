//! Frames: a size, a header and a message.
//!
//! The header's version follows from the API and its version. A request is known by its first eight bytes,
//! so that what cannot be read can at least be named.

use thiserror::Error;

use crate::api::{ApiKey, api};
use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::message::{Message, Request, Response, Str};
use crate::messages;
use crate::parts::{self, Part};
use crate::sink::{Counter, EncodeError, PartsWriter, Sink};

/// The size field before each frame.
pub const SIZE_BYTES: usize = 4;

/// What stands before a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Which API.
    pub api_key: ApiKey,
    /// Which version of it; not checked against the schema.
    pub api_version: i16,
    /// What the response will repeat.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<Str>,
}

/// Why a request's header cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HeaderError {
    /// Its bytes are not a header.
    #[error("the request header is malformed: {0}")]
    Malformed(#[from] DecodeError),
    /// The key is no API's, so the header's version is not known.
    #[error("there is no API with key {} (version {api_version})", api_key.0)]
    UnknownApi {
        /// The key.
        api_key: ApiKey,
        /// The version asked for.
        api_version: i16,
        /// The request's number.
        correlation_id: i32,
    },
}

/// Bytes ready to be sent, the size field included.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// What to send, in order.
    pub parts: Vec<Part>,
    /// The size of all of it.
    pub len: usize,
}

/// A response begins with its size and the number of its request, in every version of its header.
const RESPONSE_HEAD_BYTES: usize = 8;

impl Frame {
    /// The same response as the answer to another request of the same API and version. What it holds is shared.
    ///
    /// # Panics
    /// Where it is no response in memory.
    pub fn answering(&self, correlation_id: i32) -> Frame {
        let Some((Part::Bytes(first), rest)) = self.parts.split_first() else { panic!("it has a head") };
        let size = &first[..SIZE_BYTES];
        let head = [size, &correlation_id.to_be_bytes()].concat().into();
        let body = Part::Bytes(first.slice(RESPONSE_HEAD_BYTES..));
        let parts = [Part::Bytes(head), body].into_iter().chain(rest.iter().cloned()).collect();
        Frame { parts, len: self.len }
    }

    /// All of it as one piece of memory; `None` where a part is in a file.
    pub fn to_bytes(&self) -> Option<bytes::Bytes> {
        parts::flatten(&self.parts)
    }
}

/// Reads a request's header. The cursor is past the size field; afterwards it is at the request. Any version
/// of a known API is accepted: ApiVersions is answered even where its version is not served.
///
/// # Errors
/// `UnknownApi` or `Malformed`.
pub fn decode_request_header(cursor: &mut Cursor) -> Result<RequestHeader, HeaderError> {
    let mut ahead = cursor.clone();
    let api_key = ApiKey(ahead.get_i16()?);
    let api_version = ahead.get_i16()?;
    let correlation_id = ahead.get_i32()?;
    let Some(info) = api(api_key) else {
        return Err(HeaderError::UnknownApi { api_key, api_version, correlation_id });
    };
    let header = messages::RequestHeader::decode(cursor, info.request_header_version(api_version))?;
    Ok(RequestHeader { api_key, api_version, correlation_id, client_id: header.client_id })
}

/// Reads the header of `R`'s response and yields the correlation id. The cursor is past the size field.
///
/// # Errors
/// What is malformed.
pub fn decode_response_header<R: Response>(cursor: &mut Cursor, version: i16) -> Result<i32, DecodeError> {
    let header = messages::ResponseHeader::decode(cursor, R::header_version(version))?;
    Ok(header.correlation_id)
}

/// A request, ready to be sent.
///
/// # Errors
/// What `Message::encode` says.
pub fn encode_request<R: Request>(
    correlation_id: i32,
    client_id: &str,
    version: i16,
    request: &R,
) -> Result<Frame, EncodeError> {
    let header = messages::RequestHeader {
        request_api_key: R::KEY,
        request_api_version: version,
        correlation_id,
        client_id: Some(Str::from(client_id)),
    };
    frame(&header, R::request_header_version(version), request, version)
}

/// A response, ready to be sent.
///
/// # Errors
/// What `Message::encode` says.
pub fn encode_response<R: Response>(
    correlation_id: i32,
    version: i16,
    response: &R,
) -> Result<Frame, EncodeError> {
    let header = messages::ResponseHeader { correlation_id };
    frame(&header, R::header_version(version), response, version)
}

fn frame<H: Message, M: Message>(
    header: &H,
    header_version: i16,
    message: &M,
    version: i16,
) -> Result<Frame, EncodeError> {
    let mut counter = Counter::default();
    header.encode(&mut counter, header_version)?;
    message.encode(&mut counter, version)?;
    let length = counter.total();
    let announced = i32::try_from(length).map_err(|_| EncodeError::TooLong { what: M::NAME, length })?;

    let mut writer = PartsWriter::with_capacity(SIZE_BYTES + counter.copied());
    writer.put_i32(announced);
    header.encode(&mut writer, header_version)?;
    message.encode(&mut writer, version)?;
    let parts = writer.into_parts();
    let len = SIZE_BYTES + length;
    debug_assert_eq!(parts.iter().map(Part::len).sum::<usize>(), len, "Counter and PartsWriter disagree");
    Ok(Frame { parts, len })
}
