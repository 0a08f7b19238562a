//! What a mirror asks of the core that owns a log whose end its source has not: to keep that end in a file, and to
//! drop it (mirroring.md §3).
//!
//! The copy is made on the thread for what may take hours, log by log, while the core serves its other partitions;
//! what was cut is made durable together. A copy is given up once its log may not be cut any more: a stop waits for
//! none. There is one such thread for each core, and a partition has one core: no two copies of one are made at once,
//! and what an interrupted one left is nobody's.

use std::rc::Rc;

use futures_lite::future;
use tarn_log::{Exported, Together};
use tarn_mirror::crash_points;
use tarn_mirror::local_cluster::{Export, LocalError, LogTruncated, Truncate, TruncateOrder};
use tarn_record::{Timestamp, TopicIdPartition};
use tarn_runtime::channel::{Flag, ReplySlot};
use tarn_runtime::{Queue, blocking, blocking_copy, sleep, spawn, wall_clock_ms, yield_if_needed};
use tracing::{debug, info, warn};

use crate::cleaning;
use crate::core::Core;
use crate::flushing::flush_now;
use crate::limits;
use crate::replica::{NotTruncated, ReadyToTruncate};

/// Copies the ends of logs, and drops them.
pub(crate) fn truncate_logs(
    core: &Rc<Core>,
    orders: Vec<TruncateOrder>,
    reply: ReplySlot<Vec<Result<LogTruncated, LocalError>>>,
) {
    let core = core.clone();
    spawn(Queue::Mirror, async move {
        let cut = truncate_all(&core, &orders).await;
        // Who asked may have gone.
        let _ = reply.fill(cut);
    })
    .detach();
}

async fn truncate_all(core: &Rc<Core>, orders: &[TruncateOrder]) -> Vec<Result<LogTruncated, LocalError>> {
    let mut cut = Vec::with_capacity(orders.len());
    for order in orders {
        cut.push(truncate_one(core, order).await);
        yield_if_needed().await;
    }
    let was_truncated = |(order, cut): (&TruncateOrder, &Result<LogTruncated, LocalError>)| {
        cut.is_ok().then_some(order.partition)
    };
    let partitions: Vec<TopicIdPartition> = orders.iter().zip(&cut).filter_map(was_truncated).collect();
    let unflushed = flush_now(core, &partitions, Together::of(partitions.len())).await;
    // What is not on the disk is cut all the same, and who asked has to know where the rest is kept.
    let confirm = |(order, cut): (&TruncateOrder, Result<LogTruncated, LocalError>)| {
        let unflushed = unflushed.get(&order.partition).map(|why| why.as_str().into());
        cut.map(|cut| LogTruncated { unflushed, ..cut })
    };
    orders.iter().zip(cut).map(confirm).collect()
}

async fn truncate_one(core: &Rc<Core>, order: &TruncateOrder) -> Result<LogTruncated, LocalError> {
    let _uncompacted = cleaning::pause(core, order.partition).await;
    let work = {
        let partitions = core.partitions();
        let replica = partitions.get(order.partition).ok_or_else(|| core.local_absence(order.partition))?;
        replica.truncation_work(order).map_err(|why| why.of(order))?
    };
    let (dir, now) = (core.node().exports().clone(), Timestamp(wall_clock_ms()));
    let (closing, unwanted) = (core.closing().clone(), Flag::default());
    let is_wanted = {
        let unwanted = unwanted.clone();
        move || !closing.is_raised() && !unwanted.is_raised()
    };
    let copied = blocking_copy(move || work.run(&dir, now, is_wanted));
    let ready = match future::or(copied, give_up(core, order, unwanted)).await {
        Ok(Ok(ready)) => ready,
        Ok(Err(why)) => {
            let refusal = refusal_now(core, order).filter(|_| !core.closing().is_raised());
            return Err(refusal.unwrap_or_else(|| why.of(order)));
        }
        Err(error) => {
            return Err(LocalError::Storage { partition: order.partition, reason: error.to_string() });
        }
    };
    drop_end(core, order, ready).await
}

