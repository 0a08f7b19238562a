//! Time on a core: sleeping, and giving up on what takes too long.
//!
//! All timers of a core live in one wheel, so that a hundred thousand of them are no burden. Times are
//! monotonic; only `wall_clock_ms` follows the clock that people set.

use crate::limits;
use futures_lite::future;
use glommio::timer::Timer;
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

/// Waits. The task wakes within about a millisecond of the time; at once for a duration of zero.
pub async fn sleep(duration: Duration) {
    Timer::new(duration.min(limits::SLEEP_MAX)).await;
}

/// Waits until `deadline`, not at all where it has passed.
pub async fn sleep_until(deadline: Instant) {
    sleep(deadline.saturating_duration_since(now())).await;
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
