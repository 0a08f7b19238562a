//! The memory that many may hold together: all inbound frames of a node, say, from the first byte read until the
//! request has been handled (`queued.max.request.bytes`).
//!
//! While it is exhausted no socket is read, so that TCP slows the senders down. A frame is charged for
//! what has arrived, never for what it announces. Shared by all cores: the free path is one atomic
//! exchange, the mutex is taken only to wait and to wake.
//!
//! Invariants:
//! * what is in use is the sum of what the living permits hold;
//! * at most one permit grows beyond the limit at a time, so a frame that has begun can always be
//!   finished, one frame after the other, and the limit is exceeded by one frame at most, plus one first
//!   step of each core;
//! * nobody waits while there is room.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The budget of one node.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
    /// How many wait; read before the mutex is taken, so that a release without waiters takes none.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// Who waits, in the order of arrival. Frames that have begun go before frames that have not.
#[derive(Debug, Default)]
struct Queue {
    next: u64,
    growing: BTreeMap<u64, Waiter>,
    starting: BTreeMap<u64, Waiter>,
    /// Granted, not yet seen by the one who waited. Keeps the waker, which its owner alone may drop.
    granted: BTreeMap<u64, (Grant, Waker)>,
    /// Whether a permit may grow beyond the limit now.
    beyond: Beyond,
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    waker: Waker,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    bytes: usize,
    beyond: Beyond,
}

/// Whether the one place beyond the limit is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Beyond {
    #[default]
    Free,
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Starting,
    Growing,
}

