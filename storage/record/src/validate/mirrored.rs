//! What a mirror may append: whole batches of format 2, undamaged, in order.
//!
//! Every byte of every mirrored topic comes through here, so nothing is copied and nothing is allocated for
//! a batch but its place in the result. Compressed records stay compressed: their leader checked them.
//!
//! Invariant of a scanner: the batches it returned have strictly increasing offsets that do not overlap.

use bytes::Bytes;

use crate::batch::{BatchError, Batches, ValidBatch, batches, whole_batch};
use crate::ids::Offset;

/// The batches of one partition in one response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrored {
    /// The whole ones.
    pub batches: Vec<ValidBatch>,
    /// Whether a batch cut short came after them.
    pub cut_short: bool,
}

/// Checks what a Fetch response holds for one partition: length, format, CRC and order of each batch. A last
/// batch cut short is how Fetch ends a response.
///
/// # Errors
/// The first fault, with the offset of its batch; nothing of the response is to be appended then.
/// `UnsupportedMagic` is for ever, the others may be damage on the way.
pub fn mirrored(records: Bytes) -> Result<Mirrored, BatchError> {
    let mut read = batches(records);
    let batches = MirroredScanner::new().collect(&mut read)?;
    Ok(Mirrored { batches, cut_short: !read.remaining().is_empty() })
}

/// Checks the same while the response is still arriving, so that a batch is looked at while it is in the
/// CPU's cache.
///
/// The driver reads into a `BytesMut`, asks [`MirroredScanner::whole_bytes`] how much of it is whole
/// batches, splits that off, freezes it and hands it to [`MirroredScanner::scan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirroredScanner {
    expected: Offset,
}

impl MirroredScanner {
    /// A scanner for one partition of one response.
    pub fn new() -> MirroredScanner {
        MirroredScanner::default()
    }

    /// How many of `received` bytes are whole batches. Looks at the lengths only.
    ///
    /// # Errors
    /// `BadLength`, `UnsupportedMagic` or `UnknownMagic`, so that nobody waits for the rest of a batch that
    /// cannot be.
    pub fn whole_bytes(received: &[u8]) -> Result<usize, BatchError> {
        let mut end = 0;
        while let Some(size) = whole_batch(&received[end..])? {
            end += size;
        }
        Ok(end)
    }

    /// The whole batches in `received` from `from` on, and where they end; what follows must be given again
    /// together with the rest of its batch.
    ///
    /// # Errors
    /// The first fault, as [`mirrored`] has it.
    pub fn scan(&mut self, received: &Bytes, from: usize) -> Result<(Vec<ValidBatch>, usize), BatchError> {
        let mut read = batches(received.slice(from.min(received.len())..));
        let batches = self.collect(&mut read)?;
        Ok((batches, received.len() - read.remaining().len()))
    }

    fn collect(&mut self, read: &mut Batches) -> Result<Vec<ValidBatch>, BatchError> {
        let mut batches = Vec::new();
        for batch in read {
            let batch = batch?;
            let header = batch.header();
            if header.base_offset < self.expected {
                return Err(BatchError::OutOfOrder { offset: header.base_offset, expected: self.expected });
            }
            self.expected = header.next_offset();
            batches.push(batch);
        }
        Ok(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Compression, Record};
    use bytes::BytesMut;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_normal_and_a_last_batch_may_be_cut_short() {
        let received = [&batch(5, 2)[..], &batch(7, 1), &batch(100, 3), &batch(103, 1)[..70]].concat();
        let read = mirrored(received.into()).unwrap();
        assert_eq!(bases(&read.batches), [5, 7, 100]);
        assert!(read.cut_short);
    }

    #[test]
    fn nothing_is_no_batches_and_nothing_cut_short() {
        assert_eq!(mirrored(Bytes::new()), Ok(Mirrored::default()));
    }

    #[test]
    fn a_batch_that_overlaps_the_one_before_is_out_of_order() {
        let received = [batch(5, 2), batch(6, 1)].concat();
        let refused = mirrored(received.into());
        assert_eq!(refused, Err(BatchError::OutOfOrder { offset: Offset(6), expected: Offset(7) }));
    }

    #[test]
    fn damage_names_the_batch() {
        let mut received = [batch(5, 2), batch(7, 1)].concat();
        *received.last_mut().unwrap() ^= 1;
        let refused = mirrored(received.into());
        assert!(matches!(refused, Err(BatchError::BadChecksum { offset: Offset(7), .. })), "{refused:?}");
    }

    #[test]
    fn an_old_message_format_is_refused_before_its_end_has_arrived() {
        let mut received = batch(9, 1)[..20].to_vec();
        received[16] = 1;
        let old = BatchError::UnsupportedMagic { offset: Offset(9), magic: 1 };
        assert_eq!(MirroredScanner::whole_bytes(&received), Err(old.clone()));
        assert_eq!(mirrored(received.into()), Err(old));
    }

    #[test]
    fn order_is_checked_across_the_parts_of_a_response() {
        let mut scanner = MirroredScanner::new();
        assert_eq!(scanner.scan(&batch(5, 2), 0).map(|(batches, _)| bases(&batches)), Ok(vec![5]));
        let refused = scanner.scan(&batch(6, 1), 0);
        assert_eq!(refused, Err(BatchError::OutOfOrder { offset: Offset(6), expected: Offset(7) }));
    }

    proptest! {
        /// However the response is cut into parts, the same batches come out, and none is copied.
        #[test]
        fn the_parts_of_a_response_are_the_response(
            counts in prop::collection::vec(1usize..5, 1..10),
            cut in any::<prop::sample::Index>(),
            step in 1usize..300,
        ) {
            let mut response = Vec::new();
            let mut offset = 0;
            for count in counts {
                response.extend_from_slice(&batch(offset, count));
                offset += count as i64;
            }
            response.truncate(cut.index(response.len() + 1));
            let whole = mirrored(Bytes::from(response.clone())).unwrap();

            let mut scanner = MirroredScanner::new();
            let mut received = BytesMut::with_capacity(response.len());
            let mut scanned = Vec::new();
            for part in response.chunks(step) {
                received.extend_from_slice(part);
                let end = MirroredScanner::whole_bytes(&received).unwrap();
                let ready = received.split_to(end).freeze();
                let (batches, consumed) = scanner.scan(&ready, 0).unwrap();
                prop_assert_eq!(consumed, ready.len());
                scanned.extend(batches);
            }
            prop_assert_eq!(scanned, whole.batches);
            prop_assert_eq!(!received.is_empty(), whole.cut_short);
        }

        #[test]
        fn any_bytes_are_scanned_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), from in 0usize..400) {
            let bytes = Bytes::from(bytes);
            if let Ok((_, end)) = MirroredScanner::new().scan(&bytes, from) {
                prop_assert!(end <= bytes.len());
            }
            let _ = MirroredScanner::whole_bytes(&bytes).map(|end| assert!(end <= bytes.len()));
        }
    }

    fn batch(base_offset: i64, records: usize) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(base_offset), Compression::None);
        for _ in 0..records {
            builder.add(&Record { value: Some(b"value"), ..Record::default() });
        }
        builder.build()
    }

    fn bases(batches: &[ValidBatch]) -> Vec<i64> {
        batches.iter().map(|batch| batch.header().base_offset.0).collect()
    }
}
