//! A blocking Kafka client that shows everything: one connection, one request at a time, and bytes of
//! any kind where a test needs them.

use bytes::Bytes;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tarn_wire::frame::{decode_response_header, encode_request};
use tarn_wire::message::{Cursor, Message, Request};
use tarn_wire::messages::ProduceRequest;
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};

const PATIENCE: Duration = Duration::from_secs(30);
const CLIENT_ID: &str = "tarn-tests";

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    address: String,
    stream: TcpStream,
    correlation_id: i32,
}

impl RawClient {
    /// Connects to `HOST:PORT`. Reads end with an error after 30 seconds of silence.
    ///
    /// # Errors
    /// Where nothing listens.
    pub fn try_connect(address: &str) -> io::Result<RawClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(RawClient { address: address.to_string(), stream, correlation_id: 0 })
    }

    /// `try_connect` where something must listen.
    ///
    /// # Panics
    /// Where nothing does.
    pub fn connect(address: &str) -> RawClient {
        RawClient::try_connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// A connection that ends, or an answer that is not one.
    pub fn try_call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, String> {
        let address = self.address.clone();
        let describe = |error: String| format!("{} v{version} to {address}: {error}", R::NAME);
        let frame = self.encoded(version, request);
        self.send(&frame).map_err(|error| describe(error.to_string()))?;
        let answer = self.receive().map_err(|error| describe(error.to_string()))?;
        let answer = answer.ok_or_else(|| describe("the connection was closed".into()))?;
        let mut cursor = Cursor::new(answer);
        let answered = decode_response_header::<R::Response>(&mut cursor, version)
            .map_err(|error| describe(error.to_string()))?;
        if answered != self.correlation_id {
            return Err(describe(format!("the answer is for request {answered}")));
        }
        let response =
            R::Response::decode(&mut cursor, version).map_err(|error| describe(error.to_string()))?;
        match cursor.remaining() {
            0 => Ok(response),
            left => Err(describe(format!("{left} bytes follow the response"))),
        }
    }

    /// `try_call` where it must succeed.
    ///
    /// # Panics
    /// Where it does not.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.try_call(version, request).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The frame of a request, its four bytes of size included, with the next correlation id.
    ///
    /// # Panics
    /// Where the request cannot be written in `version`.
    pub fn encoded<R: Request>(&mut self, version: i16, request: &R) -> Vec<u8> {
        self.correlation_id += 1;
        let frame = encode_request(self.correlation_id, CLIENT_ID, version, request)
            .unwrap_or_else(|error| panic!("{} v{version}: {error}", R::NAME));
        frame.to_bytes().expect("a test's request holds no file").to_vec()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Where the connection has ended.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame without its size; `None` where the peer has closed the connection.
    ///
    /// # Errors
    /// After 30 seconds of silence.
    pub fn receive(&mut self) -> io::Result<Option<Bytes>> {
        let mut size = [0; 4];
        if let Err(error) = self.stream.read_exact(&mut size) {
            return if is_closed(&error) { Ok(None) } else { Err(error) };
        }
        let size = usize::try_from(i32::from_be_bytes(size)).map_err(io::Error::other)?;
        let mut frame = Vec::new();
        (&self.stream).take(size as u64).read_to_end(&mut frame)?;
        if frame.len() < size {
            return Ok(None);
        }
        Ok(Some(frame.into()))
    }

    /// Says that no more will be sent.
    ///
    /// # Errors
    /// Where the connection has ended.
    pub fn end_sending(&mut self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Waits until the peer closes the connection; what it sends until then is returned.
    ///
    /// # Errors
    /// After `limit` of silence.
    pub fn read_to_close(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        self.stream.set_read_timeout(Some(limit))?;
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if !is_closed(&error) => Err(error),
            _ => Ok(bytes),
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// A request, of a version that names topics, that writes a batch to partition 0 with acks=all.
pub fn produce_request(topic: &str, batch: Bytes) -> ProduceRequest {
    let data = PartitionProduceData { index: 0, records: Some(batch.into()) };
    let topic = TopicProduceData { name: topic.into(), partition_data: vec![data], ..Default::default() };
    ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() }
}
