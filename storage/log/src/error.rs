//! Why a log refused.
//!
//! Every error leaves the log as consistent as it was: a failed append has not moved the log end. The
//! numbers of the protocol are given by [`AppendError::code`] and [`ReadError::code`], in this one place.

use std::io;
use std::path::{Path, PathBuf};

use tarn_record::{BatchError, Epoch, Offset};
use thiserror::Error;

use crate::checkpoints::CheckpointError;
use crate::epochs::EpochError;
use crate::producers::SequenceError;
use crate::segment::txn_index::TxnIndexError;

const OFFSET_OUT_OF_RANGE: i16 = 1;
const CORRUPT_MESSAGE: i16 = 2;
const RECORD_LIST_TOO_LARGE: i16 = 18;
const KAFKA_STORAGE_ERROR: i16 = 56;
const FENCED_LEADER_EPOCH: i16 = 74;

/// What can go wrong with the files of a log.
#[derive(Debug, Error)]
pub enum LogError {
    /// The system refused.
    #[error("cannot {action} {path}: {cause}")]
    Io {
        /// What was to be done, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A file beside the segments that cannot be understood.
    #[error("{path}: {cause}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: CheckpointError,
    },
    /// A transaction index that cannot be used.
    #[error(transparent)]
    TxnIndex(#[from] TxnIndexError),
    /// Bytes in a segment that are not the batch that should be there.
    #[error("{path} is damaged at byte {position}: {fault}")]
    Damaged {
        /// The segment's file.
        path: PathBuf,
        /// Where.
        position: u64,
        /// What is wrong.
        #[source]
        fault: BatchError,
    },
    /// A batch with another leader epoch than the log has at its offset: the checksum does not cover it.
    #[error("{path}: the batch at offset {offset} has leader epoch {stored}, and the log has {known} there")]
    WrongEpoch {
        /// The segment's file.
        path: PathBuf,
        /// Its first offset.
        offset: Offset,
        /// The epoch that it has.
        stored: Epoch,
        /// The epoch that the log has there.
        known: Epoch,
    },
    /// A batch whose records cannot be read, though its checksum is right.
    #[error("{path}: the batch at byte {position} cannot be read: {cause}")]
    Unreadable {
        /// The segment's file.
        path: PathBuf,
        /// Where the batch begins.
        position: u64,
        /// What is wrong.
        #[source]
        cause: tarn_record::ReadError,
    },
    /// A directory for a new log that holds one already.
    #[error("{path} already holds a log")]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A disk without room for what is to be written.
    #[error(
        "{path} has room for {available} bytes: {needed} are needed beside {kept} that are kept for others"
    )]
    NoRoom {
        /// Where it was to be written.
        path: PathBuf,
        /// How much.
        needed: u64,
        /// How much is kept free for others.
        kept: u64,
        /// How much room there is.
        available: u64,
    },
    /// Who wanted it wants it no more.
    #[error("{path} was given up before it was complete")]
    GivenUp {
        /// What was being made.
        path: PathBuf,
    },
    /// A log of which a truncation has dropped a part, and failed: what is known of the rest is not what the files
    /// hold, until the truncation succeeds or the log is opened again.
    #[error("{path} was cut only in part")]
    HalfCut {
        /// The log's directory.
        path: PathBuf,
    },
    /// The log cannot start beyond its end.
    #[error("the log cannot start at offset {asked}: it ends at offset {end}")]
    StartBeyondEnd {
        /// The new start.
        asked: Offset,
        /// The log end.
        end: Offset,
    },
}

impl LogError {
    pub(crate) fn io(action: &'static str, path: &Path, cause: io::Error) -> LogError {
        LogError::Io { action, path: path.to_owned(), cause }
    }

    /// A sync that failed: see [`sync_failed`].
    pub(crate) fn unsynced(path: &Path, cause: io::Error) -> LogError {
        LogError::io("sync", path, sync_failed(cause))
    }

    /// True where memory did not have what was to be read, and the read was not to wait for the disk.
    pub fn is_cold(&self) -> bool {
        match self {
            LogError::Io { cause, .. } | LogError::TxnIndex(TxnIndexError::Io { cause, .. }) => {
                cause.kind() == io::ErrorKind::WouldBlock
            }
            _ => false,
        }
    }

    /// True where a sync has failed: what it was to write may be lost, whatever the next sync says.
    pub fn is_failed_sync(&self) -> bool {
        matches!(self, LogError::Io { action, .. } if action.starts_with("sync")) && !self.is_full()
    }

