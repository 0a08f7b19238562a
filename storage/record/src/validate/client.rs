//! What a client may append to a partition, and which error says what is wrong.
//!
//! The checks and their order are Kafka's (LogValidator and what runs before it), so that a client sees the
//! same error from both. They need CPU in proportion to the decompressed records; [`ClientBatchValidator`]
//! does them in steps so that a core can serve others in between.
//!
//! Stricter than Kafka: offsets inside the batch must be 0, 1, 2, … and each record as long as it says, whatever the
//! codec, and nothing may follow the batch, where Kafka takes the batch and drops what is cut short behind it.
//! What Kafka answers with UNKNOWN_SERVER_ERROR, because nobody expects it there, has a code of its own here;
//! none that a producer would try again.

use bytes::Bytes;

use super::recompressing::{Recompression, Recompressor};
use super::refusal::{InvalidBatch, RecordError};
use super::verdict::Verdict;
use crate::batch::{
    AT_CRC_COVERS, BatchError, BatchHeader, ReadError, RecordReader, TimestampType, ValidBatch,
    announced_size,
};
use crate::codec::{CodecError, Compression, kafka_reads_lz4};
use crate::ids::{Offset, Timestamp};

/// What the topic and the request demand of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceRules {
    /// `max.message.bytes`.
    pub max_batch_bytes: usize,
    /// `segment.bytes`: a batch has to fit into a segment.
    pub segment_bytes: usize,
    /// Whether `cleanup.policy` has `compact`: every record needs a key.
    pub compacted: bool,
    /// `message.timestamp.type`; the producer's timestamps matter only for CreateTime.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
    /// Whether the request is new enough for zstd: Produce 7 or later (KIP-110).
    pub zstd_allowed: bool,
    /// The most bytes the records may decompress to.
    pub decompressed_limit: usize,
    /// `max.decompressed.message.bytes`: the most that one compressed record may be.
    pub record_max: usize,
    /// The codec of stored batches; `None` for that of the producer.
    pub recompress: Option<Recompression>,
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientBatch {
    /// The batch as it came, but in the topic's codec: base offset 0.
    pub batch: ValidBatch,
    /// The largest timestamp of its records, in ms; -1 where none has one. The header's may differ.
    pub max_timestamp: i64,
    /// The offset delta of the first record with that timestamp.
    pub offset_of_max_timestamp: i32,
}

/// Checks that `records` is exactly one batch that a client may append at the time `now`.
///
/// # Errors
/// What is wrong, as the client is told.
pub fn client_batch(
    records: Bytes,
    rules: &ProduceRules,
    now: Timestamp,
) -> Result<ClientBatch, InvalidBatch> {
    let mut validator = ClientBatchValidator::new(records, rules, now);
    loop {
        if let Progress::Done(result) = validator.step(usize::MAX) {
            return result;
        }
    }
}

/// The same in steps: call `step` until it is done, letting other work run in between.
#[derive(Debug)]
pub struct ClientBatchValidator {
    rules: ProduceRules,
    now: Timestamp,
    phase: Phase,
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to check.
    More,
    /// The verdict. Returned once.
    Done(Result<ClientBatch, InvalidBatch>),
}

#[derive(Debug)]
enum Phase {
    Header {
        records: Bytes,
    },
    Checksum {
        batch: Bytes,
        header: BatchHeader,
        crc: u32,
        at: usize,
    },
    Records {
        batch: ValidBatch,
        reader: Box<RecordReader>,
        verdict: Verdict,
        anew: Option<Box<Recompressor>>,
    },
    Done,
}

impl ClientBatchValidator {
    /// Begins; nothing is checked yet.
    pub fn new(records: Bytes, rules: &ProduceRules, now: Timestamp) -> ClientBatchValidator {
        ClientBatchValidator { rules: *rules, now, phase: Phase::Header { records } }
    }

    /// Goes on until about `budget` bytes were looked at. A step may take longer by one slice of 32 KiB, one
    /// record, or the whole batch where it is a single raw snappy block.
    ///
    /// # Panics
    /// Where it is called again after `Done`: there is no second verdict.
    pub fn step(&mut self, budget: usize) -> Progress {
        let mut left = budget.max(1);
        while left > 0 {
            match self.advance(&mut left) {
                Ok(None) => {}
                Ok(Some(batch)) => return Progress::Done(Ok(batch)),
                Err(refusal) => return Progress::Done(Err(refusal)),
            }
        }
        Progress::More
    }

