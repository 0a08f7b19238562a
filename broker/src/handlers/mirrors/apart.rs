//! What a failed partition has and its source has not, as it was written down when it failed.
//!
//! The sentence is all that is kept of the comparison (`tarn_mirror::consent` writes it, and a restart finds it with
//! the state), so the numbers are read from it again. What cannot be read is not known: nothing is guessed.

use tarn_mirror::local_cluster::LogEnds;
use tarn_record::Offset;

/// What is said behind the range.
const SAID_OF_IT: &str = " are here and not at the source";
/// What is said before it.
const RANGE: &str = ": offsets ";
/// What is said where more than the range would go.
const WHOLE: &str = "; the topic is compacted, so all of it";

/// Offsets that the source had not when the partition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Apart {
    /// The first.
    pub(super) from: Offset,
    /// The offset after the last.
    pub(super) to: Offset,
    /// How many records they hold; `None` where that was not counted to the end.
    pub(super) records: Option<i64>,
    /// All of the log would have to go with them.
    is_whole: bool,
}

impl Apart {
    /// Reads it from the sentence that a partition failed with.
    pub(super) fn read(said: &str) -> Option<Apart> {
        let (head, rest) = said.rsplit_once(SAID_OF_IT)?;
        let (_, range) = head.rsplit_once(RANGE)?;
        let (offsets, counted) = range.strip_suffix(')')?.split_once(" (")?;
        let (from, last) = offsets.split_once(" to ")?;
        let to = last.parse::<i64>().ok()?.checked_add(1)?;
        let from = from.parse::<i64>().ok()?;
        let records = counted.split_once(" record").and_then(|(number, _)| number.parse().ok());
        let is_range = 0 <= from && from < to;
        is_range.then(|| Apart {
            from: Offset(from),
            to: Offset(to),
            records,
            is_whole: rest.contains(WHOLE),
        })
    }

    /// What would be dropped of a log with these ends: all of it, where the range alone cannot be. `None` where that
    /// is not known.
    pub(super) fn of(self, ends: Option<&LogEnds>) -> Option<Apart> {
        match self.is_whole {
            false => Some(self),
            true => Some(Apart { from: ends?.log_start, records: None, ..self }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_mirror::common_point::CommonPoint;
    use tarn_mirror::consent::Allowed;
    use tarn_mirror::divergence::{Alignment, Divergence};
    use tarn_mirror::local_cluster::Suffix;
    use tarn_record::Epoch;

    const LIMITED: Allowed = Allowed { consent: false, divergence_records_max: Some(3) };

    #[test]
    fn the_range_is_read_back_from_what_a_partition_fails_with() {
        let expected = Apart { from: Offset(100), to: Offset(150), records: Some(20), is_whole: false };
        let read = |divergence: Divergence, of: fn(Divergence) -> Alignment, allowed| {
            let Some(Err((_, said))) = of(divergence).truncation(allowed) else { panic!("it fails") };
            Apart::read(&said)
        };
        for of in [Alignment::Diverged, Alignment::LocalRecords] {
            for allowed in [Allowed::default(), LIMITED] {
                assert_eq!(read(divergence(20, false), of, allowed), Some(expected));
            }
        }
        let one = read(divergence(1, false), Alignment::Diverged, Allowed::default());
        assert_eq!(one, Some(Apart { records: Some(1), ..expected }));
        let suffix = Suffix { has_more: true, ..divergence(20, false).suffix };
        let more = read(Divergence { suffix, ..divergence(20, false) }, Alignment::Diverged, LIMITED);
        assert_eq!(more, Some(Apart { records: None, ..expected }), "it was not counted to the end");
    }

    #[test]
    fn of_a_compacted_log_all_would_go() {
        let Some(Err((_, said))) =
            Alignment::LocalRecords(divergence(20, true)).truncation(Allowed::default())
        else {
            panic!("it fails")
        };
        let read = Apart::read(&said).expect("it names a range");
        let ends = LogEnds {
            log_start: Offset(40),
            log_end: Offset(150),
            high_watermark: Offset(150),
            latest_epoch: Epoch(6),
            leader_epoch: Epoch(9),
            compacted: true,
        };
        let whole = read.of(Some(&ends)).expect("its ends are known");
        assert_eq!((whole.from, whole.to, whole.records), (Offset(40), Offset(150), None));
        assert_eq!(read.of(None), None, "where it begins is not known");
    }

    #[test]
    fn what_says_no_range_has_none() {
        for said in [
            "",
            "it was cut 3 times and is still no beginning of the source's",
            "it ends: offsets 5 to 4 (0 records) are here and not at the source",
            "it ends: offsets -5 to 4 (9 records) are here and not at the source",
            "it ends: offsets 5 to 9223372036854775807 (9 records) are here and not at the source",
            "it ends: offsets 5 (9 records) are here and not at the source",
        ] {
            assert_eq!(Apart::read(said), None, "{said:?}");
        }
    }

    fn divergence(records: u64, compacted: bool) -> Divergence {
        Divergence {
            why: "the log here ends at 150 in epoch 6: offsets 1 to 2 (3 records) were looked at".to_owned(),
            common: Some(CommonPoint { epoch: Epoch(4), offset: Offset(100) }),
            log_start: Offset(40),
            from: Offset(100),
            log_end: Offset(150),
            suffix: Suffix { records, control_records: 2, has_more: false },
            mirrored_end: Offset(150),
            source_log_start: Offset(7),
            compacted,
        }
    }
}
