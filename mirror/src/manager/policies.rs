//! Which topics the source compacts: asked where histories do not agree, for there a batch that is missing or another
//! one says nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_transport::Endpoint;
use tarn_wire::ErrorCode;

use super::compare::{Asked, unreached};
use super::job::{Outcome, Site};
use crate::source::configs;

/// Finds which of these partitions are of topics that the source compacts. Where that cannot be told, they have come to
/// an outcome.
pub(super) async fn with_policies<T>(
    site: &Site,
    endpoint: &Endpoint,
    open: Vec<T>,
    asked_of: impl Fn(&T) -> &Asked,
    outcomes: &mut BTreeMap<usize, Outcome>,
) -> Vec<(T, bool)> {
    if open.is_empty() {
        return Vec::new();
    }
    let topics: BTreeSet<Arc<str>> = open.iter().map(|one| asked_of(one).question.topic.clone()).collect();
    let topics: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
    let compacted = match site.connections.to(endpoint).await {
        Ok(client) => configs::compacted(&client, &topics).await,
        Err(error) => Err(error),
    };
    let mut known = Vec::new();
    for one in open {
        let asked = asked_of(&one);
        let index = asked.index;
        let outcome = match &compacted {
            Ok(compacted) => match compacted.get(&*asked.question.topic) {
                Some(compacted_there) => {
                    known.push((one, *compacted_there));
                    continue;
                }
                None => Outcome::SourceLost(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            },
            Err(error) => unreached(error),
        };
        outcomes.insert(index, outcome);
    }
    known
}
