//! Stops of many partitions on a core of the test's own, beside a node that runs.

use std::future::Future;
use std::sync::Arc;

use futures_lite::future::poll_once;
use tarn_log::LogDir;
use tarn_mirror::local_cluster::AbortedTransaction;
use tarn_record::{Offset, PartitionIndex, ProducerEpoch, ProducerId};
use tarn_runtime::channel::{Flag, reply};
use tarn_runtime::yield_now;

use super::*;
use crate::envelope::Envelope;
use crate::lone_core::{self, LoneCore};
use crate::replica::ending::tests::{rules, sent, stopping};
use crate::watched_disk::WatchedDisk;

/// More than are flushed file by file.
const MANY: i32 = 1200;

#[test]
fn many_logs_are_flushed_in_one_round_and_ended_in_another() {
    on_a_core(|mut world| async move {
        let orders: Vec<EndOrder> = (0..MANY).map(|number| world.lead(number, number % 10)).collect();
        let partitions: Vec<_> = orders.iter().map(|order| order.partition).collect();
        for (order, ends) in orders.iter().zip(world.flush(&partitions).await) {
            let ends = ends.expect("the disk works");
            let end = order.position.offset;
            assert_eq!(
                (ends.log_end, ends.high_watermark, ends.latest_epoch),
                (end, end, order.position.epoch)
            );
        }
        assert_eq!(world.disk.syncs(), 1, "one round for all");
        let before = world.disk.log_writes();
        let ended = world.end(&orders).await;
        assert_eq!(
            (world.disk.syncs(), world.disk.log_writes() - before),
            (2, orders.len()),
            "one write a log"
        );
        for (number, (order, ended)) in orders.iter().zip(&ended).enumerate() {
            let ended = ended.as_ref().expect("nothing is in the way");
            let open = number as i64 % 10;
            let first: Vec<_> = (0..open).map(aborted).collect();
            assert_eq!((ended.aborted_count as i64, &ended.aborted), (open, &first));
            assert_eq!(ended.reset_offset, order.position.offset.plus(open));
            let partitions = world.core.partitions();
            let replica = partitions.get(order.partition).expect("it is led");
            let end = ended.reset_offset.plus(1);
            assert_eq!(
                (replica.log().flushed_to(), replica.high_watermark(), ended.log_end),
                (end, end, end)
            );
        }
        assert_eq!(world.end(&orders).await, ended, "what was done is found");
        assert_eq!(
            (world.disk.syncs(), world.disk.log_writes() - before),
            (2, orders.len()),
            "and nothing done"
        );
    });
}

#[test]
fn every_order_gets_its_own_answer() {
    on_a_core(|mut world| async move {
        let mut orders: Vec<EndOrder> = (0..3).map(|number| world.lead(number, 0)).collect();
        orders[0].version += 1;
        let absent = TopicIdPartition { partition: PartitionIndex(99), ..orders[0].partition };
        orders.insert(1, EndOrder { partition: absent, ..orders[0].clone() });
        let ended = world.end(&orders).await;
        assert!(
            matches!(&ended[0], Err(LocalError::NotEnded { partition, .. }) if *partition == orders[0].partition)
        );
        assert_eq!(ended[1], Err(LocalError::NotLeader(absent)));
        assert!(ended[2..].iter().all(Result::is_ok), "{ended:?}");
        let flushed = world.flush(&[absent, orders[2].partition]).await;
        assert_eq!(flushed[0], Err(LocalError::NotLeader(absent)));
        assert_eq!(flushed[1].as_ref().map(|ends| ends.log_end), Ok(Offset(1)));
    });
}

#[test]
fn a_flush_that_is_in_flight_is_waited_for_and_another_covers_what_came_later() {
    on_a_core(|mut world| async move {
        let order = world.lead(0, 1);
        let job = world.core.partitions().flush_job_of(order.partition).expect("there is something to flush");
        let (slot, mut answer) = reply();
        world.core.handle(Envelope::EndLogs(vec![order.clone()], slot));
        while world.core.partitions().get(order.partition).map(|replica| replica.log().end())
            != Some(Offset(3))
        {
            yield_now().await;
        }
        for _ in 0..100 {
            yield_now().await;
            assert!(poll_once(&mut answer).await.is_none(), "what it appended is not on the disk");
        }
        let flushed = job.run();
        world.core.partitions().flushed(order.partition, flushed).expect("the disk works");
        world.core.flush_ended().notify_all();
        let ended = answer.await.expect("it is answered").remove(0).expect("nothing is in the way");
        let partitions = world.core.partitions();
        let replica = partitions.get(order.partition).expect("it is led");
        assert_eq!((ended.log_end, replica.log().flushed_to()), (Offset(3), Offset(3)));
    });
}

