//! Whether the log here is a beginning of the source's, and from where to go on: the first look. Where that does not
//! tell, `common_point` finds where the logs diverge, `divergence` says how, and `consent` what may be dropped.
//!
//! Decided before the first append after a start, a move, a resume or an outage, and at every new leader
//! of the source. The newest epoch of the log here must be known at the source and must not end there below
//! our log end; where each epoch begins is not compared, because an epoch that was compacted away before we
//! copied it is unknown here. A source that was restored from a backup can have another history in an epoch
//! of the same number, so the newest batch is compared as well.
//!
//! Invariants:
//! * where this says to go on, nothing that is here is missing at the source;
//! * a log with records that no mirror may have brought is never gone on with before its common point is found.

use tarn_record::{BatchHeader, Epoch, Offset};

use crate::gaps::Gap;
use crate::local_cluster::LogEnds;
use crate::state::MirrorState;

/// What the source says of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLog {
    /// Its log start.
    pub log_start: Offset,
    /// The offset up to which it can be read.
    pub high_watermark: Offset,
    /// Where the newest epoch of our log ends there, for a log that has one.
    pub epoch_end: Option<EpochEnd>,
}

/// The source's answer to OffsetForLeaderEpoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The newest epoch there that is not above the one asked for; `Epoch::NONE` where there is none.
    pub epoch: Epoch,
    /// Where it ends; `Offset::NONE` where there is none.
    pub end: Offset,
}

/// Whose records the log here may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// This mirror's alone: it has filled the log, and nobody could write since.
    Mirrored,
    /// Anybody's.
    Local,
}

impl Content {
    /// What the log of a partition may hold that its coordinator has in `state`, before which it was in
    /// `previous` where it has failed. A partition in alignment has got nothing from its mirror yet.
    pub fn of(state: Option<MirrorState>, previous: Option<MirrorState>) -> Content {
        let state = if state == Some(MirrorState::Failed) { previous } else { state };
        if state.is_some_and(MirrorState::means_mirrored) { Content::Mirrored } else { Content::Local }
    }
}

/// What the source has where the newest batch here is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchThere {
    /// Nothing: the source's log goes on, if at all, after it.
    Nothing,
    /// A batch.
    Batch(BatchHeader),
    /// A batch too large to be the one here.
    Larger,
}

/// Whether the newest batch here is the source's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SameBatch {
    /// It is.
    Same,
    /// A cleaner has rewritten it on one side, so it proves nothing.
    Cleaned,
    /// It is not. On a topic that is never compacted that is another history.
    Another(String),
    /// Another one has some of its offsets, and no cleaner has touched either: another history, whoever compacts.
    Replaced(String),
}

/// From where a log that is a beginning of the source's goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoOn {
    /// The first offset to fetch.
    pub from: Offset,
    /// The epoch of the record before it, `Epoch::NONE` where there is none.
    pub last_epoch: Epoch,
    /// Whether the topic is compacted here, so that offsets may be missing within.
    pub compacted: bool,
    /// What the source removed before it was copied.
    pub gap: Option<Gap>,
}

/// Why the log here may be no beginning of the source's: the common point is to be searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart(pub String);

/// Compares where both logs begin and end.
///
/// # Errors
/// `Apart` where that does not prove that nothing here is missing at the source.
pub fn align(ours: &LogEnds, content: Content, source: &SourceLog) -> Result<GoOn, Apart> {
    let compacted = ours.compacted;
    let is_empty = ours.log_start >= ours.log_end;
    if is_empty && content == Content::Local && ours.latest_epoch != Epoch::NONE {
        // The source's batches may be of older ones.
        let begun = ours.latest_epoch;
        return Err(Apart(format!("the log here is empty and has begun leader epoch {begun} of its own")));
    }
    // Nothing was ever mirrored into a log that is not the mirror's yet, and nothing of the source is skipped.
    let begins = is_empty && content == Content::Local && ours.log_end <= source.log_start;
    if ours.log_end <= Offset(0) || begins {
        return Ok(GoOn { from: source.log_start, last_epoch: Epoch::NONE, compacted, gap: None });
    }
    if content == Content::Local {
        return Err(Apart("the log here was not filled by this mirror alone".to_owned()));
    }
    let has_history = ours.latest_epoch != Epoch::NONE;
    let diverged = if has_history { lost_epoch(ours, source) } else { lost_end(ours, source) };
    match diverged {
        Some(why) => Err(Apart(why)),
        None => Ok(go_on(ours, ours.latest_epoch, source)),
    }
}