    /// Spends what is `left` on the current phase, and enters the next where this one ends before.
    fn advance(&mut self, left: &mut usize) -> Result<Option<ClientBatch>, InvalidBatch> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Header { records } => {
                let header = check_shape(&records, &self.rules)?;
                self.phase = Phase::Checksum { batch: records, header, crc: 0, at: AT_CRC_COVERS };
            }
            Phase::Checksum { batch, header, crc, at } => {
                let end = at.saturating_add(*left).min(batch.len());
                *left -= end - at;
                let crc = crc32c::crc32c_append(crc, &batch[at..end]);
                self.phase = match end == batch.len() {
                    true => self.begin_records(batch, header, crc)?,
                    false => Phase::Checksum { batch, header, crc, at: end },
                };
            }
            Phase::Records { batch, mut reader, mut verdict, mut anew } => {
                let mut spent = 0;
                while spent < *left {
                    if let Some(anew) = anew.as_mut().filter(|anew| anew.is_behind()) {
                        spent += anew.step();
                        continue;
                    }
                    let Some(record) = reader.next() else {
                        let taken = verdict.pronounce(batch)?;
                        return in_topics_codec(taken, anew, &self.rules).map(Some);
                    };
                    let record = record.map_err(|error| unreadable(&error))?;
                    verdict.check(&record, batch.header(), &self.rules, self.now)?;
                    if let Some(anew) = &mut anew {
                        anew.take(&record);
                    }
                    spent += record.encoded.len();
                }
                *left = 0;
                self.phase = Phase::Records { batch, reader, verdict, anew };
            }
            Phase::Done => panic!("a batch is judged once"),
        }
        Ok(None)
    }

    fn begin_records(&self, batch: Bytes, header: BatchHeader, crc: u32) -> Result<Phase, InvalidBatch> {
        if crc != header.crc {
            let error =
                BatchError::BadChecksum { offset: header.base_offset, stored: header.crc, computed: crc };
            return Err(InvalidBatch::new(RecordError::CorruptMessage, error.to_string()));
        }
        check_header(&header)?;
        let batch = ValidBatch::checked_elsewhere(batch, header);
        let reader = batch.reader(self.rules.decompressed_limit).map_err(|error| undecodable(&error))?;
        let reader = reader.with_record_max(self.rules.record_max);
        if header.compression() == Ok(Compression::Lz4) && !kafka_reads_lz4(&batch.section()) {
            let message = "the lz4 data is not a frame of independent blocks, which consumers need";
            return Err(InvalidBatch::new(RecordError::InvalidRecord, message));
        }
        let anew = Recompressor::of(&header, self.rules.recompress).map(Box::new);
        Ok(Phase::Records { batch, reader: Box::new(reader), verdict: Verdict::default(), anew })
    }
}

/// The end of a good batch: it is in the topic's codec and may have become too large by it.
fn in_topics_codec(
    taken: ClientBatch,
    anew: Option<Box<Recompressor>>,
    rules: &ProduceRules,
) -> Result<ClientBatch, InvalidBatch> {
    let batch = match anew {
        Some(anew) => anew.finish(taken.batch.header()),
        None => taken.batch,
    };
    let size = batch.bytes().len();
    check_size(size, rules)?;
    if size > rules.segment_bytes {
        let message = format!("the batch has {size} bytes; segment.bytes is {}", rules.segment_bytes);
        return Err(InvalidBatch::new(RecordError::RecordListTooLarge, message));
    }
    Ok(ClientBatch { batch, ..taken })
}

fn check_size(size: usize, rules: &ProduceRules) -> Result<(), InvalidBatch> {
    if size <= rules.max_batch_bytes {
        return Ok(());
    }
    let message = format!("the batch has {size} bytes; max.message.bytes allows {}", rules.max_batch_bytes);
    Err(InvalidBatch::new(RecordError::MessageTooLarge, message))
}

