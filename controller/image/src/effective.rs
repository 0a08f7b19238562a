//! What is in force for a topic, a broker or a mirror, and where each value comes from.
//!
//! A topic key is looked for on the topic, then through its broker synonyms: this broker's dynamic configs,
//! those of all brokers, the server's file, the default. DescribeConfigs shows that chain in Kafka's order,
//! with Kafka's peculiarity that the chain begins at the first synonym that has the primary name, so that a
//! `log.retention.hours` in the file gives the value but is not shown unless `log.retention.ms` is set.

use std::collections::BTreeMap;

use crate::config::table::{self, ConfigKey, Synonym, Update};
use crate::configs::{ConfigMap, ConfigResource, Configs};

pub mod cleaner;
pub mod connections;
pub mod dynamic;
pub mod topic;

/// The keys set in `server.properties`.
pub type StaticConfigs = BTreeMap<String, String>;

/// Where a value comes from; the numbers are those of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set for the topic.
    Topic = 1,
    /// Set dynamically for this broker; for a mirror, set for the mirror.
    DynamicBroker = 2,
    /// Set dynamically for all brokers.
    DynamicDefaultBroker = 3,
    /// Set in the server's file.
    StaticBroker = 4,
    /// Set by nobody.
    Default = 5,
}

impl ConfigSource {
    /// The number in DescribeConfigs.
    pub fn id(self) -> i8 {
        self as i8
    }
}

/// One line of DescribeConfigs.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// The key.
    pub key: &'static ConfigKey,
    /// The value in force; `None` where there is none or it is a secret.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// True where it cannot be changed while the node runs.
    pub read_only: bool,
    /// The whole chain, strongest first.
    pub synonyms: Vec<SynonymValue>,
}

/// One link of the chain behind a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynonymValue {
    /// The key that was set.
    pub name: &'static str,
    /// Its value; `None` for a secret.
    pub value: Option<String>,
    /// Where.
    pub source: ConfigSource,
}

/// What is set for one broker, in all places.
#[derive(Clone, Copy, Debug)]
pub struct BrokerView<'a> {
    own: &'a ConfigMap,
    all: &'a ConfigMap,
    file: &'a StaticConfigs,
}

impl<'a> BrokerView<'a> {
    /// The view of the broker with this id, as its name in ConfigRecords.
    pub fn new(configs: &'a Configs, broker: &str, file: &'a StaticConfigs) -> BrokerView<'a> {
        BrokerView {
            own: configs.of(&ConfigResource::broker(broker)),
            all: configs.of(&ConfigResource::broker("")),
            file,
        }
    }

    /// The canonical value in force for a broker key; `None` where nothing is.
    pub fn value(&self, key: &ConfigKey) -> Option<String> {
        let name = key.name;
        let set = self.own.get(name).or_else(|| self.all.get(name)).map(|value| &**value);
        let set = set.or_else(|| self.file.get(name).map(String::as_str));
        match set {
            Some(text) => Some(key.canonical(text).unwrap_or_else(|_| text.to_owned())),
            None => key.default_text().map(str::to_owned),
        }
    }

    /// The first of `synonyms` that has a value, in the unit of the topic key.
    fn first_of(&self, synonyms: &[Synonym]) -> Option<String> {
        synonyms.iter().find_map(|synonym| {
            let text = self.value(table::broker_key(synonym.name)?)?;
            match synonym.scale {
                1 => Some(text),
                scale => text.parse::<i64>().ok().map(|number| scaled(number, scale).to_string()),
            }
        })
    }

    /// The chain of `names`, from the first that is `primary` on.
    fn chain(&self, names: &[&'static str], primary: &str, sensitive: bool) -> Vec<SynonymValue> {
        let shown = |value: &str| (!sensitive).then(|| value.to_owned());
        let mut chain = Vec::new();
        for (source, map) in
            [(ConfigSource::DynamicBroker, self.own), (ConfigSource::DynamicDefaultBroker, self.all)]
        {
            chain.extend(names.iter().filter_map(|name| {
                map.get(*name).map(|value| SynonymValue { name, value: shown(value), source })
            }));
        }
        chain.extend(names.iter().filter_map(|name| {
            let value = self.file.get(*name)?;
            Some(SynonymValue { name, value: shown(value), source: ConfigSource::StaticBroker })
        }));
        chain.extend(names.iter().filter_map(|name| {
            let value = table::broker_key(name)?.default_text()?;
            Some(SynonymValue { name, value: shown(value), source: ConfigSource::Default })
        }));
        let begins = chain.iter().position(|link| link.name == primary).unwrap_or(chain.len());
        chain.split_off(begins)
    }
}

/// Negative numbers mean "no limit" in every unit.
fn scaled(number: i64, scale: i64) -> i64 {
    if number < 0 { -1 } else { number.saturating_mul(scale) }
}

