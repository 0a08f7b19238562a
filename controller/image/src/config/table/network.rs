//! Listeners, connections, requests and their quotas.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Addresses given to clients and other nodes; where unset, those of `listeners`.
    "advertised.listeners": List = null, Any, ReadOnly;
    /// A class that decides about quotas; not available here.
    "client.quota.callback.class": Class = null, Any, ReadOnly;
    /// Idle time after which a connection is closed.
    "connections.max.idle.ms": Long = "600000", Any, ReadOnly;
    /// Waiting DeleteRecords requests after which finished ones are purged.
    "delete.records.purgatory.purge.interval.requests": Int = "1", Any, ReadOnly;
    /// Listeners opened before the authorizer is ready.
    "early.start.listeners": List = null, Any, ReadOnly;
    /// Most bytes in the answer to one fetch.
    "fetch.max.bytes": Int = "57671680", AtLeast(1024), ReadOnly;
    /// Waiting fetches after which finished ones are purged.
    "fetch.purgatory.purge.interval.requests": Int = "1000", Any, ReadOnly;
    /// The listener that brokers use among themselves.
    "inter.broker.listener.name": String = null, Any, ReadOnly;
    /// The security protocol of each listener name.
    "listener.security.protocol.map": String =
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", Any, PerBroker;
    /// Addresses to listen on, as `NAME://host:port`.
    "listeners": List = "PLAINTEXT://:9092", Any, PerBroker;
    /// New connections accepted in a second; more wait to be accepted.
    "max.connection.creation.rate": Int = "2147483647", AtLeast(0), ClusterWide;
    /// Most connections at once; more wait to be accepted.
    "max.connections": Int = "2147483647", AtLeast(0), ClusterWide;
    /// Most connections from one address; more are closed, each when it is its turn to be accepted.
    "max.connections.per.ip": Int = "2147483647", AtLeast(0), ClusterWide;
    /// Limits for single addresses, as `host:count`, comma separated; a name stands for all its addresses.
    "max.connections.per.ip.overrides": String = "", HostCounts, ClusterWide;
    /// Incremental fetch sessions kept.
    "max.incremental.fetch.session.cache.slots": Int = "1000", AtLeast(0), ReadOnly;
    /// Most partitions in one answer of DescribeTopicPartitions.
    "max.request.partition.size.limit": Int = "2000", AtLeast(1), ReadOnly;
    /// Threads that serve requests; here each core does.
    "num.io.threads": Int = "8", AtLeast(1), ClusterWide;
    /// Threads that serve connections; here each core does.
    "num.network.threads": Int = "3", AtLeast(1), ClusterWide;
    /// Waiting produce requests after which finished ones are purged.
    "producer.purgatory.purge.interval.requests": Int = "1000", Any, ReadOnly;
    /// Bytes of requests in flight beyond which sockets are not read; -1 for 256 MiB for each core.
    "queued.max.request.bytes": Long = "-1", Any, ReadOnly;
    /// Requests in flight beyond which sockets are not read.
    "queued.max.requests": Int = "500", AtLeast(1), ReadOnly;
    /// Samples kept for client quotas.
    "quota.window.num": Int = "11", AtLeast(1), ReadOnly;
    /// Seconds in each sample of client quotas.
    "quota.window.size.seconds": Int = "1", AtLeast(1), ReadOnly;
    /// Longest wait for an answer to a request that this node sends.
    "request.timeout.ms": Int = "30000", Any, ReadOnly;
    /// Longest time to set up a connection, after failures.
    "socket.connection.setup.timeout.max.ms": Long = "30000", Any, ReadOnly;
    /// Time to set up a connection.
    "socket.connection.setup.timeout.ms": Long = "10000", Any, ReadOnly;
    /// Connections that may wait to be accepted.
    "socket.listen.backlog.size": Int = "50", AtLeast(1), ReadOnly;
    /// Receive buffer of accepted sockets; -1 leaves it to the kernel, unlike Kafka's default of 102400.
    "socket.receive.buffer.bytes": Int = "-1", Any, ReadOnly;
    /// Largest request.
    "socket.request.max.bytes": Int = "104857600", AtLeast(1), ReadOnly;
    /// Send buffer of accepted sockets; -1 leaves it to the kernel, unlike Kafka's default of 102400.
    "socket.send.buffer.bytes": Int = "-1", Any, ReadOnly;
    /// Largest push of client metrics.
    "telemetry.max.bytes": Int = "1048576", AtLeast(1), ReadOnly;
};
