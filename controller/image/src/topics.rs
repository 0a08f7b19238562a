//! Topics and their partitions, by id and by name.
//!
//! Topics are shared between images: applying a change copies the topic it touches, once per batch.
//!
//! Invariants: both indexes hold the same topics; a partition's epoch grows with every change, its leader
//! epoch with every change that names a leader.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use smallvec::SmallVec;
use tarn_record::ids::{BrokerId, Epoch, PartitionIndex, TopicId};
use tarn_wire::messages::{PartitionChangeRecord, PartitionRecord, TopicRecord};
use tarn_wire::metadata::MetadataRecord;
use uuid::Uuid;

use crate::image::ReplayError;

/// A few brokers, without memory of their own.
pub type Brokers = SmallVec<[BrokerId; 4]>;

/// In a PartitionChangeRecord: the leader stays.
const LEADER_UNCHANGED: i32 = -2;
/// A replica of which the log does not say in which directory it is.
const DIRECTORY_MIGRATING: Uuid = Uuid::nil();
/// A replica whose directory its broker has not chosen yet.
pub const DIRECTORY_UNASSIGNED: Uuid = Uuid::from_u128(1);

/// Every topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topics {
    by_id: OrdMap<TopicId, Arc<TopicImage>>,
    by_name: OrdMap<Arc<str>, TopicId>,
    /// Names that contain '.' or '_', by what metrics make of them.
    by_metric_name: OrdMap<Arc<str>, Arc<str>>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicImage {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: TopicId,
    /// Its partitions, in order.
    pub partitions: BTreeMap<PartitionIndex, Arc<PartitionRegistration>>,
}

/// Who holds a partition and who leads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRegistration {
    /// The brokers that hold it, the preferred leader first.
    pub replicas: Brokers,
    /// The log directory of each replica; parallel to `replicas`.
    pub directories: SmallVec<[Uuid; 1]>,
    /// The replicas in sync.
    pub isr: Brokers,
    /// Replicas that a reassignment takes away.
    pub removing_replicas: Brokers,
    /// Replicas that a reassignment adds.
    pub adding_replicas: Brokers,
    /// Replicas that may lead though not in sync (KIP-966).
    pub elr: Brokers,
    /// Those that were eligible last.
    pub last_known_elr: Brokers,
    /// The leader; `BrokerId::NONE` where there is none.
    pub leader: BrokerId,
    /// 1 while the leader recovers from an unclean election.
    pub leader_recovery_state: i8,
    /// Raised with each leader.
    pub leader_epoch: Epoch,
    /// Raised with each change.
    pub partition_epoch: i32,
}

impl Topics {
    /// The topic called `name`.
    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    /// The topic with this id.
    pub fn by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    /// The id of the topic called `name`.
    pub fn id_of(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }

    /// One partition.
    pub fn partition(&self, id: TopicId, index: PartitionIndex) -> Option<&Arc<PartitionRegistration>> {
        self.by_id(id)?.partitions.get(&index)
    }