    /// True where the disk is full, or the table of open files, which are states and no failures of the disk:
    /// nothing was written or synced then, and a later try may succeed. Never of a sync that failed.
    pub fn is_full(&self) -> bool {
        let full = |cause: &io::Error| {
            let no_room = matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            no_room || matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
        };
        match self {
            LogError::Io { cause, .. } => full(cause),
            LogError::TxnIndex(TxnIndexError::Io { cause, .. }) => full(cause),
            LogError::NoRoom { .. } => true,
            _ => false,
        }
    }
}

/// What a failed sync is to be told as. A write that finds no room is refused, and its bytes are still the
/// caller's; a sync that finds none has taken them before, and the system may have dropped them, whatever the
/// next sync says. So it is the failure of a disk, as any other of a sync, and no full disk.
pub(crate) fn sync_failed(cause: io::Error) -> io::Error {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => io::Error::other(NoRoomLeft(cause)),
        _ => cause,
    }
}

/// There was room when it was written.
#[derive(Debug, Error)]
#[error("what was written before may be lost: {0}")]
struct NoRoomLeft(#[source] io::Error);

/// Why nothing, or not all, was appended. The log end says up to where.
#[derive(Debug, Error)]
pub enum AppendError {
    /// The producer's sequence or epoch does not follow.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// A leader that was deposed, or a batch older than what is in the log.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// A batch with offsets that the log has, and it is not the same batch.
    #[error(
        "the batch at offsets {base} to {last} is not the one that the log, which ends at {end}, has there"
    )]
    Overlap {
        /// Its first offset.
        base: Offset,
        /// Its last offset.
        last: Offset,
        /// The log end.
        end: Offset,
    },
    /// A batch of an epoch older than the newest in the log.
    #[error("the batch at offset {base} has epoch {epoch}, older than {newest} before it")]
    EpochRegressed {
        /// Its first offset.
        base: Offset,
        /// Its epoch.
        epoch: Epoch,
        /// The newest epoch in the log.
        newest: Epoch,
    },
    /// A batch that no segment can hold.
    #[error("a batch of {bytes} bytes does not fit into a segment of {max} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest there can be.
        max: usize,
    },
    /// No offsets are left.
    #[error("the log end {end} has no room for {records} more offsets")]
    OutOfOffsets {
        /// The log end.
        end: Offset,
        /// How many the batch needs.
        records: i64,
    },
    /// The disk refused. What was written of the batch is cut off at once; where the disk refuses that too, before the
    /// next append.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl AppendError {
    /// The error code of the protocol.
    pub fn code(&self) -> i16 {
        match self {
            AppendError::Sequence(error) => error.code(),
            AppendError::Epoch(_) | AppendError::EpochRegressed { .. } => FENCED_LEADER_EPOCH,
            AppendError::Overlap { .. } => CORRUPT_MESSAGE,
            AppendError::TooLarge { .. } => RECORD_LIST_TOO_LARGE,
            AppendError::OutOfOffsets { .. } | AppendError::Storage(_) => KAFKA_STORAGE_ERROR,
        }
    }
}

/// Why a read has no plan.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The offset is not in the log.
    #[error("offset {asked} is out of range: the log has offsets from {start} up to {end}")]
    OutOfRange {
        /// The offset asked for.
        asked: Offset,
        /// The log start.
        start: Offset,
        /// The log end, which may be asked for.
        end: Offset,
    },
    /// The disk refused.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl ReadError {
    /// The error code of the protocol.
    pub fn code(&self) -> i16 {
        match self {
            ReadError::OutOfRange { .. } => OFFSET_OUT_OF_RANGE,
            ReadError::Storage(_) => KAFKA_STORAGE_ERROR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_full_table_of_files_pass_and_a_failed_disk_does_not() {
        for (errno, passes) in [
            (libc::ENOSPC, true),
            (libc::EDQUOT, true),
            (libc::EMFILE, true),
            (libc::ENFILE, true),
            (libc::EIO, false),
            (libc::EROFS, false),
        ] {
            let error = LogError::io("open", Path::new("f"), io::Error::from_raw_os_error(errno));
            assert_eq!(error.is_full(), passes, "{error}");
        }
    }

    #[test]
    fn a_sync_that_finds_no_room_is_a_failed_disk_and_one_that_finds_no_descriptor_is_none() {
        for (errno, passes) in
            [(libc::ENOSPC, false), (libc::EDQUOT, false), (libc::EIO, false), (libc::EMFILE, true)]
        {
            let error = LogError::unsynced(Path::new("f"), io::Error::from_raw_os_error(errno));
            assert_eq!(error.is_full(), passes, "{error}");
            let cause = io::Error::from_raw_os_error(errno);
            assert!(error.to_string().ends_with(&cause.to_string()), "{error}");
        }
    }
}
