//! Batches of records as a producer makes them (magic 2).

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use lz4_flex::frame::FrameEncoder;

/// Marks a batch that belongs to a transaction.
const TRANSACTIONAL: i16 = 0x10;
/// In the place of a producer that has no id.
const NOBODY: i64 = -1;
/// How many bytes of a batch stand before its records.
pub(crate) const HEADER_BYTES: usize = 61;
/// Where its checksum is, and from where on the checksum is of.
const CHECKSUM_AT: usize = 17;
const CHECKED_FROM: usize = 21;
/// Where its first and its last time stand, one after the other.
const TIMES_AT: usize = 27;
/// Values are made of so many words of so many letters, so that a codec finds some again.
const WORDS: usize = 512;
const WORD_BYTES: usize = 8;

/// How the records of a batch are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Codec {
    /// Not at all.
    None,
    /// LZ4 frames.
    Lz4,
}

/// What batches of a load are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of each value.
    pub(crate) record_bytes: usize,
    /// Bytes of a batch before a codec, about; it holds one record at least.
    pub(crate) batch_bytes: usize,
}

/// Who writes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A producer without an id.
    Plain,
    /// A transaction of the producer with this id; its first batch in a partition.
    Transaction(i64),
}

impl Codec {
    /// Its number in the attributes of a batch.
    fn attributes(self) -> i16 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 3,
        }
    }

    /// Its name in tables and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
        }
    }

    fn pack(self, records: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Codec::None => Ok(records),
            Codec::Lz4 => {
                let mut encoder = FrameEncoder::new(Vec::new());
                encoder.write_all(&records)?;
                encoder.finish().map_err(io::Error::other)
            }
        }
    }
}

impl Shape {
    /// How many records a batch holds.
    pub(crate) fn records(self) -> usize {
        let record = record(0, &vec![0; self.record_bytes]).len();
        (self.batch_bytes.saturating_sub(HEADER_BYTES) / record).max(1)
    }

    /// A batch of this kind, its values made of words.
    pub(crate) fn batch(self, codec: Codec) -> io::Result<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(7);
        let words: Vec<[u8; WORD_BYTES]> =
            (0..WORDS).map(|_| std::array::from_fn(|_| random.alphanumeric() as u8)).collect();
        let records = self.records();
        let mut body = Vec::new();
        for offset in 0..records {
            let words = (0..self.record_bytes.div_ceil(WORD_BYTES)).map(|_| words[random.usize(..WORDS)]);
            let mut value = words.collect::<Vec<_>>().concat();
            value.truncate(self.record_bytes);
            body.extend(record(offset as i64, &value));
        }
        Ok(sealed(codec.attributes(), (NOBODY, -1, -1), records as i32, &codec.pack(body)?))
    }
}

/// A batch of so many records with this value and no key, stamped with the time now.
pub(crate) fn batch(writer: Writer, records: u8, value: &[u8]) -> Vec<u8> {
    let (attributes, producer) = match writer {
        Writer::Plain => (0, (NOBODY, -1, -1)),
        Writer::Transaction(producer) => (TRANSACTIONAL, (producer, 0, 0)),
    };
    let body: Vec<u8> = (0..records).flat_map(|offset| record(offset.into(), value)).collect();
    sealed(attributes, producer, records.into(), &body)
}

/// Gives a batch the time now.
pub(crate) fn stamp(batch: &mut [u8]) {
    let now = now_ms().to_be_bytes();
    batch[TIMES_AT..TIMES_AT + 8].copy_from_slice(&now);
    batch[TIMES_AT + 8..TIMES_AT + 16].copy_from_slice(&now);
    let checksum = crc32c::crc32c(&batch[CHECKED_FROM..]);
    batch[CHECKSUM_AT..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
}

/// Whether a whole batch has the checksum that it says.
pub(crate) fn is_sound(batch: &[u8]) -> bool {
    let checked = batch.get(CHECKED_FROM..).map(|checked| crc32c::crc32c(checked).to_be_bytes());
    checked.is_some_and(|checksum| batch[CHECKSUM_AT..CHECKED_FROM] == checksum)
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}

fn sealed(attributes: i16, producer: (i64, i16, i32), records: i32, body: &[u8]) -> Vec<u8> {
    let (id, epoch, sequence) = producer;
    let mut batch = vec![0; 8];
    // What follows the length: the rest of the header, and the records.
    batch.extend(((HEADER_BYTES - 12 + body.len()) as i32).to_be_bytes());
    // The leader epoch, the magic, and room for the checksum.
    batch.extend((-1i32).to_be_bytes());
    batch.push(2);
    batch.extend([0; 4]);
    batch.extend(attributes.to_be_bytes());
    batch.extend((records - 1).to_be_bytes());
    // Room for both times.
    batch.extend([0; 16]);
    batch.extend(id.to_be_bytes());
    batch.extend(epoch.to_be_bytes());
    batch.extend(sequence.to_be_bytes());
    batch.extend(records.to_be_bytes());
    batch.extend(body);
    stamp(&mut batch);
    batch
}

fn record(offset: i64, value: &[u8]) -> Vec<u8> {
    // No attributes, no time after the batch's.
    let mut body = vec![0, 0];
    body.extend(varint(offset));
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
    fn a_batch_of_a_load_fills_its_size_and_lz4_makes_it_smaller() {
        let shape = Shape { record_bytes: 1024, batch_bytes: 65_536 };
        let plain = shape.batch(Codec::None).unwrap();
        let (mut end, mut records) = (0, 0);
        assert_eq!(check_batches(&plain, &mut end, &mut records).unwrap(), plain.len());
        assert!(plain.len() <= 65_536 && plain.len() > 64_000 && records == 63, "{} {records}", plain.len());
        let packed = shape.batch(Codec::Lz4).unwrap();
        assert_eq!(check_batches(&packed, &mut end, &mut records).unwrap(), packed.len());
        assert!(packed.len() * 4 < plain.len() * 3 && packed.len() * 4 > plain.len(), "{}", packed.len());
        assert_eq!(packed[22], 3);
        assert_eq!(Shape { record_bytes: 100, batch_bytes: 1 }.records(), 1);
    }

    #[test]
    fn a_stamp_keeps_a_batch_sound_and_a_flipped_bit_does_not() {
        let mut made = batch(Writer::Plain, 1, b"value");
        made[TIMES_AT] = 9;
        assert!(!is_sound(&made) && !is_sound(&made[..3]));
        stamp(&mut made);
        assert!(is_sound(&made) && made[TIMES_AT] == 0);
    }

    #[test]
    fn small_numbers_take_a_byte_whatever_their_sign() {
        assert_eq!([varint(0), varint(-1), varint(63)], [[0], [1], [126]]);
        assert_eq!(varint(300), [0xd8, 0x04]);
    }
}
