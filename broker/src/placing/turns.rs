//! The turns of logs that are opened while their core serves: those that a crash left, and those that could not be
//! opened before.
//!
//! What a crash left may be very many small logs, and a turn costs the same for one as for many: a core that is busy
//! has to come back to it, and the disk syncs a file about as fast as everything. So a turn is that of many logs, as
//! long as all of them are read in a moment; what takes longer has a turn of its own, which keeps no other waiting that
//! was read before.
//!
//! Invariants:
//! * a log is in service only once what is left of it is on the disk, where its topic promises that;
//! * one turn is under way at a time; each of its logs is put in service, put back or given up at its end;
//! * a log that is deleted during its turn is deleted at the end of it, and nobody has its place before.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tarn_image::TopicImage;
use tarn_log::{FlushJob, Flushed, Log, LogError, Together, flush_together};
use tarn_record::{Offset, TopicIdPartition};
use tarn_runtime::channel::Flag;
use tarn_runtime::{blocking_long, timeout, yield_if_needed};
use tracing::info;

use super::{
    NotOpened, ToOpen, Unflushed, delete_closed, keep_or_say, log_to_open, make_way, open_unflushed, rank,
    replica, wanted,
};
use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::limits;
use crate::log_dirs::Closing;

/// Gives logs their turns as they come, while the core serves: what recovers a log waits for the disk, and does so beside
/// the core.
pub(crate) async fn keep_opening(core: Rc<Core>) {
    loop {
        let news = core.openings().wait();
        let queued = core.unopened().queued();
        let due = core.unopened().begin_due(core.clock_ms(), limits::LOGS_RECOVERED_TOGETHER);
        if !due.is_empty() {
            open_due(&core, due).await;
            core.openings().notify_all();
            if queued > 0 && core.unopened().queued() == 0 {
                info!(core = core.id().0, "every log was recovered, or cannot be");
            }
            continue;
        }
        let next_due_ms = core.unopened().next_due_ms();
        match next_due_ms {
            None => news.await,
            Some(due_ms) => {
                let pause = Duration::from_millis(due_ms.saturating_sub(core.clock_ms()));
                // Either is a reason to look again.
                let _ = timeout(pause, news).await;
            }
        }
    }
}

/// One turn. Whoever gives one of the partitions up meanwhile waits until it has ended.
async fn open_due(core: &Rc<Core>, due: Vec<TopicIdPartition>) {
    let view = core.view();
    let named = |partition: TopicIdPartition| {
        (view.topic_by_id(partition.topic_id).map(|topic| topic.name.clone()), partition)
    };
    let due: Vec<_> = due.into_iter().map(named).collect();
    // Of all of them before anything is waited for: from now on a deletion is put off to the end of the turn.
    for (topic, partition) in &due {
        topic.iter().for_each(|topic| core.node().log_dirs().begin_work(topic, *partition));
    }
    let (mut begun, mut to_open) = (Vec::new(), Vec::new());
    for (topic, partition) in due {
        match begin(core, partition).await {
            Some(log) => {
                let is_new = log.found.is_none();
                begun.push((topic, partition, is_new));
                to_open.push(log);
            }
            None => end(core, topic, partition).await,
        }
        yield_if_needed().await;
    }
    let mut opened = open_beside(core, to_open).await.into_iter();
    for (topic, partition, is_new) in begun {
        let unwanted = keep(core, partition, opened.next());
        if let (true, Some(topic), Some(log)) = (is_new, &topic, unwanted) {
            core.node().log_dirs().closed(&left(topic, partition, &log), Closing::Begun);
        }
        end(core, topic, partition).await;
        yield_if_needed().await;
    }
}

/// What is to be opened of a partition; `None` where it is not, or not yet.
async fn begin(core: &Rc<Core>, partition: TopicIdPartition) -> Option<ToOpen> {
    let (view, log_dirs) = (core.view(), core.node().log_dirs());
    let Some((topic, _)) = wanted(core, &view, partition) else {
        core.unopened().forget(partition);
        return None;
    };
    if log_dirs.is_in_failed(&topic.name, partition) {
        core.unopened().keep_out(partition);
        return None;
    }
    if let Err(in_the_way) = make_way(core, topic, partition).await {
        keep(core, partition, Some(Err(in_the_way)));
        return None;
    }
    Some(log_to_open(core, topic, partition))
}

