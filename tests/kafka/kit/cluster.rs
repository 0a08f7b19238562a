//! A cluster as its answers on the wire show it: topics with ids, offsets, and the batches of each
//! partition as bytes.

use crate::raw::RawClient;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use tarn_wire::message::Request;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::metadata_response::MetadataResponseTopic;
use tarn_wire::messages::{
    ApiVersionsRequest, FetchRequest, FetchResponse, ListOffsetsRequest, MetadataRequest,
};
use uuid::Uuid;

/// The versions that are asked in, or the highest that an older broker has.
const METADATA_VERSION: i16 = 12;
const LIST_OFFSETS_VERSION: i16 = 7;
/// By topic id; no tagged fields that one side may lack.
const FETCH_VERSION: i16 = 13;
/// Every broker knows it.
const API_VERSIONS_VERSION: i16 = 0;
const FETCH_BYTES: i32 = 8 * 1024 * 1024;
/// Base offset and length.
const BATCH_PREFIX_BYTES: usize = 12;

/// Connections to the brokers of a cluster, made when they are needed.
#[derive(Debug)]
pub struct Cluster {
    bootstrap: RawClient,
    /// The highest version of each API; empty before the first question.
    versions: BTreeMap<i16, i16>,
    brokers: BTreeMap<i32, String>,
    connections: BTreeMap<i32, RawClient>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; nil at a cluster that has none.
    pub id: Uuid,
    /// Its partitions, by number.
    pub partitions: Vec<Partition>,
}

/// Who leads a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number.
    pub index: i32,
    /// The leader's node id; -1 where it has none.
    pub leader: i32,
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// The nodes that hold it.
    pub replicas: Vec<i32>,
    /// Those of them that are in sync.
    pub in_sync: Vec<i32>,
}

/// The offsets of a partition that a client can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The first.
    pub start: i64,
    /// After the last record that is replicated.
    pub high_watermark: i64,
    /// Before the first record of an open transaction.
    pub last_stable: i64,
}

/// A record batch as it came, with the header fields that say what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    /// All its bytes.
    pub bytes: Bytes,
}

impl Cluster {
    /// Connects to the first of a comma-separated list of addresses that answers.
    ///
    /// # Errors
    /// Where none does.
    pub fn try_connect(bootstrap: &str) -> Result<Cluster, String> {
        let mut failure = format!("{bootstrap} names no address");
        for address in bootstrap.split(',') {
            match RawClient::try_connect(address) {
                Ok(client) => {
                    return Ok(Cluster {
                        bootstrap: client,
                        versions: BTreeMap::new(),
                        brokers: BTreeMap::new(),
                        connections: BTreeMap::new(),
                    });
                }
                Err(error) => failure = format!("{address}: {error}"),
            }
        }
        Err(failure)
    }

