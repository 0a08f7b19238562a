//! One outgoing connection to a broker, shared by mirror, replication, quorum and tools.
//!
//! Calls may overlap: requests leave in the order of the calls, answers come back in the same order and
//! are checked by their correlation ids. One task per connection reads and writes; it ends with the last
//! clone of the [`Client`]. Whatever goes wrong closes the connection and fails every call on it; making a
//! new one is the caller's business.
//!
//! Invariants:
//! * a frame is read only while a call waits for it, and never beyond that call's limit;
//! * no call outlives its timeout, and none outlives the connection.

mod call;
mod driver;
mod error;
mod handshake;

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use tarn_runtime::{Queue, Task, socket, spawn};
use tarn_wire::{ApiKey, Cursor, Message, Request, api, decode_response_header, encode_request};
use thiserror::Error;

use crate::frames::FrameReader;
use crate::security::SecurityProtocol;
use crate::versions::BrokerVersions;

pub use error::ClientError;

use call::Calls;

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How a client connects and how much it takes.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What it calls itself in every request.
    pub client_id: String,
    /// For connecting and for the handshake, each.
    pub connect_timeout: Duration,
    /// For a call whose caller names no other time.
    pub request_timeout: Duration,
    /// The socket's receive buffer; `None` leaves it to the kernel.
    pub receive_buffer: Option<usize>,
    /// The largest response, where the caller names no other limit.
    pub max_response_bytes: usize,
    /// How the connection is protected.
    pub security: SecurityProtocol,
    /// The queue in which the connection's task runs.
    pub queue: Queue,
}

/// What one call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The time until its answer must be there, or the connection is closed.
    pub timeout: Duration,
    /// The largest response.
    pub max_response_bytes: usize,
}

/// A connection to a broker. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    options: ClientOptions,
    versions: BrokerVersions,
    calls: Rc<Calls>,
    /// Cancelled with the last clone.
    _driver: Task<()>,
}

impl Client {
    /// Connects and learns what the broker serves. Brokers since Kafka 0.10 understand the handshake.
    ///
    /// # Errors
    /// `Unreachable`, `TimedOut`, `NotKafka` where something else listens there, and what calls say.
    pub async fn connect(endpoint: &Endpoint, options: &ClientOptions) -> Result<Client, ClientError> {
        let SecurityProtocol::Plaintext = options.security;
        let connected = socket::connect(&endpoint.host, endpoint.port, options.connect_timeout).await;
        let socket = connected.map_err(|error| ClientError::unreachable(endpoint, &error))?;
        if let Some(bytes) = options.receive_buffer {
            socket.set_receive_buffer(bytes).map_err(|error| ClientError::unreachable(endpoint, &error))?;
        }
        let (read, write) = socket.split();
        let calls = Rc::new(Calls::default());
        let frames = FrameReader::of_answers(read);
        let driver = spawn(options.queue, driver::drive(Rc::clone(&calls), frames, write));
        let versions = handshake::versions(&calls, endpoint, options).await?;
        let (endpoint, options) = (endpoint.clone(), options.clone());
        Ok(Client { inner: Rc::new(Inner { endpoint, options, versions, calls, _driver: driver }) })
    }

    /// What the broker serves, and its features.
    pub fn versions(&self) -> &BrokerVersions {
        &self.inner.versions
    }

