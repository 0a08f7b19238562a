//! A topic's configuration as the broker and the log use it: numbers instead of text.

use tarn_record::batch::TimestampType;
use tarn_record::codec::Compression;

use super::{BrokerView, topic_value};
use crate::config::table;
use crate::config::value::elements;
use crate::configs::ConfigMap;

/// What becomes of old segments. Both may be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// Old segments are deleted.
    pub delete: bool,
    /// Older values of a key are removed.
    pub compact: bool,
}

/// How stored batches are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicCompression {
    /// As the producer chose.
    Producer,
    /// Always with this codec.
    Codec(Compression),
}

/// What is flushed before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushPolicy {
    /// Not set: by the number of replicas.
    ByReplicas,
    /// Nothing is before it is acknowledged.
    None,
    /// What `acks=all` confirms.
    Group,
    /// What `acks=1` confirms, too.
    Each,
}

/// The topic keys that a node acts on. The others are kept, validated, shown and mirrored.
const ACTED_ON: &[&str] = &[
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "flush.policy",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.decompressed.message.bytes",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
];

/// True for a topic key that changes what a node does.
pub fn acts_on(topic_key: &str) -> bool {
    ACTED_ON.contains(&topic_key)
}

/// The same for the keys that only Tarn has.
pub fn acts_on_own(topic_key: &str) -> bool {
    !OWN_NOT_ACTED_ON.contains(&topic_key)
}

const OWN_NOT_ACTED_ON: [&str; 1] = ["mirror.replication.throttled.replicas"];

