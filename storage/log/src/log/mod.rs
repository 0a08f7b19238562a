//! One partition's log.
//!
//! Owned by one core, which alone appends to it; there are no locks. What may take long (flushes,
//! removals, searches) comes back as a job for another thread; what a job did under an older *generation*
//! of the log is dropped.
//!
//! Invariants:
//! * `start <= end`; every batch that ends at or above `start` and begins below `end` is in a segment;
//! * segments are in order of their base offsets; the last is the only one that is appended to; there is
//!   at least one, unless a truncation of everything failed and is to be made good by the next append;
//! * a segment begins where the last batch of the one before it ends, but for what another program wrote and for
//!   gaps that no segment could hold;
//! * no byte position is ever written twice: after a truncation, and after a failed write, the log goes
//!   on in a new segment;
//! * what a failed operation wrote is not part of the log, and `end` says what is;
//! * epochs and producer states are those of the batches below `end`;
//! * `recovery_point <= flushed_to <= end`.

mod append;
mod batches;
mod close_together;
mod export;
mod export_dir;
mod export_note;
mod flush;
mod flush_together;
mod known;
mod read;
mod roll;
mod search;
mod truncate;
mod truncation_mark;
mod truncation_search;

use std::path::Path;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use tarn_record::{Epoch, Offset, PartitionIndex, Timestamp, TopicId};

use crate::compaction::SwappedOut;
use crate::config::LogConfig;
use crate::descriptors::SegmentFile;
use crate::epochs::{EpochError, EpochHistory};
use crate::error::LogError;
use crate::home::Home;
use crate::log_dir::LogDir;
use crate::producers::ProducerStates;
use crate::recovery::{self, Damage, Opening, RecoveryReport};
use crate::segment::Segment;
use crate::segment::txn_index::AbortedTransaction;

pub use append::Appended;
pub(crate) use append::aborted_entry;
pub use batches::{LogBatches, RecordCounts};
pub use close_together::close_together;
pub use export::{ExportJob, Exported};
pub use export_dir::ExportDir;
pub use export_note::{ExportNote, NotedExport};
pub use flush::{FlushJob, Flushed};
pub use flush_together::{Together, flush_together};
pub use known::KnownSearch;
pub use read::{Aborted, AbortedSearch, Read, ReadOrder, ReadSearch};
pub use search::{BatchBelowSearch, FoundTimestamp, TimestampSearch};
pub use truncate::Truncated;
pub(crate) use truncation_mark::TruncationMark;
use truncation_mark::Until;
pub use truncation_search::{FoundTruncation, TruncationSearch};

/// See the module.
#[derive(Debug)]
pub struct Log {
    pub(crate) home: Arc<Home>,
    pub(crate) topic_id: TopicId,
    pub(crate) config: Arc<LogConfig>,
    pub(crate) segments: SmallVec<[Segment; 1]>,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) generation: u64,
    pub(crate) epochs: EpochHistory,
    pub(crate) producers: ProducerStates,
    /// Aborted transactions of the active segment that its index does not have yet: the disk had no room, or
    /// they can wait.
    pub(crate) unnoted_aborts: Vec<AbortedTransaction>,
    /// All batches below are on the disk.
    pub(crate) flushed_to: Offset,
    /// And so is all that a recovery would else have to read from them: the epochs.
    pub(crate) recovery_point: Offset,
    pub(crate) dirt: Dirt,
    /// A file says that the log has no gap between the segments from here on.
    pub(crate) unbroken_from: Option<Offset>,
    /// Files below the log start that plans may still name.
    pub(crate) retired: Vec<Weak<SegmentFile>>,
    /// The same of those in whose place compaction has put others.
    pub(crate) swapped_out: Vec<SwappedOut>,
    /// How often that was: what names segments by their numbers is of no use after it.
    pub(crate) swaps: u64,
}

/// What a log is as long as nothing is truncated and it stays open: the same files opened again are another, whatever
/// its generation, because somebody else may have changed them in between.
#[derive(Clone, Debug)]
pub struct LogIdentity {
    /// Each opening makes its own, and while this has it no other is at its place.
    home: Arc<Home>,
    generation: u64,
}

impl PartialEq for LogIdentity {
    fn eq(&self, other: &LogIdentity) -> bool {
        Arc::ptr_eq(&self.home, &other.home) && self.generation == other.generation
    }
}

impl Eq for LogIdentity {}

/// Which files a log has. What fails in a search of others says nothing of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFiles {
    identity: LogIdentity,
    start: Offset,
    swaps: u64,
}

