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
    /// Where the metadata log in the directory ended; `None` where there is none, or where it is not known,
    /// as after a stop of Kafka, which ignores what Tarn adds.
    pub metadata_end: Option<Offset>,
}

impl CleanShutdown {
    /// The name of the file in the log directory.
    pub const FILE_NAME: &'static str = ".kafka_cleanshutdown";

    /// Reads the file.
    ///
    /// # Errors
    /// Where it is not JSON with version 0 and a broker epoch, or its end of the metadata log is none. The
    /// shutdown then counts as unclean.
    pub fn read(bytes: &[u8]) -> Result<CleanShutdown, CheckpointError> {
        let json: Value = serde_json::from_slice(bytes)
            .map_err(|error| CheckpointError::Malformed { line: error.line(), expected: "JSON" })?;
        let number = |key| json.get(key).and_then(Value::as_i64).ok_or(CheckpointError::MissingKey { key });
        match number("version")? {
            0 => {
                Ok(CleanShutdown { broker_epoch: number("brokerEpoch")?, metadata_end: metadata_end(&json)? })
            }
            other => Err(CheckpointError::Unsupported { key: "version", value: other.to_string() }),
        }
    }

    /// The content of the file.
    pub fn write(&self) -> Vec<u8> {
        let mut json = json!({ "version": 0, "brokerEpoch": self.broker_epoch });
        if let Some(end) = self.metadata_end {
            json[METADATA_END] = json!(end.0);
        }
        json.to_string().into_bytes()
    }
}

/// The key of [`CleanShutdown::metadata_end`], which is Tarn's own.
const METADATA_END: &str = "tarnMetadataLogEnd";

fn metadata_end(json: &Value) -> Result<Option<Offset>, CheckpointError> {
    let Some(value) = json.get(METADATA_END) else { return Ok(None) };
    match value.as_i64() {
        Some(end) if end >= 0 => Ok(Some(Offset(end))),
        _ => Err(CheckpointError::Unsupported { key: METADATA_END, value: value.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_offset_checkpoint_has_kafkas_lines() {
        let offsets = [("orders", PartitionIndex(0), Offset(17)), ("a.b_c-d", PartitionIndex(11), Offset(0))];
        let bytes = OffsetCheckpoint::write(offsets);
        assert_eq!(bytes, b"0\n2\norders 0 17\na.b_c-d 11 0\n");
        let read = OffsetCheckpoint::read(&bytes).unwrap();
        assert_eq!(read[0], (("orders".to_owned(), PartitionIndex(0)), Offset(17)));
        assert_eq!(read.len(), 2);
        assert_eq!(OffsetCheckpoint::write([]), b"0\n0\n");
    }

    #[test]
    fn a_damaged_offset_checkpoint_is_told_by_line() {
        let line = |text: &str| match OffsetCheckpoint::read(text.as_bytes()) {
            Err(CheckpointError::Malformed { line, .. }) => line,
            other => panic!("{text:?}: {other:?}"),
        };
        assert_eq!(line(""), 1);
        assert_eq!(line("1\n0\n"), 1);
        assert_eq!(line("0\nmany\n"), 2);
        assert_eq!(line("0\n-1\n"), 2);
        assert_eq!(line("0\n2\nt 0 1\nt 0\n"), 4);
        assert_eq!(line("0\n1\nt 0 1 1\n"), 3);
        assert_eq!(line("0\n1\nt 0 -1\n"), 3);
        assert_eq!(line("0\n1\nt 0 99999999999999999999\n"), 3);
        assert_eq!(line("0\n1\nt 0 1\nt 1 1\n"), 4);
        assert_eq!(
            OffsetCheckpoint::read(b"0\n4000000000\nt 0 1\n"),
            Err(CheckpointError::Missing { left: 3_999_999_999 })
        );
    }

    #[test]
    fn partition_metadata_has_kafkas_lines() {
        let metadata = PartitionMetadata { topic_id: TopicId::METADATA };
        assert_eq!(metadata.write(), b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(PartitionMetadata::read(&metadata.write()), Ok(metadata));
        assert_eq!(
            PartitionMetadata::read(b"version: 7\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
            Err(CheckpointError::Unsupported { key: "version", value: "7".into() })
        );
        for bytes in [&b""[..], b"version: 0", b"version: 0\ntopic_id: x", b"\xff"] {
            assert!(PartitionMetadata::read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_clean_shutdown_names_the_broker_epoch() {
        let clean = CleanShutdown { broker_epoch: 42, metadata_end: None };
        assert_eq!(CleanShutdown::read(&clean.write()), Ok(clean));
        assert_eq!(CleanShutdown::read(br#"{"version":0,"brokerEpoch":42}"#), Ok(clean));
        for bytes in [&b""[..], b"{}", br#"{"version":0}"#, br#"{"version":1,"brokerEpoch":4}"#, b"[1]"] {
            assert!(CleanShutdown::read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_clean_shutdown_says_where_the_metadata_log_ended_if_it_is_known() {
        for metadata_end in [None, Some(Offset(0)), Some(Offset(i64::MAX))] {
            let clean = CleanShutdown { broker_epoch: 42, metadata_end };
            assert_eq!(CleanShutdown::read(&clean.write()), Ok(clean));
        }
        for end in ["-1", "null", "\"9\"", "1e30"] {
            let text = format!(r#"{{"version":0,"brokerEpoch":42,"tarnMetadataLogEnd":{end}}}"#);
            assert!(CleanShutdown::read(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_offsets_read_back(
            offsets in prop::collection::vec(("[a-zA-Z0-9._-]{1,20}", 0i32.., 0i64..), 0..20)
        ) {
            let written = OffsetCheckpoint::write(
                offsets.iter().map(|(topic, at, offset)| (&**topic, PartitionIndex(*at), Offset(*offset))),
            );
            let expected: Vec<_> = offsets
                .iter()
                .map(|(topic, at, offset)| ((topic.clone(), PartitionIndex(*at)), Offset(*offset)))
                .collect();
            prop_assert_eq!(OffsetCheckpoint::read(&written), Ok(expected));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = OffsetCheckpoint::read(&bytes);
            let _ = PartitionMetadata::read(&bytes);
            let _ = CleanShutdown::read(&bytes);
        }

        #[test]
        fn almost_right_text_is_read_or_refused(text in "[01]\n[0-9]{1,3}\n([a-z -]{1,4} [0-9-]{1,4} [0-9]{1,4}\n){0,4}") {
            let rows = text.lines().count() - 2;
            if let Ok(read) = OffsetCheckpoint::read(text.as_bytes()) {
                prop_assert_eq!(read.len(), rows);
            }
        }
    }
}
