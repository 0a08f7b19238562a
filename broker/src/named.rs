//! What a fetch session names, and what each name stands for.
//!
//! Clients name topics by name or by id; topics are made, deleted and made again. A name is looked up when
//! the session first has it, and again only when its topic has changed, so that a quiet session of 100,000
//! partitions costs nothing per fetch.
//!
//! Invariants:
//! * all partitions of a name stand for partitions of one topic, or for nothing;
//! * `missing` holds exactly the named partitions that stand for nothing;
//! * `called` knows the topics that names stand for, where that is not the id itself.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use tarn_record::{PartitionIndex, TopicId, TopicIdPartition};

use crate::interest::Wanted;
use crate::slots::{Keyed, Slots};
use crate::topic_changes::{TopicChange, TopicChanges};

/// How a request, and so its session, names topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicNaming {
    /// By name, as before version 13 of Fetch.
    ByName,
    /// By id (KIP-516).
    ById,
}

/// How a session and its requests name topics: by id from Fetch v13 on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicKey {
    /// By the topic's name.
    Name(Arc<str>),
    /// By the topic's id.
    Id(TopicId),
}

/// A partition that a session names, and what is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lookup {
    /// What the name stands for.
    pub found: Option<TopicIdPartition>,
    /// What is wanted of it.
    pub wanted: Wanted,
}

/// What looking up again has changed, for the cores that own the partitions.
#[derive(Debug, Default, PartialEq)]
pub struct Moved {
    /// What a name stood for before and does not any more.
    pub gone: Vec<TopicIdPartition>,
    /// What a name stands for now and did not before.
    pub come: Vec<(TopicIdPartition, Wanted)>,
}

/// See the module.
#[derive(Debug)]
pub struct NamedPartitions {
    topics: Slots<NamedTopic>,
    partitions: Slots<NamedPartition>,
    missing: BTreeSet<u32>,
    called: HashMap<TopicId, u32>,
    /// The topic changes up to this number are taken into account.
    read_up_to: u64,
}

/// A topic as the session names it, and what that stands for; `TopicId::ZERO` for nothing.
#[derive(Debug)]
struct NamedTopic {
    key: TopicKey,
    stands_for: TopicId,
    partitions: u32,
    /// No partition of it has an index outside of these.
    indexes: (PartitionIndex, PartitionIndex),
}

/// A partition that the session names: the slot of its topic, and its index.
#[derive(Clone, Copy, Debug)]
struct NamedPartition {
    key: (u32, PartitionIndex),
    wanted: Wanted,
}

impl Keyed for NamedTopic {
    type Key = TopicKey;

    fn key(&self) -> &TopicKey {
        &self.key
    }
}

impl Keyed for NamedPartition {
    type Key = (u32, PartitionIndex);

    fn key(&self) -> &(u32, PartitionIndex) {
        &self.key
    }
}

impl NamedPartitions {
    /// Nothing yet; what it will name is looked up with the changes up to this number in force.
    pub fn new(read_up_to: u64) -> NamedPartitions {
        let (topics, partitions) = (Slots::default(), Slots::default());
        NamedPartitions { topics, partitions, missing: BTreeSet::new(), called: HashMap::new(), read_up_to }
    }

    /// How many partitions are named.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// True where nothing is named.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Makes room for so many more partitions, and no more than that.
    pub fn reserve_exact(&mut self, partitions: usize) {
        self.partitions.reserve_exact(partitions);
    }

