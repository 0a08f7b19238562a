//! What cores say to each other: one envelope for each target core of a request, never one for each
//! partition.
//!
//! Every envelope that is answered brings the slot for its answer along, so that a reply never waits.

use std::sync::Arc;

use tarn_log::producers::MarkerRule;
use tarn_mirror::alignment::EpochEnd;
use tarn_mirror::local_cluster::{
    CountOrder, EndOrder, Ending, GateOrder, KnownState, LastPosition, LocalError, LogEnded, LogEnds,
    LogTruncated, MirrorAppend, MirrorAppended, MirrorGeneration, NotedExport, Suffix, TruncateOrder,
};
use tarn_record::builder::EndTransaction;
use tarn_record::validate::ClientBatch;
use tarn_record::{
    BatchHeader, Epoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
    TopicIdPartition,
};
use tarn_runtime::channel::{Flag, ReplySlot};
use tarn_wire::ErrorCode;

use crate::cleaning::CleanCall;
use crate::coordinators::mirror::CoordinatorCall;
use crate::delete_records::{DeleteOrder, Deleted};
use crate::dir_sizes::{Described, DirSizes};
use crate::interest::{FetchedPartition, InterestId, Scope, Wanted};
use crate::metrics::Measure;
use crate::replica::{Isolation, Replica};

/// A message to a core.
#[derive(Debug)]
pub enum Envelope {
    /// Append what clients produced.
    Append(AppendRequest),
    /// Append the markers that end transactions.
    Markers(MarkerRequest),
    /// What is known of the producers of partitions.
    Producers(Vec<TopicIdPartition>, ReplySlot<Vec<Result<Vec<ActiveProducer>, ErrorCode>>>),
    /// Read for a fetch session.
    Fetch(FetchRead),
    /// A fetch session is over.
    CloseInterest(InterestId),
    /// Wake a session when one of its partitions has news, once.
    Arm(InterestId, Flag),
    /// Look up offsets.
    Offsets(Vec<OffsetQuery>, ReplySlot<Vec<OffsetAnswer>>),
    /// Look up where epochs end: partition, epoch known to the client, epoch asked for.
    EpochEnds(Vec<(TopicIdPartition, Epoch, Epoch)>, ReplySlot<Vec<EpochEndAnswer>>),
    /// Delete records.
    DeleteRecords(Vec<DeleteOrder>, ReplySlot<Vec<Deleted>>),
    /// How large logs are.
    DirSizes(Described, ReplySlot<DirSizes>),
    /// Append what a mirror fetched.
    Mirrored(Vec<MirrorAppend>, ReplySlot<Vec<MirrorAppended>>),
    /// Where logs begin and end.
    Ends(Vec<TopicIdPartition>, ReplySlot<Vec<Result<LogEnds, LocalError>>>),
    /// The newest batches of logs.
    NewestBatches(Vec<TopicIdPartition>, ReplySlot<Vec<Result<Option<BatchHeader>, LocalError>>>),
    /// The last batches of logs that begin below these offsets, read and found to be what was written.
    BatchesBelow(Vec<(TopicIdPartition, Offset)>, ReplySlot<Vec<Result<Option<BatchHeader>, LocalError>>>),
    /// Where epochs end in logs, for their mirrors.
    LocalEpochEnds(Vec<(TopicIdPartition, Epoch)>, ReplySlot<Vec<Result<EpochEnd, LocalError>>>),
    /// Count what stands in logs.
    Suffixes(Vec<CountOrder>, ReplySlot<Vec<Result<Suffix, LocalError>>>),
    /// How logs were ended behind these positions.
    Endings(Vec<(TopicIdPartition, LastPosition)>, ReplySlot<Vec<Result<Option<Ending>, LocalError>>>),
    /// Open or close the gates of mirrored partitions.
    Gates(Vec<GateOrder>, ReplySlot<Vec<Result<MirrorGeneration, LocalError>>>),
    /// Flush logs.
    Flush(Vec<TopicIdPartition>, ReplySlot<Vec<Result<LogEnds, LocalError>>>),
    /// End the logs of partitions that their mirrors have left.
    EndLogs(Vec<EndOrder>, ReplySlot<Vec<Result<LogEnded, LocalError>>>),
    /// Drop the ends of logs that their mirrors' sources have not.
    TruncateLogs(Vec<TruncateOrder>, ReplySlot<Vec<Result<LogTruncated, LocalError>>>),
    /// What was cut off logs last.
    NotedExports(Vec<TopicIdPartition>, ReplySlot<Vec<Result<Option<NotedExport>, LocalError>>>),
    /// What a coordinator knows of mirrored partitions.
    KnownStates(Vec<(TopicIdPartition, KnownState)>, ReplySlot<Vec<Result<(), LocalError>>>),
    /// A request to a coordinator whose partition this core owns.
    Coordinator(CoordinatorCall),
    /// A question of a thread of the cleaner.
    Clean(CleanCall),
    /// The offsets that the checkpoint files of every log directory hold.
    Checkpoint(ReplySlot<Vec<CheckpointEntry>>),
    /// The disk under a log directory, by its number, has failed.
    DirFailed(usize),
    /// What this core tells in numbers.
    Measure(Measure),
    /// Close every log; nothing is appended after it.
    Close(ReplySlot<Vec<CheckpointEntry>>),
}

/// When a produce request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Never.
    None,
    /// After the append here.
    Leader,
    /// After the high watermark has passed it.
    All,
}

