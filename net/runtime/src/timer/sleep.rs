//! One wait for one moment.

use super::alarms::{self, Alarm};
use super::now;
use crate::limits;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Waits. The task wakes within about a millisecond after the time; a duration of zero does not wait,
/// nor yield.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration.min(limits::SLEEP_MAX))
}

/// Waits until `deadline`, not at all where it has passed.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, alarm: None, on_its_core: PhantomData }
}

/// The future of [`sleep`]. Costs nothing until polled; belongs to the core that polls it first.
#[must_use = "sleeping is awaited"]
#[derive(Debug)]
pub struct Sleep {
    deadline: Instant,
    alarm: Option<Alarm>,
    on_its_core: PhantomData<Rc<()>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now() >= self.deadline {
            return Poll::Ready(());
        }
        match self.alarm {
            Some(alarm) => alarms::renew(alarm, context.waker()),
            None => self.alarm = Some(alarms::set(self.deadline, context.waker())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            alarms::unset(alarm);
        }
    }
}
