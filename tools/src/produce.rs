//! `tarn produce`: keyed lines, or generated records, into a topic.
//!
//! The producer is idempotent: a batch is sent again under its sequence numbers until it is answered, so
//! that nothing is written twice.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write, stdout};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use tarn_record::{
    BatchBuilder, Compression, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp,
};
use tarn_runtime::channel::{Receiver, mailbox};
use tarn_runtime::{sleep, wall_clock_ms};
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::messages::{InitProducerIdRequest, ProduceRequest};
use tarn_wire::{ErrorCode, Records};

use crate::admin::{Cluster, PATIENCE, PAUSE, Topic, by_leader, on_core};
use crate::connect::ConnectArguments;
use crate::failure::Failure;
use crate::generate;
use crate::partitioner::partition_of;
use crate::progress::{Line, thousands};

/// What to write, and where.
#[derive(Debug, Args)]
#[command(
    after_help = "Each line of standard input is a record. What stands before the first separator is its \
                        key; a line without one has no key. Keys choose partitions as Kafka's Java client does."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// The topic, which must be there
    #[arg(long)]
    topic: String,
    /// Write to this partition, whatever the keys
    #[arg(long)]
    partition: Option<i32>,
    /// Compress batches: none, gzip, snappy, lz4 or zstd
    #[arg(long, value_name = "CODEC", default_value = "none")]
    codec: Compression,
    /// What parts key and value in a line
    #[arg(long, value_name = "TEXT", default_value = ":")]
    key_separator: String,
    /// Write so many generated records instead of lines
    #[arg(long, value_name = "RECORDS")]
    count: Option<u64>,
    /// The size of each generated value
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: usize,
}

/// The largest generated value; a broker takes much less by default.
const VALUE_BYTES_MAX: usize = 100 << 20;

/// What is gathered of one partition before it is sent, uncompressed.
const BATCH_BYTES: usize = 256 << 10;

/// What is gathered of all partitions before it is sent.
const GATHERED_BYTES_MAX: usize = 2 << 20;

/// Lines that wait between standard input and the producer.
const LINES_WAITING_MAX: usize = 1000;

/// How long a broker may take to have a batch on all its replicas.
const PRODUCE_TIMEOUT_MS: i32 = 30_000;

/// The newest version that names topics rather than their ids.
const VERSION_BY_NAME: i16 = 12;

/// Writes what was asked and says how much that was.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let topic = arguments.topic.clone();
    if arguments.value_bytes > VALUE_BYTES_MAX {
        return Err(Failure::Usage(format!("--value-bytes must not be above {VALUE_BYTES_MAX}")));
    }
    let written = on_core(move || produce(arguments))?;
    Ok(writeln!(stdout().lock(), "Wrote {} records to {topic}.", thousands(written as i64))?)
}

async fn produce(arguments: Arguments) -> Result<u64, Failure> {
    let cluster = Cluster::connect(&arguments.connect).await?;
    let topic = topic_with_leaders(&cluster, &arguments).await?;
    let mut producer = Producer::begin(cluster, topic, &arguments).await?;
    match arguments.count {
        Some(count) => {
            let line = Line::bar(count, "records");
            for number in 0..count {
                let (key, value) = generate::record(number, arguments.value_bytes);
                producer.add(Some(&key), &value).await?;
                line.advance(1);
            }
        }
        None => {
            let mut lines = lines_of_stdin();
            let mut waiting = Vec::new();
            while lines.recv_many(&mut waiting, LINES_WAITING_MAX).await > 0 {
                for line in waiting.drain(..) {
                    let line = line?;
                    let (key, value) = key_and_value(&line, arguments.key_separator.as_bytes());
                    producer.add(key, value).await?;
                }
                producer.flush().await?;
            }
        }
    }
    producer.flush().await?;
    Ok(producer.written)
}