/// Everything that comes before the CRC: one batch, of format 2, not too large, from a client.
fn check_shape(records: &Bytes, rules: &ProduceRules) -> Result<BatchHeader, InvalidBatch> {
    let size = match announced_size(records) {
        Ok(Some(size)) if size <= records.len() => size,
        Ok(_) => return Err(InvalidBatch::new(RecordError::InvalidRecord, "there is no whole record batch")),
        Err(error @ BatchError::UnsupportedMagic { .. }) => {
            return Err(InvalidBatch::new(RecordError::InvalidRecord, error.to_string()));
        }
        Err(error) => return Err(InvalidBatch::new(RecordError::CorruptMessage, error.to_string())),
    };
    if size < records.len() {
        return Err(after_batch(&records[size..]));
    }
    let header = BatchHeader::parse(records)
        .map_err(|error| InvalidBatch::new(RecordError::CorruptMessage, error.to_string()))?;
    match header.compression() {
        Err(error) => return Err(undecodable(&error)),
        Ok(Compression::Zstd) if !rules.zstd_allowed => {
            let message = "zstd needs version 7 or later of the Produce request";
            return Err(InvalidBatch::new(RecordError::UnsupportedCompression, message));
        }
        Ok(_) => {}
    }
    if header.base_offset != Offset(0) {
        let message = format!("the base offset of a new batch must be 0, but it is {}", header.base_offset);
        return Err(InvalidBatch::new(RecordError::InvalidRecord, message));
    }
    check_size(size, rules)?;
    Ok(header)
}

fn after_batch(rest: &[u8]) -> InvalidBatch {
    match announced_size(rest) {
        Err(error) => InvalidBatch::new(RecordError::CorruptMessage, error.to_string()),
        Ok(None) => {
            let message = format!("{} bytes follow the record batch", rest.len());
            InvalidBatch::new(RecordError::InvalidRecord, message)
        }
        Ok(Some(_)) => {
            let message = "there is more than one record batch for the partition";
            InvalidBatch::new(RecordError::InvalidRecord, message)
        }
    }
}

/// What the header says, once its CRC shows that it is what the client wrote.
fn check_header(header: &BatchHeader) -> Result<(), InvalidBatch> {
    let BatchHeader { last_offset_delta, record_count, producer_id, base_sequence, .. } = *header;
    let invalid = |message: String| Err(InvalidBatch::new(RecordError::InvalidRecord, message));
    if last_offset_delta < 0 {
        return invalid(format!("the batch has the last offset delta {last_offset_delta}"));
    }
    if record_count <= 0 {
        return invalid(format!("the batch announces {record_count} records"));
    }
    if last_offset_delta != record_count - 1 {
        return invalid(format!(
            "the batch announces {record_count} records, but its last offset delta is {last_offset_delta}"
        ));
    }
    if header.is_control() {
        return invalid("clients may not write control records".to_owned());
    }
    if header.has_producer_id() && base_sequence.0 < 0 {
        return invalid(format!("producer {producer_id} sent a batch with the sequence {base_sequence}"));
    }
    Ok(())
}

fn unreadable(error: &ReadError) -> InvalidBatch {
    match error {
        ReadError::Codec(error) => undecodable(error),
        ReadError::Malformed { .. } => InvalidBatch::new(RecordError::InvalidRecord, error.to_string()),
    }
}

