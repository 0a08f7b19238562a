//! What may be appended: batches that clients send, and batches mirrored from another cluster.
//!
//! The two differ in trust. A client's batch becomes part of the log with new offsets, so everything it
//! says about its records is checked against the records. A mirrored batch was checked by its leader and
//! keeps its offsets, so only damage and order are looked for.

mod client;
mod mirrored;
mod recompressing;
mod refusal;
mod verdict;

pub use client::{ClientBatch, ClientBatchValidator, ProduceRules, Progress, client_batch};
pub use mirrored::{Mirrored, MirroredScanner, mirrored};
pub use recompressing::Recompression;
pub use refusal::{InvalidBatch, RecordError};
