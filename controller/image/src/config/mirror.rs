//! What a request may set for a cluster mirror, and the mirror's configuration in numbers.
//!
//! Both spellings of the proposal are accepted (`mirror.topics.include`, `topics.include`); stored is the one
//! without the prefix, so that a mirror has each key once.

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use thiserror::Error;

use super::table::{self, Default};
use super::value::elements;
use crate::configs::ConfigMap;
use crate::mirrors::{BOOTSTRAP_SERVERS, SOURCE_CLUSTER_ID};

/// The longest name of a topic or mirror.
const NAME_LENGTH_MAX: usize = 249;

/// Whether a source may elect a leader that was not in sync, and its other name.
const SUPPORT_UNCLEAN: &str = "support.unclean.leader.election";
const UNCLEAN_ENABLE: &str = "unclean.leader.election.enable";

/// What is wrong with a mirror's configuration: a sentence for the person who gave it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct InvalidMirror(pub String);

/// Checks the name of a mirror: the rules are those of topic names.
///
/// # Errors
/// Which rule it breaks.
pub fn validate_name(name: &str) -> Result<(), InvalidMirror> {
    let refuse = |why: &str| Err(InvalidMirror(format!("Mirror name is invalid: {why}")));
    match name {
        "" => refuse("the empty string is not allowed"),
        "." | ".." => refuse(&format!("'{name}' is not allowed")),
        _ if name.len() > NAME_LENGTH_MAX => {
            refuse(&format!("the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"))
        }
        _ if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) => {
            refuse(&format!(
                "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
            ))
        }
        _ => Ok(()),
    }
}

/// The key that `name` is stored as.
///
/// # Errors
/// A key that mirrors do not have, or one for security, which is not available yet.
fn stored_key(name: &str) -> Result<&'static str, InvalidMirror> {
    if let Some(key) = table::mirror_key(name) {
        return Ok(key.name);
    }
    let plain = name.strip_prefix("mirror.").unwrap_or(name);
    if plain == UNCLEAN_ENABLE {
        return Ok(SUPPORT_UNCLEAN);
    }
    if plain.starts_with("ssl.") || plain.starts_with("sasl.") || plain == "security.providers" {
        return Err(InvalidMirror(format!(
            "{name} is not supported yet: mirrors connect with security.protocol=PLAINTEXT only"
        )));
    }
    Err(InvalidMirror(format!("Unknown cluster mirror config name: {name}")))
}

/// Reads the configs of a request into stored form, each value checked alone. A `None` is left out.
///
/// # Errors
/// An unknown key, a key given in both spellings, or a bad value.
pub fn stored<'a>(
    given: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<ConfigMap, InvalidMirror> {
    let mut stored = ConfigMap::new();
    for (name, value) in given {
        let key = stored_key(name)?;
        let Some(value) = value else { continue };
        if stored.insert(Arc::from(key), Arc::from(value.trim())).is_some() {
            return Err(InvalidMirror(format!("{key} is given more than once")));
        }
    }
    Ok(stored)
}

/// Checks a mirror's whole configuration, in stored form, before it is written.
///
/// # Errors
/// The first thing that is wrong.
pub fn validate(configs: &ConfigMap) -> Result<(), InvalidMirror> {
    MirrorConfig::resolve(configs).map(|_| ())
}

/// A mirror's configuration in numbers and patterns.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// Where the source is found: host and port.
    pub bootstrap: Vec<(String, u16)>,
    /// The pinned id of the source cluster, once known.
    pub source_cluster_id: Option<String>,
    /// `request.timeout.ms`
    pub request_timeout: Duration,
    /// `socket.connection.setup.timeout.ms`
    pub connect_timeout: Duration,
    /// `fetch.wait.max.ms`
    pub fetch_wait_max: Duration,
    /// `fetch.backoff.ms`
    pub fetch_backoff: Duration,
    /// `fetch.min.bytes`
    pub fetch_min_bytes: i32,
    /// `fetch.response.max.bytes`
    pub fetch_response_max_bytes: i32,
    /// `fetch.max.bytes`: of each partition.
    pub fetch_max_bytes: i32,
    /// `socket.receive.buffer.bytes`; `None` lets the kernel tune.
    pub receive_buffer_bytes: Option<usize>,
    /// `topics.include`
    pub topics_include: Patterns,
    /// `topics.exclude`
    pub topics_exclude: Patterns,
    /// `topic.properties.exclude`
    pub topic_properties_exclude: Patterns,
    /// `groups.include`
    pub groups_include: Patterns,
    /// `groups.exclude`
    pub groups_exclude: Patterns,
    /// `support.unclean.leader.election`
    pub supports_unclean_election: bool,
    /// `divergence.max.records`
    pub divergence_records_max: u64,
}

/// Keys that are kept and shown, and change nothing yet.
const NOT_ACTED_ON: &[&str] = &[
    "acls.include",
    "connections.max.idle.ms",
    "groups.exclude",
    "groups.include",
    "socket.connection.setup.timeout.max.ms",
    "socket.timeout.ms",
];

