//! The blocking lanes: what would make a core wait is done by a thread beside it.
//!
//! Each core has a lane for `fdatasync`, one for what only computes, one for what may take minutes (recovering a log), one
//! for what may take hours (copying one), one for the rest (unlink) and one for name lookups, and threads for cold reads
//! ([`reads`]), so that a slow disk holds up neither a cold read of another nor an answer, nor a dead name server either. A
//! lane is one thread, started when first used and free to run on any CPU of the process. Jobs of a lane run in the order
//! in which they were given. A job runs to its end even where nobody waits for it any more; at the end of its core all
//! lanes are emptied but for the last, which is left behind.

mod reads;

pub use reads::DiskId;

use self::reads::ReadThreads;
use crate::channel::{Dropped, Receiver, Reply, Sender, mailbox, reply};
use crate::panics::Panic;
use crate::{limits, machine};
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use thiserror::Error;

/// Why a blocking job has no result.
#[derive(Debug, Error)]
pub enum BlockingError {
    /// The job itself panicked; the lane goes on.
    #[error("a blocking job {0}")]
    Panicked(Panic),
    /// The lane has no thread: it could not be started, or the core is ending.
    #[error("a blocking job was not run: {0}")]
    NotRun(io::Error),
}

impl From<BlockingError> for io::Error {
    fn from(error: BlockingError) -> Self {
        match error {
            BlockingError::NotRun(cause) => cause,
            panicked => io::Error::other(panicked),
        }
    }
}

enum Job {
    Run(Box<dyn FnOnce() + Send>),
    /// The core has ended: what came before it was the last.
    Stop,
}

#[derive(Clone, Copy)]
enum Lane {
    Sync,
    /// What computes.
    Work,
    Long,
    Copies,
    Rest,
    Names,
}

struct Lanes {
    core: String,
    sync: Option<LaneThread>,
    reads: ReadThreads,
    work: Option<LaneThread>,
    long: Option<LaneThread>,
    copies: Option<LaneThread>,
    rest: Option<LaneThread>,
    names: Option<LaneThread>,
}

struct LaneThread {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

thread_local! {
    static LANES: RefCell<Option<Lanes>> = const { RefCell::new(None) };
}

/// Runs `job` in the lane for everything but syncs, from the first poll on.
///
/// # Errors
/// When the job panics, or the lane has no thread.
pub async fn blocking<R, J>(job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    run(Lane::Rest, job).await
}

/// Runs `job` in the lane for `fdatasync` and its like, from the first poll on.
///
/// # Errors
/// When the job panics, or the lane has no thread.
pub async fn blocking_sync<R, J>(job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    run(Lane::Sync, job).await
}

/// Runs `job`, which only reads what is on a disk and is not to take long, in a thread for reads, from the
/// first poll on: reads of other disks do not wait for it.
///
/// # Errors
/// When the job panics, there is no thread, or too many reads wait for the disk.
pub async fn blocking_read<R, J>(disk: DiskId, job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    let (job, outcome) = answering(job);
    let given = LANES.with_borrow(|lanes| lanes.as_ref().map_or_else(no_core, |it| it.reads.run(disk, job)));
    given.map_err(BlockingError::NotRun)?;
    answer(outcome).await
}

/// Runs `job`, which waits for nothing and takes long, in the lane for such jobs, from the first poll on.
///
/// # Errors
/// When the job panics, or the lane has no thread.
pub async fn blocking_work<R, J>(job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    run(Lane::Work, job).await
}

/// Runs `job`, which may take minutes, in the lane for such jobs, from the first poll on.
///
/// # Errors
/// When the job panics, or the lane has no thread.
pub async fn blocking_long<R, J>(job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    run(Lane::Long, job).await
}

/// Runs `job`, which may take hours, in the lane for such jobs, from the first poll on. It must look now and then
/// whether it is still wanted: the core ends after it.
///
/// # Errors
/// When the job panics, or the lane has no thread.
pub async fn blocking_copy<R, J>(job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    run(Lane::Copies, job).await
}

/// Runs a name lookup in its own lane.
pub(crate) async fn blocking_lookup<R, J>(job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    run(Lane::Names, job).await
}

/// How many reads of cold files this core's threads have to do: those for which there is no thread wait.
pub fn reads_under_way() -> usize {
    LANES.with_borrow(|lanes| lanes.as_ref().map_or(0, |lanes| lanes.reads.given()))
}

async fn run<R, J>(lane: Lane, job: J) -> Result<R, BlockingError>
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    let jobs = sender(lane).map_err(BlockingError::NotRun)?;
    let (job, outcome) = answering(job);
    jobs.send(Job::Run(job)).await.map_err(|_| ended())?;
    answer(outcome).await
}

/// A job that keeps what becomes of `job`, and where it keeps that.
fn answering<R, J>(job: J) -> (Box<dyn FnOnce() + Send>, Reply<thread::Result<R>>)
where
    R: Send + 'static,
    J: FnOnce() -> R + Send + 'static,
{
    let (slot, outcome) = reply();
    let job = move || {
        let outcome = catch_unwind(AssertUnwindSafe(job));
        // Nobody may wait any more; the result then ends here.
        slot.fill(outcome).ok();
    };
    (Box::new(job), outcome)
}

