//! What can go wrong on the way to a broker and back.

use std::io;
use std::time::Duration;

use tarn_wire::{ApiKey, ErrorCode};
use thiserror::Error;

use super::Endpoint;

/// Why a call has no response. All but `UnsupportedVersion` and `Unencodable` mean that the connection is
/// closed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ClientError {
    /// No connection could be made: no such host, refused, or no answer in time.
    #[error("{endpoint} cannot be reached: {cause}")]
    Unreachable {
        /// The broker.
        endpoint: Endpoint,
        /// What the operating system says.
        cause: String,
    },
    /// The response did not come in time.
    #[error("{api} was not answered within {after:?}")]
    TimedOut {
        /// What was asked.
        api: ApiKey,
        /// The time it was given.
        after: Duration,
    },
    /// The connection ended while a response was due, or before the call.
    #[error("the connection is closed: {detail}")]
    Closed {
        /// By whom.
        detail: String,
    },
    /// What listens there is no Kafka broker, or speaks another security protocol.
    #[error("{endpoint} is no Kafka broker that speaks PLAINTEXT: {detail}")]
    NotKafka {
        /// Whom we asked.
        endpoint: Endpoint,
        /// What came instead of an answer.
        detail: String,
    },
    /// A response that makes no sense.
    #[error("the broker's answer is malformed: {detail}")]
    Malformed {
        /// What is wrong with it.
        detail: String,
    },
    /// The broker refused to say what it serves.
    #[error("the broker refused ApiVersions: {}", code.name())]
    HandshakeRefused {
        /// Its error.
        code: ErrorCode,
    },
    /// There is no version of the API that both sides know.
    #[error("{api}: we know the versions {}-{}, the broker {}", ours.0, ours.1, range(*theirs))]
    UnsupportedVersion {
        /// The API.
        api: ApiKey,
        /// Our lowest and highest version.
        ours: (i16, i16),
        /// The broker's, where it serves the API at all.
        theirs: Option<(i16, i16)>,
    },
    /// The request cannot be written in its version.
    #[error("{api} cannot be written: {detail}")]
    Unencodable {
        /// The API.
        api: ApiKey,
        /// Which field, and why.
        detail: String,
    },
    /// The response is larger than the call allows.
    #[error("the response announces {announced} bytes, {limit} are allowed")]
    TooLarge {
        /// What it announces.
        announced: i32,
        /// What the call allows.
        limit: usize,
    },
}

impl ClientError {
    pub(crate) fn unreachable(endpoint: &Endpoint, error: &io::Error) -> ClientError {
        ClientError::Unreachable { endpoint: endpoint.clone(), cause: error.to_string() }
    }

    pub(crate) fn closed(detail: impl ToString) -> ClientError {
        ClientError::Closed { detail: detail.to_string() }
    }
}

fn range(theirs: Option<(i16, i16)>) -> String {
    theirs.map_or_else(|| "none".to_owned(), |(min, max)| format!("{min}-{max}"))
}
