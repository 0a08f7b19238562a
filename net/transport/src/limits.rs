//! The limits of this crate: what a peer can make it use, and how much of it at most.
//!
//! What an operator may move is in [`ConnectionLimits`] and in
//! [`ClientOptions`](crate::ClientOptions); the other numbers are fixed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// What the connections of a node may use. The defaults are Kafka's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The largest request (`socket.request.max.bytes`).
    pub max_request_bytes: usize,
    /// After so long without a request a connection is closed (`connections.max.idle.ms`), and one whose
    /// peer takes no byte of its response.
    pub idle_timeout: Duration,
    /// Who may connect.
    pub admission: AdmissionLimits,
    /// The requests of one connection that may wait for their answers; beyond it the connection is not
    /// read.
    pub pipeline_depth: usize,
    /// How long a connection on which answers are due stays open once the server stops.
    pub stop_grace: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            max_request_bytes: 100 << 20,
            idle_timeout: Duration::from_secs(600),
            admission: AdmissionLimits::default(),
            pipeline_depth: 32,
            stop_grace: Duration::from_secs(1),
        }
    }
}

/// How many connections a node takes, and how fast. The defaults are Kafka's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The connections of the whole node, at least one; beyond it none is accepted until one ends (`max.connections`).
    pub max: usize,
    /// The connections from one address; beyond it they are closed when it is their turn (`max.connections.per.ip`).
    pub max_per_ip: usize,
    /// The same of some addresses (`max.connections.per.ip.overrides`).
    pub max_of_ip: HashMap<IpAddr, usize>,
    /// The connections that are accepted in a second, at least one; `None` for as many as come
    /// (`max.connection.creation.rate`).
    pub creations_per_second: Option<u32>,
}

impl Default for AdmissionLimits {
    fn default() -> AdmissionLimits {
        AdmissionLimits {
            max: i32::MAX as usize,
            max_per_ip: i32::MAX as usize,
            max_of_ip: HashMap::new(),
            creations_per_second: None,
        }
    }
}

/// The default backlog of a listener (`socket.listen.backlog.size` is 50; a burst of clients after a
/// restart is larger).
pub const LISTEN_BACKLOG: i32 = 1024;

/// The first step of a large request's memory; it gets as much again as has arrived each time.
pub const REQUEST_STEP_BYTES: usize = 64 << 10;

/// The same of an answer: as large as a fetch asks for, because growing copies what is there. Untouched
/// memory is no memory yet.
pub const ANSWER_STEP_BYTES: usize = 4 << 20;

/// Buffers of large frames are multiples of this.
pub const BUFFER_GRAIN_BYTES: usize = 64 << 10;

/// Frames up to this size are cut out of what was read; larger ones get a buffer of their own.
pub const SMALL_FRAME_BYTES_MAX: usize = 16 << 10;

/// What one read of a large frame takes before progress is noted.
pub const READ_CHUNK_BYTES: usize = 256 << 10;

/// A frame that has begun and brings no further chunk for so long is given up: it holds the budget.
pub const FRAME_STALL_MAX: Duration = Duration::from_secs(30);

/// A frame brings a share of what it holds of the budget in each such stretch of `FRAME_STALL_MAX`, one in so many:
/// one that is slower is given up while others wait for the budget. It has then doubled, or ended, within about
/// six minutes; 100 MB are held by nobody who brings less than 210 KB a second.
pub const FRAME_SHARE_MIN: usize = 16;

/// The large frame buffers that one core keeps for the next large frames.
pub const KEPT_BUFFERS_MAX: usize = 16;

/// The memory of those buffers together.
pub const KEPT_BYTES_MAX: usize = 48 << 20;

/// From this size on a range of a file is sent with `sendfile`; below it is copied.
pub const SENDFILE_BYTES_MIN: u32 = 8 << 10;

/// What is sent of a file range before it is looked at again.
pub const FILE_CHUNK_BYTES: u32 = 1 << 20;

/// What is read of a cold file range on the blocking pool before it is sent.
pub const COLD_CHUNK_BYTES: u32 = 256 << 10;

/// Bytes of a response below this size are gathered with their neighbours; larger ones are sent from
/// where they lie.
pub const GATHER_BYTES_MAX: usize = 4 << 10;

/// What is gathered before it is sent.
pub const PENDING_BYTES_MAX: usize = 64 << 10;

/// What one write of response bytes carries before progress is noted.
pub const WRITE_CHUNK_BYTES: usize = 256 << 10;

/// The room for gathered bytes that an idle connection keeps.
pub const PENDING_BYTES_KEPT: usize = 512;

/// How long a socket stays open for what the client has not received yet, once the server has written its last answer:
/// a client that is told the end of the stream closes it at once.
pub const LAST_ANSWERS_MAX: Duration = Duration::from_secs(1);

/// What is read at once of what nobody wants.
pub const DISCARD_BYTES: usize = 16 << 10;

/// The longest answer to ApiVersions that a client reads, before it knows who answers.
pub const HANDSHAKE_BYTES_MAX: usize = 1 << 20;

/// The lines about what happens again and again, such as connections that end badly, of one core or listener and
/// for one reason, in a window of `REMARKS_INTERVAL`.
pub const REMARKS_MAX: u32 = 10;

/// After so long such lines are said again, with how many were left out.
pub const REMARKS_INTERVAL: Duration = Duration::from_secs(60);

/// The accepted sockets that may wait for one core.
pub const DEALT_SOCKETS_MAX: usize = 1024;