#[test]
fn what_an_earlier_try_has_aborted_is_looked_up_beside_the_core() {
    on_a_core(|mut world| async move {
        let order = world.lead(0, 2);
        let ended = world.end(std::slice::from_ref(&order)).await;
        let job = world.core.partitions().flush_job_of(order.partition).expect("the index is not written");
        world.core.partitions().flushed(order.partition, job.run()).expect("the disk works");
        let answers = Flag::default();
        world.disk.is_cold(".txnindex", answers.clone());
        let (slot, mut answer) = reply();
        world.core.handle(Envelope::EndLogs(vec![order], slot));
        for _ in 0..100 {
            yield_now().await;
            assert!(poll_once(&mut answer).await.is_none(), "the disk does not answer");
        }
        answers.raise();
        assert_eq!(answer.await.expect("it is answered"), ended);
        assert_eq!(ended[0].as_ref().map(|ended| ended.aborted.len()), Ok(2));
    });
}

#[test]
fn a_full_disk_ends_nothing_and_is_told_until_it_has_room() {
    on_a_core(|mut world| async move {
        let orders: Vec<EndOrder> = (0..2).map(|number| world.lead(number, 1)).collect();
        world.disk.has_room_for(1);
        let ended = world.end(&orders).await;
        assert!(
            matches!(&ended[..], [Ok(_), Err(LocalError::Storage { .. })]),
            "it was enough for one: {ended:?}"
        );
        world.disk.has_room_for(i64::MAX);
        for (order, ended) in orders.iter().zip(world.end(&orders).await) {
            let ended = ended.expect("there is room");
            assert_eq!(
                (ended.reset_offset, ended.aborted),
                (order.position.offset.plus(1), vec![aborted(0)])
            );
        }
    });
}

#[test]
fn a_partition_that_goes_while_it_is_ended_is_not_ended() {
    on_a_core(|mut world| async move {
        let order = world.lead(0, 0);
        let job = world.core.partitions().flush_job_of(order.partition).expect("there is something to flush");
        let (slot, answer) = reply();
        world.core.handle(Envelope::EndLogs(vec![order.clone()], slot));
        while world.core.partitions().get(order.partition).map(|replica| replica.log().end())
            != Some(Offset(1))
        {
            yield_now().await;
        }
        drop(world.core.partitions().remove(order.partition, tarn_wire::ErrorCode::NOT_LEADER_OR_FOLLOWER));
        let flushed = job.run();
        world.core.partitions().flushed(order.partition, flushed).expect("it is of no interest");
        world.core.flush_ended().notify_all();
        assert_eq!(answer.await.expect("it is answered"), [Err(LocalError::NotLeader(order.partition))]);
    });
}

/// A core that leads what a test gives it.
struct World {
    core: Rc<Core>,
    disk: WatchedDisk,
    dir: Arc<LogDir>,
}

impl World {
    /// Leads a partition that its mirror has left with so many transactions open; the order to end it.
    fn lead(&mut self, partition: i32, open: i32) -> EndOrder {
        let batches: Vec<_> = (0..open).map(|id| sent(i64::from(id), 0, 0)).collect();
        let (replica, order) = stopping(&self.dir, partition, &rules(1 << 20), &batches);
        self.core.partitions().insert(replica);
        order
    }

    async fn flush(&self, partitions: &[TopicIdPartition]) -> Vec<Result<LogEnds, LocalError>> {
        let (slot, answer) = reply();
        self.core.handle(Envelope::Flush(partitions.to_vec(), slot));
        answer.await.expect("it is answered")
    }

    async fn end(&self, orders: &[EndOrder]) -> Vec<Result<LogEnded, LocalError>> {
        let (slot, answer) = reply();
        self.core.handle(Envelope::EndLogs(orders.to_vec(), slot));
        answer.await.expect("it is answered")
    }
}

fn aborted(id: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(0),
        first_offset: Offset(id),
    }
}

/// Runs `test` on a core of its own.
fn on_a_core<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F + Send + 'static) {
    lone_core::run(|LoneCore { core, disk, dir }| test(World { core, disk, dir }));
}
