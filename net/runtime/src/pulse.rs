//! The pulse: one plain thread of the process that nudges every core every few milliseconds.
//!
//! The executor (0.12.0, `run_task_queues`) takes a round for empty when its preempt timer fires before
//! the first task of that round has run, as happens when the kernel takes the CPU away for a millisecond
//! just then; it goes to sleep although tasks are runnable, until any next event. A timer of the core's own
//! does not help for sure, since its task may sit in that round. A wake from another thread does: it is an
//! event whether or not the woken task is runnable already. So no such sleep is longer than a pulse.
//!
//! Invariants:
//! * a core is nudged from its first round until it drops its [`Pulse`];
//! * the thread sleeps for good while there is no core.

use crate::channel::Waiters;
use crate::limits;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;

static CORES: Mutex<Cores> = Mutex::new(Cores { beating: false, waiting: Waiters::new() });
static ARRIVED: Condvar = Condvar::new();

struct Cores {
    /// The thread has been started.
    beating: bool,
    waiting: Waiters,
}

/// A core's place among those that are nudged. Never resolves; the core's main task polls it.
#[must_use = "a core that does not await its pulse is not nudged"]
#[derive(Debug)]
pub(crate) struct Pulse {
    ticket: Option<u64>,
}

impl Pulse {
    /// Starts the thread where this is the first core of the process.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn join() -> io::Result<Pulse> {
        let mut cores = cores();
        if !cores.beating {
            thread::Builder::new().name("tarn-pulse".to_owned()).spawn(beat)?;
            cores.beating = true;
        }
        Ok(Pulse { ticket: None })
    }
}

impl Future for Pulse {
    type Output = Infallible;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Infallible> {
        let mut cores = cores();
        let is_new = self.ticket.is_none();
        cores.waiting.wait(&mut self.ticket, context.waker());
        if is_new {
            ARRIVED.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        cores().waiting.leave(&mut self.ticket);
    }
}

/// Nothing panics while it is held.
fn cores() -> MutexGuard<'static, Cores> {
    CORES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beat() {
    loop {
        thread::sleep(limits::PULSE);
        let none = |cores: &mut Cores| cores.waiting.is_empty();
        let cores = ARRIVED.wait_while(cores(), none).unwrap_or_else(PoisonError::into_inner);
        cores.waiting.wake_all();
    }
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

    const SPINNERS: usize = 3;
    const ROUNDS: usize = 8000;

    /// On a CPU that others want too, a core is often interrupted for longer than its preempt timer: without
    /// the pulse this fails in most runs.
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
