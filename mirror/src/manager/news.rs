//! What the log says of a mirror's partitions: summed up, so that a thousand of them are one line.
//!
//! Invariants:
//! * what happens is said within `limits::NEWS_APART_MS`, and lines of one mirror come no closer together;
//! * of each kind of news there is one line, with the number and a first example.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_record::PartitionIndex;

use crate::limits;
use crate::reasons::Reason;

/// Names that one line holds.
const NAMES_MAX: usize = 5;

/// News that is not said yet.
#[derive(Debug, Default)]
pub(super) struct News {
    joined: BTreeMap<Arc<str>, usize>,
    went_on: usize,
    failed: BTreeMap<(HowLong, Reason), Failed>,
    /// When it is to be said; `None` where there is none.
    due_ms: Option<u64>,
    not_before_ms: u64,
}

/// For how long a partition is FAILED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HowLong {
    /// Until it is tried again.
    UntilRetried,
    /// Until an operator helps.
    ForGood,
}

#[derive(Debug)]
struct Failed {
    partitions: usize,
    example: String,
}

impl News {
    /// A partition is mirrored here from now on.
    pub(super) fn joined(&mut self, now_ms: u64, topic: &Arc<str>) {
        *self.joined.entry(topic.clone()).or_default() += 1;
        self.noted(now_ms);
    }

    /// A partition is FAILED.
    pub(super) fn failed(
        &mut self,
        now_ms: u64,
        (topic, partition): (&str, PartitionIndex),
        how_long: HowLong,
        (reason, message): (Reason, &str),
    ) {
        let example = || Failed { partitions: 0, example: format!("{topic}-{partition}: {message}") };
        self.failed.entry((how_long, reason)).or_insert_with(example).partitions += 1;
        self.noted(now_ms);
    }

    /// A partition that was FAILED is not any more.
    pub(super) fn went_on(&mut self, now_ms: u64) {
        self.went_on += 1;
        self.noted(now_ms);
    }

    fn noted(&mut self, now_ms: u64) {
        self.due_ms.get_or_insert((now_ms + limits::NEWS_GATHERED_MS).max(self.not_before_ms));
    }

    /// When there is something to say.
    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms.unwrap_or(u64::MAX)
    }

    /// Says what is due of a mirror that has so many partitions here.
    pub(super) fn say(&mut self, now_ms: u64, mirror: &str, of: usize) {
        if self.due_ms() > now_ms {
            return;
        }
        let News { joined, went_on, failed, .. } = std::mem::take(self);
        self.not_before_ms = now_ms + limits::NEWS_APART_MS;
        if !joined.is_empty() {
            let (topics, partitions) =
                (some_of(joined.keys().map(|name| &**name)), joined.values().sum::<usize>());
            tracing::info!(mirror, partitions, of, %topics, "partitions are mirrored");
        }
        if went_on > 0 {
            tracing::info!(mirror, partitions = went_on, "partitions are FAILED no more");
        }
        for ((how_long, reason), Failed { partitions, example }) in failed {
            let reason = reason.code();
            match how_long {
                HowLong::UntilRetried => {
                    tracing::info!(mirror, partitions, reason, %example, "partitions are FAILED and tried again");
                }
                HowLong::ForGood => {
                    tracing::warn!(mirror, partitions, reason, %example, "partitions are FAILED and wait for an operator");
                }
            }
        }
    }
}

/// The first of some names, and how many more there are.
pub(super) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    let mut said = names.by_ref().take(NAMES_MAX).collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => {}
        more => said.push_str(&format!(" and {more} more")),
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_thousand_partitions_are_one_line() {
        let mut news = News::default();
        for index in 0..1000 {
            let why = (Reason::SourceTruncated, "the source has less");
            news.failed(index, ("orders", PartitionIndex(index as i32)), HowLong::ForGood, why);
        }
        let lines = said(|| news.say(news.due_ms(), "m", 1000));
        assert_eq!(lines.len(), 1, "{lines:?}");
        for text in ["1000", "SOURCE_TRUNCATED", "orders-0: the source has less", "m"] {
            assert!(lines[0].contains(text), "no {text} in {lines:?}");
        }
        assert_eq!(news.due_ms(), u64::MAX);
        assert!(said(|| news.say(1_000_000, "m", 1000)).is_empty());
    }

    #[test]
    fn lines_of_a_mirror_that_comes_and_goes_keep_apart() {
        let mut news = News::default();
        let lines = said(|| {
            for now_ms in (0..60_000).step_by(100) {
                let why = (Reason::SourceLeaderUnknown, "it has none");
                news.failed(now_ms, ("orders", PartitionIndex(0)), HowLong::UntilRetried, why);
                news.say(now_ms, "m", 1);
            }
        });
        assert!((10..=13).contains(&lines.len()), "{} lines", lines.len());
    }

    #[test]
    fn topics_that_join_are_named_up_to_a_few() {
        let mut news = News::default();
        for topic in ["a", "b", "c", "d", "e", "f", "g"].map(Arc::from) {
            news.joined(0, &topic);
            news.joined(0, &topic);
        }
        let lines = said(|| news.say(limits::NEWS_GATHERED_MS, "m", 20));
        assert!(lines[0].contains("partitions=14 of=20"), "{lines:?}");
        assert!(lines[0].contains("a, b, c, d, e and 2 more"), "{lines:?}");
    }

    /// The lines that the log gets of this.
    fn said(work: impl FnOnce()) -> Vec<String> {
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = Writer(written.clone());
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, work);
        let written = written.lock().expect("nobody panics while holding it").clone();
        String::from_utf8(written).expect("it is text").lines().map(str::to_owned).collect()
    }

    #[derive(Clone)]
    struct Writer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("nobody panics while holding it").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
