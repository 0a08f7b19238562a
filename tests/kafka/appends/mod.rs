//! The same batches, odd ones too, to Apache Kafka and to Tarn: which are taken, what is said of the others,
//! and what is in the logs then.

mod batches;
mod making;
mod markers;
mod producers;
mod recompressed;

use std::time::Duration;

use bytes::Bytes;
use tarn_tests::cluster::{Batch, Cluster};
use tarn_tests::raw::RawClient;
use tarn_tests::tools::tool;
use tarn_tests::waiting::until_some;
use tarn_wire::messages::ProduceRequest;
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};

use crate::side_by_side::SideBySide;
use making::THEN;

/// The last version that names topics by name.
const BY_NAME: i16 = 12;

/// Kafka would ask its coordinator about transactions of which it knows nothing; Tarn has none yet.
const UNVERIFIED: (&str, &str) = ("transaction.partition.verification.enable", "false");

/// How long a new partition may take to be led.
const LED: Duration = Duration::from_secs(20);

const DAY_MS: i64 = 86_400_000;

/// Both, each with a client.
struct Both {
    nodes: SideBySide,
    kafka: RawClient,
    tarn: RawClient,
}

/// One produce request for one partition.
struct Sent<'a> {
    topic: &'a str,
    partition: i32,
    version: i16,
    acks: i16,
    transactional_id: Option<&'a str>,
    records: Option<Bytes>,
}

impl<'a> Sent<'a> {
    /// With acks=all, in the newest version.
    fn to(topic: &'a str, partition: i32, records: Bytes) -> Sent<'a> {
        let (version, acks, transactional_id) = (BY_NAME, -1, None);
        Sent { topic, partition, version, acks, transactional_id, records: Some(records) }
    }

    fn request(&self) -> ProduceRequest {
        let data = PartitionProduceData {
            index: self.partition,
            records: self.records.clone().map(Into::into),
            ..Default::default()
        };
        ProduceRequest {
            transactional_id: self.transactional_id.map(Into::into),
            acks: self.acks,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: self.topic.into(),
                partition_data: vec![data],
                ..Default::default()
            }],
        }
    }
}

impl Both {
    fn start(of_kafka: &[(&str, &str)]) -> Both {
        let nodes = SideBySide::start_with(of_kafka);
        let (kafka, tarn) =
            (RawClient::connect(&nodes.kafka.bootstrap()), RawClient::connect(&nodes.tarn.bootstrap()));
        Both { nodes, kafka, tarn }
    }

    /// Creates a topic on both.
    fn create(&self, topic: &str, partitions: usize, configs: &[&str]) {
        for bootstrap in [self.nodes.kafka.bootstrap(), self.nodes.tarn.bootstrap()] {
            let partitions = partitions.to_string();
            let mut arguments = vec!["--bootstrap-server", &bootstrap, "--create", "--topic", topic];
            arguments.extend(["--partitions", &partitions]);
            arguments.extend(["--config", "retention.ms=-1"]);
            configs.iter().for_each(|config| arguments.extend(["--config", config]));
            tool("TopicCommand", &arguments).ok();
        }
        self.await_led(topic);
    }

    /// Kills both, starts them again and waits until the partitions are led.
    fn restart(&mut self) {
        self.nodes.kafka.kill();
        self.nodes.tarn.kill();
        self.nodes.kafka.start_again();
        self.nodes.tarn.start_again();
        self.await_led("t");
        self.kafka = RawClient::connect(&self.nodes.kafka.bootstrap());
        self.tarn = RawClient::connect(&self.nodes.tarn.bootstrap());
    }

    fn await_led(&self, topic: &str) {
        for bootstrap in [self.nodes.kafka.bootstrap(), self.nodes.tarn.bootstrap()] {
            until_some("all partitions to be led", LED, || {
                let mut cluster = Cluster::try_connect(&bootstrap)?;
                let topics = cluster.try_topics()?;
                let topic =
                    topics.iter().find(|known| known.name == topic).ok_or("the topic is not there")?;
                let mut empty = |partition| cluster.try_batches_at(topic, partition, 0);
                topic.partitions.iter().try_for_each(|partition| empty(partition).map(drop))
            });
        }
    }