/// True for a key of a mirror that changes what a node does.
pub fn acts_on(key: &str) -> bool {
    !NOT_ACTED_ON.contains(&key)
}

/// Regular expressions of which one must match a whole name.
#[derive(Clone, Debug, std::default::Default)]
pub struct Patterns {
    any_of: Option<Regex>,
}

impl Patterns {
    /// Reads patterns; linear-time expressions only.
    ///
    /// # Errors
    /// The first that is no regular expression.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Patterns, InvalidMirror> {
        let patterns: Vec<&str> = patterns.into_iter().collect();
        for pattern in &patterns {
            Regex::new(pattern).map_err(|error| {
                InvalidMirror(format!("'{pattern}' is not a valid regular expression: {error}"))
            })?;
        }
        if patterns.is_empty() {
            return Ok(Patterns::default());
        }
        let any_of = Regex::new(&format!(
            "^(?:{})$",
            patterns.iter().map(|one| format!("(?:{one})")).collect::<Vec<_>>().join("|")
        ))
        .map_err(|error| InvalidMirror(format!("the patterns do not fit together: {error}")))?;
        Ok(Patterns { any_of: Some(any_of) })
    }

    /// True where one of them matches all of `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.any_of.as_ref().is_some_and(|any_of| any_of.is_match(name))
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.any_of.is_none()
    }
}

impl MirrorConfig {
    /// Reads a mirror's configuration, in stored form.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn resolve(configs: &ConfigMap) -> Result<MirrorConfig, InvalidMirror> {
        for (name, value) in configs {
            let key = table::mirror_key(stored_key(name)?).expect("a stored key is in the table");
            key.canonical(value).map_err(|refusal| InvalidMirror(refusal.of(name)))?;
        }
        let values = Values { configs };
        refuse_security(&values.text("security.protocol"))?;
        let millis = |name: &str| Duration::from_millis(values.number(name).max(0).unsigned_abs());
        let patterns = |name: &str| {
            let parsed = Patterns::parse(elements(&values.text(name)));
            parsed.map_err(|InvalidMirror(why)| InvalidMirror(format!("{name}: {why}")))
        };
        Ok(MirrorConfig {
            bootstrap: bootstrap(configs.get(BOOTSTRAP_SERVERS).map_or("", |value| value))?,
            source_cluster_id: configs.get(SOURCE_CLUSTER_ID).map(|value| value.to_string()),
            request_timeout: millis("request.timeout.ms"),
            connect_timeout: millis("socket.connection.setup.timeout.ms"),
            fetch_wait_max: millis("fetch.wait.max.ms"),
            fetch_backoff: millis("fetch.backoff.ms"),
            fetch_min_bytes: values.int("fetch.min.bytes"),
            fetch_response_max_bytes: values.int("fetch.response.max.bytes"),
            fetch_max_bytes: values.int("fetch.max.bytes"),
            receive_buffer_bytes: usize::try_from(values.number("socket.receive.buffer.bytes"))
                .ok()
                .filter(|size| *size > 0),
            topics_include: patterns("topics.include")?,
            topics_exclude: patterns("topics.exclude")?,
            topic_properties_exclude: patterns("topic.properties.exclude")?,
            groups_include: patterns("groups.include")?,
            groups_exclude: patterns("groups.exclude")?,
            supports_unclean_election: is_true(&values.text(SUPPORT_UNCLEAN)),
            divergence_records_max: values.number("divergence.max.records").max(0).unsigned_abs(),
        })
    }

    /// Of how many records a partition may be relieved that its source has lost to an unclean election, with what is
    /// set for its topic; `None` where nothing is dropped.
    pub fn divergence_records_max(&self, topic: &ConfigMap) -> Option<u64> {
        let of_topic = |plain: &str| topic.get(&*format!("mirror.{plain}")).map(|value| value.trim());
        let supports = of_topic(SUPPORT_UNCLEAN).or_else(|| of_topic(UNCLEAN_ENABLE)).map(is_true);
        let records_max = of_topic("divergence.max.records").and_then(|value| value.parse().ok());
        supports
            .unwrap_or(self.supports_unclean_election)
            .then(|| records_max.unwrap_or(self.divergence_records_max))
    }
}

struct Values<'a> {
    configs: &'a ConfigMap,
}

impl Values<'_> {
    fn text(&self, name: &str) -> String {
        let default = || match table::mirror_key(name).map(|key| key.default) {
            Some(Default::Is(text)) => text.to_owned(),
            _ => String::new(),
        };
        self.configs.get(name).map_or_else(default, |value| value.trim().to_owned())
    }

    fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(-1)
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.number(name)).unwrap_or(i32::MAX)
    }
}

fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

fn refuse_security(protocol: &str) -> Result<(), InvalidMirror> {
    if protocol == "PLAINTEXT" {
        return Ok(());
    }
    Err(InvalidMirror(format!(
        "security.protocol={protocol} is not supported yet: mirrors connect with PLAINTEXT only"
    )))
}

