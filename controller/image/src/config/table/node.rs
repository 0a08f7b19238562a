//! What a node is and where its work goes.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Threads for background work; the blocking pool has its own size here.
    "background.threads": Int = "10", AtLeast(1), ClusterWide;
    /// Old name of `node.id`.
    "broker.id": Int = "-1", Any, ReadOnly;
    /// The rack of this broker, used when replicas are placed and by rack-aware clients.
    "broker.rack": String = null, Any, ReadOnly;
    /// Providers for values kept outside this file; not available here.
    "config.providers": List = "", Any, ClusterWide;
    /// Polling interval of metrics reporters; metrics are scraped over HTTP here.
    "kafka.metrics.polling.interval.secs": Int = "10", AtLeast(1), ReadOnly;
    /// Classes of metrics reporters; not available here.
    "kafka.metrics.reporters": List = "", Any, ReadOnly;
    /// Classes of metrics reporters; not available here.
    "metric.reporters": List = "org.apache.kafka.common.metrics.JmxReporter", Any, ClusterWide;
    /// Samples kept for a metric.
    "metrics.num.samples": Int = "2", AtLeast(1), ReadOnly;
    /// The level of detail of metrics.
    "metrics.recording.level": String = "INFO", Any, ReadOnly;
    /// Time covered by one sample of a metric.
    "metrics.sample.window.ms": Long = "30000", AtLeast(1), ReadOnly;
    /// The number of this node, unique in the cluster.
    "node.id": Int = required, AtLeast(0), ReadOnly;
    /// What this node is: `broker`, `controller` or both.
    "process.roles": List = required, ListOf(&["broker", "controller"]), ReadOnly;
};
