//! Snapshots of the metadata: files with everything up to an offset, in Kafka's format.
//!
//! A snapshot is named by the offset and epoch it ends with. It begins with a SnapshotHeader and ends with
//! a SnapshotFooter; one without its footer was not finished and counts for nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use bytes::Bytes;
use tarn_log::Disk;
use tarn_record::{ControlRecord, ControlType, Epoch, Offset, Timestamp, batches};
use tarn_wire::messages::{SnapshotFooterRecord, SnapshotHeaderRecord};
use tarn_wire::{Cursor, EncodeError, Message, MetadataRecord};
use thiserror::Error;

use crate::batch::{self, NotMetadata, VoterName};
use crate::retention::KeptSnapshot;

/// What the names of snapshots end with.
const SUFFIX: &str = ".checkpoint";
/// Metadata records in one batch.
const RECORDS_PER_BATCH: usize = 1000;

/// What a snapshot contains: everything below an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    /// The offset after the last record it contains.
    pub end_offset: Offset,
    /// The epoch of that record.
    pub epoch: Epoch,
}

/// What a snapshot leaves free: the log can be written without it, and says more.
const LEFT_TO_THE_LOG_BYTES: u64 = 1024 * 1024;

/// Why a snapshot could not be written or read.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The disk refused.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// There is no room for it beside what the log is to keep.
    #[error("there is no room for {path}: {needed} bytes are needed with those for the log, of {available}")]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// How many bytes there should be.
        needed: u64,
        /// How many there are.
        available: u64,
    },
    /// The file is not a finished snapshot.
    #[error("{path} is not a snapshot: {detail}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A record does not fit.
    #[error(transparent)]
    Unencodable(#[from] EncodeError),
}

impl SnapshotError {
    /// True where there was no room for it.
    pub fn is_full(&self) -> bool {
        match self {
            SnapshotError::Io { cause, .. } => {
                matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            SnapshotError::NoRoom { .. } => true,
            SnapshotError::Malformed { .. } | SnapshotError::Unencodable(_) => false,
        }
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:010}{SUFFIX}", self.end_offset.0, self.epoch.0)
    }
}

