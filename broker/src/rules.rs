//! A topic's configuration as the data path needs it: typed, and looked up once per change.

use std::sync::Arc;

use tarn_image::config::table;
use tarn_image::configs::{ConfigMap, Configs};
use tarn_image::effective::topic::{FlushPolicy as TopicFlush, TopicCompression, TopicConfig};
use tarn_image::effective::{BrokerView, StaticConfigs};
use tarn_image::mirrors::STATE_TOPIC;
use tarn_image::{MetadataImage, TopicImage};
use tarn_log::{CleanRules, FlushPolicy, LogConfig, Retention};
use tarn_record::{Compression, Recompression, TimestampType};

use crate::node::Node;

/// With so many replicas, copies stand in for a flush (`flush.policy` unset).
const REPLICAS_INSTEAD_OF_FLUSH: usize = 3;

/// What a topic's configuration comes to.
#[derive(Clone, Debug)]
pub struct TopicRules {
    /// What its logs act on.
    pub log: Arc<LogConfig>,
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// `max.decompressed.message.bytes`: of one record.
    pub max_decompressed_bytes: usize,
    /// What compaction acts on, where `cleanup.policy` includes compact, so that every record has a key.
    pub compaction: Option<CompactionRules>,
    /// What retention deletes, where `cleanup.policy` includes delete.
    pub retention: Option<Retention>,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: i64,
    /// `flush.messages`
    pub flush_messages: i64,
    /// `flush.ms`
    pub flush_ms: i64,
    /// `compression.type` with the level of the codec it names; `None` for the producer's codec.
    pub recompress: Option<Recompression>,
    /// `min.insync.replicas`.
    pub min_in_sync: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
}

/// When a compacted topic is compacted, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionRules {
    /// What stays for how long.
    pub clean: CleanRules,
    /// `min.cleanable.dirty.ratio`
    pub min_dirty_ratio: f64,
}

/// What an acknowledgement stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// What `flush.policy` says.
    AsConfigured,
    /// That it is on the disk, whatever `flush.policy` says: a failover rests on it.
    OnDisk,
}

/// A number of the broker's own configuration that is in force now.
fn broker_number(view: &BrokerView<'_>, name: &str) -> Option<i64> {
    view.value(table::broker_key(name)?)?.parse().ok()
}

/// What a topic's rules rest on, as far as this node says it: what topics fall back to, and `producer.id.expiration.ms`.
fn resolve(image: &MetadataImage, node: &Node, topic: &ConfigMap) -> (TopicConfig, i64) {
    let broker = node.broker_id().to_string();
    let view = BrokerView::new(image.configs(), &broker, &node.config().properties);
    let expiration_ms = broker_number(&view, "producer.id.expiration.ms").unwrap_or(i64::MAX);
    (TopicConfig::resolve(topic, &view), expiration_ms)
}

impl TopicRules {
    /// True where the rules of topics that have not changed themselves are the same under both images.
    pub fn are_same(before: &MetadataImage, after: &MetadataImage, node: &Node) -> bool {
        let unconfigured = ConfigMap::new();
        resolve(before, node, &unconfigured) == resolve(after, node, &unconfigured)
    }

    /// The rules of `topic` on this node.
    pub fn of(image: &MetadataImage, node: &Node, topic: &TopicImage) -> TopicRules {
        let (config, expiration_ms) = resolve(image, node, image.configs().topic(&topic.name));
        let replicas = topic.partitions.values().map(|partition| partition.replicas.len()).max().unwrap_or(1);
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
            // Nothing in the active segment is compacted.
            segment_ms: if config.cleanup.compact {
                config.segment_ms.min(config.max_compaction_lag_ms)
            } else {
                config.segment_ms
            },
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
            compaction: config.cleanup.compact.then_some(CompactionRules {
                clean: CleanRules {
                    delete_retention_ms: config.delete_retention_ms,
                    min_lag_ms: config.min_compaction_lag_ms,
                    max_lag_ms: config.max_compaction_lag_ms,
                },
                min_dirty_ratio: config.min_cleanable_dirty_ratio,
            }),
            retention: config.cleanup.delete.then_some(Retention {
                ms: u64::try_from(config.retention_ms).ok(),
                bytes: u64::try_from(config.retention_bytes).ok(),
            }),
            file_delete_delay_ms: config.file_delete_delay_ms,
            flush_messages: config.flush_messages,
            flush_ms: config.flush_ms,
            recompress: recompression(config),
            min_in_sync: usize::try_from(config.min_insync_replicas).unwrap_or(0),
            timestamp_type: config.timestamp_type,
            timestamp_before_max_ms: config.timestamp_before_max_ms,
            timestamp_after_max_ms: config.timestamp_after_max_ms,
        }
    }
}

