//! What a fetch session names, and what each name stands for.
//!
//! Clients name topics by name or by id; topics are made, deleted and made again. A name is looked up when
//! the session first has it, and again only when its topic has changed, so that a quiet session of 100,000
//! partitions costs nothing per fetch.
//!
//! Invariants:
//! * `missing` holds exactly the named partitions that stand for nothing;
//! * `keys` knows the topics that named partitions stand for, each by its name, and no others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tarn_record::{PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::Str;

use crate::interest::Wanted;
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
    Name(Str),
    /// By the topic's id.
    Id(TopicId),
}

/// A partition as a session names it.
pub type Named = (TopicKey, PartitionIndex);

/// A partition that a session names, and what is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lookup {
    /// What the name stood for when it was last looked up.
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
    partitions: BTreeMap<Named, Lookup>,
    missing: BTreeSet<Named>,
    keys: HashMap<TopicId, TopicKey>,
    /// The topic changes up to this number are taken into account.
    read_up_to: u64,
}

impl NamedPartitions {
    /// Nothing yet; what it will name is looked up with the changes up to this number in force.
    pub fn new(read_up_to: u64) -> NamedPartitions {
        let (partitions, missing, keys) = (BTreeMap::new(), BTreeSet::new(), HashMap::new());
        NamedPartitions { partitions, missing, keys, read_up_to }
    }

    /// True where nothing is named.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Names a partition, or says anew what is wanted of it. Returns what the name stood for before, where
    /// that is something else.
    pub fn want(&mut self, named: Named, lookup: Lookup) -> Option<TopicIdPartition> {
        self.note(&named, lookup.found);
        let before = self.partitions.insert(named.clone(), lookup).and_then(|before| before.found);
        let gone = before.filter(|before| lookup.found != Some(*before))?;
        self.let_go(&named.0, gone.topic_id);
        Some(gone)
    }

    /// Forgets a partition. Returns what its name stood for.
    pub fn forget(&mut self, named: &Named) -> Option<TopicIdPartition> {
        self.missing.remove(named);
        let found = self.partitions.remove(named)?.found?;
        self.let_go(&named.0, found.topic_id);
        Some(found)
    }

    /// Looks up again the partitions of topics that have changed; all of them where what changed is no
    /// longer known. `look_up` says what a name stands for now.
    pub fn look_up_again(
        &mut self,
        changes: &TopicChanges,
        mut look_up: impl FnMut(&Named) -> Option<TopicIdPartition>,
    ) -> Moved {
        let concerned: Vec<Named> = match changes.since(self.read_up_to) {
            None => self.partitions.keys().cloned().collect(),
            Some(unread) => {
                let topics: BTreeSet<TopicKey> = unread.flat_map(keys_of).collect();
                topics.iter().flat_map(|key| self.of_topic(key)).cloned().collect()
            }
        };
        self.read_up_to = changes.next();
        let mut moved = Moved::default();
        let mut left = BTreeSet::new();
        for named in concerned {
            let found = look_up(&named);
            self.note(&named, found);
            let Some(lookup) = self.partitions.get_mut(&named) else { continue };
            if lookup.found == found {
                continue;
            }
            moved.come.extend(found.map(|partition| (partition, lookup.wanted)));
            if let Some(gone) = std::mem::replace(&mut lookup.found, found) {
                moved.gone.push(gone);
                left.insert((named.0, gone.topic_id));
            }
        }
        left.iter().for_each(|(key, topic)| self.let_go(key, *topic));
        moved
    }

    /// The named partitions that stand for nothing.
    pub fn missing(&self) -> &BTreeSet<Named> {
        &self.missing
    }

    /// How the session names a topic that one of its partitions stands for.
    pub fn key_of(&self, topic: TopicId) -> Option<&TopicKey> {
        self.keys.get(&topic)
    }

    fn of_topic<'a>(&'a self, key: &'a TopicKey) -> impl Iterator<Item = &'a Named> {
        let from = (key.clone(), PartitionIndex(i32::MIN));
        self.partitions.range(from..).map(|(named, _)| named).take_while(move |named| named.0 == *key)
    }

    /// Forgets how a topic is called once no partition of that name stands for it any more.
    fn let_go(&mut self, key: &TopicKey, topic: TopicId) {
        let stands_for = |named| self.partitions.get(named).and_then(|lookup| lookup.found);
        if !self.of_topic(key).filter_map(stands_for).any(|found| found.topic_id == topic) {
            self.keys.remove(&topic);
        }
    }

    fn note(&mut self, named: &Named, found: Option<TopicIdPartition>) {
        match found {
            Some(found) => {
                self.missing.remove(named);
                self.keys.entry(found.topic_id).or_insert_with(|| named.0.clone());
            }
            None => drop(self.missing.insert(named.clone())),
        }
    }
}

fn keys_of(change: &TopicChange) -> [TopicKey; 2] {
    [TopicKey::Name((&*change.name).into()), TopicKey::Id(change.id)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
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
        assert_eq!(named.missing().len(), 100);
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
        assert_eq!(named.forget(&(key(0), PartitionIndex(0))), Some(partition(after, 0)));
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
            prop_assert_eq!(named.partitions, all.partitions);
            prop_assert_eq!(named.missing, all.missing);
            prop_assert_eq!(named.keys, all.keys);
        }
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
                session.want((key(topic), PartitionIndex(index)), Lookup { found, wanted: WANTED });
            }
            session
        }

        fn look_up_again(&mut self, named: &mut NamedPartitions) -> Moved {
            self.looked_up = 0;
            let mut looked_up = 0;
            let moved = named.look_up_again(&self.changes, |(key, index)| {
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
        TopicKey::Name(topic.to_string().as_str().into())
    }
}