/// A partition's turn is over; where it was deleted meanwhile, so is its log.
async fn end(core: &Rc<Core>, topic: Option<Arc<str>>, partition: TopicIdPartition) {
    let doomed = core.unopened().take_doomed(partition);
    if let Some(doomed) = doomed {
        delete_closed(core, doomed).await;
    }
    topic.iter().for_each(|topic| core.node().log_dirs().end_work(topic, partition));
    core.unopened().ended(partition);
}

/// What the checkpoint files are to say of a log that was made and is not wanted any more.
fn left(
    topic: &Arc<str>,
    partition: TopicIdPartition,
    (log, high_watermark): &(Log, Offset),
) -> CheckpointEntry {
    CheckpointEntry {
        topic: topic.clone(),
        topic_id: partition.topic_id,
        partition: partition.partition,
        recovery_point: log.recovery_point(),
        high_watermark: *high_watermark,
        log_start: log.start(),
    }
}

/// What becomes of a partition, as the metadata says by now; one whose log was not reached has another turn. Returns the
/// log where it is not wanted any more.
fn keep(core: &Rc<Core>, partition: TopicIdPartition, opened: Option<Outcome>) -> Option<(Log, Offset)> {
    let view = core.view();
    let wanted: Option<(&TopicImage, _)> = wanted(core, &view, partition);
    match (wanted, opened) {
        (Some((topic, leadership)), Some(opened)) => {
            let opened = opened.map(|log| replica(core, topic, partition, leadership, log));
            keep_or_say(core, topic, partition, opened);
        }
        (Some((topic, _)), None) => core.unopened().queue(partition, rank(topic)),
        (None, opened) => {
            core.unopened().forget(partition);
            return opened?.ok();
        }
    }
    None
}

/// A log with its high watermark.
type Outcome = Result<(Log, Offset), NotOpened>;

/// Opens logs beside the core, which goes on. What comes of as many of them as were reached.
async fn open_beside(core: &Rc<Core>, to_open: Vec<ToOpen>) -> Vec<Outcome> {
    let logs = to_open.len();
    if logs == 0 {
        return Vec::new();
    }
    let closing = core.closing().clone();
    blocking_long(move || open_logs(to_open, &closing)).await.unwrap_or_else(|error| {
        // Each of them has a turn of its own after this.
        let error = Arc::new(error);
        (0..logs).map(|_| Err(NotOpened::NotRun(error.clone()))).collect()
    })
}

/// Opens the first log, and those after it that are read in a moment; then has the disk take what is left of all.
fn open_logs(to_open: Vec<ToOpen>, closing: &Flag) -> Vec<Outcome> {
    let (mut opened, mut read_bytes) = (Vec::with_capacity(to_open.len()), 0);
    for one in to_open {
        let most = match opened.is_empty() {
            true => u64::MAX,
            false if closing.is_raised() => break,
            false => limits::RECOVERED_TOGETHER_BYTES.saturating_sub(read_bytes),
        };
        match open_unflushed(most, one) {
            Ok(None) => break,
            Ok(Some(log)) => {
                read_bytes = read_bytes.saturating_add(log.read_bytes);
                opened.push(Ok(log));
            }
            Err(error) => opened.push(Err(error)),
        }
    }
    flush(opened)
}

fn flush(mut opened: Vec<Result<Unflushed, NotOpened>>) -> Vec<Outcome> {
    let (mut numbers, mut jobs) = (Vec::new(), Vec::<FlushJob>::new());
    for (number, log) in opened.iter_mut().enumerate() {
        if let Some(job) = log.as_mut().ok().and_then(Unflushed::job) {
            numbers.push(number);
            jobs.push(job);
        }
    }
    let few = jobs.len() <= limits::RECOVERED_LOGS_SYNCED_ALONE;
    let together = if few { Together::Few } else { Together::Many };
    for (number, result) in numbers.into_iter().zip(flush_together(jobs, together)) {
        if let Err(error) = note(&mut opened[number], result) {
            opened[number] = Err(error.into());
        }
    }
    opened.into_iter().map(|log| log.map(|log| (log.log, log.high_watermark))).collect()
}

