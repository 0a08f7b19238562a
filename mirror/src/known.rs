//! What is known of a source that may be gone: the end it last showed, and when.
//!
//! Kept beside a partition from when it leaves its lane, for what the next lane learns begins with nothing, and a
//! report of a stop must say how much of the source is missing here.

use tarn_record::Offset;

use crate::lag::LagNow;

/// What the source last said of one partition. Times are the node's, as in `fetch::progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceKnown {
    /// Its high watermark.
    pub high_watermark: Offset,
    /// When it said so.
    pub answered_at_ms: u64,
    /// For how long it had had something then that was missing here.
    pub lag_ms: u64,
}

impl SourceKnown {
    /// What a lag says of the source at `now_ms`, when it was read.
    pub fn of(lag: &LagNow, now_ms: u64) -> SourceKnown {
        SourceKnown {
            high_watermark: lag.source_high_watermark,
            answered_at_ms: now_ms.saturating_sub(lag.answer_age_ms),
            lag_ms: lag.ms.saturating_sub(lag.answer_age_ms),
        }
    }

    /// The newer of two; the second where both are as old.
    pub fn newer(one: Option<SourceKnown>, other: Option<SourceKnown>) -> Option<SourceKnown> {
        one.into_iter().chain(other).max_by_key(|known| known.answered_at_ms)
    }

    /// When the source said so by the clock on the wall, which shows `wall_ms` at `now_ms`.
    pub fn answered_at_wall_ms(&self, now_ms: u64, wall_ms: i64) -> i64 {
        let age_ms = now_ms.saturating_sub(self.answered_at_ms);
        wall_ms.saturating_sub(i64::try_from(age_ms).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lag::Lag;

    #[test]
    fn what_was_known_stays_as_it_was_when_the_source_said_it() {
        let mut lag = Lag::default();
        lag.answered(1000, Offset(10), Offset(10));
        lag.answered(4000, Offset(30), Offset(10));
        lag.answered(6000, Offset(40), Offset(10));
        for read_at_ms in [6000, 66_000] {
            let known = SourceKnown::of(&lag.at(read_at_ms).expect("it has answered"), read_at_ms);
            assert_eq!((known.high_watermark, known.answered_at_ms, known.lag_ms), (Offset(40), 6000, 2000));
            assert_eq!(known.answered_at_wall_ms(66_000, 1_700_000_060_000), 1_700_000_000_000);
        }
        lag.appended(Offset(40));
        let known = SourceKnown::of(&lag.at(9000).expect("it has answered"), 9000);
        assert_eq!((known.answered_at_ms, known.lag_ms), (6000, 0), "nothing was missing then");
    }

    #[test]
    fn a_lane_that_has_heard_nothing_makes_nobody_forget() {
        let known = |answered_at_ms| {
            Some(SourceKnown { high_watermark: Offset(answered_at_ms as i64), answered_at_ms, lag_ms: 0 })
        };
        assert_eq!(SourceKnown::newer(known(7), None), known(7));
        assert_eq!(SourceKnown::newer(known(7), known(9)), known(9));
        assert_eq!(SourceKnown::newer(known(9), known(7)), known(9));
    }
}
