//! The speed of light of a broker that is read: threads that send one file with sendfile, whoever asks.
//!
//! All batches of the file have the same size and number of records, so that an offset is a position. At a pace the loop
//! shows the file batch by batch, as if producers wrote it, from the first request on; who asks for more than it shows
//! waits for the next batch.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::fs::sendfile;

use crate::batch::Shape;
use crate::broker_client::{Fields, bad};

const REQUEST_BYTES_MAX: usize = 1 << 20;
const FETCH: i64 = 1;
/// The first version with sessions; of those that have them, version 11 is spoken here.
const SESSIONS: i64 = 7;

/// The file, and what it is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Bytes of each batch.
    pub(crate) batch_bytes: u64,
    /// Records of each.
    pub(crate) batch_records: u64,
}

/// How the file is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    sent: Sent,
    /// All at once without it.
    batches_per_second: Option<f64>,
    began: OnceLock<Instant>,
}

impl Sent {
    /// Gives a command that runs the loop what it has to know of the file.
    pub(crate) fn arguments(self, command: &mut Command) {
        command.arg("send-loop").args(["--batch-bytes", &self.batch_bytes.to_string()]);
        command.args(["--batch-records", &self.batch_records.to_string()]);
    }
}

impl Shown {
    /// At once, or at this pace.
    pub(crate) fn new(sent: Sent, batches_per_second: Option<f64>) -> Shown {
        Shown { sent, batches_per_second, began: OnceLock::new() }
    }

    /// Of a file of so many bytes, those that are shown; waits until they are more than `from`, unless there are no
    /// more.
    fn length(&self, from: u64, length: u64) -> u64 {
        let Some(pace) = self.batches_per_second else { return length };
        let began = *self.began.get_or_init(Instant::now);
        if from >= length {
            return length;
        }
        let due = Duration::from_secs_f64((from / self.sent.batch_bytes + 1) as f64 / pace);
        sleep(due.saturating_sub(began.elapsed()));
        // A sleep ends late, never early, but the batches are counted in floating point.
        let batches = (began.elapsed().as_secs_f64() * pace) as u64;
        (batches * self.sent.batch_bytes).clamp(from + self.sent.batch_bytes, length)
    }
}

/// Writes so many of the batch, one after the other, to a file.
pub(crate) fn write_file(path: &Path, batch: &[u8], shape: Shape, batches: u64) -> io::Result<Sent> {
    let mut batch = batch.to_vec();
    let sent = Sent { batch_bytes: batch.len() as u64, batch_records: shape.records() as u64 };
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for number in 0..batches {
        batch[..8].copy_from_slice(&(number * sent.batch_records).to_be_bytes());
        file.write_all(&batch)?;
    }
    file.flush()?;
    Ok(sent)
}

/// Serves the file to each connection at `address`, until it is ended from outside.
pub(crate) fn run(address: &str, path: &Path, shown: Shown) -> io::Result<()> {
    let (listener, shown) = (TcpListener::bind(address)?, Arc::new(shown));
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let file = File::open(path)?;
        let shown = Arc::clone(&shown);
        // A connection ends with its client.
        thread::spawn(move || serve(stream, &file, &shown));
    }
}

