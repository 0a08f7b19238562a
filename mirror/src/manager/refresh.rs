//! Looking at the source's metadata, at intervals and when something asks for it; and bringing topics and
//! partitions up to date afterwards.

use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_record::{BrokerId, TopicId};
use tarn_runtime::{Queue, spawn};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;
use tarn_wire::messages::create_partitions_request::CreatePartitionsTopic;
use tarn_wire::messages::{CreatePartitionsRequest, StartMirrorTopicsRequest};

use super::board::TaskName;
use super::mirror::{Context, Mirror};
use super::{Event, NodeLimits};
use crate::backoff::Backoff;
use crate::coordinator::{STATE_TOPIC, home_partition};
use crate::fetch::plan::TopicAtSource;
use crate::limits;
use crate::local_cluster::LocalCluster;
use crate::partition::Want;
use crate::reasons::{Reason, is_about_permission};
use crate::source::connections::Connections;
use crate::source::metadata::{self, SourceMetadata, TopicMetadata, Topics};
use crate::source::upstream::{self, Upstream};
use crate::source::{SourceError, SourceTopic, configs, identify};
use crate::sync::discovery::discover;
use crate::sync::topics::growth;

/// How long the controller may take to add partitions.
const CREATE_PARTITIONS_MS: i32 = 30_000;

/// What a look at the source has found.
pub(super) struct Looked {
    metadata: SourceMetadata,
    upstream: Upstream,
}

/// What a sync has to say: nothing, or what is wrong.
pub(super) type Synced = Result<(), (Reason, String)>;

/// When to look next.
pub(super) struct Refresh {
    is_running: bool,
    /// The look that is running is the one of the interval.
    is_periodic: bool,
    is_wanted: bool,
    /// A sync that a look began has not ended.
    is_syncing: bool,
    periodic_at_ms: u64,
    not_before_ms: u64,
    attempts: u32,
}

impl Refresh {
    /// A first look is due at once.
    pub(super) fn new(now_ms: u64) -> Refresh {
        Refresh {
            is_running: false,
            is_periodic: false,
            is_wanted: true,
            is_syncing: false,
            periodic_at_ms: now_ms,
            not_before_ms: now_ms,
            attempts: 0,
        }
    }

    /// Something must be known: look as soon as the last look is not too near.
    pub(super) fn look_soon(&mut self) {
        self.is_wanted = true;
    }

    /// Patterns have changed: the look of the interval is due now.
    pub(super) fn look_now(&mut self) {
        self.periodic_at_ms = 0;
    }

    /// When the next look is due; never while one is running.
    pub(super) fn due_ms(&self, now_ms: u64) -> u64 {
        if self.is_running {
            return u64::MAX;
        }
        let due_ms =
            if self.is_wanted { self.not_before_ms } else { self.periodic_at_ms.max(self.not_before_ms) };
        due_ms.max(now_ms)
    }

    fn begin(&mut self, now_ms: u64, interval_ms: u64) {
        self.is_running = true;
        self.is_wanted = false;
        self.is_periodic = self.periodic_at_ms <= now_ms;
        if self.is_periodic {
            let spread = 0.9 + 0.2 * fastrand::f64();
            self.periodic_at_ms = now_ms + (interval_ms as f64 * spread) as u64;
        }
    }

    /// A look has ended. Where it did not help, the next one comes later each time.
    fn ended(&mut self, now_ms: u64, helped: bool) {
        self.is_running = false;
        self.attempts = if helped { 0 } else { self.attempts.saturating_add(1) };
        self.is_wanted |= !helped;
        let wait_ms = Backoff::new(limits::REFRESH_MS).wait_ms(self.attempts.max(1), fastrand::f64());
        self.not_before_ms = now_ms + wait_ms;
    }
}

impl Mirror {
    /// Begins a look at the source where one is due.
    pub(super) fn begin_refresh(
        &mut self,
        cluster: &impl LocalCluster,
        limits: &NodeLimits,
        context: &Context<'_>,
    ) {
        let now_ms = context.now_ms;
        if self.refresh.due_ms(now_ms) > now_ms {
            return;
        }
        self.refresh.begin(now_ms, limits.refresh_ms);
        let is_home = is_home(&self.life.mirror, context.image, cluster.broker_id());
        let topics = self.topics_to_ask(is_home, context.image);
        let known: Vec<Endpoint> = self.brokers.values().cloned().collect();
        let (connections, shared, life) =
            (self.connections.clone(), context.shared.clone(), self.life.clone());
        spawn(Queue::Mirror, async move {
            let result = look(&connections, &known, topics).await;
            shared.events.put(Event::Refreshed { mirror: life, result });
        })
        .detach();
    }

