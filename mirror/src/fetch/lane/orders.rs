//! What a lane is made of, what it is told, and what it reports.

use std::sync::Arc;

use tarn_image::config::mirror::MirrorConfig;
use tarn_record::{Epoch, TopicIdPartition};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use crate::fetch::budget::FetchBudget;
use crate::fetch::plan::{Assignment, LeaderHint};
use crate::fetch::progress::LaneProgress;
use crate::gaps::Gap;
use crate::metrics::MirrorMetrics;
use crate::post::Post;

/// What a lane is made of.
pub struct LaneSpec {
    /// The mirror.
    pub mirror: Arc<str>,
    /// What it calls itself towards the source.
    pub client_id: String,
    /// The mirror's configuration.
    pub config: Arc<MirrorConfig>,
    /// The source broker.
    pub endpoint: Endpoint,
    /// The largest batch that is taken.
    pub batch_max_bytes: usize,
    /// Where its commands come from.
    pub commands: Arc<Post<LaneCommand>>,
    /// Where its reports go.
    pub report: Box<dyn Fn(LaneReport) + Send>,
    /// The memory for responses.
    pub budget: Arc<FetchBudget>,
    /// Where it writes down how far it is.
    pub progress: Arc<LaneProgress>,
    /// What it counts.
    pub metrics: Arc<MirrorMetrics>,
}

/// What a lane is told.
#[derive(Debug)]
pub enum LaneCommand {
    /// Fetch these.
    Add(Vec<Assignment>),
    /// Do not fetch this any more; it may come back.
    Leave(TopicIdPartition),
    /// These do not come back: forget how far they were.
    Remove(Vec<TopicIdPartition>),
    /// The broker is found here now.
    Endpoint(Endpoint),
    /// End.
    Stop,
}

/// What a lane reports.
#[derive(Debug)]
pub enum LaneReport {
    /// These are not fetched any more.
    Left(Vec<Left>),
    /// Of these something was appended for the first time, or nothing is missing: with their serials.
    GoesOn(Vec<(TopicIdPartition, u64)>),
    /// Offsets were missing in what was appended, though the topic is not compacted: with the serials.
    Missed(Vec<(TopicIdPartition, u64, Gap)>),
    /// The connection could not be made, or broke.
    LinkBroken,
    /// The link's state has changed.
    LinkChanged,
    /// The lane has ended, in whichever way.
    Ended,
}

/// A partition that a lane does not fetch any more.
#[derive(Debug)]
pub struct Left {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Its assignment.
    pub serial: u64,
    /// Why.
    pub why: Leaving,
}

/// Why a partition left its lane.
#[derive(Debug)]
pub enum Leaving {
    /// The connection was away: histories must be compared.
    Reconnected,
    /// The source has not what was asked for, or another history there: comparing them tells which.
    Diverged(String),
    /// Another broker leads it at the source.
    Moved(Option<LeaderHint>, ErrorCode),
    /// The source does not know it.
    Unknown(ErrorCode),
    /// The source answers with an error that has no special meaning here.
    Refused(ErrorCode),
    /// A batch was damaged twice.
    Corrupt(String),
    /// A batch is larger than the mirror takes.
    TooLarge(String),
    /// The source holds an old record format.
    UnsupportedFormat(String),
    /// The gate was closed or opened again.
    StaleGeneration,
    /// The source's epoch is above ours.
    EpochBehind(Epoch),
    /// What came does not follow the log here, twice.
    OutOfStep(String),
    /// The disk here refused.
    Storage(String),
    /// This broker does not lead it.
    NotLeaderHere,
}

impl Drop for LaneSpec {
    /// However the lane's task ends, whoever gave it partitions learns of it.
    fn drop(&mut self) {
        (self.report)(LaneReport::Ended);
    }
}
