//! One mirror as the manager has it: its partitions here, what they want, and what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use tarn_image::config::mirror::{InvalidMirror, MirrorConfig, stored};
use tarn_image::configs::ConfigMap;
use tarn_image::mirrors::BOOTSTRAP_SERVERS;
use tarn_image::{DesiredState, MetadataImage};
use tarn_record::{BrokerId, PartitionIndex, TopicId, TopicIdPartition};
use tarn_runtime::{Queue, spawn};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use super::board::{Board, Written};
use super::completing::Completing;
use super::job::Work;
use super::lanes::Lanes;
use super::news::{HowLong, News};
use super::refresh::Refresh;
use super::shared::{Life, Shared};
use crate::coordinator::{STATE_TOPIC, coordinator_partition};
use crate::fetch::lane::{LaneReport, Leaving, Left};
use crate::fetch::plan::{LeaderHint, TopicAtSource};
use crate::fetch::progress::LaneProgress;
use crate::known::SourceKnown;
use crate::local_cluster::{Gate, GateOrder, LocalCluster};
use crate::outage::Outage;
use crate::partition::{Bound, Partition, RetryPolicy, Want};
use crate::reasons::Reason;
use crate::source::connections::Connections;
use crate::source::metadata::SourceLeader;

/// Keys that filter what is mirrored: a change of them leaves connections alone.
const FILTERS: [&str; 6] = [
    "topics.include",
    "topics.exclude",
    "groups.include",
    "groups.exclude",
    "acls.include",
    "topic.properties.exclude",
];

/// What a step of a mirror needs of the manager.
pub(super) struct Context<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) image: &'a Arc<MetadataImage>,
    pub(super) retry: &'a RetryPolicy,
    pub(super) now_ms: u64,
}

/// A mirror.
pub(super) struct Mirror {
    pub(super) life: Life,
    pub(super) configs: ConfigMap,
    pub(super) config: Arc<MirrorConfig>,
    pub(super) own_cluster_id: String,
    pub(super) connections: Rc<Connections>,
    pub(super) brokers: BTreeMap<BrokerId, Endpoint>,
    pub(super) topics: BTreeMap<TopicId, BoundTopic>,
    pub(super) partitions: BTreeMap<TopicIdPartition, Member>,
    pub(super) lanes: Lanes,
    pub(super) refresh: Refresh,
    pub(super) completing: Completing,
    /// Why nothing is mirrored: the configuration cannot be used. Pausing and stopping need none of it.
    unusable: bool,
    /// Partitions by the work they want; looked at again when the work begins.
    pub(super) queues: BTreeMap<Work, BTreeSet<TopicIdPartition>>,
    pub(super) running: BTreeSet<Work>,
    /// Partitions that want to be fetched.
    pub(super) ready: BTreeSet<TopicIdPartition>,
    timers: BTreeSet<(u64, TopicIdPartition)>,
    pub(super) news: News,
    /// The source's metadata cannot be had.
    pub(super) outage: Outage,
    /// Topics and partitions cannot be brought up to date.
    pub(super) sync_outage: Outage,
}

/// A topic with partitions here.
pub(super) struct BoundTopic {
    pub(super) at_source: Arc<TopicAtSource>,
    /// Since when the source does not know it.
    pub(super) missed_at_ms: Option<u64>,
}

/// A partition, and which life of it this is.
pub(super) struct Member {
    pub(super) partition: Partition,
    pub(super) life: u64,
    /// The last that the log was told of it.
    told: Health,
    /// What the lanes that it has left knew of the source.
    known: Option<SourceKnown>,
}

/// How a partition is, as far as the log is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    Failed(HowLong),
}

