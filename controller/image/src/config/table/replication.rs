//! Topics and the replication of their partitions.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// A class that judges config changes; not available here.
    "alter.config.policy.class.name": Class = null, Any, ReadOnly;
    /// Whether asking for an unknown topic creates it; never one that the patterns of a mirror mean.
    "auto.create.topics.enable": Boolean = "true", Any, ReadOnly;
    /// Whether leadership goes back to preferred replicas by itself.
    "auto.leader.rebalance.enable": Boolean = "true", Any, ReadOnly;
    /// How often a broker tells the controller that it lives.
    "broker.heartbeat.interval.ms": Int = "2000", Any, ReadOnly;
    /// Silence after which the controller fences a broker.
    "broker.session.timeout.ms": Int = "9000", Any, ReadOnly;
    /// Whether a broker hands its leaderships over before it stops.
    "controlled.shutdown.enable": Boolean = "true", Any, ReadOnly;
    /// A class that judges new topics; not available here.
    "create.topic.policy.class.name": Class = null, Any, ReadOnly;
    /// Replicas of a topic created without a number of its own.
    "default.replication.factor": Int = "1", Any, ReadOnly;
    /// Whether topics may be deleted.
    "delete.topic.enable": Boolean = "true", Any, ReadOnly;
    /// How long a starting broker tries to register.
    "initial.broker.registration.timeout.ms": Int = "60000", Any, ReadOnly;
    /// How often the controller looks for leaders that are not the preferred replica.
    "leader.imbalance.check.interval.seconds": Long = "300", AtLeast(1), ReadOnly;
    /// Replicas that must hold a batch before acks=all is answered.
    "min.insync.replicas": Int = "1", AtLeast(1), ClusterWide;
    /// Partitions of a topic created without a number of its own.
    "num.partitions": Int = "1", AtLeast(1), ReadOnly;
    /// Fetchers from each source broker for replication.
    "num.replica.fetchers": Int = "1", AtLeast(1), ClusterWide;
    /// Wait of a follower after a failed fetch.
    "replica.fetch.backoff.ms": Int = "1000", AtLeast(0), ReadOnly;
    /// Bytes that a follower asks of each partition.
    "replica.fetch.max.bytes": Int = "1048576", AtLeast(0), ReadOnly;
    /// Least bytes that a follower waits for.
    "replica.fetch.min.bytes": Int = "1", Any, ReadOnly;
    /// Bytes that a follower asks for in one fetch.
    "replica.fetch.response.max.bytes": Int = "10485760", AtLeast(0), ReadOnly;
    /// Longest wait of a follower's fetch.
    "replica.fetch.wait.max.ms": Int = "500", Any, ReadOnly;
    /// How often high watermarks are written down; all checkpoints are, at the shortest such interval.
    "replica.high.watermark.checkpoint.interval.ms": Long = "5000", Any, ReadOnly;
    /// How long a follower may lag before it leaves the in-sync replicas.
    "replica.lag.time.max.ms": Long = "30000", Any, ReadOnly;
    /// The class that chooses a replica to read from.
    "replica.selector.class": String = null, Any, ReadOnly;
    /// Receive buffer of a follower's connection.
    "replica.socket.receive.buffer.bytes": Int = "65536", Any, ReadOnly;
    /// Longest wait of a follower for an answer.
    "replica.socket.timeout.ms": Int = "30000", Any, ReadOnly;
    /// Samples kept for replication quotas.
    "replication.quota.window.num": Int = "11", AtLeast(1), ReadOnly;
    /// Seconds in each sample of replication quotas.
    "replication.quota.window.size.seconds": Int = "1", AtLeast(1), ReadOnly;
    /// Whether a replica that is not in sync may lead as a last resort.
    "unclean.leader.election.enable": Boolean = "false", Any, ClusterWide;
};
