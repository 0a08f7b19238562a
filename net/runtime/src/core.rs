//! One core: a thread with its executor, pinned or not.
//!
//! The thread owns everything that its tasks own. It ends when the future it was given returns. It
//! never ends by panic: a core that dies takes the process with it (W4), because the partitions it
//! owns would otherwise be silently gone.

use crate::panics::Panic;
use crate::{blocking, limits, machine, queues};
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement};
use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

/// The number of a core among those of the process, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u16);

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a core runs and what its thread is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSpec {
    /// The CPU it is pinned to; several cores may share one. `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// The thread's name; the kernel shows its first 15 bytes.
    pub name: String,
}

/// A running core. Dropping the handle leaves it running.
#[derive(Debug)]
pub struct CoreHandle<T> {
    thread: thread::JoinHandle<Option<T>>,
}

impl<T> CoreHandle<T> {
    /// Waits for the core to end. Not to be called on a core.
    pub fn join(self) -> T {
        assert!(!queues::on_core(), "a core may not wait for another by blocking");
        let ended = self.thread.join();
        ended.ok().flatten().expect("a core that does not return takes the process down")
    }
}

/// Starts a core. `make` is called on its thread and gives the future to run there, in the network
/// queue. When that returns, the core waits for its blocking lanes and ends.
///
/// # Errors
/// When the thread cannot be started or pinned, or its rings cannot be set up.
pub fn spawn_core<Make, Main, T>(spec: CoreSpec, make: Make) -> io::Result<CoreHandle<T>>
where
    Make: FnOnce() -> Main + Send + 'static,
    Main: Future<Output = T> + 'static,
    T: Send + 'static,
{
    machine::remember_affinity();
    let (started, start) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(spec.name.clone()).spawn(move || {
        let executor = match build(&spec) {
            Ok(executor) => executor,
            Err(error) => {
                started.send(Err(error)).ok();
                return None;
            }
        };
        started.send(Ok(())).ok();
        Some(run_to_end(&spec.name, executor, make))
    })?;
    start.recv().unwrap_or_else(|_| Err(io::Error::other("the core's thread ended before it began")))?;
    Ok(CoreHandle { thread })
}

fn build(spec: &CoreSpec) -> io::Result<LocalExecutor> {
    if let Some(cpu) = spec.cpu {
        machine::pin_this_thread(cpu)?;
    }
    // Unbound, because the executor would look up the CPU in /sys, which containers hide or falsify.
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .name(&spec.name)
        .io_memory(limits::CORE_IO_MEMORY_BYTES)
        .preempt_timer(limits::PREEMPT_TIMER)
        .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
        .make()?;
    Ok(executor)
}

fn run_to_end<Make, Main, T>(name: &str, executor: LocalExecutor, make: Make) -> T
where
    Make: FnOnce() -> Main + 'static,
    Main: Future<Output = T> + 'static,
    T: 'static,
{
    let lanes_name = name.to_owned();
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        let output = executor.run(async move {
            queues::install();
            blocking::install(lanes_name);
            queues::spawn(queues::Queue::Network, async move { make().await }).await
        });
        queues::uninstall();
        blocking::finish();
        drop(executor);
        output
    }));
    outcome.unwrap_or_else(|payload| die(name, &Panic::from_payload(payload)))
}

/// Ends the process. The panic hook has told where; this line is the last word on stderr.
fn die(core: &str, panic: &Panic) -> ! {
    let line = format!("tarn: core {core} {panic}; the process stops, because a core cannot be replaced\n");
    io::stderr().write_all(line.as_bytes()).ok();
    std::process::abort();
}
