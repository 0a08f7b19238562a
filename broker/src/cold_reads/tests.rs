//! Cold reads by themselves, and on a core whose disk does not answer.

use std::future::Future;
use std::sync::Arc;

use tarn_log::{Descriptors, Log, LogDir, RealDisk};
use tarn_record::{Offset, PartitionIndex, Timestamp, TopicId};
use tarn_runtime::channel::Flag;
use tarn_runtime::yield_now;
use tarn_wire::ErrorCode;

use super::*;
use crate::envelope::{Envelope, FetchAnswer};
use crate::interest::Scope;
use crate::lone_core::{self, LoneCore};
use crate::replica::ending::tests::{idempotent, rules};
use crate::replica::truncating::tests::divergent;

const SESSION: InterestId = InterestId(1);
const OTHER: InterestId = InterestId(2);

#[test]
fn a_core_serves_everybody_else_while_a_disk_does_not_answer() {
    on_a_core(|world| async move {
        let (cold, warm) = (world.lead(0), world.lead(1));
        let answers = Flag::default();
        world.lone.disk.is_cold("t-0", answers.clone());
        let first = world.fetch(SESSION, &[cold, warm], Scope::All).await;
        assert_eq!((sent(&first), first.lookups), (vec![1], 1), "the other partition is not held up");
        assert_eq!(first.partitions.len(), 2, "but a full fetch tells what is known of both");
        assert_eq!(first.partitions[0].high_watermark, first.partitions[1].high_watermark);
        let next = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((sent(&next), next.lookups), (vec![1], 1), "it is looked up once");
        let other = world.fetch(OTHER, &[warm], Scope::All).await;
        assert_eq!((sent(&other), other.lookups), (vec![1], 0));
        let wake = world.wake.clone();
        world.lone.core.handle(Envelope::Arm(SESSION, wake.clone()));
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(!wake.is_raised());
        answers.raise();
        wake.raised().await;
        let last = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((sent(&last), last.lookups), (vec![0, 1], 0), "it comes first, when it can");
    });
}

#[test]
fn a_disk_that_does_not_answer_does_not_hold_up_the_cold_reads_of_another_directory() {
    on_a_core(|world| async move {
        let other = world.another_dir("others");
        let (hangs, cold) = (Flag::default(), Flag::default());
        let hanging: Vec<_> = (0..20).map(|number| world.lead(number)).collect();
        let served = world.lead_in(&other, 20);
        world.lone.disk.is_cold("logs", hangs.clone());
        world.lone.disk.is_cold("others", cold.clone());
        for (number, partition) in (100..).zip(&hanging) {
            let answer = world.fetch(InterestId(number), &[*partition], Scope::All).await;
            assert_eq!((sent(&answer), answer.lookups), (vec![], 1));
        }
        let both = world.fetch(SESSION, &[hanging[0], served], Scope::All).await;
        assert_eq!((sent(&both), both.lookups), (vec![], 2));
        cold.raise();
        world.has_news(SESSION).await;
        let answer = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((sent(&answer), answer.lookups), (vec![20], 1));
        hangs.raise();
    });
}

#[test]
fn a_disk_that_cannot_read_is_told_and_waited_for_by_nobody() {
    on_a_core(|world| async move {
        let cold = world.lead(0);
        world.lone.disk.is_broken("t-0");
        let first = world.fetch(SESSION, &[cold], Scope::All).await;
        assert_eq!((first.partitions[0].error, first.lookups), (ErrorCode::NONE, 1));
        world.has_news(SESSION).await;
        let failed = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((failed.partitions[0].error, failed.lookups), (ErrorCode::KAFKA_STORAGE_ERROR, 0));
    });
}