fn serve(mut stream: TcpStream, file: &File, shown: &Shown) -> io::Result<()> {
    let (whole, sent) = (file.metadata()?.len(), shown.sent);
    loop {
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if size > REQUEST_BYTES_MAX {
            return Err(bad("a request of an impossible size"));
        }
        let mut request = vec![0; size];
        stream.read_exact(&mut request)?;
        let mut fields = Fields::new(&request);
        let (key, version) = (fields.number::<2>()?, fields.number::<2>()?);
        let correlation = fields.bytes(4)?;
        if key != FETCH {
            return Err(bad("a request that is no Fetch"));
        }
        fields.skip_string()?;
        // From version 7 on there are sessions, and more fields than in version 4.
        let in_session = version >= SESSIONS;
        // The replica, how long and for how much to wait, how much at most, the isolation; the session; the number
        // of topics.
        fields.bytes(if in_session { 29 } else { 21 })?;
        let topic = fields.string()?;
        fields.count()?;
        let index = fields.bytes(4)?;
        fields.bytes(if in_session { 4 } else { 0 })?;
        let offset = fields.number::<8>()?;
        fields.bytes(if in_session { 8 } else { 0 })?;
        let most = fields.number::<4>()?.max(0) as u64;
        let from = (offset.max(0) as u64 / sent.batch_records).saturating_mul(sent.batch_bytes).min(whole);
        let length = shown.length(from, whole);
        let bytes = (most / sent.batch_bytes).max(1) * sent.batch_bytes;
        let bytes = bytes.min(length - from);
        let mut head = Vec::new();
        head.extend(correlation);
        // No throttling; no error, the session; one topic.
        head.extend([0; 4]);
        head.extend(if in_session { &[0, 0, 0, 0, 0, 1][..] } else { &[] });
        head.extend([0, 0, 0, 1]);
        head.extend((topic.len() as i16).to_be_bytes());
        head.extend(topic);
        head.extend([0, 0, 0, 1]);
        head.extend(index);
        head.extend([0, 0]);
        let end = (length / sent.batch_bytes * sent.batch_records) as i64;
        head.extend(end.to_be_bytes());
        head.extend(end.to_be_bytes());
        // The start of the log; no aborted transactions, no better replica.
        head.extend(if in_session { &[0; 8][..] } else { &[] });
        head.extend((-1i32).to_be_bytes());
        head.extend(if in_session { &[0xff; 4][..] } else { &[] });
        head.extend((bytes as i32).to_be_bytes());
        stream.write_all(&((head.len() as u64 + bytes) as i32).to_be_bytes())?;
        stream.write_all(&head)?;
        let (mut at, until) = (from, from + bytes);
        while at < until {
            let left = (until - at) as usize;
            if sendfile(&stream, file, Some(&mut at), left)? == 0 {
                return Err(bad("the file has become shorter"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Codec;
    use crate::clients::{Fetching, Reading, read_topic};
    use crate::peers::free_address;

    #[test]
    fn a_reader_of_the_loop_gets_every_batch_of_the_file() {
        let path = std::env::temp_dir().join(format!("tarn-perf-sent-{}", std::process::id()));
        let shape = Shape { record_bytes: 100, batch_bytes: 2000 };
        let sent = write_file(&path, &shape.batch(Codec::None).unwrap(), shape, 9).unwrap();
        let address = free_address().unwrap();
        let (file, at) = (path.clone(), address.clone());
        thread::spawn(move || run(&at, &file, Shown::new(sent, None)));
        while TcpStream::connect(&address).is_err() {
            thread::yield_now();
        }
        let ends = [9 * shape.records() as i64];
        for fetching in [Fetching::Alone, Fetching::InSessions] {
            let reading = Reading { response_bytes: 5000, fetching, times: 2 };
            let read = read_topic(&address, "any", &ends, reading).unwrap();
            assert_eq!((read.bytes, read.requests), (2 * 9 * sent.batch_bytes, 2 * 5), "{fetching:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn at_a_pace_a_batch_is_shown_when_it_is_due() {
        let sent = Sent { batch_bytes: 10, batch_records: 1 };
        let shown = Shown::new(sent, Some(100.0));
        let began = Instant::now();
        // 30 bytes were there before; the fourth batch is due after 40 ms.
        let length = shown.length(30, 10_000);
        assert!(began.elapsed() >= Duration::from_millis(40));
        assert!(length >= 40 && length.is_multiple_of(10), "{length}");
        assert_eq!((shown.length(10_000, 10_000), shown.length(30, 40)), (10_000, 40));
        assert_eq!(Shown::new(sent, None).length(30, 10_000), 10_000);
    }
}
