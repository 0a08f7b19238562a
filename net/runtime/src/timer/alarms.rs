//! The alarms of one core, ordered by time. The core sleeps no longer than to the earliest.
//!
//! Invariants:
//! * moments are rounded up to a tick, so that alarms of about the same time share one wake-up;
//! * wakers are called and dropped outside the borrow: they may drop another sleeper.

use crate::limits;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::Waker;
use std::time::{Duration, Instant};

/// A place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    at: Instant,
    number: u64,
}

struct Alarms {
    origin: Instant,
    numbers: u64,
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
        alarm
    })
}

/// Has the alarm wake another waker from now on; sets it again where it has gone off.
pub(crate) fn renew(alarm: Alarm, waker: &Waker) {
    let replaced = with(|alarms| match alarms.waiting.get_mut(&alarm) {
        Some(kept) if kept.will_wake(waker) => None,
        _ => alarms.waiting.insert(alarm, waker.clone()),
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
pub(crate) fn install() {
    ALARMS.set(Some(Alarms { origin: Instant::now(), numbers: 0, waiting: BTreeMap::new() }));
}

/// Forgets the alarms of a core that has ended.
pub(crate) fn uninstall() {
    drop(ALARMS.take());
}

/// How long it is to the earliest alarm; `None` without one.
pub(crate) fn until_next(now: Instant) -> Option<Duration> {
    with(|alarms| Some(alarms.waiting.first_key_value()?.0.at.saturating_duration_since(now)))
}

/// Moves the wakers of the alarms that are due to `due`.
pub(crate) fn take_due(now: Instant, due: &mut Vec<Waker>) {
    with(|alarms| {
        while let Some(first) = alarms.waiting.first_entry()
            && first.key().at <= now
        {
            due.push(first.remove());
        }
    });
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
}