#[test]
fn what_is_under_way_is_not_asked_of_memory_again_unless_another_offset_is_wanted() {
    on_a_core(|world| async move {
        let cold = world.lead(0);
        let answers = Flag::default();
        world.lone.disk.is_broken_from("t-0", answers.clone());
        let first = world.fetch(SESSION, &[cold], Scope::All).await;
        assert_eq!((sent(&first), first.lookups), (vec![], 1));
        world.lone.disk.has_begun(1).await;
        world.lone.disk.is_mended();
        let again = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((sent(&again), again.lookups), (vec![], 1), "memory may have it, but nobody looks");
        let (asked, wanted) = ((SESSION, &world.wake), [(cold, Offset(1))]);
        let other = world.lone.fetch(asked, &wanted, Scope::News).await;
        assert_eq!((sent(&other), other.lookups), (vec![0], 0));
        answers.raise();
    });
}

#[test]
fn what_becomes_of_a_lookup_of_another_offset_is_nobodys_answer() {
    on_a_core(|world| async move {
        let cold = world.lead(0);
        let (first, second) = (Flag::default(), Flag::default());
        let asked = (SESSION, &world.wake);
        world.lone.disk.is_broken_from("t-0", first.clone());
        assert_eq!(world.lone.fetch(asked, &[(cold, Offset(0))], Scope::All).await.lookups, 1);
        world.lone.disk.has_begun(1).await;
        world.lone.disk.is_mended();
        world.lone.disk.is_cold("t-0", second.clone());
        assert_eq!(world.lone.fetch(asked, &[(cold, Offset(1))], Scope::News).await.lookups, 1);
        first.raise();
        world.has_news(SESSION).await;
        let answer = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((answer.partitions.len(), answer.lookups), (0, 1), "the disk refused another offset");
        second.raise();
        world.has_news(SESSION).await;
        let answer = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((sent(&answer), answer.lookups), (vec![0], 0));
    });
}

#[test]
fn a_session_that_has_gone_is_not_looked_up_for() {
    on_a_core(|world| async move {
        let cold = world.lead(0);
        let answers = Flag::default();
        world.lone.disk.is_cold("t-0", answers.clone());
        assert_eq!(world.fetch(SESSION, &[cold], Scope::All).await.lookups, 1);
        world.lone.core.handle(Envelope::CloseInterest(SESSION));
        answers.raise();
        let other = world.fetch(OTHER, &[cold], Scope::All).await;
        assert_eq!((sent(&other), other.lookups), (vec![0], 0));
    });
}

#[test]
fn a_partition_is_looked_up_once_at_a_time_and_again_when_that_was_in_vain() {
    let mut lookups = Lookups::new();
    for _ in 0..LOOKUPS_IN_VAIN_MAX {
        let asked = lookups.begin(SESSION, 0);
        assert_eq!(lookups.attempt(SESSION, 0), Attempt::Wait);
        assert_eq!(lookups.cold.under_way(SESSION), 1);
        lookups.cold.ended(&asked, LookedUp::Found);
        assert_eq!(lookups.cold.under_way(SESSION), 0);
    }
    assert_eq!(lookups.attempt(SESSION, 0), Attempt::Read, "memory never has it");
    assert!(lookups.cold.is_empty());
}

#[test]
fn what_met_a_change_of_the_log_is_looked_up_again_but_not_for_ever() {
    let mut lookups = Lookups::new();
    for _ in 0..LOOKUPS_OF_CHANGED_MAX {
        let asked = lookups.begin(SESSION, 0);
        lookups.cold.ended(&asked, LookedUp::Changed);
    }
    assert_eq!(lookups.attempt(SESSION, 0), Attempt::Fail);
    assert!(lookups.cold.is_empty());
}

#[test]
fn a_disk_that_refuses_is_told_and_asked_again_by_the_next_fetch() {
    let mut lookups = Lookups::new();
    let asked = lookups.begin(SESSION, 0);
    lookups.cold.ended(&asked, LookedUp::Failed);
    assert_eq!(lookups.attempt(SESSION, 0), Attempt::Fail);
    lookups.begin(SESSION, 0);
}

