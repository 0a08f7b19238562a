//! The keys of topics.

use super::{ConfigKey, keys};

/// Kafka's, in its own order, which decides how equals are listed.
pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Largest size of a segment.
    "segment.bytes": Int = "1073741824", AtLeast(1048576), ClusterWide, from ["log.segment.bytes"];
    /// Age at which a new segment begins, full or not.
    "segment.ms": Long = "604800000", AtLeast(1), ClusterWide,
        from ["log.roll.ms", "log.roll.hours" * 3_600_000];
    /// Random part taken off the age at which a segment ends.
    "segment.jitter.ms": Long = "0", AtLeast(0), ClusterWide,
        from ["log.roll.jitter.ms", "log.roll.jitter.hours" * 3_600_000];
    /// Largest size of an index file.
    "segment.index.bytes": Int = "10485760", AtLeast(4), ClusterWide, from ["log.index.size.max.bytes"];
    /// Records after which the log is flushed.
    "flush.messages": Long = "9223372036854775807", AtLeast(1), ClusterWide,
        from ["log.flush.interval.messages"];
    /// Longest time that a record stays unflushed, looked at once a second.
    "flush.ms": Long = "9223372036854775807", AtLeast(0), ClusterWide,
        from ["log.flush.interval.ms", "log.flush.scheduler.interval.ms"];
    /// Size of a partition beyond which its oldest segments are deleted; -1 for none.
    "retention.bytes": Long = "-1", Any, ClusterWide, from ["log.retention.bytes"];
    /// Age at which segments are deleted; -1 for never.
    "retention.ms": Long = "604800000", AtLeast(-1), ClusterWide,
        from ["log.retention.ms", "log.retention.minutes" * 60_000, "log.retention.hours" * 3_600_000];
    /// Largest record batch that a producer may send.
    "max.message.bytes": Int = "1048588", AtLeast(0), ClusterWide, from ["message.max.bytes"];
    /// Largest size of one record after decompression.
    "max.decompressed.message.bytes": Int = "2147483639", Between(1, 2147483639), ClusterWide,
        from ["max.decompressed.message.bytes"];
    /// Bytes of log between two entries of its index.
    "index.interval.bytes": Int = "4096", AtLeast(0), ClusterWide, from ["log.index.interval.bytes"];
    /// How long compaction keeps the mark of a deleted key.
    "delete.retention.ms": Long = "86400000", AtLeast(0), ClusterWide, from ["log.cleaner.delete.retention.ms"];
    /// Shortest age of a record before it may be compacted away.
    "min.compaction.lag.ms": Long = "0", AtLeast(0), ClusterWide, from ["log.cleaner.min.compaction.lag.ms"];
    /// Longest time that a record may escape compaction.
    "max.compaction.lag.ms": Long = "9223372036854775807", AtLeast(1), ClusterWide,
        from ["log.cleaner.max.compaction.lag.ms"];
    /// Wait before the files of a deleted segment are removed.
    "file.delete.delay.ms": Long = "60000", AtLeast(0), ClusterWide, from ["log.segment.delete.delay.ms"];
    /// Share of the log that must be dirty before it is compacted.
    "min.cleanable.dirty.ratio": Double = "0.5", Between(0, 1), ClusterWide,
        from ["log.cleaner.min.cleanable.ratio"];
    /// What becomes of old segments: `delete`, `compact`, both or neither.
    "cleanup.policy": List = "delete", ListOf(&["compact", "delete"]), ClusterWide, from ["log.cleanup.policy"];
    /// Whether a replica that is not in sync may lead as a last resort.
    "unclean.leader.election.enable": Boolean = "false", Any, ClusterWide,
        from ["unclean.leader.election.enable"];
    /// Replicas that must hold a batch before acks=all is answered.
    "min.insync.replicas": Int = "1", AtLeast(1), ClusterWide, from ["min.insync.replicas"];
    /// Codec of stored batches: one that is named, or `producer` for what the producer chose.
    "compression.type": String = "producer", OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), ClusterWide,
        from ["compression.type"];
    /// Level used where the broker compresses with gzip.
    "compression.gzip.level": Int = "-1", GzipLevel, ClusterWide, from ["compression.gzip.level"];
    /// Level used where the broker compresses with lz4: 9 is the fast one, as in Kafka; all others take many times longer.
    "compression.lz4.level": Int = "9", Between(1, 17), ClusterWide, from ["compression.lz4.level"];
    /// Level used where the broker compresses with zstd.
    "compression.zstd.level": Int = "3", Between(-131072, 22), ClusterWide, from ["compression.zstd.level"];
    /// Whether segments are allocated in full when created.
    "preallocate": Boolean = "false", Any, ClusterWide, from ["log.preallocate"];
    /// Whose time a record carries: the producer's or that of the append.
    "message.timestamp.type": String = "CreateTime", OneOf(&["CreateTime", "LogAppendTime"]), ClusterWide,
        from ["log.message.timestamp.type"];
    /// How far a record's timestamp may lie behind the broker's clock.
    "message.timestamp.before.max.ms": Long = "9223372036854775807", AtLeast(0), ClusterWide,
        from ["log.message.timestamp.before.max.ms"];
    /// How far a record's timestamp may lie ahead of the broker's clock.
    "message.timestamp.after.max.ms": Long = "3600000", AtLeast(0), ClusterWide,
        from ["log.message.timestamp.after.max.ms"];
    /// Replicas throttled on the leading side, as `partition:broker`, or `*` for all.
    "leader.replication.throttled.replicas": List = "", ThrottledReplicas, ClusterWide;
    /// Replicas throttled on the following side, as `partition:broker`, or `*` for all.
    "follower.replication.throttled.replicas": List = "", ThrottledReplicas, ClusterWide;
    /// Whether this topic uses remote storage; it is not available here.
    "remote.storage.enable": Boolean = "false", Any, ClusterWide;
    /// Age kept locally of a tiered partition; -2 follows `retention.ms`.
    "local.retention.ms": Long = "-2", AtLeast(-2), ClusterWide, from ["log.local.retention.ms"];
    /// Bytes kept locally of a tiered partition; -2 follows `retention.bytes`.
    "local.retention.bytes": Long = "-2", AtLeast(-2), ClusterWide, from ["log.local.retention.bytes"];
    /// Whether no more segments are copied to remote storage.
    "remote.log.copy.disable": Boolean = "false", Any, ClusterWide;
    /// Age of a closed segment before it is copied to remote storage.
    "remote.copy.lag.ms": Long = "0", AtLeast(-1), ClusterWide, from ["log.remote.copy.lag.ms"];
    /// Bytes that a closed segment waits behind before it is copied to remote storage.
    "remote.copy.lag.bytes": Long = "-1", AtLeast(-1), ClusterWide, from ["log.remote.copy.lag.bytes"];
    /// Whether remote data is deleted when remote storage is switched off.
    "remote.log.delete.on.disable": Boolean = "false", Any, ClusterWide;
    /// Whether share groups may use this topic as a dead-letter queue.
    "errors.deadletterqueue.group.enable": Boolean = "false", Any, ClusterWide;
};

