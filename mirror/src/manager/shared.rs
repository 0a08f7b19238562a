//! What everything that runs for a node's mirrors shares: the letter box of what happens, and where it is
//! written down how things stand.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tarn_record::{TopicId, TopicIdPartition};

use super::board::Board;
use super::changes::Changes;
use super::completing::Completion;
use super::job::{Outcome, Work};
use super::look::{Looked, Synced};
use crate::fetch::lane::LaneReport;
use crate::fetch::progress::Clock;
use crate::metrics::MirrorMetrics;
use crate::partition::RetryPolicy;
use crate::post::Post;
use crate::source::SourceError;

/// What the node's configuration says about mirroring.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeLimits {
    pub(super) fetchers: u64,
    pub(super) refresh_ms: u64,
    pub(super) retry: RetryPolicy,
    pub(super) batch_max_bytes: usize,
}

/// What a manager and its handle share, from any core.
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) events: Post<Event>,
    pub(super) changes: Changes,
    pub(super) board: Board,
    pub(super) metrics: Arc<MirrorMetrics>,
    pub(super) stopping: AtomicBool,
}

/// What happens.
pub(super) enum Event {
    /// Work on partitions has ended.
    Worked { mirror: Life, work: Work, outcomes: Vec<(TopicIdPartition, u64, Outcome)> },
    /// The source has told of its metadata, or why not.
    Refreshed { mirror: Life, result: Result<Looked, SourceError> },
    /// What follows the source beside the records has been brought up to date, or why not.
    Synced { mirror: Life, synced: Synced },
    /// Topics whose partitions have all stopped were told to the controller, or why not.
    Completed { mirror: Life, results: Vec<(TopicId, Completion)> },
    /// A lane reports.
    Lane { mirror: Life, lane: u64, report: LaneReport },
}

/// One life of a mirror: another begins when its connection settings change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) mirror: Arc<str>,
    pub(super) number: u64,
}
