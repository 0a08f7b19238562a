//! A disk whose room a test decides: it says how much there is, and where there is none every write fails.

#[path = "../../../../storage/log/tests/log/watched_disk.rs"]
mod double;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_log::Disk;

use double::{Watch, WatchedDisk};

/// Shared by the test and the controller.
#[derive(Debug)]
pub(crate) struct NearlyFull {
    available: AtomicU64,
    refused: AtomicU64,
}

impl NearlyFull {
    /// A disk with all the room there can be.
    pub(crate) fn new() -> Arc<NearlyFull> {
        Arc::new(NearlyFull { available: AtomicU64::new(u64::MAX), refused: AtomicU64::new(0) })
    }

    /// The disk itself.
    pub(crate) fn disk(self: &Arc<Self>) -> Arc<dyn Disk> {
        Arc::new(WatchedDisk(self.clone()))
    }

    /// Says how many bytes there are from now on.
    pub(crate) fn leave(&self, bytes: u64) {
        self.available.store(bytes, Ordering::SeqCst);
    }

    /// How many writes were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }
}

impl Watch for NearlyFull {
    fn finds_room(&self, _: &str) -> Option<usize> {
        let is_full = self.available.load(Ordering::SeqCst) == 0;
        self.refused.fetch_add(u64::from(is_full), Ordering::SeqCst);
        is_full.then_some(0)
    }

    fn says_free(&self, _: u64) -> u64 {
        self.available.load(Ordering::SeqCst)
    }
}
