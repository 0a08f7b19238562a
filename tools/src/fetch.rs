//! Record batches of partitions, as the broker holds them.
//!
//! A [`Reader`] goes through some partitions of one topic; leaders that move are found again. Each fetch
//! is whole: the tools keep no fetch sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tarn_record::{ValidBatch, batches};
use tarn_runtime::{Queue, sleep, spawn};
use tarn_transport::{CallLimits, Client};
use tarn_wire::ErrorCode;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::fetch_response::PartitionData;
use tarn_wire::messages::{FetchRequest, FetchResponse};

use crate::admin::{Cluster, End, PATIENCE, PAUSE, Topic, by_leader};
use crate::failure::Failure;

/// What one answer carries, for all partitions and for each.
const ANSWER_BYTES: i32 = 8 << 20;
const PARTITION_BYTES: i32 = 1 << 20;

/// How long a broker waits for records: alone, and where others wait behind it.
const WAIT: Duration = Duration::from_millis(500);
const WAIT_OF_ONE_AMONG_MANY: Duration = Duration::from_millis(50);

/// The newest version that names topics rather than their ids.
const VERSION_BY_NAME: i16 = 12;

/// Reads some partitions of one topic from given offsets on.
#[derive(Debug)]
pub(crate) struct Reader {
    cluster: Rc<Cluster>,
    topic: Topic,
    positions: BTreeMap<i32, i64>,
    /// Partitions whose broker could not open their log when it was last asked.
    offline: BTreeSet<i32>,
    /// Since when no broker has answered.
    silent_since: Option<Instant>,
}

/// What came of one partition.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// Whole batches; the first may begin below the position.
    Batches(Vec<ValidBatch>),
    /// The position lies below the log's start or above its end.
    OutOfRange,
    /// The leader is another broker by now, or cannot be reached.
    NotHere,
    /// The leader could not open the log.
    Offline,
}

impl Reader {
    /// Begins at these offsets.
    pub(crate) fn new(cluster: Rc<Cluster>, topic: Topic, positions: BTreeMap<i32, i64>) -> Reader {
        Reader { cluster, topic, positions, offline: BTreeSet::new(), silent_since: None }
    }

    /// Where each partition is read next. Those that are removed are read no more.
    pub(crate) fn positions(&mut self) -> &mut BTreeMap<i32, i64> {
        &mut self.positions
    }

    /// Reads those partitions no more whose broker could not open their log when it was last asked. Which these are.
    pub(crate) fn leave_offline(&mut self) -> BTreeSet<i32> {
        self.positions.retain(|partition, _| !self.offline.contains(partition));
        std::mem::take(&mut self.offline)
    }

    /// Asks every leader once and moves the positions on. A position outside the log goes to its nearer
    /// end, which is said.
    pub(crate) async fn next(&mut self) -> Result<Vec<(i32, Vec<ValidBatch>)>, Failure> {
        let mut found = Vec::new();
        let mut all_here = true;
        self.offline.clear();
        for (partition, fetched) in self.ask_leaders().await? {
            match fetched {
                Fetched::Batches(batches) => {
                    if let Some(last) = batches.last() {
                        self.positions.insert(partition, last.header().next_offset().0);
                        found.push((partition, batches));
                    }
                }
                Fetched::OutOfRange => self.return_to_log(partition).await?,
                Fetched::NotHere => all_here = false,
                Fetched::Offline => {
                    all_here = false;
                    self.offline.insert(partition);
                }
            }
        }
        self.note_silence(all_here).await?;
        Ok(found)
    }

    async fn ask_leaders(&self) -> Result<Vec<(i32, Fetched)>, Failure> {
        let partitions: Vec<i32> = self.positions.keys().copied().collect();
        let leaders = by_leader(&self.topic, &partitions);
        let wait = if leaders.len() > 1 { WAIT_OF_ONE_AMONG_MANY } else { WAIT };
        let led: usize = leaders.values().map(Vec::len).sum();
        let mut asked = Vec::new();
        for (leader, partitions) in leaders {
            let positions: Vec<(i32, i64)> =
                partitions.iter().map(|partition| (*partition, self.positions[partition])).collect();
            let (cluster, topic) = (Rc::clone(&self.cluster), self.topic.clone());
            asked.push(spawn(Queue::Network, async move {
                match cluster.broker(leader).await {
                    Ok(connection) => fetch(&connection, &topic, &positions, wait).await,
                    Err(_) => Ok(all_not_here(&positions)),
                }
            }));
        }
        let mut answers = Vec::new();
        for answer in asked {
            answers.extend(answer.await?);
        }
        if led < partitions.len() {
            let leaderless =
                partitions.iter().filter(|one| self.topic.leaders.get(one).is_none_or(|id| *id < 0));
            answers.extend(leaderless.map(|partition| (*partition, Fetched::NotHere)));
        }
        Ok(answers)
    }

