//! What to ask one source broker for next: an incremental fetch session (KIP-227), without the connection.
//!
//! The source remembers what was asked, so a request names only what has changed, and an answer only what
//! has news. Because the session at the source has moved on when something goes wrong here, each partition
//! remembers what the source was asked last: an answer to anything else than what is wanted now is dropped
//! and the partition asked again.
//!
//! A source tells what it has told already only of a partition that is new to the session. So one that comes back is
//! forgotten there first and named in the request after that: at the end of the log it would hear nothing otherwise.
//!
//! Invariants:
//! * each assignment is told at least once how far the source is;
//! * records are handed out only where they answer the offset that is wanted;
//! * a partition whose wanted offset is not the one last asked is named in the next request;
//! * one request is out at a time; a session's epoch rises with each answer that came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_record::{BrokerId, Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_transport::Endpoint;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use tarn_wire::messages::fetch_response::{NodeEndpoint, PartitionData};
use tarn_wire::messages::{FetchRequest, FetchResponse};
use tarn_wire::{ErrorCode, Str};
use uuid::Uuid;

use crate::local_cluster::MirrorGeneration;

/// The session epoch of a request outside of any session.
const NO_SESSION: i32 = -1;

/// A topic as the source knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicAtSource {
    /// Its name.
    pub name: Arc<str>,
    /// Its id, `TopicId::ZERO` at a source that has none.
    pub id: TopicId,
}

/// A partition given to a lane.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The partition here.
    pub partition: TopicIdPartition,
    /// Its topic there.
    pub topic: Arc<TopicAtSource>,
    /// Tells this assignment from earlier ones of the same partition.
    pub serial: u64,
    /// The opening of the gate that it appends under.
    pub generation: MirrorGeneration,
    /// The first offset to fetch.
    pub from: Offset,
    /// The epoch of the record before it; `Epoch::NONE` where that is not to be compared.
    pub last_epoch: Epoch,
    /// The leader epoch at the source.
    pub leader_epoch: Epoch,
    /// Whether the topic is compacted here, so that offsets may be missing within.
    pub compacted: bool,
}

/// What the source understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// Fetch by topic id (version 13 on).
    pub topic_ids: bool,
    /// Comparison of the last fetched epoch (version 12 on).
    pub last_fetched_epoch: bool,
}

/// How topics are named in a request, which decides its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By their ids.
    Ids,
    /// By their names.
    Names,
}

/// The sizes and waits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchSizes {
    /// The longest wait for news.
    pub max_wait_ms: i32,
    /// The least bytes that count as news.
    pub min_bytes: i32,
    /// About how many bytes the response may have.
    pub max_bytes: i32,
    /// The same for one partition.
    pub partition_max_bytes: i32,
}

/// What an answer says.
#[derive(Debug)]
pub enum Received {
    /// The session is over; the next request begins another.
    SessionLost(ErrorCode),
    /// News of these partitions; of all others, that there is none.
    News(Vec<News>),
}

/// News of one partition.
#[derive(Debug)]
pub struct News {
    /// The partition here.
    pub partition: TopicIdPartition,
    /// The assignment.
    pub serial: u64,
    /// The opening of the gate.
    pub generation: MirrorGeneration,
    /// The offset that was asked for.
    pub asked: Offset,
    /// Whether the topic is compacted here.
    pub compacted: bool,
    /// What came.
    pub what: What,
}

/// The kinds of news.
#[derive(Debug)]
pub enum What {
    /// Records, perhaps none, and watermarks.
    Records {
        /// The batches as they came.
        records: Bytes,
        /// How far the source can be read.
        high_watermark: Offset,
        /// Its log start.
        log_start: Offset,
    },
    /// The source's log is another one from some offset on.
    Diverged,
    /// An error, and who leads now where the source says so (KIP-951).
    Error(ErrorCode, Option<LeaderHint>),
}

/// Who leads a partition now, as a broker said that does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    /// The leader.
    pub leader: BrokerId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Where it is, if that was said.
    pub endpoint: Option<Endpoint>,
}

/// What the source is to forget.
type Forgotten = BTreeMap<TopicIdPartition, Arc<TopicAtSource>>;

/// The session with one source broker. Owned by a lane.
#[derive(Debug, Default)]
pub struct FetchPlan {
    topics: BTreeMap<TopicId, Topic>,
    by_id: BTreeMap<Uuid, TopicId>,
    by_name: BTreeMap<Arc<str>, TopicId>,
    partitions: usize,
    dialect: Dialect,
    session: Session,
    naming: Option<Naming>,
    changed: BTreeSet<TopicIdPartition>,
    forgotten: Forgotten,
    turns: u64,
}