    /// Names a partition, or says anew what is wanted of it. What other names stand for must have been looked
    /// up again in the same metadata. Returns what the name stood for where it stands for nothing now.
    pub fn want(
        &mut self,
        key: &TopicKey,
        index: PartitionIndex,
        lookup: Lookup,
    ) -> Option<TopicIdPartition> {
        let topic = self.topics.find(key).unwrap_or_else(|| {
            let (key, stands_for) = (key.clone(), TopicId::ZERO);
            self.topics.insert(NamedTopic { key, stands_for, partitions: 0, indexes: (index, index) })
        });
        if let Some(found) = lookup.found {
            self.stand_for(topic, found.topic_id);
        }
        let named = NamedPartition { key: (topic, index), wanted: lookup.wanted };
        let (slot, before) = match self.partitions.find(named.key()) {
            Some(slot) => {
                let before = self.found(slot);
                if let Some(known) = self.partitions.get_mut(slot) {
                    *known = named;
                }
                (slot, before)
            }
            None => {
                if let Some(topic) = self.topics.get_mut(topic) {
                    topic.partitions += 1;
                    topic.indexes = (topic.indexes.0.min(index), topic.indexes.1.max(index));
                }
                (self.partitions.insert(named), None)
            }
        };
        match lookup.found {
            Some(_) => {
                self.missing.remove(&slot);
                None
            }
            None => {
                self.missing.insert(slot);
                before
            }
        }
    }

    /// Forgets a partition. Returns what its name stood for.
    pub fn forget(&mut self, key: &TopicKey, index: PartitionIndex) -> Option<TopicIdPartition> {
        let topic = self.topics.find(key)?;
        let slot = self.partitions.find(&(topic, index))?;
        let found = self.found(slot);
        self.partitions.remove(slot);
        self.partitions.release(slot);
        self.missing.remove(&slot);
        let left = self.topics.get_mut(topic)?;
        left.partitions -= 1;
        if left.partitions == 0 {
            self.stand_for(topic, TopicId::ZERO);
            self.topics.remove(topic);
            self.topics.release(topic);
        }
        found
    }

    /// Looks up again the partitions of topics that have changed; all of them where what changed is no
    /// longer known. `look_up` says what a name stands for now.
    pub fn look_up_again(
        &mut self,
        changes: &TopicChanges,
        mut look_up: impl FnMut(&TopicKey, PartitionIndex) -> Option<TopicIdPartition>,
    ) -> Moved {
        let concerned: BTreeSet<u32> = match changes.since(self.read_up_to) {
            None => self.topics.iter().map(|(topic, _)| topic).collect(),
            Some(unread) => unread.flat_map(keys_of).filter_map(|key| self.topics.find(&key)).collect(),
        };
        self.read_up_to = changes.next();
        let mut moved = Moved::default();
        if concerned.is_empty() {
            return moved;
        }
        let mut stand_for: HashMap<u32, TopicId> =
            concerned.iter().map(|one| (*one, TopicId::ZERO)).collect();
        for (slot, named) in self.partitions_of(&concerned) {
            let (topic, index) = named.key;
            let before = self.found(slot);
            let found = self.topics.get(topic).and_then(|topic| look_up(&topic.key, index));
            if let Some(found) = found {
                stand_for.insert(topic, found.topic_id);
                self.missing.remove(&slot);
            } else {
                self.missing.insert(slot);
            }
            if before != found {
                moved.gone.extend(before);
                moved.come.extend(found.map(|partition| (partition, named.wanted)));
            }
        }
        // Last: what a partition stood for before is told by what its topic stood for.
        stand_for.into_iter().for_each(|(topic, id)| self.stand_for(topic, id));
        moved
    }

    /// The partitions of these topics, looked for by their indexes: a topic that is made must not cost every
    /// session all that it names. Where the indexes are so far apart that this is more work, among all.
    fn partitions_of(&self, topics: &BTreeSet<u32>) -> Vec<(u32, NamedPartition)> {
        let ranges = || {
            let named = topics.iter().filter_map(|slot| Some((*slot, self.topics.get(*slot)?)));
            named.map(|(slot, topic)| (slot, topic.indexes.0.0..=topic.indexes.1.0))
        };
        let width =
            |(_, range): (u32, RangeInclusive<i32>)| i64::from(*range.end()) - i64::from(*range.start()) + 1;
        if ranges().map(width).sum::<i64>() > i64::from(self.partitions.slots()) {
            let all = self.partitions.iter().filter(|(_, named)| topics.contains(&named.key().0));
            return all.map(|(slot, named)| (slot, *named)).collect();
        }
        let keys = ranges().flat_map(|(topic, range)| range.map(move |index| (topic, PartitionIndex(index))));
        let slots = keys.filter_map(|key| self.partitions.find(&key));
        slots.filter_map(|slot| Some((slot, *self.partitions.get(slot)?))).collect()
    }

