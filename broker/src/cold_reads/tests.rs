//! Cold reads by themselves, and on a core whose disk does not answer.

use std::future::Future;

use futures_lite::future::poll_once;
use tarn_record::{Epoch, Offset, PartitionIndex, TopicId};
use tarn_runtime::channel::{Flag, reply};
use tarn_runtime::yield_now;
use tarn_wire::ErrorCode;

use super::*;
use crate::envelope::{Envelope, FetchAnswer, FetchRead};
use crate::interest::{Scope, Wanted};
use crate::lone_core::{self, LoneCore};
use crate::replica::Isolation;
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
fn a_disk_that_cannot_read_is_told_and_waited_for_by_nobody() {
    on_a_core(|world| async move {
        let cold = world.lead(0);
        world.lone.disk.is_broken("t-0");
        let first = world.fetch(SESSION, &[cold], Scope::All).await;
        assert_eq!((first.partitions[0].error, first.lookups), (ErrorCode::NONE, 1));
        world.lone.core.handle(Envelope::Arm(SESSION, world.wake.clone()));
        world.wake.raised().await;
        let failed = world.fetch(SESSION, &[], Scope::News).await;
        assert_eq!((failed.partitions[0].error, failed.lookups), (ErrorCode::KAFKA_STORAGE_ERROR, 0));
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
    let (mut cold, partition) = (ColdReads::default(), partition(0));
    for _ in 0..LOOKUPS_IN_VAIN_MAX {
        assert_eq!(cold.attempt(SESSION, partition), Attempt::LookUp);
        assert_eq!(cold.attempt(SESSION, partition), Attempt::Wait);
        assert_eq!(cold.under_way(SESSION), 1);
        cold.ended(SESSION, partition, LookedUp::Found);
        assert_eq!(cold.under_way(SESSION), 0);
    }
    assert_eq!(cold.attempt(SESSION, partition), Attempt::Read, "memory never has it");
    assert!(cold.is_empty());
}

#[test]
fn a_disk_that_refuses_is_told_and_asked_again_by_the_next_fetch() {
    let (mut cold, partition) = (ColdReads::default(), partition(0));
    assert_eq!(cold.attempt(SESSION, partition), Attempt::LookUp);
    cold.ended(SESSION, partition, LookedUp::Failed);
    assert_eq!(cold.attempt(SESSION, partition), Attempt::Fail);
    assert_eq!(cold.attempt(SESSION, partition), Attempt::LookUp);
}

#[test]
fn of_what_nobody_wants_any_more_nothing_is_kept() {
    let mut cold = ColdReads::default();
    for index in 0..3 {
        assert_eq!(cold.attempt(SESSION, partition(index)), Attempt::LookUp);
    }
    assert_eq!(cold.attempt(InterestId(2), partition(0)), Attempt::LookUp, "each session has its own");
    cold.forget(SESSION, partition(0));
    assert_eq!(cold.under_way(SESSION), 2);
    cold.close(SESSION);
    cold.ended(SESSION, partition(1), LookedUp::Found);
    cold.forget(InterestId(2), partition(0));
    assert!(cold.is_empty());
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
        let batches: [_; 3] = [idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)];
        let (replica, order) = divergent(&self.lone.dir, number, &rules(1 << 20), &batches);
        self.lone.core.partitions().insert(replica);
        order.partition
    }

    /// What is answered at once.
    async fn fetch(&self, interest: InterestId, named: &[TopicIdPartition], scope: Scope) -> FetchAnswer {
        let wanted = Wanted {
            fetch_offset: Offset(0),
            max_bytes: 1000,
            current_leader_epoch: Epoch::NONE,
            last_fetched_epoch: Epoch::NONE,
        };
        let (slot, mut answer) = reply();
        self.wake.lower();
        self.lone.core.handle(Envelope::Fetch(FetchRead {
            interest,
            wake: self.wake.clone(),
            upserts: named.iter().map(|partition| (*partition, wanted)).collect(),
            forgets: Vec::new(),
            requeue: Vec::new(),
            scope,
            max_bytes: 10_000,
            isolation: Isolation::Replica,
            reply: slot,
        }));
        poll_once(&mut answer).await.expect("it does not wait").expect("it is answered")
    }
}

/// Runs `test` on a core of its own.
fn on_a_core<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F + Send + 'static) {
    lone_core::run(|lone| test(World { lone, wake: Flag::default() }));
}
