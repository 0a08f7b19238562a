//! Single batches, good and bad.

use bytes::Bytes;
use tarn_record::{Attributes, BatchHeader, Compression, Offset, ProducerEpoch, ProducerId, Sequence};

use super::making::{batch_of, good, of_records, old_message, record, with_byte, with_header, with_section};
use super::{BY_NAME, Both, Differences, Sent, UNVERIFIED};

/// A batch, and what it is called.
type Named = (String, Bytes);

/// What Kafka stores, so that consumers stumble over it, or drops in part without a word.
const STRICTER: [&str; 8] = [
    "three bytes behind",
    "inner offsets from 1, none",
    "inner offsets with a gap, none",
    "inner offsets in disorder, none",
    "inner offsets all the same, none",
    "a negative offset delta, none",
    "a length too small, gzip",
    "a length too large, gzip",
];

#[test]
fn one_batch_for_each_partition_is_taken_or_refused_as_kafka_does() {
    let mut both = Both::start(&[UNVERIFIED]);
    let cases: Vec<Named> = [whole_batches(), frames(), headers(), compressed(), records_as_bytes()].concat();
    both.create("t", cases.len(), &[]);
    let mut differences = Differences::default();
    for (partition, (name, records)) in cases.iter().enumerate() {
        let sent = Sent::to("t", partition as i32, records.clone());
        let answers = both.send(&sent);
        if STRICTER.contains(&name.as_str()) {
            differences.stricter(name, answers);
            continue;
        }
        differences.answers(name, answers);
        differences.things(name, both.logs("t", partition));
    }
    differences.judge();
}

