//! Closing logs in order: at the stop of the node, and where another broker leads a partition now.
//!
//! At the stop a log that is being copied is copied no further, and one that is being opened again is waited
//! for, so that none comes after the last. Then the replica is given up, so that nothing is appended and
//! whatever waits on it is answered; then a round of compaction and a flush that is in flight end; only then are the logs closed, all
//! of a core together, on the thread that may wait for the disk.

use std::rc::Rc;

use tarn_log::LogError;
use tarn_runtime::blocking_sync;
use tarn_runtime::channel::ReplySlot;

use crate::cleaning;
use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::replica::Replica;

/// Closes every log of a core for good; the answer is what the last checkpoints say of them.
pub(crate) async fn close(core: Rc<Core>, reply: ReplySlot<Vec<CheckpointEntry>>) {
    core.closing().raise();
    core.stop_opening().await;
    let replicas = core.partitions().close();
    let closed = close_logs(&core, replicas).await;
    let _ = reply.fill(closed);
}

/// Closes the logs of replicas that were given up; a log that cannot be closed ends the process.
pub(crate) async fn close_logs(core: &Rc<Core>, mut replicas: Vec<Replica>) -> Vec<CheckpointEntry> {
    let partitions: Vec<_> = replicas.iter().map(Replica::partition).collect();
    cleaning::ended(core, &partitions).await;
    core.flushes_ended(&partitions).await;
    let run = move || -> Result<Vec<CheckpointEntry>, LogError> {
        Replica::close_all(&mut replicas)?;
        Ok(replicas.iter().map(CheckpointEntry::of).collect())
    };
    match blocking_sync(run).await {
        Ok(Ok(closed)) => closed,
        Ok(Err(error)) => core.node().storage_failed(&error),
        Err(error) => core.node().storage_failed(&error),
    }
}