#[derive(Debug)]
struct Topic {
    at_source: Arc<TopicAtSource>,
    partitions: BTreeMap<PartitionIndex, Entry>,
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    generation: MirrorGeneration,
    wanted: Offset,
    /// What the source was last asked; `None` where it does not know of the partition.
    asked: Option<Offset>,
    last_epoch: Epoch,
    leader_epoch: Epoch,
    compacted: bool,
    /// When it last had records: where there is no session, who waited longest is asked for first.
    turn: u64,
}

/// The session's id and the epoch of the next request; 0 begins a session.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    id: i32,
    epoch: i32,
}

impl FetchPlan {
    /// Begins anew with a source that understands this.
    pub fn connected(&mut self, dialect: Dialect) {
        self.dialect = dialect;
        self.session = Session::default();
        self.restart();
    }

    /// Adds a partition, or gives it another assignment.
    pub fn add(&mut self, assignment: Assignment) {
        let Assignment { partition, topic, serial, generation, from, last_epoch, leader_epoch, compacted } =
            assignment;
        let wanted = from;
        let mut entry =
            Entry { serial, generation, wanted, asked: None, last_epoch, leader_epoch, compacted, turn: 0 };
        if let Some(known) = self.topics.get(&partition.topic_id)
            && known.at_source != topic
        {
            self.remove_topic(partition.topic_id);
        }
        self.by_id.insert(topic.id.0, partition.topic_id);
        self.by_name.insert(topic.name.clone(), partition.topic_id);
        let topic = self
            .topics
            .entry(partition.topic_id)
            .or_insert_with(|| Topic { at_source: topic, partitions: BTreeMap::new() });
        self.turns += 1;
        entry.turn = self.turns;
        match topic.partitions.insert(partition.partition, entry) {
            None => self.partitions += 1,
            Some(_) => drop(self.forgotten.insert(partition, topic.at_source.clone())),
        }
        self.changed.insert(partition);
    }

    /// Takes a partition out; its serial where it was there.
    pub fn remove(&mut self, partition: TopicIdPartition) -> Option<u64> {
        let topic = self.topics.get_mut(&partition.topic_id)?;
        let entry = topic.partitions.remove(&partition.partition)?;
        self.partitions -= 1;
        self.changed.remove(&partition);
        self.forgotten.insert(partition, topic.at_source.clone());
        if topic.partitions.is_empty() {
            let at_source = topic.at_source.clone();
            self.topics.remove(&partition.topic_id);
            self.by_id.remove(&at_source.id.0);
            self.by_name.remove(&at_source.name);
        }
        Some(entry.serial)
    }

    /// Takes every partition out, with their serials.
    pub fn drain(&mut self) -> Vec<(TopicIdPartition, u64)> {
        let all: Vec<TopicIdPartition> = self.all().collect();
        all.into_iter().filter_map(|partition| Some((partition, self.remove(partition)?))).collect()
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.partitions
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.partitions == 0
    }

    /// The serial of a partition's assignment.
    pub fn serial(&self, partition: TopicIdPartition) -> Option<u64> {
        self.entry(partition).map(|entry| entry.serial)
    }

    /// The next request, and how it names topics.
    pub fn request(&mut self, sizes: FetchSizes) -> (FetchRequest, Naming) {
        let naming = self.naming_now();
        if self.naming.replace(naming).is_some_and(|before| before != naming) {
            self.restart();
        }
        let (named, forgotten) = if self.session.epoch == 0 { self.everything() } else { self.changes() };
        let request = FetchRequest {
            // What is named next does not wait for news of the others.
            max_wait_ms: if self.changed.is_empty() { sizes.max_wait_ms } else { 0 },
            min_bytes: sizes.min_bytes,
            max_bytes: sizes.max_bytes,
            session_id: self.session.id,
            session_epoch: self.session.epoch,
            topics: self.named(&named, sizes.partition_max_bytes),
            forgotten_topics_data: grouped(&forgotten),
            ..FetchRequest::default()
        };
        (request, naming)
    }

    /// A request for some of the partitions outside the session, which stays as it is.
    pub fn single(&mut self, partitions: &[TopicIdPartition], sizes: FetchSizes) -> (FetchRequest, Naming) {
        let asked: Vec<_> =
            partitions.iter().map(|partition| self.entry(*partition).map(|one| one.asked)).collect();
        let topics = self.named(partitions, sizes.partition_max_bytes);
        for (partition, asked) in partitions.iter().zip(asked) {
            if let (Some(entry), Some(asked)) = (self.entry_mut(*partition), asked) {
                entry.asked = asked;
            }
        }
        let request = FetchRequest {
            max_wait_ms: sizes.max_wait_ms,
            min_bytes: sizes.min_bytes,
            max_bytes: sizes.max_bytes,
            session_epoch: NO_SESSION,
            topics,
            ..FetchRequest::default()
        };
        (request, self.naming_now())
    }

