//! The threads of the cleaner: `log.cleaner.threads` of them, beside the cores and behind everything else.
//!
//! Each takes the next candidate, compacts it and goes on; where there is none the cores are asked, and where they
//! have none either it waits for `log.cleaner.backoff.ms`. The first thread sees to it that there are as many as are
//! configured, and is there also where none is.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use tarn_runtime::channel::{ReplySlot, Sender, reply};
use tarn_runtime::{machine, wall_clock_ms};
use tracing::{error, warn};

use super::candidates::{Candidate, Candidates};
use super::numbers::LastRound;
use super::owner::{Begun, CleanCall, Ended, Swap};
use super::round::{self, Outcome, Ran};
use super::shared::Shared;
use crate::envelope::Envelope;
use crate::limits;
use crate::log_dirs::LogDirs;

/// The threads of a node.
pub struct Cleaners {
    team: Arc<Team>,
}

struct Team {
    shared: Arc<Shared>,
    log_dirs: Arc<LogDirs>,
    /// The cores that own partitions.
    cores: Vec<Sender<Envelope>>,
    /// What the cores have proposed, the best first.
    queue: Mutex<VecDeque<(usize, Candidate)>>,
    /// By their numbers.
    threads: Mutex<BTreeMap<usize, JoinHandle<()>>>,
}

impl Cleaners {
    /// The cleaner of a node whose partitions these cores own. Its threads do not run yet.
    pub fn new(shared: Arc<Shared>, log_dirs: Arc<LogDirs>, cores: Vec<Sender<Envelope>>) -> Cleaners {
        let (queue, threads) = (Mutex::default(), Mutex::default());
        Cleaners { team: Arc::new(Team { shared, log_dirs, cores, queue, threads }) }
    }

    /// Starts the first thread. Call it on a thread that is not pinned.
    ///
    /// # Errors
    /// Where the system has no thread for it.
    pub fn start(&self) -> io::Result<()> {
        self.team.clone().start_thread(0)
    }

    /// Ends every round and the threads; returns when no file of a log is touched any more. Call it on a plain thread,
    /// while the cores still answer.
    pub fn stop(&self) {
        self.team.shared.stop();
        loop {
            // The first thread may be starting another.
            let threads = std::mem::take(&mut *self.team.threads());
            if threads.is_empty() {
                return;
            }
            for thread in threads.into_values() {
                if thread.join().is_err() {
                    warn!("a thread of the cleaner had ended before");
                }
            }
        }
    }
}

impl Team {
    fn start_thread(self: Arc<Team>, number: usize) -> io::Result<()> {
        let team = self.clone();
        let name = format!("cleaner-{number}");
        let thread = thread::Builder::new().name(name).spawn(move || team.run(number))?;
        self.threads().insert(number, thread);
        Ok(())
    }

    fn run(self: Arc<Team>, number: usize) {
        if let Err(error) = machine::lower_priority_of_this_thread() {
            warn!(%error, "the cleaner competes with the cores for their CPUs");
        }
        while !self.shared.is_stopped() {
            let config = self.shared.config();
            if number > 0 && number >= config.threads {
                return;
            }
            if number == 0 {
                self.start_others(config.threads.min(limits::CLEANER_THREADS_MAX));
            }
            let has_cleaned = config.threads > 0 && self.clean_next(number, config.bytes_per_thread());
            if !has_cleaned {
                let pause = Duration::from_millis(config.backoff_ms).max(limits::CLEANER_PAUSE_MIN);
                self.shared.back_off(pause);
            }
        }
    }

    /// Starts threads until there are `wanted`, this one included. Those that are too many end by themselves.
    fn start_others(self: &Arc<Team>, wanted: usize) {
        let runs = |number: usize| self.threads().get(&number).is_some_and(|thread| !thread.is_finished());
        self.shared.numbers().threads_wanted(wanted);
        for number in (1..wanted).filter(|number| !runs(*number)) {
            if let Err(error) = self.clone().start_thread(number) {
                warn!(%error, "no thread for the cleaner");
                break;
            }
        }
        // This one runs.
        self.shared.numbers().threads_lack((1..wanted).filter(|number| !runs(*number)).count());
    }

