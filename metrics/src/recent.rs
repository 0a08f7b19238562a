//! From which moment on a quantile is told: quantiles since the start of a node hardly move any more.
//!
//! What timers had seen is kept each minute, as far as somebody asks, and compared with what was kept five minutes
//! ago. It reads no clock.

use std::collections::VecDeque;
use std::time::Duration;

/// How old what is compared with is at least, where the node and its scrapes are old enough.
const WINDOW: Duration = Duration::from_secs(300);

/// How far apart moments that are kept are.
const APART: Duration = Duration::from_secs(60);

/// What was seen at some moments of the last minutes, oldest first.
#[derive(Debug)]
pub struct Recent<T> {
    kept: VecDeque<(Duration, T)>,
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent { kept: VecDeque::new() }
    }
}

impl<T: Clone + Default> Recent<T> {
    /// What had been seen about five minutes before `now`, the time since the start; nothing where nobody asked then.
    pub fn baseline(&self, now: Duration) -> T {
        let is_old = |at: &Duration| now.saturating_sub(*at) >= WINDOW;
        self.kept.iter().rev().find(|(at, _)| is_old(at)).map(|(_, seen)| seen.clone()).unwrap_or_default()
    }

    /// Keeps what is seen now, unless something is as young, and lets go of what is too old to be of use.
    pub fn keep(&mut self, now: Duration, seen: &T) {
        if self.kept.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= APART) {
            self.kept.push_back((now, seen.clone()));
        }
        while self.kept.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW) {
            self.kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_five_to_six_minutes_old() {
        let mut recent = Recent::default();
        let at = Duration::from_secs;
        for second in (0..3600).step_by(15) {
            let baseline: u64 = recent.baseline(at(second));
            assert!(second < 300 || (300..=360).contains(&(second - baseline)), "{baseline} at {second}");
            assert!(second >= 300 || baseline == 0);
            recent.keep(at(second), &second);
            assert!(recent.kept.len() <= 7, "what is of no use any more is let go");
        }
    }

    #[test]
    fn after_a_long_silence_the_last_moment_known_is_the_baseline() {
        let mut recent = Recent::default();
        recent.keep(Duration::from_secs(10), &1);
        recent.keep(Duration::from_secs(70), &2);
        assert_eq!(recent.baseline(Duration::from_secs(9000)), 2);
    }
}