/// Every value in force for one topic. `acts_on` says which of them matter yet.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`
    pub cleanup: Cleanup,
    /// `compression.type`
    pub compression: TopicCompression,
    /// `compression.gzip.level`
    pub gzip_level: i32,
    /// `compression.lz4.level`
    pub lz4_level: i32,
    /// `compression.zstd.level`
    pub zstd_level: i32,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: i64,
    /// `flush.policy`
    pub flush: FlushPolicy,
    /// `flush.messages`
    pub flush_messages: i64,
    /// `flush.ms`
    pub flush_ms: i64,
    /// `index.interval.bytes`
    pub index_interval_bytes: i32,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `max.decompressed.message.bytes`
    pub max_decompressed_message_bytes: i32,
    /// `max.message.bytes`
    pub max_message_bytes: i32,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `min.cleanable.dirty.ratio`
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`
    pub min_insync_replicas: i32,
    /// `preallocate`
    pub preallocate: bool,
    /// `retention.bytes`
    pub retention_bytes: i64,
    /// `retention.ms`
    pub retention_ms: i64,
    /// `segment.bytes`
    pub segment_bytes: i32,
    /// `segment.index.bytes`
    pub segment_index_bytes: i32,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `segment.ms`
    pub segment_ms: i64,
    /// `unclean.leader.election.enable`
    pub unclean_leader_election: bool,
}

impl TopicConfig {
    /// What is in force for a topic with these configs on this broker. A value that no longer passes its
    /// own rule counts as the default: it was valid when it was set.
    pub fn resolve(topic: &ConfigMap, broker: &BrokerView<'_>) -> TopicConfig {
        let values = Values { topic, broker };
        let policies = values.text("cleanup.policy");
        let policies = elements(&policies);
        TopicConfig {
            cleanup: Cleanup { delete: policies.contains(&"delete"), compact: policies.contains(&"compact") },
            compression: compression(&values.text("compression.type")),
            gzip_level: values.int("compression.gzip.level"),
            lz4_level: values.int("compression.lz4.level"),
            zstd_level: values.int("compression.zstd.level"),
            delete_retention_ms: values.long("delete.retention.ms"),
            file_delete_delay_ms: values.long("file.delete.delay.ms"),
            flush: flush_policy(&values.text("flush.policy"), values.long("flush.messages")),
            flush_messages: values.long("flush.messages"),
            flush_ms: values.long("flush.ms"),
            index_interval_bytes: values.int("index.interval.bytes"),
            max_compaction_lag_ms: values.long("max.compaction.lag.ms"),
            max_decompressed_message_bytes: values.int("max.decompressed.message.bytes"),
            max_message_bytes: values.int("max.message.bytes"),
            timestamp_after_max_ms: values.long("message.timestamp.after.max.ms"),
            timestamp_before_max_ms: values.long("message.timestamp.before.max.ms"),
            timestamp_type: match values.text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: values.text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
            min_compaction_lag_ms: values.long("min.compaction.lag.ms"),
            min_insync_replicas: values.int("min.insync.replicas"),
            preallocate: values.is_true("preallocate"),
            retention_bytes: values.long("retention.bytes"),
            retention_ms: values.long("retention.ms"),
            segment_bytes: values.int("segment.bytes"),
            segment_index_bytes: values.int("segment.index.bytes"),
            segment_jitter_ms: values.long("segment.jitter.ms"),
            segment_ms: values.long("segment.ms"),
            unclean_leader_election: values.is_true("unclean.leader.election.enable"),
        }
    }
}

struct Values<'a> {
    topic: &'a ConfigMap,
    broker: &'a BrokerView<'a>,
}

impl Values<'_> {
    fn text(&self, name: &str) -> String {
        table::topic_key(name).and_then(|key| topic_value(key, self.topic, self.broker)).unwrap_or_default()
    }

    fn long(&self, name: &str) -> i64 {
        let default = || table::topic_key(name).and_then(|key| key.default_text()?.parse().ok());
        self.text(name).parse().ok().or_else(default).unwrap_or(0)
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).unwrap_or(i32::MAX)
    }

    fn is_true(&self, name: &str) -> bool {
        self.text(name) == "true"
    }
}

fn compression(text: &str) -> TopicCompression {
    match text {
        "uncompressed" => TopicCompression::Codec(Compression::None),
        "gzip" => TopicCompression::Codec(Compression::Gzip),
        "snappy" => TopicCompression::Codec(Compression::Snappy),
        "lz4" => TopicCompression::Codec(Compression::Lz4),
        "zstd" => TopicCompression::Codec(Compression::Zstd),
        _ => TopicCompression::Producer,
    }
}

/// Kafka's way to say `each` is a flush after every message.
fn flush_policy(text: &str, messages: i64) -> FlushPolicy {
    match text {
        "none" => FlushPolicy::None,
        "group" => FlushPolicy::Group,
        "each" => FlushPolicy::Each,
        _ if messages == 1 => FlushPolicy::Each,
        _ => FlushPolicy::ByReplicas,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::configs::Configs;
    use crate::effective::StaticConfigs;

    #[test]
    fn a_topic_without_configs_has_kafkas_defaults() {
        let (configs, file) = (Configs::default(), StaticConfigs::new());
        let config = TopicConfig::resolve(&ConfigMap::new(), &BrokerView::new(&configs, "1", &file));
        assert_eq!(config.cleanup, Cleanup { delete: true, compact: false });
        assert_eq!((config.segment_bytes, config.retention_ms), (1_073_741_824, 604_800_000));
        assert_eq!((config.flush_ms, config.flush), (i64::MAX, FlushPolicy::ByReplicas));
        assert_eq!(
            (config.compression, config.timestamp_type),
            (TopicCompression::Producer, TimestampType::CreateTime)
        );
        assert_eq!((config.min_insync_replicas, config.max_message_bytes), (1, 1_048_588));
    }

    #[test]
    fn a_topics_values_win_over_the_file() {
        let configs = Configs::default();
        let file: StaticConfigs = [("log.cleanup.policy".to_owned(), "compact".to_owned())].into();
        let broker = BrokerView::new(&configs, "1", &file);
        assert_eq!(
            TopicConfig::resolve(&ConfigMap::new(), &broker).cleanup,
            Cleanup { delete: false, compact: true }
        );
        let topic: ConfigMap = [(Arc::from("cleanup.policy"), Arc::from("compact,delete"))].into();
        assert_eq!(TopicConfig::resolve(&topic, &broker).cleanup, Cleanup { delete: true, compact: true });
    }
}
