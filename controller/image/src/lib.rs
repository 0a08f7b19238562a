//! The cluster's metadata as one value, and what can be read from it.
//!
//! [`MetadataImage`] is what the records of the metadata log add up to. It is immutable to its readers and
//! cheap to clone, so that every core holds the same one; [`MetadataDelta`] says what a batch of records
//! changed. [`config`] has every configuration key there is, [`effective`] what is in force for a topic or
//! broker and where that comes from, [`mirrors`] which topics belong to which cluster mirror,
//! [`topic_name`] what a topic may be called.

pub mod brokers;
mod carried;
pub mod config;
pub mod configs;
pub mod delta;
pub mod effective;
pub mod features;
pub mod image;
pub mod limits;
pub mod mirrors;
pub mod topic_name;
pub mod topics;

pub use brokers::{BrokerRegistration, ControllerRegistration, Endpoint};
pub use configs::{ConfigResource, ResourceType};
pub use delta::MetadataDelta;
pub use image::{MetadataImage, Provenance, ReplayError};
pub use mirrors::{Binding, DesiredState, MirrorImage};
pub use topics::{PartitionRegistration, TopicImage};
