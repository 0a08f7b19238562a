//! What a source has said of its partitions, heard by a relay between it and its mirror: the oracle of what a
//! report may claim to have known.

use crate::relay::Listener;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};
use tarn_wire::frame::{decode_request_header, decode_response_header};
use tarn_wire::message::{Cursor, Message, Records, Request};
use tarn_wire::messages::{FetchRequest, FetchResponse};
use uuid::Uuid;

/// A partition, by the id of its topic.
pub type Heard = (Uuid, i32);

/// A partition as a fetch names it: by the name of its topic or by the id, and its number.
pub type Asked = (String, Uuid, i32);

/// The fetches that passed, and what their answers said.
#[derive(Debug, Default)]
pub struct Overheard {
    connections: Mutex<BTreeMap<u64, Connection>>,
    known: Mutex<BTreeMap<Heard, Known>>,
    batches: Mutex<BTreeMap<Asked, usize>>,
}

/// What the source has last said of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The high watermark that it said, or the end of what it sent with it: it looks first, and reads then.
    pub high_watermark: i64,
    /// When the last answer passed that was about it; an incremental one is about all of its session.
    pub at_ms: i64,
}

#[derive(Debug, Default)]
struct Connection {
    asked: Vec<u8>,
    answered: Vec<u8>,
    /// The versions of fetches that are under way.
    fetches: BTreeMap<i32, i16>,
    /// The partitions of its fetch session.
    session: BTreeSet<Heard>,
}

impl Overheard {
    /// What was heard so far.
    ///
    /// # Panics
    /// Where what passed was not Kafka's protocol.
    pub fn known(&self) -> BTreeMap<Heard, Known> {
        self.known.lock().expect("what passed was Kafka's protocol").clone()
    }

    /// How many batches of each partition have passed, whole or cut short.
    ///
    /// # Panics
    /// Where what passed was not Kafka's protocol.
    pub fn batches(&self) -> BTreeMap<Asked, usize> {
        self.batches.lock().expect("what passed was Kafka's protocol").clone()
    }

    fn hear_request(connection: &mut Connection, frame: Vec<u8>) {
        if frame.get(..2) != Some(&FetchRequest::KEY.to_be_bytes()[..]) {
            return;
        }
        let mut cursor = Cursor::new(Bytes::from(frame));
        let header = decode_request_header(&mut cursor).expect("a header that the source would take");
        connection.fetches.insert(header.correlation_id, header.api_version);
        let request = FetchRequest::decode(&mut cursor, header.api_version)
            .expect("a fetch that the source would take");
        if request.session_epoch <= 0 {
            connection.session.clear();
        }
        for topic in &request.topics {
            connection
                .session
                .extend(topic.partitions.iter().map(|partition| (topic.topic_id, partition.partition)));
        }
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                connection.session.remove(&(topic.topic_id, *partition));
            }
        }
    }

    fn hear_response(&self, connection: &mut Connection, frame: Vec<u8>) {
        let correlation_id = frame.get(..4).map(|bytes| i32::from_be_bytes(bytes.try_into().expect("four")));
        let version = correlation_id.and_then(|id| connection.fetches.remove(&id));
        let Some(version) = version else { return };
        let mut cursor = Cursor::new(Bytes::from(frame));
        decode_response_header::<FetchResponse>(&mut cursor, version)
            .expect("a header that a client would take");
        let response =
            FetchResponse::decode(&mut cursor, version).expect("an answer that a client would take");
        if response.error_code != 0 {
            return;
        }
        let at_ms = now_ms();
        let mut known = self.known.lock().expect("no holder panics");
        for partition in &connection.session {
            if let Some(known) = known.get_mut(partition) {
                known.at_ms = at_ms;
            }
        }
        let mut batches = self.batches.lock().expect("no holder panics");
        for topic in &response.responses {
            for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
                let records = partition.records.as_ref().and_then(Records::to_bytes).unwrap_or_default();
                let sent = Sent::of(&records);
                let high_watermark = partition.high_watermark.max(sent.end);
                let index = partition.partition_index;
                known.insert((topic.topic_id, index), Known { high_watermark, at_ms });
                let asked = (topic.topic.to_string(), topic.topic_id, index);
                *batches.entry(asked).or_default() += sent.batches;
            }
        }
    }
}

impl Listener for Overheard {
    fn asked(&self, connection: u64, bytes: &[u8]) {
        let mut connections = self.connections.lock().expect("no holder panics");
        let connection = connections.entry(connection).or_default();
        connection.asked.extend_from_slice(bytes);
        while let Some(frame) = whole_frame(&mut connection.asked) {
            Overheard::hear_request(connection, frame);
        }
    }

    fn answered(&self, connection: u64, bytes: &[u8]) {
        let mut connections = self.connections.lock().expect("no holder panics");
        let connection = connections.entry(connection).or_default();
        connection.answered.extend_from_slice(bytes);
        while let Some(frame) = whole_frame(&mut connection.answered) {
            self.hear_response(connection, frame);
        }
    }
}

/// Takes the first frame, without its size, where all of it has passed.
fn whole_frame(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let size = i32::from_be_bytes(bytes.get(..4)?.try_into().ok()?);
    let end = 4 + usize::try_from(size).expect("a size that a server would take");
    if bytes.len() < end {
        return None;
    }
    let frame = bytes[4..end].to_vec();
    bytes.drain(..end);
    Some(frame)
}

/// What stands in the records of an answer.
#[derive(Default)]
struct Sent {
    /// How many batches begin there.
    batches: usize,
    /// The end of the last whole one, or 0.
    end: i64,
}

impl Sent {
    fn of(mut records: &[u8]) -> Sent {
        // A batch has its size behind its base offset, and the number of its last offset, counted from there, at 23.
        const BEFORE_SIZE: usize = 8;
        const BEHIND_SIZE: usize = 12;
        const LAST_OFFSET: usize = 23;
        let int = |at: &[u8]| i32::from_be_bytes(at[..4].try_into().expect("four"));
        let mut sent = Sent::default();
        while !records.is_empty() {
            sent.batches += 1;
            let size =
                records.get(BEFORE_SIZE..BEHIND_SIZE).map(int).and_then(|size| usize::try_from(size).ok());
            let Some(batch) = size.and_then(|size| records.get(..BEHIND_SIZE + size)) else { break };
            let base = i64::from_be_bytes(batch[..BEFORE_SIZE].try_into().expect("eight"));
            sent.end = base + i64::from(int(&batch[LAST_OFFSET..])) + 1;
            records = &records[batch.len()..];
        }
        sent
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    i64::try_from(since.as_millis()).expect("the clock is before 292278994")
}
