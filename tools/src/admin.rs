//! A client of a whole cluster: finds brokers, topics and leaders, and keeps a connection to each broker
//! that it has asked.
//!
//! Commands are blocking programs; [`on_core`] runs one as a future on a core of its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use tarn_record::TopicId;
use tarn_runtime::{CoreSpec, probe, sleep, spawn_core};
use tarn_transport::{Client, ClientError, ClientOptions, Endpoint};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::metadata_response::MetadataResponseTopic;
use tarn_wire::messages::{ListOffsetsRequest, MetadataRequest, MetadataResponse};
use tarn_wire::{ErrorCode, Request};

use crate::connect::ConnectArguments;
use crate::failure::Failure;

/// How long a command waits for something that should be there any moment: a leader, a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The longest that a command can be told to wait, in seconds: a year.
const TIMEOUT_S_MAX: u64 = 365 * 24 * 60 * 60;

/// Reads how many seconds a command may take.
pub(crate) fn seconds() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(..=TIMEOUT_S_MAX)
}

/// The pause before something is asked again.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Runs a command's future on a core of its own and waits for its end.
pub(crate) fn on_core<T, Make, Main>(make: Make) -> Result<T, Failure>
where
    Make: FnOnce() -> Main + Send + 'static,
    Main: Future<Output = Result<T, Failure>> + 'static,
    T: Send + 'static,
{
    probe::check().map_err(|error| Failure::Failed(error.to_string()))?;
    let spec = CoreSpec { cpu: None, name: "tarn-tools".to_owned() };
    let core = spawn_core(spec, make).map_err(|error| Failure::Failed(error.to_string()))?;
    core.join()
}

/// A topic as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: String,
    /// Its id; zero where the cluster has none.
    pub(crate) id: TopicId,
    /// True for a topic that the cluster keeps for itself.
    pub(crate) is_internal: bool,
    /// The leader of each partition, by partition; negative where there is none now.
    pub(crate) leaders: BTreeMap<i32, i32>,
}

/// Which end of a partition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The oldest offset that is there.
    Earliest,
    /// The offset that the next record gets, as far as consumers may see.
    Latest,
}

/// Ends of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Those that are known.
    pub(crate) known: BTreeMap<i32, i64>,
    /// The partitions whose broker cannot open their log.
    pub(crate) offline: BTreeSet<i32>,
}

/// That logs of a topic cannot be read now.
pub(crate) fn offline_log(topic: &str, partitions: impl IntoIterator<Item = i32>) -> Failure {
    let named: Vec<String> = partitions.into_iter().map(|one| format!("{topic}-{one}")).collect();
    Failure::Failed(format!("{} cannot be read: the broker could not open the log", named.join(", ")))
}

/// A cluster that is connected to.
#[derive(Debug)]
pub(crate) struct Cluster {
    options: ClientOptions,
    bootstrap: Vec<Endpoint>,
    first: RefCell<Client>,
    brokers: RefCell<BTreeMap<i32, Broker>>,
}

#[derive(Debug)]
struct Broker {
    endpoint: Endpoint,
    connection: Option<Client>,
}

impl Cluster {
    /// Connects to the first of the bootstrap servers that answers.
    pub(crate) async fn connect(arguments: &ConnectArguments) -> Result<Cluster, Failure> {
        Cluster::connect_to(&arguments.bootstrap_server, arguments.options()?).await
    }

    /// Like [`connect`](Self::connect), with the options at hand.
    pub(crate) async fn connect_to(
        bootstrap: &[Endpoint],
        options: ClientOptions,
    ) -> Result<Cluster, Failure> {
        let first = first_that_answers(bootstrap, &options).await?;
        Ok(Cluster {
            options,
            bootstrap: bootstrap.to_vec(),
            first: RefCell::new(first),
            brokers: RefCell::default(),
        })
    }

    /// Asks whichever broker was connected to first.
    pub(crate) async fn call<R: Request>(&self, request: &R) -> Result<R::Response, Failure> {
        let connection = self.any().await?;
        Ok(connection.call(request).await?)
    }

    /// Asks for something that only Tarn serves.
    pub(crate) async fn call_mirror_api<R: Request>(&self, request: &R) -> Result<R::Response, Failure> {
        let connection = self.any().await?;
        match connection.call(request).await {
            Err(ClientError::UnsupportedVersion { theirs: None, .. }) => Err(Failure::Precondition(format!(
                "{} does not serve cluster mirroring: it is no Tarn, or an older one",
                connection.endpoint()
            ))),
            answered => Ok(answered?),
        }
    }

