//! The owning core's half of a fetch session (KIP-227): which of its partitions a session wants, and
//! which of them have news.
//!
//! A partition tells its watchers when it has something to say: an append, a new high watermark or log
//! start, another leader epoch. That puts it in the session's queue of news, once, and wakes the session
//! where it is waiting. A fetch looks at the queue alone, so a quiet session of 100,000 partitions costs
//! nothing, and no fetch polls.
//!
//! Invariants:
//! * a watched partition is in the queue of news at most once, and a slot is used again only after it has
//!   left the queue;
//! * a partition leaves the queue only after it was read and had nothing the session lacks;
//! * what was answered with records goes to the end of the queue, so that none starves.

use std::collections::{HashMap, VecDeque};

use tarn_log::FirstBatch;
use tarn_record::{Epoch, Offset, TopicIdPartition};
use tarn_wire::{ErrorCode, Records};

use crate::slots::{Keyed, Slots};

/// The name of a session's interest, the same on every core, never used again. Whoever makes it up can
/// always have it closed, whatever became of the requests that carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterestId(pub u64);

/// Who is to be told when a partition has news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watcher {
    interest: InterestNumber,
    slot: u32,
}

/// What an interest is called on this core: every partition notes its watchers, so the name is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct InterestNumber(u32);

/// What a session asks of one partition. Both halves of a session keep it for every partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The first offset to send.
    pub fetch_offset: Offset,
    /// The most bytes of records to send of it, but for a first batch that is larger.
    pub max_bytes: u32,
    /// The leader epoch that the client knows, or `Epoch::NONE`.
    pub current_leader_epoch: Epoch,
    /// The epoch of the last record that the client has, or `Epoch::NONE`.
    pub last_fetched_epoch: Epoch,
}

/// What a fetch found in one partition.
#[derive(Clone, Debug)]
pub struct FetchedPartition {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Why there are no records, or `ErrorCode::NONE`.
    pub error: ErrorCode,
    /// The high watermark, or `Offset::NONE` with an error.
    pub high_watermark: Offset,
    /// The last stable offset, or `Offset::NONE` with an error.
    pub last_stable_offset: Offset,
    /// The log's first offset, or `Offset::NONE` with an error.
    pub log_start: Offset,
    /// Aborted transactions within the records: producer id and first offset. `None` for read_uncommitted.
    pub aborted: Option<Vec<(i64, Offset)>>,
    /// Where the client's log and this one part (KIP-595).
    pub diverging: Option<(Epoch, Offset)>,
    /// True where the client lacks records that it may see, sent with this or not.
    pub is_behind: bool,
    /// The records, as places in files.
    pub records: Records,
}

impl FetchedPartition {
    /// An answer that only says why there are no records.
    pub fn failed(partition: TopicIdPartition, error: ErrorCode) -> FetchedPartition {
        FetchedPartition {
            partition,
            error,
            high_watermark: Offset::NONE,
            last_stable_offset: Offset::NONE,
            log_start: Offset::NONE,
            aborted: None,
            diverging: None,
            is_behind: false,
            records: Records::default(),
        }
    }

    /// True where a fetch must answer at once, whatever `MinBytes` says.
    pub fn is_urgent(&self) -> bool {
        self.error != ErrorCode::NONE || self.diverging.is_some()
    }
}

/// How much of an interest a fetch looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every partition, in the order in which the session named them: a full fetch.
    All,
    /// Only those with news: an incremental fetch.
    News,
}

/// One partition of an interest, with what the session has been told of it: the high watermark and the log
/// start, or `UNTOLD`.
#[derive(Clone, Copy, Debug)]
struct Watched {
    partition: TopicIdPartition,
    wanted: Wanted,
    told: (Offset, Offset),
    in_news: bool,
}

/// No log says this of itself without an error, and errors are told always.
const UNTOLD: (Offset, Offset) = (Offset::NONE, Offset::NONE);

impl Keyed for Watched {
    type Key = TopicIdPartition;

    fn key(&self) -> &TopicIdPartition {
        &self.partition
    }
}

/// One session's interest in the partitions of this core. `W` wakes the session where it waits.
#[derive(Debug)]
struct Interest<W> {
    wake: W,
    armed: bool,
    /// Something has happened since the last fetch: what it did not send is not all there is.
    fresh: bool,
    watched: Slots<Watched>,
    news: VecDeque<u32>,
}

