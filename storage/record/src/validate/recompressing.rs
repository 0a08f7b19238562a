//! A batch on its way into the codec that its topic asks for (`compression.type`).
//!
//! The records are copied as they stand, so that offsets, timestamps, keys and headers cannot change; of the
//! header, only codec, length and CRC do.

use crate::batch::{BatchHeader, HEADER_BYTES, RecordView, ValidBatch};
use crate::codec::{Compression, Encoder};

/// Bytes that are compressed at once: some milliseconds with the slowest codec.
const PIECE_BYTES: usize = 32 * 1024;

/// How much longer it takes to compress a byte than to look at one.
const COST: usize = 8;

/// The codec of stored batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recompression {
    /// Which one.
    pub compression: Compression,
    /// Its level; `None` for its default.
    pub level: Option<i32>,
}

/// A batch that is being compressed anew.
#[derive(Debug)]
pub(super) struct Recompressor {
    compression: Compression,
    encoder: Encoder,
    /// The record that was taken last, of which `at` bytes are compressed.
    record: Vec<u8>,
    at: usize,
}

impl Recompressor {
    /// What has to be done to a batch of this header; nothing where it has the codec already. A batch that is not
    /// compressed is as long as it will be, of another it is not known.
    pub(super) fn of(header: &BatchHeader, to: Option<Recompression>) -> Option<Recompressor> {
        let Recompression { compression, level } = to?;
        let is_plain = header.compression() == Ok(Compression::None);
        let expected_bytes = if is_plain { header.size() } else { usize::MAX };
        (header.compression() != Ok(compression)).then(|| Recompressor {
            compression,
            encoder: Encoder::new(compression, level, expected_bytes),
            record: Vec::new(),
            at: 0,
        })
    }

    /// Takes the next record; the one before must be done.
    pub(super) fn take(&mut self, record: &RecordView<'_>) {
        debug_assert!(!self.is_behind());
        self.record.clear();
        self.record.extend_from_slice(record.encoded);
        self.at = 0;
    }

    /// True while a part of the last record is not compressed.
    pub(super) fn is_behind(&self) -> bool {
        self.at < self.record.len()
    }

    /// Compresses a piece of the last record, and says what that cost: as much as to look at so many bytes.
    pub(super) fn step(&mut self) -> usize {
        let end = self.record.len().min(self.at + PIECE_BYTES);
        let piece = &self.record[self.at..end];
        self.encoder.write(piece);
        self.at = end;
        piece.len() * COST
    }

    /// How long the batch has become so far, at least.
    pub(super) fn size(&self) -> usize {
        HEADER_BYTES + self.encoder.written()
    }