    fn topics_to_ask(&self, is_home: bool, image: &MetadataImage) -> Topics {
        if is_home && self.refresh.is_periodic && !self.config.topics_include.is_empty() {
            return Topics::All;
        }
        let names: Vec<Arc<str>> = match is_home {
            true => image.bindings().topics_of(&self.life.mirror).cloned().collect(),
            false => self.topics.values().map(|topic| topic.at_source.name.clone()).collect(),
        };
        if names.is_empty() { Topics::None } else { Topics::Named(names) }
    }

    /// The source has answered, or not.
    pub(super) fn refreshed(
        &mut self,
        result: Result<Looked, SourceError>,
        cluster: &impl LocalCluster,
        context: &mut Context<'_>,
    ) {
        let is_periodic = self.refresh.is_periodic;
        let identified = result.and_then(|looked| {
            identify(&self.config, &looked.metadata, &self.own_cluster_id)?;
            Ok(looked)
        });
        let board = &context.shared.board;
        match identified {
            Ok(looked) => {
                board.task(&self.life.mirror, TaskName::Metadata, Ok(()));
                let (bindings, mirror) = (context.image.bindings(), &self.life.mirror);
                let is_ours = |topic: &str| bindings.of(topic).is_some_and(|bound| bound.mirror == *mirror);
                board.upstream(mirror, looked.upstream.clusters_of(is_ours));
                self.take_metadata(&looked, context);
                let now_ms = context.now_ms;
                let is_unresolved = self
                    .partitions
                    .values()
                    .any(|member| member.partition.want(now_ms) == Want::SourceMetadata);
                self.refresh.ended(now_ms, !is_unresolved);
                if is_periodic && is_home(&self.life.mirror, context.image, cluster.broker_id()) {
                    self.begin_sync(&looked, cluster, context);
                }
            }
            Err(error) => {
                let (reason, message) = (error.reason(), error.to_string());
                tracing::warn!(mirror = %self.life.mirror, reason = reason.code(), %message, "source metadata");
                board.task(&self.life.mirror, TaskName::Metadata, Err((reason, message.as_str().into())));
                if let SourceError::ClusterChanged { .. } = error {
                    self.source_is_another(context);
                }
                self.refresh.ended(context.now_ms, false);
            }
        }
    }

    /// The source's addresses lead to another cluster, of which nothing must be taken: every partition waits
    /// until they lead back, which is looked for with backoff.
    fn source_is_another(&mut self, context: &mut Context<'_>) {
        let all: Vec<_> = self.partitions.keys().copied().collect();
        for partition in all {
            let Some(member) = self.partitions.get_mut(&partition) else { continue };
            if member.partition.source().is_some() {
                member.partition.source_lost();
                context.shared.metrics.retries.of(Reason::SourceClusterChanged).add(1);
                self.settle(partition, context);
            }
        }
    }

    fn take_metadata(&mut self, looked: &Looked, context: &mut Context<'_>) {
        let metadata = &looked.metadata;
        for (broker, endpoint) in &metadata.brokers {
            self.lanes.broker_is_at(*broker, endpoint);
        }
        self.brokers = metadata.brokers.clone();
        self.connections.keep(&self.brokers.values().cloned().collect::<Vec<_>>());
        let asked: Vec<(TopicId, &TopicMetadata)> = self
            .topics
            .iter()
            .filter_map(|(id, topic)| Some((*id, metadata.topics.get(&topic.at_source.name)?)))
            .collect();
        for (id, there) in asked {
            self.take_topic(id, there, &looked.upstream, context);
        }
    }