fn recompression(config: &TopicConfig) -> Option<Recompression> {
    let TopicCompression::Codec(compression) = config.compression else { return None };
    let level = match compression {
        Compression::Gzip => Some(config.gzip_level),
        Compression::Zstd => Some(config.zstd_level),
        Compression::Lz4 => Some(config.lz4_level),
        Compression::None | Compression::Snappy => None,
    };
    Some(Recompression { compression, level })
}

impl Default for TopicRules {
    /// Those of a topic with one replica and nothing configured.
    fn default() -> TopicRules {
        let (configs, file) = (Configs::default(), StaticConfigs::new());
        let config = TopicConfig::resolve(&ConfigMap::new(), &BrokerView::new(&configs, "1", &file));
        TopicRules::from_config(&config, 1, Promise::AsConfigured, i64::MAX)
    }
}

impl Default for CompactionRules {
    fn default() -> CompactionRules {
        CompactionRules { clean: CleanRules::default(), min_dirty_ratio: 0.5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_flush_after_every_message_is_kafkas_way_to_say_each() {
        let by_messages = |messages: &str| rules(&[("flush.messages", messages)], 3, Promise::AsConfigured);
        assert_eq!(by_messages("1").log.flush, FlushPolicy::Each);
        assert_eq!(by_messages("2").log.flush, FlushPolicy::None);
        let both = rules(&[("flush.messages", "1"), ("flush.policy", "group")], 3, Promise::AsConfigured);
        assert_eq!(both.log.flush, FlushPolicy::Group);
    }

    #[test]
    fn stored_batches_have_the_codec_of_the_topic_and_its_level() {
        let of = |configured: &[(&str, &str)]| rules(configured, 1, Promise::AsConfigured).recompress;
        let to = |compression, level| Some(Recompression { compression, level });
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("compression.type", "producer")]), None);
        assert_eq!(of(&[("compression.type", "uncompressed")]), to(Compression::None, None));
        assert_eq!(of(&[("compression.type", "zstd")]), to(Compression::Zstd, Some(3)));
        let gzip = [("compression.type", "gzip"), ("compression.gzip.level", "9")];
        assert_eq!(of(&gzip), to(Compression::Gzip, Some(9)));
        assert_eq!(of(&[("compression.type", "lz4")]), to(Compression::Lz4, Some(9)));
        let lz4 = [("compression.type", "lz4"), ("compression.lz4.level", "3")];
        assert_eq!(of(&lz4), to(Compression::Lz4, Some(3)));
    }

    #[test]
    fn what_is_not_in_the_cleanup_policy_has_no_effect() {
        let of = |policy: &str| {
            rules(&[("cleanup.policy", policy), ("retention.bytes", "9")], 1, Promise::AsConfigured)
        };
        let kept = |rules: TopicRules| (rules.retention, rules.compaction.is_some());
        let retention = Retention { bytes: Some(9), ms: Some(604_800_000) };
        assert_eq!(kept(of("delete")), (Some(retention), false));
        assert_eq!(kept(of("compact")), (None, true));
        assert_eq!(kept(of("compact,delete")), (Some(retention), true));
        assert_eq!(kept(of("")), (None, false));
    }

    #[test]
    fn a_compacted_log_is_rolled_before_its_records_are_overdue() {
        let segment_ms = |more: &[(&str, &str)]| rules(more, 1, Promise::AsConfigured).log.segment_ms;
        let lag = ("max.compaction.lag.ms", "500");
        assert_eq!(segment_ms(&[("cleanup.policy", "compact"), lag]), 500);
        assert_eq!(segment_ms(&[("cleanup.policy", "compact"), lag, ("segment.ms", "400")]), 400);
        assert_eq!(segment_ms(&[lag]), 604_800_000);
    }

    fn flush(configured: &str, replicas: usize, promise: Promise) -> FlushPolicy {
        rules(&[("flush.policy", configured)], replicas, promise).log.flush
    }

    fn rules(configured: &[(&str, &str)], replicas: usize, promise: Promise) -> TopicRules {
        let (configs, file) = (Configs::default(), StaticConfigs::new());
        let topic: ConfigMap =
            configured.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let config = TopicConfig::resolve(&topic, &BrokerView::new(&configs, "1", &file));
        TopicRules::from_config(&config, replicas, promise, 1)
    }
}
