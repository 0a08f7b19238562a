//! The controller: the metadata quorum in Kafka's format and protocol (KRaft), and what it decides.
//!
//! [`raft`] is the sans-IO core, [`metadata_log`] and [`snapshot`] what it keeps on the disk, [`decide`] one
//! file for each decision, [`speculative`] the image they see, and [`server`] the driver that runs them on a
//! thread of its own. Others talk to it through a [`ControllerHandle`].

pub mod batch;
pub mod decide;
pub mod format;
pub mod load;
pub mod metadata_log;
pub mod quorum_state;
pub mod raft;
pub mod request;
pub mod retention;
pub mod server;
pub mod snapshot;
pub mod speculative;

pub use request::{Answered, ControllerHandle, ControllerRequest, ControllerResponse, Undecided};
pub use server::{ControllerError, ControllerOptions, ImageUpdate, Running};
