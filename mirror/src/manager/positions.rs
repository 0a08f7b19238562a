//! Which last mirror positions still speak of the log that is here.
//!
//! A position is kept as long as its mirror is. Meanwhile the log may have been cut, filled by another mirror and
//! promoted again, and then what stands below the position is not what that mirror had brought. What tells is the
//! ending that its stop wrote behind the position, which names the source. A log that was cut since, and not mirrored
//! yet, has lost that; but then nothing in it is of a newer leader epoch than the position's, as all is that was written
//! here after the stop.

use std::collections::BTreeMap;

use tarn_record::TopicIdPartition;

use super::compare::Asked;
use super::job::{Outcome, Site};
use crate::alignment::Content;
use crate::local_cluster::{Ending, LastPosition, LocalCluster};

/// Forgets positions behind which the log was not ended for this mirror's source.
pub(super) async fn distrust(
    site: &Site,
    cluster: &impl LocalCluster,
    asked: &mut Vec<Asked>,
    outcomes: &mut BTreeMap<usize, Outcome>,
) {
    let open = |one: &Asked| {
        let position = one.last_position.filter(|_| one.content == Content::Local)?;
        (one.question.ours.latest_epoch > position.epoch).then_some((one.partition, position))
    };
    let places: Vec<(TopicIdPartition, LastPosition)> = asked.iter().filter_map(open).collect();
    if places.is_empty() {
        return;
    }
    let partitions: Vec<TopicIdPartition> = places.iter().map(|(partition, _)| *partition).collect();
    let endings = cluster.endings(places).await;
    let mut found: BTreeMap<TopicIdPartition, _> = partitions.into_iter().zip(endings).collect();
    asked.retain_mut(|one| match found.remove(&one.partition) {
        None => true,
        Some(Ok(ending)) => {
            let is_ours = |ending: &Ending| ending.source_cluster_id == site.source_cluster_id;
            one.last_position = one.last_position.filter(|_| ending.as_ref().is_some_and(is_ours));
            true
        }
        Some(Err(error)) => {
            outcomes.insert(one.index, Outcome::refused_here(&error));
            false
        }
    });
}
