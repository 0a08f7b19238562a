//! The pulse: one plain thread of the process that nudges the cores, so that none sleeps on work.
//!
//! The executor (0.12.0, `run_task_queues`) takes a round for empty when its preempt timer fires before
//! the first task of that round has run, as happens when the kernel takes the CPU away for a millisecond
//! just then; it goes to sleep although tasks are runnable, until any next event. A timer of the core's own
//! does not help for sure, since its task may sit in that round. A wake from another thread does: it is an
//! event whether or not the woken task is runnable already.
//!
//! Invariants:
//! * a core that ran since the last beat is nudged at the next one, so a sleep by mistake lasts for a beat,
//!   or for [`limits::BEATS_UNWATCHED_MAX`] of them where the event came together with a nudge;
//! * a core that sleeps, and rightly so, is nudged no more often than that;
//! * the thread sleeps for good while there is no core.

use crate::channel::Flag;
use crate::limits;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

static CORES: Mutex<Cores> = Mutex::new(Cores { is_beating: false, watched: Vec::new() });
static ARRIVED: Condvar = Condvar::new();

thread_local! {
    /// How often a task of this core was polled.
    static POLLS: Arc<AtomicU64> = Arc::default();
}

struct Cores {
    is_beating: bool,
    watched: Vec<Watched>,
}

struct Watched {
    core: Arc<AtomicU64>,
    clock: libc::clockid_t,
    waker: Waker,
    signs: Signs,
}

/// What was seen of a core at the last beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signs {
    cpu_ns: u64,
    polls: u64,
    was_nudged: bool,
    beats_unwatched: u32,
}

impl Signs {
    /// Whether the core is to be nudged now. It ran where its CPU time tells so; where a nudge may have been
    /// the reason, only where its tasks ran too.
    fn beat(&mut self, cpu_ns: u64, polls: u64) -> bool {
        let ran = if self.was_nudged { polls != self.polls } else { cpu_ns != self.cpu_ns };
        let nudge = ran || self.beats_unwatched >= limits::BEATS_UNWATCHED_MAX;
        let beats_unwatched = if nudge { 0 } else { self.beats_unwatched + 1 };
        *self = Signs { cpu_ns, polls, was_nudged: nudge, beats_unwatched };
        nudge
    }
}

/// A core's place among those that are watched. Never resolves; the core polls it as a task of its own.
#[must_use = "a core that does not await its pulse is not nudged"]
#[derive(Debug)]
pub(crate) struct Pulse {
    core: Arc<AtomicU64>,
    clock: libc::clockid_t,
    is_watched: bool,
    begun: Flag,
}

impl Pulse {
    /// For the core on this thread. Starts the pulse's own where this is the first core of the process.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn join() -> io::Result<Pulse> {
        let mut cores = cores();
        if !cores.is_beating {
            thread::Builder::new().name("tarn-pulse".to_owned()).spawn(beat)?;
            cores.is_beating = true;
        }
        let core = POLLS.with(Arc::clone);
        Ok(Pulse { core, clock: clock_of_this_thread()?, is_watched: false, begun: Flag::new() })
    }

    /// Raised at the first nudge.
    pub(crate) fn begun(&self) -> Flag {
        self.begun.clone()
    }
}

impl Future for Pulse {
    type Output = Infallible;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Infallible> {
        if self.is_watched {
            self.begun.raise();
            return Poll::Pending;
        }
        self.is_watched = true;
        let (core, waker) = (Arc::clone(&self.core), context.waker().clone());
        cores().watched.push(Watched { core, clock: self.clock, waker, signs: Signs::default() });
        ARRIVED.notify_one();
        Poll::Pending
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let mut cores = cores();
        let place = cores.watched.iter().position(|watched| Arc::ptr_eq(&watched.core, &self.core));
        let left = place.map(|place| cores.watched.swap_remove(place));
        drop(cores);
        drop(left);
    }
}

/// Counts the polls of a task, for the pulse.
pub(crate) async fn counted<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        POLLS.with(|polls| polls.fetch_add(1, Ordering::Relaxed));
        future.as_mut().poll(context)
    })
    .await
}

/// Nothing panics while it is held.
fn cores() -> MutexGuard<'static, Cores> {
    CORES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beat() {
    loop {
        thread::sleep(limits::PULSE);
        let none = |cores: &mut Cores| cores.watched.is_empty();
        let mut cores = ARRIVED.wait_while(cores(), none).unwrap_or_else(PoisonError::into_inner);
        for watched in &mut cores.watched {
            let polls = watched.core.load(Ordering::Relaxed);
            if watched.signs.beat(cpu_ns(watched.clock), polls) {
                watched.waker.wake_by_ref();
            }
        }
    }
}

fn clock_of_this_thread() -> io::Result<libc::clockid_t> {
    let mut clock = MaybeUninit::uninit();
    // SAFETY: the thread is this one, so it lives; the call writes the clock where it returns 0.
    match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), clock.as_mut_ptr()) } {
        // SAFETY: see above.
        0 => Ok(unsafe { clock.assume_init() }),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The CPU time of a thread; 0 where it has ended.
fn cpu_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time` during the call, and refuses the clock of a thread that has ended.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return 0;
    }
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::mailbox;
    use crate::core::tests::core_of;
    use crate::machine;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_core_is_nudged_after_it_ran_and_rarely_while_it_sleeps() {
        let mut signs = Signs::default();
        assert!(signs.beat(10, 1), "it ran");
        assert!(!signs.beat(20, 1), "only the nudge made it run");
        assert!(signs.beat(30, 1), "something else did, and perhaps no task could run");
        assert!(signs.beat(40, 2), "tasks ran");
        assert!(!signs.beat(50, 2));
        let asleep = (0..limits::BEATS_UNWATCHED_MAX).filter(|_| signs.beat(50, 2)).count();
        assert_eq!(asleep, 1, "it is nudged in the end all the same");
    }

    const SPINNERS: usize = 3;
    const ROUNDS: usize = 8000;

    /// On a CPU that others want too, a core is often interrupted for longer than its preempt timer: without
    /// the pulse this fails in many runs.
    #[test]
    fn a_core_whose_cpu_is_wanted_by_others_still_answers() {
        static DONE: AtomicBool = AtomicBool::new(false);
        let cpu = *machine::available_cpus().unwrap().first().unwrap();
        let spinners = [(); SPINNERS].map(|()| {
            thread::spawn(move || {
                machine::pin_this_thread(cpu).unwrap();
                while !DONE.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        let (questions, mut asked) = mailbox(1);
        let (answers, answered) = mpsc::channel();
        let core = core_of(Some(cpu), move || async move {
            while let Some(question) = asked.recv().await {
                answers.send(question).unwrap();
            }
        });
        let answered_all = (0..ROUNDS).all(|round| {
            questions.send_blocking(round).unwrap();
            answered.recv_timeout(Duration::from_secs(10)) == Ok(round)
        });
        DONE.store(true, Ordering::Relaxed);
        assert!(answered_all, "the core sleeps although it was asked");
        drop(questions);
        core.join();
        spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
    }
}
