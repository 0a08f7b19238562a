//! What the controller decides, one file for each decision.
//!
//! A decision is a function of the speculative image (committed plus pending), the request and a
//! [`Context`]; it reads no clock and draws nothing by itself. Its records take effect together, batch by
//! batch, and its answer leaves when the last of them is committed.

pub mod alter_configs;
pub mod brokers;
pub mod create_topics;
pub mod delete_mirror;
pub mod delete_topics;
pub mod elections;
pub mod features;
pub mod leader_epochs;
mod mirror_bindings;
pub mod mirror_desired;
mod mirror_patterns;
pub mod mirror_stopped;
pub mod mirror_topics;
pub mod mirrors;
pub mod names;
pub mod partitions;
pub mod placement;
pub mod producer_ids;
pub mod replace_configs;

use tarn_image::config::server::ServerConfig;
use tarn_record::{Offset, TopicId};
use tarn_wire::limits::STRING_BYTES_MAX;
use tarn_wire::{ErrorCode, MetadataRecord, Str};

/// The most partitions that one request may create, as in Kafka.
pub const PARTITIONS_PER_REQUEST_MAX: i64 = 10_000;

/// What a decision may know beside the image.
pub struct Context<'a> {
    /// Where its first record will be.
    pub next_offset: Offset,
    /// The id of this cluster.
    pub cluster_id: &'a str,
    /// This node's configuration: the defaults of topics.
    pub config: &'a ServerConfig,
    /// Draws the id of a new topic.
    pub new_id: &'a mut dyn FnMut() -> TopicId,
}

/// What is to be written, and what to answer once it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<R> {
    /// The records; each inner list is one batch of the log, applied whole or not at all.
    pub batches: Vec<Vec<MetadataRecord>>,
    /// The answer.
    pub response: R,
}

impl<R> Decision<R> {
    /// An answer that changes nothing.
    pub fn unchanged(response: R) -> Decision<R> {
        Decision { batches: Vec::new(), response }
    }

    /// One batch and its answer; no batch where there are no records.
    pub fn of(records: Vec<MetadataRecord>, response: R) -> Decision<R> {
        let batches = if records.is_empty() { Vec::new() } else { vec![records] };
        Decision { batches, response }
    }

    /// The same decision with its answer in another type.
    pub fn map<S>(self, wrap: impl FnOnce(R) -> S) -> Decision<S> {
        Decision { batches: self.batches, response: wrap(self.response) }
    }

    /// The decision as far as it is to be carried out: of a trial run the same answer, with nothing written.
    pub fn carried_out(self, run: Run) -> Decision<R> {
        match run {
            Run::Earnest => self,
            Run::Trial => Decision::unchanged(self.response),
        }
    }
}

/// Whether a request wants its change made, or only to know what would become of it (`ValidateOnly`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// What is decided is written.
    Earnest,
    /// Nothing is written.
    Trial,
}

impl Run {
    /// What the field of a request says.
    pub fn of(validate_only: bool) -> Run {
        if validate_only { Run::Trial } else { Run::Earnest }
    }
}

/// Why something is refused: a code for programs, a sentence for people. Without a sentence clients print
/// their own for the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The code.
    pub code: ErrorCode,
    /// The sentence.
    pub message: Option<String>,
}

impl ApiError {
    /// A refusal with a sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError { code, message: Some(message.into()) }
    }

    /// A refusal that its code explains.
    pub fn bare(code: ErrorCode) -> ApiError {
        ApiError { code, message: None }
    }

    /// The sentence as responses carry it.
    pub fn wire_message(&self) -> Option<Str> {
        self.message.as_deref().map(sentence)
    }
}

/// A sentence as responses carry it: it may repeat what a client said, which can be as long as a string can,
/// and is cut off then.
pub fn sentence(text: &str) -> Str {
    Str::from(&text[..text.floor_char_boundary(STRING_BYTES_MAX)])
}

/// Code and message of a result, as responses carry them.
pub(crate) fn wire_result<T>(result: &Result<T, ApiError>) -> (i16, Option<Str>) {
    match result {
        Ok(_) => (ErrorCode::NONE.0, None),
        Err(error) => (error.code.0, error.wire_message()),
    }
}

#[cfg(test)]
pub(crate) mod world;