    fn take_topic(
        &mut self,
        id: TopicId,
        there: &TopicMetadata,
        upstream: &Upstream,
        context: &mut Context<'_>,
    ) {
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let name = topic.at_source.name.clone();
        let comes_back = upstream.loop_of(&name, &self.own_cluster_id);
        let is_another = !there.id.is_zero() && there.id != id;
        let failure = match there.error {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                let missed_ms =
                    context.now_ms.saturating_sub(*topic.missed_at_ms.get_or_insert(context.now_ms));
                let reason = match missed_ms >= limits::DELETED_LOOKS_APART_MS {
                    true => Reason::SourceTopicDeleted,
                    false => Reason::SourceLeaderUnknown,
                };
                Some((reason, format!("the source does not know topic {name}")))
            }
            code if is_about_permission(code) => {
                Some((Reason::SourceAuthorizationFailed, format!("the source lets us not see topic {name}")))
            }
            ErrorCode::NONE if is_another => Some((
                Reason::SourceTopicRecreated,
                format!("topic {name} has the id {} at the source, {id} here", there.id),
            )),
            ErrorCode::NONE => comes_back.map(|why| (Reason::MirrorLoop, why)),
            _ => None,
        };
        if let Some((reason, message)) = failure {
            return self.topic_failed(id, reason, &message, context);
        }
        topic.missed_at_ms = None;
        let at_source = TopicAtSource { name, id: there.id };
        if there.error == ErrorCode::NONE && *topic.at_source != at_source {
            topic.at_source = Arc::new(at_source);
        }
        for partition in self.partitions_of(id) {
            let Some(member) = self.partitions.get_mut(&partition) else { continue };
            let before = member.partition.source();
            member.partition.source_seen(there.partitions.get(&partition.partition).copied());
            let is_leaderless = member.partition.want(context.now_ms) == Want::SourceMetadata;
            if is_leaderless {
                let message = "the source has no leader for the partition just now";
                self.fail(partition, Reason::SourceLeaderUnknown, message.into(), context);
            }
            if is_leaderless
                || self.partitions.get(&partition).is_some_and(|member| {
                    !member.partition.is_in_lane() || member.partition.source() != before
                })
            {
                self.settle(partition, context);
            }
        }
    }

    /// Partitions that are fetched all the same are left alone: this broker may know less than theirs.
    fn topic_failed(&mut self, id: TopicId, reason: Reason, message: &str, context: &mut Context<'_>) {
        for partition in self.partitions_of(id) {
            let waits = |mirror: &Mirror| {
                let member = mirror.partitions.get(&partition)?;
                Some(member.partition.want(context.now_ms) == Want::SourceMetadata)
            };
            let is_another_topic = reason == Reason::SourceTopicRecreated;
            if reason == Reason::MirrorLoop
                && let Some(member) = self.partitions.get_mut(&partition)
                && !member.partition.is_in_lane()
            {
                member.partition.source_lost();
            }
            if is_another_topic || waits(self) == Some(true) {
                self.fail(partition, reason, message.into(), context);
                self.settle(partition, context);
            }
        }
    }

    /// Begins with topics that are new at the source, and lets those grow that have grown there.
    fn begin_sync(&mut self, looked: &Looked, cluster: &impl LocalCluster, context: &Context<'_>) {
        // A controller that does not answer is asked once.
        if std::mem::replace(&mut self.refresh.is_syncing, true) {
            return;
        }
        let Looked { metadata, upstream } = looked;
        let discovered = discover(metadata, &self.config, context.image);
        let grown = growth(&self.life.mirror, metadata, context.image);
        let topic = |name: &Arc<str>| {
            let there = metadata.topics.get(name)?;
            let (name, partitions) = (name.to_string(), there.count());
            let loop_of = upstream.loop_of(&name, &self.own_cluster_id);
            Some(SourceTopic { name, id: there.id, partitions, configs: Vec::new(), loop_of })
        };
        let found = discovered.new.iter().filter_map(topic);
        let (back, new): (Vec<SourceTopic>, Vec<SourceTopic>) =
            found.partition(|topic| topic.loop_of.is_some());
        let comes_back = back.into_iter().find_map(|topic| Some((Reason::MirrorLoop, topic.loop_of?)));
        let conflict = discovered.conflicts.first().map(|(name, id)| {
            let others = discovered.conflicts.len() - 1;
            let message = format!("topic {name} exists here with another id ({id}), and {others} others");
            (Reason::TopicIdConflict, message)
        });
        let (life, shared, cluster) = (self.life.clone(), context.shared.clone(), cluster.clone());
        let (connections, config) = (self.connections.clone(), self.config.clone());
        spawn(Queue::Mirror, async move {
            let mut synced = create_partitions(grown, &cluster).await;
            if !new.is_empty() {
                let described = match connections.any(&[]).await {
                    Ok(client) => {
                        let names: Vec<&str> = new.iter().map(|topic| topic.name.as_str()).collect();
                        configs::ask(&client, &names, &config).await
                    }
                    Err(error) => Err(error),
                };
                let started = match described {
                    Ok(mut described) => {
                        let complete = |mut topic: SourceTopic| {
                            topic.configs = described.remove(&topic.name).unwrap_or_default();
                            topic
                        };
                        start(&life.mirror, new.into_iter().map(complete).collect(), &cluster).await
                    }
                    Err(error) => Err((error.reason(), error.to_string())),
                };
                synced = synced.and(started);
            }
            let synced = synced.and(comes_back.map_or(Ok(()), Err)).and(conflict.map_or(Ok(()), Err));
            shared.events.put(Event::Synced { mirror: life, synced });
        })
        .detach();
    }

    /// A sync has ended.
    pub(super) fn synced(&mut self, synced: Synced, context: &mut Context<'_>) {
        self.refresh.is_syncing = false;
        if let Err((reason, message)) = &synced {
            tracing::warn!(mirror = %self.life.mirror, reason = reason.code(), %message, "topics");
        }
        let result = synced.map_err(|(reason, message)| (reason, message.into()));
        context.shared.board.task(&self.life.mirror, TaskName::Topics, result);
    }
}

