//! Giving partitions to lanes, which are begun where there are none.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use tarn_record::TopicIdPartition;
use tarn_transport::Endpoint;

use super::cores::{CoreTask, MirrorCores};
use super::lanes::{Key, Lane};
use super::mirror::{Context, Mirror};
use super::shared::{Event, NodeLimits};
use crate::fetch::budget::FetchBudget;
use crate::fetch::lane::{self, LaneSpec};
use crate::fetch::plan::Assignment;
use crate::fetch::progress::LaneProgress;
use crate::local_cluster::LocalCluster;
use crate::partition::Want;
use crate::post::Post;

/// What new lanes are made of.
pub(super) struct Crew<'a, M> {
    pub(super) cores: &'a Rc<M>,
    pub(super) budget: &'a Arc<FetchBudget>,
    pub(super) limits: &'a NodeLimits,
}

impl Mirror {
    /// Gives partitions that are ready to lanes, which are begun where there are none.
    pub(super) fn assign<C: LocalCluster, M: MirrorCores<C>>(
        &mut self,
        crew: &Crew<'_, M>,
        next_number: &mut u64,
        context: &mut Context<'_>,
    ) {
        for partition in std::mem::take(&mut self.ready) {
            let Some(member) = self.partitions.get_mut(&partition) else { continue };
            let Want::Fetch(leader, aligned, generation) = member.partition.want(context.now_ms) else {
                self.settle(partition, context);
                continue;
            };
            let Some(topic) = self.topics.get(&partition.topic_id) else { continue };
            let Some(endpoint) = self.brokers.get(&leader.broker) else {
                member.partition.source_lost();
                self.settle(partition, context);
                continue;
            };
            *next_number += 1;
            let assignment = Assignment {
                partition,
                topic: topic.at_source.clone(),
                serial: *next_number,
                generation,
                from: aligned.from,
                last_epoch: aligned.last_epoch,
                leader_epoch: leader.epoch,
                compacted: aligned.compacted,
            };
            member.partition.joined_lane();
            let key = Key { broker: leader.broker, number: hash(partition) % crew.limits.fetchers };
            if !self.lanes.has(key) {
                *next_number += 1;
                let lane = self.begin_lane(key, endpoint.clone(), *next_number, crew, context);
                self.lanes.begin(key, lane);
            }
            let progress = self.lanes.add(key, assignment);
            self.show(partition, progress, context.shared);
        }
        self.lanes.send(context.now_ms);
    }

    fn begin_lane<C: LocalCluster, M: MirrorCores<C>>(
        &self,
        key: Key,
        endpoint: Endpoint,
        id: u64,
        crew: &Crew<'_, M>,
        context: &Context<'_>,
    ) -> Lane {
        let commands = Arc::new(Post::default());
        let progress = LaneProgress::new(context.shared.clock);
        let (shared, life) = (context.shared.clone(), self.life.clone());
        let spec = LaneSpec {
            mirror: self.life.mirror.clone(),
            client_id: format!("mirror-fetcher-{}-{}", key.number, self.life.mirror),
            config: self.config.clone(),
            endpoint: endpoint.clone(),
            batch_max_bytes: crew.limits.batch_max_bytes,
            commands: commands.clone(),
            report: Box::new(move |report| {
                shared.events.put(Event::Lane { mirror: life.clone(), lane: id, report });
            }),
            budget: crew.budget.clone(),
            progress: progress.clone(),
            metrics: context.shared.metrics.clone(),
        };
        let task: CoreTask<C> = Box::new(move |cluster| Box::pin(lane::run(spec, cluster)));
        let cores = crew.cores.count().max(1) as u64;
        crew.cores.spawn((id % cores) as usize, task);
        Lane::new(id, endpoint, commands, progress)
    }
}

fn hash(partition: TopicIdPartition) -> u64 {
    let mut hasher = DefaultHasher::new();
    partition.hash(&mut hasher);
    hasher.finish()
}
