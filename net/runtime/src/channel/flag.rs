//! A flag that any core raises and any core sees: a stop, or news whose number does not matter.

use super::waiters::Waiters;
use futures_lite::future::block_on;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// A flag shared by cores and threads; clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Flag {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    raised: AtomicBool,
    waiters: Mutex<Waiters>,
}

impl Shared {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flag {
    /// A flag that is down.
    pub fn new() -> Flag {
        Flag::default()
    }

    /// Raises it and wakes whoever waits. Raising a raised flag costs one load.
    pub fn raise(&self) {
        if !self.shared.raised.swap(true, Ordering::SeqCst) {
            self.shared.waiters().wake_all();
        }
    }

    /// Lowers it, and says whether it was up. Lower it *before* looking at what it announces.
    pub fn lower(&self) -> bool {
        self.shared.raised.swap(false, Ordering::SeqCst)
    }

    /// Whether it is up.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst)
    }

    /// Waits until it is up; at once where it is.
    pub fn raised(&self) -> Raised<'_> {
        Raised { shared: &self.shared, ticket: None }
    }

    /// Waits on a plain thread, which blocks.
    ///
    /// # Panics
    /// On a core, which may not block.
    pub fn raised_blocking(&self) {
        assert!(!crate::queues::on_core(), "a core may not block: await raised");
        block_on(self.raised());
    }
}

/// The future of [`Flag::raised`].
#[must_use = "waiting is awaited"]
#[derive(Debug)]
pub struct Raised<'a> {
    shared: &'a Shared,
    ticket: Option<u64>,
}

impl Future for Raised<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.shared.raised.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        this.shared.waiters().wait(&mut this.ticket, context.waker());
        // Raised between the look and the entry, it may have found nobody to wake.
        match this.shared.raised.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.shared.waiters().leave(&mut self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::core_of;
    use futures_lite::future::poll_once;

    #[test]
    fn a_raised_flag_wakes_cores_and_threads() {
        let flag = Flag::new();
        let on_core = flag.clone();
        let core = core_of(None, || async move { on_core.raised().await });
        let on_thread = flag.clone();
        let thread = std::thread::spawn(move || on_thread.raised_blocking());
        flag.raise();
        core.join();
        thread.join().unwrap();
    }

    #[test]
    fn a_lowered_flag_makes_wait_again() {
        block_on(async {
            let flag = Flag::new();
            assert!(!flag.lower());
            flag.raise();
            flag.raise();
            assert!(flag.is_raised());
            flag.raised().await;
            assert!(flag.lower());
            assert!(poll_once(flag.raised()).await.is_none());
            assert_eq!(flag.shared.waiters().len(), 0, "one who gave up leaves no trace");
        });
    }
}
