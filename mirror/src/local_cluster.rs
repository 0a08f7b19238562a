//! How mirroring reaches its own cluster: the image, requests, and the logs.
//!
//! Every local change that mirroring makes is a request that a broker, the controller or a coordinator
//! answers, so that a mirror can do nothing that an operator could not see in the protocol. Only the logs
//! are reached past it: appending what was fetched, and asking where a log ends.

use std::fmt;
use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_record::{
    BatchHeader, BrokerId, Epoch, Offset, ProducerEpoch, ProducerId, TopicIdPartition, ValidBatch,
};
use tarn_wire::Request;
use thiserror::Error;

use crate::alignment::EpochEnd;
use crate::reasons::Reason;
use crate::state::MirrorState;

/// Which opening of a partition's gate an append belongs to. Every opening raises it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MirrorGeneration(pub u64);

/// Batches of one partition, fetched from the source.
#[derive(Clone, Debug)]
pub struct MirrorAppend {
    /// Where they belong.
    pub partition: TopicIdPartition,
    /// The opening of the gate under which they were asked for.
    pub generation: MirrorGeneration,
    /// The batches in order; none where only the watermarks have moved.
    pub batches: Vec<ValidBatch>,
    /// The source's log start, which the local one follows.
    pub source_log_start: Offset,
    /// The source's high watermark, up to which a consumer here gets an empty answer and no error.
    pub source_high_watermark: Offset,
}

/// What became of a `MirrorAppend`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorAppended {
    /// The log ends here now. A batch that was there already, to the byte, counts as appended.
    Appended {
        /// The log end.
        log_end: Offset,
        /// The high watermark.
        high_watermark: Offset,
    },
    /// The gate has been closed or opened again since the batches were asked for.
    StaleGeneration,
    /// A batch's leader epoch is above the partition's here, which must be raised first.
    EpochBehind {
        /// The batch's epoch.
        batch_epoch: Epoch,
        /// The partition's epoch.
        leader_epoch: Epoch,
    },
    /// The batches do not follow the log: fetch again from `log_end`.
    NotNext {
        /// The log end.
        log_end: Offset,
        /// What was wrong, for a person.
        reason: String,
    },
    /// The disk refused.
    Storage(String),
    /// The partition is not led by this broker.
    NotLeader,
}

/// Where a log begins and ends, and what the same-history check needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnds {
    /// The first offset.
    pub log_start: Offset,
    /// The offset after the last record.
    pub log_end: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// The newest leader epoch in the log, `Epoch::NONE` in an empty one.
    pub latest_epoch: Epoch,
    /// The partition's leader epoch.
    pub leader_epoch: Epoch,
    /// Whether the topic is compacted here, so that its offsets may have gaps.
    pub compacted: bool,
}

/// What is to become of a partition's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateOrder {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Its gate from now on.
    pub gate: Gate,
    /// The version of the binding that the order follows from. The owning core must know it, so that no
    /// client writes any more what the mirror is not told of.
    pub version: i64,
}

/// Whether a partition takes batches from its mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It does, under a new generation.
    Open,
    /// It does not.
    Closed,
}

/// What this node knows of a partition's actual state; the read-only guard decides by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownState {
    /// The coordinator has not answered yet: a write is answered as retriable.
    Unknown,
    /// The coordinator has no state of it.
    None,
    /// Its state.
    Known {
        /// The state.
        state: MirrorState,
        /// The version of the binding that it was written for: a STOPPED of an older one says nothing of this.
        version: i64,
    },
}

/// The end of a partition's log as its mirror leaves it: up to here the source has what is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPosition {
    /// The newest leader epoch in the log, `Epoch::NONE` in an empty one.
    pub epoch: Epoch,
    /// The offset after the last mirrored record.
    pub offset: Offset,
}

impl LastPosition {
    /// Where a log is left of which nothing was mirrored.
    pub const NOTHING: LastPosition = LastPosition { epoch: Epoch::NONE, offset: Offset(0) };
}

/// The order to end a partition's log for its mirror, so that clients may write after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndOrder {
    /// The partition. Its gate must be closed.
    pub partition: TopicIdPartition,
    /// The version of the binding that the order follows from, in which it is stopping.
    pub version: i64,
    /// Where the mirror has left the log: what stands behind it is of the ending.
    pub position: LastPosition,
    /// The cluster that was mirrored, which the reset record names.
    pub source_cluster_id: Option<Arc<str>>,
}

