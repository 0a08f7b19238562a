//! DescribeLogDirs on the owning core: which logs it has in which directory, and how large they are.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use tarn_record::{PartitionIndex, TopicIdPartition};
use tarn_runtime::channel::ReplySlot;
use tarn_runtime::{Queue, spawn, yield_if_needed};

use crate::core::Core;
use crate::replica::Replica;

/// Which logs are asked for.
#[derive(Clone, Debug)]
pub enum Described {
    /// Every log.
    All,
    /// Those of these partitions that are here.
    Only(HashSet<TopicIdPartition>),
}

/// The sizes of logs in bytes, by directory and topic.
pub type DirSizes = BTreeMap<PathBuf, BTreeMap<Arc<str>, Vec<(PartitionIndex, u64)>>>;

/// Looks logs up, one at a time: who has a hundred thousand does not stop for it.
pub(crate) fn describe(core: &Rc<Core>, described: Described, reply: ReplySlot<DirSizes>) {
    let core = core.clone();
    spawn(Queue::Background, async move {
        let partitions: Vec<TopicIdPartition> = match described {
            Described::All => core.partitions().iter().map(Replica::partition).collect(),
            Described::Only(partitions) => partitions.into_iter().collect(),
        };
        let mut sizes = DirSizes::new();
        for partition in partitions {
            if let Some(replica) = core.partitions().get(partition) {
                note(&mut sizes, replica);
            }
            yield_if_needed().await;
        }
        // Who asked may have gone.
        let _ = reply.fill(sizes);
    })
    .detach();
}

fn note(sizes: &mut DirSizes, replica: &Replica) {
    let log = replica.log();
    let topics = match sizes.get_mut(log.log_dir()) {
        Some(topics) => topics,
        None => sizes.entry(log.log_dir().to_owned()).or_default(),
    };
    let logs = match topics.get_mut(replica.topic()) {
        Some(logs) => logs,
        None => topics.entry(replica.topic().clone()).or_default(),
    };
    logs.push((replica.partition().partition, log.size_bytes()));
}
