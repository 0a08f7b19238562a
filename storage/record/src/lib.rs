//! What a Kafka record batch is: ids, batches, codecs and what may be appended.
//!
//! Works on bytes only: no files, no sockets, no clock.

pub mod batch;
pub mod builder;
pub mod codec;
pub mod ids;
pub mod validate;
mod varint;

pub use batch::{
    Attributes, BatchError, BatchHeader, Batches, ControlRecord, ControlType, HEADER_BYTES, HeaderView,
    HeaderViews, LOG_OVERHEAD, ReadError, RecordFault, RecordReader, RecordView, Records, Rewrite, Stamp,
    Stamped, TimestampType, ValidBatch, batches, records,
};
pub use builder::{
    BatchBuilder, EndTransaction, Outcome, Record, control_batch, end_transaction_marker, seal,
};
pub use codec::{CodecError, Compression, Decoder, Encoder, compress, decompress};
pub use ids::{
    BrokerId, Epoch, NotAnId, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp,
    TopicId, TopicIdPartition,
};
pub use validate::{
    ClientBatch, ClientBatchValidator, InvalidBatch, Mirrored, MirroredScanner, ProduceRules, Progress,
    Recompression, RecordError, client_batch, mirrored,
};

/// CRC-32C (Castagnoli), the checksum of record batches and of Kafka's snapshots.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
