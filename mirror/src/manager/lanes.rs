//! Which lane fetches which partition.
//!
//! A lane belongs to one source broker; a partition goes to one of the broker's lanes by its hash, and
//! lanes are dealt over the mirror cores in turn. What a lane is told is gathered, so that many partitions
//! are one command.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use tarn_record::{BrokerId, TopicIdPartition};
use tarn_transport::Endpoint;

use super::mirror::{Context, Mirror};
use super::{CoreTask, Event, MirrorCores, NodeLimits};
use crate::fetch::budget::FetchBudget;
use crate::fetch::lane::{self, LaneCommand, LaneSpec};
use crate::fetch::plan::Assignment;
use crate::fetch::progress::LaneProgress;
use crate::limits;
use crate::local_cluster::LocalCluster;
use crate::partition::Want;
use crate::post::Post;

/// What new lanes are made of.
pub(super) struct Crew<'a, M> {
    pub(super) cores: &'a Rc<M>,
    pub(super) budget: &'a Arc<FetchBudget>,
    pub(super) limits: &'a NodeLimits,
}

/// The lanes of a mirror.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Key, Lane>,
    /// Told to stop and not yet ended.
    ending: BTreeSet<u64>,
    placed: BTreeMap<TopicIdPartition, Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    broker: BrokerId,
    number: u64,
}

struct Lane {
    id: u64,
    endpoint: Endpoint,
    commands: Arc<Post<LaneCommand>>,
    progress: Arc<LaneProgress>,
    adding: Vec<Assignment>,
    fetching: usize,
    idle_since_ms: Option<u64>,
}

/// Where a partition is fetched, or was last: its lag is kept there.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    lane: u64,
    serial: u64,
    is_fetched: bool,
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
            if !self.lanes.lanes.contains_key(&key) {
                *next_number += 1;
                let lane = self.begin_lane(key, endpoint.clone(), *next_number, crew, context);
                self.lanes.lanes.insert(key, lane);
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
        Lane { id, endpoint, commands, progress, adding: Vec::new(), fetching: 0, idle_since_ms: None }
    }
}

impl Lanes {
    fn add(&mut self, key: Key, assignment: Assignment) -> Option<Arc<LaneProgress>> {
        let (partition, serial) = (assignment.partition, assignment.serial);
        let id = self.lanes.get(&key)?.id;
        let place = Place { key, lane: id, serial, is_fetched: true };
        if let Some(old) = self.placed.insert(partition, place)
            && old.lane != id
        {
            self.tell(old, LaneCommand::Remove(vec![partition]));
        }
        let lane = self.lanes.get_mut(&key)?;
        lane.fetching += 1;
        lane.adding.push(assignment);
        Some(lane.progress.clone())
    }

    /// Sends what was gathered, and ends lanes that have had nothing to fetch for long.
    fn send(&mut self, now_ms: u64) {
        let mut idle = Vec::new();
        for (key, lane) in &mut self.lanes {
            if !lane.adding.is_empty() {
                lane.commands.put(LaneCommand::Add(std::mem::take(&mut lane.adding)));
            }
            if lane.fetching > 0 {
                lane.idle_since_ms = None;
            } else if now_ms.saturating_sub(*lane.idle_since_ms.get_or_insert(now_ms)) >= limits::IDLE_LANE_MS
            {
                idle.push(*key);
            }
        }
        for key in idle {
            if let Some(lane) = self.lanes.remove(&key) {
                lane.commands.put(LaneCommand::Stop);
                self.ending.insert(lane.id);
            }
        }
    }

    /// When the next idle lane is to be ended.
    pub(super) fn idle_until_ms(&self) -> u64 {
        let since = self.lanes.values().filter_map(|lane| lane.idle_since_ms).min();
        since.map_or(u64::MAX, |since| since + limits::IDLE_LANE_MS)
    }

    /// Takes a partition out of its lane; its lag stays readable.
    pub(super) fn leave(&mut self, partition: TopicIdPartition) {
        let Some(place) = self.placed.get_mut(&partition).filter(|place| place.is_fetched) else { return };
        place.is_fetched = false;
        let place = *place;
        let Some(lane) = self.lanes.get_mut(&place.key).filter(|lane| lane.id == place.lane) else { return };
        lane.fetching -= 1;
        lane.adding.retain(|assignment| assignment.partition != partition);
        lane.commands.put(LaneCommand::Leave(partition));
    }

    /// Takes a partition out for good.
    pub(super) fn remove(&mut self, partition: TopicIdPartition) {
        self.leave(partition);
        if let Some(place) = self.placed.remove(&partition) {
            self.tell(place, LaneCommand::Remove(vec![partition]));
        }
    }

    /// True where that lane fetches the partition under that serial.
    pub(super) fn fetches(&self, partition: TopicIdPartition, lane: u64, serial: u64) -> bool {
        let place = self.placed.get(&partition);
        place.is_some_and(|place| place.is_fetched && place.lane == lane && place.serial == serial)
    }

    /// A lane says that it does not fetch the partition any more. False where that is old news.
    pub(super) fn forget(&mut self, partition: TopicIdPartition, lane: u64, serial: u64) -> bool {
        if !self.fetches(partition, lane, serial) {
            return false;
        }
        if let Some(place) = self.placed.get_mut(&partition) {
            place.is_fetched = false;
            let key = place.key;
            if let Some(known) = self.lanes.get_mut(&key) {
                known.fetching -= 1;
            }
        }
        true
    }

    /// A lane has ended; the partitions that it still fetched.
    pub(super) fn ended(&mut self, id: u64) -> Vec<TopicIdPartition> {
        self.ending.remove(&id);
        self.lanes.retain(|_, lane| lane.id != id);
        let mut fetched = Vec::new();
        for (partition, place) in &mut self.placed {
            if place.lane == id && place.is_fetched {
                place.is_fetched = false;
                fetched.push(*partition);
            }
        }
        fetched
    }

    /// A source broker may be found somewhere else now.
    pub(super) fn broker_is_at(&mut self, broker: BrokerId, endpoint: &Endpoint) {
        for (_, lane) in self.lanes.iter_mut().filter(|(key, _)| key.broker == broker) {
            if lane.endpoint != *endpoint {
                lane.endpoint = endpoint.clone();
                lane.commands.put(LaneCommand::Endpoint(endpoint.clone()));
            }
        }
    }

    pub(super) fn stop_all(&mut self) {
        for (_, lane) in std::mem::take(&mut self.lanes) {
            lane.commands.put(LaneCommand::Stop);
            self.ending.insert(lane.id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.ending.is_empty()
    }

    fn tell(&self, place: Place, command: LaneCommand) {
        if let Some(lane) = self.lanes.get(&place.key).filter(|lane| lane.id == place.lane) {
            lane.commands.put(command);
        }
    }
}

fn hash(partition: TopicIdPartition) -> u64 {
    let mut hasher = DefaultHasher::new();
    partition.hash(&mut hasher);
    hasher.finish()
}
