//! The alarms of one core, ordered by time, behind one timerfd.
//!
//! Invariants:
//! * the timerfd is set to the earliest alarm, or earlier;
//! * moments are rounded up to a tick, so that alarms of about the same time share one wake-up;
//! * wakers are called and dropped outside the borrow: they may drop another sleeper.

use crate::limits;
use crate::socket::readable;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// A place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    at: Instant,
    number: u64,
}

struct Alarms {
    clock: Rc<OwnedFd>,
    origin: Instant,
    numbers: u64,
    armed: Option<Instant>,
    waiting: BTreeMap<Alarm, Waker>,
}

thread_local! {
    static ALARMS: RefCell<Option<Alarms>> = const { RefCell::new(None) };
}

fn with<T>(work: impl FnOnce(&mut Alarms) -> T) -> T {
    ALARMS.with_borrow_mut(|alarms| work(alarms.as_mut().expect("timers run on a core's own thread")))
}

/// Sets an alarm.
pub(crate) fn set(deadline: Instant, waker: &Waker) -> Alarm {
    with(|alarms| {
        alarms.numbers += 1;
        let alarm = Alarm { at: alarms.tick_after(deadline), number: alarms.numbers };
        alarms.waiting.insert(alarm, waker.clone());
        alarms.arm();
        alarm
    })
}

/// Has the alarm wake another waker from now on; sets it again where it has gone off.
pub(crate) fn renew(alarm: Alarm, waker: &Waker) {
    let replaced = with(|alarms| match alarms.waiting.get_mut(&alarm) {
        Some(kept) if kept.will_wake(waker) => None,
        _ => {
            let replaced = alarms.waiting.insert(alarm, waker.clone());
            alarms.arm();
            replaced
        }
    });
    drop(replaced);
}

/// Forgets an alarm; nothing where its core has ended.
pub(crate) fn unset(alarm: Alarm) {
    let waker =
        ALARMS.with_borrow_mut(|alarms| alarms.as_mut().and_then(|alarms| alarms.waiting.remove(&alarm)));
    drop(waker);
}

/// Gives the core on this thread its alarms.
pub(crate) fn install() -> io::Result<()> {
    let clock = Rc::new(new_clock()?);
    let alarms = Alarms { clock, origin: Instant::now(), numbers: 0, armed: None, waiting: BTreeMap::new() };
    ALARMS.set(Some(alarms));
    Ok(())
}

/// Forgets the alarms of a core that has ended.
pub(crate) fn uninstall() {
    drop(ALARMS.take());
}

/// Sets off alarms when they are due, for ever: the task that every core runs.
pub(crate) async fn drive() -> io::Result<()> {
    let clock = with(|alarms| Rc::clone(&alarms.clock));
    let mut due = Vec::new();
    loop {
        readable(clock.as_fd()).await?;
        let mut expirations = [0; 8];
        // Nothing to read where the clock was set anew since: then nothing is due either, or it soon is.
        rustix::io::read(&*clock, &mut expirations).ok();
        with(|alarms| alarms.take_due(Instant::now(), &mut due));
        due.drain(..).for_each(Waker::wake);
    }
}

/// How many alarms are set.
#[cfg(test)]
pub(crate) fn count() -> usize {
    with(|alarms| alarms.waiting.len())
}

impl Alarms {
    fn tick_after(&self, deadline: Instant) -> Instant {
        let since = deadline.saturating_duration_since(self.origin).as_nanos();
        let ticks = since.div_ceil(limits::TIMER_TICK.as_nanos());
        let rounded = u64::try_from(ticks * limits::TIMER_TICK.as_nanos()).map(Duration::from_nanos);
        rounded.ok().and_then(|since| self.origin.checked_add(since)).unwrap_or(deadline)
    }

    fn take_due(&mut self, now: Instant, due: &mut Vec<Waker>) {
        while let Some(first) = self.waiting.first_entry()
            && first.key().at <= now
        {
            due.push(first.remove());
        }
        self.armed = None;
        self.arm();
    }

    /// Sets the clock where the earliest alarm is earlier than what it is set to.
    fn arm(&mut self) {
        let Some((first, _)) = self.waiting.first_key_value() else { return };
        if self.armed.is_none_or(|armed| first.at < armed) {
            self.armed = Some(first.at);
            set_clock(&self.clock, first.at.saturating_duration_since(Instant::now()));
        }
    }
}

fn new_clock() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_clock(clock: &OwnedFd, wait: Duration) {
    // Zero would stop the clock.
    let wait = wait.max(Duration::from_nanos(1));
    let seconds = libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX);
    let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let value = libc::timespec { tv_sec: seconds, tv_nsec: libc::c_long::from(wait.subsec_nanos() as i32) };
    let setting = libc::itimerspec { it_interval: once, it_value: value };
    // SAFETY: the descriptor is live, the kernel reads `setting` during the call, and a null old value
    // is allowed.
    let done =
        unsafe { libc::timerfd_settime(clock.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) };
    assert_eq!(done, 0, "a live timerfd takes every valid time: {}", io::Error::last_os_error());
}
