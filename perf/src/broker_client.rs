//! A blocking connection to a broker that knows a few requests, spelled out by hand: the measure shares no
//! code with what it measures. Those of clients are here, those that make and fill topics in `topics`, those
//! of mirrors in `mirrors`; `pipeline` is a producer with several requests under way, `session` a consumer's.
//!
//! Invariant: nothing in an answer is trusted; a length beyond the answer is an error.

mod mirrors;
pub(crate) mod pipeline;
pub(crate) mod session;
pub(crate) mod topics;

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The longest wait for a connection or the next bytes of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How long a broker may wait for something to fetch.
const FETCH_WAIT_MS: i32 = 500;

const UNKNOWN_TOPIC_OR_PARTITION: i64 = 3;
const LEADER_NOT_AVAILABLE: i64 = 5;
const NOT_LEADER: i64 = 6;
/// A timestamp that asks for the end of the log.
const LATEST: i64 = -1;

/// One connection; requests and answers take turns.
#[derive(Debug)]
pub(crate) struct BrokerClient {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl BrokerClient {
    /// Connects to `host:port`.
    pub(crate) fn connect(address: &str) -> io::Result<BrokerClient> {
        let resolved =
            address.to_socket_addrs()?.next().ok_or_else(|| bad(&format!("{address} is nowhere")))?;
        let stream = TcpStream::connect_timeout(&resolved, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BrokerClient { stream, answer: Vec::new() })
    }

    /// How many brokers serve in its cluster (Metadata v1, for no topic).
    pub(crate) fn brokers(&mut self) -> io::Result<usize> {
        let mut request = Request::new(3, 1);
        request.number32(0);
        self.ask(request)?;
        Fields::of_answer(&self.answer)?.count()
    }

    /// Asks for the metadata of a topic, or of all (Metadata v1).
    pub(crate) fn metadata(&mut self, topic: Option<&str>) -> io::Result<()> {
        let mut request = Request::new(3, 1);
        request.number32(topic.map_or(-1, |_| 1));
        if let Some(topic) = topic {
            request.string(topic);
        }
        self.ask(request)
    }

    /// The end of each partition's log as a client sees it (ListOffsets v1); `None` where the broker does
    /// not lead it, or not yet.
    pub(crate) fn end_offsets(&mut self, topic: &str, partitions: usize) -> io::Result<Vec<Option<i64>>> {
        let mut request = Request::new(2, 1);
        request.number32(-1);
        request.number32(1);
        request.string(topic);
        request.number32(partitions as i32);
        for index in 0..partitions {
            request.number32(index as i32);
            request.number64(LATEST);
        }
        self.ask(request)?;
        let mut ends = vec![None; partitions];
        let mut fields = Fields::of_answer(&self.answer)?;
        for _ in 0..fields.count()? {
            fields.skip_string()?;
            for _ in 0..fields.count()? {
                let (index, error) = (fields.number::<4>()?, fields.number::<2>()?);
                let (_timestamp, offset) = (fields.number::<8>()?, fields.number::<8>()?);
                let end = ends.get_mut(index as usize).ok_or_else(|| bad("a partition not asked for"))?;
                *end = match error {
                    0 => Some(offset),
                    UNKNOWN_TOPIC_OR_PARTITION | LEADER_NOT_AVAILABLE | NOT_LEADER => None,
                    error => return Err(bad(&format!("partition {index}: error {error}"))),
                };
            }
        }
        Ok(ends)
    }

    /// Fetches from each partition at its offset (Fetch v4), up to `response_bytes` in all, and hands over
    /// what came: the partition, its high watermark, and batches of which the last may be cut short.
    pub(crate) fn fetch(
        &mut self,
        topic: &str,
        offsets: &[i64],
        response_bytes: i32,
        take: impl FnMut(usize, i64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut request = Request::new(1, 4);
        request.number32(-1);
        request.number32(FETCH_WAIT_MS);
        request.number32(1);
        request.number32(response_bytes);
        request.0.push(0);
        request.number32(1);
        request.string(topic);
        request.number32(offsets.len() as i32);
        for (index, offset) in offsets.iter().enumerate() {
            request.number32(index as i32);
            request.number64(*offset);
            request.number32(response_bytes);
        }
        self.ask(request)?;
        let mut fields = Fields::of_answer(&self.answer)?;
        fields.number::<4>()?;
        // The last stable offset.
        fields.fetched(8, 0, take)
    }

    /// Sends a request and reads the whole answer.
    fn ask(&mut self, request: Request) -> io::Result<()> {
        self.stream.write_all(&request.framed())?;
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if size > ANSWER_BYTES_MAX {
            return Err(bad("an answer of an impossible size"));
        }
        self.answer.resize(size, 0);
        self.stream.read_exact(&mut self.answer)
    }
}

/// A request being written.
struct Request(Vec<u8>);

impl Request {
    fn new(api_key: i16, version: i16) -> Request {
        let mut request = Request(vec![0; 4]);
        request.0.extend(api_key.to_be_bytes());
        request.0.extend(version.to_be_bytes());
        request.number32(7);
        request.string("tarn-perf");
        request
    }

