//! A topic's configuration as the data path needs it: typed, and looked up once per change.

use std::sync::Arc;

use tarn_image::effective::BrokerView;
use tarn_image::effective::topic::{FlushPolicy as TopicFlush, TopicConfig};
use tarn_image::mirrors::STATE_TOPIC;
use tarn_image::{MetadataImage, TopicImage};
use tarn_log::{FlushPolicy, LogConfig};
use tarn_record::TimestampType;

use crate::node::Node;

/// With so many replicas, copies stand in for a flush (`tarn.flush` unset).
const REPLICAS_INSTEAD_OF_FLUSH: usize = 3;

/// What a topic's configuration comes to.
#[derive(Clone, Debug)]
pub struct TopicRules {
    /// What its logs act on.
    pub log: Arc<LogConfig>,
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// `max.decompressed.message.bytes`.
    pub max_decompressed_bytes: usize,
    /// Whether `cleanup.policy` includes compact, so that every record has a key.
    pub compacted: bool,
    /// `min.insync.replicas`.
    pub min_in_sync: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
}

/// What an acknowledgement stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// What `tarn.flush` says.
    AsConfigured,
    /// That it is on the disk, whatever `tarn.flush` says: a failover rests on it.
    OnDisk,
}

impl TopicRules {
    /// The rules of `topic` on this node.
    pub fn of(image: &MetadataImage, node: &Node, topic: &TopicImage) -> TopicRules {
        let broker = node.broker_id().to_string();
        let view = BrokerView::new(image.configs(), &broker, &node.config().properties);
        let config = TopicConfig::resolve(image.configs().topic(&topic.name), &view);
        let replicas = topic.partitions.values().map(|partition| partition.replicas.len()).max().unwrap_or(1);
        let expiration_ms = node.config().storage.producer_id_expiration_ms;
        let promise = if *topic.name == *STATE_TOPIC { Promise::OnDisk } else { Promise::AsConfigured };
        TopicRules::from_config(&config, replicas, promise, expiration_ms)
    }

    fn from_config(
        config: &TopicConfig,
        replicas: usize,
        promise: Promise,
        producer_expiration_ms: i64,
    ) -> TopicRules {
        let flush = match config.flush {
            TopicFlush::None => FlushPolicy::None,
            TopicFlush::Group => FlushPolicy::Group,
            TopicFlush::Each => FlushPolicy::Each,
            TopicFlush::ByReplicas if replicas < REPLICAS_INSTEAD_OF_FLUSH => FlushPolicy::Group,
            TopicFlush::ByReplicas => FlushPolicy::None,
        };
        let flush = match (promise, flush) {
            (Promise::OnDisk, FlushPolicy::None) => FlushPolicy::Group,
            _ => flush,
        };
        let size = |bytes: i32| u32::try_from(bytes).unwrap_or(0);
        let log = LogConfig {
            segment_bytes: size(config.segment_bytes),
            segment_ms: config.segment_ms,
            segment_jitter_ms: config.segment_jitter_ms,
            index_interval_bytes: size(config.index_interval_bytes),
            segment_index_bytes: size(config.segment_index_bytes),
            producer_expiration_ms,
            flush,
        };
        TopicRules {
            log: Arc::new(log),
            max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
            max_decompressed_bytes: usize::try_from(config.max_decompressed_message_bytes).unwrap_or(0),
            compacted: config.cleanup.compact,
            min_in_sync: usize::try_from(config.min_insync_replicas).unwrap_or(0),
            timestamp_type: config.timestamp_type,
            timestamp_before_max_ms: config.timestamp_before_max_ms,
            timestamp_after_max_ms: config.timestamp_after_max_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_image::configs::{ConfigMap, Configs};
    use tarn_image::effective::StaticConfigs;

    #[test]
    fn copies_stand_in_for_a_flush_unless_the_topic_says_otherwise() {
        assert_eq!(flush("", 2, Promise::AsConfigured), FlushPolicy::Group);
        assert_eq!(flush("", 3, Promise::AsConfigured), FlushPolicy::None);
        assert_eq!(flush("each", 3, Promise::AsConfigured), FlushPolicy::Each);
    }

    #[test]
    fn what_a_mirrors_coordinator_says_is_on_the_disk_before_it_is_said() {
        assert_eq!(flush("", 3, Promise::OnDisk), FlushPolicy::Group);
        assert_eq!(flush("none", 1, Promise::OnDisk), FlushPolicy::Group);
        assert_eq!(flush("each", 1, Promise::OnDisk), FlushPolicy::Each);
    }

    fn flush(configured: &str, replicas: usize, promise: Promise) -> FlushPolicy {
        let (configs, file) = (Configs::default(), StaticConfigs::new());
        let topic: ConfigMap = [("tarn.flush".into(), configured.into())].into();
        let config = TopicConfig::resolve(&topic, &BrokerView::new(&configs, "1", &file));
        TopicRules::from_config(&config, replicas, promise, 1).log.flush
    }
}