/// Batches for partitions that one core owns.
#[derive(Debug)]
pub struct AppendRequest {
    /// The batches, in the order of the request.
    pub items: Vec<(TopicIdPartition, ClientBatch)>,
    /// When to answer.
    pub acks: Acks,
    /// Until when to wait for the high watermark, in milliseconds of the core's clock.
    pub deadline_ms: u64,
    /// Where the answer goes: one for each item, in their order.
    pub reply: ReplySlot<Vec<Produced>>,
}

/// Markers for partitions that one core owns.
#[derive(Debug)]
pub struct MarkerRequest {
    /// The markers, in the order of the request.
    pub items: Vec<(TopicIdPartition, Marker)>,
    /// Until when to wait for the high watermark, in milliseconds of the core's clock.
    pub deadline_ms: u64,
    /// Where the answer goes: one for each item, in their order.
    pub reply: ReplySlot<Vec<Produced>>,
}

/// The end of a transaction, as its coordinator decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Whose transaction ends, and how.
    pub end: EndTransaction,
    /// Which epoch it may have.
    pub rule: MarkerRule,
}

/// What is known of a producer of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// The sequence of its last record, or `Sequence::NONE`.
    pub last_sequence: Sequence,
    /// The largest timestamp of its newest batch.
    pub last_timestamp: Timestamp,
    /// The epoch of the coordinator that wrote its last marker, or −1.
    pub coordinator_epoch: i32,
    /// Where its open transaction began, or `Offset::NONE`.
    pub transaction_start: Offset,
}

/// What became of one batch that a client produced, or of a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Why it was not appended or not confirmed, or `ErrorCode::NONE`.
    pub error: ErrorCode,
    /// The same for a person.
    pub message: Option<String>,
    /// The offset of its first record; that of the first copy for a duplicate.
    pub base_offset: Offset,
    /// The broker's time where the topic says LogAppendTime, else `Timestamp::NONE`.
    pub log_append_time: Timestamp,
    /// The log's first offset.
    pub log_start: Offset,
    /// The leader epoch in force.
    pub leader_epoch: Epoch,
}

/// A look at one core's part of a fetch session.
#[derive(Debug)]
pub struct FetchRead {
    /// The session's interest, which begins where it has not.
    pub interest: InterestId,
    /// Wakes the session where it waits.
    pub wake: Flag,
    /// Partitions that are new, or of which something else is wanted.
    pub upserts: Vec<(TopicIdPartition, Wanted)>,
    /// Partitions that are no longer wanted.
    pub forgets: Vec<TopicIdPartition>,
    /// Partitions whose last answer did not fit the response.
    pub requeue: Vec<TopicIdPartition>,
    /// How much to look at.
    pub scope: Scope,
    /// About how many bytes to read at most.
    pub max_bytes: usize,
    /// How far to see.
    pub isolation: Isolation,
    /// Where the answer goes.
    pub reply: ReplySlot<FetchAnswer>,
}

/// What a look at a fetch session has found.
#[derive(Debug, Default)]
pub struct FetchAnswer {
    /// What the session does not know yet.
    pub partitions: Vec<FetchedPartition>,
    /// How many partitions are being looked up on the disk for it; each is news when that has ended.
    pub lookups: usize,
    /// How many of the session's partitions are news there still, or again.
    pub waiting: usize,
}

/// A question of ListOffsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetQuery {
    /// The partition.
    pub partition: TopicIdPartition,
    /// The leader epoch that the client knows, or `Epoch::NONE`.
    pub current_leader_epoch: Epoch,
    /// What is asked.
    pub spec: OffsetSpec,
    /// How far the client may see.
    pub isolation: Isolation,
}

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The offset after the last visible record.
    Latest,
    /// The log's first offset.
    Earliest,
    /// The record with the largest timestamp.
    MaxTimestamp,
    /// The first record at or after a time.
    AtOrAfter(Timestamp),
    /// The last offset in tiered storage: there is none.
    LatestTiered,
    /// The first offset that is not uploaded yet: there is none to upload.
    EarliestPendingUpload,
}

/// The answer to an `OffsetQuery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Why there is no answer, or `ErrorCode::NONE`.
    pub error: ErrorCode,
    /// The offset, or `Offset::NONE`.
    pub offset: Offset,
    /// Its timestamp where a timestamp was asked for, or `Timestamp::NONE`.
    pub timestamp: Timestamp,
    /// The epoch of that offset, or `Epoch::NONE`.
    pub leader_epoch: Epoch,
}

/// Where an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndAnswer {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Why there is no answer, or `ErrorCode::NONE`.
    pub error: ErrorCode,
    /// The epoch found, or `Epoch::NONE`.
    pub leader_epoch: Epoch,
    /// Its end, or `Offset::NONE`.
    pub end_offset: Offset,
}

/// One partition's line in the checkpoint files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Its id: another topic may have the name by now.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Everything below is on the disk.
    pub recovery_point: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// The log's first offset.
    pub log_start: Offset,
}

impl CheckpointEntry {
    /// The line of a replica as it is now.
    pub fn of(replica: &Replica) -> CheckpointEntry {
        CheckpointEntry {
            topic: replica.topic().clone(),
            topic_id: replica.partition().topic_id,
            partition: replica.partition().partition,
            recovery_point: replica.log().recovery_point(),
            high_watermark: replica.high_watermark(),
            log_start: replica.log().start(),
        }
    }
}
