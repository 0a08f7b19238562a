//! Where each key of the uncompacted part of a log is newest.
//!
//! Keys are known by a hash of 128 bits: two that share one would lose a record. So the hash is keyed with
//! numbers that nobody outside can know, else whoever chooses keys could choose such a pair. Owned by one
//! round.
//!
//! Invariants:
//! * it never takes more than the bytes it was allowed, while it grows included, and no more than its keys
//!   need;
//! * three quarters of the slots are used at most, so that a free one is always near.

use std::hash::{BuildHasher, RandomState};

use tarn_record::Offset;

/// See the module.
#[derive(Debug)]
pub struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    bytes_max: usize,
    hashers: [RandomState; 2],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: [u64; 2],
    /// The newest offset of the key; [`Offset::NONE`] in a free slot.
    newest: Offset,
}

/// Whether a key was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Taken,
    /// It would need more memory than there is. The map is as it was.
    Full,
}

const FREE: Slot = Slot { hash: [0; 2], newest: Offset::NONE };
const SLOT_BYTES: usize = size_of::<Slot>();
const SLOTS_AT_FIRST: usize = 1024;

impl OffsetMap {
    /// A map that takes up to `bytes_max` of memory: 24 bytes a slot, of which about half are for keys in the end.
    pub fn new(bytes_max: usize) -> OffsetMap {
        let hashers = [RandomState::new(), RandomState::new()];
        OffsetMap { slots: Vec::new(), used: 0, bytes_max, hashers }
    }

    /// How many keys are in it.
    pub fn len(&self) -> usize {
        self.used
    }

    /// True where no key is in it.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The memory it has taken.
    pub fn bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }

    /// How much of the memory it may take it has taken, from 0 to 1.
    pub fn fullness(&self) -> f64 {
        if self.bytes_max == 0 { 0.0 } else { self.bytes() as f64 / self.bytes_max as f64 }
    }

    /// Notes that the key has a record at `offset`.
    pub(crate) fn put(&mut self, key: &[u8], offset: Offset) -> Room {
        let hash = self.hash(key);
        if let Some(known) = self.find(hash).and_then(|at| self.slots.get_mut(at))
            && known.newest > Offset::NONE
        {
            known.newest = known.newest.max(offset);
            return Room::Taken;
        }
        if (self.used + 1) * 4 > self.slots.len() * 3 && self.grow() == Room::Full {
            return Room::Full;
        }
        self.insert(Slot { hash, newest: offset });
        self.used += 1;
        Room::Taken
    }

    /// The newest offset of the key, where it is known.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<Offset> {
        let found = self.slots[self.find(self.hash(key))?].newest;
        (found > Offset::NONE).then_some(found)
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    /// The slot of this hash, or the free one where it belongs; `None` without slots.
    fn find(&self, hash: [u64; 2]) -> Option<usize> {
        let slots = self.slots.len();
        let mut at = ((u128::from(hash[0]) * slots as u128) >> 64) as usize;
        while let Some(slot) = self.slots.get(at) {
            if slot.newest == Offset::NONE || slot.hash == hash {
                return Some(at);
            }
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        None
    }

    fn insert(&mut self, slot: Slot) {
        let at = self.find(slot.hash).expect("there are more slots than keys");
        self.slots[at] = slot;
    }

    /// Twice as many slots, or as many as there is memory for beside the ones that are copied.
    fn grow(&mut self) -> Room {
        let now = self.slots.len();
        let possible = (self.bytes_max - self.bytes()) / SLOT_BYTES;
        let wanted = (now * 2).max(SLOTS_AT_FIRST).min(possible);
        if wanted <= now {
            return Room::Full;
        }
        let before = std::mem::replace(&mut self.slots, vec![FREE; wanted]);
        before.into_iter().filter(|slot| slot.newest > Offset::NONE).for_each(|slot| self.insert(slot));
        Room::Taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn no_memory_is_taken_before_the_first_key() {
        let mut map = OffsetMap::new(1 << 20);
        assert_eq!((map.bytes(), map.newest(b"k")), (0, None));
        assert_eq!(map.put(b"k", Offset(3)), Room::Taken);
        assert_eq!(map.bytes(), SLOTS_AT_FIRST * SLOT_BYTES);
    }

    #[test]
    fn a_full_map_keeps_within_its_bytes_and_still_takes_keys_that_it_has() {
        let mut map = OffsetMap::new(200_000);
        let mut most = 0;
        let taken = (0i64..)
            .take_while(|number| {
                let taken = map.put(&number.to_be_bytes(), Offset(*number));
                most = most.max(map.bytes());
                taken == Room::Taken
            })
            .count();
        assert!(most <= 200_000, "{most} bytes");
        assert!(taken * SLOT_BYTES > 200_000 / 3, "{taken} keys are few");
        assert_eq!(map.len(), taken);
        assert_eq!(map.put(&0i64.to_be_bytes(), Offset(1 << 40)), Room::Taken);
        for number in 1..taken as i64 {
            assert_eq!(map.newest(&number.to_be_bytes()), Some(Offset(number)));
        }
        assert_eq!(map.newest(&0i64.to_be_bytes()), Some(Offset(1 << 40)));
    }

    proptest! {
        /// The same as a plain map, whatever the keys.
        #[test]
        fn the_newest_offset_of_each_key_is_known(
            keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..6), 0..3000)
        ) {
            let (mut map, mut model) = (OffsetMap::new(1 << 24), HashMap::new());
            for (offset, key) in keys.iter().enumerate() {
                prop_assert_eq!(map.put(key, Offset(offset as i64)), Room::Taken);
                model.insert(key, Offset(offset as i64));
            }
            prop_assert_eq!(map.len(), model.len());
            for (key, offset) in model {
                prop_assert_eq!(map.newest(key), Some(offset));
            }
            prop_assert_eq!(map.newest(b"another"), None);
        }
    }
}
