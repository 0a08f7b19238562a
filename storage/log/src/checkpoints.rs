//! The small files beside the segments: what they say, read from bytes and written to bytes.
//!
//! Who reads and writes the files themselves is [`crate::log_dir`]; `leader-epoch-checkpoint` is in
//! [`crate::epochs`] and `meta.properties` in [`crate::meta_properties`]. A file may hold anything:
//! reading it gives a value or an error, and never more memory than the file has bytes.

pub(crate) mod rows;

use serde_json::{Value, json};
use tarn_record::{Offset, PartitionIndex, TopicId};
use thiserror::Error;

use rows::Rows;

/// A file that does not hold what its name says.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CheckpointError {
    /// A line that cannot be read.
    #[error("{expected} is expected in line {line}")]
    Malformed {
        /// The line, from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// The file ends too early.
    #[error("{left} more entries are expected at the end")]
    Missing {
        /// How many are missing.
        left: usize,
    },
    /// A version or value from another world.
    #[error("{key} cannot be '{value}'")]
    Unsupported {
        /// The key at fault.
        key: &'static str,
        /// What stands there.
        value: String,
    },
    /// A key that has to be there.
    #[error("{key} is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
}

/// The text files of a log directory that give one offset for each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetCheckpoint {
    /// Up to where each log was flushed.
    RecoveryPoint,
    /// Where each log starts, if not with its first segment.
    LogStart,
    /// The high watermarks.
    Replication,
    /// The first offsets that compaction has not seen.
    Cleaner,
}

/// One line of an [`OffsetCheckpoint`].
pub type PartitionOffset = ((String, PartitionIndex), Offset);

impl OffsetCheckpoint {
    /// The name of the file in the log directory.
    pub fn file_name(self) -> &'static str {
        match self {
            OffsetCheckpoint::RecoveryPoint => "recovery-point-offset-checkpoint",
            OffsetCheckpoint::LogStart => "log-start-offset-checkpoint",
            OffsetCheckpoint::Replication => "replication-offset-checkpoint",
            OffsetCheckpoint::Cleaner => "cleaner-offset-checkpoint",
        }
    }

    /// The offsets in a file, in its order.
    ///
    /// # Errors
    /// Where a line cannot be read, a number is negative, or the count is not that of the lines.
    pub fn read(bytes: &[u8]) -> Result<Vec<PartitionOffset>, CheckpointError> {
        let mut rows = Rows::parse(bytes)?;
        let mut offsets = Vec::new();
        while let Some(mut row) = rows.next_row()? {
            let topic = row.text()?;
            let (partition, offset) = (PartitionIndex(row.number()?), Offset(row.number()?));
            row.end()?;
            if partition < PartitionIndex(0) || offset < Offset(0) {
                return Err(row.refuse("a partition and an offset from 0 on"));
            }
            offsets.push(((topic.to_owned(), partition), offset));
        }
        Ok(offsets)
    }

    /// The content of a file with these offsets.
    pub fn write<'a>(offsets: impl IntoIterator<Item = (&'a str, PartitionIndex, Offset)>) -> Vec<u8> {
        let rows = offsets.into_iter();
        Rows::write(rows.map(|(topic, partition, offset)| format!("{topic} {partition} {offset}")))
    }
}

/// The file `partition.metadata`: whose log a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// The topic's id.
    pub topic_id: TopicId,
}

impl PartitionMetadata {
    /// The name of the file in the partition's directory.
    pub const FILE_NAME: &'static str = "partition.metadata";

    /// Reads the file.
    ///
    /// # Errors
    /// Where it is not version 0 or has no topic id.
    pub fn read(bytes: &[u8]) -> Result<PartitionMetadata, CheckpointError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| CheckpointError::Malformed { line: 1, expected: "UTF-8 text" })?;
        let mut lines = text.lines();
        let version = value_of("version", lines.next())
            .ok_or(CheckpointError::Malformed { line: 1, expected: "'version: 0'" })?;
        if version != "0" {
            return Err(CheckpointError::Unsupported { key: "version", value: version.to_owned() });
        }
        let topic_id = value_of("topic_id", lines.next())
            .and_then(|id| id.parse().ok())
            .ok_or(CheckpointError::Malformed { line: 2, expected: "'topic_id: <id>'" })?;
        Ok(PartitionMetadata { topic_id })
    }

    /// The content of the file.
    pub fn write(&self) -> Vec<u8> {
        format!("version: 0\ntopic_id: {}", self.topic_id).into_bytes()
    }
}

/// The value in a line `key: value`.
fn value_of<'a>(key: &str, line: Option<&'a str>) -> Option<&'a str> {
    let (found, value) = line?.split_once(':')?;
    (found.trim() == key).then(|| value.trim())
}

/// The file `.kafka_cleanshutdown`: there only while the log directory was closed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanShutdown {
    /// The epoch that the controller gave this broker when it last registered; −1 where unknown.
    pub broker_epoch: i64,
}

impl CleanShutdown {
    /// The name of the file in the log directory.
    pub const FILE_NAME: &'static str = ".kafka_cleanshutdown";

    /// Reads the file.
    ///
    /// # Errors
    /// Where it is not JSON with version 0 and a broker epoch. The shutdown then counts as unclean.
    pub fn read(bytes: &[u8]) -> Result<CleanShutdown, CheckpointError> {
        let json: Value = serde_json::from_slice(bytes)
            .map_err(|error| CheckpointError::Malformed { line: error.line(), expected: "JSON" })?;
        let number = |key| json.get(key).and_then(Value::as_i64).ok_or(CheckpointError::MissingKey { key });
        match number("version")? {
            0 => Ok(CleanShutdown { broker_epoch: number("brokerEpoch")? }),
            other => Err(CheckpointError::Unsupported { key: "version", value: other.to_string() }),
        }
    }

    /// The content of the file.
    pub fn write(&self) -> Vec<u8> {
        json!({ "version": 0, "brokerEpoch": self.broker_epoch }).to_string().into_bytes()
    }
}
