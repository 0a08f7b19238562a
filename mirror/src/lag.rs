//! How far a mirrored partition is behind its source, in records and in milliseconds.
//!
//! Milliseconds count how long the source has had something that is missing here, by this node's clock
//! alone: whenever an answer shows a higher high watermark at the source, the moment and the watermark
//! are kept as a sample, and the oldest sample not yet reached by the local log tells the lag. Record
//! timestamps and the source's clock play no part.
//!
//! Invariants:
//! * neither number is ever negative; before the first answer both are unknown;
//! * no sample is above what the source showed last;
//! * samples ascend in time and in offset; there are at most `SAMPLES_MAX`, and thinning them keeps the
//!   oldest, so the lag is never told too small.

use std::collections::VecDeque;

use tarn_record::Offset;

/// How many samples a partition that is behind keeps at most.
pub const SAMPLES_MAX: usize = 64;

/// The lag of one partition. Owned by whoever fetches it.
#[derive(Clone, Debug, Default)]
pub struct Lag {
    samples: VecDeque<Sample>,
    source_high_watermark: Option<Offset>,
    answered_at_ms: u64,
    local_end: Offset,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    seen_at_ms: u64,
    high_watermark: Offset,
}

/// What is known of a partition's lag at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagNow {
    /// Records that the source has and this log has not, gaps of compaction counted as records.
    pub records: i64,
    /// For how long the source has had something that is missing here; at the tip, the age of the last
    /// answer.
    pub ms: u64,
    /// The source's high watermark in the last answer.
    pub source_high_watermark: Offset,
    /// How long ago the last answer came.
    pub answer_age_ms: u64,
}

impl Lag {
    /// An answer of the source came at `now_ms` and showed this high watermark; `local_end` is the log
    /// end here before the answer's records are appended.
    pub fn answered(&mut self, now_ms: u64, high_watermark: Offset, local_end: Offset) {
        let known = self.source_high_watermark.unwrap_or(local_end);
        self.source_high_watermark = Some(high_watermark);
        self.answered_at_ms = now_ms;
        self.lower(high_watermark);
        self.appended(local_end);
        if high_watermark > known.max(local_end) || (high_watermark > local_end && self.samples.is_empty()) {
            self.samples.push_back(Sample { seen_at_ms: now_ms, high_watermark });
            self.thin();
        }
    }

    /// The source is alive and has nothing new, as an incremental session says by leaving a partition out.
    pub fn still_alive(&mut self, now_ms: u64) {
        if self.source_high_watermark.is_some() {
            self.answered_at_ms = self.answered_at_ms.max(now_ms);
        }
    }

    /// The local log ends at `local_end` now.
    pub fn appended(&mut self, local_end: Offset) {
        self.local_end = local_end;
        while self.samples.front().is_some_and(|oldest| oldest.high_watermark <= local_end) {
            self.samples.pop_front();
        }
    }

    /// The lag as of `now_ms`; `None` before the first answer.
    pub fn at(&self, now_ms: u64) -> Option<LagNow> {
        let source_high_watermark = self.source_high_watermark?;
        let answer_age_ms = now_ms.saturating_sub(self.answered_at_ms);
        let ms = match self.samples.front() {
            Some(oldest) => now_ms.saturating_sub(oldest.seen_at_ms),
            None => answer_age_ms,
        };
        let records = (source_high_watermark.0 - self.local_end.0).max(0);
        Some(LagNow { records, ms, source_high_watermark, answer_age_ms })
    }

    /// The source has nothing above this, whatever it had: what was seen there is not awaited any more.
    fn lower(&mut self, high_watermark: Offset) {
        let reached = self.samples.partition_point(|sample| sample.high_watermark < high_watermark);
        self.samples.truncate(reached + 1);
        if let Some(first) = self.samples.get_mut(reached) {
            first.high_watermark = high_watermark;
        }
    }

