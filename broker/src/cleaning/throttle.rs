//! How fast the cleaner's threads may read and write, all together (`log.cleaner.io.max.bytes.per.second`).
//!
//! What was done is paid for afterwards: whoever spends more than there is waits until the debt is gone.
//!
//! Invariants:
//! * over any time the bytes spent are at most the rate times that time, what a moment saves up, and one piece for
//!   each thread;
//! * nothing here reads a clock: `now` comes with the call.

use std::time::{Duration, Instant};

/// What an idle cleaner saves up: so much of its time at the rate.
const SAVED_UP: Duration = Duration::from_millis(100);

/// The longest wait that is asked for at once, whatever the rate: then it is looked at again.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Bytes that may be spent; negative while there is a debt.
    balance: f64,
    at: Instant,
}

impl Throttle {
    pub(super) fn new(now: Instant) -> Throttle {
        Throttle { balance: 0.0, at: now }
    }

    /// So much was read or written. How long to wait before going on, at `rate` bytes a second.
    pub(super) fn spend(&mut self, bytes: u64, rate: f64, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        self.at = self.at.max(now);
        self.balance = (self.balance + earned).min(rate * SAVED_UP.as_secs_f64()) - bytes as f64;
        if self.balance >= 0.0 || !self.balance.is_finite() {
            self.balance = self.balance.clamp(0.0, f64::MAX);
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.balance / rate).map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_debt_is_waited_for() {
        let now = Instant::now();
        let mut throttle = Throttle::new(now);
        assert_eq!(throttle.spend(500, 1000.0, now), Duration::from_millis(500));
        let later = now + Duration::from_millis(500);
        assert_eq!(throttle.spend(0, 1000.0, later), Duration::ZERO, "it is paid");
        assert_eq!(throttle.spend(1000, 1000.0, later + Duration::from_secs(9)), Duration::from_millis(900));
    }

    #[test]
    fn no_limit_is_none_and_the_least_one_has_an_end() {
        let now = Instant::now();
        let mut throttle = Throttle::new(now);
        for _ in 0..3 {
            assert_eq!(throttle.spend(u64::MAX, f64::MAX, now + Duration::from_secs(1)), Duration::ZERO);
        }
        assert_eq!(Throttle::new(now).spend(1, 0.0, now), WAIT_MAX);
        assert_eq!(Throttle::new(now).spend(1, f64::MIN_POSITIVE, now), WAIT_MAX);
    }

    proptest! {
        /// However it is spent, who waits as told stays within the rate.
        #[test]
        fn the_rate_is_kept(pieces in prop::collection::vec((0u64..5000, 0u64..50), 1..200)) {
            let (began, rate) = (Instant::now(), 10_000.0);
            let (mut throttle, mut now, mut spent) = (Throttle::new(began), began, 0);
            for (bytes, idle_ms) in pieces {
                now += Duration::from_millis(idle_ms);
                now += throttle.spend(bytes, rate, now);
                spent += bytes;
                let allowed = (now - began).as_secs_f64() * rate + rate * SAVED_UP.as_secs_f64();
                prop_assert!(spent as f64 <= allowed + 1.0, "{spent} of {allowed}");
            }
        }
    }
}
