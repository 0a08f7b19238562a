//! A core's flushes: those that somebody waits for, and those that only bound what a crash would make the
//! next start read again.
//!
//! The two never wait for each other. What is promised goes through the core's own lane, in rounds, and is
//! batches alone; what is not goes through the node's one background thread, log by log, so that no answer
//! waits for a flush that is not its own.
//!
//! Invariant: a log has one flush in flight at most (`Partitions` sees to it), and it ends before the log
//! is closed or its directory renamed.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tarn_log::{FlushJob, Flushed, LogError, Together, flush_together};
use tarn_record::{Timestamp, TopicIdPartition};
use tarn_runtime::channel::{Receiver, Sender, mailbox, reply};
use tarn_runtime::{blocking_sync, now, sleep, wall_clock_ms, yield_if_needed};
use tracing::{error, warn};

use crate::core::Core;
use crate::{failing, limits};

type Work = Box<dyn FnOnce() + Send>;

/// The node's thread for flushes that nobody waits for.
#[derive(Clone)]
pub struct BackgroundFlusher {
    work: Sender<Option<Work>>,
}

impl BackgroundFlusher {
    /// Starts the thread; it ends after `stop`.
    ///
    /// # Errors
    /// Where the system has no thread for it.
    pub fn start() -> std::io::Result<(BackgroundFlusher, JoinHandle<()>)> {
        let (work, inbox) = mailbox(limits::BACKGROUND_FLUSHES);
        let thread = thread::Builder::new().name("flusher".to_owned()).spawn(move || run(inbox))?;
        Ok((BackgroundFlusher { work }, thread))
    }

    /// How many flushes wait for it.
    pub fn waiting(&self) -> usize {
        self.work.depth()
    }

    /// The thread ends when it has done what was given to it before. Call it on a plain thread.
    pub fn stop(&self) {
        // A thread that has gone already has ended.
        let _ = self.work.send_blocking(None);
    }

    /// Runs `job` on the thread; `None` where the thread has gone.
    async fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        let (slot, answer) = reply();
        let work: Work = Box::new(move || drop(slot.fill(job())));
        self.work.send(Some(work)).await.ok()?;
        answer.await.ok()
    }
}

fn run(mut inbox: Receiver<Option<Work>>) {
    while let Some(Some(work)) = inbox.recv_blocking() {
        work();
    }
}

/// Group commit: one round of flushes at a time, for everything appended since the last round began.
pub(crate) async fn keep_promises(core: Rc<Core>) {
    loop {
        let wanted = core.flush_wanted().wait();
        let jobs = core.partitions().flush_jobs();
        if jobs.is_empty() {
            wanted.await;
        } else {
            flush(&core, jobs).await;
        }
    }
}

async fn flush(core: &Rc<Core>, jobs: Jobs) {
    let mut is_full = false;
    let together = Together::of(jobs.len());
    for (partition, result) in run_jobs(core, jobs, together).await {
        if note(core, partition, result).is_err() {
            core.partitions().flush_again(partition);
            is_full = true;
        }
    }
    if is_full {
        sleep(limits::FULL_DISK_PAUSE).await;
    }
}

/// The partitions that could not be flushed, and why: a full disk, which passes.
pub(crate) type Unflushed = BTreeMap<TopicIdPartition, String>;

/// Flushes the batches of partitions at once: in one round, but for those of which a flush is in flight, which
/// have to wait for its end.
pub(crate) async fn flush_now(
    core: &Rc<Core>,
    partitions: &[TopicIdPartition],
    together: Together,
) -> Unflushed {
    let (mut waiting, mut unflushed) = (partitions.iter().copied().collect(), Unflushed::new());
    loop {
        let ended = core.flush_ended().wait();
        let jobs = core.partitions().flush_jobs_of(&mut waiting);
        if jobs.is_empty() && waiting.is_empty() {
            return unflushed;
        }
        if jobs.is_empty() {
            ended.await;
            continue;
        }
        for (partition, result) in run_jobs(core, jobs, together).await {
            if let Err(error) = note(core, partition, result) {
                unflushed.insert(partition, error.to_string());
            }
            yield_if_needed().await;
        }
    }
}

type Jobs = Vec<(TopicIdPartition, FlushJob)>;

/// Runs the jobs on the core's lane for it.
async fn run_jobs(
    core: &Rc<Core>,
    jobs: Jobs,
    together: Together,
) -> impl Iterator<Item = (TopicIdPartition, Result<Flushed, LogError>)> {
    let (partitions, jobs): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
    let began = now();
    let results = blocking_sync(move || flush_together(jobs, together)).await;
    core.metrics().flushes.note(began.elapsed());
    partitions.into_iter().zip(results.unwrap_or_else(|error| core.node().storage_failed(&error)))
}