    /// Gives back the room of what is forgotten, where that is most.
    pub fn compact(&mut self) {
        if self.topics.is_sparse() || self.partitions.is_sparse() {
            self.compact_always();
        }
    }

    fn compact_always(&mut self) {
        let topics = self.topics.compact(|_| {});
        let new = |moved: &HashMap<u32, u32>, old: u32| moved.get(&old).copied();
        let partitions = self.partitions.compact(|named| {
            let (topic, index) = named.key;
            named.key = (new(&topics, topic).unwrap_or(topic), index);
        });
        self.missing = self.missing.iter().filter_map(|slot| new(&partitions, *slot)).collect();
        self.called =
            self.called.iter().filter_map(|(id, topic)| Some((*id, new(&topics, *topic)?))).collect();
    }

    /// True where a named partition stands for nothing.
    pub fn has_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// The named partitions that stand for nothing.
    pub fn missing(&self) -> impl Iterator<Item = (&TopicKey, PartitionIndex)> {
        self.missing.iter().filter_map(|slot| self.name_of(*slot))
    }

    /// How the session names a topic that one of its names stands for.
    pub fn key_of(&self, topic: TopicId) -> Option<&TopicKey> {
        let slot = self.called.get(&topic).copied().or_else(|| self.topics.find(&TopicKey::Id(topic)))?;
        let named = self.topics.get(slot)?;
        (named.stands_for == topic).then_some(&named.key)
    }

    fn name_of(&self, slot: u32) -> Option<(&TopicKey, PartitionIndex)> {
        let (topic, index) = self.partitions.get(slot)?.key;
        Some((&self.topics.get(topic)?.key, index))
    }

    /// What a named partition stands for.
    fn found(&self, slot: u32) -> Option<TopicIdPartition> {
        if self.missing.contains(&slot) {
            return None;
        }
        let (topic, partition) = self.partitions.get(slot)?.key;
        Some(TopicIdPartition { topic_id: self.topics.get(topic)?.stands_for, partition })
    }

    fn stand_for(&mut self, slot: u32, id: TopicId) {
        let Some(topic) = self.topics.get_mut(slot) else { return };
        let before = std::mem::replace(&mut topic.stands_for, id);
        if before == id || topic.key == TopicKey::Id(id) {
            return;
        }
        if self.called.get(&before) == Some(&slot) {
            self.called.remove(&before);
        }
        if !id.is_zero() {
            self.called.insert(id, slot);
        }
    }
}