fn bootstrap(text: &str) -> Result<Vec<(String, u16)>, InvalidMirror> {
    let servers = elements(text);
    if servers.is_empty() {
        return Err(InvalidMirror("bootstrap.servers is required".to_owned()));
    }
    servers
        .into_iter()
        .map(|server| {
            super::server::host_and_port(server)
                .filter(|(host, port)| !host.is_empty() && *port > 0)
                .ok_or_else(|| {
                    InvalidMirror(format!(
                        "Invalid value {server} for configuration bootstrap.servers: host:port is expected"
                    ))
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_stored_as_one() {
        let given = [("mirror.fetch.min.bytes", Some("7")), ("bootstrap.servers", Some("a:1,b:2"))];
        let stored = stored(given).unwrap();
        assert_eq!(stored.get("fetch.min.bytes").map(|value| &**value), Some("7"));
        let config = MirrorConfig::resolve(&stored).unwrap();
        assert_eq!(config.fetch_min_bytes, 7);
        assert_eq!(config.bootstrap, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(config.receive_buffer_bytes, None);
    }

    #[test]
    fn an_unclean_election_costs_records_only_where_that_is_configured() {
        let given = |given: &[(&'static str, &'static str)]| {
            let server = ("bootstrap.servers", Some("a:1"));
            let all = given.iter().map(|(key, value)| (*key, Some(*value))).chain([server]);
            stored(all).and_then(|stored| MirrorConfig::resolve(&stored))
        };
        let max = |mirror: &[_], topic: &[(&str, &str)]| {
            let topic = topic.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect();
            given(mirror).unwrap().divergence_records_max(&topic)
        };
        let on_topic = ("mirror.support.unclean.leader.election", "true");
        assert_eq!(max(&[], &[]), None);
        assert_eq!(max(&[("support.unclean.leader.election", "true")], &[]), Some(10_000));
        assert_eq!(max(&[("mirror.unclean.leader.election.enable", "true")], &[]), Some(10_000));
        assert_eq!(max(&[("divergence.max.records", "5")], &[on_topic]), Some(5));
        assert_eq!(max(&[], &[on_topic, ("mirror.divergence.max.records", "7")]), Some(7));
        assert_eq!(max(&[], &[("mirror.unclean.leader.election.enable", "true")]), Some(10_000));
        let off_topic = ("mirror.support.unclean.leader.election", "false");
        assert_eq!(max(&[("support.unclean.leader.election", "true")], &[off_topic]), None);
        let twice = [("support.unclean.leader.election", "true"), ("unclean.leader.election.enable", "true")];
        assert!(given(&twice).is_err());
    }

    #[test]
    fn what_a_mirror_cannot_have_is_refused_before_it_exists() {
        let refused = |given: &[(&'static str, &'static str)]| {
            stored(given.iter().map(|(name, value)| (*name, Some(*value))))
                .and_then(|configs| validate(&configs))
                .unwrap_err()
                .0
        };
        let server = ("bootstrap.servers", "a:1");
        assert_eq!(refused(&[]), "bootstrap.servers is required");
        assert_eq!(
            refused(&[("bootstrap.servers", "")]),
            "Invalid value  for configuration bootstrap.servers: String must be non-empty"
        );
        assert_eq!(refused(&[server, ("nosuch", "1")]), "Unknown cluster mirror config name: nosuch");
        assert_eq!(
            refused(&[server, ("security.protocol", "SSL")]),
            "security.protocol=SSL is not supported yet: mirrors connect with PLAINTEXT only"
        );
        assert!(
            refused(&[server, ("sasl.jaas.config", "x")])
                .starts_with("sasl.jaas.config is not supported yet")
        );
        assert_eq!(
            refused(&[server, ("fetch.max.bytes", "0")]),
            "Invalid value 0 for configuration fetch.max.bytes: Value must be at least 1"
        );
        assert_eq!(
            refused(&[server, ("topics.include", "a"), ("mirror.topics.include", "b")]),
            "topics.include is given more than once"
        );
        assert!(
            refused(&[server, ("topics.include", "ok.*,(")])
                .starts_with("topics.include: '(' is not a valid regular expression")
        );
        assert!(refused(&[("bootstrap.servers", "nowhere")]).contains("host:port is expected"));
    }

    #[test]
    fn what_changes_nothing_is_a_key_of_a_mirror() {
        for key in NOT_ACTED_ON {
            assert_eq!(table::mirror_key(key).map(|found| found.name), Some(*key));
        }
        assert!(acts_on("topics.include") && !acts_on("groups.include"));
    }

    #[test]
    fn patterns_match_whole_names_and_none_match_nothing() {
        let patterns = Patterns::parse(["__.*", "tmp"]).unwrap();
        assert!(patterns.matches("__consumer_offsets") && patterns.matches("tmp"));
        assert!(!patterns.matches("tmp2") && !patterns.matches("a__b"));
        assert!(!Patterns::default().matches("anything"));
    }

    #[test]
    fn a_mirrors_name_follows_the_rules_of_topics() {
        assert_eq!(validate_name("east-1.a_b"), Ok(()));
        for name in ["", ".", "..", "a b", &"x".repeat(250)] {
            assert!(validate_name(name).is_err(), "{name}");
        }
    }
}
