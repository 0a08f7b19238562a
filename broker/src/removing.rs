//! Files that no log of a core has any more: they go when `file.delete.delay.ms` is over, a few at a time.
//!
//! One task for the core. Between two pieces whoever else waits for the thread that unlinks has its turn, so that the
//! end of a large topic holds up no cold read. What a node does not get to is removed at its next start.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tarn_log::RemovalJob;
use tarn_runtime::channel::LocalNotify;
use tarn_runtime::{blocking, sleep, timeout};
use tracing::warn;

use crate::core::Core;
use crate::limits;

/// Files that a log has let go.
#[derive(Debug)]
pub struct Removal {
    /// Removes them.
    pub job: RemovalJob,
    /// How long they stay: whoever reads them now is still served.
    pub delay_ms: i64,
}

/// The removals of a core, by when they are due.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    by_due: BTreeMap<(u64, u64), RemovalJob>,
    taken_in: u64,
}

impl Removals {
    /// Takes one in. True where none was due before it.
    fn insert(&mut self, removal: Removal, now_ms: u64) -> bool {
        let due_ms = now_ms.saturating_add(u64::try_from(removal.delay_ms).unwrap_or(0));
        self.taken_in += 1;
        let is_next = self.next_due_ms().is_none_or(|next| due_ms < next);
        self.by_due.insert((due_ms, self.taken_in), removal.job);
        is_next
    }

    fn take_due(&mut self, now_ms: u64) -> Option<RemovalJob> {
        let entry = self.by_due.first_entry().filter(|entry| entry.key().0 <= now_ms)?;
        Some(entry.remove())
    }

    fn next_due_ms(&self) -> Option<u64> {
        self.by_due.first_key_value().map(|((due_ms, _), _)| *due_ms)
    }
}

/// What waits to be removed, and who is told of it.
#[derive(Debug, Default)]
pub(crate) struct Removing {
    removals: RefCell<Removals>,
    earlier: LocalNotify,
}

impl Removing {
    /// Has files removed when their time has come.
    pub(crate) fn later(&self, removal: Removal, now_ms: u64) {
        if !removal.job.is_empty() && self.removals.borrow_mut().insert(removal, now_ms) {
            self.earlier.notify_all();
        }
    }
}

/// Removes what is due, until the core ends.
pub(crate) async fn remove_when_due(core: Rc<Core>) {
    loop {
        let earlier = core.removing().earlier.wait();
        let due = core.removing().removals.borrow_mut().take_due(core.clock_ms());
        if let Some(job) = due {
            remove(job).await;
            continue;
        }
        let next_due_ms = core.removing().removals.borrow().next_due_ms();
        match next_due_ms {
            None => earlier.await,
            Some(due_ms) => {
                let pause = Duration::from_millis(due_ms.saturating_sub(core.clock_ms()));
                // Either is a reason to look again.
                let _ = timeout(pause, earlier).await;
            }
        }
    }
}

async fn remove(job: RemovalJob) {
    let mut left = Some(job);
    while let Some(job) = left {
        left = match blocking(move || job.run_some(limits::FILES_REMOVED_AT_ONCE)).await {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => {
                return warn!(%error, "files that no log has any more stay until the next start");
            }
            Err(error) => return warn!(%error, "files that no log has any more stay until the next start"),
        };
        sleep(limits::REMOVAL_PAUSE).await;
    }
}

/// Looks for directories of deleted partitions that the last run did not get to remove, and has them removed.
pub(crate) async fn remove_leftovers(core: Rc<Core>) {
    let log_dirs = core.node().log_dirs().clone();
    match blocking(move || log_dirs.leftovers()).await {
        Ok(Ok(leftovers)) => {
            for job in leftovers {
                core.removing().later(Removal { job, delay_ms: 0 }, core.clock_ms());
            }
        }
        Ok(Err(error)) => warn!(%error, "deleted partitions' directories not looked for"),
        Err(error) => warn!(%error, "deleted partitions' directories not looked for"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tarn_log::{Descriptors, LogDir, RealDisk};

    #[test]
    fn files_go_in_the_order_in_which_their_delays_end_and_none_before() {
        let files = tempfile::tempdir().expect("a directory");
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(1)).expect("it is new");
        let removal = |name: &str, delay_ms| {
            let path = files.path().join(name);
            std::fs::create_dir(&path).expect("it is new");
            Removal { job: dir.removal(path), delay_ms }
        };
        let mut removals = Removals::default();
        assert!(removals.insert(removal("a", 60_000), 5));
        assert!(removals.insert(removal("b", 10_000), 5), "it is due earlier");
        assert!(!removals.insert(removal("c", 10_000), 6));
        assert!(removals.take_due(10_004).is_none());
        assert_eq!(removals.next_due_ms(), Some(10_005));
        for gone in ["b", "c"] {
            removals.take_due(10_006).expect("it is due").run().expect("it is there");
            assert!(!files.path().join(gone).exists() && files.path().join("a").exists());
        }
        assert!(removals.take_due(10_006).is_none(), "its own delay has not ended");
        assert!(removals.take_due(60_005).is_some());
        assert_eq!(removals.next_due_ms(), None);
    }
}
