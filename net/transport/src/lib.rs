//! Connections: the server side that brokers and controllers answer on, and the client that mirrors,
//! replication and tools ask with.
//!
//! A node binds one [`Acceptor`] and runs one [`Server`] on each core, with a [`Service`] that answers.
//! Frames, sizes, order, timeouts, limits and ApiVersions are dealt with here; a service sees decoded
//! headers and gives back frames, whose parts may lie in files. A [`Client`] is one connection to one
//! broker. Only plaintext is spoken so far ([`security`]).

mod admission;
pub mod budget;
mod buffers;
pub mod client;
mod connection;
mod frames;
pub mod limits;
pub mod listener;
pub mod metrics;
mod pipeline;
mod progress;
pub mod remarks;
mod response;
pub mod security;
pub mod server;
pub mod service;
mod stopping;
pub mod versions;

pub use admission::Admission;
pub use budget::{MemoryBudget, Permit};
pub use client::{CallLimits, Client, ClientError, ClientOptions, Endpoint, EndpointError};
pub use limits::{AdmissionLimits, ConnectionLimits};
pub use listener::{Accepted, Acceptor, ListenerName, ListenerSpec};
pub use metrics::{ListenerMetrics, ListenerNumber, TransportMetrics};
pub use security::{SecurityError, SecurityProtocol};
pub use server::Server;
pub use service::{Answer, ConnectionId, ConnectionInfo, InboundRequest, Outcome, Service};
pub use versions::{ApiRange, ApiRanges, ApiVersionsData, BrokerVersions, ClientSoftware, FeatureLevels};
