//! What the source mirrors itself, and from where: a source that is a Tarn says so, and a topic that would
//! come back to the cluster it began in is not mirrored.
//!
//! Apache Kafka has no such question under our numbers and no mirrors, so there is nothing to ask it.

use std::collections::BTreeSet;

use tarn_image::DesiredState;
use tarn_transport::Client;
use tarn_wire::messages::{ListClusterMirrorsRequest, ListClusterMirrorsResponse};
use tarn_wire::{ErrorCode, Str};

use super::SourceError;

/// The mirrors of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    mirrors: Vec<MirrorThere>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MirrorThere {
    name: String,
    /// The cluster that it mirrors, then those that this one mirrors in turn.
    clusters: Vec<String>,
    topics: BTreeSet<String>,
}

/// Asks one broker; nothing where it does not know the question.
///
/// # Errors
/// The connection failed.
pub async fn ask(client: &Client) -> Result<Upstream, SourceError> {
    let Ok(version) = client.version_for::<ListClusterMirrorsRequest>() else {
        return Ok(Upstream::default());
    };
    let active = [DesiredState::Mirroring, DesiredState::Paused, DesiredState::Stopping];
    let request = ListClusterMirrorsRequest {
        include_topic_names: true,
        desired_states: Some(active.iter().map(|state| Str::from(state.to_string())).collect()),
        ..ListClusterMirrorsRequest::default()
    };
    Ok(read(client.call_at(&request, version).await?))
}

fn read(response: ListClusterMirrorsResponse) -> Upstream {
    if ErrorCode(response.error_code) != ErrorCode::NONE {
        // Who may not see mirrors sees none.
        return Upstream::default();
    }
    let mirrors = response.mirrors.into_iter().map(|mirror| MirrorThere {
        name: mirror.mirror_name.to_string(),
        clusters: std::iter::once(&mirror.source_cluster_id)
            .chain(&mirror.upstream_cluster_ids)
            .map(|id| id.to_string())
            .collect(),
        topics: mirror.topic_names.unwrap_or_default().iter().map(|topic| topic.to_string()).collect(),
    });
    Upstream { mirrors: mirrors.collect() }
}

impl Upstream {
    /// Why a topic of the source would come back to this cluster; `None` where it would not.
    pub fn loop_of(&self, topic: &str, own_cluster_id: &str) -> Option<String> {
        let back = self.mirrors.iter().find(|mirror| {
            mirror.topics.contains(topic) && mirror.clusters.iter().any(|id| id == own_cluster_id)
        })?;
        let through = match back.clusters.first() {
            Some(first) if first != own_cluster_id => format!(" through cluster {first}"),
            _ => String::new(),
        };
        let name = &back.name;
        Some(format!("the source mirrors topic {topic} from this cluster{through}, by its mirror {name}"))
    }

    /// The clusters from which the source has any of the topics that are mirrored here.
    pub fn clusters_of(&self, is_mirrored: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let carries = |mirror: &&MirrorThere| mirror.topics.iter().any(|topic| is_mirrored(topic));
        let found = self.mirrors.iter().filter(carries).flat_map(|mirror| mirror.clusters.iter().cloned());
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_wire::messages::list_cluster_mirrors_response::ListedMirror;

    #[test]
    fn a_topic_that_would_come_back_is_told_directly_and_through_others() {
        let upstream = read(response(0));
        let said = |topic| upstream.loop_of(topic, "us");
        assert!(said("direct").is_some_and(|why| why.contains("mirror back") && !why.contains("through")));
        assert!(said("ring").is_some_and(|why| why.contains("through cluster other")));
        assert_eq!((said("foreign"), said("own")), (None, None));
        assert_eq!(read(response(31)).loop_of("direct", "us"), None);
    }

    #[test]
    fn the_clusters_upstream_are_those_of_the_topics_that_are_mirrored() {
        let upstream = read(response(0));
        let clusters = |topics: &[&str]| {
            upstream.clusters_of(|topic| topics.contains(&topic)).into_iter().collect::<Vec<_>>()
        };
        assert!(clusters(&["own"]).is_empty());
        assert_eq!(clusters(&["foreign", "own"]), ["far"]);
        assert_eq!(clusters(&["ring", "direct"]), ["other", "us"]);
    }

    fn response(error_code: i16) -> ListClusterMirrorsResponse {
        let mirror = |name: &str, source: &str, upstream: &[&str], topic: &str| ListedMirror {
            mirror_name: name.into(),
            source_cluster_id: source.into(),
            upstream_cluster_ids: upstream.iter().map(|id| Str::from(*id)).collect(),
            topic_names: Some(vec![topic.into()]),
            ..ListedMirror::default()
        };
        let mirrors = vec![
            mirror("back", "us", &[], "direct"),
            mirror("far", "far", &[], "foreign"),
            mirror("ring", "other", &["us"], "ring"),
        ];
        ListClusterMirrorsResponse { error_code, mirrors, ..ListClusterMirrorsResponse::default() }
    }
}
