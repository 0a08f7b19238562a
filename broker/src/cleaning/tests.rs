//! Rounds of a core of the test's own, beside a node that runs; the test is the cleaner's thread.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::{block_on, poll_once};
use tarn_log::{
    CleanRules, Cleaned, Cleaning, Descriptors, Log, LogConfig, LogDir, OffsetMap, Opening, Spent,
};
use tarn_record::{
    BatchBuilder, Compression, Epoch, Offset, PartitionIndex, Record, Timestamp, TopicId, TopicIdPartition,
    ValidBatch,
};
use tarn_runtime::channel::{Flag, ReplySlot, reply};
use tarn_runtime::{sleep, yield_now};
use tarn_wire::ErrorCode;

use super::*;
use crate::envelope::{CheckpointEntry, Envelope, OffsetQuery, OffsetSpec};
use crate::interest::{InterestId, Scope};
use crate::lone_core::{self, LoneCore};
use crate::replica::ending::tests::ALONE;
use crate::replica::{Isolation, Replica};
use crate::rules::{CompactionRules, TopicRules};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const TOPIC: &str = "t";
const P: TopicIdPartition = TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) };
const RECORDS: i64 = 40;

#[test]
fn a_log_that_is_about_to_be_cut_waits_for_its_round_and_has_no_other_meanwhile() {
    lone_core::run(|world| async move {
        world.lead(&rules(true));
        let begun = world.begin().await;
        assert!(world.begin_now().await.is_none(), "one at a time");
        assert!(world.candidates().await.best.is_empty());
        let mut paused = Box::pin(pause(&world.core, P));
        assert!(poll_once(&mut paused).await.is_none(), "the thread has its files");
        let told = world.core.node().cleaner().paid(Spent::default(), &begun.unwanted);
        assert_eq!(told, ControlFlow::Break(()));
        end(begun.end, Outcome::GivenUp).await;
        let paused = paused.await;
        assert!(world.begin_now().await.is_none());
        drop(paused);
        drop(world.begin().await);
        // A thread that is gone would go the same way again.
        while world.candidates().await.uncleanable.is_empty() {
            yield_now().await;
        }
    });
}

