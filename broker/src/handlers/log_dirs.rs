//! DescribeLogDirs: which logs are in which directory, and how much room there is.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use tarn_log::LogDir;
use tarn_record::{PartitionIndex, TopicIdPartition};
use tarn_runtime::channel::reply;
use tarn_runtime::{blocking, yield_if_needed};
use tarn_wire::ErrorCode;
use tarn_wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use tarn_wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

use crate::core::Core;
use crate::dir_sizes::{Described, DirSizes};
use crate::envelope::Envelope;

/// The room on the disk of a directory, in bytes.
#[derive(Clone, Copy, Debug)]
struct Room {
    total: u64,
    usable: u64,
}

/// Serves DescribeLogDirs.
pub async fn describe(core: Rc<Core>, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let described = described(&core, &request);
    let mut asked = Vec::new();
    for owner in core.partition_cores().to_vec() {
        let (slot, answer) = reply();
        core.deliver(owner, Envelope::DirSizes(described.clone(), slot)).await;
        asked.push(answer);
    }
    let dirs = core.node().log_dirs().listed().to_vec();
    let rooms = blocking(move || dirs.iter().map(room).collect::<Vec<_>>()).await;
    let mut sizes = DirSizes::new();
    for answer in asked {
        add(&mut sizes, answer.await.unwrap_or_default()).await;
    }
    let rooms = rooms.unwrap_or_default().into_iter().chain(std::iter::repeat(None));
    let (mut results, offline) = (Vec::new(), core.node().log_dirs().failed());
    for (dir, room) in core.node().log_dirs().listed().iter().zip(rooms) {
        let topics = sizes.remove(dir.path()).unwrap_or_default();
        let is_offline = offline.iter().any(|path| path == dir.path());
        results.push(match room.filter(|_| !is_offline) {
            Some(room) => in_service(dir.path(), topics, room).await,
            None => failed(dir.path()),
        });
    }
    results.extend(core.node().log_dirs().missing_paths().map(failed));
    DescribeLogDirsResponse { results, ..Default::default() }
}

/// The partitions that a request names; what does not exist is left out of the answer, as in Kafka.
fn described(core: &Rc<Core>, request: &DescribeLogDirsRequest) -> Described {
    let Some(topics) = &request.topics else { return Described::All };
    let view = core.view();
    let mut only = HashSet::new();
    for topic in topics {
        let Some(found) = view.topic_by_name(&topic.topic) else { continue };
        let indexes = topic.partitions.iter().map(|index| PartitionIndex(*index));
        only.extend(indexes.map(|partition| TopicIdPartition { topic_id: found.id, partition }));
    }
    Described::Only(only)
}

fn room(dir: &Arc<LogDir>) -> Option<Room> {
    Some(Room { total: dir.total_bytes().ok()?, usable: dir.available_bytes().ok()? })
}

/// Adds what one core has.
async fn add(sizes: &mut DirSizes, more: DirSizes) {
    for (dir, topics) in more {
        let known = sizes.entry(dir).or_default();
        for (topic, logs) in topics {
            known.entry(topic).or_default().extend(logs);
            yield_if_needed().await;
        }
    }
}

async fn in_service(
    dir: &Path,
    topics: BTreeMap<Arc<str>, Vec<(PartitionIndex, u64)>>,
    room: Room,
) -> DescribeLogDirsResult {
    let mut described = Vec::with_capacity(topics.len());
    for (name, mut logs) in topics {
        logs.sort_unstable();
        let partitions = logs.into_iter().map(|(index, bytes)| DescribeLogDirsPartition {
            partition_index: index.0,
            partition_size: signed(bytes),
            // A leader's own log lacks nothing, and no log is being moved to another directory.
            offset_lag: 0,
            is_future_key: false,
        });
        described.push(DescribeLogDirsTopic { name: (*name).into(), partitions: partitions.collect() });
        yield_if_needed().await;
    }
    DescribeLogDirsResult {
        error_code: ErrorCode::NONE.0,
        log_dir: dir.to_string_lossy().as_ref().into(),
        topics: described,
        total_bytes: signed(room.total),
        usable_bytes: signed(room.usable),
        is_cordoned: false,
    }
}

fn failed(dir: &Path) -> DescribeLogDirsResult {
    DescribeLogDirsResult {
        error_code: ErrorCode::KAFKA_STORAGE_ERROR.0,
        log_dir: dir.to_string_lossy().as_ref().into(),
        ..Default::default()
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
