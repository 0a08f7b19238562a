//! Closing logs in order: at the stop of the node, and where another broker leads a partition now.
//!
//! At the stop a log that is being copied is copied no further, and one that is being opened again is waited
//! for, so that none comes after the last. What was produced is flushed, so that it is answered while no connection is
//! read any more. Then the replica is given up, so that nothing is appended and whatever waits on it is answered; then
//! a round of compaction and a flush that is in flight end; only then are the logs closed, all of a core together, on
//! the thread that may wait for the disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use tarn_log::LogError;
use tarn_runtime::channel::ReplySlot;
use tarn_runtime::{blocking_sync, timeout};
use tracing::error;

use crate::cleaning;
use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::limits;
use crate::replica::Replica;

/// Closes every log of a core for good; the answer is what the last checkpoints say of them.
pub(crate) async fn close(core: Rc<Core>, reply: ReplySlot<Vec<CheckpointEntry>>) {
    core.closing().raise();
    core.stop_opening().await;
    // What does not end by then is told that this broker leads no more.
    let _ = timeout(limits::STOP_UNTIL_COMMITTED, committed(&core)).await;
    let replicas = core.partitions().close();
    let mut closed = Vec::new();
    for dir in close_logs(&core, replicas).await {
        if let Err(error) = dir.result {
            error!(dir = %dir.path.display(), %error, "logs not closed in order; the next start checks them");
            core.node().log_dirs().not_closed(&dir.path);
        }
        closed.extend(dir.logs);
    }
    let _ = reply.fill(closed);
}

/// Waits until no produce request waits for a flush.
async fn committed(core: &Core) {
    loop {
        let ended = core.flush_ended().wait();
        if core.partitions().waiting_produces() == 0 {
            return;
        }
        ended.await;
    }
}

/// The logs of a directory that were to be closed.
pub(crate) struct ClosedDir {
    /// The directory.
    pub(crate) path: PathBuf,
    /// What the checkpoints are to say of them.
    pub(crate) logs: Vec<CheckpointEntry>,
    /// Whether all of them are closed.
    pub(crate) result: Result<(), LogError>,
}

/// Closes the logs of replicas that were given up, directory by directory: one that is full, or has failed, keeps no
/// other from being closed in order.
pub(crate) async fn close_logs(core: &Rc<Core>, replicas: Vec<Replica>) -> Vec<ClosedDir> {
    let partitions: Vec<_> = replicas.iter().map(Replica::partition).collect();
    cleaning::ended(core, &partitions).await;
    core.flushes_ended(&partitions).await;
    let mut by_dir: BTreeMap<PathBuf, Vec<Replica>> = BTreeMap::new();
    for replica in replicas {
        by_dir.entry(replica.log().log_dir().to_owned()).or_default().push(replica);
    }
    let run = move || -> Vec<ClosedDir> { by_dir.into_iter().map(close_dir).collect() };
    match blocking_sync(run).await {
        Ok(dirs) => dirs,
        Err(error) => core.node().storage_failed(&error),
    }
}

fn close_dir((path, mut replicas): (PathBuf, Vec<Replica>)) -> ClosedDir {
    let result = Replica::close_all(&mut replicas);
    ClosedDir { path, logs: replicas.iter().map(CheckpointEntry::of).collect(), result }
}