async fn answer<R>(outcome: Reply<thread::Result<R>>) -> Result<R, BlockingError> {
    match outcome.await {
        Ok(outcome) => outcome.map_err(|payload| BlockingError::Panicked(Panic::from_payload(payload))),
        Err(Dropped) => Err(ended()),
    }
}

fn ended() -> BlockingError {
    BlockingError::NotRun(io::Error::other("the blocking lane has ended"))
}

fn no_core<T>() -> io::Result<T> {
    Err(io::Error::other("blocking lanes belong to a core"))
}

fn sender(lane: Lane) -> io::Result<Sender<Job>> {
    LANES.with_borrow_mut(|lanes| {
        let Some(lanes) = lanes.as_mut() else { return no_core() };
        let (thread, name) = match lane {
            Lane::Sync => (&mut lanes.sync, "sync"),
            Lane::Work => (&mut lanes.work, "work"),
            Lane::Long => (&mut lanes.long, "long"),
            Lane::Copies => (&mut lanes.copies, "copies"),
            Lane::Rest => (&mut lanes.rest, "rest"),
            Lane::Names => (&mut lanes.names, "names"),
        };
        if let Some(running) = thread {
            return Ok(running.jobs.clone());
        }
        let started = start(&format!("{}-{name}", lanes.core))?;
        Ok(thread.insert(started).jobs.clone())
    })
}

fn start(name: &str) -> io::Result<LaneThread> {
    let (jobs, queue) = mailbox(limits::LANE_JOBS_MAX);
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(queue))?;
    Ok(LaneThread { jobs, thread })
}

fn work(mut queue: Receiver<Job>) {
    machine::unpin_this_thread();
    while let Some(Job::Run(job)) = queue.recv_blocking() {
        job();
    }
}

/// Gives the core on this thread its lanes.
pub(crate) fn install(core: String) {
    let (reads, sync, work, long, copies, rest, names) =
        (ReadThreads::new(&core), None, None, None, None, None, None);
    LANES.set(Some(Lanes { core, reads, sync, work, long, copies, rest, names }));
}

/// Ends the lanes of the core on this thread, after the jobs they hold.
pub(crate) fn finish() {
    let Some(lanes) = LANES.take() else { return };
    lanes.reads.finish();
    let ending = [lanes.sync, lanes.work, lanes.long, lanes.copies, lanes.rest];
    for LaneThread { jobs, thread } in ending.into_iter().flatten() {
        // Said rather than shown by dropping the sender: a task left behind may hold another. A lane that
        // is already gone needs no telling, and jobs do not unwind, so neither does the thread.
        jobs.send_blocking(Job::Stop).ok();
        thread.join().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::{core_of, run_on_core};
    use crate::{Queue, spawn};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::{Arc, mpsc};

    #[test]
    fn a_job_that_panics_is_an_error_and_the_lane_goes_on() {
        run_on_core(|| async {
            let failed = blocking(|| panic!("disk on fire")).await;
            assert!(
                matches!(&failed, Err(BlockingError::Panicked(panic)) if panic.message == "disk on fire"),
                "{:?}",
                failed.map(|()| "no error")
            );
            assert_eq!(blocking(|| 7).await.unwrap(), 7);
        });
    }

    #[test]
    fn lanes_do_not_hold_each_other_up() {
        run_on_core(|| async {
            let (release, held) = mpsc::channel::<()>();
            let slow = spawn(Queue::Background, blocking(move || held.recv()));
            crate::yield_now().await;
            assert_eq!(blocking_sync(|| 1).await.unwrap(), 1);
            assert_eq!(blocking_long(|| 3).await.unwrap(), 3);
            assert_eq!(blocking_copy(|| 4).await.unwrap(), 4);
            assert_eq!(blocking_lookup(|| 2).await.unwrap(), 2);
            release.send(()).unwrap();
            slow.await.unwrap().unwrap();
        });
    }

    #[test]
    fn a_core_that_ends_waits_for_the_jobs_it_gave_even_where_no_task_does() {
        let done = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&done);
        core_of(None, || async move {
            for _ in 0..20 {
                let done = Arc::clone(&counted);
                let job = blocking(move || done.fetch_add(1, Ordering::SeqCst));
                spawn(Queue::Network, job).detach();
            }
            crate::yield_now().await;
        })
        .join();
        assert_eq!(done.load(Ordering::SeqCst), 20);
    }

    #[test]
    fn a_job_runs_on_any_cpu_though_its_core_is_pinned() {
        let cpus = machine::available_cpus().unwrap();
        let (first, all) = (cpus[0], cpus.len());
        let allowed = core_of(Some(first), || {
            blocking(|| rustix::thread::sched_getaffinity(None).unwrap().count() as usize)
        });
        assert_eq!(allowed.join().unwrap(), all);
    }

    #[test]
    fn a_core_is_free_while_its_jobs_block() {
        run_on_core(|| async {
            let free = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&free);
            let waits = spawn(
                Queue::Network,
                blocking(move || {
                    while !seen.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                }),
            );
            crate::yield_now().await;
            free.store(true, Ordering::SeqCst);
            waits.await.unwrap();
        });
    }
}
