//! How a batch is refused: the error that the protocol knows, and words for people.

use thiserror::Error;

/// The kinds of refusal that Kafka's protocol knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordError {
    /// `CORRUPT_MESSAGE`: the bytes are not those that the client wrote.
    CorruptMessage,
    /// `MESSAGE_TOO_LARGE`.
    MessageTooLarge,
    /// `RECORD_LIST_TOO_LARGE`: no segment holds it.
    RecordListTooLarge,
    /// `INVALID_TIMESTAMP`.
    InvalidTimestamp,
    /// `UNSUPPORTED_COMPRESSION_TYPE`.
    UnsupportedCompression,
    /// `INVALID_RECORD`.
    InvalidRecord,
}

impl RecordError {
    /// Kafka's error code.
    pub fn code(self) -> i16 {
        match self {
            RecordError::CorruptMessage => 2,
            RecordError::MessageTooLarge => 10,
            RecordError::RecordListTooLarge => 18,
            RecordError::InvalidTimestamp => 32,
            RecordError::UnsupportedCompression => 76,
            RecordError::InvalidRecord => 87,
        }
    }
}

/// Why a batch may not be appended. Nothing of it is.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct InvalidBatch {
    /// What the client is told.
    pub error: RecordError,
    /// One sentence for people.
    pub message: String,
    /// The records at fault, by their place in the batch, where single records are: the first hundred.
    pub record_errors: Vec<(i32, String)>,
}

impl InvalidBatch {
    pub(super) fn new(error: RecordError, message: impl Into<String>) -> InvalidBatch {
        InvalidBatch { error, message: message.into(), record_errors: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_kafkas_error_codes() {
        let codes = [
            RecordError::CorruptMessage,
            RecordError::MessageTooLarge,
            RecordError::RecordListTooLarge,
            RecordError::InvalidTimestamp,
            RecordError::UnsupportedCompression,
            RecordError::InvalidRecord,
        ]
        .map(RecordError::code);
        assert_eq!(codes, [2, 10, 18, 32, 76, 87]);
    }
}
