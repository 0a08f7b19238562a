//! Batches as Apache Kafka's Java client 4.4.0 writes them: read here as it meant them, and written here
//! byte for byte where no codec has a say.

use bytes::Bytes;
use tarn_record::{
    BatchBuilder, Compression, ControlRecord, ControlType, EndTransaction, Epoch, HeaderView, Offset,
    Outcome, ProduceRules, ProducerEpoch, ProducerId, Record, Sequence, Timestamp, TimestampType, ValidBatch,
    client_batch, end_transaction_marker, records,
};

const NOW: i64 = 1_700_000_000_000;

const NONE: &str = "000000000000000000000084ffffffff027e5ac7930000000000020000018bcfe568000000018bcfe568050000000000\
     000fa0000300000011000000035e000000066b65793a76616c75652076616c75652076616c75652076616c7565207661\
     6c7565060268023102680100002400130201186f6e6c7920612076616c7565001e000a0412746f6d6273746f6e650100";
const GZIP: &str = "00000000000000000000007effffffff02762e0d9f0001000000020000018bcfe568000000018bcfe568050000000000\
     000fa0000300000011000000031f8b08000000000000ff8b63606060cb4eadb42a4bcc294d55c041b231653019326530\
     3230a8300833314ae4e7e5542a2442e418e418b858844af273938a4bf2f352191900867d4aa553000000";
const SNAPPY: &str = "000000000000000000000084ffffffff022b2bd6800002000000020000018bcfe568000000018bcfe568050000000000\
     000fa00003000000110000000382534e415050590000000001000000010000003f53385e000000066b65793a76616c75\
     65205a060054060268023102680100002400130201186f6e6c792061092e40001e000a0412746f6d6273746f6e650100";
const LZ4: &str = "000000000000000000000081ffffffff02669812460003000000020000018bcfe568000000018bcfe568050000000000\
     000fa00003000000110000000304224d1860408241000000ff005e000000066b65793a76616c756520060004f2070602\
     68023102680100002400130201186f6e6c7920612e00f002001e000a0412746f6d6273746f6e65010000000000";
const ZSTD: &str = "00000000000000000000007dffffffff02e7234ce50004000000020000018bcfe568000000018bcfe568050000000000\
     000fa00003000000110000000328b52ffd005804020064035e000000066b65793a76616c756520060268023102680100\
     002400130201186f6e6c792061001e000a0412746f6d6273746f6e6501000200a21a9ad4a50e010000";
const COMMIT: &str = "0000000000000032000000420000000602307cd4e50030000000000000018bcfe568000000018bcfe568000000000000\
     000fa00002ffffffff000000012000000008000000010c00000000000b00";

/// The same three records in every batch; the first repeats a header key.
fn kafkas_records() -> [Record<'static>; 3] {
    const HEADERS: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"1")), (b"h", None), (b"", Some(b""))];
    let value = &b"value value value value value"[..];
    let first = Record { key: Some(b"key"), value: Some(value), headers: HEADERS, timestamp: Timestamp(NOW) };
    let earlier = Timestamp(NOW - 10);
    let keyless = Record { key: None, value: Some(b"only a value"), headers: &[], timestamp: earlier };
    let later = Timestamp(NOW + 5);
    let tombstone = Record { key: Some(b"tombstone"), value: None, headers: &[], timestamp: later };
    [first, keyless, tombstone]
}

#[test]
fn kafkas_batches_pass_validation_and_hold_kafkas_records() {
    let rules = ProduceRules {
        max_batch_bytes: 1_048_588,
        segment_bytes: i32::MAX as usize,
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        zstd_allowed: true,
        decompressed_limit: 1 << 20,
        record_max: usize::MAX,
        recompress: None,
    };
    for (hex, codec) in [NONE, GZIP, SNAPPY, LZ4, ZSTD].into_iter().zip(Compression::ALL) {
        let passed = client_batch(bytes(hex), &rules, Timestamp(NOW)).expect("Kafka wrote it");
        assert_eq!((passed.max_timestamp, passed.offset_of_max_timestamp), (NOW + 5, 2), "{codec}");
        let header = *passed.batch.header();
        assert_eq!(header.compression(), Ok(codec));
        assert_eq!((header.producer_id, header.producer_epoch), (ProducerId(4000), ProducerEpoch(3)));
        assert_eq!((header.base_sequence, header.last_sequence()), (Sequence(17), Sequence(19)));
        assert!(!header.is_transactional() && !header.is_control());

        let section = passed.batch.decompressed(1 << 20).expect("it was just validated");
        let read: Vec<_> = records(&section, header.record_count).map(Result::unwrap).collect();
        assert_eq!(read.len(), 3);
        for (record, meant) in read.iter().zip(kafkas_records()) {
            assert_eq!((record.key, record.value), (meant.key, meant.value), "{codec}");
            assert_eq!(header.timestamp_of(record.timestamp_delta), meant.timestamp.0);
            let headers: Vec<_> =
                meant.headers.iter().map(|&(key, value)| HeaderView { key, value }).collect();
            assert_eq!(record.headers.collect::<Vec<_>>(), headers);
        }
    }
}

#[test]
fn the_same_records_give_the_same_bytes() {
    for (hex, codec) in [(NONE, Compression::None), (SNAPPY, Compression::Snappy)] {
        let mut builder =
            BatchBuilder::new(Offset(0), codec).producer(ProducerId(4000), ProducerEpoch(3), Sequence(17));
        for record in &kafkas_records() {
            builder.add(record);
        }
        assert_eq!(builder.build(), bytes(hex), "{codec}");
    }
}

#[test]
fn the_end_of_a_transaction_is_kafkas_byte_for_byte() {
    let end = EndTransaction {
        producer_id: ProducerId(4000),
        producer_epoch: ProducerEpoch(2),
        outcome: Outcome::Commit,
        coordinator_epoch: 11,
    };
    let kafkas = bytes(COMMIT);
    assert_eq!(end_transaction_marker(&end, Offset(50), Epoch(6), Timestamp(NOW)), kafkas);
    let control = ControlRecord::parse(&ValidBatch::parse(kafkas).expect("Kafka wrote it"));
    assert_eq!(control.map(|control| control.control_type), Some(ControlType::Commit));
}

fn bytes(hex: &str) -> Bytes {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("the constants are hexadecimal"))
        .collect()
}
