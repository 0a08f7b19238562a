//! Searches in two generated histories.

use super::*;
use proptest::prelude::*;
use tarn_record::{Attributes, ProducerEpoch, ProducerId, Sequence};

#[test]
fn a_source_that_ends_our_epoch_earlier_parts_there() {
    let ours = log(&[(5, 1, 0xa), (5, 1, 0xb), (5, 1, 0xc)]);
    let theirs = log(&[(5, 1, 0xa), (5, 1, 0xb), (5, 4, 0xd)]);
    let (found, asked) = search(&ours, &theirs, all_of(&ours));
    assert_eq!(found, point(1, 10));
    assert!(asked <= 5, "{asked} questions");
}

#[test]
fn epochs_that_only_we_have_are_given_up_one_after_the_other() {
    let ours = log(&[(5, 1, 0xa), (5, 3, 0xb), (5, 4, 0xc), (5, 6, 0xd)]);
    let theirs = log(&[(5, 1, 0xa), (5, 2, 0xe), (5, 7, 0xf)]);
    assert_eq!(search(&ours, &theirs, all_of(&ours)).0, point(1, 5));
    // The same of a source that was put back to before all that.
    let restored = log(&[(5, 1, 0xa)]);
    assert_eq!(search(&ours, &restored, all_of(&ours)).0, point(1, 5));
}

#[test]
fn a_source_that_counts_the_same_epochs_again_is_found_out_by_its_batches() {
    let ours = log(&[(3, 1, 1), (3, 1, 2), (3, 1, 3), (3, 1, 4), (3, 1, 5), (3, 1, 6)]);
    let theirs = log(&[(3, 1, 1), (3, 1, 2), (3, 1, 93), (3, 1, 94), (3, 1, 95), (3, 1, 96)]);
    assert_eq!(search(&ours, &theirs, all_of(&ours)).0, point(1, 6));
    let compacted = Logs { proof: Proof::Epochs, ..logs(&ours, &theirs) };
    assert_eq!(search(&ours, &theirs, compacted).0, point(1, 6), "no cleaner has touched them");
    // One that a cleaner has rewritten, or removed, says nothing, and its epoch is believed.
    let mut cleaned = theirs.clone();
    cleaned.batches[5].record_count -= 1;
    assert_eq!(search(&ours, &cleaned, compacted).0, point(1, 18));
    cleaned.batches[5].base_offset = Offset(18);
    assert_eq!(search(&ours, &cleaned, compacted).0, point(1, 18));
    cleaned = theirs.clone();
    cleaned.batches[5].attributes = Attributes::default().delete_horizon();
    assert_eq!(search(&ours, &cleaned, compacted).0, point(1, 18));
}

#[test]
fn a_batch_that_the_source_ends_within_is_dropped_whole() {
    let ours = log(&[(5, 1, 0xa), (8, 1, 0xb)]);
    let theirs = log(&[(5, 1, 0xa), (4, 1, 0xe), (9, 2, 0xf)]);
    assert_eq!(search(&ours, &theirs, all_of(&ours)).0, point(1, 5));
}

#[test]
fn what_clients_have_written_behind_the_mirror_is_not_looked_at() {
    let ours = log(&[(5, 1, 0xa), (5, 1, 0xb), (1, 9, 0xc), (7, 9, 0xd)]);
    let theirs = log(&[(5, 1, 0xa), (5, 1, 0xb), (5, 1, 0xe)]);
    let promoted = Logs { mirrored_end: Offset(10), ..logs(&ours, &theirs) };
    assert_eq!(search(&ours, &theirs, promoted).0, point(1, 10));
    let never_mirrored = Logs { mirrored_end: Offset(0), ..logs(&ours, &theirs) };
    assert_eq!(search(&ours, &theirs, never_mirrored), (None, 0), "nothing has to be asked");
}

#[test]
fn the_same_records_in_another_epoch_are_another_history() {
    // Applications repeat to the new leader what the old one has acknowledged: the CRC does not cover the epoch.
    let ours = log(&[(5, 1, 0xa), (5, 1, 0xb)]);
    let theirs = log(&[(5, 1, 0xa), (5, 2, 0xb)]);
    assert_eq!(search(&ours, &theirs, all_of(&ours)).0, point(1, 5));
}

