//! The speed of light of a broker that takes batches: one thread that receives, checks CRC-32C and writes.
//!
//! It keeps no index, no epochs, no state and no promise, so no broker on the same machine can be much cheaper.

use std::fs::{File, create_dir_all};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};

use crate::batch::{HEADER_BYTES, is_sound};
use crate::broker_client::{Fields, bad};

/// The largest request that is taken.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// What a connection has room for, unless a request is larger.
const ROOM_BYTES: usize = 256 << 10;
const PARTITIONS_MAX: usize = 1024;
const PRODUCE: i64 = 0;

/// What the loop serves.
#[derive(Debug)]
pub(crate) struct AppendLoop {
    listener: TcpListener,
    into: PathBuf,
    partitions: Vec<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    position: u64,
    end: i64,
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    filled: usize,
}

impl AppendLoop {
    /// Listens at `address`, and writes one file for each partition in `into`.
    pub(crate) fn new(address: &str, into: &Path) -> io::Result<AppendLoop> {
        create_dir_all(into)?;
        Ok(AppendLoop {
            listener: TcpListener::bind(address)?,
            into: into.to_owned(),
            partitions: Vec::new(),
        })
    }

    /// Serves until it is ended from outside, or fails.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut connections: Vec<Connection> = Vec::new();
        loop {
            let mut waits = vec![PollFd::new(&self.listener, PollFlags::IN)];
            waits.extend(connections.iter().map(|one| PollFd::new(&one.stream, PollFlags::IN)));
            poll(&mut waits, None)?;
            let ready: Vec<bool> = waits.iter().map(|one| !one.revents().is_empty()).collect();
            drop(waits);
            let mut ended = Vec::new();
            for (at, connection) in connections.iter_mut().enumerate() {
                if ready[at + 1] && !connection.serve(|request| self.answer(request))? {
                    ended.push(at);
                }
            }
            for at in ended.into_iter().rev() {
                connections.swap_remove(at);
            }
            if ready[0] {
                let (stream, _) = self.listener.accept()?;
                stream.set_nodelay(true)?;
                connections.push(Connection { stream, received: vec![0; ROOM_BYTES], filled: 0 });
            }
        }
    }

    /// Appends what a Produce v7 with one partition holds; the answer to it.
    fn answer(&mut self, request: &mut [u8]) -> io::Result<Vec<u8>> {
        let mut fields = Fields::new(request);
        let (key, _version) = (fields.number::<2>()?, fields.number::<2>()?);
        if key != PRODUCE {
            return Err(bad("a request that is no Produce"));
        }
        let mut answer = vec![0; 4];
        answer.extend(fields.bytes(4)?);
        fields.skip_string()?;
        fields.skip_string()?;
        // Who must have it, and for how long that may take; the number of topics.
        fields.bytes(10)?;
        let topic = fields.string()?.to_vec();
        fields.count()?;
        let index = usize::try_from(fields.number::<4>()?).unwrap_or(usize::MAX);
        let length = fields.count()?;
        fields.bytes(length)?;
        let at = request.len() - length;
        let base = self.append(index, &mut request[at..])?;
        answer.extend([0, 0, 0, 1]);
        answer.extend((topic.len() as i16).to_be_bytes());
        answer.extend(topic);
        answer.extend([0, 0, 0, 1]);
        answer.extend((index as i32).to_be_bytes());
        answer.extend([0, 0]);
        answer.extend(base.to_be_bytes());
        // No time, the log's start; no throttling.
        answer.extend((-1i64).to_be_bytes());
        answer.extend([0; 12]);
        let size = (answer.len() - 4) as i32;
        answer[..4].copy_from_slice(&size.to_be_bytes());
        Ok(answer)
    }

    fn append(&mut self, index: usize, batch: &mut [u8]) -> io::Result<i64> {
        if index >= PARTITIONS_MAX || batch.len() < HEADER_BYTES || !is_sound(batch) {
            return Err(bad("a batch that is not sound"));
        }
        while self.partitions.len() <= index {
            let file = File::create(self.into.join(format!("{}.log", self.partitions.len())))?;
            self.partitions.push(Log { file, position: 0, end: 0 });
        }
        let log = &mut self.partitions[index];
        let base = log.end;
        batch[..8].copy_from_slice(&base.to_be_bytes());
        log.file.write_all_at(batch, log.position)?;
        log.position += batch.len() as u64;
        log.end += Fields::new(&batch[HEADER_BYTES - 4..]).number::<4>()?;
        Ok(base)
    }
}

impl Connection {
    /// Reads once, and answers what is whole; `false` at the end of the connection.
    fn serve(&mut self, mut answer: impl FnMut(&mut [u8]) -> io::Result<Vec<u8>>) -> io::Result<bool> {
        let read = match self.stream.read(&mut self.received[self.filled..]) {
            Ok(0) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
            read => read?,
        };
        self.filled += read;
        let (mut at, mut answers) = (0, Vec::new());
        while let Some(size) = self.received[at..self.filled].first_chunk::<4>() {
            let size = 4 + usize::try_from(i32::from_be_bytes(*size)).unwrap_or(usize::MAX - 4);
            if size > REQUEST_BYTES_MAX {
                return Err(bad("a request of an impossible size"));
            }
            if at + size > self.filled {
                if size > self.received.len() {
                    self.received.resize(size, 0);
                }
                break;
            }
            answers.extend(answer(&mut self.received[at + 4..at + size])?);
            at += size;
        }
        self.received.copy_within(at..self.filled, 0);
        self.filled -= at;
        self.stream.write_all(&answers)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::batch::{Codec, Shape};
    use crate::broker_client::pipeline::{Acks, Pipeline};
    use crate::peers::free_address;

    #[test]
    fn what_a_producer_sends_is_in_the_files_of_the_loop() {
        let into = std::env::temp_dir().join(format!("tarn-perf-append-{}", std::process::id()));
        let address = free_address().unwrap();
        let append = AppendLoop::new(&address, &into).unwrap();
        thread::spawn(move || append.run());
        let shape = Shape { record_bytes: 100, batch_bytes: 2000 };
        let batch = shape.batch(Codec::None).unwrap();
        let mut left = 7;
        let partitions = ("topic", vec![1, 0]);
        let mut producer = Pipeline::connect(&address, partitions, Acks::One, &batch).unwrap();
        let more = || {
            left -= 1;
            left >= 0
        };
        assert_eq!(producer.run(2, more).unwrap(), 7);
        let (mut end, mut records) = (0, 0);
        let written = std::fs::read(into.join("1.log")).unwrap();
        let whole = crate::backlog::check_batches(&written, &mut end, &mut records).unwrap();
        assert_eq!((whole, written.len()), (4 * batch.len(), 4 * batch.len()));
        assert_eq!((end, records), (4 * shape.records() as i64, 4 * shape.records() as u64));
        std::fs::remove_dir_all(into).unwrap();
    }
}
