//! The memory that fetch responses of all mirrors may take together (`tarn.mirror.fetch.memory.bytes`).
//!
//! A lane reserves the size it asks for before it asks, corrects it to what came, and gives it back once
//! that is appended. Shared by all cores of a node.
//!
//! Invariants:
//! * what is reserved is at most the total, save for a single permit that alone is larger, and for
//!   responses that came larger than they were asked for;
//! * permits are granted in the order in which they were asked for, so a large one is not starved.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarn_runtime::channel::{ReplySlot, reply};
use tarn_wire::messages::FetchResponse;

/// The budget; shared by `Arc`.
#[derive(Debug)]
pub struct FetchBudget {
    total: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    bytes: usize,
    slot: ReplySlot<Permit>,
}

/// A reserved part of the budget, given back when dropped.
#[must_use = "a permit that is dropped reserves nothing"]
#[derive(Debug)]
pub struct Permit {
    budget: Arc<FetchBudget>,
    bytes: usize,
}

impl FetchBudget {
    /// A budget of `total` bytes.
    pub fn new(total: usize) -> Arc<FetchBudget> {
        Arc::new(FetchBudget { total, state: Mutex::default() })
    }

    /// The total, and what of it is reserved.
    pub fn standing(&self) -> (usize, usize) {
        (self.total, self.state().used)
    }

    /// Reserves at once, or not at all.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let mut state = self.state();
        if !state.waiting.is_empty() || !self.fits(&state, bytes) {
            return None;
        }
        state.used += bytes;
        Some(Permit { budget: self.clone(), bytes })
    }

    /// Reserves, waiting for as long as it takes.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Permit {
        if let Some(permit) = self.try_reserve(bytes) {
            return permit;
        }
        let (slot, granted) = reply();
        self.state().waiting.push_back(Waiting { bytes, slot });
        self.grant();
        match granted.await {
            Ok(permit) => permit,
            Err(_) => unreachable!("a waiting slot is only ever taken out to be filled"),
        }
    }

    /// Grants what fits to those who wait, oldest first. A permit that nobody waits for any more comes
    /// back from its slot and is given back after the lock is released.
    fn grant(self: &Arc<Self>) {
        loop {
            let (slot, permit) = {
                let mut state = self.state();
                let Some(first) = state.waiting.front() else { return };
                if !self.fits(&state, first.bytes) {
                    return;
                }
                let Some(Waiting { bytes, slot }) = state.waiting.pop_front() else { return };
                state.used += bytes;
                (slot, Permit { budget: self.clone(), bytes })
            };
            if let Err(unwanted) = slot.fill(permit) {
                unwanted.forget();
            }
        }
    }

    fn fits(&self, state: &State, bytes: usize) -> bool {
        state.used == 0 || state.used.saturating_add(bytes) <= self.total
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Corrects what is reserved to what came. Never waits: what is there is there.
    pub fn resize(&mut self, bytes: usize) {
        {
            let mut state = self.budget.state();
            state.used = state.used - self.bytes + bytes;
        }
        let smaller = bytes < self.bytes;
        self.bytes = bytes;
        if smaller {
            self.budget.grant();
        }
    }

    /// Gives the bytes back without granting them on: the caller does that.
    fn forget(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.budget.state().used -= bytes;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.state().used -= self.bytes;
            self.budget.grant();
        }
    }
}

/// What a response takes in memory: its records.
pub fn size_of(response: &FetchResponse) -> usize {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.filter_map(|data| data.records.as_ref().map(|records| records.len())).sum()
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl FetchBudget {
    /// The bytes reserved now.
    pub(crate) fn used(&self) -> usize {
        self.state().used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn what_does_not_fit_waits_until_enough_is_given_back() {
        block_on(async {
            let budget = FetchBudget::new(10);
            let first = budget.reserve(6).await;
            let mut second = Box::pin(budget.reserve(6));
            assert!(poll_once(&mut second).await.is_none());
            assert!(budget.try_reserve(1).is_none(), "nobody overtakes one who waits");
            drop(first);
            let second = second.await;
            assert_eq!(budget.used(), 6);
            drop(second);
            assert_eq!(budget.used(), 0);
        });
    }

    #[test]
    fn one_who_gave_up_does_not_keep_what_was_meant_for_it() {
        block_on(async {
            let budget = FetchBudget::new(10);
            let first = budget.reserve(10).await;
            let mut gone = Box::pin(budget.reserve(10));
            let mut next = Box::pin(budget.reserve(10));
            assert!(poll_once(&mut gone).await.is_none());
            assert!(poll_once(&mut next).await.is_none());
            drop(gone);
            drop(first);
            let next = next.await;
            assert_eq!(budget.used(), 10);
            drop(next);
            assert_eq!(budget.used(), 0);
        });
    }

    #[test]
    fn a_permit_larger_than_the_budget_is_granted_alone() {
        block_on(async {
            let budget = FetchBudget::new(10);
            let large = budget.reserve(25).await;
            assert!(budget.try_reserve(1).is_none());
            drop(large);
            assert!(budget.try_reserve(10).is_some());
        });
    }

    #[test]
    fn a_response_counts_with_the_size_it_has() {
        block_on(async {
            let budget = FetchBudget::new(10);
            let mut permit = budget.reserve(8).await;
            permit.resize(2);
            assert!(budget.try_reserve(8).is_some());
            permit.resize(40);
            assert_eq!(budget.used(), 40);
            drop(permit);
            assert_eq!(budget.used(), 0);
        });
    }
}