/// A log that was ended, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnded {
    /// The offset of the MIRROR_PID_RESET record; `Offset::NONE` where nothing was mirrored and the log is somebody's
    /// own.
    pub reset_offset: Offset,
    /// How many open transactions were aborted.
    pub aborted_count: u32,
    /// The first of them, by their first offset; `limits::ABORTED_IN_REPORT` at most.
    pub aborted: Vec<AbortedTransaction>,
    /// The log end.
    pub log_end: Offset,
}

/// How a log was ended for a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The cluster that was mirrored, as the reset record names it.
    pub source_cluster_id: Option<Arc<str>>,
}

/// A transaction that the source had not decided and that was aborted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// In which epoch of the producer.
    pub producer_epoch: ProducerEpoch,
    /// The offset of its first record.
    pub first_offset: Offset,
}

/// The order to drop the end of a partition's log, which its source has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncateOrder {
    /// The partition. Its gate must be closed, and its topic bound to a mirror that is not stopped.
    pub partition: TopicIdPartition,
    /// The version of the binding that the order follows from.
    pub version: i64,
    /// Where the log ended when this was decided; one that ends elsewhere now is not truncated.
    pub log_end: Offset,
    /// What is dropped.
    pub truncate: Truncate,
    /// From where on the log is copied into a file before it is truncated; `None` where nothing that is dropped
    /// holds a record.
    pub export_from: Option<Offset>,
}

/// What is dropped of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncate {
    /// Every batch that ends above this offset.
    To(Offset),
    /// All of it; the log then begins and ends here.
    Fully {
        /// The new log start.
        start_at: Offset,
    },
}

/// A log that was truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTruncated {
    /// The log end now.
    pub log_end: Offset,
    /// Where what was dropped is kept.
    pub export: Option<Export>,
    /// Why that is not on the disk yet, where it is not: a crash would bring back what was dropped.
    pub unflushed: Option<Arc<str>>,
}

/// A directory with files of batches that were dropped from a log, as they stood there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The broker that has it.
    pub broker: BrokerId,
    /// Its path there.
    pub path: Arc<str>,
    /// The first offset in it.
    pub from: Offset,
    /// The offset after the last.
    pub to: Offset,
    /// How many records it holds, control records not counted.
    pub records: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What was noted of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedExport {
    /// The version of the binding that the order to truncate the log followed from.
    pub version: i64,
    /// What was exported.
    pub export: Export,
}

/// The order to count what stands in a log from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountOrder {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Where to begin.
    pub from: Offset,
    /// Above so many records, control records not counted, nothing more is looked at.
    pub records_max: u64,
}

/// What stands in a log from an offset on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suffix {
    /// How many records, control records not counted.
    pub records: u64,
    /// How many control records.
    pub control_records: u64,
    /// There may be more: counting ended before the log did.
    pub has_more: bool,
}

impl Suffix {
    /// True where it is known that no application has written any of it.
    pub fn holds_no_records(&self) -> bool {
        self.records == 0 && !self.has_more
    }
}

/// How many records.
impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.has_more { "more than " } else { "" };
        let records = if self.records == 1 { "record" } else { "records" };
        write!(f, "{more}{} {records}", self.records)
    }
}

/// Why this cluster did not answer a request of its own.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LocalError {
    /// Nobody answers it here.
    #[error("{api} has no one to answer it here: {reason}")]
    Unanswered {
        /// The request's name.
        api: &'static str,
        /// Why.
        reason: String,
    },
    /// The partition is not led by this broker.
    #[error("partition {0} is not led by this broker")]
    NotLeader(TopicIdPartition),
    /// The log cannot be ended as it is, or not yet.
    #[error("the log cannot be ended: {reason}")]
    NotEnded {
        /// The partition.
        partition: TopicIdPartition,
        /// Why.
        reason: String,
    },
    /// The log cannot be truncated as it is, or not yet: nothing was dropped.
    #[error("the log cannot be truncated: {reason}")]
    NotTruncated {
        /// The partition.
        partition: TopicIdPartition,
        /// Why.
        reason: String,
    },
    /// What is to be dropped cannot be kept elsewhere: nothing was dropped.
    #[error("what is to be dropped cannot be exported: {reason}")]
    Export {
        /// The partition.
        partition: TopicIdPartition,
        /// What the disk said, or how much room there is.
        reason: String,
    },
    /// The disk refused.
    #[error("the log cannot be read or written: {reason}")]
    Storage {
        /// The partition.
        partition: TopicIdPartition,
        /// What the disk said.
        reason: String,
    },
}

impl LocalError {
    /// The reason of a partition that waits for that.
    pub fn reason(&self) -> Reason {
        match self {
            LocalError::Storage { .. } | LocalError::Export { .. } => Reason::DestinationStorage,
            // It is compared again, and what is to be dropped decided anew.
            LocalError::NotTruncated { .. } => Reason::ComparingHistories,
            LocalError::Unanswered { .. } | LocalError::NotLeader(_) | LocalError::NotEnded { .. } => {
                Reason::DestinationNoLeader
            }
        }
    }
}