impl SnapshotId {
    /// The id that a file name says, where it is a snapshot's.
    fn from_file_name(name: &str) -> Option<SnapshotId> {
        let (end_offset, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let digits =
            |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(end_offset, 20) || !digits(epoch, 10) {
            return None;
        }
        Some(SnapshotId { end_offset: Offset(end_offset.parse().ok()?), epoch: Epoch(epoch.parse().ok()?) })
    }
}

/// The bytes of a snapshot. `voter` is given for a dynamic quorum.
///
/// # Errors
/// A record that does not fit.
pub fn contents(
    id: SnapshotId,
    records: &[MetadataRecord],
    voter: Option<&VoterName>,
    last_timestamp: Timestamp,
    now: Timestamp,
) -> Result<Bytes, EncodeError> {
    let header = SnapshotHeaderRecord { version: 0, last_contained_log_timestamp: last_timestamp.0.max(0) };
    let mut first = vec![(ControlType::SnapshotHeader, batch::encoded(&header, 0)?)];
    if let Some(voter) = voter {
        first.extend(batch::dynamic_quorum(voter)?);
    }
    let mut next = Offset(first.len() as i64);
    let mut bytes = batch::control(&first, Offset(0), id.epoch, now).to_vec();
    for chunk in records.chunks(RECORDS_PER_BATCH) {
        bytes.extend_from_slice(&batch::data(chunk, next, id.epoch, now)?);
        next = next.plus(chunk.len() as i64);
    }
    let footer = batch::encoded(&SnapshotFooterRecord { version: 0 }, 0)?;
    bytes.extend_from_slice(&batch::control(&[(ControlType::SnapshotFooter, footer)], next, id.epoch, now));
    Ok(Bytes::from(bytes))
}

/// Writes a snapshot into `dir`; it is on the disk, whole, when this returns.
///
/// # Errors
/// The disk's refusal.
pub fn store(disk: &Arc<dyn Disk>, dir: &Path, id: SnapshotId, contents: &[u8]) -> Result<(), SnapshotError> {
    let path = dir.join(id.to_string());
    let needed = LEFT_TO_THE_LOG_BYTES.saturating_add(contents.len() as u64);
    // A disk that does not tell is asked by writing to it.
    if let Ok(available) = disk.available_bytes(dir)
        && available < needed
    {
        return Err(SnapshotError::NoRoom { path, needed, available });
    }
    disk.write_atomically(&path, contents).map_err(|cause| SnapshotError::Io { path, cause })
}

/// The snapshots in `dir` from the oldest to the newest, as retention sees them.
///
/// # Errors
/// A directory or a file that cannot be read.
pub fn kept(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Vec<KeptSnapshot>, SnapshotError> {
    let mut ids = list(disk, dir)?;
    ids.sort();
    let describe = |id: SnapshotId| {
        let path = dir.join(id.to_string());
        let bytes = disk.read_all(&path).map_err(|cause| SnapshotError::Io { path, cause })?;
        let (length, last_timestamp) = (bytes.len() as u64, last_timestamp(bytes.into()));
        Ok(KeptSnapshot { id, bytes: length, last_timestamp })
    };
    ids.into_iter().map(describe).collect()
}

/// What the header of a snapshot says of the last record in it.
fn last_timestamp(snapshot: Bytes) -> Option<Timestamp> {
    let header = ControlRecord::parse(&batches(snapshot).next()?.ok()?)?;
    if header.control_type != ControlType::SnapshotHeader {
        return None;
    }
    let header = SnapshotHeaderRecord::decode(&mut Cursor::new(header.value), 0).ok()?;
    Some(Timestamp(header.last_contained_log_timestamp))
}

/// The newest finished snapshot in `dir` and its records.
///
/// # Errors
/// A directory that cannot be read, or snapshots of which none is finished.
pub fn newest(
    disk: &Arc<dyn Disk>,
    dir: &Path,
) -> Result<Option<(SnapshotId, Vec<MetadataRecord>)>, SnapshotError> {
    let mut ids = list(disk, dir)?;
    ids.sort();
    let mut newest_error = None;
    for id in ids.into_iter().rev() {
        let path = dir.join(id.to_string());
        let bytes = disk.read_all(&path).map_err(|cause| SnapshotError::Io { path: path.clone(), cause })?;
        match parse(&Bytes::from(bytes)) {
            Ok(records) => return Ok(Some((id, records))),
            Err(detail) => {
                let error = SnapshotError::Malformed { path, detail };
                tracing::warn!(%error, "a snapshot of the metadata cannot be used");
                newest_error = newest_error.or(Some(error));
            }
        }
    }
    newest_error.map_or(Ok(None), Err)
}

/// The snapshots in `dir`, finished or not.
///
/// # Errors
/// A directory that cannot be read.
pub fn list(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Vec<SnapshotId>, SnapshotError> {
    let entries = disk.list(dir).map_err(|cause| SnapshotError::Io { path: dir.to_owned(), cause })?;
    Ok(entries.iter().filter_map(|entry| SnapshotId::from_file_name(&entry.name)).collect())
}

/// The metadata records of a snapshot's bytes.
fn parse(bytes: &Bytes) -> Result<Vec<MetadataRecord>, String> {
    let mut records = Vec::new();
    let mut finished = false;
    for (index, batch) in batches(bytes.clone()).enumerate() {
        let batch = batch.map_err(|error| error.to_string())?;
        let control = batch::control_of(&batch);
        if index == 0 && control != Some(ControlType::SnapshotHeader) {
            return Err("it does not begin with a SnapshotHeader".to_owned());
        }
        finished = control == Some(ControlType::SnapshotFooter);
        records.extend(batch::records_of(&batch).map_err(|error: NotMetadata| error.to_string())?);
    }
    if finished { Ok(records) } else { Err("it does not end with a SnapshotFooter".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tarn_wire::messages::FeatureLevelRecord;

    #[test]
    fn a_snapshot_is_named_by_where_it_ends() {
        let id = SnapshotId { end_offset: Offset(53), epoch: Epoch(7) };
        assert_eq!(id.to_string(), "00000000000000000053-0000000007.checkpoint");
        assert_eq!(SnapshotId::from_file_name(&id.to_string()), Some(id));
        for other in
            ["00000000000000000053.checkpoint", "53-7.checkpoint", "x.checkpoint.part", "quorum-state"]
        {
            assert_eq!(SnapshotId::from_file_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_snapshot_reads_back_and_an_unfinished_one_does_not() {
        let records: Vec<_> = (0..2500).map(feature).collect();
        let whole = snapshot(&records);
        assert_eq!(parse(&whole), Ok(records));
        assert!(parse(&whole.slice(..whole.len() - 1)).is_err());
        assert!(parse(&Bytes::new()).is_err());
    }

    proptest! {
        /// A damaged snapshot is an error or what it was; it never panics.
        #[test]
        fn damage_is_found(at in 0usize..400, bit in 0u8..8) {
            let records: Vec<_> = (0..3).map(feature).collect();
            let mut bytes = snapshot(&records).to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            if let Ok(read) = parse(&Bytes::from(bytes)) {
                prop_assert_eq!(read, records);
            }
        }
    }

    fn snapshot(records: &[MetadataRecord]) -> Bytes {
        let id = SnapshotId { end_offset: Offset(1), epoch: Epoch(1) };
        contents(id, records, None, Timestamp(1), Timestamp(2)).expect("they fit")
    }

    fn feature(level: i16) -> MetadataRecord {
        FeatureLevelRecord { name: "f".into(), feature_level: level }.into()
    }
}
