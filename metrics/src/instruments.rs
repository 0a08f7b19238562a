//! What counts. Written by the core it belongs to, read from any thread; reading stops nobody.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use histogram::{AtomicHistogram, Config, Histogram};

use crate::exposition::Summary;

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// How long something takes, each time.
#[derive(Default)]
pub struct Timer {
    /// Made when there is something to count: most requests are never asked for.
    buckets: std::sync::OnceLock<AtomicHistogram>,
    sum_us: Counter,
}

/// What timers have seen up to a moment.
#[derive(Clone)]
pub struct Durations {
    histogram: Histogram,
    sum_us: u64,
}

/// Microseconds, an eighth apart, up to 2³⁶ of them (19 hours).
static BUCKETS: LazyLock<Config> = LazyLock::new(|| Config::new(3, 36).expect("3 is less than 36"));

/// The longest duration that is told from a longer one.
const LONGEST_US: u64 = (1 << 36) - 1;

/// The quantiles that Kafka tells, as the JMX exporter writes them.
const QUANTILES: [(&str, f64); 6] =
    [("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999)];

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Timer {
    /// It took so long.
    pub fn note(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(LONGEST_US);
        let buckets = self.buckets.get_or_init(|| AtomicHistogram::with_config(&BUCKETS));
        buckets.increment(us).expect("the longest has a bucket");
        self.sum_us.add(us);
    }

    /// What it has seen.
    pub fn durations(&self) -> Durations {
        match self.buckets.get() {
            Some(buckets) => Durations { histogram: buckets.load(), sum_us: self.sum_us.get() },
            None => Durations::default(),
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("sum_us", &self.sum_us).finish_non_exhaustive()
    }
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { histogram: Histogram::with_config(&BUCKETS), sum_us: 0 }
    }
}

impl Durations {
    /// What several timers have seen, as if it were one.
    pub fn of<'a>(timers: impl IntoIterator<Item = &'a Timer>) -> Durations {
        timers.into_iter().fold(Durations::default(), |all, timer| {
            let one = timer.durations();
            let histogram = all.histogram.wrapping_add(&one.histogram).expect("their buckets are the same");
            Durations { histogram, sum_us: all.sum_us + one.sum_us }
        })
    }

    /// How often.
    pub fn count(&self) -> u64 {
        self.histogram.as_slice().iter().sum()
    }

    /// The distribution, in milliseconds: the quantiles of what came after `earlier`, the rest since the start.
    pub fn summary_since(&self, earlier: &Durations) -> Summary {
        let lately = self.histogram.wrapping_sub(&earlier.histogram).expect("their buckets are the same");
        let quantile = |(name, share): (&'static str, f64)| {
            let bucket = lately.quantile_bucket(share).expect("it is between 0 and 1")?;
            Some((name, bucket.end() as f64 / 1000.0))
        };
        Summary {
            quantiles: QUANTILES.into_iter().filter_map(quantile).collect(),
            sum: self.sum_us as f64 / 1000.0,
            count: self.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_of_several_cores_are_one_distribution() {
        let (one, other) = (Timer::default(), Timer::default());
        (0..98).for_each(|_| one.note(Duration::from_millis(2)));
        (0..2).for_each(|_| other.note(Duration::from_secs(5)));
        let summary = Durations::of([&one, &other, &Timer::default()]).summary_since(&Durations::default());
        assert_eq!((summary.count, summary.sum), (100, 10_196.0));
        let at = |name| summary.quantiles.iter().find(|(known, _)| *known == name).expect("it is there").1;
        assert!((2.0..2.26).contains(&at("0.50")), "{summary:?}");
        assert!((2.0..2.26).contains(&at("0.98")), "{summary:?}");
        assert!((5000.0..5626.0).contains(&at("0.99")), "{summary:?}");
    }

    #[test]
    fn quantiles_are_of_what_came_later() {
        let timer = Timer::default();
        timer.note(Duration::from_secs(60));
        let before = timer.durations();
        assert_eq!(timer.durations().summary_since(&before).quantiles, [], "nothing came later");
        timer.note(Duration::from_micros(1));
        let summary = timer.durations().summary_since(&before);
        assert!(summary.quantiles.iter().all(|(_, ms)| *ms == 0.001), "{summary:?}");
        assert_eq!(summary.count, 2, "the count is of all");
    }

    #[test]
    fn the_longest_and_the_shortest_durations_have_a_place() {
        let timer = Timer::default();
        timer.note(Duration::ZERO);
        timer.note(Duration::MAX);
        assert_eq!(timer.durations().count(), 2);
    }
}
