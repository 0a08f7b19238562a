//! Which lane fetches which partition.
//!
//! A lane belongs to one source broker; a partition goes to one of the broker's lanes by its hash, and
//! lanes are dealt over the mirror cores in turn. What a lane is told is gathered, so that many partitions
//! are one command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_record::{BrokerId, TopicIdPartition};
use tarn_transport::Endpoint;

use crate::fetch::lane::LaneCommand;
use crate::fetch::plan::Assignment;
use crate::fetch::progress::LaneProgress;
use crate::limits;
use crate::post::Post;

/// The lanes of a mirror.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Key, Lane>,
    /// Told to stop and not yet ended.
    ending: BTreeSet<u64>,
    placed: BTreeMap<TopicIdPartition, Place>,
}

/// The source broker of a lane, and which of its lanes it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) broker: BrokerId,
    pub(super) number: u64,
}

/// A lane, as it is told what to fetch.
pub(super) struct Lane {
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

impl Lane {
    /// A lane that fetches nothing yet.
    pub(super) fn new(
        id: u64,
        endpoint: Endpoint,
        commands: Arc<Post<LaneCommand>>,
        progress: Arc<LaneProgress>,
    ) -> Lane {
        Lane { id, endpoint, commands, progress, adding: Vec::new(), fetching: 0, idle_since_ms: None }
    }
}

impl Lanes {
    pub(super) fn has(&self, key: Key) -> bool {
        self.lanes.contains_key(&key)
    }

    /// Takes a lane that has just begun.
    pub(super) fn begin(&mut self, key: Key, lane: Lane) {
        self.lanes.insert(key, lane);
    }

    /// Gives a partition to a lane; its progress where there is that lane.
    pub(super) fn add(&mut self, key: Key, assignment: Assignment) -> Option<Arc<LaneProgress>> {
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
    pub(super) fn send(&mut self, now_ms: u64) {
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