#[test]
fn what_a_topic_demands_is_demanded_as_kafka_does() {
    let mut both = Both::start(&[UNVERIFIED]);
    let tight = ["message.timestamp.before.max.ms=3600000", "message.timestamp.after.max.ms=3600000"];
    both.create("compacted", 9, &["cleanup.policy=compact"]);
    both.create("appended", 9, &["message.timestamp.type=LogAppendTime"]);
    both.create("tight", 9, &tight);
    both.create("tight.appended", 9, &[&tight[..], &["message.timestamp.type=LogAppendTime"]].concat());
    both.create("tight.compacted", 9, &[&tight[..], &["cleanup.policy=compact"]].concat());
    both.create("small", 9, &["max.message.bytes=200"]);
    both.create("unpacked", 9, &["max.decompressed.message.bytes=1000"]);
    both.create("large", 9, &["max.message.bytes=4000000", "segment.bytes=1048576"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later");
    let now = now.as_millis() as i64;
    let none = Compression::None;
    let long = "x".repeat(1_100_000);
    let at = |times: &[i64]| {
        let records: Vec<_> = times.iter().map(|&at| (Some("k"), at)).collect();
        batch_of(none, &records)
    };
    let keyless = [(None, now), (Some("k"), now), (None, now), (None, now), (None, now)];
    let hour = 3_600_000;
    let cases: [(&str, &str, Bytes); 23] = [
        ("compacted", "with keys", good(none)),
        ("compacted", "without keys", batch_of(none, &keyless)),
        ("compacted", "without keys, gzip", batch_of(Compression::Gzip, &keyless)),
        ("appended", "a batch", good(none)),
        ("appended", "a batch, zstd", good(Compression::Zstd)),
        ("appended", "says LogAppendTime itself", with_attributes(&good(none), 8)),
        ("tight", "now", at(&[now, now + 1])),
        ("tight", "one too early", at(&[now, now - 2 * hour, now])),
        ("tight", "too late", at(&[now + 2 * hour, now + 2 * hour])),
        ("tight", "no timestamp", at(&[-1, -1])),
        ("tight", "below none", at(&[-5, now])),
        ("tight.appended", "far away", at(&[now - 2 * hour, now + 2 * hour])),
        (
            "tight.compacted",
            "without key and too early",
            batch_of(none, &[(None, now), (None, 0), (Some("k"), 0)]),
        ),
        ("tight.compacted", "without key", batch_of(none, &[(None, now), (Some("k"), now)])),
        ("small", "small enough", batch_of(none, &[(Some("k"), now)])),
        ("small", "too large", batch_of(none, &[(Some("k"), now); 20])),
        ("small", "too large and damaged", with_byte(&batch_of(none, &[(Some("k"), now); 20]), 20, 0)),
        ("unpacked", "many small records", batch_of(Compression::Gzip, &[(Some("k"), now); 100])),
        ("unpacked", "one large record", batch_of(Compression::Gzip, &[(Some(&long[..2000]), now)])),
        ("unpacked", "one of almost the size", batch_of(Compression::Gzip, &[(Some(&long[..950]), now)])),
        ("unpacked", "one large record, not packed", batch_of(none, &[(Some(&long[..2000]), now)])),
        ("large", "too large for a segment", batch_of(none, &[(Some(&long), now)])),
        (
            "large",
            "too large for a segment, but compressed",
            batch_of(Compression::Gzip, &[(Some(&long), now)]),
        ),
    ];
    let mut differences = Differences::default();
    for (number, (topic, name, records)) in cases.iter().enumerate() {
        let sent = Sent::to(topic, (number % 9) as i32, records.clone());
        let answers = both.send(&sent);
        differences.answers(&format!("{topic}: {name}"), answers);
    }
    differences.judge();
}

#[test]
fn what_a_request_says_is_judged_as_kafka_does() {
    let mut both = Both::start(&[UNVERIFIED]);
    both.create("t", 4, &[]);
    let none = || good(Compression::None);
    let zstd = |version| Sent { version, ..Sent::to("t", 0, good(Compression::Zstd)) };
    let transactional = with_header(&none(), |header| {
        header.attributes = header.attributes.transactional();
        (header.producer_id, header.producer_epoch) = (ProducerId(7_000_000), ProducerEpoch(0));
        header.base_sequence = Sequence(0);
    });
    let named = |records| Sent { version: 11, transactional_id: Some("x"), ..Sent::to("t", 3, records) };
    let cases = [
        ("acks 2", Sent { acks: 2, ..Sent::to("t", 0, none()) }),
        ("acks 1", Sent { acks: 1, ..Sent::to("t", 0, none()) }),
        ("zstd in version 3", zstd(3)),
        ("zstd in version 6", zstd(6)),
        ("zstd in version 7", zstd(7)),
        ("no such topic", Sent::to("nothing", 0, none())),
        ("no such partition", Sent::to("t", 4, none())),
        ("a negative partition", Sent::to("t", -1, none())),
        ("a transaction without a name", Sent::to("t", 2, transactional.clone())),
        (
            "a transaction",
            Sent { version: 11, transactional_id: Some("x"), ..Sent::to("t", 2, transactional) },
        ),
        ("a transaction without a producer", named(with_attributes(&none(), 16))),
        ("a control batch of a transaction", named(with_attributes(&none(), 48))),
        ("no transaction, but a name", Sent { transactional_id: Some("x"), ..Sent::to("t", 3, none()) }),
        ("in version 3", Sent { version: 3, ..Sent::to("t", 3, none()) }),
        ("by name in the last version", Sent { version: BY_NAME, ..Sent::to("t", 3, none()) }),
    ];
    let mut differences = Differences::default();
    for (name, sent) in &cases {
        let answers = both.send(sent);
        differences.answers(name, answers);
    }
    differences.judge();
}

/// Good ones in every codec.
fn whole_batches() -> Vec<Named> {
    Compression::ALL.into_iter().map(|codec| (format!("good, {codec}"), good(codec))).collect()
}

/// What comes before the header is believed.
fn frames() -> Vec<Named> {
    let good = good(Compression::None);
    let length = |length: i32| {
        let mut bytes = good.to_vec();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        Bytes::from(bytes)
    };
    named([
        ("no bytes", Bytes::new()),
        ("ten bytes", good.slice(..10)),
        ("sixteen bytes", good.slice(..16)),
        ("a header cut short", good.slice(..40)),
        ("a batch cut short", good.slice(..good.len() - 1)),
        ("two batches", [&good[..], &good].concat().into()),
        ("three bytes behind", [&good[..], &[0; 3]].concat().into()),
        ("twenty zeros behind", [&good[..], &[0; 20]].concat().into()),
        ("a length of less than a header", length(20)),
        ("a length of less than a message", length(5)),
        ("a negative length", length(-1)),
        ("a length beyond the bytes", length(good.len() as i32)),
        ("magic 0", old_message(0)),
        ("magic 1", old_message(1)),
        ("magic 0 in a batch", with_byte(&good, 16, 0)),
        ("magic 3", with_byte(&good, 16, 3)),
        ("magic -1", with_byte(&good, 16, 255)),
        ("a wrong checksum", with_byte(&good, 17, good[17] ^ 1)),
        ("a flipped bit", with_byte(&good, good.len() - 1, 1)),
    ])
}

fn headers() -> Vec<Named> {
    let good = good(Compression::None);
    let with = |change: fn(&mut BatchHeader)| with_header(&good, change);
    named([
        ("base offset 1", with(|header| header.base_offset = Offset(1))),
        ("base offset -1", with(|header| header.base_offset = Offset(-1))),
        ("a leader epoch", with(|header| header.leader_epoch.0 = 5)),
        ("no record", with(|header| (header.record_count, header.last_offset_delta) = (0, -1))),
        ("no record, delta 0", with(|header| (header.record_count, header.last_offset_delta) = (0, 0))),
        (
            "fewer records than there are",
            with(|header| (header.record_count, header.last_offset_delta) = (2, 1)),
        ),
        (
            "more records than there are",
            with(|header| (header.record_count, header.last_offset_delta) = (4, 3)),
        ),
        ("a negative count", with(|header| (header.record_count, header.last_offset_delta) = (-3, 2))),
        ("a larger last offset delta", with(|header| header.last_offset_delta = 3)),
        ("a smaller last offset delta", with(|header| header.last_offset_delta = 1)),
        ("a negative last offset delta", with(|header| header.last_offset_delta = -1)),
        ("a wrong maximal timestamp", with(|header| header.max_timestamp = 1)),
        ("a wrong base timestamp", with(|header| header.base_timestamp += 9)),
        ("LogAppendTime", with_attributes(&good, 8)),
        ("control", with_attributes(&good, 32)),
        ("a delete horizon", with_attributes(&good, 64)),
        ("an unused bit", with_attributes(&good, 128)),
        ("the highest bit", with_attributes(&good, i16::MIN)),
        ("codec 5", with_attributes(&good, 5)),
        ("codec 6", with_attributes(&good, 6)),
        ("codec 7", with_attributes(&good, 7)),
        ("gzip that is not", with_attributes(&good, 1)),
        ("snappy that is not", with_attributes(&good, 2)),
        ("lz4 that is not", with_attributes(&good, 3)),
        ("zstd that is not", with_attributes(&good, 4)),
        (
            "a producer without a sequence",
            with(|header| (header.producer_id, header.producer_epoch) = (ProducerId(5), ProducerEpoch(0))),
        ),
        (
            "a producer without an epoch",
            with(|header| (header.producer_id, header.base_sequence) = (ProducerId(6), Sequence(0))),
        ),
        ("a sequence without a producer", with(|header| header.base_sequence = Sequence(0))),
        (
            "a producer below none",
            with(|header| (header.producer_id, header.base_sequence) = (ProducerId(-2), Sequence(0))),
        ),
    ])
}

/// Sections that are compressed, and wrong inside.
fn compressed() -> Vec<Named> {
    let mut cases = Vec::new();
    for codec in Compression::ALL {
        let inner = |offsets: &[u8]| {
            let section: Vec<u8> = offsets.iter().flat_map(|&offset| record(offset)).collect();
            of_records(codec, offsets.len() as i32, &section)
        };
        let fewer = of_records(codec, 2, &[record(0), record(1), record(2)].concat());
        let more = of_records(codec, 4, &[record(0), record(1), record(2)].concat());
        let whole = good(codec);
        let cut = with_section(codec, 3, &whole[61..whole.len() - 5]);
        let behind = with_section(codec, 3, &[&whole[61..], &[0; 7]].concat());
        let nothing = with_section(codec, 1, &[]);
        for (name, batch) in [
            ("inner offsets from 1", inner(&[1, 2, 3])),
            ("inner offsets with a gap", inner(&[0, 2, 3])),
            ("inner offsets in disorder", inner(&[1, 0, 2])),
            ("inner offsets all the same", inner(&[0, 0, 0])),
            ("fewer than inside", fewer),
            ("more than inside", more),
            ("cut short inside", cut),
            ("bytes behind inside", behind),
            ("nothing inside", nothing),
        ] {
            cases.push((format!("{name}, {codec}"), batch));
        }
    }
    cases
}

/// Records that are no records.
fn records_as_bytes() -> Vec<Named> {
    let mut cases = Vec::new();
    for codec in [Compression::None, Compression::Gzip] {
        let one = |record: &[u8]| of_records(codec, 1, record);
        for (name, batch) in [
            ("a record", one(&record(0))),
            ("a length too small", one(&[14, 0, 0, 0, 2, b'k', 2, b'v', 0])),
            ("a length too large", one(&[18, 0, 0, 0, 2, b'k', 2, b'v', 0])),
            ("a byte left in the record", one(&[18, 0, 0, 0, 2, b'k', 2, b'v', 0, 9])),
            ("a negative record length", one(&[1, 0, 0, 0, 2, b'k', 2, b'v', 0])),
            ("a record of no bytes", one(&[0])),
            ("an overlong number", one(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01])),
            ("a number written longer than it need be", one(&[20, 0, 0, 0, 0x82, 0x80, 0, b'k', 2, b'v', 0])),
            ("attributes in the record", one(&[16, 7, 0, 0, 2, b'k', 2, b'v', 0])),
            ("a negative timestamp delta", one(&[16, 0, 5, 0, 2, b'k', 2, b'v', 0])),
            ("a negative offset delta", one(&[16, 0, 0, 1, 2, b'k', 2, b'v', 0])),
            ("a key beyond the record", one(&[16, 0, 0, 0, 80, b'k', 2, b'v', 0])),
            ("a value beyond the record", one(&[16, 0, 0, 0, 2, b'k', 80, b'v', 0])),
            ("a key length of -2", one(&[16, 0, 0, 0, 3, b'k', 2, b'v', 0])),
            ("no key and no value", one(&[12, 0, 0, 0, 1, 1, 0])),
            ("a negative header count", one(&[12, 0, 0, 0, 1, 1, 1])),
            ("more headers than bytes", one(&[12, 0, 0, 0, 1, 1, 20])),
            ("a header without a key", one(&[16, 0, 0, 0, 1, 1, 2, 1, 1])),
            ("a header of empty key and no value", one(&[16, 0, 0, 0, 1, 1, 2, 0, 1])),
            ("a header value length of -2", one(&[16, 0, 0, 0, 1, 1, 2, 0, 3])),
            ("a header key that is no text", one(&[18, 0, 0, 0, 1, 1, 2, 2, 0xff, 1])),
        ] {
            cases.push((format!("{name}, {codec}"), batch));
        }
    }
    cases
}

fn with_attributes(batch: &Bytes, bits: i16) -> Bytes {
    with_header(batch, |header| header.attributes = Attributes(header.attributes.0 | bits))
}

fn named<const N: usize>(cases: [(&str, Bytes); N]) -> Vec<Named> {
    cases.into_iter().map(|(name, batch)| (name.to_string(), batch)).collect()
}