    /// All topics in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.values().filter_map(|id| self.by_id.get(id))
    }

    /// Those from the name `first` on.
    pub fn iter_from(&self, first: &str) -> impl Iterator<Item = &Arc<TopicImage>> {
        let from = self.by_name.range::<_, str>((Bound::Included(first), Bound::Unbounded));
        from.filter_map(|(_, id)| self.by_id.get(id))
    }

    /// The topic, if any, that metrics could not tell from one called `name`: '.' and '_' look alike there.
    pub fn colliding_with(&self, name: &str) -> Option<&Arc<str>> {
        self.by_metric_name.get(&*metric_name(name)?).filter(|other| &***other != name)
    }

    /// How many topics there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True where there is no topic.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn add(&mut self, record: &TopicRecord) -> Result<(TopicId, Arc<str>), ReplayError> {
        let id = TopicId(record.topic_id);
        if self.by_name.contains_key(&*record.name) || self.by_id.contains_key(&id) {
            return Err(ReplayError::TopicExists { name: record.name.to_string(), id });
        }
        let name: Arc<str> = Arc::from(&*record.name);
        self.by_name.insert(name.clone(), id);
        if let Some(metric) = metric_name(&name) {
            self.by_metric_name.insert(metric.into(), name.clone());
        }
        self.by_id.insert(id, Arc::new(TopicImage { name: name.clone(), id, partitions: BTreeMap::new() }));
        Ok((id, name))
    }

    pub(crate) fn remove(&mut self, id: TopicId) -> Result<Arc<TopicImage>, ReplayError> {
        let topic = self.by_id.remove(&id).ok_or(ReplayError::UnknownTopicId { id })?;
        self.by_name.remove(&topic.name);
        if let Some(metric) = metric_name(&topic.name) {
            self.by_metric_name.remove(&*metric);
        }
        Ok(topic)
    }

    pub(crate) fn put_partition(&mut self, record: &PartitionRecord) -> Result<(), ReplayError> {
        let topic = self.topic_mut(TopicId(record.topic_id))?;
        topic.partitions.insert(
            PartitionIndex(record.partition_id),
            Arc::new(PartitionRegistration::from_record(record)),
        );
        Ok(())
    }

    pub(crate) fn change_partition(&mut self, record: &PartitionChangeRecord) -> Result<(), ReplayError> {
        let id = TopicId(record.topic_id);
        let index = PartitionIndex(record.partition_id);
        let partition = self
            .topic_mut(id)?
            .partitions
            .get_mut(&index)
            .ok_or(ReplayError::UnknownPartition { id, partition: index })?;
        let changed = Arc::make_mut(partition).change(record);
        changed.map_err(|epoch| ReplayError::NoNextEpoch { id, partition: index, epoch })
    }

    pub(crate) fn clear_elr(&mut self, name: &str) -> Vec<(TopicId, PartitionIndex)> {
        let ids: Vec<TopicId> = match name {
            "" => self.by_id.keys().copied().collect(),
            _ => self.id_of(name).into_iter().collect(),
        };
        let mut cleared = Vec::new();
        for id in ids {
            let Ok(topic) = self.topic_mut(id) else { continue };
            for (index, partition) in &mut topic.partitions {
                if !partition.elr.is_empty() || !partition.last_known_elr.is_empty() {
                    let partition = Arc::make_mut(partition);
                    partition.elr.clear();
                    partition.last_known_elr.clear();
                    cleared.push((id, *index));
                }
            }
        }
        cleared
    }

    fn topic_mut(&mut self, id: TopicId) -> Result<&mut TopicImage, ReplayError> {
        self.by_id.get_mut(&id).map(Arc::make_mut).ok_or(ReplayError::UnknownTopicId { id })
    }

    pub(crate) fn to_records(&self, records: &mut Vec<MetadataRecord>) {
        for topic in self.iter() {
            records.push(TopicRecord { name: (&*topic.name).into(), topic_id: topic.id.0 }.into());
            for (index, partition) in &topic.partitions {
                records.push(partition.to_record(topic.id, *index).into());
            }
        }
    }
}

impl PartitionRegistration {
    /// True where `broker` holds a replica.
    pub fn is_replica(&self, broker: BrokerId) -> bool {
        self.replicas.contains(&broker)
    }

    /// The record that says all of it, as a snapshot and an explicit leader epoch need it.
    pub fn to_record(&self, topic: TopicId, index: PartitionIndex) -> PartitionRecord {
        let optional = |brokers: &Brokers| (!brokers.is_empty()).then(|| ids(brokers));
        PartitionRecord {
            partition_id: index.0,
            topic_id: topic.0,
            replicas: ids(&self.replicas),
            isr: ids(&self.isr),
            removing_replicas: ids(&self.removing_replicas),
            adding_replicas: ids(&self.adding_replicas),
            leader: self.leader.0,
            leader_recovery_state: self.leader_recovery_state,
            leader_epoch: self.leader_epoch.0,
            partition_epoch: self.partition_epoch,
            directories: self.directories.to_vec(),
            eligible_leader_replicas: optional(&self.elr),
            last_known_elr: optional(&self.last_known_elr),
        }
    }

    /// What a PartitionRecord says.
    pub fn from_record(record: &PartitionRecord) -> PartitionRegistration {
        let replicas = brokers(&record.replicas);
        let mut directories: SmallVec<[Uuid; 1]> = record.directories.iter().copied().collect();
        directories.resize(replicas.len(), DIRECTORY_MIGRATING);
        PartitionRegistration {
            replicas,
            directories,
            isr: brokers(&record.isr),
            removing_replicas: brokers(&record.removing_replicas),
            adding_replicas: brokers(&record.adding_replicas),
            elr: optional_brokers(record.eligible_leader_replicas.as_deref()).unwrap_or_default(),
            last_known_elr: optional_brokers(record.last_known_elr.as_deref()).unwrap_or_default(),
            leader: BrokerId(record.leader),
            leader_recovery_state: record.leader_recovery_state,
            leader_epoch: Epoch(record.leader_epoch),
            partition_epoch: record.partition_epoch,
        }
    }

