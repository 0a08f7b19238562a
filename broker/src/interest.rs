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
//! * what was answered with records goes to the end of the queue, and what had to be left out of an answer to its
//!   front, so that none starves.

use std::collections::{HashMap, HashSet, VecDeque};

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
    /// How many bytes of the records are the first batch.
    pub first_batch_bytes: usize,
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
            first_batch_bytes: 0,
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
    /// The partitions that the request names, and no interest in them is kept: who finds enough at once need not be
    /// told later.
    Once,
    /// Every partition, in the order in which the session named them: a full fetch.
    All,
    /// Only those with news: an incremental fetch.
    News,
}

/// The room that is left in an answer.
#[derive(Debug)]
pub struct Room {
    left: usize,
    first: FirstBatch,
}

impl Room {
    /// About `max_bytes`, or one batch that is larger.
    pub fn of(max_bytes: usize) -> Room {
        Room { left: max_bytes, first: FirstBatch::MayBeLarger }
    }

    /// True where not one batch more has room.
    fn is_full(&self) -> bool {
        self.left == 0 && self.first == FirstBatch::MustFit
    }

    /// Has a partition read: `read` is told how many bytes may follow, and whether a first batch may be larger
    /// than that.
    pub fn fill(
        &mut self,
        wanted: &Wanted,
        read: impl FnOnce(usize, FirstBatch) -> FetchedPartition,
    ) -> FetchedPartition {
        let found = read(self.left.min(wanted.max_bytes as usize), self.first);
        if !found.records.is_empty() {
            self.left = self.left.saturating_sub(found.records.len());
            self.first = FirstBatch::MustFit;
        }
        found
    }
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

    /// How many of a session's partitions are news.
    pub fn waiting(&self, id: InterestId) -> usize {
        let interest = self.numbers.get(&id).and_then(|number| self.interests.get(number));
        interest.map_or(0, |interest| interest.news.len())
    }

    /// Takes back answers that did not fit the response: the session has not been told, and they are the first of
    /// the next one.
    pub fn requeue(&mut self, id: InterestId, partitions: &[TopicIdPartition]) {
        let Some((_, interest)) = self.get_mut(id) else { return };
        let slots: Vec<u32> = partitions.iter().filter_map(|one| interest.watched.find(one)).collect();
        for slot in &slots {
            if let Some(watched) = interest.watched.get_mut(*slot) {
                watched.told = UNTOLD;
            }
        }
        interest.queue_first(&slots);
    }

    /// The partition that `watcher` is on has news. Returns the wake-up of a session that waits.
    pub fn has_news(&mut self, watcher: Watcher) -> Option<&W> {
        let interest = self.interests.get_mut(&watcher.interest)?;
        interest.watched.get(watcher.slot)?;
        interest.queue(watcher.slot);
        interest.fresh = true;
        if std::mem::take(&mut interest.armed) { Some(&interest.wake) } else { None }
    }

    /// The same of a partition for one session.
    pub fn has_news_of(&mut self, id: InterestId, partition: TopicIdPartition) -> Option<&W> {
        let (interest, found) = self.get_mut(id)?;
        let slot = found.watched.find(&partition)?;
        self.has_news(Watcher { interest, slot })
    }

    /// From now on news wakes the session, once. False where something has happened since the last fetch, or
    /// there is no such interest. What the last fetch found and had to leave is no news.
    pub fn arm(&mut self, id: InterestId) -> bool {
        let Some((_, interest)) = self.get_mut(id) else { return false };
        interest.armed = !interest.fresh;
        interest.armed
    }

    /// Reads what the session lacks, at most about `max_bytes` of it; `read` is told what [`Room::fill`] says.
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
        let mut room = Room::of(max_bytes);
        let (mut fetched, mut unserved) = (Vec::new(), Vec::new());
        for _ in 0..interest.news.len() {
            if room.is_full() && scope == Scope::News {
                break;
            }
            let Some(slot) = interest.news.pop_front() else { break };
            let Some(watched) = interest.watched.get_mut(slot) else {
                interest.watched.release(slot);
                continue;
            };
            let Watched { partition, wanted, .. } = *watched;
            watched.in_news = false;
            let found = room.fill(&wanted, |limit, first| read(partition, &wanted, limit, first));
            if found.is_urgent() || found.is_behind && !found.records.is_empty() {
                interest.queue(slot);
            } else if found.is_behind {
                unserved.push(slot);
            }
            if scope == Scope::All || interest.tells(slot, &found) {
                interest.told(slot, &found);
                fetched.push(found);
            }
        }
        interest.queue_first(&unserved);
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

    /// Puts these in front of all others, in their order.
    fn queue_first(&mut self, slots: &[u32]) {
        let is_queued = |slot: &u32| self.watched.get(*slot).is_some_and(|watched| watched.in_news);
        if slots.iter().any(is_queued) {
            let first: HashSet<u32> = slots.iter().copied().collect();
            self.news.retain(|slot| !first.contains(slot));
        }
        for slot in slots.iter().rev() {
            if let Some(watched) = self.watched.get_mut(*slot) {
                watched.in_news = true;
                self.news.push_front(*slot);
            }
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
mod tests;
