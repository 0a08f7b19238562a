//! What Kafka 4.4 does not have: cluster mirroring (KIP-1279) and Tarn's own keys.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Partitions of `__mirror_state`; must not change once it exists.
    "mirror.state.topic.num.partitions": Int = "50", AtLeast(1), ReadOnly;
    /// Replicas of `__mirror_state`, as far as there are brokers.
    "mirror.state.topic.replication.factor": Short = "3", AtLeast(1), ReadOnly;
    /// Connections that mirror from one source broker.
    "mirror.num.replica.fetchers": Int = "1", AtLeast(1), ClusterWide;
    /// How often topics, configs, offsets and access control are compared with the source.
    "mirror.metadata.refresh.interval.ms": Long = "30000", AtLeast(0), ClusterWide;
    /// First wait before a failed mirror partition is tried again.
    "mirror.failed.retry.initial.backoff.ms": Long = "100", AtLeast(1), ReadOnly;
    /// Longest wait before a failed mirror partition is tried again.
    "mirror.failed.retry.max.backoff.ms": Long = "300000", AtLeast(1), ReadOnly;
    /// How often a failed mirror partition is tried again; 0 for never. While the disk here is full, always.
    "mirror.failed.retry.max.attempts": Int = "20", Between(0, 32767), ReadOnly;
    /// Longest write of mirror state.
    "mirror.coordinator.write.timeout.ms": Long = "5000", AtLeast(1), ReadOnly;
    /// How long the mirror coordinator gathers records before it writes.
    "mirror.coordinator.append.linger.ms": Int = "10", AtLeast(0), ReadOnly;
    /// Bytes read at once when mirror state is loaded.
    "mirror.coordinator.load.buffer.size": Int = "5242880", AtLeast(1), ReadOnly;
    /// CPUs that run cores: `0`, `0-3`, `0,0,1,1`; at most 256, on CPUs that the process may use. Empty for all.
    "tarn.cores": String = "", Any, ReadOnly;
    /// CPUs that run mirror cores, written like `tarn.cores`. Empty for a quarter of them, from three on.
    "tarn.mirror.cores": String = "", Any, ReadOnly;
    /// Memory for answers of source clusters in flight.
    "tarn.mirror.fetch.memory.bytes": Long = "134217728", AtLeast(1048576), ReadOnly;
    /// Largest batch that is mirrored.
    "tarn.mirror.batch.max.bytes": Int = "104857600", AtLeast(1048576), ReadOnly;
    /// Where records are kept that were cut off for a mirror, in `<cluster id>/<node id>` of it, so that several nodes
    /// may have the same; unset for `mirror-exports` beside the metadata log.
    "tarn.mirror.export.dir": String = null, NonEmpty, ReadOnly;
    /// Address for Prometheus and health checks (`/metrics`, `/healthz`, `/readyz`), as `host:port`; unset for none.
    "tarn.admin.listener": String = null, NonEmpty, ReadOnly;
    /// A node with more topics that had traffic tells the sums of all alone. 0 for never one by one.
    "tarn.metrics.topics.max": Int = "1000", AtLeast(0), ReadOnly;
    /// A node with more partitions tells nothing of each, such as the size of its log. 0 for never.
    "tarn.metrics.partitions.max": Int = "2000", AtLeast(0), ReadOnly;
    /// How log lines are written: for people, or one JSON object each.
    "tarn.log.format": String = "text", OneOf(&["text", "json"]), ReadOnly;
};
