//! The leader epochs of a log that is being opened: from their file, or from the batches where the file is not there or
//! cannot be right.
//!
//! The file is small and says much: a newest epoch that no leader has reached would have every append refused.

use std::ops::ControlFlow;

use tarn_record::{BatchHeader, Epoch, Offset};
use thiserror::Error;

use super::opener::Opener;
use crate::checkpoints::CheckpointError;
use crate::epochs::EpochHistory;
use crate::error::LogError;
use crate::home::EPOCHS_FILE;

/// What is wrong with `leader-epoch-checkpoint`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EpochsFault {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] CheckpointError),
    /// It is not of this log.
    #[error("it has epoch {found} for offset {offset}, and the batch there is of epoch {epoch}")]
    NotOfNewestBatch {
        /// The last offset of the newest batch.
        offset: Offset,
        /// The batch's epoch.
        epoch: Epoch,
        /// What the file has for it; [`Epoch::NONE`] for nothing.
        found: Epoch,
    },
}

impl Opener<'_> {
    /// Reads the epochs, which the newest batch must agree with, where it is known.
    pub(super) fn read_epochs(&mut self, newest: Option<&BatchHeader>) -> Result<(), LogError> {
        self.report.reread_epochs = None;
        let log = &mut *self.log;
        let path = log.home.path.join(EPOCHS_FILE);
        if log.home.disk.exists(&path) {
            let bytes = log.home.disk.read_all(&path).map_err(|cause| LogError::io("read", &path, cause))?;
            let newest = newest.filter(|newest| newest.last_offset() >= log.start);
            match read(&bytes, newest) {
                Ok(epochs) => {
                    self.epochs_found = Some(epochs.clone());
                    log.epochs = epochs;
                    return Ok(());
                }
                Err(fault) => self.report.reread_epochs = Some(fault),
            }
        }
        let mut headers = Vec::new();
        log.batches(log.start, log.end).visit(|header, _| {
            if headers.last().is_none_or(|last: &BatchHeader| last.leader_epoch < header.leader_epoch) {
                headers.push(*header);
            }
            ControlFlow::Continue(())
        })?;
        log.epochs.clear();
        headers.iter().for_each(|header| log.note_epoch(header));
        Ok(())
    }
}

fn read(bytes: &[u8], newest: Option<&BatchHeader>) -> Result<EpochHistory, EpochsFault> {
    let epochs = EpochHistory::from_checkpoint(bytes)?;
    // Batches from old brokers have no epoch.
    let Some(newest) = newest.filter(|newest| newest.leader_epoch > Epoch::NONE) else { return Ok(epochs) };
    let (offset, epoch) = (newest.last_offset(), newest.leader_epoch);
    let found = epochs.at(offset).unwrap_or(Epoch::NONE);
    if found != epoch {
        return Err(EpochsFault::NotOfNewestBatch { offset, epoch, found });
    }
    Ok(epochs)
}