fn undecodable(error: &CodecError) -> InvalidBatch {
    let code = match error {
        // The CRC fits, so that to send it again would not help: CORRUPT_MESSAGE would make producers do so.
        CodecError::Corrupt { .. } => RecordError::InvalidRecord,
        CodecError::LimitExceeded { .. } => RecordError::MessageTooLarge,
        CodecError::UnknownId(_) | CodecError::UnknownName(_) => RecordError::UnsupportedCompression,
    };
    InvalidBatch::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Attributes;
    use crate::ids::{ProducerEpoch, ProducerId, Sequence};
    use crate::{BatchBuilder, Record, compress, seal};
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);
    const RULES: ProduceRules = ProduceRules {
        max_batch_bytes: 1_048_588,
        segment_bytes: 1 << 30,
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        zstd_allowed: true,
        decompressed_limit: 10_000_000,
        record_max: usize::MAX,
        recompress: None,
    };

    #[test]
    fn a_good_batch_passes_with_its_true_maximal_timestamp_whatever_the_codec() {
        for codec in Compression::ALL {
            let mut builder = BatchBuilder::new(Offset(0), codec);
            for ms in [5, 9, 9, 2] {
                builder.add(&record(b"k", NOW.0 + ms));
            }
            let bytes = change(builder.build(), |header| header.max_timestamp = 1);
            let passed = client_batch(bytes.clone(), &RULES, NOW).unwrap();
            assert_eq!(passed.batch.bytes(), &bytes, "{codec}: the bytes are not touched");
            assert_eq!((passed.max_timestamp, passed.offset_of_max_timestamp), (NOW.0 + 9, 1), "{codec}");
        }
    }

    #[test]
    fn a_timestamp_of_none_is_never_out_of_range() {
        let rules = ProduceRules { before_max_ms: 0, after_max_ms: 0, ..RULES };
        let passed = client_batch(batch(&[record(b"k", -1)]), &rules, NOW).unwrap();
        assert_eq!((passed.max_timestamp, passed.offset_of_max_timestamp), (-1, 0));
    }

    #[test]
    fn one_whole_batch_of_format_2_is_required() {
        let good = good();
        let refused = |bytes: Vec<u8>| refusal(bytes.into(), &RULES).error;
        assert_eq!(refused(vec![]), RecordError::InvalidRecord, "no batch");
        assert_eq!(refused(good[..good.len() - 1].to_vec()), RecordError::InvalidRecord, "cut short");
        assert_eq!(refused([&good[..], &good].concat()), RecordError::InvalidRecord, "two");
        assert_eq!(refused([&good[..], &[0; 3]].concat()), RecordError::InvalidRecord, "trailing bytes");
        let with = |at: usize, byte: u8| {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(refused(with(16, 1)), RecordError::InvalidRecord, "format 1");
        assert_eq!(refused(with(16, 9)), RecordError::CorruptMessage, "no format at all");
        assert_eq!(refused(with(11, 20)), RecordError::CorruptMessage, "smaller than its header");
        assert_eq!(refused(with(good.len() - 1, 9)), RecordError::CorruptMessage, "CRC");
    }

    #[test]
    fn what_a_header_may_not_say() {
        type Change = fn(&mut BatchHeader);
        let cases: [(Change, RecordError); 8] = [
            (|header| header.base_offset = Offset(1), RecordError::InvalidRecord),
            (|header| header.last_offset_delta = 1, RecordError::InvalidRecord),
            (|header| header.last_offset_delta = -1, RecordError::InvalidRecord),
            (|header| header.record_count = 0, RecordError::InvalidRecord),
            (|header| header.record_count = i32::MIN, RecordError::InvalidRecord),
            (|header| header.attributes = header.attributes.control(), RecordError::InvalidRecord),
            (|header| header.producer_id = ProducerId(5), RecordError::InvalidRecord),
            (|header| header.attributes = Attributes(5), RecordError::UnsupportedCompression),
        ];
        for (index, (edit, expected)) in cases.into_iter().enumerate() {
            assert_eq!(refusal(change(good(), edit), &RULES).error, expected, "case {index}");
        }
    }

    #[test]
    fn an_idempotent_producer_passes() {
        let bytes = change(good(), |header| {
            header.producer_id = ProducerId(5);
            header.producer_epoch = ProducerEpoch(0);
            header.base_sequence = Sequence(0);
            header.attributes = header.attributes.transactional();
        });
        assert!(client_batch(bytes, &RULES, NOW).is_ok());
    }

    #[test]
    fn zstd_needs_a_request_that_knows_it() {
        let mut builder = BatchBuilder::new(Offset(0), Compression::Zstd);
        builder.add(&record(b"k", NOW.0));
        let old = ProduceRules { zstd_allowed: false, ..RULES };
        assert_eq!(refusal(builder.build(), &old).error, RecordError::UnsupportedCompression);
        assert!(client_batch(good(), &old, NOW).is_ok());
    }

    #[test]
    fn the_size_limit_is_that_of_the_whole_batch_and_comes_before_the_crc() {
        let mut bytes = good().to_vec();
        let size = bytes.len();
        *bytes.last_mut().unwrap() ^= 1;
        let limit = |max_batch_bytes| ProduceRules { max_batch_bytes, ..RULES };
        assert_eq!(refusal(bytes.clone().into(), &limit(size - 1)).error, RecordError::MessageTooLarge);
        assert_eq!(refusal(bytes.into(), &limit(size)).error, RecordError::CorruptMessage);
    }

    #[test]
    fn a_compacted_topic_needs_keys_and_every_record_without_is_named() {
        let rules = ProduceRules { compacted: true, ..RULES };
        let keyless = Record { key: None, ..record(b"", NOW.0) };
        let refused = refusal(batch(&[record(b"k", NOW.0), keyless, keyless, record(b"", NOW.0)]), &rules);
        assert_eq!(refused.error, RecordError::InvalidRecord);
        let named: Vec<i32> = refused.record_errors.iter().map(|(index, _)| *index).collect();
        assert_eq!(named, [1, 2], "an empty key is a key");
        assert!(refused.message.contains("2 records were refused"), "{}", refused.message);
    }

    #[test]
    fn timestamps_out_of_range_outweigh_missing_keys() {
        let rules = ProduceRules { compacted: true, before_max_ms: 1000, after_max_ms: 10, ..RULES };
        let at = |ms| record(b"k", NOW.0 + ms);
        assert!(client_batch(batch(&[at(-1000), at(10)]), &rules, NOW).is_ok());
        let keyless = Record { key: None, ..at(0) };
        let refused = refusal(batch(&[keyless, at(-1001), at(11)]), &rules);
        assert_eq!(refused.error, RecordError::InvalidTimestamp);
        assert_eq!(refused.record_errors.len(), 3);
    }

    #[test]
    fn log_append_time_makes_the_producers_timestamps_meaningless() {
        let rules = ProduceRules { timestamp_type: TimestampType::LogAppendTime, before_max_ms: 0, ..RULES };
        assert!(client_batch(batch(&[record(b"k", 5)]), &rules, NOW).is_ok());
    }

    #[test]
    fn a_producer_may_say_log_append_time_only_where_its_timestamp_counts_anyway() {
        let says_so =
            |time| change(batch(&[record(b"k", time); 2]), |header| header.attributes = Attributes(8));
        let taken = client_batch(says_so(NOW.0), &RULES, NOW).unwrap();
        assert_eq!(taken.max_timestamp, NOW.0);
        let appended = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..RULES };
        for (time, rules) in [(NOW.0, &appended), (-1, &RULES)] {
            let refused = refusal(says_so(time), rules);
            assert_eq!(refused.error, RecordError::InvalidTimestamp);
            assert_eq!(refused.record_errors.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
        }
    }

    #[test]
    fn a_batch_has_to_fit_into_a_segment() {
        let rules = ProduceRules { segment_bytes: good().len(), ..RULES };
        assert!(client_batch(good(), &rules, NOW).is_ok());
        let rules = ProduceRules { segment_bytes: good().len() - 1, ..RULES };
        assert_eq!(refusal(good(), &rules).error, RecordError::RecordListTooLarge);
    }

    #[test]
    fn only_the_first_hundred_bad_records_are_named() {
        let rules = ProduceRules { before_max_ms: 0, ..RULES };
        let refused = refusal(batch(&vec![record(b"k", 0); 5000]), &rules);
        assert_eq!(refused.record_errors.len(), 100);
        assert!(refused.message.contains("5000 records"), "{}", refused.message);
        assert!(refused.message.len() < 500, "three are repeated");
    }

    #[test]
    fn offsets_inside_a_batch_count_from_zero() {
        let one = batch(&[record(b"k", NOW.0)]);
        let bytes = reseal(one.clone(), &[&one[61..], &one[61..]].concat(), 2);
        let refused = refusal(bytes, &RULES);
        assert_eq!(refused.error, RecordError::InvalidRecord);
        assert!(refused.message.contains("record 1"), "{}", refused.message);
    }

    #[test]
    fn a_count_that_differs_from_the_records_is_refused_for_every_codec() {
        for codec in Compression::ALL {
            let mut builder = BatchBuilder::new(Offset(0), codec);
            builder.add(&record(b"k", NOW.0)).add(&record(b"k", NOW.0));
            let bytes = builder.build();
            for count in [1, 3] {
                let bytes = reseal(bytes.clone(), &bytes[61..], count);
                assert_eq!(refusal(bytes, &RULES).error, RecordError::InvalidRecord, "{codec} {count}");
            }
        }
    }

    #[test]
    fn data_that_its_codec_refuses_is_not_to_be_sent_again() {
        for codec in &Compression::ALL[1..] {
            let bytes = change(reseal(good(), b"\x07not compressed", 1), |header| {
                header.attributes = header.attributes.with_compression(*codec);
            });
            assert_eq!(refusal(bytes, &RULES).error, RecordError::InvalidRecord, "{codec}");
        }
    }

    #[test]
    fn a_record_may_be_too_large_before_it_is_decompressed() {
        let large = Record { value: Some(&[0; 1_000_000]), timestamp: NOW, ..Record::default() };
        for codec in Compression::ALL {
            let mut builder = BatchBuilder::new(Offset(0), codec);
            builder.add(&record(b"k", NOW.0)).add(&large);
            let limit = |record_max| ProduceRules { record_max, ..RULES };
            let judged = client_batch(builder.build(), &limit(1000), NOW);
            match codec {
                Compression::None => assert!(judged.is_ok(), "what it decompresses to does not matter"),
                _ => assert_eq!(judged.unwrap_err().error, RecordError::InvalidRecord, "{codec}"),
            }
            assert!(client_batch(builder.build(), &limit(1_000_100), NOW).is_ok());
        }
    }

    #[test]
    fn a_bomb_is_too_large() {
        let rules = ProduceRules { decompressed_limit: 100_000, ..RULES };
        for codec in &Compression::ALL[1..] {
            let mut builder = BatchBuilder::new(Offset(0), *codec);
            builder.add(&Record { value: Some(&[0; 1_000_000]), timestamp: NOW, ..Record::default() });
            let refused = refusal(builder.build(), &rules);
            assert_eq!(refused.error, RecordError::MessageTooLarge, "{codec}");
        }
    }

    #[test]
    fn lz4_that_java_consumers_cannot_read_is_refused() {
        let mut section = compress(Compression::Lz4, None, &good()[61..]);
        section[4] &= !0x20;
        let bytes = change(reseal(good(), &section, 1), |header| {
            header.attributes = header.attributes.with_compression(Compression::Lz4);
        });
        let refused = refusal(bytes, &RULES);
        assert_eq!(refused.error, RecordError::InvalidRecord);
        assert!(refused.message.contains("independent"), "{}", refused.message);
    }

    #[test]
    fn a_large_batch_takes_as_many_steps_as_its_budget_needs() {
        let mut builder = BatchBuilder::new(Offset(0), Compression::Zstd);
        for _ in 0..1000 {
            builder.add(&Record { value: Some(&[0; 1000]), timestamp: NOW, ..Record::default() });
        }
        let mut validator = ClientBatchValidator::new(builder.build(), &RULES, NOW);
        let mut steps = 1;
        while validator.step(100_000) == Progress::More {
            steps += 1;
        }
        assert!((10..=12).contains(&steps), "1 MB in steps of 100 kB: {steps}");
    }

    proptest! {
        #[test]
        fn any_bytes_get_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(client_batch(bytes.into(), &RULES, NOW).is_err());
        }

        /// Behind a CRC that fits, any section of any codec gets a verdict.
        #[test]
        fn any_section_gets_a_verdict(
            section in prop::collection::vec(any::<u8>(), 0..200),
            count in any::<i32>(),
            attributes in any::<i16>(),
        ) {
            let bytes = change(reseal(good(), &section, count), |header| header.attributes = Attributes(attributes));
            let _ = client_batch(bytes, &RULES, NOW);
        }

        /// The steps change nothing about the verdict.
        #[test]
        fn steps_come_to_the_same_verdict(
            times in prop::collection::vec(-2000i64..20, 1..50),
            budget in 1usize..200,
            id in 0i8..5,
        ) {
            let rules = ProduceRules { before_max_ms: 1990, after_max_ms: 18, ..RULES };
            let mut builder = BatchBuilder::new(Offset(0), Compression::from_id(id).unwrap());
            for ms in times {
                builder.add(&record(b"k", NOW.0 + ms));
            }
            let bytes = builder.build();
            let mut validator = ClientBatchValidator::new(bytes.clone(), &rules, NOW);
            let stepped = loop {
                if let Progress::Done(verdict) = validator.step(budget) {
                    break verdict;
                }
            };
            prop_assert_eq!(stepped, client_batch(bytes, &rules, NOW));
        }
    }

    fn record(key: &'static [u8], timestamp: i64) -> Record<'static> {
        Record { key: Some(key), value: Some(b"value"), headers: &[], timestamp: Timestamp(timestamp) }
    }

    fn batch(records: &[Record<'_>]) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(0), Compression::None);
        for record in records {
            builder.add(record);
        }
        builder.build()
    }

    fn good() -> Bytes {
        batch(&[record(b"k", NOW.0)])
    }

    /// The batch with another header, and the CRC that belongs to it.
    fn change(batch: Bytes, edit: impl FnOnce(&mut BatchHeader)) -> Bytes {
        let mut header = BatchHeader::parse(&batch).unwrap();
        edit(&mut header);
        seal(header, &batch[61..])
    }

    /// The batch with other records, `count` of them.
    fn reseal(batch: Bytes, section: &[u8], count: i32) -> Bytes {
        let mut header = BatchHeader::parse(&batch).unwrap();
        header.record_count = count;
        header.last_offset_delta = count.wrapping_sub(1);
        seal(header, section)
    }

    fn refusal(bytes: Bytes, rules: &ProduceRules) -> InvalidBatch {
        client_batch(bytes, rules, NOW).expect_err("it is to be refused")
    }
}
