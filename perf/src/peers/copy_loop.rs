//! The speed of light of a mirror: one blocking thread that fetches, checks CRCs and writes.
//!
//! It keeps no index, no epochs, no state and no promise, so no mirror on the same machine can be much
//! faster or cheaper. Fetch v4 and its answer are spelled out here by hand: the measure shares no code
//! with what it measures.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::measure::{Copied, cpu_seconds};

/// What the loop copies, and in which pieces.
#[derive(Clone, Debug)]
pub(crate) struct CopyLoop {
    /// `host:port` of the source broker that leads every partition.
    pub(crate) source: String,
    /// The topic.
    pub(crate) topic: String,
    /// Its partitions, from 0.
    pub(crate) partitions: i32,
    /// The largest response to ask for, in bytes; the same for each partition.
    pub(crate) response_bytes: i32,
}

struct Partition {
    next_offset: i64,
    file: File,
    position: u64,
}

impl CopyLoop {
    /// Copies every partition up to the high watermark that its first answer shows, into one file for
    /// each in `into`.
    ///
    /// # Errors
    /// Where the source, the directory or a checksum fails.
    pub(crate) fn run(&self, into: &Path) -> io::Result<Copied> {
        let mut partitions = (0..self.partitions)
            .map(|index| {
                let file = File::create(into.join(format!("{}-{index}.log", self.topic)))?;
                Ok(Partition { next_offset: 0, file, position: 0 })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut stream = TcpStream::connect(&self.source)?;
        stream.set_nodelay(true)?;
        let (began, cpu_before) = (Instant::now(), cpu_seconds());
        let mut response = Vec::new();
        let (mut records, mut bytes) = (0, 0);
        loop {
            stream.write_all(&self.request(&partitions))?;
            read_frame(&mut stream, &mut response)?;
            let (copied, left) = take(&response, &mut partitions, &mut bytes)?;
            records += copied;
            if left == 0 {
                break;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        Ok(Copied { records, bytes, seconds, cpu_seconds: cpu_seconds() - cpu_before })
    }

    fn request(&self, partitions: &[Partition]) -> Vec<u8> {
        let mut body = Vec::with_capacity(128 + 16 * partitions.len());
        body.extend(1i16.to_be_bytes());
        body.extend(4i16.to_be_bytes());
        body.extend(7i32.to_be_bytes());
        put_string(&mut body, "copy-loop");
        body.extend((-1i32).to_be_bytes());
        body.extend(500i32.to_be_bytes());
        body.extend(1i32.to_be_bytes());
        body.extend(self.response_bytes.to_be_bytes());
        body.push(0);
        body.extend(1i32.to_be_bytes());
        put_string(&mut body, &self.topic);
        body.extend((partitions.len() as i32).to_be_bytes());
        for (index, partition) in partitions.iter().enumerate() {
            body.extend((index as i32).to_be_bytes());
            body.extend(partition.next_offset.to_be_bytes());
            body.extend(self.response_bytes.to_be_bytes());
        }
        let mut frame = (body.len() as i32).to_be_bytes().to_vec();
        frame.extend(body);
        frame
    }
}

fn put_string(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as i16).to_be_bytes());
    body.extend(text.as_bytes());
}

fn read_frame(stream: &mut TcpStream, response: &mut Vec<u8>) -> io::Result<()> {
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    response.resize(i32::from_be_bytes(size).max(0) as usize, 0);
    stream.read_exact(response)
}

/// Checks and writes what an answer holds; the records copied, and how many remain up to the high
/// watermarks.
fn take(response: &[u8], partitions: &mut [Partition], bytes: &mut u64) -> io::Result<(u64, i64)> {
    let mut at = 4 + 4;
    let (mut records, mut left) = (0, 0);
    for _ in 0..number::<4>(response, &mut at)? {
        let name = number::<2>(response, &mut at)?;
        at += name as usize;
        for _ in 0..number::<4>(response, &mut at)? {
            let index = number::<4>(response, &mut at)? as usize;
            let error = number::<2>(response, &mut at)?;
            let high_watermark = number::<8>(response, &mut at)?;
            at += 8;
            let aborted = number::<4>(response, &mut at)?.max(0) as usize;
            at += 16 * aborted;
            let length = number::<4>(response, &mut at)?.max(0) as usize;
            let batches = response.get(at..at + length).ok_or_else(|| bad("an answer cut short"))?;
            at += length;
            if error != 0 {
                return Err(bad(&format!("partition {index}: error {error}")));
            }
            let partition = partitions.get_mut(index).ok_or_else(|| bad("a partition not asked for"))?;
            let whole = check(batches, &mut partition.next_offset, &mut records)?;
            partition.file.write_all_at(&batches[..whole], partition.position)?;
            partition.position += whole as u64;
            *bytes += whole as u64;
            left += high_watermark - partition.next_offset;
        }
    }
    Ok((records, left))
}

/// Checks the CRC of every whole batch; the bytes they take.
fn check(batches: &[u8], next_offset: &mut i64, records: &mut u64) -> io::Result<usize> {
    let mut at = 0;
    while let Some(header) = batches.get(at..at + 61) {
        let mut field = 8;
        let size = 12 + number::<4>(header, &mut field)? as usize;
        let Some(batch) = batches.get(at..at + size) else { break };
        let mut field = 17;
        if number::<4>(header, &mut field)? as u32 != crc32c::crc32c(&batch[21..]) {
            return Err(bad("a checksum does not match"));
        }
        let (mut base, mut delta, mut count) = (0, 23, 57);
        *next_offset = number::<8>(header, &mut base)? + number::<4>(header, &mut delta)? + 1;
        *records += number::<4>(header, &mut count)? as u64;
        at += size;
    }
    Ok(at)
}

/// A signed number of `WIDTH` bytes, most significant first.
fn number<const WIDTH: usize>(bytes: &[u8], at: &mut usize) -> io::Result<i64> {
    let field = bytes.get(*at..*at + WIDTH).ok_or_else(|| bad("an answer cut short"))?;
    *at += WIDTH;
    let sign = if field[0] & 0x80 == 0 { 0 } else { -1 };
    Ok(field.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_signed_and_most_significant_first() {
        assert_eq!(number::<2>(&[0xff, 0xfe], &mut 0).ok(), Some(-2));
        assert_eq!(number::<4>(&[0, 0, 1, 2], &mut 0).ok(), Some(258));
        assert!(number::<4>(&[0, 0, 1], &mut 0).is_err());
    }
}
