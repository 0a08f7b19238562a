//! Remote storage, which Tarn does not have: known so that a file that names them is understood.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Whether new followers begin behind what is in remote storage.
    "follower.fetch.last.tiered.offset.enable": Boolean = "false", Any, ClusterWide;
    /// Bytes kept locally of a tiered partition; -2 follows `log.retention.bytes`.
    "log.local.retention.bytes": Long = "-2", AtLeast(-2), ClusterWide;
    /// Age kept locally of a tiered partition; -2 follows `log.retention.ms`.
    "log.local.retention.ms": Long = "-2", AtLeast(-2), ClusterWide;
    /// Bytes that a closed segment waits behind before it is copied to remote storage.
    "log.remote.copy.lag.bytes": Long = "-1", AtLeast(-1), ClusterWide;
    /// Age of a closed segment before it is copied to remote storage.
    "log.remote.copy.lag.ms": Long = "0", AtLeast(-1), ClusterWide;
    /// Longest wait of a fetch for remote storage.
    "remote.fetch.max.wait.ms": Int = "500", AtLeast(1), ClusterWide;
    /// Longest search for an offset in remote storage.
    "remote.list.offsets.request.timeout.ms": Long = "30000", AtLeast(1), ClusterWide;
    /// Disk space for cached indexes of remote segments.
    "remote.log.index.file.cache.total.size.bytes": Long = "1073741824", AtLeast(1), ClusterWide;
    /// Threads that copy segments to remote storage.
    "remote.log.manager.copier.thread.pool.size": Int = "10", AtLeast(1), ClusterWide;
    /// Bytes per second copied to remote storage.
    "remote.log.manager.copy.max.bytes.per.second": Long = "9223372036854775807", AtLeast(1), ClusterWide;
    /// Samples kept for the quota of copies to remote storage.
    "remote.log.manager.copy.quota.window.num": Int = "11", AtLeast(1), ReadOnly;
    /// Seconds in each sample of that quota.
    "remote.log.manager.copy.quota.window.size.seconds": Int = "1", AtLeast(1), ReadOnly;
    /// Threads that delete expired remote segments.
    "remote.log.manager.expiration.thread.pool.size": Int = "10", AtLeast(1), ClusterWide;
    /// Bytes per second fetched from remote storage.
    "remote.log.manager.fetch.max.bytes.per.second": Long = "9223372036854775807", AtLeast(1), ClusterWide;
    /// Samples kept for the quota of remote fetches.
    "remote.log.manager.fetch.quota.window.num": Int = "11", AtLeast(1), ReadOnly;
    /// Seconds in each sample of that quota.
    "remote.log.manager.fetch.quota.window.size.seconds": Int = "1", AtLeast(1), ReadOnly;
    /// Threads that follow remote log state.
    "remote.log.manager.follower.thread.pool.size": Int = "2", AtLeast(1), ClusterWide;
    /// How often remote copies and expiries are looked for.
    "remote.log.manager.task.interval.ms": Long = "30000", AtLeast(1), ReadOnly;
    /// Threads of the remote log manager.
    "remote.log.manager.thread.pool.size": Int = "2", AtLeast(1), ReadOnly;
    /// Largest custom metadata of a remote segment.
    "remote.log.metadata.custom.metadata.max.bytes": Int = "128", AtLeast(0), ReadOnly;
    /// The class that keeps remote log metadata.
    "remote.log.metadata.manager.class.name": String =
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NonEmpty, ReadOnly;
    /// Where that class is found.
    "remote.log.metadata.manager.class.path": String = null, Any, ReadOnly;
    /// Prefix of that class's own keys.
    "remote.log.metadata.manager.impl.prefix": String = "rlmm.config.", NonEmpty, ReadOnly;
    /// The listener that it uses.
    "remote.log.metadata.manager.listener.name": String = null, NonEmpty, ReadOnly;
    /// Remote reads that may wait.
    "remote.log.reader.max.pending.tasks": Int = "100", AtLeast(1), ReadOnly;
    /// Threads that read remote segments.
    "remote.log.reader.threads": Int = "10", AtLeast(1), ClusterWide;
    /// The class that stores remote segments.
    "remote.log.storage.manager.class.name": String = null, NonEmpty, ReadOnly;
    /// Where that class is found.
    "remote.log.storage.manager.class.path": String = null, Any, ReadOnly;
    /// Prefix of that class's own keys.
    "remote.log.storage.manager.impl.prefix": String = "rsm.config.", NonEmpty, ReadOnly;
    /// Whether remote storage is on; it is not available here.
    "remote.log.storage.system.enable": Boolean = "false", Any, ReadOnly;
};