/// Flushes in the background once too much is not on the disk.
pub(crate) async fn bound_recovery(core: Rc<Core>) {
    let share = limits::UNFLUSHED_BYTES / core.partition_cores().len().max(1) as u64;
    loop {
        sleep(Duration::from_millis(limits::BACKGROUND_FLUSH_INTERVAL_MS)).await;
        let due = core.partitions().background_flush_due(Timestamp(wall_clock_ms()), share);
        let mut full: HashSet<PathBuf> = HashSet::new();
        for partition in due {
            let dir = core.partitions().get(partition).map(|replica| replica.log().log_dir().to_owned());
            let Some(dir) = dir.filter(|dir| !full.contains(dir)) else { continue };
            // Made when its turn has come: a job that waits would keep the log's promises waiting.
            let job = core.partitions().flush_job_of(partition);
            let Some(job) = job else { continue };
            match run_in_background(&core, partition, job).await {
                Ok(()) => {}
                Err(NotFlushed::Full) => drop(full.insert(dir)),
                Err(NotFlushed::Gone) => return,
            }
        }
    }
}

/// Why a log was not flushed in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFlushed {
    /// There is no room.
    Full,
    /// The flusher has gone: the node ends.
    Gone,
}

/// Flushes all of one log in the background, after a flush of it that is in flight.
pub(crate) async fn flush_in_background(
    core: &Rc<Core>,
    partition: TopicIdPartition,
) -> Result<(), NotFlushed> {
    loop {
        let ended = core.flush_ended().wait();
        let (job, is_flushing) = {
            let mut partitions = core.partitions();
            (partitions.flush_job_of(partition), partitions.is_flushing(partition))
        };
        match job {
            Some(job) => return run_in_background(core, partition, job).await,
            None if is_flushing => ended.await,
            None => return Ok(()),
        }
    }
}

async fn run_in_background(
    core: &Rc<Core>,
    partition: TopicIdPartition,
    job: FlushJob,
) -> Result<(), NotFlushed> {
    let began = now();
    let flushed = core.node().flusher().run(move || job.run()).await;
    core.metrics().flushes.note(began.elapsed());
    let Some(result) = flushed else {
        error!("the background flusher has gone");
        core.partitions().flush_dropped(partition);
        return Err(NotFlushed::Gone);
    };
    note(core, partition, result).map_err(|_| NotFlushed::Full)
}

/// What a core says again and again while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Again {
    /// A flush found no room.
    NoRoomToFlush,
}

/// Takes note of a flush that has ended; a disk that failed is out of service.
///
/// # Errors
/// Where there was no room for it.
fn note(
    core: &Rc<Core>,
    partition: TopicIdPartition,
    result: Result<Flushed, LogError>,
) -> Result<(), LogError> {
    let flushed = core.partitions().flushed(partition, result);
    core.flush_ended().notify_all();
    core.wake_flusher();
    match flushed {
        Err(error) if error.is_full() => {
            if let Some(remark) = core.remarks().may_say(Again::NoRoomToFlush, now()) {
                warn!(%partition, %error, "no room to flush; trying again{remark}");
            }
            Err(error)
        }
        Err(error) => {
            failing::log_failed(core, partition, &error);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_runtime::channel::Flag;
    use tarn_runtime::{CoreSpec, Queue, spawn, spawn_core};

    #[test]
    fn a_promise_does_not_wait_for_a_flush_in_the_background() {
        let (flusher, thread) = BackgroundFlusher::start().expect("a thread");
        let spec = CoreSpec { cpu: None, name: "core".to_owned() };
        let (background, finish) = (flusher.clone(), Flag::default());
        let core = spawn_core(spec, move || async move {
            let (begun, release) = (Flag::default(), finish.clone());
            let slow = {
                let begun = begun.clone();
                let job = move || {
                    begun.raise();
                    release.raised_blocking();
                    "slow"
                };
                spawn(Queue::Background, async move { background.run(job).await })
            };
            begun.raised().await;
            let promise = blocking_sync(|| "promise").await.expect("the lane runs");
            finish.raise();
            (promise, slow.await)
        });
        assert_eq!(core.expect("a core").join(), ("promise", Some("slow")));
        flusher.stop();
        thread.join().expect("it ends");
    }
}