/// What one frame holds of the budget; dropping it gives the bytes back.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<MemoryBudget>,
    bytes: usize,
    beyond: Beyond,
}

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget {
            limit,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        })
    }

    /// A budget that is never exhausted.
    pub fn unlimited() -> Arc<MemoryBudget> {
        MemoryBudget::new(usize::MAX)
    }

    /// The bytes that frames hold now.
    pub fn in_use(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many connections wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Room for the first `bytes` of a frame, once there is some.
    pub async fn start(self: &Arc<Self>, bytes: usize) -> Permit {
        let mut permit = Permit { budget: Arc::clone(self), bytes: 0, beyond: Beyond::Free };
        if self.take_if_room(bytes) {
            permit.bytes = bytes;
        } else {
            permit.wait(Line::Starting, bytes).await;
        }
        permit
    }

    /// Takes `bytes` while the limit is not reached; the last to get in may pass it.
    fn take_if_room(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                (used < self.limit).then(|| used.saturating_add(bytes))
            })
            .is_ok()
    }

    fn give_back(&self, bytes: usize, beyond: Beyond) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if beyond == Beyond::Held {
            let mut queue = self.lock();
            queue.beyond = Beyond::Free;
            self.grant_waiters(&mut queue);
        } else if self.waiting.load(Ordering::SeqCst) > 0 {
            self.grant_waiters(&mut self.lock());
        }
    }

    /// Serves the queue as far as there is room, and one frame that has begun even beyond it.
    fn grant_waiters(&self, queue: &mut Queue) {
        while let Some(first) = queue.growing.first_entry() {
            let bytes = first.get().bytes;
            let beyond = if self.take_if_room(bytes) {
                Beyond::Free
            } else if queue.beyond == Beyond::Free {
                self.used.fetch_add(bytes, Ordering::SeqCst);
                Beyond::Held
            } else {
                return;
            };
            let (id, waiter) = first.remove_entry();
            self.grant(queue, id, waiter, beyond);
        }
        while let Some(first) = queue.starting.first_entry() {
            if !self.take_if_room(first.get().bytes) {
                return;
            }
            let (id, waiter) = first.remove_entry();
            self.grant(queue, id, waiter, Beyond::Free);
        }
    }

    fn grant(&self, queue: &mut Queue, id: u64, waiter: Waiter, beyond: Beyond) {
        if beyond == Beyond::Held {
            queue.beyond = Beyond::Held;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        waiter.waker.wake_by_ref();
        queue.granted.insert(id, (Grant { bytes: waiter.bytes, beyond }, waiter.waker));
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Room for `bytes` more of a frame that is being read.
    pub(crate) async fn grow(&mut self, bytes: usize) {
        if self.beyond == Beyond::Held {
            self.budget.used.fetch_add(bytes, Ordering::SeqCst);
            self.bytes += bytes;
        } else if self.budget.take_if_room(bytes) {
            self.bytes += bytes;
        } else {
            self.wait(Line::Growing, bytes).await;
        }
    }

    /// The frame is complete: it holds exactly `bytes` from now on, and its place beyond the limit goes
    /// to the next.
    pub(crate) fn settle(&mut self, bytes: usize) {
        let excess = self.bytes.saturating_sub(bytes);
        let beyond = std::mem::take(&mut self.beyond);
        self.bytes -= excess;
        if excess > 0 || beyond == Beyond::Held {
            self.budget.give_back(excess, beyond);
        }
    }

    async fn wait(&mut self, line: Line, bytes: usize) {
        let budget = Arc::clone(&self.budget);
        let mut ticket = Ticket { budget, line, bytes, id: None };
        let grant = poll_fn(|cx| ticket.poll(cx)).await;
        self.bytes += grant.bytes;
        if grant.beyond == Beyond::Held {
            self.beyond = Beyond::Held;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 || self.beyond == Beyond::Held {
            self.budget.give_back(self.bytes, self.beyond);
        }
    }
}

/// A place in the queue; leaving before the turn comes gives it up, and what was granted meanwhile too.
struct Ticket {
    budget: Arc<MemoryBudget>,
    line: Line,
    bytes: usize,
    id: Option<u64>,
}

impl Ticket {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Grant> {
        let budget = Arc::clone(&self.budget);
        let mut queue = budget.lock();
        let id = match self.id {
            Some(id) => id,
            None => {
                let id = queue.next;
                queue.next += 1;
                self.id = Some(id);
                budget.waiting.fetch_add(1, Ordering::SeqCst);
                queue.line(self.line).insert(id, Waiter { bytes: self.bytes, waker: cx.waker().clone() });
                // What was given back between the first look and this entry woke nobody.
                budget.grant_waiters(&mut queue);
                id
            }
        };
        if let Some((grant, _waker)) = queue.granted.remove(&id) {
            self.id = None;
            return Poll::Ready(grant);
        }
        if let Some(waiter) = queue.line(self.line).get_mut(&id) {
            waiter.waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut queue = self.budget.lock();
        let granted = queue.granted.remove(&id);
        if queue.line(self.line).remove(&id).is_some() {
            self.budget.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        drop(queue);
        if let Some((grant, _waker)) = granted {
            self.budget.give_back(grant.bytes, grant.beyond);
        }
    }
}

impl Queue {
    fn line(&mut self, line: Line) -> &mut BTreeMap<u64, Waiter> {
        match line {
            Line::Starting => &mut self.starting,
            Line::Growing => &mut self.growing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use proptest::prelude::*;
    use std::future::Future;
    use std::pin::pin;

    #[test]
    fn an_exhausted_budget_makes_the_next_frame_wait_until_a_request_is_handled() {
        block_on(async {
            let budget = MemoryBudget::new(100);
            let first = budget.start(100).await;
            let mut second = pin!(budget.start(10));
            assert!(poll_once(second.as_mut()).await.is_none());
            assert_eq!(budget.waiting(), 1);
            drop(first);
            assert_eq!(second.await.bytes(), 10);
            assert_eq!((budget.in_use(), budget.waiting()), (0, 0), "the permit was dropped at once");
        });
    }

    #[test]
    fn one_frame_that_has_begun_may_grow_beyond_the_limit_and_the_next_follows_it() {
        block_on(async {
            let budget = MemoryBudget::new(100);
            let mut first = budget.start(60).await;
            let mut second = budget.start(60).await;
            first.grow(60).await;
            assert_eq!(budget.in_use(), 180);
            {
                let mut grown = pin!(second.grow(60));
                assert!(poll_once(grown.as_mut()).await.is_none(), "one frame at a time");
                first.grow(60).await;
                first.settle(150);
                grown.await;
            }
            assert_eq!((first.bytes(), second.bytes(), budget.in_use()), (150, 120, 270));
            drop((first, second));
            assert_eq!(budget.in_use(), 0);
        });
    }

    #[test]
    fn a_connection_that_stops_waiting_gives_its_place_to_the_next() {
        block_on(async {
            let budget = MemoryBudget::new(10);
            let held = budget.start(10).await;
            let mut gone = Box::pin(budget.start(10));
            assert!(poll_once(gone.as_mut()).await.is_none());
            let mut next = Box::pin(budget.start(10));
            assert!(poll_once(next.as_mut()).await.is_none());
            drop(held);
            drop(gone);
            assert_eq!(next.await.bytes(), 10);
            assert_eq!((budget.in_use(), budget.waiting()), (0, 0));
        });
    }

    #[test]
    fn a_frame_larger_than_the_whole_budget_is_read_alone() {
        block_on(async {
            let budget = MemoryBudget::new(10);
            let mut permit = budget.start(8).await;
            for _ in 0..10 {
                permit.grow(8).await;
            }
            assert_eq!(budget.in_use(), 88);
            let mut other = Box::pin(budget.start(1));
            assert!(poll_once(other.as_mut()).await.is_none());
            drop(permit);
            assert_eq!(other.await.bytes(), 1);
        });
    }

    proptest! {
        /// Whatever frames start, grow, finish or go away, what is in use is what the permits hold, and
        /// nobody waits while there is room.
        #[test]
        fn the_sum_of_the_permits_is_what_is_in_use(steps in prop::collection::vec((0u8..5, 1usize..40, 0usize..8), 0..120)) {
            block_on(async {
                let budget = MemoryBudget::new(100);
                let mut held: Vec<Permit> = Vec::new();
                let mut waiting: Vec<std::pin::Pin<Box<dyn Future<Output = Permit>>>> = Vec::new();
                for (what, bytes, which) in steps {
                    match what {
                        0 | 1 => {
                            let owner = Arc::clone(&budget);
                            waiting.push(Box::pin(async move { owner.start(bytes).await }));
                        }
                        2 if which < held.len() => {
                            let mut permit = held.swap_remove(which);
                            waiting.push(Box::pin(async move {
                                permit.grow(bytes).await;
                                permit
                            }));
                        }
                        3 if which < held.len() => drop(held.swap_remove(which)),
                        4 if which < waiting.len() => drop(waiting.swap_remove(which)),
                        _ => {}
                    }
                    let mut still = Vec::new();
                    for mut future in waiting {
                        match poll_once(future.as_mut()).await {
                            Some(mut permit) => {
                                if permit.beyond == Beyond::Held {
                                    let bytes = permit.bytes();
                                    permit.settle(bytes);
                                }
                                held.push(permit);
                            }
                            None => still.push(future),
                        }
                    }
                    waiting = still;
                    let sum: usize = held.iter().map(Permit::bytes).sum();
                    assert!(budget.in_use() >= sum);
                    assert!(budget.waiting() == 0 || budget.in_use() >= budget.limit());
                }
                drop((held, waiting));
                assert_eq!((budget.in_use(), budget.waiting()), (0, 0));
            });
        }
    }
}
