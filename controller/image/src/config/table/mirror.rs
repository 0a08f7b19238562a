//! The keys of a cluster mirror (KIP-1279), in the spelling without the prefix `mirror.`.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Addresses where the source cluster is found, comma separated.
    "bootstrap.servers": List = required, NonEmpty, ClusterWide;
    /// The id of the source cluster, pinned when the mirror is created.
    "source.cluster.id": String = null, NonEmpty, ReadOnly;
    /// Longest wait for an answer of the source.
    "request.timeout.ms": Int = "30000", AtLeast(1), ClusterWide;
    /// Time to set up a connection to the source.
    "socket.connection.setup.timeout.ms": Long = "10000", AtLeast(1), ClusterWide;
    /// Longest time to set up a connection to the source, after failures.
    "socket.connection.setup.timeout.max.ms": Long = "30000", AtLeast(1), ClusterWide;
    /// Idle time after which a connection to the source is closed.
    "connections.max.idle.ms": Long = "600000", AtLeast(-1), ClusterWide;
    /// Longest wait of a fetch at the source.
    "fetch.wait.max.ms": Int = "500", AtLeast(0), ClusterWide;
    /// Wait after a failed fetch.
    "fetch.backoff.ms": Long = "1000", AtLeast(0), ClusterWide;
    /// Least bytes that a fetch waits for.
    "fetch.min.bytes": Int = "1", AtLeast(0), ClusterWide;
    /// Bytes asked for in one fetch.
    "fetch.response.max.bytes": Int = "2097152", AtLeast(1), ClusterWide;
    /// Bytes asked of each partition in one fetch.
    "fetch.max.bytes": Int = "2097152", AtLeast(1), ClusterWide;
    /// Longest wait for a byte of the source.
    "socket.timeout.ms": Int = "30000", AtLeast(1), ClusterWide;
    /// Receive buffer of connections to the source; unset, the kernel tunes it.
    "socket.receive.buffer.bytes": Int = null, AtLeast(-1), ClusterWide;
    /// Topic keys that are not copied from the source, as regular expressions.
    "topic.properties.exclude": List =
        "follower.replication.throttled.replicas,leader.replication.throttled.replicas,message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,message.timestamp.type,unclean.leader.election.enable,min.insync.replicas,mirror.replication.throttled.replicas,mirror.support.unclean.leader.election",
        Any, ClusterWide;
    /// Whether mirroring goes on after the source elected a leader that was not in sync: what only this cluster has is
    /// exported and dropped.
    "support.unclean.leader.election": Boolean = "false", Any, ClusterWide;
    /// Most records of a partition that are exported and dropped so; with more, or where the topic is compacted and would
    /// have to be mirrored again whole, it waits for an operator.
    "divergence.max.records": Long = "10000", AtLeast(0), ClusterWide;
    /// Topics that are mirrored as soon as the source has them, as regular expressions.
    "topics.include": List = "", Any, ClusterWide;
    /// Topics that are never mirrored, as regular expressions; stronger than `topics.include`.
    "topics.exclude": List = "__.*", Any, ClusterWide;
    /// Groups whose offsets are copied, as regular expressions.
    "groups.include": List = ".*", Any, ClusterWide;
    /// Groups whose offsets are not copied, as regular expressions; stronger than `groups.include`.
    "groups.exclude": List = "", Any, ClusterWide;
    /// Rules for the access control entries that are copied.
    "acls.include": List = "*", Any, ClusterWide;
    /// The security protocol towards the source.
    "security.protocol": String =
        "PLAINTEXT", OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), ClusterWide;
};
