//! What a core has to say for the checkpoint files, log after log: who has a hundred thousand does not stop for it.
//!
//! A log that is opened or closed meanwhile is in it or not; the files keep what they say of one that is not.

use std::rc::Rc;

use tarn_record::TopicIdPartition;
use tarn_runtime::channel::ReplySlot;
use tarn_runtime::{Queue, spawn, yield_if_needed};

use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::replica::Replica;

/// Collects it beside whatever else the core does.
pub(crate) fn collect(core: &Rc<Core>, reply: ReplySlot<Vec<CheckpointEntry>>) {
    let core = core.clone();
    spawn(Queue::Background, async move {
        let partitions: Vec<TopicIdPartition> = core.partitions().iter().map(Replica::partition).collect();
        let mut entries = Vec::with_capacity(partitions.len());
        for partition in partitions {
            entries.extend(core.partitions().get(partition).map(CheckpointEntry::of));
            yield_if_needed().await;
        }
        // Who asked may have gone.
        let _ = reply.fill(entries);
    })
    .detach();
}
