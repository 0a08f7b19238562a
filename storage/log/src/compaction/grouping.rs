//! Which segments become one.
//!
//! Compaction makes segments small. Neighbours are written as one as long as that one could have been filled by
//! appends: within the bytes, the index entries and the offsets that a segment may have. A group is also what is
//! exchanged at once on the log's core, so it is not many.

use std::ops::Range;

use tarn_record::Offset;

use crate::config::LogConfig;
use crate::limits::{SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, SEGMENTS_IN_GROUP_MAX};

/// A segment, as far as grouping looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) base: Offset,
    /// Where the next segment begins.
    pub(crate) end: Offset,
    pub(crate) bytes: u32,
    pub(crate) index_bytes: u64,
    pub(crate) time_index_bytes: u64,
}

/// Cuts consecutive segments into groups; each has one at least.
pub(crate) fn groups(segments: &[Sizes], config: &LogConfig) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut first = 0;
    while first < segments.len() {
        let fitting = (first + 1..segments.len())
            .take(SEGMENTS_IN_GROUP_MAX - 1)
            .take_while(|&last| fit(&segments[first..=last], config))
            .last();
        let after = fitting.map_or(first + 1, |last| last + 1);
        groups.push(first..after);
        first = after;
    }
    groups
}

/// True where the segments are no more than one may be.
fn fit(segments: &[Sizes], config: &LogConfig) -> bool {
    let sum = |part: fn(&Sizes) -> u64| segments.iter().map(part).sum::<u64>();
    let index_bytes_max = u64::from(config.segment_index_bytes);
    let span = segments.last().map_or(0, |last| last.end.0 - 1 - segments[0].base.0);
    sum(|one| u64::from(one.bytes)) <= u64::from(config.segment_bytes.min(SEGMENT_BYTES_MAX))
        && sum(|one| one.index_bytes) <= index_bytes_max
        && sum(|one| one.time_index_bytes) <= index_bytes_max
        && span <= SEGMENT_OFFSETS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config() -> LogConfig {
        LogConfig { segment_bytes: 1000, segment_index_bytes: 80, ..LogConfig::default() }
    }

    #[test]
    fn neighbours_become_one_as_long_as_one_can_hold_them() {
        let segments = of(&[(10, 400, 8), (10, 600, 8), (10, 1, 8), (10, 5000, 8), (10, 999, 8)]);
        assert_eq!(groups(&segments, &config()), [0..2, 2..3, 3..4, 4..5]);
        assert_eq!(groups(&of(&[(10, 1, 40), (10, 1, 40), (10, 1, 8)]), &config()), [0..2, 2..3]);
        let far = SEGMENT_OFFSETS_MAX;
        assert_eq!(groups(&of(&[(far, 1, 8), (1, 1, 8), (1, 1, 8)]), &config()), [0..2, 2..3]);
        assert!(groups(&[], &config()).is_empty());
    }

    proptest! {
        /// Every segment is in one group, in order, and no group could have taken the next one too.
        #[test]
        fn groups_are_as_large_as_they_may_be(
            parts in prop::collection::vec((1i64..100, 0u32..700, 0u64..40), 0..200)
        ) {
            let segments = of(&parts);
            let groups = groups(&segments, &config());
            let mut next = 0;
            for group in groups {
                prop_assert_eq!(group.start, next);
                prop_assert!(!group.is_empty() && group.len() <= SEGMENTS_IN_GROUP_MAX);
                prop_assert!(group.len() == 1 || fit(&segments[group.clone()], &config()));
                let larger = segments.get(group.start..group.end + 1);
                let could_grow = group.len() < SEGMENTS_IN_GROUP_MAX && larger.is_some_and(|one| fit(one, &config()));
                prop_assert!(!could_grow);
                next = group.end;
            }
            prop_assert_eq!(next, segments.len());
        }
    }

    /// Segments one after the other: offsets, bytes, bytes of each index.
    fn of(parts: &[(i64, u32, u64)]) -> Vec<Sizes> {
        let mut base = Offset(0);
        let sizes = |&(offsets, bytes, index_bytes): &(i64, u32, u64)| {
            let end = base.plus(offsets);
            let sizes = Sizes { base, end, bytes, index_bytes, time_index_bytes: index_bytes };
            base = end;
            sizes
        };
        parts.iter().map(sizes).collect()
    }
}