#[test]
fn what_was_written_for_a_log_that_was_given_up_is_to_be_removed() {
    lone_core::run(|world| async move {
        world.lead(&rules(true));
        let Begun { cleaning, end: slot, .. } = *world.begin().await;
        let cleaned = first_segment(cleaning);
        drop(world.core.partitions().remove(P, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        forget(&world.core, P);
        let mut waits = Box::pin(ended(&world.core, &[P]));
        assert!(poll_once(&mut waits).await.is_none());
        let written = world.dir.path().join("t-0/00000000000000000000.log.cleaned");
        assert!(written.exists());
        match world.swap(cleaned).await {
            Swap::Stale(removal) => removal.run().expect("it is there"),
            other => panic!("{other:?}"),
        }
        assert!(!written.exists());
        drop(slot);
        waits.await;
    });
}

#[test]
fn a_round_is_written_down_once_it_is_on_the_disk() {
    lone_core::run(|world| async move {
        world.lead(&rules(true));
        let Begun { cleaning, end: slot, .. } = *world.begin().await;
        let cleaned = first_segment(cleaning);
        assert!(matches!(world.swap(cleaned).await, Swap::Done));
        let is_compacted = world.core.partitions().get(P).is_some_and(|replica| replica.was_compacted);
        assert!(is_compacted);
        end(slot, Outcome::Compacted(Offset(17))).await;
        assert_eq!(world.first_dirty(), (Some(Offset(17)), Some(Offset(17))));
        let flushed = world.core.partitions().get_mut(P).is_some_and(|replica| replica.flush_job().is_none());
        assert!(flushed, "the names are on the disk");
        let files = world.core.partitions().get(P).map(|replica| replica.log().generation());
        let begun = world.begin().await;
        world.cut(|log| drop(log.truncate_to(Offset(9), NOW).expect("it can be")));
        end(begun.end, Outcome::Compacted(Offset(30))).await;
        assert_ne!(world.core.partitions().get(P).map(|replica| replica.log().generation()), files);
        assert_eq!(world.first_dirty(), (Some(Offset(9)), Some(Offset(9))), "it was a round of another log");
    });
}

#[test]
fn a_lookup_that_meets_a_swap_is_done_again_in_the_new_files() {
    lone_core::run(|world| async move {
        world.lead(&rules(true));
        let Begun { cleaning, end: slot, .. } = *world.begin().await;
        let cleaned = first_segment(cleaning);
        let (wake, old, new) = (Flag::default(), Flag::default(), Flag::default());
        let asked = (InterestId(1), &wake);
        world.disk.is_broken_from("t-0", old.clone());
        assert_eq!(world.fetch(asked, &[(P, Offset(0))], Scope::All).await.lookups, 1);
        let (reply, mut offsets) = reply();
        let query = OffsetQuery {
            partition: P,
            current_leader_epoch: Epoch::NONE,
            spec: OffsetSpec::AtOrAfter(NOW),
            isolation: Isolation::Replica,
        };
        world.core.handle(Envelope::Offsets(vec![query], reply));
        assert!(poll_once(&mut offsets).await.is_none());
        world.disk.has_begun(2).await;
        world.disk.is_mended();
        assert!(matches!(world.swap(cleaned).await, Swap::Done));
        world.disk.is_cold("t-0", new.clone());
        old.raise();
        world.has_news(asked).await;
        let again = world.fetch(asked, &[], Scope::News).await;
        assert_eq!((again.partitions.len(), again.lookups), (0, 1), "its client is told nothing");
        new.raise();
        world.has_news(asked).await;
        let found = world.fetch(asked, &[], Scope::News).await;
        assert_eq!((found.partitions[0].error, found.lookups), (ErrorCode::NONE, 0));
        assert!(!found.partitions[0].records.is_empty());
        let offset = offsets.await.expect("it is answered").remove(0);
        assert_eq!(offset.error, ErrorCode::NONE);
        end(slot, Outcome::GivenUp).await;
    });
}

#[test]
fn a_segment_waits_for_who_opens_a_file_that_it_replaces_and_the_core_does_not() {
    lone_core::run(|world| async move {
        let path = world.dir.path().with_file_name("slow");
        let slow = LogDir::open(world.disk.disk(), path, Descriptors::new(1)).expect("it is new");
        let world = LoneCore { dir: slow, ..world };
        world.lead(&rules(true));
        world.lead_again(&rules(true), true);
        let Begun { cleaning, end: slot, .. } = *world.begin().await;
        let cleaned = first_segment(cleaning);
        let (wake, answers) = (Flag::default(), Flag::default());
        let asked = (InterestId(1), &wake);
        // What is read elsewhere has the first file closed: there is a descriptor for one.
        let read = world.fetch((InterestId(2), &Flag::default()), &[(P, Offset(20))], Scope::All).await;
        assert!(!read.partitions[0].records.is_empty());
        world.disk.opens_slowly("slow/t-0/00000000000000000000.log", answers.clone());
        assert_eq!(world.fetch(asked, &[(P, Offset(0))], Scope::All).await.lookups, 1);
        world.disk.has_begun(1).await;
        let Swap::Busy(cleaned) = world.swap(cleaned).await else { panic!("it is being opened") };
        answers.raise();
        world.has_news(asked).await;
        assert!(matches!(world.swap(*cleaned).await, Swap::Done));
        end(slot, Outcome::GivenUp).await;
    });
}

#[test]
fn a_round_hands_a_segment_over_until_it_is_taken_or_the_round_is_to_end() {
    for ends in [false, true] {
        lone_core::run(move |world| async move {
            world.lead(&rules(true));
            let Begun { cleaning, unwanted, end: slot } = *world.begin().await;
            let (shared, mut handed_over) = (world.core.node().cleaner().clone(), 0);
            let swap = |cleaned: Cleaned| {
                handed_over += 1;
                match handed_over {
                    3 if ends => shared.end(&unwanted),
                    1..3 => {}
                    _ => {
                        let (slot, swapped) = reply();
                        answer(&world.core, CleanCall::Swap(P, Box::new(cleaned), slot));
                        return block_on(swapped).expect("it is answered");
                    }
                }
                Swap::Busy(Box::new(cleaned))
            };
            let ran = round::run(cleaning, 1 << 20, &shared, &unwanted, swap);
            let written = world.dir.path().join("t-0/00000000000000000000.log.cleaned");
            assert!(handed_over >= 3 && !written.exists());
            assert_eq!(matches!(ran.outcome, Outcome::Compacted(_)), !ends, "{ran:?}");
            end(slot, Outcome::GivenUp).await;
        });
    }
}

#[test]
fn a_round_that_comes_to_nothing_is_not_begun_again_before_there_is_more() {
    lone_core::run(|world| async move {
        world.lead(&rules(true));
        let begun = world.begin().await;
        end(begun.end, Outcome::Compacted(Offset(0))).await;
        assert!(world.begin_now().await.is_none());
        let found = world.candidates().await;
        assert!(found.best.is_empty() && found.max_ratio > 0.9 && found.uncleanable.is_empty(), "{found:?}");
    });
}

#[test]
fn a_log_that_has_lost_its_end_is_compacted_from_there() {
    lone_core::run(|world| async move {
        let log_dirs = world.core.node().log_dirs();
        log_dirs.place(TOPIC, P.partition, P.topic_id);
        log_dirs.note_first_dirty(TOPIC, P.partition, P.topic_id, Some(Offset(RECORDS + 7)));
        world.lead(&rules(true));
        assert_eq!(world.first_dirty(), (Some(Offset(RECORDS)), Some(Offset(RECORDS))));
    });
}

#[test]
fn what_was_compacted_here_is_known_whatever_the_policy_is_now() {
    lone_core::run(|world| async move {
        world.lead(&rules(true));
        world.lead_again(&rules(false), false);
        let compacted = || world.core.partitions().get(P).is_some_and(|replica| replica.ends().compacted);
        assert!(compacted());
        let end = world.core.partitions().get(P).map(|replica| replica.log().end()).unwrap_or_default();
        world.cut(|log| drop(log.truncate_fully_and_start_at(end, NOW).expect("it can be")));
        assert!(!compacted(), "nothing is left of it");
        assert_eq!(world.first_dirty(), (None, None));
    });
}

impl LoneCore {
    /// Leads a log of some segments with three keys, all of it on the disk.
    fn lead(&self, rules: &Arc<TopicRules>) {
        let mut log =
            Log::create(&self.dir, TOPIC, P.partition, P.topic_id, rules.log.clone(), NOW).expect("new");
        for offset in 0..RECORDS {
            log.append_as_is(&[batch(offset)], NOW).expect("there is room");
        }
        let flushed = log.flush_job().expect("there is something").run().expect("the disk works");
        log.flushed(flushed).expect("it is of this log");
        self.take_in(log, rules);
    }

    /// Opens the log again: none of its files is open but the last.
    fn lead_again(&self, rules: &Arc<TopicRules>, clean: bool) {
        let replica = self.core.partitions().remove(P, ErrorCode::NOT_LEADER_OR_FOLLOWER).expect("it is led");
        forget(&self.core, P);
        drop(replica);
        let opening = Opening { clean, recovery_point: Offset(0), log_start: Offset(0) };
        let config = rules.log.clone();
        let log =
            Log::open(&self.dir, TOPIC, P.partition, config, opening, NOW).expect("its files are right").0;
        self.take_in(log, rules);
    }

    fn take_in(&self, log: Log, rules: &Arc<TopicRules>) {
        let log_dirs = self.core.node().log_dirs();
        log_dirs.place(TOPIC, P.partition, P.topic_id);
        log_dirs.opened(TOPIC, P.partition, P.topic_id);
        let end = log.end();
        let replica = Replica::new(P, TOPIC.into(), log, ALONE, end, rules.clone());
        self.core.partitions().insert(replica);
        opened(&self.core, P);
    }

    /// Begins a round, once the checkpoint files say what it needs: those of the node beside are the same.
    async fn begin(&self) -> Box<Begun> {
        loop {
            let entry = self.core.partitions().get(P).map(CheckpointEntry::of).expect("it is led");
            self.core.node().log_dirs().write_checkpoints(&[entry]).expect("there is room");
            if let Some(begun) = self.begin_now().await {
                return begun;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn cut(&self, cut: impl FnOnce(&mut Log)) {
        cut(self.core.partitions().get_mut(P).expect("it is led").log_mut());
        was_truncated(&self.core, P);
    }

    async fn begin_now(&self) -> Option<Box<Begun>> {
        let (slot, begun) = reply();
        answer(&self.core, CleanCall::Begin(P, slot));
        begun.await.expect("it is answered")
    }

    async fn swap(&self, cleaned: Cleaned) -> Swap {
        let (slot, swapped) = reply();
        answer(&self.core, CleanCall::Swap(P, Box::new(cleaned), slot));
        swapped.await.expect("it is answered")
    }

    async fn candidates(&self) -> Candidates {
        let (slot, found) = reply();
        answer(&self.core, CleanCall::Candidates(slot));
        found.await.expect("it is answered")
    }

    /// Where compaction goes on, as the core knows, and as the file will say.
    fn first_dirty(&self) -> (Option<Offset>, Option<Offset>) {
        let known = self.core.cleanings().get(P).map(|log| log.first_dirty);
        (known, self.core.node().log_dirs().first_dirty(TOPIC, P.partition, P.topic_id))
    }
}

fn first_segment(cleaning: Cleaning) -> Cleaned {
    let go_on = &mut |_: Spent| ControlFlow::Continue(());
    let mut round = cleaning.map(OffsetMap::new(1 << 20), go_on).expect("its files are right");
    round.next(go_on).expect("its files are right").expect("there is something to compact")
}

async fn end(slot: ReplySlot<Ended>, outcome: Outcome) {
    let (noted, is_noted) = reply();
    assert!(slot.fill(Ended { outcome, noted }).is_ok());
    is_noted.await.expect("it is noted");
}

fn batch(offset: i64) -> ValidBatch {
    let mut batch = BatchBuilder::new(Offset(offset), Compression::None).timestamp(NOW);
    let (key, value) = (offset % 3, [0; 60]);
    batch.add(&Record {
        key: Some(&key.to_be_bytes()),
        value: Some(&value),
        timestamp: NOW,
        ..Record::default()
    });
    ValidBatch::parse(batch.build()).expect("it is one")
}

fn rules(compact: bool) -> Arc<TopicRules> {
    let log = LogConfig { segment_bytes: 600, ..LogConfig::default() };
    let compaction = CompactionRules { clean: CleanRules::default(), min_dirty_ratio: 0.0 };
    Arc::new(TopicRules {
        log: Arc::new(log),
        compaction: compact.then_some(compaction),
        ..TopicRules::default()
    })
}