    fn number16(&mut self, number: i16) {
        self.0.extend(number.to_be_bytes());
    }

    fn number32(&mut self, number: i32) {
        self.0.extend(number.to_be_bytes());
    }

    fn number64(&mut self, number: i64) {
        self.0.extend(number.to_be_bytes());
    }

    fn string(&mut self, text: &str) {
        self.0.extend((text.len() as i16).to_be_bytes());
        self.0.extend(text.as_bytes());
    }

    fn framed(mut self) -> Vec<u8> {
        let size = (self.0.len() - 4) as i32;
        self.0[..4].copy_from_slice(&size.to_be_bytes());
        self.0
    }
}

/// The fields of an answer, in their order. Numbers are signed, most significant byte first.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Fields from the first of these bytes on.
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    /// Those after the correlation id.
    fn of_answer(answer: &'a [u8]) -> io::Result<Fields<'a>> {
        let mut fields = Fields::new(answer);
        fields.number::<4>()?;
        Ok(fields)
    }

    /// A number of `WIDTH` bytes.
    pub(crate) fn number<const WIDTH: usize>(&mut self) -> io::Result<i64> {
        let field = self.bytes(WIDTH)?;
        let sign = if field[0] & 0x80 == 0 { 0 } else { -1 };
        Ok(field.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
    }

    /// So many bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(length).ok_or_else(|| bad("an answer cut short"))?;
        self.rest = rest;
        Ok(field)
    }

    /// The number of elements or bytes that follow; null is none.
    pub(crate) fn count(&mut self) -> io::Result<usize> {
        Ok(self.number::<4>()?.max(0) as usize)
    }

    /// The topics of a fetch's answer: hands over of each partition its number, its high watermark and its batches. What
    /// lies after the watermark and after the aborted transactions, so many bytes each, is left out.
    fn fetched(
        &mut self,
        after_watermark: usize,
        after_aborted: usize,
        mut take: impl FnMut(usize, i64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for _ in 0..self.count()? {
            self.skip_string()?;
            for _ in 0..self.count()? {
                let (index, error) = (self.number::<4>()?, self.number::<2>()?);
                let high_watermark = self.number::<8>()?;
                self.bytes(after_watermark)?;
                let aborted = self.count()?;
                self.bytes(16 * aborted + after_aborted)?;
                let length = self.count()?;
                let batches = self.bytes(length)?;
                if error != 0 {
                    return Err(bad(&format!("partition {index}: error {error}")));
                }
                take(index as usize, high_watermark, batches)?;
            }
        }
        Ok(())
    }

    /// Null is empty.
    pub(crate) fn string(&mut self) -> io::Result<&'a [u8]> {
        let length = self.number::<2>()?.max(0) as usize;
        self.bytes(length)
    }

    pub(crate) fn skip_string(&mut self) -> io::Result<()> {
        self.string().map(|_| ())
    }
}

/// An answer that makes no sense.
pub(crate) fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn numbers_are_signed_and_most_significant_first() {
        assert_eq!(Fields::new(&[0xff, 0xfe]).number::<2>().ok(), Some(-2));
        assert_eq!(Fields::new(&[0, 0, 1, 2]).number::<4>().ok(), Some(258));
        assert!(Fields::new(&[0, 0, 1]).number::<4>().is_err());
    }

    /// A broker that gives one answer, whatever it is asked.
    fn broker_that_answers(body: Vec<u8>) -> BrokerClient {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut size = [0; 4];
            stream.read_exact(&mut size).unwrap();
            let mut request = vec![0; i32::from_be_bytes(size) as usize];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&(body.len() as i32 + 4).to_be_bytes()).unwrap();
            stream.write_all(&[0, 0, 0, 7]).unwrap();
            stream.write_all(&body).unwrap();
        });
        BrokerClient::connect(&address).unwrap()
    }

    fn ends_of(partitions: &[(i32, i16, i64)]) -> Vec<u8> {
        let mut body = Request(Vec::new());
        body.number32(1);
        body.string("t");
        body.number32(partitions.len() as i32);
        for (index, error, offset) in partitions {
            body.number32(*index);
            body.0.extend(error.to_be_bytes());
            body.number64(-1);
            body.number64(*offset);
        }
        body.0
    }

    #[test]
    fn a_partition_that_is_not_led_yet_has_no_end() {
        let mut broker = broker_that_answers(ends_of(&[(1, 0, 42), (0, 3, -1)]));
        assert_eq!(broker.end_offsets("t", 2).unwrap(), [None, Some(42)]);
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_an_error() {
        assert!(broker_that_answers(ends_of(&[(9, 0, 42)])).end_offsets("t", 2).is_err());
        assert!(broker_that_answers(ends_of(&[(0, 29, -1)])).end_offsets("t", 2).is_err());
        let cut = ends_of(&[(0, 0, 42)]).split_last().unwrap().1.to_vec();
        assert!(broker_that_answers(cut).end_offsets("t", 2).is_err());
    }
}