#[test]
fn a_source_that_answers_whatever_it_likes_ends_every_search() {
    let batch = header(0, 1_000_000, 7, 0xa);
    for answer in [(-1, -1), (7, -5), (9, 3), (7, i64::MAX), (3, 999_999)] {
        let mut search = Search::new(Logs {
            log_start: Offset(0),
            mirrored_end: Offset(1_000_000),
            source_start: Offset(0),
            source_epoch: Epoch::NONE,
            proof: Proof::Crcs,
        });
        let mut answers = 0;
        while !matches!(search.next(), Ask::Found(_)) {
            answers += 1;
            match search.next() {
                Ask::BatchHere(_) => search.batch_here(Some(batch)),
                Ask::EpochThere(_) => {
                    search.epoch_there(EpochEnd { epoch: Epoch(answer.0), end: Offset(answer.1) })
                }
                Ask::EpochHere(epoch) => search.epoch_here(EpochEnd { epoch, end: Offset(1_000_000) }),
                Ask::BatchThere(_) => search.batch_there(&BatchThere::Larger),
                Ask::Found(_) => {}
            }
            assert!(answers <= limits::SEARCH_ANSWERS_MAX + 1, "{answer:?}");
        }
    }
}

#[test]
fn a_search_that_takes_too_many_answers_says_that_it_was_given_up() {
    // A source that was put back to long before, and does not say in which epoch it is.
    let theirs = log(&[(1, 0, 1)]);
    for (epochs, gives_up) in [(100, false), (200, true)] {
        let ours: Vec<_> = (0..=epochs).map(|epoch| (1, epoch, 1)).collect();
        let ours = log(&ours);
        let (search, _) = ended(&ours, &theirs, all_of(&ours));
        let expected = if gives_up { None } else { point(0, 1) };
        assert_eq!((search.next(), search.gave_up()), (Ask::Found(expected), gives_up));
    }
}

/// A log: its batches, and where it begins.
#[derive(Clone, Debug)]
struct Log {
    start: i64,
    batches: Vec<BatchHeader>,
}

impl Log {
    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |batch| batch.next_offset().0)
    }

    fn newest(&self) -> i32 {
        self.batches.last().map_or(-1, |batch| batch.leader_epoch.0)
    }

    fn held(&self) -> impl DoubleEndedIterator<Item = &BatchHeader> {
        self.batches.iter().filter(|batch| batch.next_offset().0 > self.start)
    }

    /// The answer of OffsetForLeaderEpoch, by epochs that begin with their first batch.
    fn end_of(&self, asked: i32) -> EpochEnd {
        if asked > self.newest() {
            return EpochEnd { epoch: Epoch::NONE, end: Offset::NONE };
        }
        let higher = self.held().find(|batch| batch.leader_epoch.0 > asked);
        let end = higher.map_or(self.end(), |batch| batch.base_offset.0.max(self.start));
        let floor = self.held().rev().map(|batch| batch.leader_epoch.0).find(|epoch| *epoch <= asked);
        EpochEnd { epoch: Epoch(floor.unwrap_or(asked)), end: Offset(end) }
    }

    fn below(&self, offset: Offset) -> Option<BatchHeader> {
        self.held().rfind(|batch| batch.base_offset < offset).copied()
    }

    /// What a fetch of the last offset of `ours` brings.
    fn in_place_of(&self, ours: &BatchHeader) -> BatchThere {
        let found = self.held().find(|batch| batch.next_offset() > ours.last_offset());
        match found {
            Some(batch) if batch.base_offset <= ours.last_offset() => BatchThere::Batch(*batch),
            _ => BatchThere::Nothing,
        }
    }

    fn has(&self, batch: &BatchHeader) -> bool {
        self.batches.contains(batch)
    }
}

/// Searches, and says how much was asked.
fn search(ours: &Log, theirs: &Log, logs: Logs) -> (Option<CommonPoint>, u32) {
    let (search, asked) = ended(ours, theirs, logs);
    let Ask::Found(found) = search.next() else { panic!("it has not ended: {search:?}") };
    (found, asked)
}

/// A search that has ended, and how much was asked.
fn ended(ours: &Log, theirs: &Log, logs: Logs) -> (Search, u32) {
    let mut search = Search::new(logs);
    let mut asked = 0;
    loop {
        match search.next() {
            Ask::BatchHere(below) => search.batch_here(ours.below(below)),
            Ask::EpochThere(epoch) => search.epoch_there(theirs.end_of(epoch.0)),
            Ask::EpochHere(epoch) => search.epoch_here(ours.end_of(epoch.0)),
            Ask::BatchThere(batch) => search.batch_there(&theirs.in_place_of(&batch)),
            Ask::Found(_) => return (search, asked),
        }
        asked += 1;
        assert!(asked <= limits::SEARCH_ANSWERS_MAX + 1, "it ends");
    }
}

fn logs(ours: &Log, theirs: &Log) -> Logs {
    Logs {
        log_start: Offset(ours.start),
        mirrored_end: Offset(ours.end()),
        source_start: Offset(theirs.start),
        source_epoch: Epoch(theirs.newest()),
        proof: Proof::Crcs,
    }
}

/// Everything here was brought by the mirror, and the source's leader epoch is not known.
fn all_of(ours: &Log) -> Logs {
    let nothing = Log { start: 0, batches: Vec::new() };
    Logs { source_epoch: Epoch::NONE, ..logs(ours, &nothing) }
}

