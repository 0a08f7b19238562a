//! What is taken out of one partition's part of a response: whole, undamaged batches in order.
//!
//! Invariants:
//! * the batches begin with the one that holds the offset asked for, or a later one;
//! * `next` is the offset after the last of them, or what was asked for where there is none.

use bytes::Bytes;
use tarn_record::validate::mirrored;
use tarn_record::{BatchError, BatchHeader, Epoch, Offset, ValidBatch, batches};

use crate::gaps::Gap;

/// The part of a response that may be appended.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The batches.
    pub batches: Vec<ValidBatch>,
    /// What to fetch next.
    pub next: Offset,
    /// The leader epoch of the last batch, `Epoch::NONE` where there is none.
    pub last_epoch: Epoch,
    /// Offsets that are missing before and between them: compaction leaves such, nothing else should.
    pub gaps: Vec<Gap>,
    /// What is wrong with what follows.
    pub fault: Option<Fault>,
}

/// What is wrong with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is damaged, perhaps only on the way.
    Damaged(String),
    /// It has a format from before magic 2.
    UnsupportedFormat(String),
    /// It is larger than the mirror takes.
    TooLarge(String),
}

/// Checks what came for a partition of which `asked` was asked for, of batches of at most `batch_max_bytes`.
pub fn take(records: Bytes, asked: Offset, batch_max_bytes: usize) -> Taken {
    let (mut found, mut fault) = match mirrored(records.clone()) {
        Ok(checked) => (checked.batches, None),
        Err(error) => (whole_before_fault(records.clone()), Some(fault(&error))),
    };
    if let Some((place, bytes)) = first_too_large(&records, &found, batch_max_bytes) {
        found.truncate(place);
        let next = found.last().map_or(asked, |last| last.header().next_offset());
        fault = Some(Fault::TooLarge(format!(
            "the batch at offset {next} has {bytes} bytes, {batch_max_bytes} are allowed \
             (tarn.mirror.batch.max.bytes)"
        )));
    }
    if found.first().is_some_and(|first| first.header().next_offset() <= asked) {
        found.retain(|batch| batch.header().next_offset() > asked);
    }
    let (next, last_epoch) = match found.last() {
        Some(last) => (last.header().next_offset(), last.header().leader_epoch),
        None => (asked, Epoch::NONE),
    };
    let gaps = gaps(&found, asked);
    Taken { batches: found, next, last_epoch, gaps, fault }
}

fn gaps(batches: &[ValidBatch], asked: Offset) -> Vec<Gap> {
    let mut expected = asked;
    let gap = |batch: &ValidBatch| {
        let header = batch.header();
        let first = std::mem::replace(&mut expected, header.next_offset());
        (header.base_offset > first).then_some(Gap { first, next: header.base_offset })
    };
    batches.iter().filter_map(gap).collect()
}

/// The place and size of the first batch that is too large; a last one that was cut short says its size too.
fn first_too_large(records: &Bytes, found: &[ValidBatch], bytes_max: usize) -> Option<(usize, usize)> {
    let whole = found.iter().map(|batch| batch.bytes().len());
    let end: usize = whole.clone().sum();
    let cut_short = records.get(end..).and_then(|rest| BatchHeader::parse(rest).ok());
    let sizes = whole.chain(cut_short.map(|header| header.size()));
    sizes.enumerate().find(|(_, bytes)| *bytes > bytes_max)
}

/// The batches before the first fault, found again one by one: damage is rare.
fn whole_before_fault(records: Bytes) -> Vec<ValidBatch> {
    let mut expected = Offset(0);
    batches(records)
        .map_while(Result::ok)
        .take_while(|batch| {
            let in_order = batch.header().base_offset >= expected;
            expected = batch.header().next_offset();
            in_order
        })
        .collect()
}