/// This broker and its cluster, as mirroring sees them. One per core; cloning it is cheap.
///
/// The futures stay on their core, so they need not be `Send`.
#[allow(async_fn_in_trait)]
pub trait LocalCluster: Clone + 'static {
    /// The `node.id` of this broker.
    fn broker_id(&self) -> BrokerId;

    /// The id of this cluster.
    fn cluster_id(&self) -> String;

    /// The newest metadata that this core has.
    fn image(&self) -> Arc<MetadataImage>;

    /// Sends a request to whoever answers it in this cluster: a broker, the controller, or the
    /// coordinator of the `__mirror_state` partition that it is about.
    ///
    /// # Errors
    /// Where nobody does. An error in the response is not an error of the call.
    async fn call<R>(&self, request: R) -> Result<R::Response, LocalError>
    where
        R: Request + 'static,
        R::Response: 'static;

    /// Appends what was fetched, as it is. One answer for each append, in their order.
    async fn append(&self, appends: Vec<MirrorAppend>) -> Vec<MirrorAppended>;

    /// Where logs led by this broker begin and end. One answer for each partition, in their order.
    async fn ends(&self, partitions: Vec<TopicIdPartition>) -> Vec<Result<LogEnds, LocalError>>;

    /// The headers of the newest batches of logs led by this broker, `None` for a log without one. The batches
    /// themselves are not read. One answer for each partition, in their order.
    async fn newest_batches(
        &self,
        partitions: Vec<TopicIdPartition>,
    ) -> Vec<Result<Option<BatchHeader>, LocalError>>;

    /// The headers of the last batches that begin below these offsets, in logs led by this broker; `None` where
    /// there is none. The batches are read: one that is not what was written any more is an error. One answer for
    /// each, in their order.
    async fn batches_below(
        &self,
        places: Vec<(TopicIdPartition, Offset)>,
    ) -> Vec<Result<Option<BatchHeader>, LocalError>>;

    /// How logs led by this broker were ended behind these positions; `None` where what stands there is no ending.
    /// One answer for each, in their order.
    async fn endings(
        &self,
        positions: Vec<(TopicIdPartition, LastPosition)>,
    ) -> Vec<Result<Option<Ending>, LocalError>>;

    /// The newest epochs not above these, and where they end, in logs led by this broker: what
    /// OffsetForLeaderEpoch would answer if it were not asked from outside. One answer for each, in their order.
    async fn epoch_ends(&self, epochs: Vec<(TopicIdPartition, Epoch)>) -> Vec<Result<EpochEnd, LocalError>>;

    /// Counts what stands in logs. One answer for each order, in their order.
    async fn suffixes(&self, orders: Vec<CountOrder>) -> Vec<Result<Suffix, LocalError>>;

    /// Copies the ends of logs into files, notes where these are, then drops them; all that is durable before a byte is
    /// dropped, and a copy that fails drops nothing. An order that is repeated takes over the files of the attempt
    /// before. One answer for each order, in their order.
    async fn truncate_logs(&self, orders: Vec<TruncateOrder>) -> Vec<Result<LogTruncated, LocalError>>;

    /// What was exported of logs led by this broker before they were truncated last, as it was noted then; `None` where
    /// nothing was, or the log was not truncated after all, whatever was appended to it since. One answer for each
    /// partition, in their order.
    async fn noted_exports(
        &self,
        partitions: Vec<TopicIdPartition>,
    ) -> Vec<Result<Option<NotedExport>, LocalError>>;

    /// Opens or closes gates. One answer for each, in their order, with the generation now in force; NotLeader
    /// also where the owning core does not know the binding's version yet.
    async fn set_gates(&self, gates: Vec<GateOrder>) -> Vec<Result<MirrorGeneration, LocalError>>;

    /// Makes durable what is in these logs, and committed up to their ends. One answer for each partition, in
    /// their order.
    async fn flush(&self, partitions: Vec<TopicIdPartition>) -> Vec<Result<LogEnds, LocalError>>;

    /// Ends logs: an abort marker for every open transaction, then the reset record, both durable when this
    /// answers. What was appended for it before, by this process or an earlier one, is found and not repeated.
    /// One answer for each order, in their order.
    async fn end_logs(&self, orders: Vec<EndOrder>) -> Vec<Result<LogEnded, LocalError>>;

    /// Tells the owning cores what the coordinator knows, for the read-only guard.
    async fn set_states(&self, states: Vec<(TopicIdPartition, KnownState)>);
}
