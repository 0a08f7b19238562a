//! The work of a mirror: what its partitions want is begun for many at once, and each is told what became of it.

use std::sync::Arc;

use tarn_image::mirrors::SOURCE_CLUSTER_ID;
use tarn_record::TopicIdPartition;
use tarn_runtime::{Queue, spawn};
use tarn_wire::ErrorCode;

use super::job::{Item, Outcome, Site, Work};
use super::mirror::{Context, Member, Mirror};
use super::shared::{Event, NodeLimits};
use super::work;
use crate::alignment::GoOn;
use crate::divergence::Alignment;
use crate::fetch::budget::FetchBudget;
use crate::gaps::Gap;
use crate::limits;
use crate::local_cluster::{LocalCluster, LogTruncated};
use crate::metrics::MirrorMetrics;
use crate::partition::{Partition, Want};
use crate::reasons::Reason;
use crate::state::MirrorState;
use crate::truncation::TruncationPlan;

impl Mirror {
    /// Begins the work that partitions queue for, each kind once at a time.
    pub(super) fn begin_work(
        &mut self,
        cluster: &impl LocalCluster,
        limits: &NodeLimits,
        budget: &Arc<FetchBudget>,
        context: &Context<'_>,
    ) {
        let kinds: Vec<Work> =
            self.queues.keys().filter(|work| !self.running.contains(work)).copied().collect();
        for work in kinds {
            let items = self.take_items(work, context);
            if items.is_empty() {
                continue;
            }
            self.running.insert(work);
            let (life, shared, cluster) = (self.life.clone(), context.shared.clone(), cluster.clone());
            let site = Site {
                work,
                mirror: life.mirror.clone(),
                source_cluster_id: self.configs.get(SOURCE_CLUSTER_ID).cloned(),
                shared: context.shared.clone(),
                connections: self.connections.clone(),
                endpoint: work.broker().and_then(|broker| self.brokers.get(&broker).cloned()),
                config: self.config.clone(),
                batch_max_bytes: limits.batch_max_bytes,
                budget: budget.clone(),
            };
            site.asks();
            spawn(Queue::Mirror, async move {
                let partitions: Vec<_> = items.iter().map(|item| (item.partition, item.life)).collect();
                let outcomes = work::run(work, &site, &cluster, items).await;
                let outcomes =
                    partitions.into_iter().zip(outcomes).map(|((one, life), outcome)| (one, life, outcome));
                shared.events.put(Event::Worked { mirror: life, work, outcomes: outcomes.collect() });
            })
            .detach();
        }
    }

    /// Takes partitions out of a queue that still want this work.
    fn take_items(&mut self, work: Work, context: &Context<'_>) -> Vec<Item> {
        let mut items = Vec::new();
        let Some(queue) = self.queues.get_mut(&work) else { return items };
        while items.len() < limits::PARTITIONS_PER_REQUEST_MAX {
            let Some(partition) = queue.pop_first() else {
                self.queues.remove(&work);
                break;
            };
            let Some(member) = self.partitions.get_mut(&partition) else { continue };
            let want = member.partition.want(context.now_ms);
            let Some(topic) = self.topics.get(&partition.topic_id).filter(|_| work.is_wanted(want)) else {
                continue;
            };
            member.partition.begin(want);
            let known = match want {
                Want::WriteState(MirrorState::Stopping | MirrorState::Stopped) => {
                    member.known_of_source(&self.life.mirror, partition, context)
                }
                _ => None,
            };
            items.push(Item {
                partition,
                life: member.life,
                topic: topic.at_source.name.clone(),
                want,
                bound: member.partition.bound(),
                state_epoch: member.partition.state_epoch(),
                trouble: member.partition.trouble(),
                content: member.partition.content(),
                last_position: member.partition.last_position(),
                truncation_notice: member.partition.truncation_notice(),
                unreported: member.partition.unreported().cloned(),
                position: member.partition.position(),
                ended: member.partition.ended().cloned(),
                known,
            });
        }
        items
    }

    /// Work has ended.
    pub(super) fn worked(
        &mut self,
        work: Work,
        outcomes: Vec<(TopicIdPartition, u64, Outcome)>,
        context: &mut Context<'_>,
    ) {
        self.running.remove(&work);
        if let Some(question) = work.question() {
            context.shared.board.answered(&self.life.mirror, question);
        }
        for (partition, life, outcome) in outcomes {
            if self.partitions.get(&partition).is_none_or(|member| member.life != life) {
                continue;
            }
            self.take_outcome(partition, outcome, context);
            self.settle(partition, context);
        }
    }

