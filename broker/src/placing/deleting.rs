//! Giving logs up for good: those of topics that were deleted, and those that stand in the way of the next topic of their
//! name.
//!
//! A directory is renamed beside the core, by a thread that reads its disk: whoever opens a file in it is waited for, and
//! their disk may not answer. The place stays the deleted topic's until that has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use tarn_image::{MetadataImage, TopicImage};
use tarn_log::log_dir::{FoundPartition, LogDirError};
use tarn_log::{Log, LogDir, RemovalJob};
use tarn_runtime::channel::reply;
use tarn_runtime::{BlockingError, DiskId, Queue, blocking_read, spawn, timeout};
use tarn_wire::ErrorCode;
use thiserror::Error;
use tracing::error;

use super::{NotOpened, give_up, owned};
use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::log_dirs::{Closing, Displaced};
use crate::removing::Removal;
use crate::replica::Replica;
use crate::rules::TopicRules;
use crate::unopened::Doomed;
use crate::{cleaning, cold_reads, limits};

/// A log whose directory is to be renamed.
struct Deletion {
    doomed: Doomed,
    disk: DiskId,
    renaming: Renaming,
    left: Left,
}

/// How that is done.
enum Renaming {
    /// Of a log that is open.
    Open(Box<Log>),
    /// Of one that is not.
    Closed(Closed),
}

/// A log that is not open.
struct Closed {
    dir: Arc<LogDir>,
    partition: FoundPartition,
    is_stray: bool,
}

/// What is said of a log whose directory was not renamed.
enum Left {
    Open(CheckpointEntry),
    Closed(Box<Displaced>),
}

/// A directory that has another name.
enum Renamed {
    /// Its files are to be removed.
    Deleted(RemovalJob),
    /// It is kept there for a person to look at.
    Kept(PathBuf),
}

