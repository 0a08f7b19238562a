//! What a broker gives to the transport: an object on each core that answers requests.
//!
//! A request is handled in two halves. What must happen in the order of the requests is done in
//! [`Service::call`], one request of a connection after the other; what may take long is left to the
//! future in [`Outcome::Answer`], which runs beside those of later requests. Answers leave in the order
//! of the requests (as the protocol wants), whichever is ready first.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use derive_more::Display;
use futures_util::future::LocalBoxFuture;
use tarn_wire::{Cursor, Frame, RequestHeader};

use crate::budget::Permit;
use crate::listener::ListenerName;
use crate::versions::{ApiVersionsData, ClientSoftware};

/// Answers the requests of one core's connections.
pub trait Service: 'static {
    /// The half of a request that is done in order: it is awaited before the connection's next request is
    /// looked at. It is dropped where the connection ends meanwhile. What must happen even though the peer
    /// leaves right after sending, as a produce request with acks=0, must have been started when it returns.
    fn call(self: Rc<Self>, request: InboundRequest) -> LocalBoxFuture<'static, Outcome>;

    /// What a listener serves. Requests outside of `apis` close their connection and never reach `call`;
    /// ApiVersions itself is answered by the transport.
    fn api_versions(&self, listener: &ListenerName) -> ApiVersionsData;
}

/// One request of a connection, in a version that the listener serves.
#[derive(Debug)]
pub struct InboundRequest {
    /// Its header.
    pub header: RequestHeader,
    /// Its body, a slice of the frame.
    pub body: Cursor,
    /// Where it came in.
    pub connection: Rc<ConnectionInfo>,
    /// What the frame holds of the inbound budget. To be kept while the frame's bytes are, and dropped
    /// before the request is parked for long.
    pub permit: Permit,
}

/// What became of the first half of a request.
pub enum Outcome {
    /// The answer is on its way. Dropping the future, as when the connection ends, must cancel it.
    Answer(LocalBoxFuture<'static, Answer>),
    /// The connection cannot go on; earlier answers still leave.
    Close(String),
}

/// What is sent for one request.
#[derive(Debug)]
pub enum Answer {
    /// A response.
    Frame(Frame),
    /// Nothing, as for a produce request with acks=0.
    Nothing,
    /// The connection cannot go on.
    Close(String),
}

impl Outcome {
    /// An answer that is known at once.
    pub fn ready(answer: Answer) -> Outcome {
        Outcome::Answer(Box::pin(std::future::ready(answer)))
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Answer(_) => f.write_str("Answer"),
            Outcome::Close(why) => f.debug_tuple("Close").field(why).finish(),
        }
    }
}

/// The number of a connection, unique in the process.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What is known of an accepted connection.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// Its number.
    pub id: ConnectionId,
    /// The listener it came in on.
    pub listener: ListenerName,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address it connected to.
    pub local: SocketAddr,
    client_software: RefCell<Option<ClientSoftware>>,
}

impl ConnectionInfo {
    /// A connection whose client has not said yet what it is.
    pub fn new(
        id: ConnectionId,
        listener: ListenerName,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> ConnectionInfo {
        ConnectionInfo { id, listener, peer, local, client_software: RefCell::new(None) }
    }

    /// What the client said it is, in ApiVersions version 3 or later.
    pub fn client_software(&self) -> Option<ClientSoftware> {
        self.client_software.borrow().clone()
    }

    pub(crate) fn set_client_software(&self, software: ClientSoftware) {
        self.client_software.replace(Some(software));
    }
}
