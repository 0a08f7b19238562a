//! A topic's configuration as the data path needs it: typed, and looked up once per change.

use std::sync::Arc;

use tarn_image::effective::TopicConfig;
use tarn_log::{FlushPolicy, LogConfig};
use tarn_record::TimestampType;

/// What a topic's configuration comes to.
#[derive(Clone, Debug)]
pub struct TopicRules {
    /// What its logs act on.
    pub log: Arc<LogConfig>,
    /// What an acknowledgement promises about the disk.
    pub flush: FlushPolicy,
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// Whether `cleanup.policy` includes compact, so that every record has a key.
    pub compacted: bool,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `min.insync.replicas`.
    pub min_insync_replicas: usize,
}

impl TopicRules {
    /// The rules that a topic's effective configuration makes, for partitions with `replicas` replicas:
    /// with fewer than three, a flush stands in for the copies that are missing.
    pub fn of(config: &TopicConfig<'_>, replicas: usize) -> TopicRules {
        let default = if replicas < 3 { FlushPolicy::Group } else { FlushPolicy::None };
        let flush = match config.text("tarn.flush.policy").as_deref() {
            Some("none") => FlushPolicy::None,
            Some("group") => FlushPolicy::Group,
            Some("each") => FlushPolicy::Each,
            _ => default,
        };
        let log = LogConfig {
            segment_bytes: config.number("segment.bytes") as u32,
            segment_ms: config.number("segment.ms"),
            segment_jitter_ms: config.number("segment.jitter.ms"),
            index_interval_bytes: config.number("index.interval.bytes") as u32,
            segment_index_bytes: config.number("segment.index.bytes") as u32,
            producer_expiration_ms: config.broker_number("producer.id.expiration.ms"),
            flush,
        };
        let log_append_time = config.text("message.timestamp.type").as_deref() == Some("LogAppendTime");
        TopicRules {
            log: Arc::new(log),
            flush,
            max_message_bytes: config.number("max.message.bytes").max(0) as usize,
            compacted: config.text("cleanup.policy").is_some_and(|policy| policy.contains("compact")),
            timestamp_type: if log_append_time { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
            timestamp_before_max_ms: config.number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: config.number("message.timestamp.after.max.ms"),
            min_insync_replicas: config.number("min.insync.replicas").max(1) as usize,
        }
    }
}
