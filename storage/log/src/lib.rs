//! What one broker keeps on its disks: partition logs in Apache Kafka's on-disk format.
//!
//! A [`Log`] is one partition: segments of record batches with their indexes, the leader epochs and
//! the producer states that go with them. A [`LogDir`] is one entry of `log.dirs`: its lock, its
//! checkpoint files and the partitions found in it. [`Descriptors`] is the node's budget of open files.
//!
//! Nothing here has a runtime, a clock or a socket: callers pass the time, and what may take long comes
//! back as a job that any thread can run.

pub mod checkpoints;
mod compaction;
pub mod descriptors;
pub mod disk;
pub mod epochs;
pub mod known_dirs;
pub mod limits;
pub mod log;
pub mod log_dir;
pub mod meta_properties;
pub mod producers;
pub mod read_plan;
mod recovery;
pub mod segment;

mod config;
mod error;
mod home;
mod removal;
mod retention;

pub use compaction::{
    CleanBound, CleanError, CleanRules, Cleaned, Cleaning, Dirtiness, OffsetMap, Round, SegmentTimestamps,
    Spent, SwapError, Swapped, Watch,
};
pub use config::{FlushPolicy, LogConfig, Retention};
pub use descriptors::{Descriptors, SegmentFile};
pub use disk::{Disk, DiskFile, FileSystem, Reach, ReadFrom, RealDisk};
pub use epochs::{EpochEnd, EpochError, EpochHistory, EpochStart};
pub use error::{AppendError, LogError, ReadError};
pub use log::{
    Aborted, AbortedSearch, Appended, BatchBelowSearch, ExportDir, ExportJob, ExportNote, Exported, FlushJob,
    Flushed, FoundTimestamp, FoundTruncation, KnownSearch, Log, LogBatches, LogFiles, LogIdentity,
    NotedExport, Read, ReadOrder, ReadSearch, RecordCounts, TimestampSearch, Together, Truncated,
    TruncationSearch, close_together, flush_together,
};
pub use log_dir::{FoundPartition, LogDir, LogDirError, PartitionOffsets};
pub use read_plan::{FileSlice, FirstBatch, ReadPlan};
pub use recovery::{Damage, EpochsFault, Fault, Hole, Opening, RebuiltTxnIndex, RecoveryReport};
pub use removal::RemovalJob;
pub use retention::{AgeSearch, Ages, Expiry};
pub use segment::txn_index::AbortedTransaction;