    /// Drops every second sample but the oldest where there are too many: the lag may then be told too
    /// large for a while, never too small.
    fn thin(&mut self) {
        if self.samples.len() > SAMPLES_MAX {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn before_the_first_answer_the_lag_is_unknown() {
        assert_eq!(Lag::default().at(1000), None);
    }

    #[test]
    fn a_steady_five_seconds_behind_reads_five_seconds() {
        let mut lag = Lag::default();
        for second in 0..60u64 {
            lag.answered(second * 1000, Offset(second as i64 * 10), Offset(second as i64 * 10 - 50));
            if second > 10 {
                let now = lag.at(second * 1000).expect("it was answered");
                assert_eq!(now.records, 50);
                assert!((4000..=5000).contains(&now.ms), "{} ms at second {second}", now.ms);
            }
        }
    }

    #[test]
    fn a_cut_link_grows_in_real_time() {
        let mut lag = Lag::default();
        lag.answered(1000, Offset(10), Offset(10));
        assert_eq!(lag.at(1500).map(|now| (now.records, now.ms)), Some((0, 500)));
        assert_eq!(lag.at(61_000).map(|now| (now.records, now.ms)), Some((0, 60_000)));
    }

    #[test]
    fn what_arrives_and_is_appended_at_once_leaves_no_lag() {
        let mut lag = Lag::default();
        lag.answered(1000, Offset(10), Offset(0));
        lag.appended(Offset(10));
        assert_eq!(lag.at(1000).map(|now| (now.records, now.ms)), Some((0, 0)));
    }

    #[test]
    fn a_source_that_goes_back_shows_no_negative_lag() {
        let mut lag = Lag::default();
        lag.answered(1000, Offset(100), Offset(100));
        lag.answered(2000, Offset(40), Offset(100));
        assert_eq!(lag.at(2000).map(|now| now.records), Some(0));
    }

    #[test]
    fn what_the_source_has_no_more_is_not_awaited() {
        let mut lag = Lag::default();
        lag.answered(1000, Offset(60), Offset(50));
        lag.answered(2000, Offset(100), Offset(50));
        lag.answered(3000, Offset(110), Offset(50));
        lag.answered(4000, Offset(80), Offset(50));
        assert_eq!(lag.at(5000).map(|now| (now.records, now.ms)), Some((30, 4000)));
        lag.appended(Offset(60));
        assert_eq!(
            lag.at(5000).map(|now| now.ms),
            Some(3000),
            "the rest was seen first in the second answer"
        );
        lag.appended(Offset(80));
        assert_eq!(lag.at(5000).map(|now| (now.records, now.ms)), Some((0, 1000)));
    }

    #[test]
    fn an_older_sign_of_life_does_not_make_an_answer_older() {
        let mut lag = Lag::default();
        lag.answered(1000, Offset(10), Offset(10));
        lag.still_alive(400);
        assert_eq!(lag.at(1000).map(|now| now.answer_age_ms), Some(0));
    }

    proptest! {
        /// However often samples are thinned, the lag is at least the age of the oldest missing record.
        #[test]
        fn the_lag_is_never_told_too_small(steps in prop::collection::vec((1u64..50, 0i64..20, 0i64..25), 1..400)) {
            let mut lag = Lag::default();
            let (mut now, mut source, mut local) = (0u64, 0i64, 0i64);
            let mut seen: Vec<(u64, i64)> = Vec::new();
            for (pause, produced, copied) in steps {
                now += pause;
                source += produced;
                lag.answered(now, Offset(source), Offset(local));
                seen.push((now, source));
                local = (local + copied).min(source);
                lag.appended(Offset(local));
                let told = lag.at(now).expect("it was answered");
                prop_assert_eq!(told.records, source - local);
                if let Some((first, _)) = seen.iter().find(|(_, high)| *high > local) {
                    prop_assert!(told.ms >= now - first, "told {} of {}", told.ms, now - first);
                }
            }
        }
    }
}
