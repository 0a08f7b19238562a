//! Batches that are taken, and those that are refused.

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
    let says_so = |time| change(batch(&[record(b"k", time); 2]), |header| header.attributes = Attributes(8));
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
        let batch = builder.build();
        let limit = |record_max| ProduceRules { record_max, ..RULES };
        let judged = client_batch(batch.clone(), &limit(1000), NOW);
        match codec {
            Compression::None => assert!(judged.is_ok(), "what it decompresses to does not matter"),
            _ => assert_eq!(judged.unwrap_err().error, RecordError::InvalidRecord, "{codec}"),
        }
        assert!(client_batch(batch, &limit(1_000_100), NOW).is_ok());
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

#[test]
fn a_large_record_waits_for_room_in_every_codec_and_is_judged_the_same_then() {
    let large = vec![7; 3 << 20];
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new(Offset(0), codec);
        builder.add(&record(b"k", NOW.0));
        builder.add(&Record { value: Some(&large), timestamp: NOW, ..Record::default() });
        builder.add(&record(b"k", NOW.0));
        let bytes = builder.build();
        let rules = ProduceRules { max_batch_bytes: 8 << 20, ..RULES };
        let mut validator = ClientBatchValidator::new(bytes.clone(), &rules, NOW);
        let judged = match validator.step(usize::MAX) {
            Progress::NeedsRoom if codec != Compression::None => {
                validator.give_room();
                validator.step(usize::MAX)
            }
            judged => judged,
        };
        let Progress::Done(Ok(taken)) = judged else { panic!("{codec}: {judged:?}") };
        assert_eq!(taken.batch.bytes(), &bytes, "{codec}");
        let mut validator =
            ClientBatchValidator::new(bytes, &ProduceRules { record_max: 2 << 20, ..rules }, NOW);
        if codec != Compression::None {
            assert_eq!(validator.step(usize::MAX), Progress::NeedsRoom, "{codec}");
            validator.give_room();
            assert!(matches!(validator.step(usize::MAX), Progress::Done(Err(_))), "{codec}");
        }
    }
}

#[test]
fn a_block_of_snappy_or_a_window_of_zstd_that_is_large_waits_for_room() {
    let records = batch(&vec![record(b"k", NOW.0); 800_000]).slice(61..);
    let in_one_block = snap::raw::Encoder::new().compress_vec(&records).unwrap();
    let mut wide = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    wide.window_log(24).unwrap();
    std::io::Write::write_all(&mut wide, &records).unwrap();
    for (codec, section) in [(Compression::Snappy, in_one_block), (Compression::Zstd, wide.finish().unwrap())]
    {
        let bytes = change(reseal(good(), &section, 1), |header| {
            header.attributes = header.attributes.with_compression(codec);
        });
        let rules = ProduceRules { max_batch_bytes: 8 << 20, decompressed_limit: 20_000_000, ..RULES };
        let mut validator = ClientBatchValidator::new(bytes, &rules, NOW);
        assert_eq!(validator.step(usize::MAX), Progress::NeedsRoom, "{codec}");
        validator.give_room();
        // There are more records than announced.
        assert!(matches!(validator.step(usize::MAX), Progress::Done(Err(_))), "{codec}");
    }
}

#[test]
fn bad_data_is_refused_in_the_usual_room_too_where_more_would_not_help() {
    for codec in [Compression::Gzip, Compression::Lz4] {
        let bytes = change(reseal(good(), b"\x04\x22\x4d\x18\x60\x40\x82 nonsense", 1), |header| {
            header.attributes = header.attributes.with_compression(codec);
        });
        let judged = ClientBatchValidator::new(bytes, &RULES, NOW).step(usize::MAX);
        assert!(matches!(judged, Progress::Done(Err(_))), "{codec}: {judged:?}");
    }
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