/// The interests of all sessions in the partitions of one core. Owned by that core.
#[derive(Debug)]
pub struct Interests<W> {
    numbers: HashMap<InterestId, InterestNumber>,
    interests: HashMap<InterestNumber, Interest<W>>,
    next_number: u32,
}

impl<W> Default for Interests<W> {
    fn default() -> Interests<W> {
        Interests { numbers: HashMap::new(), interests: HashMap::new(), next_number: 0 }
    }
}

impl<W> Interests<W> {
    /// Begins an interest in nothing yet, where it has not begun; `partitions` is how many it will soon have.
    pub fn open(&mut self, id: InterestId, wake: W, partitions: usize) {
        if self.numbers.contains_key(&id) {
            return;
        }
        let number = self.unused_number();
        self.numbers.insert(id, number);
        let mut watched = Slots::default();
        watched.reserve_exact(partitions);
        let interest = Interest { wake, armed: false, fresh: false, watched, news: VecDeque::new() };
        self.interests.insert(number, interest);
    }

    /// Ends an interest. The watchers returned are to be taken off their partitions.
    pub fn close(&mut self, id: InterestId) -> Vec<(TopicIdPartition, Watcher)> {
        let Some(number) = self.numbers.remove(&id) else { return Vec::new() };
        let Some(closed) = self.interests.remove(&number) else { return Vec::new() };
        let watcher = |slot| Watcher { interest: number, slot };
        closed.watched.iter().map(|(slot, watched)| (watched.partition, watcher(slot))).collect()
    }

    /// Adds a partition, or changes what is wanted of it; either way it is looked at by the next fetch.
    /// Returns the watcher to put on the partition where it is new. `None` too for a closed interest.
    pub fn upsert(&mut self, id: InterestId, partition: TopicIdPartition, wanted: Wanted) -> Option<Watcher> {
        let (number, interest) = self.get_mut(id)?;
        if let Some(slot) = interest.watched.find(&partition) {
            if let Some(watched) = interest.watched.get_mut(slot) {
                watched.wanted = wanted;
            }
            interest.queue(slot);
            return None;
        }
        let slot = interest.watched.insert(Watched { partition, wanted, told: UNTOLD, in_news: false });
        interest.queue(slot);
        Some(Watcher { interest: number, slot })
    }

    /// Drops a partition from an interest. The watcher returned is to be taken off the partition.
    pub fn forget(&mut self, id: InterestId, partition: TopicIdPartition) -> Option<Watcher> {
        let (number, interest) = self.get_mut(id)?;
        let slot = interest.watched.find(&partition)?;
        if interest.watched.remove(slot).is_none_or(|watched| !watched.in_news) {
            interest.watched.release(slot);
        }
        Some(Watcher { interest: number, slot })
    }

    /// Gives back the room of partitions that were forgotten, where that is most. Returns what each partition's
    /// watcher was and is now: the partitions are to be told.
    pub fn compact(&mut self, id: InterestId) -> Vec<(TopicIdPartition, Watcher, Watcher)> {
        let Some((number, interest)) = self.get_mut(id) else { return Vec::new() };
        if !interest.watched.is_sparse() {
            return Vec::new();
        }
        let moved = interest.watched.compact(|_| {});
        interest.news = interest.news.iter().filter_map(|slot| moved.get(slot).copied()).collect();
        let watcher = |slot| Watcher { interest: number, slot };
        let watched = |new: u32| Some(interest.watched.get(new)?.partition);
        moved.iter().filter_map(|(&old, &new)| Some((watched(new)?, watcher(old), watcher(new)))).collect()
    }

    /// Who wants a partition: the watchers to put on it when it comes to this core.
    pub fn watchers_of(&self, partition: TopicIdPartition) -> Vec<Watcher> {
        let wants = self.interests.iter();
        wants
            .filter_map(|(number, interest)| Some((*number, interest.watched.find(&partition)?)))
            .map(|(interest, slot)| Watcher { interest, slot })
            .collect()
    }

    /// Takes back an answer that did not fit the response: the session has not been told.
    pub fn requeue(&mut self, id: InterestId, partition: TopicIdPartition) {
        let Some((_, interest)) = self.get_mut(id) else { return };
        let Some(slot) = interest.watched.find(&partition) else { return };
        if let Some(watched) = interest.watched.get_mut(slot) {
            watched.told = UNTOLD;
        }
        interest.queue(slot);
    }

