//! A broker: cores that own partitions, and the handlers of Kafka's protocol on top of them.
//!
//! A request comes in on the core of its connection ([`dispatch`], [`handlers`]), goes in one envelope to
//! each core that owns what it is about ([`envelope`], [`router`]), and is decided there ([`partitions`],
//! [`replica`]). [`broker`] puts a node together.

pub mod admin;
pub mod broker;
pub mod cleaning;
mod closing;
pub mod cold_reads;
mod collecting;
mod connections;
pub mod coordinators;
pub mod core;
mod creating;
mod decompression;
pub mod delete_records;
pub mod dir_sizes;
pub mod dispatch;
pub mod envelope;
mod expiring;
mod failing;
mod flushing;
pub mod handlers;
pub mod interest;
pub mod internal_topics;
mod kept_answers;
pub mod layout;
pub mod limits;
pub mod log_dirs;
mod log_part;
pub mod loggers;
#[cfg(test)]
mod lone_core;
mod lookups;
pub mod metadata_view;
pub mod metrics;
pub mod mirror_host;
mod mirrored;
pub mod named;
pub mod node;
pub mod partitions;
mod placing;
mod producer_ids;
pub mod published;
pub mod removing;
pub mod replica;
mod retaining;
pub mod router;
pub mod rules;
pub mod scatter;
pub mod sessions;
pub mod slots;
mod stopping;
pub mod topic_changes;
mod truncating;
pub mod unopened;
#[cfg(test)]
mod watched_disk;

pub use broker::{Broker, StartError};
