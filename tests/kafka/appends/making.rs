//! Batches as no producer would write them.

use bytes::Bytes;
use tarn_record::{
    BatchBuilder, BatchHeader, Compression, HEADER_BYTES, Offset, Record, Timestamp, compress, seal,
};

/// The time that records carry, in the past of every test.
pub(super) const THEN: i64 = 1_700_000_000_000;

/// A batch of records with these keys and timestamps.
pub(super) fn batch_of(codec: Compression, records: &[(Option<&str>, i64)]) -> Bytes {
    let mut builder = BatchBuilder::new(Offset(0), codec);
    for (number, &(key, at)) in records.iter().enumerate() {
        let value = format!("value {number}");
        builder.add(&Record {
            key: key.map(str::as_bytes),
            value: Some(value.as_bytes()),
            headers: &[(b"header", Some(b"h"))],
            timestamp: Timestamp(at),
        });
    }
    builder.build()
}

/// Three good records.
pub(super) fn good(codec: Compression) -> Bytes {
    batch_of(codec, &[(Some("a"), THEN), (Some("b"), THEN + 5), (Some("c"), THEN + 3)])
}

/// The same with another header, and the checksum to it.
pub(super) fn with_header(batch: &Bytes, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut header = BatchHeader::parse(batch).expect("it was a batch");
    change(&mut header);
    seal(header, &batch[HEADER_BYTES..])
}

/// A batch of records that are given as bytes.
pub(super) fn of_records(codec: Compression, count: i32, section: &[u8]) -> Bytes {
    with_section(codec, count, &compress(codec, None, section))
}

/// A batch whose section is these bytes.
pub(super) fn with_section(codec: Compression, count: i32, section: &[u8]) -> Bytes {
    let mut header = BatchHeader::parse(&good(codec)).expect("it was a batch");
    header.record_count = count;
    header.last_offset_delta = count - 1;
    seal(header, section)
}

/// The same with one byte changed, and the checksum as it was.
pub(super) fn with_byte(batch: &Bytes, at: usize, byte: u8) -> Bytes {
    let mut bytes = batch.to_vec();
    bytes[at] = byte;
    bytes.into()
}

/// A record: attributes, deltas of timestamp and offset, key `k`, value `v`, no header.
pub(super) fn record(offset_delta: u8) -> Vec<u8> {
    vec![16, 0, 0, offset_delta * 2, 2, b'k', 2, b'v', 0]
}

/// A message of format 0 or 1.
pub(super) fn old_message(magic: u8) -> Bytes {
    let mut after_crc = vec![magic, 0];
    if magic == 1 {
        after_crc.extend(THEN.to_be_bytes());
    }
    after_crc.extend([0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v']);
    let mut crc = crc32(&after_crc).to_be_bytes().to_vec();
    crc.extend(after_crc);
    let mut message = 0i64.to_be_bytes().to_vec();
    message.extend((crc.len() as i32).to_be_bytes());
    message.extend(crc);
    message.into()
}

/// CRC-32 as zip has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