fn note(
    opened: &mut Result<Unflushed, NotOpened>,
    flushed: Result<Flushed, LogError>,
) -> Result<(), LogError> {
    let flushed = flushed?;
    opened.as_mut().map_or(Ok(()), |log| log.log.flushed(flushed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    use tarn_image::MetadataImage;
    use tarn_log::{LogConfig, LogDir};
    use tarn_record::{Epoch, PartitionIndex, Timestamp, TopicId};
    use tarn_runtime::{Queue, spawn, yield_now};
    use uuid::Uuid;

    use crate::log_dirs::{Found, LogDirs};
    use crate::lone_core;
    use crate::placing::tests::{batch, change_to, left_by_a_crash, made};

    const TOPIC: &str = "many";

    #[test]
    fn what_a_crash_left_of_many_logs_is_taken_by_one_sync_of_the_disk() {
        lone_core::run(|world| async move {
            let left: Vec<_> = (0..40).map(|number| left(&world.dir, number, 100)).collect();
            let opened = open_logs(left, &Flag::new());
            assert_eq!(opened.len(), 40);
            for one in opened {
                let (log, _) = one.expect("it is right");
                assert_eq!((log.end(), log.flushed_to()), (Offset(1), Offset(1)));
            }
            assert_eq!(world.disk.syncs(), 1);
        });
    }

    #[test]
    fn a_log_of_which_much_is_to_be_read_keeps_nobody_waiting_that_was_read_before() {
        lone_core::run(|world| async move {
            let large = limits::RECOVERED_TOGETHER_BYTES as usize;
            let sizes = [100, 200, large, 100];
            let left = |from: usize| -> Vec<_> {
                (from..4).map(|number| left(&world.dir, number as i32, sizes[number])).collect()
            };
            assert_eq!(open_logs(left(0), &Flag::new()).len(), 2);
            assert_eq!(open_logs(left(2), &Flag::new()).len(), 1, "it has its own turn, and is read then");
            assert_eq!(open_logs(left(3), &Flag::new()).len(), 1);
            let closing = Flag::new();
            closing.raise();
            assert_eq!(open_logs(left(0), &closing).len(), 1, "a stop does not wait for the others");
        });
    }

    #[test]
    fn a_core_comes_back_to_the_recovery_once_for_many_logs() {
        lone_core::run(|world| async move {
            let (core, mut image) = (world.core, MetadataImage::default());
            let partition = |id| TopicIdPartition {
                topic_id: TopicId(Uuid::from_u128(id)),
                partition: PartitionIndex(0),
            };
            let logs: Vec<_> = (1..=150).map(partition).collect();
            for (number, log) in logs.iter().enumerate() {
                let name = format!("{TOPIC}-{number}");
                left_by_a_crash(&core, &name, *log);
                change_to(&mut image, number as i64 + 1, &made(&name, *log));
            }
            let turns = Rc::new(RefCell::new(Vec::new()));
            let (counted, counting) = (turns.clone(), core.clone());
            spawn(Queue::Network, async move {
                loop {
                    let ended = counting.openings().wait();
                    counted.borrow_mut().push(counting.unopened().len());
                    ended.await;
                }
            })
            .detach();
            core.begin(Arc::new(image)).await;
            while !core.unopened().is_empty() {
                yield_now().await;
            }
            assert!(logs.iter().all(|log| core.partitions().get(*log).is_some()));
            let mut seen = turns.take();
            seen.dedup();
            assert!(seen.len() <= 5, "each turn is that of many: {seen:?}");
        });
    }

    #[test]
    fn what_is_read_of_flushed_logs_counts_towards_a_turn() {
        lone_core::run(|world| async move {
            let half = limits::RECOVERED_TOGETHER_BYTES as usize / 2;
            let left: Vec<_> = (0..3)
                .map(|number| {
                    let mut log = left(&world.dir, number, half - 1000);
                    let found = log.found.as_mut().expect("a crash left it");
                    found.opening.recovery_point = Offset(1);
                    log
                })
                .collect();
            assert_eq!(
                open_logs(left, &Flag::new()).len(),
                2,
                "their segments are gone through all the same"
            );
        });
    }

    /// A log whose one batch has some `bytes`, as a crash left it; made where it is not there.
    fn left(dir: &Arc<LogDir>, number: i32, bytes: usize) -> ToOpen {
        let topic_id = TopicId(Uuid::from_u128(7));
        let partition = TopicIdPartition { topic_id, partition: PartitionIndex(number) };
        let config = Arc::new(LogConfig::default());
        let now = Timestamp(0);
        if let Ok(mut log) = Log::create(dir, TOPIC, partition.partition, topic_id, config.clone(), now) {
            log.append_as_leader_raw(&batch(bytes), Epoch(0), now).expect("there is room");
        }
        let dirs = LogDirs::new(vec![dir.clone()], 1).expect("they can be read");
        let found: Option<Found> = dirs.place(TOPIC, partition.partition, topic_id).1;
        ToOpen {
            topic: TOPIC.into(),
            topic_id,
            partition,
            dir: dir.clone(),
            found,
            config,
            flushes_first: true,
        }
    }
}