/// From where a log goes on of which the source has all, up to its end in this epoch.
pub fn go_on(ours: &LogEnds, last_epoch: Epoch, source: &SourceLog) -> GoOn {
    let compacted = ours.compacted;
    if source.log_start <= ours.log_end {
        return GoOn { from: ours.log_end, last_epoch, compacted, gap: None };
    }
    let gap = Some(Gap { first: ours.log_end, next: source.log_start });
    GoOn { from: source.log_start, last_epoch: Epoch::NONE, compacted, gap }
}

/// True where the newest batch here can be compared with the source's, which has not removed it. That is done
/// however well epochs and ends agree: a source that was restored and restarted counts the same epochs again,
/// and applications that repeat what they sent fill it up to the same end.
pub fn has_batch_to_compare(ours: &LogEnds, source: &SourceLog) -> bool {
    ours.latest_epoch != Epoch::NONE && ours.log_start < ours.log_end && source.log_start < ours.log_end
}

/// Compares the newest batch here with what the source has in its place. The epoch is not compared: it is
/// outside the CRC, and has been asked for.
pub fn compare_batch(ours: &BatchHeader, theirs: &BatchThere) -> SameBatch {
    let place = |batch: &BatchHeader| (batch.base_offset, batch.next_offset());
    let said = |batch: &BatchHeader| {
        let (base, next) = place(batch);
        format!("offsets {base} to {}, CRC {:08x}", next.plus(-1), batch.crc)
    };
    let differ =
        |there: &str| format!("the newest batch here ({}) is not the source's ({there})", said(ours));
    let another = |there: &str| SameBatch::Another(differ(there));
    match theirs {
        BatchThere::Batch(batch) if place(batch) == place(ours) && batch.crc == ours.crc => SameBatch::Same,
        BatchThere::Batch(batch) if lacks_records(batch) || lacks_records(ours) => SameBatch::Cleaned,
        BatchThere::Batch(batch) if overlap(batch, ours) && is_as_written(batch, ours) => {
            SameBatch::Replaced(differ(&said(batch)))
        }
        BatchThere::Batch(batch) => another(&said(batch)),
        BatchThere::Larger => another("a larger one"),
        BatchThere::Nothing => another("none is there"),
    }
}

/// Only a cleaner leaves fewer records than offsets in a batch.
fn lacks_records(batch: &BatchHeader) -> bool {
    batch.record_count <= batch.last_offset_delta
}

/// A cleaner leaves a batch its offsets, also where it removes records from it.
fn overlap(theirs: &BatchHeader, ours: &BatchHeader) -> bool {
    theirs.base_offset < ours.next_offset() && ours.base_offset < theirs.next_offset()
}

/// A cleaner that keeps all records of a batch keeps the batch, but where it notes in it from when on its deletions may
/// go (KIP-534).
fn is_as_written(theirs: &BatchHeader, ours: &BatchHeader) -> bool {
    !theirs.attributes.has_delete_horizon() && !ours.attributes.has_delete_horizon()
}

fn lost_epoch(ours: &LogEnds, source: &SourceLog) -> Option<String> {
    let LogEnds { latest_epoch, log_end, .. } = *ours;
    match source.epoch_end {
        Some(EpochEnd { epoch, end }) if epoch == latest_epoch && end >= log_end => None,
        Some(EpochEnd { epoch, end }) if epoch == latest_epoch => Some(format!(
            "the log here ends at {log_end} in epoch {latest_epoch}, which ends at {end} at the source"
        )),
        Some(EpochEnd { epoch, .. }) if epoch != Epoch::NONE => Some(format!(
            "the newest epoch here is {latest_epoch}; the source knows none between it and {epoch}"
        )),
        _ => Some(format!("the newest epoch here is {latest_epoch}, which the source does not know")),
    }
}

