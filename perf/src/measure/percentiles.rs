//! Many times, as a few of them.

use std::time::Duration;

/// Percentiles in milliseconds: of so many percent of the times none is longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Percentiles {
    /// Of 50.
    pub(crate) p50_ms: f64,
    /// Of 99.
    pub(crate) p99_ms: f64,
    /// Of 99.9.
    pub(crate) p999_ms: f64,
    /// Of all.
    pub(crate) max_ms: f64,
}

impl Percentiles {
    /// Of these, by nearest rank; no numbers where there are none.
    pub(crate) fn of(mut times: Vec<Duration>) -> Percentiles {
        times.sort_unstable();
        let at = |share: f64| {
            let rank = (times.len() as f64 * share).ceil() as usize;
            times.get(rank.saturating_sub(1)).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        Percentiles { p50_ms: at(0.5), p99_ms: at(0.99), p999_ms: at(0.999), max_ms: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_time_that_so_many_do_not_exceed() {
        let times = (1..=1000).rev().map(Duration::from_millis).collect();
        let percentiles = Percentiles { p50_ms: 500.0, p99_ms: 990.0, p999_ms: 999.0, max_ms: 1000.0 };
        assert_eq!(Percentiles::of(times), percentiles);
        let one = Percentiles::of(vec![Duration::from_millis(3)]);
        assert_eq!((one.p50_ms, one.p999_ms), (3.0, 3.0));
        assert!(Percentiles::of(Vec::new()).p50_ms.is_nan());
    }
}