    /// The batch in its new codec.
    pub(super) fn finish(self, header: &BatchHeader) -> ValidBatch {
        let attributes = header.attributes.with_compression(self.compression);
        ValidBatch::sealed(BatchHeader { attributes, ..*header }, &self.encoder.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::TimestampType;
    use crate::validate::{
        ClientBatchValidator, InvalidBatch, ProduceRules, Progress, RecordError, client_batch,
    };
    use crate::{BatchBuilder, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

    const NOW: Timestamp = Timestamp(1_700_000_000_000);
    const RULES: ProduceRules = ProduceRules {
        max_batch_bytes: 1_048_588,
        segment_bytes: 1 << 30,
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        zstd_allowed: true,
        decompressed_limit: 10_000_000,
        record_max: usize::MAX,
        recompress: None,
    };

    #[test]
    fn every_codec_becomes_every_other_and_nothing_else_changes() {
        for from in Compression::ALL {
            for compression in Compression::ALL {
                let batch = batch(from, &[b"one", &[7; 100_000], b"three"]);
                let taken = client_batch(batch.bytes().clone(), &to(compression), NOW).unwrap();
                assert_eq!(taken.max_timestamp, NOW.0 + 2);
                let (new, old) = (*taken.batch.header(), *batch.header());
                let attributes = old.attributes.with_compression(compression);
                let expected = BatchHeader { attributes, length: new.length, crc: new.crc, ..old };
                assert_eq!(new, expected, "{from} to {compression}");
                assert_eq!(ValidBatch::parse(taken.batch.bytes().clone()).as_ref(), Ok(&taken.batch));
                assert_eq!(taken.batch.decompressed(1 << 20), batch.decompressed(1 << 20));
            }
        }
    }

    #[test]
    fn a_batch_that_has_the_codec_stays_the_same_bytes() {
        for compression in Compression::ALL {
            let batch = batch(compression, &[&[7; 1000]]);
            let taken = client_batch(batch.bytes().clone(), &to(compression), NOW).unwrap();
            assert_eq!(taken.batch.bytes().as_ptr(), batch.bytes().as_ptr());
        }
    }

    #[test]
    fn what_becomes_too_large_is_refused() {
        let packed = batch(Compression::Gzip, &[&[7; 5000]]);
        let refused = |rules: ProduceRules| {
            let refused: InvalidBatch = client_batch(packed.bytes().clone(), &rules, NOW).unwrap_err();
            refused.error
        };
        let small = ProduceRules { max_batch_bytes: 1000, ..to(Compression::None) };
        assert_eq!(refused(small), RecordError::MessageTooLarge);
        let segment = ProduceRules { segment_bytes: 1000, ..to(Compression::None) };
        assert_eq!(refused(segment), RecordError::RecordListTooLarge);
    }

    #[test]
    fn what_becomes_too_large_is_refused_before_it_is() {
        // 64 MB in a batch of some KB.
        let records: Vec<Vec<u8>> = (0..64).map(|_| vec![7; 1_000_000]).collect();
        let bomb = batch(Compression::Zstd, &records.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let rules = ProduceRules { decompressed_limit: 100_000_000, ..to(Compression::None) };
        let mut validator = ClientBatchValidator::new(bomb.bytes().clone(), &rules, NOW);
        let mut looked_at = 0;
        let refused = loop {
            match validator.step(100_000) {
                Progress::More => looked_at += 100_000,
                Progress::NeedsRoom => panic!("its records are not large"),
                Progress::Done(done) => break done.unwrap_err(),
            }
        };
        assert_eq!(refused.error, RecordError::MessageTooLarge);
        // To write a byte counts for several.
        assert!(looked_at < 4 * (1 + COST) * rules.max_batch_bytes, "{looked_at}");
    }

    #[test]
    fn a_long_record_is_compressed_in_steps() {
        let large = vec![7; 1_000_000];
        let plain = batch(Compression::None, &[&large]);
        let mut validator = ClientBatchValidator::new(plain.bytes().clone(), &to(Compression::Gzip), NOW);
        let mut steps = 1;
        while validator.step(1_000_000) == Progress::More {
            steps += 1;
        }
        assert!((8..=14).contains(&steps), "{steps}");
    }

    #[test]
    fn the_level_counts() {
        let mixed: Vec<u8> = (0..200_000u32).flat_map(|n| (n.wrapping_mul(n) / 7).to_le_bytes()).collect();
        let plain = batch(Compression::None, &[&mixed]);
        for (compression, low, high) in [(Compression::Gzip, 1, 9), (Compression::Zstd, 1, 19)] {
            let size = |level| {
                let recompress = Some(Recompression { compression, level: Some(level) });
                let rules = ProduceRules { recompress, ..RULES };
                client_batch(plain.bytes().clone(), &rules, NOW).unwrap().batch.bytes().len()
            };
            assert!(size(high) < size(low), "{compression}");
        }
    }

    fn to(compression: Compression) -> ProduceRules {
        ProduceRules { recompress: Some(Recompression { compression, level: None }), ..RULES }
    }

    fn batch(compression: Compression, values: &[&[u8]]) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(0), compression)
            .producer(ProducerId(5), ProducerEpoch(2), Sequence(30))
            .transactional();
        for (number, value) in values.iter().enumerate() {
            let timestamp = Timestamp(NOW.0 + number as i64);
            builder.add(&Record { key: Some(b"k"), value: Some(value), headers: &[(b"h", None)], timestamp });
        }
        ValidBatch::parse(builder.build()).unwrap()
    }
}
