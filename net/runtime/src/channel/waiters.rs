//! The wakers of those who wait for the same thing, each under its own ticket.

use std::collections::BTreeMap;
use std::task::Waker;

/// Wakers by ticket. An entry is put in, replaced and taken out by its owner only.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Waiters {
    /// Keeps the waker of the owner of `ticket`, drawing one where it has none yet.
    pub(crate) fn wait(&mut self, ticket: &mut Option<u64>, waker: &Waker) {
        let id = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        match self.waiting.get_mut(&id) {
            Some(kept) => kept.clone_from(waker),
            None => {
                self.waiting.insert(id, waker.clone());
            }
        }
    }

    /// Forgets the owner of `ticket`.
    pub(crate) fn leave(&mut self, ticket: &mut Option<u64>) {
        if let Some(id) = ticket.take() {
            self.waiting.remove(&id);
        }
    }

    /// Wakes all. They stay until they leave.
    pub(crate) fn wake_all(&self) {
        for waker in self.waiting.values() {
            waker.wake_by_ref();
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
