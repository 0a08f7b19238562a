//! What is to be done for partitions, many at once, and what became of it.

use std::rc::Rc;
use std::sync::Arc;

use tarn_image::config::mirror::MirrorConfig;
use tarn_record::{BrokerId, Epoch, PartitionIndex, TopicIdPartition};
use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use super::board::Question;
use super::shared::Shared;
use crate::alignment::Content;
use crate::divergence::Alignment;
use crate::fetch::budget::FetchBudget;
use crate::known::SourceKnown;
use crate::local_cluster::{
    Export, LastPosition, LocalError, LogEnded, LogEnds, LogTruncated, MirrorGeneration, NotedExport,
};
use crate::partition::{Bound, Persisted, Want};
use crate::reasons::Reason;
use crate::source::connections::Connections;
use crate::source::metadata::SourceLeader;
use crate::state::MirrorState;
use crate::truncation::TruncationPlan;

/// The kinds of work; of each, one request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Asking the coordinator that is this partition of `__mirror_state`.
    ReadStates(PartitionIndex),
    /// Having it write.
    WriteStates(PartitionIndex),
    /// Opening and closing gates.
    Gates,
    /// Comparing histories with one source broker.
    Compare(BrokerId),
    /// Finding where histories part from those of one source broker. It may take many questions, and those whose
    /// histories are the same do not wait for it.
    Search(BrokerId),
    /// Having the controller raise leader epochs.
    RaiseEpochs,
    /// Making logs durable and committed.
    Flush,
    /// Ending logs for the mirror.
    EndLogs,
    /// Dropping what the source has not.
    Truncate,
}

impl Work {
    /// The work that a partition wants, whose state this coordinator keeps.
    pub(super) fn of(want: Want, coordinator: PartitionIndex) -> Option<Work> {
        match want {
            Want::ReadState => Some(Work::ReadStates(coordinator)),
            Want::WriteState(_) => Some(Work::WriteStates(coordinator)),
            Want::OpenGate | Want::CloseGate => Some(Work::Gates),
            Want::Compare(leader) => Some(Work::Compare(leader.broker)),
            Want::Search(leader) => Some(Work::Search(leader.broker)),
            Want::RaiseEpoch(_) => Some(Work::RaiseEpochs),
            Want::Flush => Some(Work::Flush),
            Want::EndLog => Some(Work::EndLogs),
            Want::Truncate(_) => Some(Work::Truncate),
            Want::Nothing | Want::Wait(_) | Want::SourceMetadata | Want::Fetch(..) | Want::LeaveLane => None,
        }
    }

    /// True where this is the work that a partition wants. Its coordinator may have become another one since
    /// it was queued: the request finds the right one.
    pub(super) fn is_wanted(self, want: Want) -> bool {
        let coordinator = match self {
            Work::ReadStates(coordinator) | Work::WriteStates(coordinator) => coordinator,
            Work::Gates
            | Work::Compare(_)
            | Work::Search(_)
            | Work::RaiseEpochs
            | Work::Flush
            | Work::EndLogs
            | Work::Truncate => PartitionIndex(0),
        };
        Work::of(want, coordinator) == Some(self)
    }

    /// The reason of partitions whose own cluster does not answer in time.
    pub(super) fn unanswered(self) -> Reason {
        match self {
            Work::ReadStates(_) | Work::WriteStates(_) => Reason::CoordinatorUnavailable,
            Work::Gates | Work::Compare(_) | Work::Search(_) => Reason::DestinationNoLeader,
            Work::RaiseEpochs => Reason::ControllerUnavailable,
            Work::Flush | Work::EndLogs | Work::Truncate => Reason::DestinationStorage,
        }
    }

    /// The source broker that is asked.
    pub(super) fn broker(self) -> Option<BrokerId> {
        match self {
            Work::Compare(broker) | Work::Search(broker) => Some(broker),
            _ => None,
        }
    }