/// Tarn's own.
pub(super) const OWN_KEYS: &[ConfigKey] = keys! {
    /// The mirror that fills this topic. Set by the mirror's commands only.
    "mirror.name": String = null, Any, ReadOnly;
    /// What is wanted of this mirror topic: state, version, consent to truncation. Set by the mirror's commands only.
    "mirror.desired.state": String = null, Any, ReadOnly;
    /// Replicas whose mirroring is throttled, as `partition:broker`, or `*` for all.
    "mirror.replication.throttled.replicas": List = "", ThrottledReplicas, ClusterWide;
    /// Whether mirroring goes on after the source elected a leader that was not in sync: what only this cluster has is
    /// exported and dropped. Set for a topic, it goes before what is set for its mirror.
    "mirror.support.unclean.leader.election": Boolean = "false", Any, ClusterWide;
    /// Another name of `mirror.support.unclean.leader.election`, which goes before this one.
    "mirror.unclean.leader.election.enable": Boolean = "false", Any, ClusterWide;
    /// Most records of a partition that are exported and dropped so; with more, or where the topic is compacted and would
    /// have to be mirrored again whole, it waits for an operator. Unset, what is set for the mirror.
    "mirror.divergence.max.records": Long = null, AtLeast(0), ClusterWide;
    /// What is flushed before it is acknowledged: nothing (`none`), what `acks=all` confirms (`group`), or also what
    /// `acks=1` confirms (`each`); appends that come in meanwhile share a flush. Unset, `each` where `flush.messages`
    /// is 1; else `group` with one replica or two, and `none` with more.
    "flush.policy": String = null, OneOf(&["none", "group", "each"]), ClusterWide;
};