    /// The partitions of which an answer holds records.
    pub fn with_records(&self, response: &FetchResponse) -> Vec<TopicIdPartition> {
        let mut found = Vec::new();
        for topic in &response.responses {
            let Some(topic_id) = self.here(topic.topic_id, &topic.topic) else { continue };
            for data in &topic.partitions {
                if data.records.as_ref().is_some_and(|records| !records.is_empty()) {
                    let partition = PartitionIndex(data.partition_index);
                    found.push(TopicIdPartition { topic_id, partition });
                }
            }
        }
        found
    }

    /// Takes an answer over. Records that answer what is not wanted any more are left out, and their
    /// partitions are in the next request.
    pub fn receive(&mut self, response: FetchResponse) -> Received {
        let code = ErrorCode(response.error_code);
        let answers_session = self.session.epoch == 0 || response.session_id == self.session.id;
        if code != ErrorCode::NONE || !answers_session {
            self.restart();
            return Received::SessionLost(code);
        }
        self.session = match (self.session.epoch, response.session_id) {
            (_, 0) => Session::default(),
            (i32::MAX, id) => Session { id, epoch: 1 },
            (epoch, id) => Session { id, epoch: epoch + 1 },
        };
        let mut news = Vec::with_capacity(response.responses.len());
        for topic in response.responses {
            let Some(topic_id) = self.here(topic.topic_id, &topic.topic) else { continue };
            for data in topic.partitions {
                let partition =
                    TopicIdPartition { topic_id, partition: PartitionIndex(data.partition_index) };
                news.extend(self.news_of(partition, data, &response.node_endpoints));
            }
        }
        Received::News(news)
    }

    /// Records up to `next` have been checked: fetch on from there.
    pub fn advance(&mut self, partition: TopicIdPartition, serial: u64, next: Offset, last_epoch: Epoch) {
        self.want(partition, serial, next, last_epoch);
    }

    /// Something went wrong: fetch again from `from`.
    pub fn again(&mut self, partition: TopicIdPartition, serial: u64, from: Offset) {
        self.want(partition, serial, from, Epoch::NONE);
    }

    fn want(&mut self, partition: TopicIdPartition, serial: u64, wanted: Offset, last_epoch: Epoch) {
        self.turns += 1;
        let turn = self.turns;
        let Some(entry) = self.entry_mut(partition).filter(|entry| entry.serial == serial) else { return };
        entry.wanted = wanted;
        entry.last_epoch = last_epoch;
        entry.turn = turn;
        // An answer to the same offset may be on its way, asked under what was known before.
        entry.asked = None;
        self.changed.insert(partition);
    }

    fn news_of(
        &mut self,
        partition: TopicIdPartition,
        data: PartitionData,
        endpoints: &[NodeEndpoint],
    ) -> Option<News> {
        let entry = self.entry_mut(partition)?;
        if entry.asked != Some(entry.wanted) {
            return None;
        }
        let what = match ErrorCode(data.error_code) {
            ErrorCode::NONE if data.diverging_epoch.end_offset >= 0 => What::Diverged,
            ErrorCode::NONE => What::Records {
                records: data.records.and_then(|records| records.to_bytes()).unwrap_or_default(),
                high_watermark: Offset(data.high_watermark),
                log_start: Offset(data.log_start_offset),
            },
            code => What::Error(code, hint(&data, endpoints)),
        };
        let Entry { serial, generation, wanted: asked, compacted, .. } = *entry;
        Some(News { partition, serial, generation, asked, compacted, what })
    }

    fn here(&self, id_there: Uuid, name: &str) -> Option<TopicId> {
        match id_there.is_nil() {
            true => self.by_name.get(name).copied(),
            false => self.by_id.get(&id_there).copied(),
        }
    }

    /// Forgets what the source knows: the next request names everything.
    fn restart(&mut self) {
        self.session.epoch = 0;
        self.naming = None;
        self.forgotten.clear();
        for entry in self.topics.values_mut().flat_map(|topic| topic.partitions.values_mut()) {
            entry.asked = None;
        }
    }

    fn naming_now(&self) -> Naming {
        let has_ids = self.topics.values().all(|topic| !topic.at_source.id.is_zero());
        if self.dialect.topic_ids && has_ids { Naming::Ids } else { Naming::Names }
    }