    /// What it is asked.
    pub(super) fn question(self) -> Option<Question> {
        match self {
            Work::Compare(broker) => Some(Question::Histories(broker)),
            Work::Search(broker) => Some(Question::CommonPoints(broker)),
            _ => None,
        }
    }
}

/// A partition for which work is done.
pub(super) struct Item {
    pub(super) partition: TopicIdPartition,
    pub(super) life: u64,
    pub(super) topic: Arc<str>,
    pub(super) want: Want,
    pub(super) bound: Bound,
    pub(super) state_epoch: i32,
    pub(super) trouble: Option<(Reason, Arc<str>)>,
    pub(super) content: Content,
    /// Up to where the mirror had filled the log when it was last stopped.
    pub(super) last_position: Option<LastPosition>,
    /// What is to be written down of what was cut.
    pub(super) truncation_notice: Option<(Reason, Arc<str>)>,
    /// What was exported last, where no report names it yet.
    pub(super) unreported: Option<Export>,
    /// The last mirror position of the stop that is under way.
    pub(super) position: Option<LastPosition>,
    /// How that stop ended the log.
    pub(super) ended: Option<Arc<LogEnded>>,
    /// What is known of the source.
    pub(super) known: Option<SourceKnown>,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What the coordinator has, and what is noted beside the log of an export.
    Read(Persisted, Option<Box<NotedExport>>),
    /// The coordinator has written the state as this number, for this version of the binding.
    Written { state: MirrorState, state_epoch: i32, version: i64 },
    /// The same for STOPPING, with this position and what was known of the source.
    StoppingWritten { position: LastPosition, known: Option<SourceKnown>, state_epoch: i32, version: i64 },
    /// Somebody else has written meanwhile, or this was written and the answer lost.
    WrittenByOthers(String),
    /// The gate is closed.
    GateClosed,
    /// The gate is open.
    GateOpened(MirrorGeneration),
    /// Histories were compared with this leader's.
    Compared(SourceLeader, Box<Alignment>),
    /// They may have diverged, and why: the common point is to be searched for.
    Apart(SourceLeader, String),
    /// The controller has raised the leader epoch above this; the metadata will show it.
    Raised(Epoch),
    /// All of the log is durable and committed.
    Flushed(LogEnds),
    /// The same of a log that is not the one that the last stop's position speaks of.
    FlushedAnother(LogEnds),
    /// The log is ended.
    Ended(LogEnded),
    /// The owning core does not end the log.
    EndRefused(Reason, String),
    /// The log was cut as decided under this version of the binding.
    Truncated(TruncationPlan, Box<LogTruncated>, i64),
    /// The owning core does not cut the log as it is.
    TruncationRefused(Reason, String),
    /// The source's broker does not lead it.
    SourceLost(ErrorCode),
    /// It went wrong.
    Failed(Reason, String),
}

impl Outcome {
    /// What an owning core's refusal means.
    pub(super) fn refused_here(error: &LocalError) -> Outcome {
        Outcome::Failed(error.reason(), error.to_string())
    }
}

/// Where work is done.
pub(super) struct Site {
    pub(super) work: Work,
    pub(super) mirror: Arc<str>,
    /// The id of the cluster that is mirrored, where it is pinned.
    pub(super) source_cluster_id: Option<Arc<str>>,
    pub(super) shared: Arc<Shared>,
    pub(super) connections: Rc<Connections>,
    /// The source broker that is asked, where one is.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) config: Arc<MirrorConfig>,
    pub(super) batch_max_bytes: usize,
    pub(super) budget: Arc<FetchBudget>,
}

impl Site {
    /// The source is asked from now on; it has answered all that it was asked before.
    pub(super) fn asks(&self) {
        if let Some(question) = self.work.question() {
            self.shared.board.asked(&self.mirror, question);
        }
    }

    /// The source has answered, and what takes time now is here.
    pub(super) fn has_answers(&self) {
        if let Some(question) = self.work.question() {
            self.shared.board.answered(&self.mirror, question);
        }
    }
}
