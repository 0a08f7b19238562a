//! Interests of sessions in partitions whose logs are only lengths.

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
    world.interests.requeue(world.id, &[partition]);
    assert_eq!(world.fetch(Scope::News, 100), [0]);
}

#[test]
fn what_did_not_fit_comes_first_in_the_next() {
    let mut world = World::with(4);
    for partition in 0..4 {
        world.append(partition, 10);
    }
    assert_eq!(world.fetch(Scope::News, 30), [0, 1, 2]);
    let cut = [world.partition(1), world.partition(2)];
    world.interests.requeue(world.id, &cut);
    assert_eq!(world.fetch(Scope::News, 40), [1, 2, 3, 0]);
}

#[test]
fn a_large_batch_is_not_passed_over_for_ever_by_small_ones() {
    let mut world = World::with(3);
    world.whole.insert(1);
    [(0, 10), (1, 95), (2, 10)].into_iter().for_each(|(partition, records)| {
        world.append(partition, records);
    });
    assert_eq!(world.fetch(Scope::News, 100), [0, 1, 2], "there is no room for the records of 1");
    assert_eq!(world.sent, [0, 2]);
    assert_eq!(world.fetch(Scope::News, 100), [1, 0], "it is told first, though others have records too");
    assert_eq!(world.sent, [1, 0]);
}

#[test]
fn a_partition_that_is_news_for_one_session_wakes_that_one() {
    let mut world = World::with(2);
    world.fetch(Scope::All, 100);
    assert!(world.interests.arm(world.id));
    let partition = world.partition(1);
    assert_eq!(world.interests.has_news_of(InterestId(2), partition), None);
    assert_eq!(world.interests.has_news_of(world.id, partition), Some(&"wake"));
    let reads = world.reads;
    world.fetch(Scope::News, 100);
    assert_eq!(world.reads, reads + 1);
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
    /// Partitions whose records are one batch.
    whole: HashSet<usize>,
    /// The partitions whose records were sent last.
    sent: Vec<i32>,
}

impl World {
    fn with(partitions: i32) -> World {
        let mut interests = Interests::default();
        let id = InterestId(1);
        interests.open(id, "wake", 0);
        let (topic, ends) = (TopicId::random(), vec![0; partitions as usize]);
        let mut world = World {
            topic,
            interests,
            id,
            ends,
            watchers: Vec::new(),
            reads: 0,
            whole: HashSet::new(),
            sent: Vec::new(),
        };
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
        let (ends, reads, whole) = (&self.ends, &mut self.reads, &self.whole);
        let fetched = self.interests.fetch(self.id, scope, max_bytes, |partition, wanted, limit, first| {
            *reads += 1;
            let end = ends[partition.partition.0 as usize];
            let limit = if first == FirstBatch::MayBeLarger { limit.max(1) } else { limit };
            let available = end - wanted.fetch_offset.0;
            let is_whole = whole.contains(&(partition.partition.0 as usize));
            let length = match available <= limit as i64 {
                true => available as usize,
                false if !is_whole => limit,
                false if first == FirstBatch::MayBeLarger => available as usize,
                false => 0,
            };
            FetchedPartition {
                high_watermark: Offset(end),
                log_start: Offset(0),
                is_behind: wanted.fetch_offset.0 < end,
                records: Records::from(Bytes::from(vec![0; length])),
                ..FetchedPartition::failed(partition, ErrorCode::NONE)
            }
        });
        let number = |found: &FetchedPartition| found.partition.partition.0;
        self.sent = fetched.iter().filter(|found| !found.records.is_empty()).map(number).collect();
        fetched.iter().map(number).collect()
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
