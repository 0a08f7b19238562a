//! The task queues of a core: who goes first when the core is busy.
//!
//! Each core has the same three queues. The executor divides its time among them by their shares, and
//! the latency asked for decides how soon a woken task of a queue interrupts the others at their next
//! `yield_if_needed`. Owned by the core's thread; a task stays in the queue it was spawned into.

use crate::{limits, pulse};
use glommio::{Latency, Shares, TaskQueueHandle};
use std::cell::Cell;
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

thread_local! {
    static QUEUES: Cell<Option<Handles>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Handles {
    network: TaskQueueHandle,
    mirror: TaskQueueHandle,
    background: TaskQueueHandle,
}

/// A task of this core. Awaiting it yields its output; dropping it cancels it.
#[must_use = "a task is cancelled when dropped; detach it to let it run on its own"]
#[derive(Debug)]
pub struct Task<T>(glommio::Task<T>);

impl<T> Task<T> {
    /// Lets the task run on its own, to its end or the core's.
    pub fn detach(self) {
        drop(self.0.detach());
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
    spawn_uncounted(queue, pulse::counted(future))
}

/// The same for the pulse, whose polls are no work.
pub(crate) fn spawn_uncounted<T: 'static>(
    queue: Queue,
    future: impl Future<Output = T> + 'static,
) -> Task<T> {
    let handles = QUEUES.get().expect("tasks are spawned on a core's own thread");
    let handle = match queue {
        Queue::Network => handles.network,
        Queue::Mirror => handles.mirror,
        Queue::Background => handles.background,
    };
    Task(glommio::spawn_local_into(future, handle).expect("a core's queues live as long as the core"))
}

/// Whether this thread is a core, where blocking calls are refused.
pub fn on_core() -> bool {
    QUEUES.get().is_some()
}

/// Lets other tasks and queues run first, always.
pub async fn yield_now() {
    glommio::executor().yield_task_queue_now().await;
}

/// Lets other tasks run first where this one has had its millisecond, or where a task that matters
/// more was woken. Costs a few nanoseconds otherwise. Does nothing on a thread that is not a core.
pub async fn yield_if_needed() {
    glommio::yield_if_needed().await;
}

/// Creates the queues of the core that runs on this thread.
pub(crate) fn install() {
    let executor = glommio::executor();
    QUEUES.set(Some(Handles {
        network: executor.create_task_queue(
            Shares::Static(1000),
            Latency::Matters(limits::PREEMPT_TIMER),
            "network",
        ),
        mirror: executor.create_task_queue(
            Shares::Static(500),
            Latency::Matters(limits::MIRROR_LATENCY),
            "mirror",
        ),
        // Its shares make it wait; the latency only has the core look at its mailboxes while it works.
        background: executor.create_task_queue(
            Shares::Static(100),
            Latency::Matters(limits::PREEMPT_TIMER),
            "background",
        ),
    }));
}

/// Forgets the queues when the core has ended.
pub(crate) fn uninstall() {
    QUEUES.set(None);
}
