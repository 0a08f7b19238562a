//! Truncating logs that their source has not, many at once: orders to the owning cores, and what their answers mean.

use super::job::{Item, Outcome};
use super::work::fill;
use crate::local_cluster::{LocalCluster, LocalError, TruncateOrder};
use crate::partition::Want;
use crate::reasons::Reason;

/// Has logs truncated; one outcome for each item, in their order.
pub(super) async fn truncate(cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let decided: Vec<_> = items
        .iter()
        .filter_map(|item| match item.want {
            Want::Truncate(plan) => Some((item, plan)),
            _ => None,
        })
        .collect();
    let orders = decided.iter().map(|(item, plan)| TruncateOrder {
        partition: item.partition,
        version: item.bound.version,
        log_end: plan.log_end,
        truncate: plan.truncate,
        export_from: plan.export_from,
    });
    let answers = cluster.truncate_logs(orders.collect()).await;
    let outcome = |((item, plan), answer): (&(&Item, _), _)| match answer {
        Ok(done) => Outcome::Truncated(*plan, Box::new(done), item.bound.version),
        // It is decided anew once the disk takes what is to be kept; until then this is tried again.
        Err(error @ (LocalError::Export { .. } | LocalError::Storage { .. })) => {
            Outcome::refused_here(&error)
        }
        Err(error) => Outcome::TruncationRefused(error.reason(), format!("{error}; it is compared again")),
    };
    let mut outcomes: Vec<Outcome> = decided.iter().zip(answers).map(outcome).collect();
    fill(&mut outcomes, items.len(), Reason::DestinationNoLeader);
    outcomes
}