/// The value in force for a topic key.
pub fn topic_value(key: &ConfigKey, topic: &ConfigMap, broker: &BrokerView<'_>) -> Option<String> {
    match topic.get(key.name) {
        Some(text) => Some(key.canonical(text).unwrap_or_else(|_| text.to_string())),
        None => broker.first_of(key.synonyms).or_else(|| key.default_text().map(str::to_owned)),
    }
}

/// Every key of a topic, in the order in which a Kafka broker lists them.
pub fn topic_entries(topic: &ConfigMap, broker: &BrokerView<'_>) -> Vec<ConfigEntry> {
    let own = table::own_topic_keys().iter().filter(|key| topic.contains_key(key.name));
    let mut entries: Vec<ConfigEntry> =
        table::topic_keys().iter().chain(own).map(|key| topic_entry(key, topic, broker)).collect();
    entries.sort_by_key(|entry| java_bucket(entry.key.name, 64));
    entries
}

fn topic_entry(key: &'static ConfigKey, topic: &ConfigMap, broker: &BrokerView<'_>) -> ConfigEntry {
    let value = topic_value(key, topic, broker);
    let mut synonyms = Vec::new();
    if topic.contains_key(key.name) {
        synonyms.push(SynonymValue { name: key.name, value: value.clone(), source: ConfigSource::Topic });
    }
    let names: Vec<&'static str> = key.synonyms.iter().map(|synonym| synonym.name).collect();
    if let Some(primary) = names.first() {
        synonyms.extend(broker.chain(&names, primary, key.kind.is_sensitive()));
    }
    ConfigEntry {
        key,
        value,
        source: synonyms.first().map_or(ConfigSource::Default, |first| first.source),
        read_only: key.update == Update::ReadOnly,
        synonyms,
    }
}

/// Every key of a broker.
pub fn broker_entries(broker: &BrokerView<'_>) -> Vec<ConfigEntry> {
    let mut entries: Vec<ConfigEntry> = table::broker_keys()
        .map(|key| {
            let sensitive = key.kind.is_sensitive();
            let synonyms = broker.chain(&group_of(key.name), key.name, sensitive);
            ConfigEntry {
                key,
                value: broker.value(key).filter(|_| !sensitive),
                source: synonyms.first().map_or(ConfigSource::Default, |first| first.source),
                read_only: key.update == Update::ReadOnly,
                synonyms,
            }
        })
        .collect();
    entries.sort_by_key(|entry| (java_bucket(entry.key.name, 512), entry.key.name));
    entries
}

/// What is set dynamically for all brokers: the answer for the broker resource without a name.
pub fn default_broker_entries(configs: &Configs) -> Vec<ConfigEntry> {
    let all = configs.of(&ConfigResource::broker(""));
    set_entries(all, table::broker_key, ConfigSource::DynamicDefaultBroker)
}

/// Every key of a mirror.
pub fn mirror_entries(mirror: &ConfigMap) -> Vec<ConfigEntry> {
    let mut entries = set_entries(mirror, table::mirror_key, ConfigSource::DynamicBroker);
    entries.extend(table::mirror_keys().iter().filter(|key| !mirror.contains_key(key.name)).map(|key| {
        let value = key.default_text().map(str::to_owned);
        let synonyms = value
            .iter()
            .map(|value| SynonymValue {
                name: key.name,
                value: Some(value.clone()),
                source: ConfigSource::Default,
            })
            .collect();
        ConfigEntry {
            key,
            value,
            source: ConfigSource::Default,
            read_only: key.update == Update::ReadOnly,
            synonyms,
        }
    }));
    entries.sort_by_key(|entry| entry.key.name);
    entries
}

fn set_entries(
    map: &ConfigMap,
    lookup: impl Fn(&str) -> Option<&'static ConfigKey>,
    source: ConfigSource,
) -> Vec<ConfigEntry> {
    map.iter()
        .filter_map(|(name, value)| {
            let key = lookup(name)?;
            let value = (!key.kind.is_sensitive()).then(|| value.to_string());
            let synonyms = vec![SynonymValue { name: key.name, value: value.clone(), source }];
            Some(ConfigEntry { key, value, source, read_only: key.update == Update::ReadOnly, synonyms })
        })
        .collect()
}