/// Why a directory has kept its name.
#[derive(Debug, Error)]
enum NotRenamed {
    #[error(transparent)]
    Disk(#[from] LogDirError),
    #[error(transparent)]
    NotRun(#[from] Arc<BlockingError>),
}

/// Deletes a topic's logs. What waits on them is told first, and their flushes end before a directory is
/// renamed: what a flush writes there must not find the log of a topic that has the name next. A log that is being
/// recovered is deleted at the end of that, in the background.
pub(super) async fn delete(core: &Rc<Core>, before: &MetadataImage, topic: &TopicImage) {
    // What is in force now has nothing of the topic's configuration any more.
    let delay_ms = TopicRules::of(before, core.node(), topic).file_delete_delay_ms;
    let partitions: Vec<_> = owned(core, topic).into_iter().map(|(partition, _)| partition).collect();
    let mut replicas = Vec::new();
    for partition in &partitions {
        replicas.extend(give_up(core, *partition, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    }
    cleaning::ended(core, &partitions).await;
    core.flushes_ended(&partitions).await;
    let open: BTreeSet<_> = replicas.iter().map(Replica::partition).collect();
    let doomed = |partition| Doomed { topic: topic.name.clone(), partition, delay_ms };
    let of_open = |replica: Replica| Deletion::of_open(doomed(replica.partition()), replica);
    let mut deletions: Vec<_> = replicas.into_iter().map(of_open).collect();
    for partition in partitions.into_iter().filter(|partition| !open.contains(partition)) {
        let doomed = doomed(partition);
        // Who reads it renames and cuts its files, and may take minutes: it goes after that, and nobody waits for it.
        let is_put_off = core.unopened().doom(&doomed);
        if !is_put_off {
            deletions.extend(of_closed(core, doomed));
        }
    }
    rename_all(core, deletions).await;
}

/// Deletes a log that is here and not open: another broker led it, or it could not be opened, or not yet.
pub(super) async fn delete_closed(core: &Rc<Core>, doomed: Doomed) {
    rename_all(core, of_closed(core, doomed).into_iter().collect()).await;
}

/// Gives up the log of an older topic of the name, which is out of its place already.
pub(super) async fn give_up_displaced(
    core: &Rc<Core>,
    topic: &TopicImage,
    displaced: Displaced,
) -> Result<(), NotOpened> {
    let (log_dirs, partition) = (core.node().log_dirs(), displaced.found.partition.partition);
    let closed = Closed::of(&displaced);
    let renamed = blocking_read(closed.disk(), move || closed.rename()).await;
    match renamed {
        Ok(Ok(Renamed::Deleted(job))) => {
            let delay_ms = core.rules(topic).file_delete_delay_ms;
            core.removing().later(Removal { job, delay_ms }, core.clock_ms());
            Ok(())
        }
        Ok(Ok(Renamed::Kept(path))) => {
            error!(topic = %topic.name, %partition, path = %path.display(), "another topic's log is kept under this name");
            Ok(())
        }
        Ok(Err(error)) => {
            log_dirs.put_back(displaced);
            Err(error.into())
        }
        Err(error) => {
            log_dirs.put_back(displaced);
            Err(error.into())
        }
    }
}

/// The deletion of a log that is not open; `None` where there is none.
fn of_closed(core: &Rc<Core>, doomed: Doomed) -> Option<Deletion> {
    let (log_dirs, partition) = (core.node().log_dirs(), doomed.partition);
    let Some(displaced) = log_dirs.take_deleted(&doomed.topic, partition) else {
        log_dirs.forget(&doomed.topic, partition.partition, partition.topic_id);
        return None;
    };
    let closed = Closed::of(&displaced);
    let (disk, renaming) = (closed.disk(), Renaming::Closed(closed));
    Some(Deletion { doomed, disk, renaming, left: Left::Closed(Box::new(displaced)) })
}

/// Renames directories, those of each disk beside the others, and waits for that, but not for a disk that does not
/// answer.
async fn rename_all(core: &Rc<Core>, deletions: Vec<Deletion>) {
    let (mut by_disk, mut renamed) = (BTreeMap::<DiskId, Vec<Deletion>>::new(), Vec::new());
    for deletion in deletions {
        by_disk.entry(deletion.disk).or_default().push(deletion);
    }
    for (disk, deletions) in by_disk {
        let ((slot, ended), core) = (reply(), core.clone());
        renamed.push(ended);
        spawn(Queue::Network, async move {
            rename_on(&core, disk, deletions).await;
            let _ = slot.fill(());
        })
        .detach();
    }
    let all = async {
        for ended in renamed {
            let _ = ended.await;
        }
    };
    let _ = timeout(limits::DELETION_WAIT, all).await;
}

/// Renames the directories of one disk, one after the other.
async fn rename_on(core: &Rc<Core>, disk: DiskId, deletions: Vec<Deletion>) {
    let (mut renamings, mut logs) = (Vec::new(), Vec::new());
    for Deletion { doomed, renaming, left, .. } in deletions {
        renamings.push(renaming);
        logs.push((doomed, left));
    }
    let run = move || renamings.into_iter().map(Renaming::run).collect::<Vec<_>>();
    match blocking_read(disk, run).await {
        Ok(renamed) => {
            for ((doomed, left), renamed) in logs.into_iter().zip(renamed) {
                note(core, &doomed, left, renamed.map_err(NotRenamed::from));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            logs.into_iter().for_each(|(doomed, left)| note(core, &doomed, left, Err(error.clone().into())));
        }
    }
}

/// What became of a log; one whose directory has kept its name is in its place again, for the next topic of the name to
/// put away.
fn note(core: &Rc<Core>, doomed: &Doomed, left: Left, renamed: Result<Renamed, NotRenamed>) {
    let (log_dirs, Doomed { topic, partition, delay_ms }) = (core.node().log_dirs(), doomed);
    match renamed {
        // The files go when whoever still reads them has had `file.delete.delay.ms`.
        Ok(Renamed::Deleted(job)) => {
            core.removing().later(Removal { job, delay_ms: *delay_ms }, core.clock_ms());
        }
        Ok(Renamed::Kept(path)) => {
            error!(%partition, path = %path.display(), "a directory did not say that it was the deleted topic's: it is kept under this name");
        }
        Err(error) => {
            error!(%partition, %error, "a deleted partition keeps its directory");
            return match left {
                Left::Open(entry) => log_dirs.closed(&entry, Closing::Begun),
                Left::Closed(displaced) => log_dirs.put_back(*displaced),
            };
        }
    }
    log_dirs.forget(topic, partition.partition, partition.topic_id);
}

impl Deletion {
    fn of_open(doomed: Doomed, replica: Replica) -> Deletion {
        let (disk, entry) = (cold_reads::disk_of(&replica), CheckpointEntry::of(&replica));
        let renaming = Renaming::Open(Box::new(replica.into_log()));
        Deletion { doomed, disk, renaming, left: Left::Open(entry) }
    }
}

impl Renaming {
    /// Waits for the disk.
    fn run(self) -> Result<Renamed, LogDirError> {
        match self {
            Renaming::Open(log) => Ok(Renamed::Deleted(log.delete()?)),
            Renaming::Closed(closed) => closed.rename(),
        }
    }
}

impl Closed {
    fn of(displaced: &Displaced) -> Closed {
        let (dir, partition) = (displaced.dir.clone(), displaced.found.partition.clone());
        Closed { dir, partition, is_stray: displaced.is_stray }
    }

    fn disk(&self) -> DiskId {
        DiskId(self.dir.dir_number())
    }

    /// Waits for the disk.
    fn rename(self) -> Result<Renamed, LogDirError> {
        if self.is_stray {
            return Ok(Renamed::Kept(self.dir.rename_as_stray(&self.partition)?));
        }
        let renamed = self.dir.rename_for_deletion(&self.partition)?;
        Ok(Renamed::Deleted(self.dir.removal(renamed)))
    }
}
