//! A disk that fails under a log: it takes the log's directory out of service, with the replicas in it and no others.
//!
//! What it held may be lost or not; nobody can tell before the node is started again and its logs are read. So
//! nothing there is read, written, flushed or said of it any more: clients get KAFKA_STORAGE_ERROR, as from Kafka.
//! Without its metadata, or with no directory left, the node ends.

use std::fmt::Display;
use std::rc::Rc;

use tarn_record::TopicIdPartition;
use tarn_runtime::{Queue, spawn};
use tarn_wire::ErrorCode;
use tracing::error;

use crate::cleaning;
use crate::core::Core;
use crate::envelope::Envelope;
use crate::log_dirs::Failure;
use crate::replica::Replica;

/// The disk under a partition's log has failed.
pub(crate) fn log_failed(core: &Rc<Core>, partition: TopicIdPartition, cause: &dyn Display) {
    let topic = match core.partitions().get(partition) {
        Some(replica) => replica.topic().clone(),
        // It was given up meanwhile, as all in a directory are that has failed.
        None => match core.view().topic_by_id(partition.topic_id) {
            Some(topic) => topic.name.clone(),
            None => return,
        },
    };
    let (node, index) = (core.node(), partition.partition);
    match node.log_dirs().fail(&topic, index, &node.config().metadata_log_dir) {
        Failure::Fatal => node.storage_failed(cause),
        // It was being opened, or its core has not heard of it yet.
        Failure::Known { dir } => take_offline(core, dir),
        Failure::New { dir, path } => {
            error!(dir = %path.display(), %topic, partition = %index, %cause, "a log directory has failed: its replicas are out of service until the node is started again");
            take_offline(core, dir);
            let others = core.clone();
            spawn(Queue::Network, async move {
                for owner in others.partition_cores().to_vec() {
                    others.deliver(owner, Envelope::DirFailed(dir)).await;
                }
            })
            .detach();
        }
    }
}

/// Gives up every replica of this core in a directory that has failed. Their logs are not closed: that would write.
pub(crate) fn take_offline(core: &Rc<Core>, dir: usize) {
    let log_dirs = core.node().log_dirs();
    let failed = log_dirs.dirs()[dir].path();
    let is_there = |replica: &&Replica| replica.log().log_dir() == failed;
    let gone: Vec<_> = core.partitions().iter().filter(is_there).map(Replica::partition).collect();
    for partition in gone {
        core.machines().unload(partition);
        cleaning::forget(core, partition);
        core.unopened().keep_out(partition);
        drop(core.partitions().remove(partition, ErrorCode::KAFKA_STORAGE_ERROR));
    }
}