fn keys_of(change: &TopicChange) -> [TopicKey; 2] {
    [TopicKey::Name(change.name.clone()), TopicKey::Id(change.id)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tarn_image::{MetadataDelta, MetadataImage};
    use tarn_record::{Epoch, Offset};

    #[test]
    fn a_quiet_session_looks_nothing_up_however_much_it_names() {
        let mut world = World::default();
        for topic in 0..1000 {
            world.make(topic, 100);
        }
        let mut named = world.session(1000, 100);
        let changed = world.look_up_again(&mut named);
        assert_eq!((changed, world.looked_up), (Moved::default(), 0), "100,000 partitions and no change");
        world.delete(7);
        let changed = world.look_up_again(&mut named);
        assert_eq!((changed.gone.len(), world.looked_up), (100, 100), "those of one topic");
        assert_eq!(named.missing().count(), 100);
    }

    #[test]
    fn a_topic_that_is_made_again_stands_under_its_old_name() {
        let mut world = World::default();
        world.make(0, 1);
        let mut named = world.session(1, 1);
        let before = world.topics[&0].0;
        world.delete(0);
        world.make(0, 1);
        let moved = world.look_up_again(&mut named);
        let after = world.topics[&0].0;
        assert_eq!(moved.gone, [partition(before, 0)]);
        assert_eq!(moved.come, [(partition(after, 0), WANTED)]);
        assert_eq!((named.key_of(before), named.key_of(after)), (None, Some(&key(0))));
        assert_eq!(named.forget(&key(0), PartitionIndex(0)), Some(partition(after, 0)));
        assert!(named.is_empty() && named.key_of(after).is_none());
    }

    proptest! {
        /// Whatever happens to the topics, looking up what changed finds what looking up all would.
        #[test]
        fn nothing_that_changed_is_overlooked(steps in prop::collection::vec((0u8..4, 0i32..4), 0..60)) {
            let mut world = World { changes: TopicChanges::new(5), ..World::default() };
            let mut named = world.session(4, 3);
            for (what, topic) in steps {
                match what {
                    0 => world.make(topic, 2),
                    1 => world.make(topic, 3),
                    2 => world.delete(topic),
                    _ => drop(world.look_up_again(&mut named)),
                }
            }
            world.look_up_again(&mut named);
            let all = world.session(4, 3);
            prop_assert_eq!(content(&named), content(&all));
            for (id, _) in world.topics.values() {
                prop_assert_eq!(named.key_of(*id), all.key_of(*id));
            }
        }

        /// Whatever is named and forgotten, with topics coming and going: each name stands for what it is.
        #[test]
        fn what_is_named_stands_for_what_is_there(
            steps in prop::collection::vec((0u8..5, 0i32..3, 0i32..3), 0..80)
        ) {
            let mut world = World::default();
            let mut named = NamedPartitions::new(0);
            let mut model: BTreeMap<(i32, i32), Option<TopicIdPartition>> = BTreeMap::new();
            for (what, topic, index) in steps {
                match what {
                    0 => world.make(topic, 2),
                    1 => world.delete(topic),
                    _ => {}
                }
                if what == 4 {
                    named.compact_always();
                }
                let moved = world.look_up_again(&mut named);
                let found = |topic, index| world.find(topic, index);
                let after: BTreeMap<_, _> = model.keys().map(|at| (*at, found(at.0, at.1))).collect();
                let changed = || model.iter().filter(|(at, before)| after[at] != **before);
                let (gone, come): (BTreeSet<_>, BTreeSet<_>) = (
                    changed().filter_map(|(_, before)| *before).collect(),
                    changed().filter_map(|(at, _)| after[at]).collect(),
                );
                prop_assert_eq!(moved.gone.into_iter().collect::<BTreeSet<_>>(), gone);
                prop_assert_eq!(moved.come.into_iter().map(|(one, _)| one).collect::<BTreeSet<_>>(), come);
                model = after;
                let at = PartitionIndex(index);
                if what == 2 {
                    let forgotten = model.remove(&(topic, index)).flatten();
                    prop_assert_eq!(named.forget(&key(topic), at), forgotten);
                } else if what > 2 {
                    let lookup = Lookup { found: world.find(topic, index), wanted: WANTED };
                    prop_assert_eq!(named.want(&key(topic), at, lookup), None);
                    model.insert((topic, index), lookup.found);
                }
                let expected: Vec<_> =
                    model.iter().map(|((topic, index), found)| (key(*topic), *index, *found)).collect();
                prop_assert_eq!(content(&named), expected);
                prop_assert_eq!(named.len(), model.len());
                for found in model.values().flatten() {
                    prop_assert!(named.key_of(found.topic_id).is_some());
                }
            }
        }
    }

    #[test]
    fn a_session_that_has_forgotten_nearly_all_keeps_no_room_for_it() {
        let mut world = World::default();
        (0..1000).for_each(|topic| world.make(topic, 10));
        let mut named = world.session(1000, 10);
        for (topic, index) in (0..1000).flat_map(|topic| (0..10).map(move |index| (topic, index))) {
            if (topic, index) != (700, 3) {
                named.forget(&key(topic), PartitionIndex(index));
            }
        }
        assert!(named.partitions.is_sparse() && named.topics.is_sparse());
        named.compact();
        assert_eq!((named.partitions.slots(), named.topics.slots()), (1, 1));
        assert_eq!(named.forget(&key(700), PartitionIndex(3)), Some(partition(world.topics[&700].0, 3)));
    }

    #[test]
    fn a_topic_that_changed_is_looked_for_by_its_indexes_and_not_among_all() {
        let mut world = World::default();
        (0..1000).for_each(|topic| world.make(topic, 10));
        let named = world.session(1000, 10);
        let topic = named.topics.find(&key(7)).expect("it is named");
        let found = named.partitions_of(&[topic].into());
        let indexes: Vec<_> = found.iter().map(|(_, named)| named.key).collect();
        assert_eq!(indexes, (0..10).map(|index| (topic, PartitionIndex(index))).collect::<Vec<_>>());
    }

    #[test]
    fn indexes_that_are_far_apart_do_not_make_a_look_up_long() {
        let mut named = NamedPartitions::new(0);
        for index in [i32::MIN, 5, i32::MAX] {
            named.want(&key(0), PartitionIndex(index), Lookup { found: None, wanted: WANTED });
        }
        let topic = named.topics.find(&key(0)).expect("it is named");
        assert_eq!(named.partitions_of(&[topic].into()).len(), 3);
    }

    #[test]
    fn a_partition_of_a_session_takes_few_bytes() {
        assert_eq!(size_of::<Option<NamedPartition>>(), 40);
    }

    /// Each named partition and what it stands for.
    fn content(named: &NamedPartitions) -> Vec<(TopicKey, i32, Option<TopicIdPartition>)> {
        let of = |(slot, _): (u32, &NamedPartition)| {
            let (key, index) = named.name_of(slot).expect("it is named");
            (key.clone(), index.0, named.found(slot))
        };
        let mut content: Vec<_> = named.partitions.iter().map(of).collect();
        content.sort();
        content
    }

    /// Topics by number, each with its id and how many partitions it has.
    struct World {
        topics: BTreeMap<i32, (TopicId, i32)>,
        changes: TopicChanges,
        looked_up: usize,
    }

    impl Default for World {
        fn default() -> World {
            World { topics: BTreeMap::new(), changes: TopicChanges::new(10_000), looked_up: 0 }
        }
    }

    impl World {
        fn make(&mut self, topic: i32, partitions: i32) {
            let id = self.topics.get(&topic).map_or_else(TopicId::random, |(id, _)| *id);
            self.topics.insert(topic, (id, partitions));
            self.note(MetadataDelta { topics_created: [(id, name(topic))].into(), ..Default::default() });
        }

        fn delete(&mut self, topic: i32) {
            let Some((id, _)) = self.topics.remove(&topic) else { return };
            self.note(MetadataDelta { topics_deleted: [(id, name(topic))].into(), ..Default::default() });
        }

        fn note(&mut self, delta: MetadataDelta) {
            self.changes.note(&MetadataImage::default(), &delta);
        }

        /// A session that names so many partitions of so many topics.
        fn session(&self, topics: i32, partitions: i32) -> NamedPartitions {
            let mut session = NamedPartitions::new(self.changes.next());
            for (topic, index) in (0..topics).flat_map(|topic| (0..partitions).map(move |p| (topic, p))) {
                let found = self.find(topic, index);
                session.want(&key(topic), PartitionIndex(index), Lookup { found, wanted: WANTED });
            }
            session
        }

        fn look_up_again(&mut self, named: &mut NamedPartitions) -> Moved {
            self.looked_up = 0;
            let mut looked_up = 0;
            let moved = named.look_up_again(&self.changes, |key, index| {
                looked_up += 1;
                let TopicKey::Name(name) = key else { return None };
                self.find(name.parse().ok()?, index.0)
            });
            self.looked_up = looked_up;
            moved
        }

        fn find(&self, topic: i32, index: i32) -> Option<TopicIdPartition> {
            let (id, partitions) = self.topics.get(&topic)?;
            (index < *partitions).then(|| partition(*id, index))
        }
    }

    const WANTED: Wanted = Wanted {
        fetch_offset: Offset(0),
        max_bytes: 1000,
        current_leader_epoch: Epoch::NONE,
        last_fetched_epoch: Epoch::NONE,
    };

    fn partition(topic_id: TopicId, index: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id, partition: PartitionIndex(index) }
    }

    fn name(topic: i32) -> Arc<str> {
        topic.to_string().into()
    }

    fn key(topic: i32) -> TopicKey {
        TopicKey::Name(name(topic))
    }
}