    /// Takes a change over. Fails, with nothing changed, with the epoch that cannot rise.
    fn change(&mut self, record: &PartitionChangeRecord) -> Result<(), i32> {
        let next = |epoch: i32| epoch.checked_add(1).ok_or(epoch);
        let has_leader = record.leader != LEADER_UNCHANGED;
        let partition_epoch = next(self.partition_epoch)?;
        if has_leader {
            self.leader_epoch.0 = next(self.leader_epoch.0)?;
            self.leader = BrokerId(record.leader);
        }
        self.partition_epoch = partition_epoch;
        if let Some(replicas) = optional_brokers(record.replicas.as_deref()) {
            self.directories = replicas.iter().map(|replica| self.directory_of(*replica)).collect();
            self.replicas = replicas;
        }
        if let Some(directories) = record.directories.as_ref().filter(|given| !given.is_empty()) {
            self.directories = directories.iter().copied().collect();
            self.directories.resize(self.replicas.len(), DIRECTORY_UNASSIGNED);
        }
        let replace = |field: &mut Brokers, given: &Option<Vec<i32>>| {
            if let Some(given) = given {
                *field = brokers(given);
            }
        };
        replace(&mut self.isr, &record.isr);
        replace(&mut self.removing_replicas, &record.removing_replicas);
        replace(&mut self.adding_replicas, &record.adding_replicas);
        replace(&mut self.elr, &record.eligible_leader_replicas);
        replace(&mut self.last_known_elr, &record.last_known_elr);
        if record.leader_recovery_state >= 0 {
            self.leader_recovery_state = record.leader_recovery_state;
        }
        Ok(())
    }

    fn directory_of(&self, replica: BrokerId) -> Uuid {
        let at = self.replicas.iter().position(|known| *known == replica);
        at.and_then(|at| self.directories.get(at).copied()).unwrap_or(DIRECTORY_UNASSIGNED)
    }
}

/// What metrics make of a name with '.' or '_'; `None` for one without.
fn metric_name(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

fn brokers(ids: &[i32]) -> Brokers {
    ids.iter().map(|id| BrokerId(*id)).collect()
}

fn optional_brokers(ids: Option<&[i32]>) -> Option<Brokers> {
    ids.map(brokers)
}

fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_names_a_leader_raises_its_epoch_even_where_it_is_the_same() {
        let mut partition = partition(&[1, 2]);
        partition.change(&PartitionChangeRecord { leader: 1, ..PartitionChangeRecord::default() }).unwrap();
        assert_eq!(
            (partition.leader, partition.leader_epoch, partition.partition_epoch),
            (BrokerId(1), Epoch(1), 1)
        );
        let shrunk = PartitionChangeRecord { isr: Some(vec![1]), ..PartitionChangeRecord::default() };
        partition.change(&shrunk).unwrap();
        assert_eq!((partition.leader_epoch, partition.partition_epoch), (Epoch(1), 2));
        assert_eq!(partition.isr.as_slice(), [BrokerId(1)]);
    }

    #[test]
    fn an_epoch_after_which_there_is_none_is_not_changed() {
        let (elected, shrunk) = (
            PartitionChangeRecord { leader: 1, ..PartitionChangeRecord::default() },
            PartitionChangeRecord { isr: Some(vec![1]), ..PartitionChangeRecord::default() },
        );
        let mut led = PartitionRegistration { leader_epoch: Epoch(i32::MAX), ..partition(&[1, 2]) };
        let before = led.clone();
        assert_eq!(led.change(&elected), Err(i32::MAX));
        assert_eq!(led, before);
        led.change(&shrunk).unwrap();
        let mut changed = PartitionRegistration { partition_epoch: i32::MAX, ..partition(&[1, 2]) };
        assert_eq!(changed.change(&shrunk), Err(i32::MAX));
    }

    #[test]
    fn a_replica_that_stays_keeps_its_directory() {
        let mut partition = partition(&[1, 2]);
        let kept = partition.directories[1];
        let moved = PartitionChangeRecord { replicas: Some(vec![3, 2]), ..PartitionChangeRecord::default() };
        partition.change(&moved).unwrap();
        assert_eq!(partition.directories.as_slice(), [DIRECTORY_UNASSIGNED, kept]);
    }

    fn partition(replicas: &[i32]) -> PartitionRegistration {
        PartitionRegistration::from_record(&PartitionRecord {
            replicas: replicas.to_vec(),
            isr: replicas.to_vec(),
            directories: replicas.iter().map(|_| Uuid::new_v4()).collect(),
            leader: replicas[0],
            leader_epoch: 0,
            partition_epoch: 0,
            ..PartitionRecord::default()
        })
    }
}