/// For a log of which nothing is left but its end: only the end can be compared.
fn lost_end(ours: &LogEnds, source: &SourceLog) -> Option<String> {
    let (here, there) = (ours.log_end, source.high_watermark);
    (here > there).then(|| format!("the log here ends at {here}, the source's at {there}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tarn_record::{Attributes, ProducerEpoch, ProducerId, Sequence};

    #[test]
    fn an_empty_partition_starts_where_the_source_does() {
        assert_eq!(
            align(&ours(0, 0, -1), Content::Mirrored, &source(5000, 9000, None)),
            go_on(5000, -1, None)
        );
        assert_eq!(align(&ours(0, 0, -1), Content::Mirrored, &source(0, 0, None)), go_on(0, -1, None));
    }

    #[test]
    fn records_that_no_mirror_has_brought_are_never_gone_on_with() {
        let there = |log_start| source(log_start, 300, Some((4, 250)));
        let local = |log_start, log_end, source| {
            let epoch = if log_start < log_end { 4 } else { -1 };
            align(&ours(log_start, log_end, epoch), Content::Local, &source)
        };
        for start in [0, 40, 100] {
            let found = local(start, 100, there(0));
            assert!(found.is_err(), "{found:?}: the source has offsets below 100 that are not here");
        }
        assert_eq!(local(0, 0, there(0)), go_on(0, -1, None), "an empty log is anybody's");
        assert_eq!(
            local(100, 100, there(100)),
            go_on(100, -1, None),
            "so is one that was cut to begin there"
        );
        assert_eq!(local(100, 100, there(120)), go_on(120, -1, None));
        assert!(local(99, 100, there(120)).is_err());
        let begun = align(&ours(0, 0, 4), Content::Local, &there(0));
        assert!(begun.is_err(), "{begun:?}: a batch of epoch 3 would not be taken");
    }

    #[test]
    fn a_log_that_is_a_beginning_of_the_sources_goes_on_at_its_end() {
        assert_eq!(
            align(&ours(0, 100, 4), Content::Mirrored, &source(0, 300, Some((4, 100)))),
            go_on(100, 4, None)
        );
        assert_eq!(
            align(&ours(0, 100, 4), Content::Mirrored, &source(50, 300, Some((4, 250)))),
            go_on(100, 4, None)
        );
    }

    #[test]
    fn what_the_source_removed_before_it_was_copied_is_a_gap() {
        assert_eq!(
            align(&ours(0, 100, 4), Content::Mirrored, &source(140, 300, Some((4, 140)))),
            go_on(140, -1, Some((100, 40)))
        );
    }

    #[test]
    fn a_log_that_goes_beyond_the_source_has_diverged() {
        let shorter = align(&ours(0, 100, 4), Content::Mirrored, &source(0, 90, Some((4, 90))));
        assert!(matches!(&shorter, Err(Apart(why)) if why.contains("ends at 90")), "{shorter:?}");
        let other = align(&ours(0, 100, 4), Content::Mirrored, &source(0, 300, Some((3, 80))));
        assert!(matches!(&other, Err(Apart(why)) if why.contains("epoch here is 4")), "{other:?}");
        for nothing in [Some((-1, -1)), None] {
            let unknown = align(&ours(0, 100, 4), Content::Mirrored, &source(0, 300, nothing));
            assert!(unknown.is_err(), "{unknown:?}");
        }
    }

    #[test]
    fn a_log_of_which_only_the_end_is_left_is_compared_by_its_end() {
        assert_eq!(align(&ours(70, 70, -1), Content::Mirrored, &source(60, 80, None)), go_on(70, -1, None));
        assert_eq!(
            align(&ours(70, 70, -1), Content::Mirrored, &source(75, 80, None)),
            go_on(75, -1, Some((70, 5)))
        );
        assert!(align(&ours(70, 70, -1), Content::Mirrored, &source(0, 69, None)).is_err());
    }

    #[test]
    fn the_newest_batch_is_compared_wherever_the_source_may_have_it() {
        let open = |source| has_batch_to_compare(&ours(0, 100, 4), &source);
        assert!(open(source(0, 100, Some((4, 100)))), "the same epoch and end may hold other records");
        assert!(open(source(0, 101, Some((4, 101)))));
        assert!(!open(source(100, 300, Some((4, 300)))), "the source has removed it");
        assert!(!has_batch_to_compare(&ours(0, 0, -1), &source(0, 9, None)), "there is none");
    }

    #[test]
    fn a_batch_of_another_history_is_told_by_its_place_or_its_crc() {
        let ours = batch(10, 3, 3, 0xa);
        let compared = |theirs| compare_batch(&ours, &theirs);
        assert_eq!(compared(BatchThere::Batch(ours)), SameBatch::Same);
        let later_epoch = BatchHeader { leader_epoch: Epoch(99), ..ours };
        assert_eq!(compared(BatchThere::Batch(later_epoch)), SameBatch::Same);
        for other in [batch(11, 2, 2, 0xa), batch(10, 4, 4, 0xa), batch(10, 3, 3, 0xb)] {
            let compared = compared(BatchThere::Batch(other));
            assert!(
                matches!(&compared, SameBatch::Replaced(why) if why.contains("10 to 12")),
                "{compared:?}"
            );
        }
        // A cleaner may have removed ours from before it.
        let later = BatchThere::Batch(batch(13, 2, 2, 0xa));
        for other in [BatchThere::Nothing, BatchThere::Larger, later] {
            assert!(matches!(compared(other), SameBatch::Another(_)));
        }
    }

    #[test]
    fn a_batch_that_a_cleaner_has_rewritten_proves_nothing() {
        let (whole, cleaned) = (batch(10, 3, 3, 0xa), batch(10, 3, 1, 0xb));
        assert_eq!(compare_batch(&whole, &BatchThere::Batch(cleaned)), SameBatch::Cleaned);
        assert_eq!(compare_batch(&cleaned, &BatchThere::Batch(whole)), SameBatch::Cleaned);
        // With all its records, but the time from when on its deletions may go.
        let dated =
            BatchHeader { attributes: Attributes::default().delete_horizon(), ..batch(10, 3, 3, 0xb) };
        for (ours, theirs) in [(whole, dated), (dated, whole), (dated, BatchHeader { crc: 0xc, ..dated })] {
            let compared = compare_batch(&ours, &BatchThere::Batch(theirs));
            assert!(
                matches!(compared, SameBatch::Another(_)),
                "{compared:?}: only where nothing is compacted"
            );
        }
    }

    proptest! {
        /// Going on never skips a record that the source still has and never asks below what is here.
        #[test]
        fn nothing_readable_is_skipped(
            log_end in 0i64..100, epoch in -1i32..5, log_start in 0i64..100, more in 0i64..100,
            end in -1i64..200, answered in -1i32..5,
        ) {
            let source = source(log_start, log_start + more, Some((answered, end)));
            let ours = ours(0, log_end, epoch);
            if let Ok(GoOn { from, gap, .. }) = align(&ours, Content::Mirrored, &source) {
                prop_assert_eq!(from.0, log_end.max(log_start));
                prop_assert_eq!(gap.map_or(0, |gap| gap.offsets() as i64) , if log_end == 0 { 0 } else { from.0 - log_end });
                prop_assert!(log_end == 0 || epoch < 0 || (answered == epoch && end >= log_end));
            }
        }
    }

    fn batch(base: i64, offsets: i32, record_count: i32, crc: u32) -> BatchHeader {
        BatchHeader {
            base_offset: Offset(base),
            length: 100,
            leader_epoch: Epoch(4),
            magic: 2,
            crc,
            attributes: Attributes::default(),
            last_offset_delta: offsets - 1,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch(-1),
            base_sequence: Sequence(-1),
            record_count,
        }
    }

    fn ours(log_start: i64, log_end: i64, latest_epoch: i32) -> LogEnds {
        LogEnds {
            log_start: Offset(log_start),
            log_end: Offset(log_end),
            high_watermark: Offset(log_end),
            latest_epoch: Epoch(latest_epoch),
            leader_epoch: Epoch(9),
            compacted: false,
        }
    }

    fn source(log_start: i64, high_watermark: i64, epoch_end: Option<(i32, i64)>) -> SourceLog {
        SourceLog {
            log_start: Offset(log_start),
            high_watermark: Offset(high_watermark),
            epoch_end: epoch_end.map(|(epoch, end)| EpochEnd { epoch: Epoch(epoch), end: Offset(end) }),
        }
    }

    fn go_on(from: i64, last_epoch: i32, gap: Option<(i64, i64)>) -> Result<GoOn, Apart> {
        Ok(GoOn {
            from: Offset(from),
            last_epoch: Epoch(last_epoch),
            compacted: false,
            gap: gap.map(|(first, count)| Gap { first: Offset(first), next: Offset(first + count) }),
        })
    }
}