impl Mirror {
    pub(super) fn new(
        life: Life,
        configs: &ConfigMap,
        own_cluster_id: String,
        shared: &Shared,
    ) -> Result<Mirror, InvalidMirror> {
        let config = Arc::new(MirrorConfig::resolve(configs)?);
        let client_id = format!("mirror-src-admin-{}", life.mirror);
        let connections = Rc::new(Connections::new(&config, client_id, shared.metrics.clone()));
        Ok(Mirror {
            life,
            configs: configs.clone(),
            config,
            own_cluster_id,
            connections,
            brokers: BTreeMap::new(),
            topics: BTreeMap::new(),
            partitions: BTreeMap::new(),
            lanes: Lanes::default(),
            refresh: Refresh::new(shared.clock.now_ms()),
            completing: Completing::default(),
            unusable: false,
            queues: BTreeMap::new(),
            running: BTreeSet::new(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            news: News::default(),
            outage: Outage::default(),
            sync_outage: Outage::default(),
        })
    }

    /// A mirror whose configuration cannot be used. It mirrors nothing and asks no source; what is to be paused or
    /// stopped is.
    pub(super) fn unusable(
        life: Life,
        configs: &ConfigMap,
        own_cluster_id: String,
        shared: &Shared,
    ) -> Mirror {
        let nowhere = stored([(BOOTSTRAP_SERVERS, Some("unusable.invalid:1"))]);
        let mirror = nowhere.and_then(|nowhere| Mirror::new(life, &nowhere, own_cluster_id, shared));
        let mirror = mirror.expect("an address alone is a whole configuration");
        Mirror { configs: configs.clone(), unusable: true, ..mirror }
    }

    pub(super) fn is_unusable(&self) -> bool {
        self.unusable
    }

    /// Takes another configuration over where only filters changed; false where the mirror must begin
    /// another life, or cannot.
    pub(super) fn reconfigure(&mut self, configs: &ConfigMap) -> bool {
        if self.unusable {
            return false;
        }
        let of_connections = |map: &ConfigMap| -> ConfigMap {
            let kept = map.iter().filter(|(key, _)| !FILTERS.contains(&&***key));
            kept.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        if of_connections(&self.configs) != of_connections(configs) {
            return false;
        }
        let Ok(config) = MirrorConfig::resolve(configs) else { return false };
        self.config = Arc::new(config);
        self.configs = configs.clone();
        self.say_filters("a mirror has other topics");
        self.refresh.look_now();
        true
    }

    /// Says what the mirror is of.
    pub(super) fn say_filters(&self, what: &str) {
        let filter = |key: &str| self.configs.get(key).map(|value| value.to_string()).unwrap_or_default();
        let (mirror, source) = (&self.life.mirror, filter("bootstrap.servers"));
        let (topics, without) = (filter("topics.include"), filter("topics.exclude"));
        tracing::info!(%mirror, source, topics, without, "{what}");
    }

    /// A partition is led here and bound to this mirror.
    pub(super) fn bind(
        &mut self,
        partition: TopicIdPartition,
        topic: &Arc<str>,
        bound: Bound,
        life: u64,
        context: &mut Context<'_>,
    ) {
        self.topics.entry(partition.topic_id).or_insert_with(|| BoundTopic {
            at_source: Arc::new(TopicAtSource { name: topic.clone(), id: partition.topic_id }),
            missed_at_ms: None,
        });
        match self.partitions.get_mut(&partition) {
            Some(member) if member.partition.bound() == bound => return,
            Some(member) => {
                member.partition.rebound(bound);
                if member.partition.gives_up_step() {
                    // However that ends, it is of another life.
                    member.life = life;
                }
            }
            None => {
                if bound.desired == DesiredState::Mirroring {
                    self.news.joined(context.now_ms, topic);
                }
                let member =
                    Member { partition: Partition::new(bound), life, told: Health::Well, known: None };
                self.partitions.insert(partition, member);
            }
        }
        self.settle(partition, context);
    }

    /// A partition is led here no more, or not bound to this mirror.
    pub(super) fn unbind(&mut self, partition: TopicIdPartition, cluster: &impl LocalCluster, board: &Board) {
        self.unbind_all(vec![partition], cluster, board);
    }

    fn unbind_all(&mut self, partitions: Vec<TopicIdPartition>, cluster: &impl LocalCluster, board: &Board) {
        let mut open = Vec::new();
        for partition in partitions {
            let Some(member) = self.partitions.remove(&partition) else { continue };
            self.lanes.remove(partition);
            board.erase(&self.life.mirror, partition);
            if !member.partition.is_closed() {
                open.push(partition);
            }
        }
        if !open.is_empty() {
            close(cluster, open);
        }
    }

    /// A topic has left the mirror.
    pub(super) fn unbind_topic(&mut self, topic: TopicId, cluster: &impl LocalCluster, board: &Board) {
        self.topics.remove(&topic);
        self.completing.gone(topic);
        self.unbind_all(self.partitions_of(topic), cluster, board);
    }

    /// Closes the gates of all partitions: the mirror is gone.
    pub(super) fn close_gates(&self, cluster: &impl LocalCluster) {
        close(cluster, self.partitions.keys().copied().collect());
    }

    pub(super) fn stop_lanes(&mut self) {
        self.lanes.stop_all();
    }

    pub(super) fn has_no_lanes(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn partitions_of(&self, topic: TopicId) -> Vec<TopicIdPartition> {
        let place = |partition| TopicIdPartition { topic_id: topic, partition };
        let all = place(PartitionIndex(i32::MIN))..=place(PartitionIndex(i32::MAX));
        self.partitions.range(all).map(|(partition, _)| *partition).collect()
    }

    /// Asks a partition what it wants and queues it for that.
    pub(super) fn settle(&mut self, partition: TopicIdPartition, context: &mut Context<'_>) {
        let Some(member) = self.partitions.get_mut(&partition) else { return };
        let mut want = member.partition.want(context.now_ms);
        if want == Want::LeaveLane {
            self.lanes.leave(partition);
            member.left_lane(&self.life.mirror, partition, context);
            want = member.partition.want(context.now_ms);
        }
        if member.partition.has_stopped() {
            self.completing.look_at(partition.topic_id);
        }
        match want {
            _ if self.unusable && member.partition.bound().desired == DesiredState::Mirroring => {}
            Want::Nothing | Want::LeaveLane => {}
            Want::Wait(until_ms) => {
                self.timers.insert((until_ms, partition));
            }
            Want::SourceMetadata => self.refresh.look_soon(),
            Want::Fetch(..) => {
                self.ready.insert(partition);
            }
            other => {
                let coordinator = coordinator_of(&self.life.mirror, partition, context.image);
                if let Some(work) = Work::of(other, coordinator) {
                    self.queues.entry(work).or_default().insert(partition);
                }
            }
        }
        self.tell(partition, context.now_ms);
        self.show(partition, None, context.shared);
    }

    /// Tells the log where a partition has failed, or goes on.
    fn tell(&mut self, at: TopicIdPartition, now_ms: u64) {
        let (Some(member), Some(topic)) = (self.partitions.get_mut(&at), self.topics.get(&at.topic_id))
        else {
            return;
        };
        let health = match member.partition.retry_attempt() {
            0 => Health::Well,
            1.. => Health::Failed(HowLong::UntilRetried),
            _ => Health::Failed(HowLong::ForGood),
        };
        if std::mem::replace(&mut member.told, health) == health {
            return;
        }
        match (health, member.partition.trouble()) {
            (Health::Failed(how_long), Some((reason, message))) => {
                let place = (&*topic.at_source.name, at.partition);
                self.news.failed(now_ms, place, how_long, (reason, &message));
            }
            (Health::Failed(_), None) => {}
            (Health::Well, _) => self.news.went_on(now_ms),
        }
    }

    /// Writes how a partition stands where others read it.
    pub(super) fn show(&self, partition: TopicIdPartition, lane: Option<Arc<LaneProgress>>, shared: &Shared) {
        let Some(Member { partition: known, .. }) = self.partitions.get(&partition) else { return };
        let written = Written {
            state: known.state(),
            retry_attempt: known.retry_attempt(),
            trouble: known.trouble(),
            notice: known.notice(),
            is_in_lane: known.is_in_lane(),
            source: known.source().map(|leader| leader.broker),
            waits_for_source: known.waits_for_source(),
        };
        shared.board.write(&self.life.mirror, partition, written, lane);
    }

    /// Settles partitions whose waits are over.
    pub(super) fn times_up(&mut self, context: &mut Context<'_>) {
        while let Some(&(at_ms, partition)) = self.timers.first()
            && at_ms <= context.now_ms
        {
            self.timers.pop_first();
            self.settle(partition, context);
        }
    }

    /// When something is to be done without anything happening.
    pub(super) fn look_again_ms(&self, context: &Context<'_>) -> u64 {
        let timer_ms = self.timers.first().map_or(u64::MAX, |(at_ms, _)| *at_ms);
        let refresh_ms = if self.unusable { u64::MAX } else { self.refresh.due_ms(context.now_ms) };
        let due_ms = refresh_ms.min(self.news.due_ms()).min(self.completing.due_ms());
        timer_ms.min(due_ms).min(self.lanes.idle_until_ms())
    }

    /// A lane has something to say.
    pub(super) fn lane_reports(&mut self, lane: u64, report: LaneReport, context: &mut Context<'_>) {
        match report {
            LaneReport::Left(left) => {
                for Left { partition, serial, why } in left {
                    if self.lanes.forget(partition, lane, serial) {
                        self.left(partition, why, context);
                        self.settle(partition, context);
                    }
                }
            }
            LaneReport::GoesOn(partitions) => {
                for (partition, serial) in partitions {
                    if self.lanes.fetches(partition, lane, serial)
                        && let Some(member) = self.partitions.get_mut(&partition)
                    {
                        member.partition.goes_on();
                        self.tell(partition, context.now_ms);
                        self.show(partition, None, context.shared);
                    }
                }
            }
            LaneReport::Missed(missed) => {
                for (partition, serial, gap) in missed {
                    if self.lanes.fetches(partition, lane, serial) {
                        self.missed(partition, gap, context);
                        self.show(partition, None, context.shared);
                    }
                }
            }
            LaneReport::LinkBroken => self.refresh.look_soon(),
            LaneReport::LinkChanged => {}
            LaneReport::Ended => {
                for partition in self.lanes.ended(lane) {
                    if let Some(member) = self.partitions.get_mut(&partition) {
                        // A lane that is told to end fetches nothing any more: this one has died.
                        member.left_lane(&self.life.mirror, partition, context);
                        member.partition.doubt();
                        let message = "its fetcher has ended and is begun again";
                        self.fail(partition, Reason::DestinationNoLeader, message.into(), context);
                        self.settle(partition, context);
                    }
                }
            }
        }
    }

    /// A partition has left its lane: what does that mean?
    fn left(&mut self, at: TopicIdPartition, why: Leaving, context: &mut Context<'_>) {
        let Some(member) = self.partitions.get_mut(&at) else { return };
        member.left_lane(&self.life.mirror, at, context);
        let partition = &mut member.partition;
        if !matches!(why, Leaving::Reconnected | Leaving::Moved(Some(_), _)) {
            partition.doubt();
        }
        let (reason, message) = match why {
            Leaving::Reconnected => return,
            Leaving::Diverged(why) if partition.said_diverged() => (Reason::SourceError, why),
            Leaving::Diverged(_) => return,
            Leaving::EpochBehind(epoch) => return partition.fell_behind(epoch),
            Leaving::Moved(Some(hint), code) => return self.moved(at, hint, code, context),
            Leaving::Moved(None, code) | Leaving::Unknown(code) => {
                return self.source_lost(at, code, context);
            }
            Leaving::Refused(code) => {
                let refused = format!("the source answers {}: {}", code.name(), code.message());
                (Reason::of_refusal(code), refused)
            }
            Leaving::Corrupt(why) => (Reason::CorruptBatch, why),
            Leaving::TooLarge(why) => (Reason::BatchTooLarge, why),
            Leaving::UnsupportedFormat(why) => (Reason::UnsupportedRecordFormat, why),
            Leaving::OutOfStep(why) => (Reason::SourceError, why),
            Leaving::Storage(why) => (Reason::DestinationStorage, why),
            Leaving::StaleGeneration => {
                (Reason::DestinationNoLeader, "the partition was closed to the mirror".to_owned())
            }
            Leaving::NotLeaderHere => {
                (Reason::DestinationNoLeader, "this broker does not lead it".to_owned())
            }
        };
        self.fail(at, reason, message.into(), context);
    }

    /// The source says who leads now (KIP-951): no need to ask, where that is news.
    fn moved(&mut self, at: TopicIdPartition, hint: LeaderHint, code: ErrorCode, context: &mut Context<'_>) {
        if let Some(endpoint) = hint.endpoint {
            self.brokers.insert(hint.leader, endpoint);
        }
        let Some(Member { partition, .. }) = self.partitions.get_mut(&at) else { return };
        let before = partition.source();
        partition.source_seen(Some(SourceLeader { broker: hint.leader, epoch: hint.epoch }));
        if partition.source() == before || !self.brokers.contains_key(&hint.leader) {
            partition.doubt();
            self.source_lost(at, code, context);
        }
    }
}

impl Member {
    /// No lane fetches it any more; what this one knew of the source is kept.
    fn left_lane(&mut self, mirror: &str, at: TopicIdPartition, context: &Context<'_>) {
        self.known = self.known_of_source(mirror, at, context);
        self.partition.left_lane();
    }

    /// What is known of the source: for a stop what was when it wrote its position, else the newest.
    pub(super) fn known_of_source(
        &self,
        mirror: &str,
        at: TopicIdPartition,
        context: &Context<'_>,
    ) -> Option<SourceKnown> {
        let newest = || SourceKnown::newer(self.known, context.shared.board.known_of_source(mirror, at));
        self.partition.known_at_stop().or_else(newest)
    }
}

/// Every binding's version is this or higher.
const ANY_VERSION: i64 = i64::MIN;

/// The partition of `__mirror_state` that keeps a partition's state.
fn coordinator_of(mirror: &str, partition: TopicIdPartition, image: &MetadataImage) -> PartitionIndex {
    let count = image.topics().by_name(STATE_TOPIC).map_or(0, |topic| topic.partitions.len());
    coordinator_partition(mirror, partition, i32::try_from(count).unwrap_or(i32::MAX))
}

/// Closes gates; whoever no longer leads the partition needs no answer.
fn close(cluster: &impl LocalCluster, partitions: Vec<TopicIdPartition>) {
    let cluster = cluster.clone();
    let order = |partition| GateOrder { partition, gate: Gate::Closed, version: ANY_VERSION };
    let gates = partitions.into_iter().map(order).collect();
    spawn(Queue::Mirror, async move { drop(cluster.set_gates(gates).await) }).detach();
}
