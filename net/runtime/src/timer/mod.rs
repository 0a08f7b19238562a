//! Time on a core: sleeping, and giving up on what takes too long.
//!
//! All timers of a core wait in one list, up to the first of which it sleeps. Times are monotonic; only `wall_clock_ms` follows the clock that people set.

mod alarms;
mod sleep;

pub(crate) use alarms::{install, take_due, uninstall, until_next};
pub use sleep::{Sleep, sleep, sleep_until};

use futures_lite::future;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The time given was not enough.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("nothing came within {0:?}")]
pub struct Elapsed(pub Duration);

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

/// Now, by the monotonic clock.
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970 by the clock that people set: what record timestamps are made of.
/// Negative before 1970.
pub fn wall_clock_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

/// Awaits `future` for at most `duration`, then drops it.
///
/// # Errors
/// `Elapsed` where the time ended first. A future that is ready is preferred, even after the time.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let future = pin!(async { Ok(future.await) });
    let timer = async {
        sleep(duration).await;
        Err(Elapsed(duration))
    };
    future::or(future, timer).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::{Queue, limits, spawn};
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn sleepers_wake_in_the_order_of_their_deadlines_and_never_early() {
        let woken = run_on_core(|| async {
            let woken = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [30u64, 10, 20, 0]
                .map(|ms| {
                    let woken = Rc::clone(&woken);
                    spawn(Queue::Network, async move {
                        let begun = now();
                        sleep(Duration::from_millis(ms)).await;
                        assert!(begun.elapsed() >= Duration::from_millis(ms), "woke early from {ms} ms");
                        woken.borrow_mut().push(ms);
                    })
                })
                .into();
            for task in tasks {
                task.await;
            }
            woken.take()
        });
        assert_eq!(woken, [0, 10, 20, 30]);
    }

    #[test]
    fn a_timeout_drops_what_is_late_and_prefers_what_is_ready() {
        run_on_core(|| async {
            let short = Duration::from_millis(2);
            let held = Rc::new(());
            let held_by_future = Rc::clone(&held);
            let late = timeout(short, async move {
                sleep(limits::SLEEP_MAX).await;
                drop(held_by_future);
            });
            assert_eq!(late.await, Err(Elapsed(short)));
            assert_eq!(Rc::strong_count(&held), 1, "the late future was dropped");
            assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7));
        });
    }

    #[test]
    fn a_hundred_thousand_sleepers_may_wait_and_leave_nothing_behind() {
        run_on_core(|| async {
            let before = alarms::count();
            let tasks: Vec<_> = (0..100_000)
                .map(|n| spawn(Queue::Network, sleep(Duration::from_secs(3600 + n % 7))))
                .collect();
            sleep(Duration::from_millis(1)).await;
            assert_eq!(alarms::count(), before + 100_000);
            drop(tasks);
            sleep(Duration::from_millis(1)).await;
            assert_eq!(alarms::count(), before);
        });
    }

    #[test]
    fn a_later_timer_with_an_earlier_deadline_fires_first() {
        run_on_core(|| async {
            let far = spawn(Queue::Network, sleep(Duration::from_secs(3600)));
            crate::yield_now().await;
            let begun = now();
            sleep_until(begun + Duration::from_millis(5)).await;
            assert!(begun.elapsed() < Duration::from_secs(60), "it did not wait for the far one");
            drop(far);
        });
    }

    #[test]
    fn the_longest_duration_there_is_may_be_asked_for() {
        run_on_core(|| async {
            let never = timeout(Duration::from_millis(1), sleep(Duration::MAX)).await;
            assert_eq!(never, Err(Elapsed(Duration::from_millis(1))));
        });
    }
}