proptest! {
    /// What is kept is the source's, batch for batch; what is cut begins with a batch that is not; and few
    /// questions are enough.
    #[test]
    fn the_last_batch_that_both_have_is_found(
        both in batches(), ours_more in batches(), theirs_more in batches(),
        (theirs_later, is_restored) in (0i32..3, any::<bool>()),
        (ours_start, theirs_start) in (0i64..60, 0i64..60),
        knows_epoch in any::<bool>(),
    ) {
        let ours = history(&both, &ours_more, 0, 0, ours_start);
        // After an election the leader has a new epoch; a source that was restored counts its epochs again.
        let later = if is_restored { 0 } else { 1 + theirs_later };
        let theirs = history(&both, &theirs_more, 1, later, theirs_start);
        let mut logs = logs(&ours, &theirs);
        if !knows_epoch {
            logs.source_epoch = Epoch::NONE;
        }
        let (found, asked) = search(&ours, &theirs, logs);
        let comparable = |batch: &&BatchHeader| batch.next_offset().0 > theirs.start;
        let end = found.map_or(0, |point| point.offset.0);
        for kept in ours.held().filter(|batch| batch.base_offset.0 < end).filter(comparable) {
            prop_assert!(theirs.has(kept), "{kept:?} is kept and not the source's");
        }
        if let Some(point) = found {
            let last = ours.below(point.offset).expect("a batch ends there");
            prop_assert_eq!((last.leader_epoch, last.next_offset()), (point.epoch, point.offset));
            if let Some(cut) = ours.held().find(|batch| batch.base_offset >= point.offset) {
                prop_assert!(!theirs.has(cut), "{cut:?} is cut and the source's");
            }
        } else if let Some(first) = ours.held().find(comparable) {
            let is_removed_below = first.base_offset.0 < theirs.start;
            prop_assert!(!theirs.has(first) || is_removed_below, "{first:?} is common");
        }
        prop_assert!(asked <= 80, "{asked} questions");
    }

    /// The same history is found to be the same up to its end.
    #[test]
    fn a_log_that_is_a_beginning_of_the_sources_parts_nowhere(
        both in batches(), more in batches(), (ours_start, theirs_start) in (0i64..40, 0i64..40),
    ) {
        let ours = history(&both, &[], 0, 0, ours_start);
        let theirs = history(&both, &more, 1, 1, theirs_start);
        prop_assume!(ours.held().next().is_some() && ours.end() <= theirs.end());
        let found = search(&ours, &theirs, logs(&ours, &theirs)).0;
        prop_assert_eq!(found.map(|point| point.offset.0), Some(ours.end()));
    }
}

/// Batches: offsets, and how much the leader epoch has risen before.
fn batches() -> impl Strategy<Value = Vec<(i32, i32)>> {
    let rise = prop_oneof![4 => Just(0), 1 => 1..4i32];
    prop::collection::vec((1..6i32, rise), 0..25)
}

/// A history: what both have, then what only this side has, whose epochs begin so much later. Batches of one side
/// have CRCs that the other's never have.
fn history(both: &[(i32, i32)], more: &[(i32, i32)], side: u32, later: i32, start: i64) -> Log {
    let (mut epoch, mut end, mut batches) = (0, 0, Vec::new());
    for (index, (offsets, rise)) in both.iter().chain(more).enumerate() {
        epoch += rise + if index == both.len() { later } else { 0 };
        let crc = if index < both.len() { index as u32 } else { 1000 + 2 * index as u32 + side };
        batches.push(header(end, *offsets, epoch, crc));
        end += i64::from(*offsets);
    }
    Log { start: start.min(end), batches }
}

/// A log of batches with so many offsets, this epoch and this CRC.
fn log(batches: &[(i32, i32, u32)]) -> Log {
    let mut end = 0;
    let batch = |(offsets, epoch, crc): &(i32, i32, u32)| {
        let batch = header(end, *offsets, *epoch, *crc);
        end += i64::from(*offsets);
        batch
    };
    Log { start: 0, batches: batches.iter().map(batch).collect() }
}

fn header(base: i64, offsets: i32, epoch: i32, crc: u32) -> BatchHeader {
    BatchHeader {
        base_offset: Offset(base),
        length: 100,
        leader_epoch: Epoch(epoch),
        magic: 2,
        crc,
        attributes: Attributes::default(),
        last_offset_delta: offsets - 1,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch(-1),
        base_sequence: Sequence(-1),
        record_count: offsets,
    }
}

fn point(epoch: i32, offset: i64) -> Option<CommonPoint> {
    Some(CommonPoint { epoch: Epoch(epoch), offset: Offset(offset) })
}