    /// Where the broker is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// Sends `request` in the highest version that both sides know, and awaits its response. Dropped, it
    /// leaves the connection usable.
    ///
    /// # Errors
    /// `UnsupportedVersion`, `Unencodable` where that version lacks a field with a value; all others mean
    /// that the connection is closed.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.call_at(request, self.version_for::<R>()?).await
    }

    /// Like [`call`](Self::call), in a version that the caller has chosen.
    ///
    /// # Errors
    /// Those of `call`.
    pub async fn call_at<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, ClientError> {
        self.call_within(request, version, self.limits()).await
    }

    /// Like [`call`](Self::call), with another limit for this response.
    ///
    /// # Errors
    /// Those of `call`.
    pub async fn call_with_limit<R: Request>(
        &self,
        request: &R,
        max_response_bytes: usize,
    ) -> Result<R::Response, ClientError> {
        let limits = CallLimits { max_response_bytes, ..self.limits() };
        self.call_within(request, self.version_for::<R>()?, limits).await
    }

    /// Like [`call_at`](Self::call_at), with limits of its own.
    ///
    /// # Errors
    /// Those of `call`.
    pub async fn call_within<R: Request>(
        &self,
        request: &R,
        version: i16,
        limits: CallLimits,
    ) -> Result<R::Response, ClientError> {
        call(&self.inner.calls, request, version, &self.inner.options.client_id, limits).await
    }

    /// The limits of calls that name none.
    pub fn limits(&self) -> CallLimits {
        let ClientOptions { request_timeout, max_response_bytes, .. } = self.inner.options;
        CallLimits { timeout: request_timeout, max_response_bytes }
    }

    /// The highest version of `R` that both sides know.
    ///
    /// # Errors
    /// `UnsupportedVersion` where there is none.
    pub fn version_for<R: Request>(&self) -> Result<i16, ClientError> {
        self.version_up_to::<R>(i16::MAX)
    }

    /// The highest version of `R` that both sides know and that is at most `highest`.
    ///
    /// # Errors
    /// `UnsupportedVersion` where there is none.
    pub fn version_up_to<R: Request>(&self, highest: i16) -> Result<i16, ClientError> {
        let key = ApiKey(R::KEY);
        let our_max = api(key).map_or(R::MAX_VERSION, |info| info.max_stable).min(highest);
        self.versions().usable(key, R::MIN_VERSION, our_max).ok_or_else(|| ClientError::UnsupportedVersion {
            api: key,
            ours: (R::MIN_VERSION, our_max),
            theirs: self.versions().apis().get(key).map(|range| (range.min, range.max)),
        })
    }

    /// Closes the connection; calls on it fail.
    pub fn close(&self) {
        self.inner.calls.close(ClientError::closed("it was closed on this side"));
    }

    /// Whether the connection is closed, by whichever side.
    pub fn is_closed(&self) -> bool {
        self.inner.calls.is_closed()
    }
}

/// One request and its response.
async fn call<R: Request>(
    calls: &Rc<Calls>,
    request: &R,
    version: i16,
    client_id: &str,
    limits: CallLimits,
) -> Result<R::Response, ClientError> {
    let api = ApiKey(R::KEY);
    let correlation_id = calls.next_correlation_id();
    let frame = encode_request(correlation_id, client_id, version, request)
        .map_err(|error| ClientError::Unencodable { api, detail: error.to_string() })?;
    let mut cursor = Cursor::new(calls.exchange(api, correlation_id, frame, limits).await?);
    let decoded = decode_response_header::<R::Response>(&mut cursor, version)
        .and_then(|_checked_when_read| R::Response::decode(&mut cursor, version));
    decoded.map_err(|error| {
        let error =
            ClientError::Malformed { detail: format!("response to {api} version {version}: {error}") };
        calls.close(error.clone());
        error
    })
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            client_id: "tarn".to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            receive_buffer: None,
            max_response_bytes: 100 << 20,
            security: SecurityProtocol::Plaintext,
            queue: Queue::Network,
        }
    }
}

/// Text that names no broker.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no broker's address: host:port is expected")]
pub struct EndpointError(pub String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Parses `host:port`; an IPv6 address stands in brackets.
    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let refused = || EndpointError(text.to_owned());
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(refused)?;
        let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare,
            None if host.contains(':') => return Err(refused()),
            None => host,
        };
        match port.parse() {
            Ok(port) if port > 0 && !host.is_empty() => Ok(Endpoint { host: host.to_owned(), port }),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closed = self.is_closed();
        f.debug_struct("Client").field("endpoint", &self.inner.endpoint).field("closed", &closed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        let endpoint = |host: &str, port| Ok(Endpoint { host: host.to_owned(), port });
        assert_eq!("broker-1:9092".parse(), endpoint("broker-1", 9092));
        assert_eq!("[::1]:9092".parse(), endpoint("::1", 9092));
        for bad in ["broker-1", "broker-1:", ":9092", "broker-1:0", "broker-1:70000", "::1:9092", ""] {
            assert_eq!(bad.parse::<Endpoint>(), Err(EndpointError(bad.to_owned())));
        }
        let printed = "[::1]:9092".parse::<Endpoint>().map(|endpoint| endpoint.to_string());
        assert_eq!(printed.as_deref(), Ok("[::1]:9092"));
    }
}