    async fn any(&self) -> Result<Client, Failure> {
        let connection = self.first.borrow().clone();
        if !connection.is_closed() {
            return Ok(connection);
        }
        let connection = first_that_answers(&self.bootstrap, &self.options).await?;
        self.first.replace(connection.clone());
        Ok(connection)
    }

    /// A connection to the broker with this id, which the last metadata must have named.
    pub(crate) async fn broker(&self, id: i32) -> Result<Client, Failure> {
        let endpoint = match self.brokers.borrow().get(&id) {
            Some(Broker { connection: Some(connection), .. }) if !connection.is_closed() => {
                return Ok(connection.clone());
            }
            Some(broker) => broker.endpoint.clone(),
            None => return Err(Failure::Failed(format!("the cluster does not say where broker {id} is"))),
        };
        let connection = Client::connect(&endpoint, &self.options).await?;
        if let Some(broker) = self.brokers.borrow_mut().get_mut(&id) {
            broker.connection = Some(connection.clone());
        }
        Ok(connection)
    }

    /// A connection to the broker that takes changes.
    pub(crate) async fn controller(&self) -> Result<Client, Failure> {
        let metadata = self.metadata(Some(Vec::new())).await?;
        match metadata.controller_id {
            id if id >= 0 => self.broker(id).await,
            _ => self.any().await,
        }
    }

    /// Every topic, ordered by name.
    pub(crate) async fn topics(&self) -> Result<Vec<Topic>, Failure> {
        let metadata = self.metadata(None).await?;
        let mut topics: Vec<Topic> = metadata
            .topics
            .iter()
            .filter(|topic| topic.error_code == ErrorCode::NONE.0)
            .map(topic_of)
            .collect();
        topics.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(topics)
    }

    /// One topic, or `None` where there is none of this name.
    pub(crate) async fn topic(&self, name: &str) -> Result<Option<Topic>, Failure> {
        let asked = MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
        let metadata = self.metadata(Some(vec![asked])).await?;
        match metadata.topics.first() {
            None => Ok(None),
            Some(topic) if topic.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0 => Ok(None),
            Some(topic) => match Failure::check(topic.error_code, None) {
                Err(_) if ErrorCode(topic.error_code).is_retriable() => Ok(Some(topic_of(topic))),
                Err(failure) => Err(failure),
                Ok(()) => Ok(Some(topic_of(topic))),
            },
        }
    }

    /// The id of a broker, where the cluster names one.
    pub(crate) async fn some_broker_id(&self) -> Result<Option<i32>, Failure> {
        let metadata = self.metadata(Some(Vec::new())).await?;
        Ok(metadata.brokers.first().map(|broker| broker.node_id))
    }

    /// The id that the cluster was formatted with, and how many brokers it names.
    pub(crate) async fn identity(&self) -> Result<(Option<String>, usize), Failure> {
        let metadata = self.metadata(Some(Vec::new())).await?;
        Ok((metadata.cluster_id.map(|id| id.to_string()), metadata.brokers.len()))
    }

    async fn metadata(&self, topics: Option<Vec<MetadataRequestTopic>>) -> Result<MetadataResponse, Failure> {
        let request =
            MetadataRequest { topics, allow_auto_topic_creation: false, ..MetadataRequest::default() };
        let metadata = self.call(&request).await?;
        Failure::check(metadata.error_code, None)?;
        let mut brokers = self.brokers.borrow_mut();
        let mut known = std::mem::take(&mut *brokers);
        for broker in &metadata.brokers {
            let port = u16::try_from(broker.port).unwrap_or_default();
            let endpoint = Endpoint { host: broker.host.to_string(), port };
            let before = known.remove(&broker.node_id).filter(|before| before.endpoint == endpoint);
            let connection = before.and_then(|before| before.connection);
            brokers.insert(broker.node_id, Broker { endpoint, connection });
        }
        drop(brokers);
        Ok(metadata)
    }

