//! Closing logs in order: at the stop of the node, and where another broker leads a partition now.
//!
//! At the stop a log that is being copied is copied no further, and one that is being opened again is waited
//! for, so that none comes after the last. Then the replica is given up, so that nothing is appended and
//! whatever waits on it is answered; then a round of compaction and a flush that is in flight end; only then are the logs closed, all
//! of a core together, on the thread that may wait for the disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use tarn_log::LogError;
use tarn_runtime::blocking_sync;
use tarn_runtime::channel::ReplySlot;
use tracing::error;

use crate::cleaning;
use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::log_dirs::Closing;
use crate::replica::Replica;

/// Closes every log of a core for good; the answer is what the last checkpoints say of them.
pub(crate) async fn close(core: Rc<Core>, reply: ReplySlot<Vec<CheckpointEntry>>) {
    core.closing().raise();
    core.stop_opening().await;
    let replicas = core.partitions().close();
    let closed = close_logs(&core, replicas).await;
    let _ = reply.fill(closed.into_iter().map(|(entry, _)| entry).collect());
}

/// Closes the logs of replicas that were given up, directory by directory: one that is full, or has failed, keeps no
/// other from being closed in order.
pub(crate) async fn close_logs(core: &Rc<Core>, replicas: Vec<Replica>) -> Vec<(CheckpointEntry, Closing)> {
    let partitions: Vec<_> = replicas.iter().map(Replica::partition).collect();
    cleaning::ended(core, &partitions).await;
    core.flushes_ended(&partitions).await;
    let mut by_dir: BTreeMap<PathBuf, Vec<Replica>> = BTreeMap::new();
    for replica in replicas {
        by_dir.entry(replica.log().log_dir().to_owned()).or_default().push(replica);
    }
    let run = move || -> Vec<ClosedDir> { by_dir.into_iter().map(close_dir).collect() };
    let dirs = match blocking_sync(run).await {
        Ok(dirs) => dirs,
        Err(error) => core.node().storage_failed(&error),
    };
    let mut closed = Vec::new();
    for (dir, entries, result) in dirs {
        let closing = match result {
            Ok(()) => Closing::InOrder,
            Err(error) => {
                error!(dir = %dir.display(), %error, "logs not closed in order; the next start checks them");
                core.node().log_dirs().not_closed(&dir);
                Closing::Begun
            }
        };
        closed.extend(entries.into_iter().map(|entry| (entry, closing)));
    }
    closed
}

/// A directory, what the last checkpoints say of its logs, and whether they were closed.
type ClosedDir = (PathBuf, Vec<CheckpointEntry>, Result<(), LogError>);

fn close_dir((dir, mut replicas): (PathBuf, Vec<Replica>)) -> ClosedDir {
    let result = Replica::close_all(&mut replicas);
    (dir, replicas.iter().map(CheckpointEntry::of).collect(), result)
}
