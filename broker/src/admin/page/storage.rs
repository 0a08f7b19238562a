//! What a scrape tells of log directories and of compaction.

use std::path::Path;

use tarn_metrics::{Column, Exposition, Value};
use tarn_runtime::wall_clock_ms;

use super::super::scrape::Scraped;
use crate::cleaning::{LastRound, Uncleanable};
use crate::metrics;

pub(super) fn write(scraped: &Scraped<'_>, page: &mut Exposition) {
    directories(scraped, page);
    cleaner(scraped, page);
}

fn directories(scraped: &Scraped<'_>, page: &mut Exposition) {
    let log_dirs = scraped.watched.node.log_dirs();
    let (failed, dirs) = (log_dirs.failed(), || log_dirs.dirs().iter().map(|dir| dir.path()));
    page.single(metrics::OFFLINE_DIRS, failed.len() + log_dirs.missing().len());
    let mut family = page.family(metrics::DIR_OFFLINE);
    dirs().for_each(|dir| family.series(&[&text(dir)], failed.iter().any(|one| one == dir)));
    log_dirs.missing_paths().for_each(|dir| family.series(&[&text(dir)], true));
    let mut family = page.family(metrics::LOGS_TO_RECOVER);
    for dir in dirs() {
        let waiting = scraped.cores.iter().filter_map(|core| core.to_recover.get(dir));
        family.series(&[&text(dir)], waiting.sum::<usize>());
    }
    let mut family = page.family(metrics::LOG_DIR_FREE);
    scraped.free.iter().for_each(|(dir, bytes)| family.series(&[&text(dir)], *bytes));
}

fn cleaner(scraped: &Scraped<'_>, page: &mut Exposition) {
    let node = &scraped.watched.node;
    let numbers = node.cleaner().numbers();
    let rounds = Rounds::of(&numbers.last_rounds());
    page.single(metrics::CLEANER_BUFFER, rounds.map_percent);
    page.single(metrics::CLEANER_RECOPY, rounds.recopy_percent);
    page.single(metrics::CLEANER_TIME, rounds.longest_secs);
    page.single(metrics::CLEANER_DELAY, numbers.max_delay_ms() / 1000);
    page.single(metrics::CLEANER_DEAD, numbers.dead_threads());
    page.single(metrics::CLEANER_DIRTY, numbers.max_dirty_percent());
    if numbers.last_run_ms() > 0 {
        let now_ms = u64::try_from(wall_clock_ms()).unwrap_or(0);
        page.single(metrics::CLEANER_LOOKED, now_ms.saturating_sub(numbers.last_run_ms()));
    }
    let uncleanable = numbers.uncleanable();
    let of: [Column<Uncleanable>; 2] =
        [(metrics::UNCLEANABLE, |what| what.partitions), (metrics::UNCLEANABLE_BYTES, |what| what.bytes)];
    for (metric, number) in of {
        let mut family = page.family(metric);
        for dir in node.log_dirs().dirs() {
            let of_dir = uncleanable.get(dir.path()).copied().unwrap_or_default();
            family.series(&[&text(dir.path())], number(&of_dir));
        }
    }
    let (read, written) = numbers.bytes();
    page.single(metrics::CLEANER_ROUNDS, numbers.rounds());
    page.single(metrics::CLEANER_READ, read);
    page.single(metrics::CLEANER_WRITTEN, written);
    page.single(metrics::CLEANER_PANICS, numbers.panics());
}

/// What Kafka tells of the last rounds of all threads.
#[derive(Debug, PartialEq)]
struct Rounds {
    map_percent: Value,
    recopy_percent: Value,
    longest_secs: Value,
}

impl Rounds {
    fn of(rounds: &[LastRound]) -> Rounds {
        let sum = |bytes: fn(&LastRound) -> u64| rounds.iter().map(bytes).sum::<u64>();
        let (before, after) = (sum(|round| round.bytes_before), sum(|round| round.bytes_after));
        let fullest = rounds.iter().map(|round| round.map_fullness).fold(0.0, f64::max);
        let longest = rounds.iter().map(|round| round.took).max().unwrap_or_default();
        Rounds {
            map_percent: Value::Unsigned((fullest * 100.0) as u64),
            recopy_percent: Value::Unsigned(after * 100 / before.max(1)),
            longest_secs: Value::Unsigned(longest.as_secs()),
        }
    }
}

fn text(dir: &Path) -> String {
    dir.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_last_rounds_of_all_threads_are_told_as_one() {
        let nothing = Value::Unsigned(0);
        let none = Rounds { map_percent: nothing, recopy_percent: nothing, longest_secs: nothing };
        assert_eq!(Rounds::of(&[]), none);
        let round = |secs, map_fullness, bytes_before, bytes_after| LastRound {
            took: Duration::from_secs(secs) + Duration::from_millis(900),
            map_fullness,
            bytes_before,
            bytes_after,
        };
        let two = Rounds::of(&[round(7, 0.25, 1000, 100), round(2, 0.5, 3000, 1900)]);
        let expected = Rounds {
            map_percent: Value::Unsigned(50),
            recopy_percent: Value::Unsigned(50),
            longest_secs: Value::Unsigned(7),
        };
        assert_eq!(two, expected);
    }
}
