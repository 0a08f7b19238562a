//! Batches of records as a producer makes them (magic 2, not compressed).

use std::time::{SystemTime, UNIX_EPOCH};

/// Marks a batch that belongs to a transaction.
const TRANSACTIONAL: i16 = 0x10;
/// In the place of a producer that has no id.
const NOBODY: i64 = -1;

/// Who writes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A producer without an id.
    Plain,
    /// A transaction of the producer with this id; its first batch in a partition.
    Transaction(i64),
}

/// A batch of so many records with this value and no key, stamped with the time now.
pub(crate) fn batch(writer: Writer, records: u8, value: &[u8]) -> Vec<u8> {
    let (attributes, producer, epoch, sequence) = match writer {
        Writer::Plain => (0, NOBODY, -1, -1),
        Writer::Transaction(producer) => (TRANSACTIONAL, producer, 0i16, 0i32),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let mut checked = Vec::new();
    checked.extend(attributes.to_be_bytes());
    checked.extend((i32::from(records) - 1).to_be_bytes());
    checked.extend(now.to_be_bytes());
    checked.extend(now.to_be_bytes());
    checked.extend(producer.to_be_bytes());
    checked.extend(epoch.to_be_bytes());
    checked.extend(sequence.to_be_bytes());
    checked.extend(i32::from(records).to_be_bytes());
    for offset in 0..records {
        checked.extend(record(offset, value));
    }
    let mut batch = vec![0; 8];
    // What follows the length: the leader epoch, the magic, the checksum, and what it is of.
    batch.extend((4 + 1 + 4 + checked.len() as i32).to_be_bytes());
    batch.extend((-1i32).to_be_bytes());
    batch.push(2);
    batch.extend(crc32c::crc32c(&checked).to_be_bytes());
    batch.extend(checked);
    batch
}

fn record(offset: u8, value: &[u8]) -> Vec<u8> {
    // No attributes, no time after the batch's.
    let mut body = vec![0, 0];
    body.extend(varint(offset.into()));
    body.extend(varint(-1));
    body.extend(varint(value.len() as i64));
    body.extend(value);
    body.extend(varint(0));
    let mut record = varint(body.len() as i64);
    record.extend(body);
    record
}

/// Zigzag, seven bits a byte, the lowest first.
fn varint(number: i64) -> Vec<u8> {
    let mut rest = (number << 1 ^ number >> 63) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::check_batches;

    #[test]
    fn a_batch_passes_the_check_of_batches() {
        for writer in [Writer::Plain, Writer::Transaction(7)] {
            let made = batch(writer, 3, b"some value");
            let (mut end, mut records) = (0, 0);
            assert_eq!(check_batches(&made, &mut end, &mut records).unwrap(), made.len());
            assert_eq!((end, records), (3, 3));
        }
    }

    #[test]
    fn small_numbers_take_a_byte_whatever_their_sign() {
        assert_eq!([varint(0), varint(-1), varint(63)], [[0], [1], [126]]);
        assert_eq!(varint(300), [0xd8, 0x04]);
    }
}