async fn topic_with_leaders(cluster: &Cluster, arguments: &Arguments) -> Result<Topic, Failure> {
    let name = &arguments.topic;
    let Some(topic) = cluster.topic(name).await? else {
        let bootstrap = &arguments.connect.bootstrap_server[0];
        return Err(Failure::Failed(format!(
            "there is no topic {name}: `tarn topics create --bootstrap-server {bootstrap} --topic {name}` makes it"
        )));
    };
    match arguments.partition {
        Some(partition) if !topic.leaders.contains_key(&partition) => Err(Failure::Failed(format!(
            "{name} has no partition {partition}: its partitions are 0 to {}",
            topic.leaders.len().saturating_sub(1)
        ))),
        _ => Ok(topic),
    }
}

/// An id for this producer. A cluster that has just started may need a moment to have one.
async fn producer_id(cluster: &Cluster) -> Result<(ProducerId, ProducerEpoch), Failure> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..InitProducerIdRequest::default()
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = cluster.call(&request).await?;
        if !ErrorCode(answer.error_code).is_retriable() || Instant::now() >= deadline {
            Failure::check(answer.error_code, None)?;
            return Ok((ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch)));
        }
        sleep(PAUSE).await;
    }
}

/// Lines are read on a thread of their own, so that a person may take as long as they like.
fn lines_of_stdin() -> Receiver<io::Result<Vec<u8>>> {
    let (lines, receiver) = mailbox(LINES_WAITING_MAX);
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            if lines.send_blocking(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn key_and_value<'a>(line: &'a [u8], separator: &[u8]) -> (Option<&'a [u8]>, &'a [u8]) {
    let at = match separator {
        [] => None,
        separator => line.windows(separator.len()).position(|window| window == separator),
    };
    match at {
        Some(at) => (Some(&line[..at]), &line[at + separator.len()..]),
        None => (None, line),
    }
}

/// Gathers records into batches, one for each partition, and sends them.
#[derive(Debug)]
struct Producer {
    cluster: Cluster,
    topic: Topic,
    codec: Compression,
    /// Where everything goes, if the caller has said so.
    partition: Option<i32>,
    /// Where the next record without a key goes.
    without_key: i32,
    id: ProducerId,
    epoch: ProducerEpoch,
    sequences: BTreeMap<i32, Sequence>,
    open: BTreeMap<i32, BatchBuilder>,
    gathered_bytes: usize,
    written: u64,
}

impl Producer {
    async fn begin(cluster: Cluster, topic: Topic, arguments: &Arguments) -> Result<Producer, Failure> {
        let (id, epoch) = producer_id(&cluster).await?;
        Ok(Producer {
            cluster,
            topic,
            codec: arguments.codec,
            partition: arguments.partition,
            without_key: 0,
            id,
            epoch,
            sequences: BTreeMap::new(),
            open: BTreeMap::new(),
            gathered_bytes: 0,
            written: 0,
        })
    }

    /// Takes a record; sends where enough has been gathered.
    async fn add(&mut self, key: Option<&[u8]>, value: &[u8]) -> Result<(), Failure> {
        let partition = self.partition_for(key);
        let now = Timestamp(wall_clock_ms());
        let (id, epoch, codec) = (self.id, self.epoch, self.codec);
        let sequence = *self.sequences.entry(partition).or_insert(Sequence(0));
        let batch = self.open.entry(partition).or_insert_with(|| {
            BatchBuilder::new(Offset(0), codec).timestamp(now).producer(id, epoch, sequence)
        });
        let before = batch.uncompressed_size();
        batch.add(&Record { key, value: Some(value), headers: &[], timestamp: now });
        let size = batch.uncompressed_size();
        self.gathered_bytes += size - before;
        match size >= BATCH_BYTES || self.gathered_bytes >= GATHERED_BYTES_MAX {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    fn partition_for(&mut self, key: Option<&[u8]>) -> i32 {
        let count = i32::try_from(self.topic.leaders.len()).unwrap_or(i32::MAX);
        match (self.partition, key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_of(key, count),
            (None, None) => {
                self.without_key = (self.without_key + 1) % count.max(1);
                self.without_key
            }
        }
    }

    /// Sends everything, and waits until all of it is answered.
    async fn flush(&mut self) -> Result<(), Failure> {
        let mut batches = BTreeMap::new();
        for (partition, batch) in std::mem::take(&mut self.open) {
            let records = batch.record_count();
            let next = self.sequences.entry(partition).or_insert(Sequence(0));
            *next = next.plus(records);
            self.written += u64::try_from(records).unwrap_or_default();
            batches.insert(partition, batch.build());
        }
        self.gathered_bytes = 0;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let failed = self.send(&mut batches).await;
            if batches.is_empty() {
                return Ok(());
            }
            match failed {
                Err(Rejected::ForGood(failure)) => return Err(failure),
                Err(Rejected::ForNow(failure)) if Instant::now() >= deadline => return Err(failure),
                _ if Instant::now() >= deadline => {
                    return Err(Failure::Failed(format!("a partition of {} has no leader", self.topic.name)));
                }
                _ => sleep(PAUSE).await,
            }
            if let Ok(Some(topic)) = self.cluster.topic(&self.topic.name).await {
                self.topic = topic;
            }
        }
    }

    /// Sends each batch to its leader and removes those that were taken.
    async fn send(&self, batches: &mut BTreeMap<i32, Bytes>) -> Result<(), Rejected> {
        let partitions: Vec<i32> = batches.keys().copied().collect();
        for (leader, partitions) in by_leader(&self.topic, &partitions) {
            let connection = self.cluster.broker(leader).await.map_err(Rejected::ForNow)?;
            let version = connection.version_for::<ProduceRequest>().map_err(Rejected::for_good)?;
            let version = if self.topic.id.is_zero() { version.min(VERSION_BY_NAME) } else { version };
            let request = self.request(&partitions, batches);
            let answer = match connection.call_at(&request, version).await {
                Ok(answer) => answer,
                Err(error) if connection.is_closed() => return Err(Rejected::ForNow(error.into())),
                Err(error) => return Err(Rejected::for_good(error)),
            };
            for partition in answer.responses.iter().flat_map(|topic| &topic.partition_responses) {
                match ErrorCode(partition.error_code) {
                    ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER => {
                        batches.remove(&partition.index);
                    }
                    code => {
                        let failure = Failure::answered(code, partition.error_message.as_deref());
                        return Err(match code.is_retriable() {
                            true => Rejected::ForNow(failure),
                            false => Rejected::ForGood(failure),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn request(&self, partitions: &[i32], batches: &BTreeMap<i32, Bytes>) -> ProduceRequest {
        let data = partitions.iter().filter_map(|index| {
            let records = Some(Records::from(batches.get(index)?.clone()));
            Some(PartitionProduceData { index: *index, records })
        });
        let topic = TopicProduceData {
            name: self.topic.name.as_str().into(),
            topic_id: self.topic.id.0,
            partition_data: data.collect(),
        };
        ProduceRequest {
            acks: -1,
            timeout_ms: PRODUCE_TIMEOUT_MS,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        }
    }
}

/// Why a batch was not taken.
#[derive(Debug)]
enum Rejected {
    /// It is worth another try.
    ForNow(Failure),
    /// It is not.
    ForGood(Failure),
}

impl Rejected {
    fn for_good(error: impl Into<Failure>) -> Rejected {
        Rejected::ForGood(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parted_at_the_first_separator() {
        assert_eq!(key_and_value(b"a:b:c", b":"), (Some(&b"a"[..]), &b"b:c"[..]));
        assert_eq!(key_and_value(b":v", b":"), (Some(&b""[..]), &b"v"[..]));
        assert_eq!(key_and_value(b"k=>v", b"=>"), (Some(&b"k"[..]), &b"v"[..]));
        assert_eq!(key_and_value(b"no key", b":"), (None, &b"no key"[..]));
        assert_eq!(key_and_value(b"a:b", b""), (None, &b"a:b"[..]));
    }
}
