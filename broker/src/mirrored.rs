//! Appends of what mirrors fetched, on the core that owns the logs.
//!
//! A mirror may fetch again what is here already. That is compared, and what memory does not have of it is looked up
//! beside the core first.

use std::collections::BTreeMap;
use std::rc::Rc;

use tarn_log::KnownSearch;
use tarn_mirror::local_cluster::{MirrorAppend, MirrorAppended};
use tarn_record::{Timestamp, TopicIdPartition};
use tarn_runtime::channel::ReplySlot;
use tarn_runtime::{DiskId, Queue, blocking_read, spawn, wall_clock_ms};

use crate::cold_reads::disk_of;
use crate::core::Core;

/// Appends; at once but for a lookup.
pub(crate) fn append(core: &Rc<Core>, appends: Vec<MirrorAppend>, reply: ReplySlot<Vec<MirrorAppended>>) {
    let mut searches: BTreeMap<DiskId, Vec<(TopicIdPartition, KnownSearch)>> = BTreeMap::new();
    for (disk, partition, search) in appends.iter().filter_map(|append| search_known(core, append)) {
        searches.entry(disk).or_default().push((partition, search));
    }
    if searches.is_empty() {
        return append_now(core, &appends, &Unread::new(), reply);
    }
    let core = core.clone();
    spawn(Queue::Mirror, async move {
        let unread = look_up(searches).await;
        append_now(&core, &appends, &unread, reply);
    })
    .detach();
}

/// What could not be looked up, and why: an append would have the core itself wait for the disk.
type Unread = BTreeMap<TopicIdPartition, String>;

async fn look_up(searches: BTreeMap<DiskId, Vec<(TopicIdPartition, KnownSearch)>>) -> Unread {
    let run = |(disk, searches): (DiskId, Vec<(TopicIdPartition, KnownSearch)>)| {
        let partitions: Vec<_> = searches.iter().map(|(partition, _)| *partition).collect();
        let run = |(partition, search): (TopicIdPartition, KnownSearch)| {
            Some((partition, search.run().err()?.to_string()))
        };
        let looked = blocking_read(disk, move || searches.into_iter().filter_map(run).collect::<Unread>());
        (partitions, spawn(Queue::Mirror, looked))
    };
    // Each disk is asked before any is waited for.
    let searching: Vec<_> = searches.into_iter().map(run).collect();
    let mut unread = Unread::new();
    for (partitions, searched) in searching {
        match searched.await {
            Ok(failed) => unread.extend(failed),
            Err(refused) => {
                unread.extend(partitions.into_iter().map(|partition| (partition, refused.to_string())));
            }
        }
    }
    unread
}

fn search_known(core: &Core, append: &MirrorAppend) -> Option<(DiskId, TopicIdPartition, KnownSearch)> {
    let partitions = core.partitions();
    let replica = partitions.get(append.partition)?;
    Some((disk_of(replica), append.partition, replica.log().search_known(&append.batches)?))
}

/// Appends but to what could not be looked up.
fn append_now(
    core: &Rc<Core>,
    appends: &[MirrorAppend],
    unread: &Unread,
    reply: ReplySlot<Vec<MirrorAppended>>,
) {
    let absence = |partition| core.local_absence(partition);
    let now = Timestamp(wall_clock_ms());
    let append = |append: &MirrorAppend| match unread.get(&append.partition) {
        Some(reason) => MirrorAppended::Storage(reason.clone()),
        None => core.partitions().append_mirrored(append, now, absence),
    };
    let appended: Vec<_> = appends.iter().map(append).collect();
    if appended.iter().any(|appended| matches!(appended, MirrorAppended::Storage(_))) {
        core.give_up_half_cut(appends.iter().map(|append| append.partition));
    }
    let _ = reply.fill(appended);
    core.wake_flusher();
    core.remove_files();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;
    use crate::lone_core::{self, LoneCore};
    use crate::replica::ending::tests::{idempotent, in_epoch, rules};
    use crate::replica::truncating::tests::divergent;
    use futures_lite::future::poll_once;
    use tarn_mirror::local_cluster::{Gate, GateOrder};
    use tarn_record::{Epoch, Offset};
    use tarn_runtime::channel::{Flag, Reply, reply};
    use tarn_runtime::yield_now;

    #[test]
    fn what_is_fetched_again_and_cold_holds_up_nobody_else() {
        lone_core::run(|world| async move {
            let (cold, warm) = (lead(&world, 0).await, lead(&world, 1).await);
            let answers = Flag::default();
            world.disk.is_cold("t-0", answers.clone());
            let mut again = append_to(&world, &cold);
            for _ in 0..100 {
                yield_now().await;
                assert!(poll_once(&mut again).await.is_none(), "the disk does not answer");
            }
            let other = append_to(&world, &warm).await.expect("it is answered");
            assert!(matches!(&other[..], [MirrorAppended::Appended { log_end: Offset(3), .. }]), "{other:?}");
            answers.raise();
            let again = again.await.expect("it is answered");
            assert!(matches!(&again[..], [MirrorAppended::Appended { log_end: Offset(3), .. }]), "{again:?}");
        });
    }

    #[test]
    fn what_cannot_be_looked_up_is_not_read_by_the_core_and_holds_up_nothing_beside_it() {
        lone_core::run(|world| async move {
            let (broken, good) = (lead(&world, 0).await, lead(&world, 1).await);
            let answers = Flag::default();
            answers.raise();
            world.disk.is_broken_from("t-0", answers.clone());
            let (slot, answer) = reply();
            world.core.handle(Envelope::Mirrored(vec![broken, good], slot));
            let answer = answer.await.expect("it is answered");
            assert!(
                matches!(
                    &answer[..],
                    [MirrorAppended::Storage(_), MirrorAppended::Appended { log_end: Offset(3), .. },]
                ),
                "{answer:?}"
            );
        });
    }

    /// Leads a partition with some batches; the append that brings the second of them again.
    async fn lead(world: &LoneCore, number: i32) -> MirrorAppend {
        let batches: [_; 3] = [idempotent(7, 0), idempotent(7, 1), idempotent(7, 2)];
        let (replica, order) = divergent(&world.dir, number, &rules(1 << 20), &batches);
        world.core.partitions().insert(replica);
        let (slot, gates) = reply();
        let (partition, version) = (order.partition, order.version);
        world.core.handle(Envelope::Gates(vec![GateOrder { partition, gate: Gate::Open, version }], slot));
        let generation = gates.await.expect("it is answered").remove(0).expect("it is led");
        MirrorAppend {
            partition,
            generation,
            batches: vec![in_epoch(Epoch(5), batches[1](Offset(1)))],
            source_log_start: Offset(0),
            source_high_watermark: Offset(3),
        }
    }

    fn append_to(world: &LoneCore, append: &MirrorAppend) -> Reply<Vec<MirrorAppended>> {
        let (slot, answer) = reply();
        world.core.handle(Envelope::Mirrored(vec![append.clone()], slot));
        answer
    }
}
