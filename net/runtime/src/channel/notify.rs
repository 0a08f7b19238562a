//! News among the tasks of one core.
//!
//! Whoever waits takes its place first, then looks at the state it waits for, then awaits: news that
//! comes in between is not missed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::waiters::Waiters;

/// Tells all tasks that wait that something has changed. Shared by `Rc` within a core.
#[derive(Debug, Default)]
pub struct LocalNotify {
    changes: Cell<u64>,
    waiters: RefCell<Waiters>,
}

impl LocalNotify {
    /// Nothing has changed yet.
    pub fn new() -> LocalNotify {
        LocalNotify::default()
    }

    /// Wakes everyone who waits now.
    pub fn notify_all(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
        self.waiters.borrow().wake_all();
    }

    /// Resolves at the first `notify_all` after this call, polled or not.
    pub fn wait(&self) -> Notified<'_> {
        Notified { notify: self, since: self.changes.get(), ticket: None }
    }
}

/// A place among those who wait for news.
#[must_use = "a place is awaited"]
#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a LocalNotify,
    since: u64,
    ticket: Option<u64>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.notify.changes.get() != this.since {
            return Poll::Ready(());
        }
        this.notify.waiters.borrow_mut().wait(&mut this.ticket, context.waker());
        Poll::Pending
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        self.notify.waiters.borrow_mut().leave(&mut self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn news_between_taking_a_place_and_awaiting_is_not_missed() {
        block_on(async {
            let notify = LocalNotify::new();
            let early = notify.wait();
            notify.notify_all();
            early.await;
            assert!(poll_once(notify.wait()).await.is_none(), "news is not kept for later comers");
        });
    }

    #[test]
    fn all_who_wait_are_told_once_and_leave_no_trace() {
        block_on(async {
            let notify = LocalNotify::new();
            let (mut one, mut two) = (notify.wait(), notify.wait());
            assert!(poll_once(&mut one).await.is_none() && poll_once(&mut two).await.is_none());
            assert_eq!(notify.waiters.borrow().len(), 2);
            notify.notify_all();
            assert!(poll_once(one).await.is_some() && poll_once(two).await.is_some());
            assert_eq!(notify.waiters.borrow().len(), 0);
        });
    }
}
