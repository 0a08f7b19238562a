//! The speed of light of a broker that is read: threads that send one file with sendfile, whoever asks.
//!
//! All batches of the file have the same size and number of records, so that an offset is a position.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

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
pub(crate) fn run(address: &str, path: &Path, sent: Sent) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let file = File::open(path)?;
        // A connection ends with its client.
        thread::spawn(move || serve(stream, &file, sent));
    }
}

fn serve(mut stream: TcpStream, file: &File, sent: Sent) -> io::Result<()> {
    let length = file.metadata()?.len();
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
        let from = (offset.max(0) as u64 / sent.batch_records * sent.batch_bytes).min(length);
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
    use crate::clients::{Fetching, read_topic};
    use crate::peers::free_address;

    #[test]
    fn a_reader_of_the_loop_gets_every_batch_of_the_file() {
        let path = std::env::temp_dir().join(format!("tarn-perf-sent-{}", std::process::id()));
        let shape = Shape { record_bytes: 100, batch_bytes: 2000 };
        let sent = write_file(&path, &shape.batch(Codec::None).unwrap(), shape, 9).unwrap();
        let address = free_address().unwrap();
        let (file, at) = (path.clone(), address.clone());
        thread::spawn(move || run(&at, &file, sent));
        while TcpStream::connect(&address).is_err() {
            thread::yield_now();
        }
        let ends = [9 * shape.records() as i64];
        for fetching in [Fetching::Alone, Fetching::InSessions] {
            let read = read_topic(&address, "any", &ends, (5000, fetching)).unwrap();
            assert_eq!((read.bytes, read.requests), (9 * sent.batch_bytes, 5), "{fetching:?}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
