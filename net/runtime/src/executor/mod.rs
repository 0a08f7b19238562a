//! The executor of one core: it runs tasks, and sleeps where none can run.
//!
//! Each time around, the core takes what other threads have woken, gives the queue whose turn it is up to
//! [`limits::PREEMPT_TIMER`], and once nothing can run goes into the kernel: one call hands over what is waited for, and
//! sleeps until something is ready, another thread wakes a task, or the earliest alarm is due. A busy core makes that call
//! from time to time, without sleeping.
//!
//! Invariants:
//! * a core sleeps only where no task can run;
//! * a task runs, and is dropped, on its core's thread;
//! * nothing of the core is borrowed while a task runs or a waker is called.

mod ready;
mod ring;
mod wakes;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_task::Runnable;

use self::ready::Ready;
pub(crate) use self::ring::Interest;
use self::ring::{Enter, Place, Ring};
use self::wakes::Wakes;
use crate::core::CoreUsage;
use crate::limits;
use crate::queues::Queue;
use crate::timer;

thread_local! {
    static CORE: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// What the executor of this thread consists of.
struct Core {
    ready: RefCell<Ready>,
    ring: RefCell<Ring>,
    wakes: Arc<Wakes>,
    /// Room for what `wakes` has.
    woken: RefCell<Vec<(Queue, Runnable)>>,
    turn: Turn,
    used: Used,
    /// When it was last in the kernel.
    looked: Cell<Instant>,
    /// Its main future has ended: what it waits for now may block.
    is_over: Cell<bool>,
}

/// The turn of a queue.
struct Turn {
    queue: Cell<Queue>,
    ends: Cell<Instant>,
    is_over: Cell<bool>,
}

/// What the core did since somebody asked.
struct Used {
    since: Cell<Instant>,
    busy: Cell<Duration>,
    asleep: Cell<Duration>,
    runs: Cell<u64>,
}

/// Makes this thread a core.
///
/// # Errors
/// Where the kernel has no ring for it.
pub(crate) fn install() -> io::Result<()> {
    let wakes = Arc::new(Wakes::new()?);
    let (ring, now) = (Ring::new(wakes.event())?, Instant::now());
    let core = Core {
        ready: RefCell::new(Ready::new()),
        ring: RefCell::new(ring),
        wakes,
        woken: RefCell::default(),
        turn: Turn { queue: Cell::new(Queue::Network), ends: Cell::new(now), is_over: Cell::new(false) },
        used: Used {
            since: Cell::new(now),
            busy: Cell::default(),
            asleep: Cell::default(),
            runs: Cell::default(),
        },
        looked: Cell::new(now),
        is_over: Cell::new(false),
    };
    CORE.set(Some(Rc::new(core)));
    Ok(())
}

/// Drops the tasks that can still run, and forgets the core.
pub(crate) fn uninstall() {
    let Some(core) = here() else { return };
    let mut late = core.wakes.close();
    loop {
        let task = late.pop().map(|(_, task)| task).or_else(|| core.ready.borrow_mut().pop_any());
        // Its end may wake or end others.
        let Some(task) = task else { break };
        drop(task);
    }
    CORE.set(None);
}

/// Whether this thread is a core whose main future has not ended.
pub(crate) fn is_running() -> bool {
    with(|core| !core.is_over.get()).unwrap_or(false)
}

/// Starts a task on this core.
pub(crate) fn spawn<T: 'static>(
    queue: Queue,
    future: impl Future<Output = T> + 'static,
) -> async_task::Task<T> {
    let wakes = with(|core| Arc::clone(&core.wakes)).expect("tasks are spawned on a core's own thread");
    let (task, handle) = async_task::spawn_local(future, move |task| wake(&wakes, queue, task));
    task.schedule();
    handle
}

/// Runs the tasks of this core until `main` has ended, whose output it returns.
///
/// # Panics
/// Where a task panics, and where the ring breaks.
pub(crate) fn run<T: 'static>(main: impl Future<Output = T> + 'static) -> T {
    let core = here().expect("a core runs on its own thread");
    let output = Rc::new(Cell::new(None));
    let ended = Rc::clone(&output);
    spawn(Queue::Network, async move { ended.set(Some(main.await)) }).detach();
    loop {
        core.take_woken();
        if let Some(output) = output.take() {
            core.is_over.set(true);
            return output;
        }
        let chosen = core.ready.borrow_mut().choose();
        match chosen {
            Some(queue) => core.run_turn(queue),
            None => core.sleep(),
        }
    }
}

/// Lets other tasks and queues run first, always.
pub(crate) async fn yield_now() {
    with(|core| {
        core.turn.is_over.set(true);
        core.ready.borrow_mut().pass(core.turn.queue.get());
    });
    go_last().await;
}

/// Lets other tasks run first where the turn of this one's queue is over.
pub(crate) async fn yield_if_needed() {
    if with(|core| Instant::now() >= core.turn.ends.get()).unwrap_or(false) {
        go_last().await;
    }
}

/// How the core spent its time since this was last asked.
pub(crate) fn take_usage() -> Option<CoreUsage> {
    with(|core| {
        let (used, now) = (&core.used, Instant::now());
        let all = now.saturating_duration_since(used.since.replace(now));
        let (busy, asleep, runs) = (used.busy.take(), used.asleep.take(), used.runs.take());
        CoreUsage { busy, awake: all.saturating_sub(asleep).max(busy), runs }
    })
}

