//! The source cluster, as questions with answers: who it is, what topics it has, who leads them.
//!
//! What handlers ask before there is anything to fetch is here; each such call makes a connection of its
//! own and closes it. The manager keeps `connections` and asks `metadata`, `offsets`, `batches` and `upstream`
//! through them.

pub mod batches;
pub mod configs;
pub mod connections;
pub mod metadata;
pub mod offsets;
pub mod upstream;

use std::sync::Arc;

use tarn_image::config::mirror::{MirrorConfig, Patterns};
use tarn_image::mirrors::is_never_mirrored;
use tarn_image::topic_name;
use tarn_record::TopicId;
use tarn_transport::ClientError;
use tarn_wire::messages::start_mirror_topics_request::{MirrorTopicConfig, StartMirrorTopic};
use tarn_wire::{ApiKey, ErrorCode};
use thiserror::Error;

use crate::reasons::Reason;
use crate::sync::discovery::is_mirrored_by;
use connections::Connections;
use metadata::{SourceMetadata, Topics};

/// A topic of the source, as a mirror would begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    /// Its name.
    pub name: String,
    /// Its id, `TopicId::ZERO` at a source that has none.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
    /// What is set for it there and copied here.
    pub configs: Vec<(String, String)>,
    /// Why it must not be mirrored: it would come back to the cluster it began in.
    pub loop_of: Option<String>,
}

impl SourceTopic {
    /// The topic as StartMirrorTopics names it.
    pub fn to_start(&self) -> StartMirrorTopic {
        let config = |(name, value): &(String, String)| MirrorTopicConfig {
            name: name.as_str().into(),
            value: Some(value.as_str().into()),
        };
        StartMirrorTopic {
            topic_id: self.id.0,
            topic_name: self.name.as_str().into(),
            num_partitions: self.partitions,
            configs: self.configs.iter().map(config).collect(),
        }
    }
}

/// An address of the source that leads to another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The address.
    pub address: String,
    /// The id of the cluster there.
    pub cluster: String,
}

/// Why the source gave no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SourceError {
    /// None of its addresses led to a broker that answered.
    #[error("the source cannot be reached: {0}")]
    Unreachable(String),
    /// A broker's connection failed during a question.
    #[error("the source does not answer: {0}")]
    Call(#[from] ClientError),
    /// It answered with an error.
    #[error("the source refuses {api}: {} ({})", code.name(), code.message())]
    Refused {
        /// What was asked.
        api: ApiKey,
        /// Its error.
        code: ErrorCode,
    },
    /// The addresses lead to another cluster than before.
    #[error("{}", said_of_another(.pinned, .elsewhere, .silent))]
    ClusterChanged {
        /// The id that the mirror was made for.
        pinned: String,
        /// The addresses that lead elsewhere.
        elsewhere: Vec<Elsewhere>,
        /// What was wrong with the addresses that lead nowhere.
        silent: Vec<String>,
    },
    /// The addresses lead to this very cluster.
    #[error("the source is this cluster itself ({0}): a mirror needs another one")]
    Loop(String),
    /// The source has no cluster id.
    #[error("the source does not say its cluster id")]
    NoClusterId,
}

impl SourceError {
    /// The reason code that operators see.
    pub fn reason(&self) -> Reason {
        match self {
            SourceError::Call(error) => reason_of(error),
            SourceError::Refused { code, .. } => Reason::of_refusal(*code),
            SourceError::NoClusterId => Reason::SourceError,
            SourceError::ClusterChanged { .. } => Reason::SourceClusterChanged,
            SourceError::Loop(_) => Reason::MirrorLoop,
            SourceError::Unreachable(_) => Reason::SourceUnreachable,
        }
    }

    /// The error code of the protocol for a request that needed the source.
    pub fn code(&self) -> ErrorCode {
        match self {
            SourceError::Unreachable(_) | SourceError::Call(_) => ErrorCode::NETWORK_EXCEPTION,
            SourceError::Refused { code, .. } => *code,
            SourceError::ClusterChanged { .. } | SourceError::Loop(_) | SourceError::NoClusterId => {
                ErrorCode::INVALID_REQUEST
            }
        }
    }
}

/// The id of the source cluster, to be pinned when a mirror is made.
///
/// # Errors
/// Why it is not known, or may not be mirrored: it is this cluster, or another than the one pinned.
pub async fn cluster_id(config: &MirrorConfig, own_cluster_id: &str) -> Result<String, SourceError> {
    let connections = Connections::new(config, "mirror-check".to_owned(), Arc::default());
    let metadata = metadata::ask(&connections.any(&[]).await?, Topics::None).await?;
    identify(config, &metadata, own_cluster_id)
}

/// What names and patterns of topics mean at the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The topics.
    pub topics: Vec<SourceTopic>,
    /// Names that no topic has which may be mirrored.
    pub missing: Vec<String>,
}