/// Asks whichever broker of the source answers.
async fn look(connections: &Connections, known: &[Endpoint], topics: Topics) -> Result<Looked, SourceError> {
    let client = connections.any(known).await?;
    let metadata = metadata::ask(&client, topics).await?;
    Ok(Looked { metadata, upstream: upstream::ask(&client).await? })
}

/// True on the broker that does what is done once for a mirror: the one that leads its home partition.
fn is_home(mirror: &str, image: &MetadataImage, us: BrokerId) -> bool {
    let Some(topic) = image.topics().by_name(STATE_TOPIC) else { return false };
    let home = home_partition(mirror, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX));
    topic.partitions.get(&home).is_some_and(|registration| registration.leader == us)
}

async fn create_partitions(topics: Vec<CreatePartitionsTopic>, cluster: &impl LocalCluster) -> Synced {
    if topics.is_empty() {
        return Ok(());
    }
    let request = CreatePartitionsRequest { topics, timeout_ms: CREATE_PARTITIONS_MS, validate_only: false };
    let response = cluster.call(request).await.map_err(unavailable)?;
    let failed = response.results.iter().find(|result| result.error_code != ErrorCode::NONE.0);
    match failed {
        None => Ok(()),
        Some(result) => {
            Err(refused("more partitions for", &result.name, result.error_code, &result.error_message))
        }
    }
}

async fn start(mirror: &str, topics: Vec<SourceTopic>, cluster: &impl LocalCluster) -> Synced {
    let request = StartMirrorTopicsRequest {
        mirror_name: mirror.into(),
        topics: topics.iter().map(SourceTopic::to_start).collect(),
        ..StartMirrorTopicsRequest::default()
    };
    let response = cluster.call(request).await.map_err(unavailable)?;
    if response.error_code != ErrorCode::NONE.0 {
        return Err(refused("to start topics of", mirror, response.error_code, &response.error_message));
    }
    let failed = response.topics.iter().find(|result| result.error_code != ErrorCode::NONE.0);
    match failed {
        None => Ok(()),
        Some(result) => Err(refused("to start", &result.name, result.error_code, &result.error_message)),
    }
}

fn unavailable(error: crate::local_cluster::LocalError) -> (Reason, String) {
    (Reason::ControllerUnavailable, error.to_string())
}

fn refused(what: &str, name: &str, code: i16, message: &Option<tarn_wire::Str>) -> (Reason, String) {
    let code = ErrorCode(code);
    let why = message.as_ref().map_or(code.message(), |message| message);
    (Reason::ControllerUnavailable, format!("the controller refuses {what} {name}: {} ({why})", code.name()))
}