#[test]
fn a_partition_that_was_forgotten_and_is_wanted_again_has_a_lookup_of_its_own() {
    let mut lookups = Lookups::new();
    let old = lookups.begin(SESSION, 0);
    lookups.cold.forget(SESSION, partition(0));
    let new = lookups.begin(SESSION, 0);
    lookups.cold.ended(&old, LookedUp::Failed);
    assert_eq!((lookups.attempt(SESSION, 0), lookups.cold.under_way(SESSION)), (Attempt::Wait, 1));
    lookups.cold.ended(&new, LookedUp::Found);
    assert_eq!(lookups.cold.under_way(SESSION), 0);
}

#[test]
fn of_what_nobody_wants_any_more_nothing_is_kept() {
    let mut lookups = Lookups::new();
    let asked: Vec<_> = (0..3).map(|index| lookups.begin(SESSION, index)).collect();
    lookups.begin(OTHER, 0);
    lookups.cold.forget(SESSION, partition(0));
    assert_eq!(lookups.cold.under_way(SESSION), 2);
    lookups.cold.close(SESSION);
    lookups.cold.ended(&asked[1], LookedUp::Found);
    lookups.cold.forget(OTHER, partition(0));
    assert!(lookups.cold.is_empty());
}

/// Lookups in one log, which never changes.
struct Lookups {
    cold: ColdReads,
    files: LogFiles,
    _dir: tempfile::TempDir,
}

impl Lookups {
    fn new() -> Lookups {
        let files = tempfile::tempdir().expect("a directory");
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(1)).expect("it is new");
        let (index, id, now) = (PartitionIndex(0), TopicId::METADATA, Timestamp(0));
        let log = Log::create(&dir, "t", index, id, Arc::default(), now).expect("it is new");
        Lookups { cold: ColdReads::default(), files: log.files(), _dir: files }
    }

    fn attempt(&mut self, session: InterestId, index: i32) -> Attempt {
        self.cold.attempt(session, partition(index), Offset(0))
    }

    fn begin(&mut self, session: InterestId, index: i32) -> Asked {
        let Attempt::LookUp(lookup) = self.attempt(session, index) else { panic!("not to be looked up") };
        Asked { session, partition: partition(index), lookup, files: self.files.clone() }
    }
}

fn partition(index: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(index) }
}

/// The partitions whose records are in an answer.
fn sent(answer: &FetchAnswer) -> Vec<i32> {
    let with_records = answer.partitions.iter().filter(|found| !found.records.is_empty());
    with_records.map(|found| found.partition.partition.0).collect()
}

struct World {
    lone: LoneCore,
    wake: Flag,
}

impl World {
    /// Leads a partition with some records.
    fn lead(&self, number: i32) -> TopicIdPartition {
        self.lead_in(&self.lone.dir, number)
    }

    fn lead_in(&self, dir: &Arc<LogDir>, number: i32) -> TopicIdPartition {
        let batches: [_; 3] = [idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)];
        let (replica, order) = divergent(dir, number, &rules(1 << 20), &batches);
        self.lone.core.partitions().insert(replica);
        order.partition
    }

    /// A second directory on the disk.
    fn another_dir(&self, name: &str) -> Arc<LogDir> {
        let path = self.lone.dir.path().with_file_name(name);
        LogDir::open(self.lone.disk.disk(), path, Descriptors::new(10_000)).expect("it is new")
    }

    /// What is answered at once to who wants all of these.
    async fn fetch(&self, interest: InterestId, named: &[TopicIdPartition], scope: Scope) -> FetchAnswer {
        let wanted: Vec<_> = named.iter().map(|partition| (*partition, Offset(0))).collect();
        self.lone.fetch((interest, &self.wake), &wanted, scope).await
    }

    async fn has_news(&self, interest: InterestId) {
        self.lone.has_news((interest, &self.wake)).await;
    }
}

/// Runs `test` on a core of its own.
fn on_a_core<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F + Send + 'static) {
    lone_core::run(|lone| test(World { lone, wake: Flag::default() }));
}