fn fault(error: &BatchError) -> Fault {
    match error {
        BatchError::UnsupportedMagic { .. } => Fault::UnsupportedFormat(error.to_string()),
        _ => Fault::Damaged(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{BatchBuilder, Compression, Record};

    #[test]
    fn what_comes_before_a_damaged_batch_is_taken() {
        let mut received = [batch(5, 2), batch(7, 1), batch(8, 1)].concat();
        let at = batch(5, 2).len() + batch(7, 1).len() - 1;
        received[at] ^= 1;
        let taken = take(received.into(), Offset(5), MAX);
        assert_eq!((bases(&taken), taken.next), (vec![5], Offset(7)));
        assert!(matches!(taken.fault, Some(Fault::Damaged(_))), "{:?}", taken.fault);
    }

    #[test]
    fn what_overlaps_the_batch_before_it_is_not_taken() {
        let taken = take([batch(5, 3), batch(6, 1)].concat().into(), Offset(5), MAX);
        assert_eq!((bases(&taken), taken.next), (vec![5], Offset(8)));
        assert!(matches!(taken.fault, Some(Fault::Damaged(_))), "{:?}", taken.fault);
    }

    #[test]
    fn the_batch_that_holds_the_offset_asked_for_is_taken_whole_and_earlier_ones_are_not() {
        let taken = take([batch(0, 2), batch(2, 3), batch(9, 1)].concat().into(), Offset(3), MAX);
        assert_eq!((bases(&taken), taken.next, taken.last_epoch), (vec![2, 9], Offset(10), Epoch(6)));
        assert_eq!(taken.fault, None);
    }

    #[test]
    fn nothing_whole_leaves_the_position_where_it_is() {
        let cut = batch(3, 4).slice(..70);
        let taken = take(cut, Offset(3), MAX);
        assert_eq!((taken.batches.len(), taken.next, taken.fault), (0, Offset(3), None));
    }

    #[test]
    fn a_batch_that_is_too_large_is_told_whole_or_cut_short_and_what_comes_before_it_is_taken() {
        let (small, large) = (batch(5, 1), batch(6, 40));
        let received = Bytes::from([&small[..], &large, &batch(46, 1)].concat());
        for received in [received.clone(), received.slice(..small.len() + 61)] {
            let taken = take(received, Offset(5), large.len() - 1);
            assert_eq!((bases(&taken), taken.next), (vec![5], Offset(6)));
            assert!(matches!(&taken.fault, Some(Fault::TooLarge(why)) if why.contains("offset 6")));
        }
        assert_eq!(take(received, Offset(5), large.len()).fault, None);
    }

    #[test]
    fn offsets_that_are_missing_are_told_before_and_between_batches() {
        let gaps = |records: &[Bytes], asked| {
            let taken = take(records.concat().into(), Offset(asked), MAX);
            taken.gaps.iter().map(|gap| (gap.first.0, gap.next.0)).collect::<Vec<_>>()
        };
        assert_eq!(gaps(&[batch(5, 2), batch(7, 1)], 5), []);
        assert_eq!(gaps(&[batch(5, 2), batch(9, 1), batch(20, 1)], 3), [(3, 5), (7, 9), (10, 20)]);
        assert_eq!(gaps(&[batch(5, 3)], 6), [], "it was asked for from within");
        assert_eq!(gaps(&[], 6), []);
    }

    #[test]
    fn an_old_format_is_no_damage() {
        let mut received = batch(9, 1).to_vec();
        received[16] = 1;
        let taken = take(received.into(), Offset(9), MAX);
        assert!(matches!(taken.fault, Some(Fault::UnsupportedFormat(_))), "{:?}", taken.fault);
    }

    const MAX: usize = 1 << 20;

    fn batch(base_offset: i64, records: usize) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(base_offset), Compression::None).leader_epoch(Epoch(6));
        for _ in 0..records {
            builder.add(&Record { value: Some(b"value"), ..Record::default() });
        }
        builder.build()
    }

    fn bases(taken: &Taken) -> Vec<i64> {
        taken.batches.iter().map(|batch| batch.header().base_offset.0).collect()
    }
}
