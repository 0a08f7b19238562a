//! What a Kafka record batch is: ids, batches, codecs and what may be appended.
//!
//! Works on bytes only: no files, no sockets, no clock.

pub mod ids;

pub use ids::{
    BrokerId, Epoch, NotAnId, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};