/// What memory knows and the disk does not, yet.
#[derive(Debug, Default)]
pub(crate) struct Dirt {
    /// The active segment may have bytes beyond its good part.
    pub(crate) torn: bool,
    /// The next append must go into a new segment, whose base is this: the end of the last batch.
    pub(crate) roll_at: Option<Offset>,
    /// Bytes appended since the log was opened, how many of them were synced, and how many lie below the
    /// recovery point.
    pub(crate) appended_bytes: u64,
    pub(crate) synced_bytes: u64,
    pub(crate) recoverable_bytes: u64,
    /// Changes of the epochs, and how many of them the file has.
    pub(crate) epoch_changes: u32,
    pub(crate) epoch_changes_saved: u32,
    /// An epoch was begun that has no batch yet.
    pub(crate) has_begun_epoch: bool,
    /// Another process wrote what is there and may not have synced its names: the first flush does.
    pub(crate) inherited: bool,
    /// The directory is new: neither its name nor `partition.metadata` was synced.
    pub(crate) created: bool,
    /// Names that were made, changed or removed in the directory, and segments that were cut; and how many
    /// of these changes are on the disk. One counts before it is made: where it fails, a part of it may be there.
    pub(crate) changes: u32,
    pub(crate) changes_saved: u32,
    /// The base of the first segment of which a file may not be on the disk. The segment that was the last
    /// one at the newest flush is among them: its indexes are written when it is closed.
    pub(crate) dirty_from: Offset,
    /// A truncation has begun and not ended.
    pub(crate) half_cut: bool,
    /// There is a `truncation-checkpoint`, and when it can go.
    pub(crate) truncation: Option<Until>,
    /// Where the newest producer snapshot is.
    pub(crate) snapshot: Option<Offset>,
}

impl Log {
    /// Makes the directory of a new partition, with an empty log that starts at offset 0. Durable after
    /// the first flush; a crash before it may leave nothing, or a log without a topic id.
    ///
    /// # Errors
    /// `Exists` where there is a directory with a log; or the system's refusal.
    pub fn create(
        log_dir: &Arc<LogDir>,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        config: impl Into<Arc<LogConfig>>,
        now: Timestamp,
    ) -> Result<Log, LogError> {
        let home = log_dir.home(topic, partition);
        recovery::create(home, topic_id, config.into(), now)
    }

    /// Opens the log of a partition that is in the directory. Takes long after an unclean shutdown: all
    /// above the recovery point is read and checked. What was cut off is in the report, to be told.
    ///
    /// # Errors
    /// Where files cannot be read.
    pub fn open(
        log_dir: &Arc<LogDir>,
        topic: &str,
        partition: PartitionIndex,
        config: impl Into<Arc<LogConfig>>,
        opening: Opening,
        now: Timestamp,
    ) -> Result<(Log, RecoveryReport), LogError> {
        let home = log_dir.home(topic, partition);
        recovery::open(home, config.into(), opening, now)
    }

    /// The same for a log of which no more than `bytes` are to be read; `None`, and nothing is changed, for another.
    ///
    /// # Errors
    /// As for [`Log::open`].
    pub fn open_within(
        bytes: u64,
        log_dir: &Arc<LogDir>,
        topic: &str,
        partition: PartitionIndex,
        config: impl Into<Arc<LogConfig>>,
        opening: Opening,
        now: Timestamp,
    ) -> Result<Option<(Log, RecoveryReport)>, LogError> {
        let home = log_dir.home(topic, partition);
        recovery::open_within(bytes, home, config.into(), opening, now)
    }

    /// Looks for the first damage in a log that nobody has open, and changes nothing: after that, opening it
    /// ends it there. All below `flushed` was on the disk. Reads all of it.
    ///
    /// # Errors
    /// Where files cannot be read.
    pub fn first_damage(
        log_dir: &Arc<LogDir>,
        topic: &str,
        partition: PartitionIndex,
        flushed: Offset,
    ) -> Result<Option<Damage>, LogError> {
        recovery::first_damage(&log_dir.home(topic, partition), flushed)
    }

    /// The first offset that can be read.
    pub fn start(&self) -> Offset {
        self.start
    }

    /// The log end: the offset that the next record gets.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// True for an offset that can be read from, the end included.
    pub fn has_offset(&self, offset: Offset) -> bool {
        (self.start..=self.end).contains(&offset)
    }