    /// The partition that `watcher` is on has news. Returns the wake-up of a session that waits.
    pub fn has_news(&mut self, watcher: Watcher) -> Option<&W> {
        let interest = self.interests.get_mut(&watcher.interest)?;
        interest.watched.get(watcher.slot)?;
        interest.queue(watcher.slot);
        interest.fresh = true;
        if std::mem::take(&mut interest.armed) { Some(&interest.wake) } else { None }
    }

    /// From now on news wakes the session, once. False where something has happened since the last fetch, or
    /// there is no such interest. What the last fetch found and had to leave is no news.
    pub fn arm(&mut self, id: InterestId) -> bool {
        let Some((_, interest)) = self.get_mut(id) else { return false };
        interest.armed = !interest.fresh;
        interest.armed
    }

    /// Reads what the session lacks, at most about `max_bytes` of it: `read` is told how many bytes may
    /// follow, and whether a first batch may be larger than that.
    pub fn fetch(
        &mut self,
        id: InterestId,
        scope: Scope,
        max_bytes: usize,
        mut read: impl FnMut(TopicIdPartition, &Wanted, usize, FirstBatch) -> FetchedPartition,
    ) -> Vec<FetchedPartition> {
        let Some((_, interest)) = self.get_mut(id) else { return Vec::new() };
        interest.armed = false;
        interest.fresh = false;
        if scope == Scope::All {
            interest.queue_all();
        }
        let mut left = max_bytes;
        let mut first = FirstBatch::MayBeLarger;
        let mut fetched = Vec::new();
        for _ in 0..interest.news.len() {
            if left == 0 && first == FirstBatch::MustFit && scope == Scope::News {
                break;
            }
            let Some(slot) = interest.news.pop_front() else { break };
            let Some(watched) = interest.watched.get_mut(slot) else {
                interest.watched.release(slot);
                continue;
            };
            let limit = left.min(watched.wanted.max_bytes as usize);
            let found = read(watched.partition, &watched.wanted, limit, first);
            watched.in_news = false;
            if !found.records.is_empty() {
                left = left.saturating_sub(found.records.len());
                first = FirstBatch::MustFit;
            }
            if found.is_behind || found.is_urgent() {
                interest.queue(slot);
            }
            if scope == Scope::All || interest.tells(slot, &found) {
                interest.told(slot, &found);
                fetched.push(found);
            }
        }
        fetched
    }

    fn get_mut(&mut self, id: InterestId) -> Option<(InterestNumber, &mut Interest<W>)> {
        let number = *self.numbers.get(&id)?;
        Some((number, self.interests.get_mut(&number)?))
    }

    fn unused_number(&mut self) -> InterestNumber {
        loop {
            self.next_number = self.next_number.wrapping_add(1);
            let number = InterestNumber(self.next_number);
            if !self.interests.contains_key(&number) {
                return number;
            }
        }
    }
}

impl<W> Interest<W> {
    fn queue(&mut self, slot: u32) {
        if let Some(watched) = self.watched.get_mut(slot)
            && !std::mem::replace(&mut watched.in_news, true)
        {
            self.news.push_back(slot);
        }
    }

    fn queue_all(&mut self) {
        for slot in std::mem::take(&mut self.news) {
            match self.watched.get_mut(slot) {
                Some(watched) => watched.in_news = false,
                None => self.watched.release(slot),
            }
        }
        self.news.reserve_exact(self.watched.len());
        (0..self.watched.slots()).for_each(|slot| self.queue(slot));
    }

    /// True where the session does not know this yet.
    fn tells(&self, slot: u32, found: &FetchedPartition) -> bool {
        let known = self.watched.get(slot).map_or(UNTOLD, |watched| watched.told);
        !found.records.is_empty() || found.is_urgent() || known != (found.high_watermark, found.log_start)
    }

