//! Cluster mirrors (KIP-1279) as the metadata log knows them: which there are, and which topics they fill.
//!
//! A mirror is a configuration of resource type 64. A topic's binding is two topic configs, `mirror.name`
//! and `mirror.desired.state`, which every command writes together in one batch; half a binding, or one
//! that cannot be read, binds nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use thiserror::Error;

use crate::configs::{ConfigMap, ConfigResource, Configs, ResourceType};

/// The topic key that names the mirror.
pub const MIRROR_NAME: &str = "mirror.name";
/// The topic key that says what is wanted.
pub const MIRROR_DESIRED_STATE: &str = "mirror.desired.state";
/// The mirror key for the addresses of the source.
pub const BOOTSTRAP_SERVERS: &str = "bootstrap.servers";
/// The mirror key for the pinned id of the source cluster.
pub const SOURCE_CLUSTER_ID: &str = "source.cluster.id";
/// The internal topic with the states of mirror partitions.
pub const STATE_TOPIC: &str = "__mirror_state";

/// True for the internal topics of a cluster, which are never mirrored.
pub fn is_never_mirrored(topic: &str) -> bool {
    topic.starts_with("__")
}

/// What the operator wants of a mirror topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DesiredState {
    /// Filled from the source, read-only here.
    Mirroring,
    /// Not filled for now, read-only here.
    Paused,
    /// On its way to being an ordinary topic.
    Stopping,
    /// Every partition has stopped: an ordinary topic again.
    Stopped,
}

impl fmt::Display for DesiredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DesiredState::Mirroring => "mirroring",
            DesiredState::Paused => "paused",
            DesiredState::Stopping => "stopping",
            DesiredState::Stopped => "stopped",
        })
    }
}

/// Whether a binding carries the operator's consent to dropping local records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncation {
    /// No consent.
    #[default]
    Refused,
    /// Consent, for this version of the binding only.
    Allowed,
}

/// The value of `mirror.desired.state`: `<state>:<version>[:truncate]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What is wanted.
    pub state: DesiredState,
    /// Raised by every command.
    pub version: i64,
    /// Whether local records may be dropped.
    pub truncation: Truncation,
}

/// Text that is no `mirror.desired.state`.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not of the form <mirroring|paused|stopping|stopped>:<version>[:truncate]")]
pub struct NotWanted(pub String);

impl FromStr for Wanted {
    type Err = NotWanted;

    fn from_str(text: &str) -> Result<Wanted, NotWanted> {
        let refuse = || NotWanted(text.to_owned());
        let mut parts = text.split(':');
        let state = match parts.next() {
            Some("mirroring") => DesiredState::Mirroring,
            Some("paused") => DesiredState::Paused,
            Some("stopping") => DesiredState::Stopping,
            Some("stopped") => DesiredState::Stopped,
            _ => return Err(refuse()),
        };
        let version: i64 = parts.next().and_then(|number| number.parse().ok()).ok_or_else(refuse)?;
        let truncation = match parts.next() {
            None => Truncation::Refused,
            Some("truncate") => Truncation::Allowed,
            Some(_) => return Err(refuse()),
        };
        if version < 0 || parts.next().is_some() {
            return Err(refuse());
        }
        Ok(Wanted { state, version, truncation })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.state, self.version)?;
        match self.truncation {
            Truncation::Allowed => f.write_str(":truncate"),
            Truncation::Refused => Ok(()),
        }
    }
}

/// A topic's place in a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The mirror's name.
    pub mirror: Arc<str>,
    /// What is wanted.
    pub desired: DesiredState,
    /// Raised by every command.
    pub version: i64,
    /// Whether local records may be dropped.
    pub truncation: Truncation,
}

impl Binding {
    /// True until every partition has stopped.
    pub fn is_active(&self) -> bool {
        self.desired != DesiredState::Stopped
    }

    /// Why a client may not change `topic`, or its partition, which is in `state`.
    pub fn refusal(&self, topic: &str, state: &str) -> ReadOnly {
        ReadOnly { topic: topic.to_owned(), mirror: self.mirror.clone(), state: state.to_owned() }
    }

    fn read(configs: &ConfigMap) -> Option<Binding> {
        let mirror = configs.get(MIRROR_NAME)?.clone();
        let wanted: Wanted = configs.get(MIRROR_DESIRED_STATE)?.parse().ok()?;
        let Wanted { state, version, truncation } = wanted;
        Some(Binding { mirror, desired: state, version, truncation })
    }
}

/// A change that a client may not make because a mirror fills the topic. Its sentence is the same whatever
/// the API: it names mirror, state and the command that would make the topic writable.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "topic '{topic}' belongs to cluster mirror {mirror} (state {state}) and is read-only; to make it writable: \
     tarn mirror stop --mirror {mirror} --topics {topic}"
)]
pub struct ReadOnly {
    topic: String,
    mirror: Arc<str>,
    state: String,
}