/// The broker keys that stand for the same thing in other units, strongest first.
fn group_of(name: &'static str) -> Vec<&'static str> {
    table::topic_keys()
        .iter()
        .map(|key| key.synonyms)
        .find(|synonyms| synonyms.iter().any(|synonym| synonym.name == name))
        .map_or_else(|| vec![name], |synonyms| synonyms.iter().map(|synonym| synonym.name).collect())
}

/// Where a Java `HashMap` of `buckets` buckets has a key: the order in which Kafka lists configs. Within a
/// bucket the order is that of the table.
fn java_bucket(name: &str, buckets: u32) -> u32 {
    let hash = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    (hash ^ (hash >> 16)) & (buckets - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ConfigSource::*;

    /// What a broker of Kafka 4.4.0 lists for a new topic: names, values, synonyms, in its order.
    const KAFKA_DEFAULTS: &str = include_str!("effective/kafka_defaults.txt");

    #[test]
    fn a_new_topic_shows_what_kafka_shows() {
        let (configs, file) = (Configs::default(), StaticConfigs::new());
        let shown = listing(&topic_entries(&ConfigMap::new(), &BrokerView::new(&configs, "1", &file)));
        let expected: Vec<&str> = KAFKA_DEFAULTS.lines().collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_topics_own_value_comes_before_the_brokers() {
        let configs = Configs::default();
        let file = file(&[("log.retention.ms", "100"), ("log.segment.bytes", "2000000")]);
        let topic = map(&[("retention.ms", " 5 ")]);
        let entries = topic_entries(&topic, &BrokerView::new(&configs, "1", &file));
        let line = |name| listing(&entries).into_iter().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(
            line("retention.ms\t"),
            "retention.ms\t5\t1\t1:retention.ms=5;4:log.retention.ms=100;5:log.retention.hours=168;"
        );
        assert_eq!(
            line("segment.bytes\t"),
            "segment.bytes\t2000000\t4\t4:log.segment.bytes=2000000;5:log.segment.bytes=1073741824;"
        );
    }

    #[test]
    fn coarser_units_give_the_value_and_are_shown_only_behind_the_finest() {
        let configs = Configs::default();
        let coarse =
            file(&[("log.retention.minutes", "77"), ("log.retention.hours", "100"), ("log.roll.hours", "5")]);
        let entries = topic_entries(&ConfigMap::new(), &BrokerView::new(&configs, "1", &coarse));
        let find = |name| entries.iter().find(|entry| entry.key.name == name).unwrap();
        assert_eq!(find("retention.ms").value.as_deref(), Some("4620000"));
        assert_eq!(find("retention.ms").source, Default);
        assert!(find("retention.ms").synonyms.is_empty());
        assert_eq!(find("segment.ms").value.as_deref(), Some("18000000"));

        let fine = file(&[("log.roll.ms", "1000000"), ("log.roll.hours", "5")]);
        let entries = topic_entries(&ConfigMap::new(), &BrokerView::new(&configs, "1", &fine));
        let line = listing(&entries).into_iter().find(|line| line.starts_with("segment.ms\t")).unwrap();
        assert_eq!(
            line,
            "segment.ms\t1000000\t4\t4:log.roll.ms=1000000;4:log.roll.hours=5;5:log.roll.hours=168;"
        );
    }

    #[test]
    fn a_broker_lists_its_file_and_hides_secrets() {
        let configs = Configs::default();
        let file = file(&[
            ("log.retention.minutes", "77"),
            ("log.retention.hours", "100"),
            ("ssl.key.password", "x"),
        ]);
        let lines = listing(&broker_entries(&BrokerView::new(&configs, "1", &file)));
        let line = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap().clone();
        assert_eq!(
            line("log.retention.minutes\t"),
            "log.retention.minutes\t77\t4\t4:log.retention.minutes=77;4:log.retention.hours=100;5:log.retention.hours=168;"
        );
        assert_eq!(
            line("log.retention.hours\t"),
            "log.retention.hours\t100\t4\t4:log.retention.hours=100;5:log.retention.hours=168;"
        );
        assert_eq!(line("ssl.key.password\t"), "ssl.key.password\tnull\t4\t4:ssl.key.password=null;");
        assert_eq!(line("log.flush.interval.ms\t"), "log.flush.interval.ms\tnull\t5\t");
    }

    #[test]
    fn a_mirror_topic_shows_its_binding_read_only() {
        let (configs, file) = (Configs::default(), StaticConfigs::new());
        let topic = map(&[("mirror.name", "m"), ("mirror.desired.state", "mirroring:3")]);
        let entries = topic_entries(&topic, &BrokerView::new(&configs, "1", &file));
        let bound: Vec<_> = entries.iter().filter(|entry| entry.key.name.starts_with("mirror.")).collect();
        assert_eq!(bound.len(), 2);
        assert!(bound.iter().all(|entry| entry.read_only && entry.source == Topic));
    }

    fn listing(entries: &[ConfigEntry]) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
        entries
            .iter()
            .map(|entry| {
                let chain: String = entry
                    .synonyms
                    .iter()
                    .map(|link| format!("{}:{}={};", link.source.id(), link.name, text(&link.value)))
                    .collect();
                format!("{}\t{}\t{}\t{chain}", entry.key.name, text(&entry.value), entry.source.id())
            })
            .collect()
    }

    fn file(keys: &[(&str, &str)]) -> StaticConfigs {
        keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn map(keys: &[(&str, &str)]) -> ConfigMap {
        keys.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect()
    }
}