    /// Every partition, who waited longest for records first.
    pub fn by_turn(&self) -> Vec<TopicIdPartition> {
        let mut all: Vec<(u64, TopicIdPartition)> = self
            .all()
            .filter_map(|partition| self.entry(partition).map(|entry| (entry.turn, partition)))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, partition)| partition).collect()
    }

    fn everything(&mut self) -> (Vec<TopicIdPartition>, Forgotten) {
        self.changed.clear();
        self.forgotten.clear();
        (self.by_turn(), Forgotten::new())
    }

    /// What is named, and what is forgotten; what is both stays to be named.
    fn changes(&mut self) -> (Vec<TopicIdPartition>, Forgotten) {
        let forgotten = std::mem::take(&mut self.forgotten);
        let (later, now): (BTreeSet<_>, _) = std::mem::take(&mut self.changed)
            .into_iter()
            .partition(|partition| forgotten.contains_key(partition));
        self.changed = later;
        (now.into_iter().collect(), forgotten)
    }

    /// The partitions as a request names them, in order; neighbours of one topic stand together.
    fn named(&mut self, partitions: &[TopicIdPartition], partition_max_bytes: i32) -> Vec<FetchTopic> {
        let compares_epochs = self.dialect.last_fetched_epoch;
        let mut named: Vec<FetchTopic> = Vec::new();
        let mut last = None;
        for &partition in partitions {
            let Some(topic) = self.topics.get_mut(&partition.topic_id) else { continue };
            let Some(entry) = topic.partitions.get_mut(&partition.partition) else { continue };
            entry.asked = Some(entry.wanted);
            let asked = FetchPartition {
                partition: partition.partition.0,
                current_leader_epoch: entry.leader_epoch.0,
                fetch_offset: entry.wanted.0,
                last_fetched_epoch: if compares_epochs { entry.last_epoch.0 } else { Epoch::NONE.0 },
                partition_max_bytes,
                ..FetchPartition::default()
            };
            match named.last_mut() {
                Some(group) if last == Some(partition.topic_id) => group.partitions.push(asked),
                _ => named.push(FetchTopic {
                    topic: Str::from(&*topic.at_source.name),
                    topic_id: topic.at_source.id.0,
                    partitions: vec![asked],
                }),
            }
            last = Some(partition.topic_id);
        }
        named
    }

    fn remove_topic(&mut self, topic_id: TopicId) {
        let Some(topic) = self.topics.get(&topic_id) else { return };
        let partitions: Vec<PartitionIndex> = topic.partitions.keys().copied().collect();
        for partition in partitions {
            self.remove(TopicIdPartition { topic_id, partition });
        }
    }

    fn all(&self) -> impl Iterator<Item = TopicIdPartition> {
        self.topics.iter().flat_map(|(&topic_id, topic)| {
            topic.partitions.keys().map(move |&partition| TopicIdPartition { topic_id, partition })
        })
    }

    fn entry(&self, partition: TopicIdPartition) -> Option<&Entry> {
        self.topics.get(&partition.topic_id)?.partitions.get(&partition.partition)
    }

    fn entry_mut(&mut self, partition: TopicIdPartition) -> Option<&mut Entry> {
        self.topics.get_mut(&partition.topic_id)?.partitions.get_mut(&partition.partition)
    }
}

fn grouped(forgotten: &Forgotten) -> Vec<ForgottenTopic> {
    let mut groups: Vec<(TopicId, ForgottenTopic)> = Vec::new();
    for (partition, topic) in forgotten {
        match groups.last_mut() {
            Some((topic_id, group)) if *topic_id == partition.topic_id => {
                group.partitions.push(partition.partition.0);
            }
            _ => groups.push((
                partition.topic_id,
                ForgottenTopic {
                    topic: Str::from(&*topic.name),
                    topic_id: topic.id.0,
                    partitions: vec![partition.partition.0],
                },
            )),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn hint(data: &PartitionData, endpoints: &[NodeEndpoint]) -> Option<LeaderHint> {
    let leader = BrokerId(data.current_leader.leader_id);
    let epoch = Epoch(data.current_leader.leader_epoch);
    if leader == BrokerId::NONE || epoch == Epoch::NONE {
        return None;
    }
    let endpoint = endpoints.iter().find(|node| node.node_id == leader.0).and_then(|node| {
        let port = u16::try_from(node.port).ok()?;
        Some(Endpoint { host: node.host.to_string(), port })
    });
    Some(LeaderHint { leader, epoch, endpoint })
}

#[cfg(test)]
mod tests;