/// One mirror.
#[derive(Clone, Copy, Debug)]
pub struct MirrorImage<'a> {
    /// Its name.
    pub name: &'a str,
    /// What is set for it, in the spelling without the prefix `mirror.`.
    pub configs: &'a ConfigMap,
}

impl MirrorImage<'_> {
    /// The addresses of the source, comma separated.
    pub fn bootstrap_servers(&self) -> &str {
        self.configs.get(BOOTSTRAP_SERVERS).map_or("", |value| value)
    }

    /// The pinned id of the source cluster.
    pub fn source_cluster_id(&self) -> Option<&str> {
        self.configs.get(SOURCE_CLUSTER_ID).map(|value| &**value)
    }
}

/// The index from mirrors to topics and back, kept beside the configs it is read from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    by_topic: OrdMap<Arc<str>, Binding>,
    by_mirror: OrdMap<Arc<str>, OrdSet<Arc<str>>>,
}

impl Bindings {
    /// The binding of a topic.
    pub fn of(&self, topic: &str) -> Option<&Binding> {
        self.by_topic.get(topic)
    }

    /// The topics of a mirror in the order of their names.
    pub fn topics_of(&self, mirror: &str) -> impl Iterator<Item = &Arc<str>> {
        self.by_mirror.get(mirror).into_iter().flatten()
    }

    /// Every bound topic in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Binding)> {
        self.by_topic.iter()
    }

    /// Reads the binding of `topic` again after its configs changed.
    pub(crate) fn refresh(&mut self, topic: &Arc<str>, configs: &Configs) {
        if let Some(old) = self.by_topic.remove(topic)
            && let Some(topics) = self.by_mirror.get_mut(&old.mirror)
        {
            topics.remove(topic);
            if topics.is_empty() {
                self.by_mirror.remove(&old.mirror);
            }
        }
        if let Some(new) = Binding::read(configs.topic(topic)) {
            self.by_mirror.entry(new.mirror.clone()).or_default().insert(topic.clone());
            self.by_topic.insert(topic.clone(), new);
        }
    }
}

/// The mirror called `name`.
pub(crate) fn mirror<'a>(configs: &'a Configs, name: &str) -> Option<MirrorImage<'a>> {
    configs
        .resources(ResourceType::CLUSTER_MIRROR)
        .find(|(resource, _)| &*resource.name == name)
        .map(|(resource, configs)| MirrorImage { name: &resource.name, configs })
}

/// All mirrors in the order of their names.
pub(crate) fn mirrors(configs: &Configs) -> impl Iterator<Item = MirrorImage<'_>> {
    configs
        .resources(ResourceType::CLUSTER_MIRROR)
        .map(|(resource, configs)| MirrorImage { name: &resource.name, configs })
}

/// The mirrors whose configs or topics a set of changed resources touches.
pub(crate) fn touched(changed: &BTreeSet<ConfigResource>) -> impl Iterator<Item = &Arc<str>> {
    changed
        .iter()
        .filter(|resource| resource.kind == ResourceType::CLUSTER_MIRROR)
        .map(|resource| &resource.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desired_state_reads_back_what_it_wrote() {
        for text in ["mirroring:0", "paused:7", "stopping:8:truncate", "stopped:9223372036854775807"] {
            assert_eq!(text.parse::<Wanted>().map(|wanted| wanted.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_refusal_names_mirror_state_and_the_command_as_it_is_typed() {
        let bound = [(MIRROR_NAME, "m"), (MIRROR_DESIRED_STATE, "paused:7")];
        let configs: ConfigMap = bound.map(|(key, value)| (Arc::from(key), Arc::from(value))).into();
        let binding = Binding::read(&configs).unwrap();
        assert_eq!(
            binding.refusal("t", "PAUSED").to_string(),
            "topic 't' belongs to cluster mirror m (state PAUSED) and is read-only; to make it writable: \
             tarn mirror stop --mirror m --topics t"
        );
    }

    #[test]
    fn what_is_no_desired_state_binds_nothing() {
        for text in [
            "",
            "mirroring",
            "mirroring:",
            "mirroring:x",
            "mirroring:-1",
            "gone:1",
            "paused:1:no",
            "paused:1:truncate:",
        ] {
            assert_eq!(text.parse::<Wanted>(), Err(NotWanted(text.to_owned())));
        }
        let half: ConfigMap = [(Arc::from(MIRROR_NAME), Arc::from("m"))].into();
        assert_eq!(Binding::read(&half), None);
    }
}