    /// The end of each of these partitions of one topic. Waits for leaders that are not there yet, and for logs
    /// that their brokers cannot open.
    pub(crate) async fn ends(
        self: &Rc<Self>,
        topic: &str,
        partitions: &[i32],
        end: End,
    ) -> Result<BTreeMap<i32, i64>, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.ends_of_open(topic, partitions, end, deadline).await?;
            match found.offline.first() {
                None => return Ok(found.known),
                Some(offline) if Instant::now() >= deadline => return Err(offline_log(topic, [*offline])),
                Some(_) => sleep(PAUSE).await,
            }
        }
    }

    /// The same, without waiting for logs that their brokers cannot open.
    pub(crate) async fn ends_of_open(
        &self,
        topic: &str,
        partitions: &[i32],
        end: End,
        deadline: Instant,
    ) -> Result<Ends, Failure> {
        let mut found = Ends::default();
        loop {
            let is_missing = |one: &i32| !found.known.contains_key(one) && !found.offline.contains(one);
            let missing: Vec<i32> = partitions.iter().copied().filter(is_missing).collect();
            let Some(first) = missing.first() else { return Ok(found) };
            match self.ask_ends(topic, &missing, end, &mut found).await {
                Ok(()) if found.known.len() + found.offline.len() == partitions.len() => return Ok(found),
                Ok(()) if Instant::now() >= deadline => {
                    return Err(Failure::Failed(format!("{topic}-{first} has no leader")));
                }
                Err(failure) if Instant::now() >= deadline => return Err(failure),
                Ok(()) | Err(_) => sleep(PAUSE).await,
            }
        }
    }

    async fn ask_ends(
        &self,
        name: &str,
        partitions: &[i32],
        end: End,
        found: &mut Ends,
    ) -> Result<(), Failure> {
        let Some(topic) = self.topic(name).await? else { return Ok(()) };
        for (leader, partitions) in by_leader(&topic, partitions) {
            let partitions = partitions.into_iter().map(|partition_index| ListOffsetsPartition {
                partition_index,
                timestamp: match end {
                    End::Earliest => -2,
                    End::Latest => -1,
                },
                ..Default::default()
            });
            let asked = ListOffsetsTopic { name: name.into(), partitions: partitions.collect() };
            let request =
                ListOffsetsRequest { replica_id: -1, topics: vec![asked], ..ListOffsetsRequest::default() };
            let answer = self.broker(leader).await?.call(&request).await?;
            for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                match ErrorCode(partition.error_code) {
                    ErrorCode::NONE => {
                        found.known.insert(partition.partition_index, partition.offset);
                    }
                    ErrorCode::KAFKA_STORAGE_ERROR => drop(found.offline.insert(partition.partition_index)),
                    code if code.is_retriable() => {}
                    code => return Err(Failure::answered(code, None)),
                }
            }
        }
        Ok(())
    }
}

async fn first_that_answers(bootstrap: &[Endpoint], options: &ClientOptions) -> Result<Client, Failure> {
    let mut failed = Vec::new();
    for endpoint in bootstrap {
        match Client::connect(endpoint, options).await {
            Ok(connection) => return Ok(connection),
            Err(error) => failed.push(error.to_string()),
        }
    }
    Err(Failure::Failed(failed.join("; ")))
}

/// These partitions, gathered by the broker that leads them. Those without a leader are left out.
pub(crate) fn by_leader(topic: &Topic, partitions: &[i32]) -> BTreeMap<i32, Vec<i32>> {
    let mut gathered: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        match topic.leaders.get(partition) {
            Some(&leader) if leader >= 0 => gathered.entry(leader).or_default().push(*partition),
            _ => {}
        }
    }
    gathered
}

fn topic_of(topic: &MetadataResponseTopic) -> Topic {
    Topic {
        name: topic.name.as_deref().unwrap_or_default().to_owned(),
        id: TopicId(topic.topic_id),
        is_internal: topic.is_internal,
        leaders: topic.partitions.iter().map(|one| (one.partition_index, one.leader_id)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_without_a_leader_are_asked_of_nobody() {
        let leaders = BTreeMap::from([(0, 2), (1, -1), (2, 2), (3, 5)]);
        let topic = Topic { name: "t".to_owned(), id: TopicId::ZERO, is_internal: false, leaders };
        let gathered = by_leader(&topic, &[0, 1, 2, 3, 4]);
        assert_eq!(gathered, BTreeMap::from([(2, vec![0, 2]), (5, vec![3])]));
    }
}
