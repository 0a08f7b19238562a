//! What a node's cleaner acts on, looked up anew for each of its rounds: most of it may change while the node runs.

use super::BrokerView;
use crate::config::table;

/// The broker keys that the cleaner acts on, but for those that give topics their defaults.
pub const KEYS: [&str; 5] = [
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.enable",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
];

/// The memory for the keys of one thread has to be more than this: Kafka's limit.
pub const THREAD_BUFFER_BYTES: i64 = 1024 * 1024;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerConfig {
    /// How many threads there are: `log.cleaner.threads`, or none where `log.cleaner.enable` says so.
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: the memory for keys of all threads together.
    pub dedupe_buffer_bytes: u64,
    /// `log.cleaner.io.max.bytes.per.second`: what all threads together read and write.
    pub bytes_per_second: f64,
    /// `log.cleaner.backoff.ms`: how long a thread waits where nothing is to be cleaned.
    pub backoff_ms: u64,
}

impl CleanerConfig {
    /// What is in force on this broker.
    pub fn resolve(broker: &BrokerView<'_>) -> CleanerConfig {
        let text = |name: &str| table::broker_key(name).and_then(|key| broker.value(key)).unwrap_or_default();
        let number =
            |name: &str| text(name).parse::<i64>().ok().and_then(|number| u64::try_from(number).ok());
        let threads = number("log.cleaner.threads").and_then(|threads| usize::try_from(threads).ok());
        CleanerConfig {
            threads: threads.filter(|_| text("log.cleaner.enable") == "true").unwrap_or(0),
            dedupe_buffer_bytes: number("log.cleaner.dedupe.buffer.size").unwrap_or(0),
            bytes_per_second: text("log.cleaner.io.max.bytes.per.second").parse().unwrap_or(f64::MAX),
            backoff_ms: number("log.cleaner.backoff.ms").unwrap_or(0),
        }
    }

    /// The memory for keys that each thread has.
    pub fn bytes_per_thread(&self) -> usize {
        let share = self.dedupe_buffer_bytes / self.threads.max(1) as u64;
        usize::try_from(share).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configs::Configs;
    use crate::effective::StaticConfigs;

    #[test]
    fn a_node_without_configs_has_kafkas_defaults() {
        let config = resolve(&[]);
        assert_eq!((config.threads, config.backoff_ms), (1, 15_000));
        assert_eq!(config.bytes_per_thread(), 128 << 20);
        assert!(config.bytes_per_second > 1e300);
    }

    #[test]
    fn threads_share_the_memory() {
        let config = resolve(&[("log.cleaner.threads", "4"), ("log.cleaner.dedupe.buffer.size", "8000000")]);
        assert_eq!((config.threads, config.bytes_per_thread()), (4, 2_000_000));
    }

    #[test]
    fn a_cleaner_that_is_not_enabled_has_no_threads() {
        assert_eq!(resolve(&[("log.cleaner.enable", "false"), ("log.cleaner.threads", "4")]).threads, 0);
    }

    fn resolve(file: &[(&str, &str)]) -> CleanerConfig {
        let file: StaticConfigs =
            file.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        CleanerConfig::resolve(&BrokerView::new(&Configs::default(), "1", &file))
    }
}