    /// What Kafka and Tarn answer.
    fn send(&mut self, sent: &Sent<'_>) -> [Said; 2] {
        [answer(&mut self.kafka, sent), answer(&mut self.tarn, sent)]
    }

    /// The batches in a partition of Kafka's and of Tarn's.
    fn logs(&self, topic: &str, partition: usize) -> [Vec<Batch>; 2] {
        [self.nodes.kafka.bootstrap(), self.nodes.tarn.bootstrap()].map(|bootstrap| {
            let mut cluster = Cluster::connect(&bootstrap);
            let topic = cluster.topic(topic);
            cluster
                .try_batches_at(&topic, &topic.partitions[partition], 0)
                .unwrap_or_else(|error| panic!("{bootstrap}: {error}"))
        })
    }
}

/// What is said of an append, but for the words of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    error: i16,
    base_offset: i64,
    /// Where the log starts; none for what is refused: Kafka says it or not by which of its layers refuses.
    log_start: Option<i64>,
    /// The timestamp of the append; `Err` for one of this run.
    time: Result<i64, Now>,
    bad_records: Vec<i32>,
    message: Option<String>,
}

/// A time that no two runs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Now;

/// What differs, said all at once.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    /// Compares answers. Tarn may have words for an error where Kafka has none, and has a code, one that is for good,
    /// where an exception that nobody caught makes Kafka say UNKNOWN_SERVER_ERROR.
    fn answers(&mut self, name: &str, [kafka, tarn]: [Said; 2]) {
        const UNKNOWN_SERVER_ERROR: i16 = -1;
        const INVALID_RECORD: i16 = 87;
        const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
        let for_good = [INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE].contains(&tarn.error);
        let error = if kafka.error == UNKNOWN_SERVER_ERROR && for_good { tarn.error } else { kafka.error };
        let kafka = Said { error, ..kafka };
        let without_words = |said: &Said| Said { message: None, ..said.clone() };
        let lacks_words = kafka.message.is_some() && tarn.message.is_none();
        if without_words(&kafka) != without_words(&tarn) || lacks_words {
            self.0.push(format!("{name}:\n  Kafka: {kafka:?}\n  Tarn:  {tarn:?}"));
        }
    }

    /// What Kafka takes, and Tarn must refuse.
    fn stricter(&mut self, name: &str, [kafka, tarn]: [Said; 2]) {
        if kafka.error != 0 || tarn.error != 87 {
            self.0
                .push(format!("{name} is not refused by Tarn alone:\n  Kafka: {kafka:?}\n  Tarn:  {tarn:?}"));
        }
    }

    /// Compares anything else.
    fn things<T: std::fmt::Debug + PartialEq>(&mut self, name: &str, [kafka, tarn]: [T; 2]) {
        if kafka != tarn {
            self.0.push(format!("{name}:\n  Kafka: {kafka:?}\n  Tarn:  {tarn:?}"));
        }
    }

    fn judge(self) {
        assert!(self.0.is_empty(), "{} differ:\n{}", self.0.len(), self.0.join("\n"));
    }
}

/// Sends a request: what is said of it.
fn answer(client: &mut RawClient, sent: &Sent<'_>) -> Said {
    let response = client.call(sent.version, &sent.request());
    let said = &response.responses[0].partition_responses[0];
    let is_now = said.log_append_time_ms > THEN + DAY_MS;
    Said {
        error: said.error_code,
        base_offset: said.base_offset,
        log_start: (said.error_code == 0).then_some(said.log_start_offset),
        time: if is_now { Err(Now) } else { Ok(said.log_append_time_ms) },
        bad_records: said.record_errors.iter().map(|error| error.batch_index).collect(),
        message: said.error_message.as_ref().map(|message| message.to_string()),
    }
}
