//! What is copied: the backlog of one topic, and how a copy is compared with it.
//!
//! Reading a partition checks the CRC-32C of every batch. Two partitions are the same where they end at the
//! same offset, hold as many records, and all their bytes have the same checksum.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::batch::HEADER_BYTES;
use crate::broker_client::{BrokerClient, Fields, bad};
use crate::failure::{Doing, Failure, Result};

/// The topic that is copied.
pub(crate) const TOPIC: &str = "backlog";

/// A response size for readings that are not timed.
const READING_BYTES: i32 = 1 << 20;

/// What one partition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// The offset after its last record.
    pub(crate) end: i64,
    /// Records, control records included.
    pub(crate) records: u64,
    /// Bytes of whole batches.
    pub(crate) bytes: u64,
    /// The CRC-32C of all these bytes.
    pub(crate) checksum: u32,
}

/// What the topic holds, by partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backlog(pub(crate) Vec<Held>);

/// How much a copy has in common with what it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// Every byte.
    Bytes,
    /// Offsets and the number of records; their batches were made anew.
    Records,
}

impl Backlog {
    /// Reads the whole topic from a broker.
    pub(crate) fn read(address: &str, partitions: usize) -> Result<Backlog> {
        let mut held = vec![Held::default(); partitions];
        let mut read = || -> io::Result<()> {
            let mut broker = BrokerClient::connect(address)?;
            loop {
                let offsets: Vec<i64> = held.iter().map(|partition| partition.end).collect();
                let mut left = 0;
                broker.fetch(TOPIC, &offsets, READING_BYTES, |index, high_watermark, batches| {
                    let partition =
                        held.get_mut(index).ok_or_else(|| bad("a partition that was not asked for"))?;
                    partition.take(batches)?;
                    left += high_watermark - partition.end;
                    Ok(())
                })?;
                if left == 0 {
                    return Ok(());
                }
            }
        };
        read().doing(|| format!("reading {TOPIC} from {address}"))?;
        Ok(Backlog(held))
    }

    /// Reads what the copy loop wrote.
    pub(crate) fn read_files(directory: &Path, partitions: usize) -> Result<Backlog> {
        let held = (0..partitions).map(|index| {
            let file = directory.join(file_name(index));
            Held::read_file(&file).doing(|| format!("reading {}", file.display()))
        });
        held.collect::<Result<Vec<_>>>().map(Backlog)
    }

    /// Partitions.
    pub(crate) fn partitions(&self) -> usize {
        self.0.len()
    }

    /// Records in all.
    pub(crate) fn records(&self) -> u64 {
        self.0.iter().map(|partition| partition.records).sum()
    }

    /// Bytes of log in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|partition| partition.bytes).sum()
    }

    /// The end of each partition.
    pub(crate) fn ends(&self) -> Vec<i64> {
        self.0.iter().map(|partition| partition.end).collect()
    }

    /// Fails where a copy differs from this.
    pub(crate) fn expect_copy(&self, copy: &Backlog, likeness: Likeness) -> Result<()> {
        for (index, (here, there)) in self.0.iter().zip(&copy.0).enumerate() {
            let same = match likeness {
                Likeness::Bytes => here == there,
                Likeness::Records => (here.end, here.records) == (there.end, there.records),
            };
            if !same {
                let text = format!("partition {index} was not copied: {here:?} became {there:?}");
                return Err(Failure::Wrong(text));
            }
        }
        Ok(())
    }
}

impl Held {
    /// Takes the whole batches at the start of these bytes; how many bytes they are.
    fn take(&mut self, batches: &[u8]) -> io::Result<usize> {
        let whole = check_batches(batches, &mut self.end, &mut self.records)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &batches[..whole]);
        self.bytes += whole as u64;
        Ok(whole)
    }

    fn read_file(path: &Path) -> io::Result<Held> {
        let mut file = File::open(path)?;
        let mut held = Held::default();
        let mut pending = Vec::new();
        loop {
            let read = Read::by_ref(&mut file).take(READING_BYTES as u64).read_to_end(&mut pending)?;
            let whole = held.take(&pending)?;
            pending.drain(..whole);
            match (read, pending.is_empty()) {
                (0, true) => return Ok(held),
                (0, false) => return Err(bad("the last batch is cut short")),
                _ => {}
            }
        }
    }
}

/// The name of the file that holds a copied partition.
pub(crate) fn file_name(partition: usize) -> String {
    format!("{TOPIC}-{partition}.log")
}

/// Checks the CRC of every whole batch; the bytes they take. `end` becomes the offset after the last of
/// them, and their records are added.
pub(crate) fn check_batches(batches: &[u8], end: &mut i64, records: &mut u64) -> io::Result<usize> {
    let mut at = 0;
    while let Some(header) = batches.get(at..at + HEADER_BYTES) {
        let size = 12 + Fields::new(&header[8..]).number::<4>()?;
        let size = usize::try_from(size).unwrap_or_default().max(HEADER_BYTES);
        let Some(batch) = batches.get(at..at + size) else { break };
        if Fields::new(&header[17..]).number::<4>()? as u32 != crc32c::crc32c(&batch[21..]) {
            return Err(bad("a checksum does not match"));
        }
        let last = Fields::new(&header[23..]).number::<4>()?;
        *end = Fields::new(header).number::<8>()? + last + 1;
        *records += Fields::new(&header[57..]).number::<4>()? as u64;
        at += size;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch whose records are noise; only its header says how many they are.
    fn batch(base: i64, records: i32) -> Vec<u8> {
        let mut bytes = vec![0x5a; HEADER_BYTES + 40];
        let length = (bytes.len() - 12) as i32;
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        bytes[57..61].copy_from_slice(&records.to_be_bytes());
        let checksum = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    #[test]
    fn whole_batches_are_taken_and_a_cut_one_is_left() {
        let batches = [batch(0, 3), batch(3, 2), batch(5, 1)].concat();
        let mut held = Held::default();
        let taken = held.take(&batches[..batches.len() - 1]).unwrap();
        assert_eq!(taken, 2 * batch(0, 1).len());
        assert_eq!((held.end, held.records, held.bytes), (5, 5, taken as u64));
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let mut damaged = batch(0, 3);
        *damaged.last_mut().unwrap() ^= 1;
        assert!(Held::default().take(&damaged).is_err());
    }

    #[test]
    fn a_batch_that_claims_less_than_its_header_is_no_endless_loop() {
        let mut damaged = batch(0, 3);
        damaged[8..12].copy_from_slice(&(-12i32).to_be_bytes());
        assert!(Held::default().take(&damaged).is_err());
    }

    #[test]
    fn a_copy_differs_by_a_byte_or_by_an_offset() {
        let of = |batches: &[Vec<u8>]| {
            let mut held = Held::default();
            held.take(&batches.concat()).unwrap();
            Backlog(vec![held])
        };
        let source = of(&[batch(0, 2), batch(2, 2)]);
        let rebatched = of(&[batch(0, 4)]);
        let short = of(&[batch(0, 2)]);
        assert!(source.expect_copy(&source.clone(), Likeness::Bytes).is_ok());
        assert!(source.expect_copy(&rebatched, Likeness::Bytes).is_err());
        assert!(source.expect_copy(&rebatched, Likeness::Records).is_ok());
        assert!(source.expect_copy(&short, Likeness::Records).is_err());
    }
}
