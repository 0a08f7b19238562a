//! What a request may set for a topic.

use super::table;
use crate::configs::ConfigMap;
use crate::mirrors::{MIRROR_DESIRED_STATE, MIRROR_NAME};

/// True for the topic keys that only a mirror's commands write: shown, but refused in alter calls.
pub fn is_internal(key: &str) -> bool {
    key == MIRROR_NAME || key == MIRROR_DESIRED_STATE
}

/// Checks everything that would be set for a topic.
///
/// # Errors
/// A sentence as Kafka's tools print it: an unknown key, a bad value, two values that exclude each other.
pub fn validate(configs: &ConfigMap) -> Result<(), String> {
    for (name, value) in configs {
        if is_internal(name) {
            continue;
        }
        let key = table::topic_key(name).ok_or_else(|| format!("Unknown topic config name: {name}"))?;
        key.canonical(value).map_err(|refusal| match key.rule {
            super::value::Rule::ThrottledReplicas => {
                format!("Invalid value {} for configuration {name}: {name} {}", refusal.shown, refusal.why)
            }
            _ => refusal.of(name),
        })?;
    }
    if is_true(configs, "remote.storage.enable") {
        return Err(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with \
                    remote log storage."
                .to_owned(),
        );
    }
    compaction_lags(configs)
}

fn is_true(configs: &ConfigMap, key: &str) -> bool {
    configs.get(key).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

fn compaction_lags(configs: &ConfigMap) -> Result<(), String> {
    let lag = |key: &str| {
        let set = configs.get(key).map(|value| &**value);
        let text = set.or_else(|| table::topic_key(key)?.default_text())?;
        text.trim().parse::<i64>().ok()
    };
    match (lag("min.compaction.lag.ms"), lag("max.compaction.lag.ms")) {
        (Some(min), Some(max)) if min > max => Err(format!(
            "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn refusals_are_in_kafkas_words() {
        let refused = |pairs: &[(&str, &str)]| validate(&map(pairs)).unwrap_err();
        assert_eq!(refused(&[("nosuch.key", "1")]), "Unknown topic config name: nosuch.key");
        assert_eq!(
            refused(&[("segment.bytes", "10")]),
            "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576"
        );
        assert_eq!(
            refused(&[("leader.replication.throttled.replicas", "abc")]),
            "Invalid value [abc] for configuration leader.replication.throttled.replicas: \
             leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following \
             format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        );
        assert_eq!(
            refused(&[("min.compaction.lag.ms", "500"), ("max.compaction.lag.ms", "100")]),
            "conflict topic config setting min.compaction.lag.ms (500) > max.compaction.lag.ms (100)"
        );
        assert!(
            refused(&[("remote.storage.enable", "true")])
                .starts_with("Tiered Storage functionality is disabled")
        );
    }

    #[test]
    fn what_kafka_accepts_is_accepted() {
        for pair in [
            ("cleanup.policy", ""),
            ("cleanup.policy", "compact,compact"),
            ("min.compaction.lag.ms", "10000000000000000"),
            ("remote.log.copy.disable", "true"),
            ("delete.retention.ms", " 5 "),
            ("preallocate", "TRUE"),
            ("retention.ms", "0"),
        ] {
            assert_eq!(validate(&map(&[pair])), Ok(()), "{pair:?}");
        }
    }

    fn map(pairs: &[(&str, &str)]) -> ConfigMap {
        pairs.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect()
    }
}