    async fn return_to_log(&mut self, partition: i32) -> Result<(), Failure> {
        let name = &self.topic.name;
        let starts = self.cluster.ends(name, &[partition], End::Earliest).await?;
        let ends = self.cluster.ends(name, &[partition], End::Latest).await?;
        let of = |found: &BTreeMap<i32, i64>| found.get(&partition).copied().unwrap_or_default();
        let (start, end) = (of(&starts), of(&ends));
        let was = self.positions.get(&partition).copied().unwrap_or_default();
        let position = was.clamp(start, end.max(start));
        eprintln!("tarn: {name}-{partition} does not hold offset {was}: going on at {position}");
        self.positions.insert(partition, position);
        Ok(())
    }

    async fn note_silence(&mut self, all_here: bool) -> Result<(), Failure> {
        if all_here {
            self.silent_since = None;
            return Ok(());
        }
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        sleep(PAUSE).await;
        let refreshed = self.cluster.topic(&self.topic.name).await;
        match refreshed {
            Ok(Some(topic)) => self.topic = topic,
            Ok(None) => return Err(Failure::Failed(format!("topic {} is gone", self.topic.name))),
            Err(failure) if since.elapsed() > PATIENCE => return Err(failure),
            Err(_) => {}
        }
        match since.elapsed() > PATIENCE {
            true => Err(Failure::Failed(format!("a partition of {} has no leader", self.topic.name))),
            false => Ok(()),
        }
    }
}

/// Fetches once from one broker, which should lead these partitions.
async fn fetch(
    connection: &Client,
    topic: &Topic,
    positions: &[(i32, i64)],
    wait: Duration,
) -> Result<Vec<(i32, Fetched)>, Failure> {
    let version = match connection.version_for::<FetchRequest>()? {
        version if topic.id.is_zero() => version.min(VERSION_BY_NAME),
        version => version,
    };
    let limits = connection.limits();
    let limits = CallLimits { timeout: limits.timeout + wait, ..limits };
    let request = request_for(topic, positions, wait);
    match connection.call_within(&request, version, limits).await {
        Ok(answer) => understand(topic, &answer, positions),
        Err(_) if connection.is_closed() => Ok(all_not_here(positions)),
        Err(error) => Err(error.into()),
    }
}

fn request_for(topic: &Topic, positions: &[(i32, i64)], wait: Duration) -> FetchRequest {
    let partitions = positions.iter().map(|&(partition, fetch_offset)| FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: PARTITION_BYTES,
        ..FetchPartition::default()
    });
    let topics = vec![FetchTopic {
        topic: topic.name.as_str().into(),
        topic_id: topic.id.0,
        partitions: partitions.collect(),
    }];
    FetchRequest {
        replica_id: -1,
        max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: 1,
        max_bytes: ANSWER_BYTES,
        topics,
        ..FetchRequest::default()
    }
}

fn understand(
    topic: &Topic,
    answer: &FetchResponse,
    positions: &[(i32, i64)],
) -> Result<Vec<(i32, Fetched)>, Failure> {
    if ErrorCode(answer.error_code).is_retriable() {
        return Ok(all_not_here(positions));
    }
    Failure::check(answer.error_code, None)?;
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|data| Ok((data.partition_index, fetched(topic, data)?))).collect()
}

fn fetched(topic: &Topic, data: &PartitionData) -> Result<Fetched, Failure> {
    match ErrorCode(data.error_code) {
        ErrorCode::NONE => {}
        ErrorCode::OFFSET_OUT_OF_RANGE => return Ok(Fetched::OutOfRange),
        ErrorCode::KAFKA_STORAGE_ERROR => return Ok(Fetched::Offline),
        code if code.is_retriable() => return Ok(Fetched::NotHere),
        code => return Err(Failure::answered(code, None)),
    }
    let Some(bytes) = data.records.as_ref().and_then(|records| records.to_bytes()) else {
        return Ok(Fetched::Batches(Vec::new()));
    };
    let valid: Result<Vec<ValidBatch>, _> = batches(bytes.clone()).collect();
    let broken = |why: &str| Failure::Failed(format!("{}-{}: {why}", topic.name, data.partition_index));
    match valid {
        Ok(valid) if valid.is_empty() && !bytes.is_empty() => {
            Err(broken("the broker sent a part of a batch and no whole one"))
        }
        Ok(valid) => Ok(Fetched::Batches(valid)),
        Err(error) => Err(broken(&error.to_string())),
    }
}

fn all_not_here(positions: &[(i32, i64)]) -> Vec<(i32, Fetched)> {
    positions.iter().map(|(partition, _)| (*partition, Fetched::NotHere)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::TopicId;

    #[test]
    fn a_log_that_its_broker_cannot_open_is_read_no_more_once_that_is_asked_for() {
        let topic =
            Topic { name: "t".to_owned(), id: TopicId::ZERO, is_internal: false, leaders: BTreeMap::new() };
        let of = |code: ErrorCode| {
            let data = PartitionData { error_code: code.0, ..PartitionData::default() };
            fetched(&topic, &data).expect("it may be over soon")
        };
        assert!(matches!(of(ErrorCode::KAFKA_STORAGE_ERROR), Fetched::Offline));
        assert!(matches!(of(ErrorCode::NOT_LEADER_OR_FOLLOWER), Fetched::NotHere));
    }
}