/// Says so once the log may not be cut any more. Never ends.
async fn give_up<T>(core: &Core, order: &TruncateOrder, unwanted: Flag) -> T {
    while refusal_now(core, order).is_none() {
        sleep(limits::COPY_LOOK_INTERVAL).await;
    }
    unwanted.raise();
    future::pending().await
}

/// Why the log may not be cut any more.
fn refusal_now(core: &Core, order: &TruncateOrder) -> Option<LocalError> {
    match core.partitions().get(order.partition) {
        None => Some(core.local_absence(order.partition)),
        Some(replica) => replica.check_truncation(order).err().map(|why| why.of(order)),
    }
}

/// Drops what was copied. Where the log may not be cut any more, the copy goes instead.
async fn drop_end(
    core: &Rc<Core>,
    order: &TruncateOrder,
    mut ready: ReadyToTruncate,
) -> Result<LogTruncated, LocalError> {
    let (partition, exported) = (order.partition, ready.exported.take());
    if let Some(why) = refusal_now(core, order) {
        discard(exported).await;
        return Err(why);
    }
    let export = exported.as_ref().map(|exported| export_of(core, exported));
    say(core, order, export.as_ref());
    if export.is_some() {
        crash_points::reached("cut.exported");
    }
    let cut = {
        let mut partitions = core.partitions();
        let now = Timestamp(wall_clock_ms());
        let cut = partitions.get_mut(partition).map(|replica| replica.truncate(order, ready, now));
        partitions.was_truncated(partition);
        cut
    };
    cleaning::was_truncated(core, partition);
    core.remove_files();
    match cut {
        Some(Ok(log_end)) => {
            debug!(%partition, %log_end, "cut");
            crash_points::reached("cut.truncated");
            Ok(LogTruncated { log_end, export, unflushed: None })
        }
        Some(Err(NotTruncated::Storage(error))) => {
            warn!(%partition, %error, "it was not cut, or not whole; what was exported stays, and it is tried again");
            core.give_up_half_cut([partition]);
            // Some of it may be gone, so the copy stays.
            let kept = export.map_or(String::new(), |export| format!("; a copy is in {}", export.path));
            Err(LocalError::Storage { partition, reason: format!("{error}{kept}") })
        }
        refused => {
            info!(%partition, "it was not cut after all, and its copy is removed");
            discard(exported).await;
            Err(match refused {
                Some(Err(why)) => why.of(order),
                _ => core.local_absence(partition),
            })
        }
    }
}

fn export_of(core: &Core, exported: &Exported) -> Export {
    Export {
        broker: core.node().broker_id(),
        path: exported.path.to_string_lossy().as_ref().into(),
        from: exported.from,
        to: exported.to,
        records: exported.counts.records,
        bytes: exported.bytes,
    }
}

async fn discard(exported: Option<Exported>) {
    let Some(exported) = exported else { return };
    let path = exported.path.clone();
    let discarded = blocking(move || exported.discard()).await;
    if !matches!(discarded, Ok(Ok(()))) {
        warn!(path = %path.display(), ?discarded, "a copy of what was not cut after all stays");
    }
}

/// Tells the node's log what is dropped, and where it is kept: the one line of a cut, before it, so that whatever
/// comes in between the directory is named.
fn say(core: &Core, order: &TruncateOrder, export: Option<&Export>) {
    let (node, partition) = (core.node().broker_id(), order.partition.partition);
    let partitions = core.partitions();
    let topic = partitions.get(order.partition).map_or("", |replica| replica.topic());
    let what = match (order.truncate, export) {
        (Truncate::To(_), Some(_)) => "what the source has not is exported, and is cut now",
        (Truncate::To(_), None) => "what the source has not is cut now; it holds no record",
        (Truncate::Fully { .. }, Some(_)) => "all of the log is exported, dropped now and mirrored again",
        (Truncate::Fully { .. }, None) => {
            "all of the log is dropped now and mirrored again; what the source has not holds no record"
        }
    };
    match export {
        Some(Export { path, from, to, records, bytes, .. }) => {
            info!(%node, topic, %partition, %from, %to, records, bytes, directory = %path, "{what}");
        }
        None => info!(%node, topic, %partition, log_end = %order.log_end, "{what}"),
    }
}

#[cfg(test)]
mod tests;