    /// Raised by every truncation. A result obtained under an older one is to be dropped; where the log may have been
    /// closed meanwhile, one under another [`LogIdentity`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Which log this is, and in which generation.
    pub fn identity(&self) -> LogIdentity {
        LogIdentity { home: self.home.clone(), generation: self.generation }
    }

    /// Which files it has now; an append is no change.
    pub fn files(&self) -> LogFiles {
        LogFiles { identity: self.identity(), start: self.start, swaps: self.swaps }
    }

    /// The topic's id, as `partition.metadata` has it.
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Gives the topic's id to a log that has none, because its files are from before Kafka 2.8 or a crash
    /// came soon after it was created.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn adopt_topic_id(&mut self, topic_id: TopicId) -> Result<(), LogError> {
        self.dirt.created = true;
        self.dirt.changes += 1;
        recovery::write_topic_id(&self.home, topic_id)?;
        self.topic_id = topic_id;
        Ok(())
    }

    /// The log directory that it is in.
    pub fn log_dir(&self) -> &Path {
        self.home.path.parent().unwrap_or(&self.home.path)
    }

    /// Tells log directories apart: logs in the same one have the same number, as long as it is open.
    pub fn dir_number(&self) -> usize {
        self.home.dir_number()
    }

    /// The configuration in force.
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Puts another configuration in force, from the next append on.
    pub fn configure(&mut self, config: impl Into<Arc<LogConfig>>) {
        self.config = config.into();
    }

    /// The leader epochs.
    pub fn epochs(&self) -> &EpochHistory {
        &self.epochs
    }

    /// The newest leader epoch that has begun here; [`Epoch::NONE`] before any.
    pub fn latest_epoch(&self) -> Epoch {
        self.epochs.newest().unwrap_or(Epoch::NONE)
    }

    /// Begins an epoch at the log end: when this broker becomes leader. It is written down with its first batch: until
    /// then it says nothing that a leader would not begin anew, and at a start every log has a new one.
    ///
    /// # Errors
    /// Where a newer epoch has begun.
    pub fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), EpochError> {
        if self.epochs.newest() != Some(epoch) {
            self.epochs.begin(epoch, self.end)?;
            self.dirt.has_begun_epoch = true;
        }
        Ok(())
    }

    /// What is known of producers and transactions.
    pub fn producers(&self) -> &ProducerStates {
        &self.producers
    }

    /// The same, for verifications (KIP-890), which are no part of the log.
    pub fn producers_mut(&mut self) -> &mut ProducerStates {
        &mut self.producers
    }

    /// Forgets producers that were idle for too long: to be called now and then, every
    /// `producer.id.expiration.check.interval.ms`. Looks at each producer of the log.
    pub fn expire_producers(&mut self, now: Timestamp) {
        self.producers.expire(now, self.config.producer_expiration_ms);
    }

    /// The bytes of all segments' batches.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.size())).sum()
    }

    /// How many segments there are.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The offset below which every batch is on the disk. After a truncation into a gap between batches it
    /// stays at the end of the last batch, below the log end, until something is appended.
    pub fn flushed_to(&self) -> Offset {
        self.flushed_to
    }

    /// The offset from which on the next start after a crash would read the log again: everything below is
    /// flushed. No higher than [`Log::flushed_to`].
    pub fn recovery_point(&self) -> Offset {
        self.recovery_point
    }

    /// The bytes that were appended above the recovery point.
    pub fn unflushed_bytes(&self) -> u64 {
        self.dirt.appended_bytes - self.dirt.recoverable_bytes
    }

    /// The first offset whose transaction is open or not known to be replicated, within the log.
    pub fn first_unstable(&self) -> Option<Offset> {
        self.producers.first_unstable().map(|offset| offset.max(self.start))
    }

    /// Up to where a reader of committed records may read.
    pub fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        self.first_unstable().map_or(high_watermark, |unstable| unstable.min(high_watermark))
    }

    /// Lets completed transactions below the high watermark no longer hold back the last stable offset.
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        self.producers.on_high_watermark(high_watermark);
    }

    pub(crate) fn active(&self) -> &Segment {
        &self.segments[self.segments.len() - 1]
    }

    pub(crate) fn active_mut(&mut self) -> &mut Segment {
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    /// The segment that holds `offset`, if any does: the last one that begins at or below it.
    pub(crate) fn segment_of(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base() <= offset).saturating_sub(1)
    }

    /// Where a segment ends: at the base of the next, or at the log end.
    pub(crate) fn segment_end(&self, index: usize) -> Offset {
        self.segments.get(index + 1).map_or(self.end, Segment::base)
    }
}