    fn told(&mut self, slot: u32, found: &FetchedPartition) {
        if let Some(watched) = self.watched.get_mut(slot) {
            watched.told = (found.high_watermark, found.log_start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tarn_record::{PartitionIndex, TopicId};

    #[test]
    fn a_quiet_session_reads_nothing() {
        let mut world = World::with(3);
        assert_eq!(world.fetch(Scope::All, 100), [0, 1, 2]);
        assert_eq!(world.fetch(Scope::News, 100), [0; 0]);
        assert_eq!(world.reads, 3, "nothing happened since the full fetch");
    }

    #[test]
    fn an_append_wakes_a_waiting_session_once() {
        let mut world = World::with(2);
        world.fetch(Scope::All, 100);
        world.fetch(Scope::News, 100);
        assert!(world.interests.arm(world.id));
        assert_eq!(world.append(1, 10), Some("wake"));
        assert_eq!(world.append(1, 10), None);
        assert_eq!(world.append(0, 10), None);
        assert!(!world.interests.arm(world.id), "there is news to read first");
        assert_eq!(world.fetch(Scope::News, 100), [1, 0]);
    }

    #[test]
    fn records_that_are_too_few_to_answer_with_are_read_once_until_there_are_more() {
        let mut world = World::with(1);
        world.append(0, 10);
        assert_eq!(world.fetch(Scope::News, 100), [0]);
        assert!(world.interests.arm(world.id), "what was read already is no news");
        assert_eq!(world.append(0, 10), Some("wake"));
        assert_eq!(world.fetch(Scope::News, 100), [0]);
    }

    #[test]
    fn records_are_sent_again_until_the_session_moves_on() {
        let mut world = World::with(1);
        world.append(0, 10);
        assert_eq!(world.fetch(Scope::News, 100), [0]);
        assert_eq!(world.fetch(Scope::News, 100), [0]);
        world.move_on(0, 10);
        assert_eq!(world.fetch(Scope::News, 100), [0; 0]);
        assert_eq!(world.fetch(Scope::News, 100), [0; 0]);
    }

    #[test]
    fn a_partition_that_was_served_waits_behind_the_others() {
        let mut world = World::with(3);
        for partition in 0..3 {
            world.append(partition, 10);
        }
        assert_eq!(world.fetch(Scope::News, 10), [0]);
        assert_eq!(world.fetch(Scope::News, 10), [1]);
        assert_eq!(world.fetch(Scope::News, 10), [2]);
        assert_eq!(world.fetch(Scope::News, 10), [0]);
    }

    #[test]
    fn a_session_that_asks_for_no_bytes_gets_the_first_batch_all_the_same() {
        let mut world = World::with(3);
        world.fetch(Scope::All, 0);
        world.append(1, 10);
        world.append(2, 10);
        assert_eq!(world.fetch(Scope::News, 0), [1], "one batch a fetch, as KIP-74 promises");
        world.move_on(1, 10);
        assert_eq!(world.fetch(Scope::News, 0), [2]);
    }

    #[test]
    fn what_a_full_fetch_had_no_room_for_is_sent_by_the_next() {
        let mut world = World::with(2);
        world.append(0, 10);
        world.append(1, 10);
        assert_eq!(world.fetch(Scope::All, 10), [0, 1], "a full fetch answers all, with what fits");
        world.move_on(0, 10);
        assert_eq!(world.fetch(Scope::News, 10), [1]);
    }

    #[test]
    fn what_did_not_fit_the_response_is_told_again() {
        let mut world = World::with(1);
        assert_eq!(world.fetch(Scope::All, 100), [0]);
        world.fetch(Scope::News, 100);
        let partition = world.partition(0);
        world.interests.requeue(world.id, partition);
        assert_eq!(world.fetch(Scope::News, 100), [0]);
    }

    #[test]
    fn a_forgotten_partition_has_no_news() {
        let mut world = World::with(2);
        let partition = world.partition(0);
        let watcher = world.interests.forget(world.id, partition).expect("it was watched");
        assert_eq!(world.interests.has_news(watcher), None);
        assert_eq!(world.fetch(Scope::All, 100), [1]);
    }

    #[test]
    fn a_slot_that_is_still_in_the_queue_is_not_given_away() {
        let mut world = World::with(2);
        world.fetch(Scope::All, 100);
        world.append(0, 10);
        let (forgotten, new) = (world.partition(0), world.partition(2));
        world.interests.forget(world.id, forgotten);
        world.ends.push(10);
        assert!(world.interests.upsert(world.id, new, wanted(0)).is_some());
        assert_eq!(world.fetch(Scope::News, 10), [2]);
        world.move_on(2, 10);
        assert_eq!(world.fetch(Scope::News, 100), [0; 0]);
        assert_eq!(world.reads, 2 + 2, "each reading had a reason");
        assert!(world.interests.upsert(world.id, forgotten, wanted(10)).is_some());
        assert_eq!(world.fetch(Scope::All, 100), [0, 1, 2], "the slot is used again");
    }

    #[test]
    fn what_is_left_of_many_partitions_keeps_its_news_in_less_room() {
        let mut world = World::with(1000);
        world.fetch(Scope::All, 100);
        for partition in 1..999 {
            world.append(partition, 10);
            let forgotten = world.partition(partition as i32);
            world.interests.forget(world.id, forgotten);
        }
        world.append(999, 10);
        let moved = world.interests.compact(world.id);
        assert_eq!(moved.len(), 2);
        for (partition, before, now) in moved {
            let at = partition.partition.0 as usize;
            assert_eq!(std::mem::replace(&mut world.watchers[at], now), before);
        }
        let interest = world.interests.interests.values().next().expect("it is open");
        assert_eq!((interest.watched.slots(), interest.news.len()), (2, 1));
        assert_eq!(world.fetch(Scope::News, 100), [999]);
        world.append(0, 10);
        assert_eq!(world.fetch(Scope::News, 100), [999, 0]);
    }

    #[test]
    fn a_partition_of_a_session_takes_few_bytes() {
        assert_eq!(size_of::<Option<Watched>>(), 64);
        assert_eq!(size_of::<Watcher>(), 8);
    }

    #[test]
    fn a_closed_interest_is_never_found_again() {
        let mut world = World::with(1);
        let closed = world.id;
        let watchers = world.interests.close(closed);
        assert_eq!(watchers.len(), 1);
        world.interests.open(InterestId(2), "other", 0);
        assert_eq!(world.interests.has_news(watchers[0].1), None);
        assert_eq!(world.fetch(Scope::All, 100), [0; 0]);
    }

    /// A session with partitions whose logs are only lengths.
    struct World {
        topic: TopicId,
        interests: Interests<&'static str>,
        id: InterestId,
        ends: Vec<i64>,
        watchers: Vec<Watcher>,
        reads: usize,
    }

    impl World {
        fn with(partitions: i32) -> World {
            let mut interests = Interests::default();
            let id = InterestId(1);
            interests.open(id, "wake", 0);
            let (topic, ends) = (TopicId::random(), vec![0; partitions as usize]);
            let mut world = World { topic, interests, id, ends, watchers: Vec::new(), reads: 0 };
            for partition in 0..partitions {
                let (named, wanted) = (world.partition(partition), wanted(0));
                world.watchers.push(world.interests.upsert(id, named, wanted).expect("it is new"));
            }
            world
        }

        fn partition(&self, partition: i32) -> TopicIdPartition {
            TopicIdPartition { topic_id: self.topic, partition: PartitionIndex(partition) }
        }

        fn append(&mut self, partition: usize, records: i64) -> Option<&'static str> {
            self.ends[partition] += records;
            self.interests.has_news(self.watchers[partition]).copied()
        }

        fn move_on(&mut self, partition: i32, offset: i64) {
            let named = self.partition(partition);
            assert_eq!(self.interests.upsert(self.id, named, wanted(offset)), None);
        }

        fn fetch(&mut self, scope: Scope, max_bytes: usize) -> Vec<i32> {
            let (ends, reads) = (&self.ends, &mut self.reads);
            let fetched =
                self.interests.fetch(self.id, scope, max_bytes, |partition, wanted, limit, first| {
                    *reads += 1;
                    let end = ends[partition.partition.0 as usize];
                    let limit = if first == FirstBatch::MayBeLarger { limit.max(1) } else { limit };
                    let length = (end - wanted.fetch_offset.0).min(limit as i64) as usize;
                    FetchedPartition {
                        high_watermark: Offset(end),
                        log_start: Offset(0),
                        is_behind: wanted.fetch_offset.0 < end,
                        records: Records::from(Bytes::from(vec![0; length])),
                        ..FetchedPartition::failed(partition, ErrorCode::NONE)
                    }
                });
            fetched.iter().map(|found| found.partition.partition.0).collect()
        }
    }

    fn wanted(offset: i64) -> Wanted {
        Wanted {
            fetch_offset: Offset(offset),
            max_bytes: 1000,
            current_leader_epoch: Epoch::NONE,
            last_fetched_epoch: Epoch::NONE,
        }
    }
}
