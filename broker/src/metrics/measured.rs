//! What a core tells of itself when it is asked, beside what its instruments hold.
//!
//! It is gathered in the background of the core, a few partitions at a time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tarn_image::MetadataImage;
use tarn_record::{Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_runtime::{CoreId, Queue, reads_under_way, spawn, timeout, yield_if_needed};
use tarn_wire::messages::DescribeQuorumRequest;
use tarn_wire::messages::describe_quorum_response::PartitionData;

use crate::core::Core;
use crate::metrics::traffic::TopicTraffic;

/// A question to a core. It never waits for whoever asked.
#[derive(Debug)]
pub struct Measure {
    /// Cores with more partitions than this tell nothing of each.
    pub partitions_max: usize,
    /// Where the answer goes.
    pub answer: mpsc::Sender<CoreMeasured>,
}

/// What a core tells.
#[derive(Debug)]
pub struct CoreMeasured {
    /// The metadata that it has.
    pub image: Arc<MetadataImage>,
    /// Its replicas.
    pub replicas: usize,
    /// Replicas whose logs are not open.
    pub unopened: usize,
    /// Those of them that could not be opened; the others wait for their recovery.
    pub offline: usize,
    /// Those whose recovery has not begun or has not ended, by log directory.
    pub to_recover: BTreeMap<PathBuf, usize>,
    /// Bytes appended and not on the disk, as of the last second or so.
    pub unflushed_bytes: u64,
    /// Reads that its lanes for them have to do.
    pub reads: usize,
    /// Fetch sessions of its connections.
    pub sessions: usize,
    /// Partitions that they name.
    pub session_partitions: usize,
    /// Produce requests that wait for a high watermark.
    pub waiting_produces: usize,
    /// What clients produced and fetched.
    pub traffic: TopicTraffic,
    /// The same of each topic.
    pub topics: Vec<(TopicId, TopicTraffic)>,
    /// The logs of its partitions; none where there are too many.
    pub logs: Vec<MeasuredLog>,
    /// How far the metadata quorum is. The first core alone asks, and the controller may not answer.
    pub quorum: Option<PartitionData>,
}

/// One partition's log.
#[derive(Debug)]
pub struct MeasuredLog {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// Its bytes.
    pub bytes: u64,
    /// Its segments.
    pub segments: usize,
    /// Its first offset.
    pub start: Offset,
    /// The offset after its last record.
    pub end: Offset,
}

/// How long the controller may take to say how far it is.
const QUORUM_WAIT: Duration = Duration::from_millis(500);

/// Answers the question.
pub(crate) fn measure(core: &Rc<Core>, asked: Measure) {
    let core = core.clone();
    spawn(Queue::Background, async move {
        let quorum = if core.id() == CoreId(0) { quorum(&core).await } else { None };
        let logs = logs(&core, asked.partitions_max).await;
        let to_recover = to_recover(&core).await;
        let measured = CoreMeasured { to_recover, ..measured(&core, quorum, logs) };
        // Whoever has asked may have given up.
        let _ = asked.answer.send(measured);
    })
    .detach();
}

fn measured(core: &Rc<Core>, quorum: Option<PartitionData>, logs: Vec<MeasuredLog>) -> CoreMeasured {
    let image = core.image();
    let mut partitions = core.partitions();
    let topics = partitions.traffic().topics().iter().map(|(topic, traffic)| (*topic, *traffic)).collect();
    let (sessions, unopened) = (core.sessions(), core.unopened());
    CoreMeasured {
        replicas: partitions.len(),
        unopened: unopened.len(),
        offline: unopened.offline(),
        to_recover: BTreeMap::new(),
        unflushed_bytes: partitions.unflushed_bytes(),
        reads: reads_under_way(),
        sessions: sessions.len(),
        session_partitions: sessions.partitions(),
        waiting_produces: partitions.waiting_produces(),
        traffic: *partitions.traffic().all(),
        topics,
        logs,
        quorum,
        image,
    }
}

/// Which logs wait for their recovery, or are in it; there are some only after a crash.
async fn to_recover(core: &Rc<Core>) -> BTreeMap<PathBuf, usize> {
    let (image, mut by_dir) = (core.image(), BTreeMap::new());
    let waiting = core.unopened().to_recover();
    for partition in waiting {
        let topic = image.topics().by_id(partition.topic_id);
        let dir = topic.and_then(|topic| core.node().log_dirs().dir_of(&topic.name, partition.partition));
        if let Some(dir) = dir {
            *by_dir.entry(dir).or_default() += 1;
        }
        yield_if_needed().await;
    }
    by_dir
}

async fn quorum(core: &Rc<Core>) -> Option<PartitionData> {
    let asked = core.node().controller().describe_quorum(DescribeQuorumRequest::default());
    let answered = timeout(QUORUM_WAIT, asked).await.ok()?.ok()?;
    answered.response.topics.into_iter().next()?.partitions.into_iter().next()
}

async fn logs(core: &Rc<Core>, partitions_max: usize) -> Vec<MeasuredLog> {
    let mut logs = Vec::new();
    if core.partitions().len() > partitions_max {
        return logs;
    }
    let image = core.image();
    for topic in image.topics().iter() {
        for index in topic.partitions.keys() {
            let partition = TopicIdPartition { topic_id: topic.id, partition: *index };
            if let Some(replica) = core.partitions().get(partition) {
                let log = replica.log();
                logs.push(MeasuredLog {
                    topic: topic.name.clone(),
                    partition: *index,
                    bytes: log.size_bytes(),
                    segments: log.segment_count(),
                    start: log.start(),
                    end: log.end(),
                });
            }
            yield_if_needed().await;
        }
    }
    logs
}