    /// Compacts the next log; false where there is none.
    fn clean_next(&self, thread: usize, map_bytes: usize) -> bool {
        let Some((core, candidate)) = self.next() else { return false };
        // A panic is a defect; it takes the round with it and nothing else.
        let cleaned = catch_unwind(AssertUnwindSafe(|| self.clean(thread, core, &candidate, map_bytes)));
        if cleaned.is_err() {
            self.shared.numbers().panicked();
            error!(partition = %candidate.partition, "the cleaner panicked");
        }
        true
    }

    fn clean(&self, thread: usize, core: usize, candidate: &Candidate, map_bytes: usize) {
        let began = Instant::now();
        let partition = candidate.partition;
        let begun = self.ask(core, |slot| CleanCall::Begin(partition, slot)).flatten();
        // It may have changed since it was proposed.
        let Some(begun) = begun else { return };
        let Begun { cleaning, unwanted, end } = *begun;
        let swap = |cleaned| {
            let swapped = self.ask(core, |slot| CleanCall::Swap(partition, Box::new(cleaned), slot));
            swapped.unwrap_or(Swap::Unanswered)
        };
        let ran = round::run(cleaning, map_bytes, &self.shared, &unwanted, swap);
        let Ran { outcome, map_fullness, bytes_before, bytes_after } = ran;
        let is_whole = matches!(outcome, Outcome::Compacted(_));
        let last = LastRound { took: began.elapsed(), map_fullness, bytes_before, bytes_after };
        let (noted, is_noted) = reply();
        if end.fill(Ended { outcome, noted }).is_ok() {
            // What it did is on the disk then, unless the log has gone.
            let _ = block_on(is_noted);
        }
        self.shared.numbers().round_ended(thread, is_whole.then_some(last));
    }

    fn next(&self) -> Option<(usize, Candidate)> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.is_empty() && !self.shared.is_stopped() {
            *queue = self.candidates();
        }
        queue.pop_front()
    }

    /// Writes down what was compacted, and asks every core.
    fn candidates(&self) -> VecDeque<(usize, Candidate)> {
        if let Err(error) = self.log_dirs.write_cleaner_offsets() {
            warn!(%error, "where compaction goes on is not written down; that is tried again");
        }
        let asked: Vec<_> = (0..self.cores.len())
            .filter_map(|core| {
                let (slot, answer) = reply();
                self.send(core, CleanCall::Candidates(slot)).then_some((core, answer))
            })
            .collect();
        let (mut all, mut found) = (Candidates::default(), Vec::new());
        for (core, answer) in asked {
            let Ok(candidates) = block_on(answer) else { continue };
            all.merge(&candidates);
            found.extend(candidates.best.into_iter().map(|candidate| (core, candidate)));
        }
        found.sort_by(|(_, one), (_, other)| one.order(other));
        let whole = |number: i64| u64::try_from(number).unwrap_or(0);
        let percent = (all.max_ratio * 100.0) as u64;
        self.shared.numbers().looked(
            all.uncleanable,
            percent,
            whole(all.max_overdue_ms),
            whole(wall_clock_ms()),
        );
        found.into()
    }

    fn ask<R: Send>(&self, core: usize, call: impl FnOnce(ReplySlot<R>) -> CleanCall) -> Option<R> {
        let (slot, answer) = reply();
        if self.send(core, call(slot)) { block_on(answer).ok() } else { None }
    }

    /// False where the core has gone.
    fn send(&self, core: usize, call: CleanCall) -> bool {
        self.cores[core].send_blocking(Envelope::Clean(call)).is_ok()
    }

    fn threads(&self) -> MutexGuard<'_, BTreeMap<usize, JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
