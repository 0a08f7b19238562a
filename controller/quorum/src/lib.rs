//! The controller: the metadata quorum in Kafka's format and protocol (KRaft), and what it decides.
//!
//! [`raft`] is the sans-IO core, [`metadata_log`] and [`snapshot`] what it keeps on the disk, [`decide`] one
//! file for each decision, and [`server`] the driver that runs them on a thread of its own.

pub mod batch;
pub mod format;
pub mod metadata_log;
pub mod quorum_state;
pub mod raft;
pub mod snapshot;
