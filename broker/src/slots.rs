//! Items with small numbers, each found by a key that it carries itself.
//!
//! Fetch sessions hold many partitions, so an item costs its own size and about ten bytes: the index knows
//! numbers only, and compares the keys of the items.
//!
//! Invariants:
//! * of one key there is one item at most;
//! * a number is given to another item only after it was released, or `compact` has told the new numbers.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

/// An item that carries its key.
pub trait Keyed {
    /// What it is found by.
    type Key: Eq + Hash;

    /// Its key; the same for as long as the item is in its slot.
    fn key(&self) -> &Self::Key;
}

/// Less room than this is not worth the work.
const ROOM_WORTH_COMPACTING: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Slots<T> {
    items: Vec<Option<T>>,
    by_key: HashTable<u32>,
    released: Vec<u32>,
    hasher: RandomState,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            items: Vec::new(),
            by_key: HashTable::new(),
            released: Vec::new(),
            hasher: RandomState::new(),
        }
    }
}

impl<T: Keyed> Slots<T> {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Makes room for so many more, and no more than that.
    pub fn reserve_exact(&mut self, more: usize) {
        self.items.reserve_exact(more.saturating_sub(self.released.len()));
    }

    /// The slot of the item with this key.
    pub fn find(&self, key: &T::Key) -> Option<u32> {
        let has_key = |slot: &u32| self.get(*slot).is_some_and(|item| item.key() == key);
        self.by_key.find(self.hasher.hash_one(key), has_key).copied()
    }

    /// The item in a slot.
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.items.get(slot as usize)?.as_ref()
    }

    /// The item in a slot; its key must stay what it is.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.items.get_mut(slot as usize)?.as_mut()
    }

    /// Takes an item in whose key is new. Returns its slot.
    pub fn insert(&mut self, item: T) -> u32 {
        debug_assert!(self.find(item.key()).is_none(), "of one key there is one item");
        let hash = self.hasher.hash_one(item.key());
        let slot = self.released.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() as u32 - 1
        });
        self.items[slot as usize] = Some(item);
        let (items, hasher) = (&self.items, &self.hasher);
        self.by_key.insert_unique(hash, slot, |slot| match &items[*slot as usize] {
            Some(item) => hasher.hash_one(item.key()),
            None => 0,
        });
        slot
    }

    /// Takes an item out. Nothing gets its slot before that is released.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let item = self.items.get_mut(slot as usize)?.take()?;
        let found = self.by_key.find_entry(self.hasher.hash_one(item.key()), |other| *other == slot);
        if let Ok(entry) = found {
            entry.remove();
        }
        Some(item)
    }

    /// A slot that is empty may be used again.
    pub fn release(&mut self, slot: u32) {
        debug_assert!(self.get(slot).is_none(), "only an empty slot is released");
        self.released.push(slot);
    }

    /// Every item with its slot, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter_map(|(slot, item)| Some((slot as u32, item.as_ref()?)))
    }

    /// True where most of the room is for items that there are no more, or never were.
    pub fn is_sparse(&self) -> bool {
        let room = self.items.capacity().max(self.by_key.capacity());
        room >= ROOM_WORTH_COMPACTING && self.len() < room / 4
    }

    /// Gives all items new numbers, without gaps, and the room of the others back. `change` may give an item
    /// another key. Returns the new number of each old one.
    pub fn compact(&mut self, mut change: impl FnMut(&mut T)) -> HashMap<u32, u32> {
        let before = std::mem::take(&mut self.items);
        let mut moved = HashMap::with_capacity(self.by_key.len());
        self.items.reserve_exact(self.by_key.len());
        self.by_key = HashTable::new();
        self.released = Vec::new();
        for (old, item) in before.into_iter().enumerate() {
            if let Some(mut item) = item {
                change(&mut item);
                moved.insert(old as u32, self.insert(item));
            }
        }
        moved
    }

    /// How many slots there are, empty or not.
    pub fn slots(&self) -> u32 {
        self.items.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Keyed for (u8, u32) {
        type Key = u8;

        fn key(&self) -> &u8 {
            &self.0
        }
    }

    proptest! {
        /// Whatever comes and goes, an item is found by its key and where it was put.
        #[test]
        fn an_item_is_found_until_it_is_removed(steps in prop::collection::vec((any::<u8>(), 0u8..3), 0..300)) {
            let (mut slots, mut model) = (Slots::default(), BTreeMap::new());
            for (round, (key, what)) in steps.into_iter().enumerate() {
                let item = (key, round as u32);
                match (slots.find(&key), what) {
                    (None, _) => drop(model.insert(key, (slots.insert(item), item))),
                    (Some(slot), 0) => {
                        prop_assert_eq!(slots.remove(slot), model.remove(&key).map(|(_, item)| item));
                        slots.release(slot);
                    }
                    (Some(slot), _) => prop_assert_eq!(slots.get(slot), model.get(&key).map(|(_, item)| item)),
                }
                prop_assert_eq!(slots.len(), model.len());
                let found = model.keys().all(|key| slots.find(key) == model.get(key).map(|(slot, _)| *slot));
                prop_assert!(found);
            }
            let all: BTreeMap<u32, (u8, u32)> = model.into_values().collect();
            prop_assert_eq!(slots.iter().map(|(slot, item)| (slot, *item)).collect::<BTreeMap<_, _>>(), all);
        }
    }

    #[test]
    fn items_that_are_left_of_many_take_no_more_room_than_their_own() {
        let mut slots = Slots::default();
        for key in 0..u32::from(u16::MAX) {
            slots.insert(Numbered(key));
        }
        assert!(!slots.is_sparse());
        for key in 1..u32::from(u16::MAX) - 1 {
            let slot = slots.find(&key).expect("it is there");
            slots.remove(slot);
            if key % 2 == 0 {
                slots.release(slot);
            }
        }
        assert!(slots.is_sparse());
        let moved = slots.compact(|item| item.0 += 7);
        assert_eq!(moved, [(0, 0), (u32::from(u16::MAX) - 1, 1)].into());
        assert_eq!((slots.find(&7), slots.find(&(u32::from(u16::MAX) + 6))), (Some(0), Some(1)));
        assert_eq!((slots.len(), slots.slots()), (2, 2));
        assert!(slots.items.capacity() <= 4 && slots.by_key.capacity() <= 8, "{:?}", slots.items.capacity());
        assert!(slots.released.capacity() == 0 && !slots.is_sparse());
        assert_eq!(slots.insert(Numbered(1)), 2);
    }

    struct Numbered(u32);

    impl Keyed for Numbered {
        type Key = u32;

        fn key(&self) -> &u32 {
            &self.0
        }
    }

    #[test]
    fn a_slot_that_is_not_released_is_not_used_again() {
        let mut slots = Slots::default();
        let first = slots.insert((1, 0));
        slots.remove(first);
        let second = slots.insert((2, 0));
        assert_ne!(first, second);
        slots.release(first);
        assert_eq!((slots.insert((3, 0)), slots.slots()), (first, 2));
    }
}
