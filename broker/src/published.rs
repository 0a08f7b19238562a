//! How new metadata reaches a core: the controller's thread leaves it here, and the core picks it up.
//!
//! The controller must not wait for a busy core, and no core may miss a change, so what was not picked up
//! yet is kept, in order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tarn_quorum::ImageUpdate;
use tarn_runtime::channel::Flag;

/// The updates that one core has not seen yet.
#[derive(Debug, Default)]
pub struct Published {
    updates: Mutex<Vec<ImageUpdate>>,
    there: Flag,
}

impl Published {
    /// Leaves an update. Never waits longer than a push does.
    pub fn publish(&self, update: ImageUpdate) {
        self.updates().push(update);
        self.there.raise();
    }

    /// The updates since the last call, oldest first; waits until there is one.
    pub async fn next(&self) -> Vec<ImageUpdate> {
        loop {
            self.there.lower();
            let updates = self.take();
            if !updates.is_empty() {
                return updates;
            }
            self.there.raised().await;
        }
    }

    /// The updates since the last call, if any; for a plain thread.
    pub fn next_blocking(&self) -> Vec<ImageUpdate> {
        loop {
            self.there.lower();
            let updates = self.take();
            if !updates.is_empty() {
                return updates;
            }
            self.there.raised_blocking();
        }
    }

    fn take(&self) -> Vec<ImageUpdate> {
        std::mem::take(&mut *self.updates())
    }

    /// A push or a take leaves a whole list, panic or not.
    fn updates(&self) -> MutexGuard<'_, Vec<ImageUpdate>> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
