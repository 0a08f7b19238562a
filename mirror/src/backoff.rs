//! How long to wait before something is tried again.

/// Waits that double with each attempt up to a limit, spread by a fifth either way so that many that
/// failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the first further attempt, in milliseconds.
    pub initial_ms: u64,
    /// The longest wait before it is spread.
    pub max_ms: u64,
}

impl Backoff {
    /// A backoff from the first wait to the longest.
    pub const fn new((initial_ms, max_ms): (u64, u64)) -> Backoff {
        Backoff { initial_ms, max_ms }
    }

    /// The wait after attempt number `attempt` has failed; the first is 1. `spread` is drawn from 0 to 1.
    pub fn wait_ms(&self, attempt: u32, spread: f64) -> u64 {
        let doublings = attempt.saturating_sub(1).min(62);
        let wait = self.initial_ms.saturating_mul(1 << doublings).min(self.max_ms);
        (wait as f64 * (0.8 + 0.4 * spread)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread_by_a_fifth() {
        let backoff = Backoff::new((100, 1000));
        let waits: Vec<u64> = (1..=6).map(|attempt| backoff.wait_ms(attempt, 0.5)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!((backoff.wait_ms(1, 0.0), backoff.wait_ms(9, 1.0)), (80, 1200));
        assert_eq!(backoff.wait_ms(u32::MAX, 0.5), 1000);
    }
}