/// The topics of the source that `include` matches and neither `exclude` nor the mirror's own
/// `topics.exclude` does. Patterns match whole names; topics that begin with `__` are never mirrored. `include` was
/// read from `texts`, whose plain names must be there.
///
/// # Errors
/// Why they are not known.
pub async fn resolve(
    config: &MirrorConfig,
    (texts, include): (&[&str], &Patterns),
    exclude: &Patterns,
    own_cluster_id: &str,
) -> Result<Resolved, SourceError> {
    let connections = Connections::new(config, "mirror-resolve".to_owned(), Arc::default());
    let client = connections.any(&[]).await?;
    let metadata = metadata::ask(&client, Topics::All).await?;
    identify(config, &metadata, own_cluster_id)?;
    let wanted: Vec<_> = metadata
        .topics
        .iter()
        .filter(|(name, topic)| {
            topic.error == ErrorCode::NONE
                && is_mirrored_by(name, include, &config.topics_exclude)
                && !exclude.matches(name)
        })
        .collect();
    let names: Vec<&str> = wanted.iter().map(|(name, _)| &***name).collect();
    let mut configs = configs::ask(&client, &names, config).await?;
    let upstream = upstream::ask(&client).await?;
    let topic = |(name, topic): (&Arc<str>, &metadata::TopicMetadata)| SourceTopic {
        name: name.to_string(),
        id: topic.id,
        partitions: topic.count(),
        configs: configs.remove(&**name).unwrap_or_default(),
        loop_of: upstream.loop_of(name, own_cluster_id),
    };
    let is_there = |name: &str| {
        let there = metadata.topics.get(name);
        there.is_some_and(|topic| topic.error != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
            && !is_never_mirrored(name)
    };
    let missing = texts.iter().filter(|text| topic_name::is_legal(text) && !is_there(text));
    let missing = missing.map(|name| (*name).to_owned()).collect();
    Ok(Resolved { topics: wanted.into_iter().map(topic).collect(), missing })
}

/// Whether the source is the one it should be.
///
/// # Errors
/// `ClusterChanged`, `Loop`, `NoClusterId`.
pub fn identify(
    config: &MirrorConfig,
    metadata: &SourceMetadata,
    own_cluster_id: &str,
) -> Result<String, SourceError> {
    let found = metadata.cluster_id.clone().ok_or(SourceError::NoClusterId)?;
    if let Some(pinned) = &config.source_cluster_id {
        is_pinned(pinned, Some(&found), "the source")?;
    }
    if found == own_cluster_id { Err(SourceError::Loop(found)) } else { Ok(found) }
}

/// Whether what a broker says of its cluster is what a mirror was made for.
fn is_pinned(pinned: &str, found: Option<&str>, address: &str) -> Result<(), SourceError> {
    match found {
        Some(found) if found == pinned => Ok(()),
        Some(found) => {
            let elsewhere = vec![Elsewhere { address: address.into(), cluster: found.into() }];
            Err(SourceError::ClusterChanged { pinned: pinned.into(), elsewhere, silent: Vec::new() })
        }
        None => Err(SourceError::NoClusterId),
    }
}

fn said_of_another(pinned: &str, elsewhere: &[Elsewhere], silent: &[String]) -> String {
    let led = |one: &Elsewhere| format!("{} leads to cluster {}", one.address, one.cluster);
    let led: Vec<String> = elsewhere.iter().map(led).collect();
    let mut said = format!("{}, but the mirror was made for cluster {pinned}", led.join(" and "));
    for silent in silent {
        said.push_str("; ");
        said.push_str(silent);
    }
    said
}

/// The reason code of what went wrong on the way to a source.
fn reason_of(error: &ClientError) -> Reason {
    match error {
        ClientError::TooLarge { .. } => Reason::SourceError,
        ClientError::HandshakeRefused { .. } => Reason::SourceAuthorizationFailed,
        _ => Reason::SourceUnreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_image::config::mirror::stored;

    #[test]
    fn a_source_that_answers_is_never_said_to_be_unreachable() {
        let api = ApiKey::METADATA;
        let changed = is_pinned("east", Some("north"), "a:1").unwrap_err();
        for (error, reason) in [
            (SourceError::NoClusterId, Reason::SourceError),
            (SourceError::Refused { api, code: ErrorCode::INVALID_REQUEST }, Reason::SourceError),
            (changed, Reason::SourceClusterChanged),
            (SourceError::Loop("west".into()), Reason::MirrorLoop),
            (SourceError::Unreachable("nobody listens".into()), Reason::SourceUnreachable),
        ] {
            assert_eq!(error.reason(), reason, "{error}");
        }
    }

    #[test]
    fn a_source_is_refused_where_it_is_this_cluster_or_another_than_before() {
        let given = [("bootstrap.servers", Some("a:1")), ("source.cluster.id", Some("east"))];
        let pinned = MirrorConfig::resolve(&stored(given).unwrap()).unwrap();
        let free = MirrorConfig::resolve(&stored([given[0]]).unwrap()).unwrap();
        let metadata = |id: &str| SourceMetadata { cluster_id: Some(id.into()), ..SourceMetadata::default() };
        assert_eq!(identify(&pinned, &metadata("east"), "west"), Ok("east".to_owned()));
        let changed = identify(&pinned, &metadata("north"), "west").unwrap_err();
        assert_eq!(
            changed.to_string(),
            "the source leads to cluster north, but the mirror was made for cluster east"
        );
        assert_eq!(identify(&free, &metadata("west"), "west"), Err(SourceError::Loop("west".into())));
        assert_eq!(identify(&free, &SourceMetadata::default(), "west"), Err(SourceError::NoClusterId));
    }
}
