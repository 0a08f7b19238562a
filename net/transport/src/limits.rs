//! The limits of this crate: every resource that a peer can make it use, and how much of it at most.
//!
//! What an operator may move comes in through [`ConnectionLimits`](crate::ConnectionLimits) and
//! [`ClientOptions`](crate::ClientOptions); the numbers here are fixed.

use std::time::Duration;

/// The first step of a frame's memory. A frame that announces more gets more only as its bytes arrive.
pub const FRAME_STEP_BYTES: usize = 64 << 10;

/// What one read may take from a socket between frames; one buffer of this size serves a whole core.
pub const SCRATCH_BYTES: usize = 64 << 10;

/// A frame that has begun and brings no further byte for so long is given up: it holds the budget.
pub const FRAME_STALL_MAX: Duration = Duration::from_secs(30);

/// The large frame buffers that one core keeps for the next large frame.
pub const KEPT_BUFFERS_MAX: usize = 16;

/// The memory that those buffers hold together.
pub const KEPT_BYTES_MAX: usize = 48 << 20;

/// From this size on a range of a file is sent with `sendfile`; below it, it is copied.
pub const SENDFILE_BYTES_MIN: u32 = 8 << 10;

/// What one step of a file range sends before it looks again at the range and at the clock.
pub const FILE_CHUNK_BYTES: u32 = 1 << 20;

/// What one step of a cold range reads on the blocking pool.
pub const COLD_CHUNK_BYTES: u32 = 256 << 10;

/// Bytes of a response below this size are gathered with their neighbours; larger ones are sent in place.
pub const GATHER_BYTES_MAX: usize = 4 << 10;

/// What is gathered before it is sent.
pub const PENDING_BYTES_MAX: usize = 64 << 10;

/// What one write of response bytes may carry before progress is noted.
pub const WRITE_CHUNK_BYTES: usize = 256 << 10;

/// The longest answer to ApiVersions that a client reads before it knows who answers.
pub const HANDSHAKE_BYTES_MAX: usize = 1 << 20;

/// The accepted sockets that may wait for their core.
pub const DEALT_SOCKETS_MAX: usize = 1024;
