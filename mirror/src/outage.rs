//! When to say that something is out of order that is tried again and again: once when it begins, then more and more
//! rarely, and once when it is over.
//!
//! Sans-IO; owned by whoever tries. Invariants:
//! * the end of an outage is said where its beginning was, and only there;
//! * what begins again and again says so no more often than each `limits::SAY_AGAIN_MS`.

use crate::limits;

/// One thing that may be out of order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outage {
    since_ms: Option<u64>,
    is_said: bool,
    /// Nothing of an outage that is said already is said before.
    say_again_ms: u64,
    wait_ms: u64,
    /// No beginning is said before.
    say_beginning_ms: u64,
}

impl Outage {
    /// It has failed. For how long it has, where that is to be said now.
    pub fn failed(&mut self, now_ms: u64) -> Option<u64> {
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let say_ms = if self.is_said { self.say_again_ms } else { self.say_beginning_ms };
        if now_ms < say_ms {
            return None;
        }
        let (first, longest) = limits::SAY_STILL_MS;
        self.wait_ms = if self.is_said { self.wait_ms.saturating_mul(2).min(longest) } else { first };
        self.is_said = true;
        self.say_again_ms = now_ms + self.wait_ms;
        self.say_beginning_ms = now_ms + limits::SAY_AGAIN_MS;
        Some(now_ms - since_ms)
    }

    /// It is in order. For how long it was not, where that was said.
    pub fn over(&mut self, now_ms: u64) -> Option<u64> {
        let since_ms = self.since_ms.take()?;
        std::mem::take(&mut self.is_said).then(|| now_ms - since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_said_when_it_begins_and_less_and_less_often_until_it_is_over() {
        let mut outage = Outage::default();
        let hours = 5 * 3600;
        let said: Vec<u64> = (0..hours).filter_map(|second| outage.failed(second * 1000)).collect();
        assert_eq!(said[..4], [0, 60_000, 180_000, 420_000]);
        assert!(said.len() < 12, "{said:?}");
        let apart: Vec<u64> = said.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(apart.is_sorted(), "{apart:?}");
        assert_eq!(apart.last(), Some(&limits::SAY_STILL_MS.1));
        assert_eq!(outage.over(hours * 1000), Some(hours * 1000));
        assert_eq!(outage.over(hours * 1000), None);
    }

    #[test]
    fn each_outage_of_its_own_is_said() {
        let mut outage = Outage::default();
        for began in [0, 100_000, 200_000] {
            assert_eq!(outage.failed(began), Some(0));
            assert_eq!(outage.failed(began + 50), None);
            assert_eq!(outage.over(began + 70), Some(70));
        }
    }

    #[test]
    fn what_comes_and_goes_every_moment_is_said_now_and_then() {
        let mut outage = Outage::default();
        let mut said = [0, 0];
        for now_ms in (0..100_000).step_by(100) {
            said[0] += u32::from(outage.failed(now_ms).is_some());
            said[1] += u32::from(outage.over(now_ms + 50).is_some());
        }
        assert_eq!(said, [10, 10]);
    }
}