    /// `try_connect` where one must answer.
    ///
    /// # Panics
    /// Where none does.
    pub fn connect(bootstrap: &str) -> Cluster {
        Cluster::try_connect(bootstrap).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every topic by name, internal ones included.
    ///
    /// # Errors
    /// A connection that ends; a topic in error.
    pub fn try_topics(&mut self) -> Result<Vec<Topic>, String> {
        let request =
            MetadataRequest { topics: None, allow_auto_topic_creation: false, ..Default::default() };
        let version = self.version_up_to::<MetadataRequest>(METADATA_VERSION)?;
        let response = self.bootstrap.try_call(version, &request)?;
        self.brokers = response
            .brokers
            .iter()
            .map(|broker| (broker.node_id, format!("{}:{}", &*broker.host, broker.port)))
            .collect();
        let mut topics: Vec<Topic> = response.topics.iter().map(topic).collect::<Result<_, _>>()?;
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// `try_topics`, without the internal ones.
    ///
    /// # Panics
    /// Where the cluster does not answer.
    pub fn topics(&mut self) -> Vec<Topic> {
        let topics = self.try_topics().unwrap_or_else(|error| panic!("{error}"));
        topics.into_iter().filter(|topic| !topic.name.starts_with("__")).collect()
    }

    /// One topic.
    ///
    /// # Panics
    /// Where it does not exist.
    pub fn topic(&mut self, name: &str) -> Topic {
        let found = self.topics().into_iter().find(|topic| topic.name == name);
        found.unwrap_or_else(|| panic!("there is no topic {name}"))
    }

    /// Whether the last answer about topics named this node as alive.
    pub fn knows_node(&self, id: i32) -> bool {
        self.brokers.contains_key(&id)
    }

    /// The offsets of a partition.
    ///
    /// # Errors
    /// A connection that ends, an error of the leader's.
    pub fn try_offsets(&mut self, topic: &Topic, partition: &Partition) -> Result<Offsets, String> {
        Ok(Offsets {
            start: self.offset_at(topic, partition, -2, 0)?,
            high_watermark: self.offset_at(topic, partition, -1, 0)?,
            last_stable: self.offset_at(topic, partition, -1, 1)?,
        })
    }

    /// `try_offsets` where the leader must answer.
    ///
    /// # Panics
    /// Where it does not.
    pub fn offsets(&mut self, topic: &Topic, partition: &Partition) -> Offsets {
        self.try_offsets(topic, partition).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The batches that begin the answer to a fetch at `offset`, without waiting: whole ones only.
    ///
    /// # Errors
    /// A connection that ends, an error of the leader's.
    pub fn try_batches_at(
        &mut self,
        topic: &Topic,
        partition: &Partition,
        offset: i64,
    ) -> Result<Vec<Batch>, String> {
        self.fetch(topic, partition, offset, 0)
    }

    /// Waits up to `wait_ms` for a record at `offset` and returns the batches that came.
    ///
    /// # Errors
    /// A connection that ends, an error of the leader's.
    pub fn try_await_batches_at(
        &mut self,
        topic: &Topic,
        partition: &Partition,
        offset: i64,
        wait_ms: i32,
    ) -> Result<Vec<Batch>, String> {
        self.fetch(topic, partition, offset, wait_ms)
    }

    fn fetch(
        &mut self,
        topic: &Topic,
        partition: &Partition,
        offset: i64,
        wait_ms: i32,
    ) -> Result<Vec<Batch>, String> {
        let request = fetch_request(topic, partition, offset, wait_ms);
        let version = self.version_up_to::<FetchRequest>(FETCH_VERSION)?;
        let response = self.leader(partition.leader)?.try_call(version, &request)?;
        whole_batches(fetched_records(&response, topic, partition)?)
    }

    /// `wanted`, or the highest version that the cluster has.
    fn version_up_to<R: Request>(&mut self, wanted: i16) -> Result<i16, String> {
        if self.versions.is_empty() {
            let known = self.bootstrap.try_call(API_VERSIONS_VERSION, &ApiVersionsRequest::default())?;
            self.versions = known.api_keys.iter().map(|api| (api.api_key, api.max_version)).collect();
        }
        let highest = self.versions.get(&R::KEY).ok_or_else(|| format!("{} is not served", R::NAME))?;
        Ok(wanted.min(*highest))
    }

    fn offset_at(
        &mut self,
        topic: &Topic,
        partition: &Partition,
        timestamp: i64,
        isolation: i8,
    ) -> Result<i64, String> {
        let asked =
            ListOffsetsPartition { partition_index: partition.index, timestamp, ..Default::default() };
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: isolation,
            topics: vec![ListOffsetsTopic { name: topic.name.as_str().into(), partitions: vec![asked] }],
            ..Default::default()
        };
        let version = self.version_up_to::<ListOffsetsRequest>(LIST_OFFSETS_VERSION)?;
        let response = self.leader(partition.leader)?.try_call(version, &request)?;
        let answer = response.topics.first().and_then(|topic| topic.partitions.first());
        let answer = answer.ok_or("ListOffsets: the partition is not in the answer")?;
        match answer.error_code {
            0 => Ok(answer.offset),
            code => Err(format!("ListOffsets {}-{}: error {code}", topic.name, partition.index)),
        }
    }

    /// The connection to a broker, known since the last answer about topics.
    fn leader(&mut self, id: i32) -> Result<&mut RawClient, String> {
        let address = self.brokers.get(&id).ok_or_else(|| format!("node {id} is not alive"))?;
        match self.connections.entry(id) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(none) => {
                let client =
                    RawClient::try_connect(address).map_err(|error| format!("{address}: {error}"))?;
                Ok(none.insert(client))
            }
        }
    }
}

fn topic(answer: &MetadataResponseTopic) -> Result<Topic, String> {
    let name = answer.name.as_deref().unwrap_or_default().to_string();
    if answer.error_code != 0 {
        return Err(format!("topic {name}: error {}", answer.error_code));
    }
    let mut partitions: Vec<Partition> = answer
        .partitions
        .iter()
        .map(|partition| Partition {
            index: partition.partition_index,
            leader: partition.leader_id,
            leader_epoch: partition.leader_epoch,
            replicas: partition.replica_nodes.clone(),
            in_sync: partition.isr_nodes.clone(),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.index);
    Ok(Topic { name, id: answer.topic_id, partitions })
}

fn fetch_request(topic: &Topic, partition: &Partition, offset: i64, wait_ms: i32) -> FetchRequest {
    let asked = FetchPartition {
        partition: partition.index,
        fetch_offset: offset,
        partition_max_bytes: FETCH_BYTES,
        ..Default::default()
    };
    FetchRequest {
        max_wait_ms: wait_ms,
        min_bytes: 1,
        max_bytes: FETCH_BYTES,
        topics: vec![FetchTopic {
            topic: topic.name.as_str().into(),
            topic_id: topic.id,
            partitions: vec![asked],
        }],
        ..Default::default()
    }
}

fn fetched_records(response: &FetchResponse, topic: &Topic, partition: &Partition) -> Result<Bytes, String> {
    let named = || format!("Fetch {}-{}", topic.name, partition.index);
    if response.error_code != 0 {
        return Err(format!("{}: error {}", named(), response.error_code));
    }
    let answer = response.responses.first().and_then(|topic| topic.partitions.first());
    let answer = answer.ok_or_else(|| format!("{}: the partition is not in the answer", named()))?;
    match answer.error_code {
        0 => Ok(answer.records.as_ref().and_then(|records| records.to_bytes()).unwrap_or_default()),
        code => Err(format!("{}: error {code}", named())),
    }
}

/// Cuts what a fetch returned into batches; the last may have been cut short, and is left out.
fn whole_batches(mut records: Bytes) -> Result<Vec<Batch>, String> {
    let mut batches = Vec::new();
    while records.len() >= BATCH_PREFIX_BYTES {
        let length = i32::from_be_bytes(field(&records, 8));
        let size = usize::try_from(length).map_err(|_| format!("a batch of {length} bytes"))?;
        let size = size + BATCH_PREFIX_BYTES;
        if records.len() < size {
            break;
        }
        batches.push(Batch { bytes: records.split_to(size) });
    }
    Ok(batches)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let slice = bytes.get(at..at + N).unwrap_or_else(|| panic!("a batch of only {} bytes", bytes.len()));
    slice.try_into().expect("the slice has that length")
}

impl Batch {
    /// The offset that its deltas count from.
    pub fn base_offset(&self) -> i64 {
        i64::from_be_bytes(field(&self.bytes, 0))
    }

    /// The offset after its last.
    pub fn next_offset(&self) -> i64 {
        self.base_offset() + i64::from(i32::from_be_bytes(field(&self.bytes, 23))) + 1
    }

    /// The epoch of the leader that appended it.
    pub fn leader_epoch(&self) -> i32 {
        i32::from_be_bytes(field(&self.bytes, 12))
    }

    /// The type of its control record; `None` for a batch of data.
    pub fn control_type(&self) -> Option<i16> {
        const CONTROL: i16 = 1 << 5;
        let attributes = i16::from_be_bytes(field(&self.bytes, 21));
        // Behind the header: length, attributes, two deltas and the key's length, a byte each in a batch of
        // one small record; the timestamp's delta is 0.
        (attributes & CONTROL != 0).then(|| i16::from_be_bytes(field(&self.bytes, 61 + 5 + 2)))
    }

    /// How many records it holds.
    pub fn record_count(&self) -> i32 {
        i32::from_be_bytes(field(&self.bytes, 57))
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "batch {}..{} of epoch {}, {} records, attributes {:#06x}, {} bytes, crc32c {:#010x}",
            self.base_offset(),
            self.next_offset(),
            self.leader_epoch(),
            self.record_count(),
            i16::from_be_bytes(field(&self.bytes, 21)),
            self.bytes.len(),
            crc32c::crc32c(&self.bytes)
        )
    }
}
