//! The file `quorum-state`: the newest epoch this node has seen, and for whom it voted in it.
//!
//! A node that forgot its vote could vote twice in one epoch, so the file is on the disk before anything
//! is said or appended in the epoch (KIP-595, KIP-853). Where the file is lost or older than the log, the
//! epoch of the log is the newest that is known of, as for Kafka; the vote is gone, which does no harm as long
//! as there is no other voter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tarn_log::Disk;
use tarn_record::{BrokerId, Epoch, TopicId};
use thiserror::Error;

/// The name of the file, in the directory of the metadata log.
pub const FILE_NAME: &str = "quorum-state";

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumState {
    /// The leader of the epoch, `BrokerId::NONE` while there is none.
    pub leader: BrokerId,
    /// The newest epoch.
    pub epoch: Epoch,
    /// For whom this node voted in the epoch, `BrokerId::NONE` for nobody.
    pub voted: BrokerId,
}

/// A file that is not a quorum state.
#[derive(Debug, Error)]
pub enum QuorumStateError {
    /// The disk refused.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// It is not what it should be.
    #[error(
        "{path} is not a quorum state: {detail}. Put it back from a copy, or remove it: the only voter of a \
         quorum then takes the newest epoch from its log"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The log has batches of the highest epoch that there can be. No checksum covers it.
    #[error("the metadata log has batches of leader epoch {0}, after which there is no other")]
    NoNextEpoch(Epoch),
}

/// The state of a node that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// That of the file; of a node that has seen nothing, none.
    AsItWas(QuorumState),
    /// The file was lost or is of a time before the log's end.
    FromTheLog(QuorumState),
}

impl Default for QuorumState {
    fn default() -> QuorumState {
        QuorumState { leader: BrokerId::NONE, epoch: Epoch(0), voted: BrokerId::NONE }
    }
}

impl QuorumState {
    /// Reads the file in `dir`; `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is not a quorum state.
    pub fn load(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Option<QuorumState>, QuorumStateError> {
        let path = dir.join(FILE_NAME);
        if !disk.exists(&path) {
            return Ok(None);
        }
        let bytes =
            disk.read_all(&path).map_err(|cause| QuorumStateError::Io { path: path.clone(), cause })?;
        let state = QuorumState::parse(&bytes);
        state.map(Some).map_err(|detail| QuorumStateError::Malformed { path, detail })
    }

    /// What a node goes on with that found `loaded` beside a log whose newest epoch is `written`.
    ///
    /// # Errors
    /// `NoNextEpoch`.
    pub fn resume(loaded: Option<QuorumState>, written: Epoch) -> Result<Resumed, QuorumStateError> {
        if written == Epoch(i32::MAX) {
            return Err(QuorumStateError::NoNextEpoch(written));
        }
        Ok(match loaded {
            Some(state) if state.epoch >= written => Resumed::AsItWas(state),
            None if written < Epoch(0) => Resumed::AsItWas(QuorumState::default()),
            _ => Resumed::FromTheLog(QuorumState { epoch: written, ..QuorumState::default() }),
        })
    }

    /// Writes the file in `dir`; it is on the disk when this returns.
    ///
    /// # Errors
    /// The disk's refusal.
    pub fn store(&self, disk: &Arc<dyn Disk>, dir: &Path) -> Result<(), QuorumStateError> {
        let path = dir.join(FILE_NAME);
        let text = json!({
            "leaderId": self.leader.0,
            "leaderEpoch": self.epoch.0,
            "votedId": self.voted.0,
            "votedDirectoryId": TopicId::ZERO.to_string(),
            "data_version": 1,
        });
        let stored = disk.write_atomically(&path, text.to_string().as_bytes());
        stored.map_err(|cause| QuorumStateError::Io { path, cause })
    }

    fn parse(bytes: &[u8]) -> Result<QuorumState, String> {
        let json: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let number = |key: &str| {
            let value = json.get(key).and_then(Value::as_i64).ok_or_else(|| format!("{key} is missing"))?;
            i32::try_from(value).map_err(|_| format!("{key}={value} is out of range"))
        };
        if !matches!(json.get("data_version").and_then(Value::as_i64), Some(0 | 1)) {
            return Err("data_version is neither 0 nor 1".to_owned());
        }
        let epoch = number("leaderEpoch")?;
        // The next election takes the one after it.
        if !(0..i32::MAX).contains(&epoch) {
            return Err(format!("leaderEpoch={epoch} is out of range"));
        }
        Ok(QuorumState {
            leader: BrokerId(number("leaderId")?),
            epoch: Epoch(epoch),
            voted: BrokerId(number("votedId")?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_kafka_is_read() {
        let file = br#"{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}"#;
        let state = QuorumState { leader: BrokerId(1), epoch: Epoch(7), voted: BrokerId::NONE };
        assert_eq!(QuorumState::parse(file), Ok(state));
    }

    #[test]
    fn a_state_that_is_lost_or_old_goes_on_with_the_epoch_of_the_log() {
        let resumed = |loaded, written| QuorumState::resume(loaded, written).expect("there is a next epoch");
        let state = |epoch| QuorumState { epoch: Epoch(epoch), ..QuorumState::default() };
        assert_eq!(resumed(None, Epoch::NONE), Resumed::AsItWas(state(0)), "a new node");
        assert_eq!(resumed(Some(state(7)), Epoch(7)), Resumed::AsItWas(state(7)));
        assert_eq!(resumed(Some(state(8)), Epoch(7)), Resumed::AsItWas(state(8)), "it has voted");
        for lost in [None, Some(state(6))] {
            assert_eq!(resumed(lost, Epoch(7)), Resumed::FromTheLog(state(7)));
        }
        assert!(QuorumState::resume(None, Epoch(i32::MAX)).is_err(), "nobody can be elected");
    }

    #[test]
    fn what_is_no_quorum_state_is_refused() {
        let of_epoch =
            |epoch: i32| format!(r#"{{"leaderId":1,"leaderEpoch":{epoch},"votedId":1,"data_version":1}}"#);
        for file in ["", "[]", "{}", &of_epoch(-2), &of_epoch(i32::MAX)] {
            assert!(QuorumState::parse(file.as_bytes()).is_err(), "{file}");
        }
        assert!(QuorumState::parse(of_epoch(i32::MAX - 1).as_bytes()).is_ok());
    }
}
