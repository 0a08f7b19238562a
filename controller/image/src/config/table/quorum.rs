//! Controllers and the metadata log.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Listeners used by controllers, comma separated; the first is the one that brokers connect to.
    "controller.listener.names": List = required, Any, ReadOnly;
    /// How long the leader of the quorum gathers records before it flushes them.
    "controller.quorum.append.linger.ms": Int = "25", AtLeast(0), ReadOnly;
    /// Whether a controller joins the voters by itself.
    "controller.quorum.auto.join.enable": Boolean = "false", Any, ReadOnly;
    /// Addresses where a member of a dynamic quorum can be found.
    "controller.quorum.bootstrap.servers": List = "", Any, ReadOnly;
    /// Longest random wait before a new candidacy.
    "controller.quorum.election.backoff.max.ms": Int = "1000", AtLeast(0), ReadOnly;
    /// Time without a leader after which an election begins.
    "controller.quorum.election.timeout.ms": Int = "1000", AtLeast(0), ReadOnly;
    /// Most bytes of the metadata log in one fetch.
    "controller.quorum.fetch.max.bytes": Int = "1048576", AtLeast(1), ReadOnly;
    /// Most bytes of a metadata snapshot in one fetch.
    "controller.quorum.fetch.snapshot.max.bytes": Int = "1048576", AtLeast(1), ReadOnly;
    /// Time without a successful fetch after which a voter becomes a candidate.
    "controller.quorum.fetch.timeout.ms": Int = "2000", AtLeast(0), ReadOnly;
    /// Longest wait for an answer within the quorum.
    "controller.quorum.request.timeout.ms": Int = "2000", AtLeast(0), ReadOnly;
    /// Wait before a request within the quorum is tried again.
    "controller.quorum.retry.backoff.ms": Int = "20", AtLeast(0), ReadOnly;
    /// The voters of a static quorum as `id@host:port`.
    "controller.quorum.voters": List = "", Any, ReadOnly;
    /// Samples kept for the quota of controller mutations.
    "controller.quota.window.num": Int = "11", AtLeast(1), ReadOnly;
    /// Seconds in each sample of the quota of controller mutations.
    "controller.quota.window.size.seconds": Int = "1", AtLeast(1), ReadOnly;
    /// Longest wait of a broker for an answer of the controller.
    "controller.socket.timeout.ms": Int = "30000", Any, ReadOnly;
    /// Where the metadata log is kept; unset, the first of `log.dirs`.
    "metadata.log.dir": String = null, Any, ReadOnly;
    /// Bytes of the metadata log after which a snapshot is written.
    "metadata.log.max.record.bytes.between.snapshots": Long = "20971520", AtLeast(1), ReadOnly;
    /// Time after which a snapshot of changed metadata is written; 0 for never.
    "metadata.log.max.snapshot.interval.ms": Long = "3600000", AtLeast(0), ReadOnly;
    /// Largest size of a segment of the metadata log.
    "metadata.log.segment.bytes": Int = "1073741824", AtLeast(8388608), ReadOnly;
    /// Age at which a new segment of the metadata log begins.
    "metadata.log.segment.ms": Long = "604800000", Any, ReadOnly;
    /// Longest silence of the metadata log before the controller writes an empty record; 0 for no limit.
    "metadata.max.idle.interval.ms": Int = "500", AtLeast(0), ReadOnly;
    /// Size of metadata log and snapshots beyond which the oldest are deleted.
    "metadata.max.retention.bytes": Long = "104857600", Any, ReadOnly;
    /// Age at which old metadata log segments and snapshots are deleted.
    "metadata.max.retention.ms": Long = "604800000", Any, ReadOnly;
};
