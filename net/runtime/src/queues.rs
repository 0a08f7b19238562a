//! The task queues of a core: who goes first when the core is busy.
//!
//! Each core has the same three queues, and divides its time among them by their shares. A queue has the core for a
//! [`limits::PREEMPT_TIMER`](crate::limits::PREEMPT_TIMER) at a time, provided that its tasks call `yield_if_needed`.
//! Owned by the core's thread; a task stays in the queue it was spawned into.

use crate::executor;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A latency class of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Connections, and whatever a client waits for.
    Network,
    /// Mirror fetchers and replication, and what brings partitions into service: half the network's share.
    Mirror,
    /// Work nobody waits for, a tenth of the network's share. It must call `yield_if_needed`.
    Background,
}

impl Queue {
    /// Every queue, in the order of their numbers.
    pub(crate) const ALL: [Queue; 3] = [Queue::Network, Queue::Mirror, Queue::Background];

    /// Its share of a busy core.
    pub(crate) fn shares(self) -> u64 {
        match self {
            Queue::Network => 1000,
            Queue::Mirror => 500,
            Queue::Background => 100,
        }
    }
}

/// A task of this core. Awaiting it yields its output; dropping it cancels it.
#[must_use = "a task is cancelled when dropped; detach it to let it run on its own"]
#[derive(Debug)]
pub struct Task<T>(async_task::Task<T>);

impl<T> Task<T> {
    /// Lets the task run on its own, to its end or the core's.
    pub fn detach(self) {
        self.0.detach();
    }

    /// Cancels the task and waits until it is dropped. `Some` where it had already ended.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(context)
    }
}

/// Starts a task on this core.
///
/// # Panics
/// On a thread that is not a core.
pub fn spawn<T: 'static>(queue: Queue, future: impl Future<Output = T> + 'static) -> Task<T> {
    Task(executor::spawn(queue, future))
}

/// Whether this thread is a core, where blocking calls are refused.
pub fn on_core() -> bool {
    executor::is_running()
}

/// Lets other tasks and queues run first, always.
pub async fn yield_now() {
    executor::yield_now().await;
}

/// Lets other tasks run first where this one has had its millisecond. Costs a look at the clock otherwise. Does nothing on
/// a thread that is not a core.
pub async fn yield_if_needed() {
    executor::yield_if_needed().await;
}