/// One wait for a descriptor, on the core that began it.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    place: Option<Place>,
}

impl Waiting {
    /// Begins to wait, or goes on; over where `fd` is ready or broken. The waker of the last call is the one that is
    /// called.
    ///
    /// # Errors
    /// Where the kernel cannot wait for it.
    pub(crate) fn poll(
        &mut self,
        fd: RawFd,
        interest: Interest,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        with(|core| {
            let mut ring = core.ring.borrow_mut();
            match self.place {
                Some(place) => {
                    let polled = ring.poll(place, context);
                    if polled.is_ready() {
                        self.place = None;
                    }
                    polled
                }
                None => {
                    self.place = Some(ring.arm(fd, interest, context.waker())?);
                    Poll::Pending
                }
            }
        })
        .expect("sockets are waited for on a core")
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        // Nothing is left to end where its core has.
        let waker = with(|core| core.ring.borrow_mut().leave(place)).flatten();
        drop(waker);
    }
}

/// How many descriptors this core waits for.
#[cfg(test)]
pub(crate) fn waiting() -> usize {
    with(|core| core.ring.borrow().taken()).expect("it is a core")
}

/// Lets everybody else in the queue run first.
async fn go_last() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A task was woken, on whichever thread.
fn wake(wakes: &Arc<Wakes>, queue: Queue, task: Runnable) {
    let mut task = Some(task);
    // The thread may be ending.
    let _ = CORE.try_with(|here| {
        if let Some(core) = here.borrow().as_ref().filter(|core| Arc::ptr_eq(&core.wakes, wakes)) {
            task.take().into_iter().for_each(|task| core.ready.borrow_mut().push(queue, task));
        }
    });
    task.into_iter().for_each(|task| wakes.wake(queue, task));
}

fn here() -> Option<Rc<Core>> {
    CORE.with_borrow(Option::clone)
}

/// Asks the core of this thread, where it is one.
fn with<T>(ask: impl FnOnce(&Core) -> T) -> Option<T> {
    CORE.try_with(|core| core.borrow().as_deref().map(ask)).ok().flatten()
}

impl Core {
    fn take_woken(&self) {
        let mut woken = self.woken.borrow_mut();
        self.wakes.take(&mut woken);
        if !woken.is_empty() {
            let mut ready = self.ready.borrow_mut();
            woken.drain(..).for_each(|(queue, task)| ready.push(queue, task));
        }
    }

    fn run_turn(&self, queue: Queue) {
        let (turn, began) = (&self.turn, Instant::now());
        turn.queue.set(queue);
        turn.ends.set(began + limits::PREEMPT_TIMER);
        turn.is_over.set(false);
        let (mut now, mut runs) = (began, 0);
        while !turn.is_over.get() && now < turn.ends.get() {
            let task = self.ready.borrow_mut().pop(queue);
            let Some(task) = task else { break };
            task.run();
            runs += 1;
            now = Instant::now();
        }
        let had = now.saturating_duration_since(began);
        self.ready.borrow_mut().had(queue, had);
        self.used.busy.set(self.used.busy.get() + had);
        self.used.runs.set(self.used.runs.get() + runs);
        // Who has nothing to do goes in at once, to sleep.
        let is_due = now.saturating_duration_since(self.looked.get()) >= limits::LOOK;
        if is_due && !self.ready.borrow().is_empty() {
            self.go_in(Enter::Briefly, now);
        }
    }

    fn sleep(&self) {
        let now = Instant::now();
        let pause = timer::until_next(now);
        if pause == Some(Duration::ZERO) {
            return self.go_in(Enter::Briefly, now);
        }
        if self.wakes.may_sleep() {
            self.go_in(Enter::ToSleep(pause), now);
            self.wakes.awake();
        }
    }

    /// Goes into the kernel, and wakes who has waited for what it says, and whose alarm is due.
    fn go_in(&self, how: Enter, now: Instant) {
        let mut woken = Vec::new();
        let answered = {
            let mut ring = self.ring.borrow_mut();
            ring.enter(how).and_then(|()| ring.take_answers(&mut woken))
        };
        if let Err(error) = answered {
            panic!("its ring is broken: {error}");
        }
        let mut back = now;
        if matches!(how, Enter::ToSleep(_)) {
            back = Instant::now();
            self.used.asleep.set(self.used.asleep.get() + back.saturating_duration_since(now));
        }
        self.looked.set(back);
        timer::take_due(back, &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::mailbox;
    use crate::core::tests::{core_of, run_on_core};
    use crate::{machine, sleep};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_core_that_has_nothing_to_do_sleeps() {
        run_on_core(|| async {
            yield_now().await;
            take_usage();
            sleep(Duration::from_millis(50)).await;
            let used = take_usage().expect("it is a core");
            assert!(used.awake < Duration::from_millis(25), "{used:?}");
            assert!(used.runs < 10, "{used:?}");
        });
    }

    const SPINNERS: usize = 3;
    const ROUNDS: usize = 8000;

    /// Whatever interrupts it, and for however long.
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
