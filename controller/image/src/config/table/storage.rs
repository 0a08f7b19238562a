//! Logs on disk: segments, retention, compaction, flushing.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Samples kept for the quota of moves between log directories.
    "alter.log.dirs.replication.quota.window.num": Int = "11", AtLeast(1), ReadOnly;
    /// Seconds in each sample of the quota of moves between log directories.
    "alter.log.dirs.replication.quota.window.size.seconds": Int = "1", AtLeast(1), ReadOnly;
    /// Level used where the broker compresses with gzip.
    "compression.gzip.level": Int = "-1", GzipLevel, ClusterWide;
    /// Level used where the broker compresses with lz4: 9 is the fast one, as in Kafka; all others take many times longer.
    "compression.lz4.level": Int = "9", Between(1, 17), ClusterWide;
    /// Codec of stored batches: one that is named, or `producer` for what the producer chose.
    "compression.type": String =
        "producer", OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), ClusterWide;
    /// Level used where the broker compresses with zstd.
    "compression.zstd.level": Int = "3", Between(-131072, 22), ClusterWide;
    /// Log directories that take no new replicas.
    "cordoned.log.dirs": List = "", Any, PerBroker;
    /// Sleep of the cleaner when nothing needs cleaning.
    "log.cleaner.backoff.ms": Long = "15000", AtLeast(0), ClusterWide;
    /// Memory for the cleaner's map of keys.
    "log.cleaner.dedupe.buffer.size": Long = "134217728", Any, ClusterWide;
    /// How long compaction keeps the marks of deleted keys.
    "log.cleaner.delete.retention.ms": Long = "86400000", AtLeast(0), ClusterWide;
    /// Whether compaction runs.
    "log.cleaner.enable": Boolean = "true", Any, ReadOnly;
    /// How full the cleaner's map of keys may become.
    "log.cleaner.io.buffer.load.factor": Double = "0.9", Any, ClusterWide;
    /// Memory for the cleaner's reads and writes.
    "log.cleaner.io.buffer.size": Int = "524288", AtLeast(0), ClusterWide;
    /// Bytes per second that the cleaner reads and writes.
    "log.cleaner.io.max.bytes.per.second": Double = "1.7976931348623157E308", Any, ClusterWide;
    /// Longest time that a record may escape compaction.
    "log.cleaner.max.compaction.lag.ms": Long = "9223372036854775807", AtLeast(1), ClusterWide;
    /// Share of a log that must be dirty before it is compacted.
    "log.cleaner.min.cleanable.ratio": Double = "0.5", Between(0, 1), ClusterWide;
    /// Shortest age of a record before it may be compacted away.
    "log.cleaner.min.compaction.lag.ms": Long = "0", AtLeast(0), ClusterWide;
    /// Threads of the cleaner.
    "log.cleaner.threads": Int = "1", AtLeast(0), ClusterWide;
    /// What becomes of old segments: `delete`, `compact`, both or neither.
    "log.cleanup.policy": List = "delete", ListOf(&["compact", "delete"]), ClusterWide;
    /// Where logs are kept, if `log.dirs` is unset.
    "log.dir": List = "/tmp/kafka-logs", Any, ReadOnly;
    /// How long a broker with a failed log directory tries to report it before it stops.
    "log.dir.failure.timeout.ms": Long = "30000", AtLeast(1), ReadOnly;
    /// Directories where logs are kept, comma separated.
    "log.dirs": List = null, Any, ReadOnly;
    /// Records after which a log is flushed.
    "log.flush.interval.messages": Long = "9223372036854775807", AtLeast(1), ClusterWide;
    /// Longest time that a record stays unflushed.
    "log.flush.interval.ms": Long = null, Any, ClusterWide;
    /// How often recovery points are written down; all checkpoints are, at the shortest such interval.
    "log.flush.offset.checkpoint.interval.ms": Int = "60000", AtLeast(0), ReadOnly;
    /// How often logs are looked through for what must be flushed.
    "log.flush.scheduler.interval.ms": Long = "9223372036854775807", Any, ReadOnly;
    /// How often log start offsets are written down; all checkpoints are, at the shortest such interval.
    "log.flush.start.offset.checkpoint.interval.ms": Int = "60000", AtLeast(0), ReadOnly;
    /// Bytes of log between two entries of its index.
    "log.index.interval.bytes": Int = "4096", AtLeast(0), ClusterWide;
    /// Largest size of an index file.
    "log.index.size.max.bytes": Int = "10485760", AtLeast(4), ClusterWide;
    /// How far a record's timestamp may lie ahead of the broker's clock.
    "log.message.timestamp.after.max.ms": Long = "3600000", AtLeast(0), ClusterWide;
    /// How far a record's timestamp may lie behind the broker's clock.
    "log.message.timestamp.before.max.ms": Long = "9223372036854775807", AtLeast(0), ClusterWide;
    /// Whose time a record carries: the producer's or that of the append.
    "log.message.timestamp.type": String = "CreateTime", OneOf(&["CreateTime", "LogAppendTime"]), ClusterWide;
    /// Whether segments are allocated in full when created.
    "log.preallocate": Boolean = "false", Any, ClusterWide;
    /// Size of a partition beyond which its oldest segments are deleted; -1 for none.
    "log.retention.bytes": Long = "-1", Any, ClusterWide;
    /// How often logs are looked through for what may be deleted.
    "log.retention.check.interval.ms": Long = "300000", AtLeast(1), ReadOnly;
    /// Age in hours at which segments are deleted, if no finer unit is set.
    "log.retention.hours": Int = "168", Any, ReadOnly;
    /// Age in minutes at which segments are deleted, if milliseconds are not set.
    "log.retention.minutes": Int = null, Any, ReadOnly;
    /// Age in milliseconds at which segments are deleted; -1 for never.
    "log.retention.ms": Long = null, Any, ClusterWide;
    /// Age in hours at which a new segment begins, if milliseconds are not set.
    "log.roll.hours": Int = "168", AtLeast(1), ReadOnly;
    /// Random part, in hours, taken off the age at which a segment ends.
    "log.roll.jitter.hours": Int = "0", AtLeast(0), ReadOnly;
    /// Random part, in milliseconds, taken off the age at which a segment ends.
    "log.roll.jitter.ms": Long = null, Any, ClusterWide;
    /// Age in milliseconds at which a new segment begins.
    "log.roll.ms": Long = null, Any, ClusterWide;
    /// Largest size of a segment.
    "log.segment.bytes": Int = "1073741824", AtLeast(1048576), ClusterWide;
    /// Wait before the files of a deleted segment are removed.
    "log.segment.delete.delay.ms": Long = "60000", AtLeast(0), ClusterWide;
    /// Largest size of one record after decompression.
    "max.decompressed.message.bytes": Int = "2147483639", Between(1, 2147483639), ClusterWide;
    /// Largest record batch that a producer may send.
    "message.max.bytes": Int = "1048588", AtLeast(0), ClusterWide;
    /// Threads that recover logs, for each log directory.
    "num.recovery.threads.per.data.dir": Int = "2", AtLeast(1), ClusterWide;
    /// Threads that move replicas between log directories.
    "num.replica.alter.log.dirs.threads": Int = null, Any, ReadOnly;
};