    fn take_outcome(&mut self, at: TopicIdPartition, outcome: Outcome, context: &mut Context<'_>) {
        let Some(Member { partition, .. }) = self.partitions.get_mut(&at) else { return };
        partition.end();
        match outcome {
            Outcome::Read(persisted, noted) => {
                partition.state_read(persisted);
                if let Some(noted) = noted {
                    partition.export_found(&noted);
                }
            }
            Outcome::Written { state, state_epoch, version } => {
                partition.state_written(state, state_epoch, version);
            }
            Outcome::StoppingWritten { position, known, state_epoch, version } => {
                partition.stopping_written(position, known, state_epoch, version);
            }
            Outcome::WrittenByOthers(why) => {
                partition.state_unknown();
                // Where that goes on, as under metadata that are behind, it is not read without a pause.
                self.fail(at, Reason::CoordinatorUnavailable, why.into(), context);
            }
            Outcome::GateClosed => partition.gate_closed(),
            Outcome::GateOpened(generation) => partition.gate_opened(generation),
            Outcome::Raised(above) => partition.raise_asked(above, context.now_ms),
            Outcome::Flushed(ends) => partition.flushed(&ends),
            Outcome::FlushedAnother(ends) => {
                partition.position_is_void();
                partition.flushed(&ends);
            }
            Outcome::Ended(ended) => partition.log_ended(ended),
            Outcome::EndRefused(reason, why) => {
                partition.end_refused();
                self.fail(at, reason, why.into(), context);
            }
            Outcome::Compared(leader, alignment) => {
                if partition.source() == Some(leader) {
                    self.compared(at, &alignment, context);
                }
            }
            Outcome::Apart(leader, why) => {
                if partition.source() == Some(leader) {
                    partition.apart(why.into());
                }
            }
            Outcome::Truncated(plan, done, version) => self.truncated(at, &plan, &done, version, context),
            Outcome::TruncationRefused(reason, why) => {
                partition.truncation_refused();
                self.fail(at, reason, why.into(), context);
            }
            Outcome::SourceLost(code) => self.source_lost(at, code, context),
            Outcome::Failed(reason, message) => {
                if matches!(reason, Reason::SourceUnreachable | Reason::SourceClusterChanged) {
                    self.refresh.look_soon();
                }
                self.fail(at, reason, message.into(), context);
            }
        }
    }

    fn compared(&mut self, at: TopicIdPartition, alignment: &Alignment, context: &mut Context<'_>) {
        let (Some(member), Some(topic)) = (self.partitions.get_mut(&at), self.topics.get(&at.topic_id))
        else {
            return;
        };
        let configs = context.image.configs().topic(&topic.at_source.name);
        let before = member.partition.retry_attempt();
        member.partition.compared(alignment, self.config.divergence_records_max(configs));
        count_failure(&member.partition, before, &context.shared.metrics);
        if let Alignment::GoOn(GoOn { gap: Some(gap), .. }) = *alignment {
            self.missed(at, gap, context);
        }
    }

    fn truncated(
        &mut self,
        at: TopicIdPartition,
        plan: &TruncationPlan,
        done: &LogTruncated,
        version: i64,
        context: &Context<'_>,
    ) {
        let Some(Member { partition, .. }) = self.partitions.get_mut(&at) else { return };
        partition.truncated(plan, done, version);
        if let Some(export) = &done.export {
            let metrics = &context.shared.metrics;
            metrics.exports.add(1);
            metrics.exported_records.add(export.records);
            metrics.exported_bytes.add(export.bytes);
        }
        if let Some(why) = &done.unflushed {
            self.fail(at, Reason::DestinationStorage, why.clone(), context);
        }
    }

    /// Writes a failure down; how it goes on is the reason's to say.
    pub(super) fn fail(
        &mut self,
        at: TopicIdPartition,
        reason: Reason,
        message: Arc<str>,
        context: &Context<'_>,
    ) {
        let Some(Member { partition, .. }) = self.partitions.get_mut(&at) else { return };
        let before = partition.retry_attempt();
        tracing::debug!(mirror = %self.life.mirror, partition = %at, reason = reason.code(), %message);
        partition.failed(reason, message, context.now_ms, fastrand::f64(), context.retry);
        count_failure(partition, before, &context.shared.metrics);
    }

    /// The broker that was thought to lead a partition at the source does not, or does not know it.
    pub(super) fn source_lost(&mut self, at: TopicIdPartition, code: ErrorCode, context: &mut Context<'_>) {
        let Some(Member { partition, .. }) = self.partitions.get_mut(&at) else { return };
        partition.source_lost();
        self.refresh.look_soon();
        let message = format!("the source broker answers {}", code.name());
        self.fail(at, Reason::SourceLeaderUnknown, message.into(), context);
    }

    /// The source removed offsets before they were copied.
    pub(super) fn missed(&mut self, at: TopicIdPartition, gap: Gap, context: &Context<'_>) {
        let Some(Member { partition, .. }) = self.partitions.get_mut(&at) else { return };
        let news = partition.missed(gap);
        if news > 0 {
            context.shared.metrics.gap_records.add(news);
            let (mirror, reason) = (&self.life.mirror, Reason::SourceGap.code());
            let (first, next) = (gap.first, gap.next);
            tracing::warn!(%mirror, partition = %at, %first, %next, reason, "removed before copied");
        }
    }
}

/// Counts what has failed since `before`, which was the retry it was in.
fn count_failure(partition: &Partition, before: i16, metrics: &MirrorMetrics) {
    let after = partition.retry_attempt();
    let counted = match after {
        -1 if before != -1 => &metrics.terminal_failures,
        after if after > before => &metrics.retries,
        _ => return,
    };
    if let Some((reason, _)) = partition.trouble() {
        counted.of(reason).add(1);
    }
}
