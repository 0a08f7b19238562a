//! Every configuration key there is, said once.
//!
//! DescribeConfigs, the validation of requests and of `server.properties`, and the reference page in
//! `docs/` are all derived from these tables. The doc comment above a key is its documentation.
//!
//! Invariants, tested below: names are unique within a table, and every default satisfies its own rule.

mod group;
mod mirror;
mod network;
mod node;
mod quorum;
mod remote;
mod replication;
mod security;
mod storage;
mod tarn;
mod topic;
mod transaction;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::value::{self, ConfigType, Refusal, Rule};

/// One configuration key.
#[derive(Debug, PartialEq)]
pub struct ConfigKey {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: ConfigType,
    /// Its value where nobody sets one.
    pub default: Default,
    /// What its values must satisfy.
    pub rule: Rule,
    /// How it changes while the node runs.
    pub update: Update,
    /// For a topic key: the broker keys that give its default, in precedence, with their units.
    pub synonyms: &'static [Synonym],
    /// What it means, in a sentence or two.
    pub doc: &'static str,
}

/// The value of a key that nobody sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This text.
    Is(&'static str),
    /// Nothing.
    Null,
    /// There is none: it must be set.
    Required,
}

/// How a key changes while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Only with a restart.
    ReadOnly,
    /// For a broker at a time.
    PerBroker,
    /// For one broker or for all.
    ClusterWide,
}

/// A broker key that gives the default of a topic key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The broker key.
    pub name: &'static str,
    /// What its number is multiplied with: hours to milliseconds is 3,600,000.
    pub scale: i64,
}

impl ConfigKey {
    /// The canonical text of `text` as a value of this key.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn canonical(&self, text: &str) -> Result<String, Refusal> {
        value::canonical(self.kind, self.rule, text)
    }

    /// The default's text, if there is one.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.default {
            Default::Is(text) => Some(text),
            Default::Null | Default::Required => None,
        }
    }
}

/// The topic key `name`, those that only Tarn has included.
pub fn topic_key(name: &str) -> Option<&'static ConfigKey> {
    static BY_NAME: LazyLock<BTreeMap<&str, &ConfigKey>> =
        LazyLock::new(|| index(&[topic::KEYS, topic::OWN_KEYS]));
    BY_NAME.get(name).copied()
}

/// The topic keys that Kafka has, which every topic shows.
pub fn topic_keys() -> &'static [ConfigKey] {
    topic::KEYS
}

/// The topic keys that only Tarn has, which a topic shows where they are set.
pub fn own_topic_keys() -> &'static [ConfigKey] {
    topic::OWN_KEYS
}

/// The broker key `name`.
pub fn broker_key(name: &str) -> Option<&'static ConfigKey> {
    static BY_NAME: LazyLock<BTreeMap<&str, &ConfigKey>> = LazyLock::new(|| index(&BROKER));
    BY_NAME.get(name).copied()
}

/// Every broker key.
pub fn broker_keys() -> impl Iterator<Item = &'static ConfigKey> {
    BROKER.iter().flat_map(|keys| keys.iter())
}

/// The key of a mirror that is called `name`, with the prefix `mirror.` or without.
pub fn mirror_key(name: &str) -> Option<&'static ConfigKey> {
    static BY_NAME: LazyLock<BTreeMap<&str, &ConfigKey>> = LazyLock::new(|| index(&[mirror::KEYS]));
    BY_NAME.get(name.strip_prefix("mirror.").unwrap_or(name)).copied()
}

/// Every key of a mirror.
pub fn mirror_keys() -> &'static [ConfigKey] {
    mirror::KEYS
}

const BROKER: [&[ConfigKey]; 10] = [
    node::KEYS,
    network::KEYS,
    storage::KEYS,
    replication::KEYS,
    quorum::KEYS,
    group::KEYS,
    transaction::KEYS,
    remote::KEYS,
    security::KEYS,
    tarn::KEYS,
];

fn index(tables: &[&'static [ConfigKey]]) -> BTreeMap<&'static str, &'static ConfigKey> {
    tables.iter().flat_map(|keys| keys.iter()).map(|key| (key.name, key)).collect()
}

/// A table: one doc comment and one line for each key.
macro_rules! keys {
    ($(
        $(#[doc = $doc:literal])+
        $name:literal: $kind:ident = $default:tt, $rule:expr, $update:ident
        $(, from [$($synonym:literal $(* $scale:literal)?),+])?;
    )*) => {
        &[$(
            $crate::config::table::ConfigKey {
                name: $name,
                kind: $crate::config::value::ConfigType::$kind,
                default: $crate::config::table::keys!(@default $default),
                rule: {
                    #[allow(unused_imports)]
                    use $crate::config::value::Rule::*;
                    $rule
                },
                update: $crate::config::table::Update::$update,
                synonyms: &[$($(
                    $crate::config::table::Synonym {
                        name: $synonym,
                        scale: $crate::config::table::keys!(@scale $($scale)?),
                    }
                ),+)?],
                doc: concat!($($doc),+).trim_ascii(),
            }
        ),*]
    };
    (@default null) => { $crate::config::table::Default::Null };
    (@default required) => { $crate::config::table::Default::Required };
    (@default $text:literal) => { $crate::config::table::Default::Is($text) };
    (@scale) => { 1 };
    (@scale $scale:literal) => { $scale };
}
use keys;

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> [Vec<&'static ConfigKey>; 3] {
        [
            topic::KEYS.iter().chain(topic::OWN_KEYS).collect(),
            broker_keys().collect(),
            mirror::KEYS.iter().collect(),
        ]
    }

    #[test]
    fn a_name_appears_once_in_a_table() {
        for table in tables() {
            let mut names: Vec<_> = table.iter().map(|key| key.name).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn every_default_is_a_canonical_value_of_its_key() {
        for key in tables().into_iter().flatten() {
            if let Default::Is(text) = key.default {
                let empty_means_unset = text.is_empty() && matches!(key.rule, Rule::NonEmpty);
                assert!(empty_means_unset || key.canonical(text) == Ok(text.to_owned()), "{}", key.name);
            }
        }
    }

    #[test]
    fn every_key_is_explained_in_one_line() {
        for key in tables().into_iter().flatten() {
            assert!(key.doc.ends_with('.') && key.doc.len() > 15, "{}: {}", key.name, key.doc);
        }
    }

    #[test]
    fn the_synonyms_of_topic_keys_are_broker_keys() {
        for synonym in topic::KEYS.iter().flat_map(|key| key.synonyms) {
            assert!(broker_key(synonym.name).is_some(), "{}", synonym.name);
        }
    }

    #[test]
    fn a_mirror_key_is_found_in_both_spellings() {
        assert_eq!(mirror_key("mirror.topics.include").map(|key| key.name), Some("topics.include"));
        assert_eq!(mirror_key("topics.include").map(|key| key.name), Some("topics.include"));
        assert!(mirror_key("topics").is_none());
    }
}
