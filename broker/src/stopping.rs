//! What a stop asks of the core that owns a log: to flush it, and to end it (mirroring.md §8).
//!
//! One envelope names many partitions, and they share what waits for the disk: one round reads what stands
//! behind their positions, where anything does, and one round flushes them all.

use std::rc::Rc;

use tarn_log::Together;
use tarn_mirror::crash_points;
use tarn_mirror::local_cluster::{EndOrder, LocalError, LogEnded, LogEnds};
use tarn_record::{Timestamp, TopicIdPartition};
use tarn_runtime::channel::ReplySlot;
use tarn_runtime::{Queue, blocking, spawn, wall_clock_ms, yield_if_needed};

use crate::core::Core;
use crate::flushing::{Unflushed, flush_now};
use crate::replica::{Behind, LookBehind, NotEnded, Replica};

/// Flushes logs, and says where they begin and end then.
pub(crate) fn flush(
    core: &Rc<Core>,
    partitions: Vec<TopicIdPartition>,
    reply: ReplySlot<Vec<Result<LogEnds, LocalError>>>,
) {
    let core = core.clone();
    spawn(Queue::Mirror, async move {
        let unflushed = flush_now(&core, &partitions, Together::of(partitions.len())).await;
        let ends = partitions.iter().map(|&partition| flushed(&core, partition, &unflushed, Replica::ends));
        // Who asked may have gone.
        let _ = reply.fill(ends.collect());
    })
    .detach();
}

/// Ends logs.
pub(crate) fn end_logs(
    core: &Rc<Core>,
    orders: Vec<EndOrder>,
    reply: ReplySlot<Vec<Result<LogEnded, LocalError>>>,
) {
    let core = core.clone();
    spawn(Queue::Mirror, async move {
        let ended = end_all(&core, &orders).await;
        // Who asked may have gone.
        let _ = reply.fill(ended);
    })
    .detach();
}

async fn end_all(core: &Rc<Core>, orders: &[EndOrder]) -> Vec<Result<LogEnded, LocalError>> {
    let together = Together::of(orders.len());
    let mut ended = Vec::with_capacity(orders.len());
    for (order, behind) in orders.iter().zip(look_behind(core, orders).await) {
        ended.push(behind.and_then(|behind| append_end(core, order, &behind, together)));
        yield_if_needed().await;
    }
    let appended: Vec<TopicIdPartition> = orders
        .iter()
        .zip(&ended)
        .filter(|(_, ended)| ended.is_ok())
        .map(|(order, _)| order.partition)
        .collect();
    if !appended.is_empty() {
        crash_points::reached("stop.markers_appended");
    }
    let unflushed = flush_now(core, &appended, together).await;
    let confirm = |(order, ended): (&EndOrder, Result<LogEnded, LocalError>)| {
        let ended = ended?;
        let is_durable = |replica: &Replica| replica.has_durable_end(&ended);
        match flushed(core, order.partition, &unflushed, is_durable)? {
            true => Ok(ended),
            false => Err(NotEnded::Changed.of(order)),
        }
    };
    orders.iter().zip(ended).map(confirm).collect()
}

/// What stands behind the positions. It is read on another thread, in one round; mostly nothing stands there.
async fn look_behind(core: &Rc<Core>, orders: &[EndOrder]) -> Vec<Result<Behind, LocalError>> {
    let look = |order: &EndOrder| {
        let partitions = core.partitions();
        let replica = partitions.get(order.partition).ok_or_else(|| core.local_absence(order.partition))?;
        replica.look_behind(order).map_err(|why| why.of(order))
    };
    let looks: Vec<Result<LookBehind, LocalError>> = orders.iter().map(look).collect();
    let is_trivial = looks.iter().flatten().all(LookBehind::is_trivial);
    let run = move || -> Vec<_> { looks.into_iter().map(|look| look.map(LookBehind::run)).collect() };
    let found = match is_trivial {
        true => run(),
        false => match blocking(run).await {
            Ok(found) => found,
            Err(error) => return orders.iter().map(|order| Err(unread(order, &error))).collect(),
        },
    };
    let told = orders.iter().zip(found);
    told.map(|(order, found)| found?.map_err(|error| unread(order, &error))).collect()
}

fn unread(order: &EndOrder, error: &dyn std::fmt::Display) -> LocalError {
    LocalError::Storage { partition: order.partition, reason: error.to_string() }
}

/// Appends what is missing; who reads the log is told.
fn append_end(
    core: &Rc<Core>,
    order: &EndOrder,
    behind: &Behind,
    together: Together,
) -> Result<LogEnded, LocalError> {
    let (partition, mut partitions) = (order.partition, core.partitions());
    let Some(replica) = partitions.get_mut(partition) else {
        drop(partitions);
        return Err(core.local_absence(partition));
    };
    let ended = replica.end_log(order, behind, together, Timestamp(wall_clock_ms()));
    partitions.news_of(partition);
    ended.map_err(|why| why.of(order))
}

/// What is to be said of a replica whose log was to be flushed.
fn flushed<A>(
    core: &Rc<Core>,
    partition: TopicIdPartition,
    unflushed: &Unflushed,
    say: impl FnOnce(&Replica) -> A,
) -> Result<A, LocalError> {
    if let Some(reason) = unflushed.get(&partition) {
        return Err(LocalError::Storage { partition, reason: reason.clone() });
    }
    let said = core.partitions().get(partition).map(say);
    said.ok_or_else(|| core.local_absence(partition))
}

#[cfg(test)]
mod tests;
