//! Looking at the source's metadata, and bringing topics and partitions up to date afterwards.

use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_record::{BrokerId, TopicId, TopicIdPartition};
use tarn_runtime::{Queue, spawn};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use super::board::{Question, TaskName};
use super::look::{Looked, Synced, create_partitions, look, start};
use super::mirror::{Context, Mirror};
use super::shared::{Event, NodeLimits};
use crate::coordinator::{STATE_TOPIC, home_partition};
use crate::fetch::plan::TopicAtSource;
use crate::limits;
use crate::local_cluster::LocalCluster;
use crate::partition::Want;
use crate::reasons::{Reason, is_about_permission};
use crate::source::metadata::{SourceLeader, TopicMetadata, Topics};
use crate::source::upstream::Upstream;
use crate::source::{SourceError, SourceTopic, configs, identify};
use crate::sync::discovery::discover;
use crate::sync::topics::growth;

impl Mirror {
    /// Begins a look at the source where one is due.
    pub(super) fn begin_refresh(
        &mut self,
        cluster: &impl LocalCluster,
        limits: &NodeLimits,
        context: &Context<'_>,
    ) {
        let now_ms = context.now_ms;
        if self.is_unusable() || self.refresh.due_ms(now_ms) > now_ms {
            return;
        }
        self.refresh.begin(now_ms, limits.refresh_ms);
        context.shared.board.asked(&self.life.mirror, Question::Metadata);
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
        board.answered(&self.life.mirror, Question::Metadata);
        match identified {
            Ok(looked) => {
                board.task(&self.life.mirror, TaskName::Metadata, Ok(()));
                if let Some(lasted_ms) = self.outage.over(context.now_ms) {
                    tracing::info!(mirror = %self.life.mirror, lasted_ms, "the source's metadata can be had again");
                }
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
                if let Some(for_ms) = self.outage.failed(context.now_ms) {
                    let (mirror, reason) = (&self.life.mirror, reason.code());
                    tracing::warn!(%mirror, reason, %message, for_ms, "the source's metadata cannot be had");
                }
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
        if let Some((reason, message)) = self.trouble_of(id, there, upstream, context.now_ms) {
            return self.topic_failed(id, reason, &message, context);
        }
        let Some(topic) = self.topics.get_mut(&id) else { return };
        topic.missed_at_ms = None;
        let at_source = TopicAtSource { name: topic.at_source.name.clone(), id: there.id };
        if there.error == ErrorCode::NONE && *topic.at_source != at_source {
            topic.at_source = Arc::new(at_source);
        }
        for partition in self.partitions_of(id) {
            self.take_leader(partition, there.partitions.get(&partition.partition).copied(), context);
        }
    }

    /// Why a topic cannot be mirrored as the source has it, or has it not.
    fn trouble_of(
        &mut self,
        id: TopicId,
        there: &TopicMetadata,
        upstream: &Upstream,
        now_ms: u64,
    ) -> Option<(Reason, String)> {
        let topic = self.topics.get_mut(&id)?;
        let name = &topic.at_source.name;
        let is_another = !there.id.is_zero() && there.id != id;
        match there.error {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                let missed_ms = now_ms.saturating_sub(*topic.missed_at_ms.get_or_insert(now_ms));
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
            ErrorCode::NONE => Some((Reason::MirrorLoop, upstream.loop_of(name, &self.own_cluster_id)?)),
            _ => None,
        }
    }

    fn take_leader(
        &mut self,
        partition: TopicIdPartition,
        leader: Option<SourceLeader>,
        context: &mut Context<'_>,
    ) {
        let Some(member) = self.partitions.get_mut(&partition) else { return };
        let before = member.partition.source();
        member.partition.source_seen(leader);
        let is_changed = !member.partition.is_in_lane() || member.partition.source() != before;
        let is_leaderless = member.partition.want(context.now_ms) == Want::SourceMetadata;
        if is_leaderless {
            let message = "the source has no leader for the partition just now";
            self.fail(partition, Reason::SourceLeaderUnknown, message.into(), context);
        }
        if is_leaderless || is_changed {
            self.settle(partition, context);
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
        let (mirror, now_ms) = (&self.life.mirror, context.now_ms);
        match &synced {
            Ok(()) => {
                if let Some(lasted_ms) = self.sync_outage.over(now_ms) {
                    tracing::info!(%mirror, lasted_ms, "topics are brought up to date again");
                }
            }
            Err((reason, message)) => {
                if let Some(for_ms) = self.sync_outage.failed(now_ms) {
                    let reason = reason.code();
                    tracing::warn!(%mirror, reason, %message, for_ms, "topics are not brought up to date");
                }
            }
        }
        let result = synced.map_err(|(reason, message)| (reason, message.into()));
        context.shared.board.task(&self.life.mirror, TaskName::Topics, result);
    }
}

/// True on the broker that does what is done once for a mirror: the one that leads its home partition.
pub(super) fn is_home(mirror: &str, image: &MetadataImage, us: BrokerId) -> bool {
    let Some(topic) = image.topics().by_name(STATE_TOPIC) else { return false };
    let home = home_partition(mirror, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX));
    topic.partitions.get(&home).is_some_and(|registration| registration.leader == us)
}
