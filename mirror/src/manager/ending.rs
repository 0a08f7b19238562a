//! The work of a stop, for many partitions at once: flushing logs, ending them, and what is written down of it.

use tarn_record::Offset;
use tarn_wire::Str;
use tarn_wire::messages::write_mirror_states_request::{
    AbortedTransaction, MirrorStopReport, WriteMirrorStatePartition,
};

use super::job::{Item, Outcome, Site};
use super::work::fill;
use crate::alignment::Content;
use crate::coordinator::NEVER_STOPPED_MS;
use crate::crash_points;
use crate::fetch::progress::Clock;
use crate::limits;
use crate::local_cluster::{self, EndOrder, Ending, Export, LocalCluster};
use crate::reasons::Reason;

/// Makes logs durable and committed up to their ends, and looks whether the positions of earlier stops speak of them.
pub(super) async fn flush(site: &Site, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let flushed = cluster.flush(items.iter().map(|item| item.partition).collect()).await;
    let outcome = |flushed| match flushed {
        Ok(ends) if is_committed(&ends) => {
            crash_points::reached("stop.flushed");
            Outcome::Flushed(ends)
        }
        Ok(ends) => Outcome::Failed(
            Reason::DestinationUnderMinIsr,
            format!("the log ends at {} and is committed up to {}", ends.log_end, ends.high_watermark),
        ),
        Err(error) => Outcome::refused_here(&error),
    };
    let mut outcomes: Vec<Outcome> = flushed.into_iter().map(outcome).collect();
    fill(&mut outcomes, items.len(), Reason::DestinationNoLeader);
    look_behind_positions(site, cluster, items, &mut outcomes).await;
    outcomes
}

/// A log that its mirror has not aligned since it last stopped may have been filled by another one meanwhile
/// (see `positions`): then the end of that stop is not behind its position.
async fn look_behind_positions(
    site: &Site,
    cluster: &impl LocalCluster,
    items: &[Item],
    outcomes: &mut [Outcome],
) {
    let open = |(index, (item, outcome)): (usize, (&Item, &Outcome))| {
        let Outcome::Flushed(ends) = outcome else { return None };
        let position = item.last_position.filter(|_| item.content == Content::Local)?;
        (ends.latest_epoch > position.epoch).then_some((index, item.partition, position))
    };
    let places: Vec<_> = items.iter().zip(&*outcomes).enumerate().filter_map(open).collect();
    if places.is_empty() {
        return;
    }
    let asked = places.iter().map(|&(_, partition, position)| (partition, position)).collect();
    for ((index, ..), ending) in places.into_iter().zip(cluster.endings(asked).await) {
        let is_ours = |ending: &Ending| ending.source_cluster_id == site.source_cluster_id;
        match (ending, &outcomes[index]) {
            (Ok(ending), Outcome::Flushed(ends)) if !ending.as_ref().is_some_and(is_ours) => {
                outcomes[index] = Outcome::FlushedAnother(*ends);
            }
            (Ok(_), _) => {}
            (Err(error), _) => outcomes[index] = Outcome::refused_here(&error),
        }
    }
}

/// Another leader could hold less than the position claims.
fn is_committed(ends: &local_cluster::LogEnds) -> bool {
    ends.high_watermark >= ends.log_end
}

/// Ends logs behind their positions.
pub(super) async fn end_logs(site: &Site, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    crash_points::reached("stop.epoch_raised");
    let order = |item: &Item| {
        Some(EndOrder {
            partition: item.partition,
            version: item.bound.version,
            position: item.position?,
            source_cluster_id: site.source_cluster_id.clone(),
        })
    };
    let mut ended = cluster.end_logs(items.iter().filter_map(order).collect()).await.into_iter();
    let outcome = |item: &Item| {
        let ended = item.position.and_then(|_| ended.next());
        match ended {
            Some(Ok(ended)) => {
                crash_points::reached("stop.log_ended");
                Outcome::Ended(ended)
            }
            Some(Err(error)) => Outcome::EndRefused(error.reason(), error.to_string()),
            None => Outcome::EndRefused(Reason::DestinationNoLeader, "it was not asked to".to_owned()),
        }
    };
    items.iter().map(outcome).collect()
}

/// The part of a write of STOPPING that says where the mirror has left the log, and what was known then.
pub(super) fn position_to_write(item: &Item, clock: &Clock) -> WriteMirrorStatePartition {
    let Some(position) = item.position else { return WriteMirrorStatePartition::default() };
    WriteMirrorStatePartition {
        last_mirror_epoch: position.epoch.0,
        last_mirror_offset: position.offset.0,
        ..source_to_write(item, clock)
    }
}

/// The part of a write of STOPPED that says how the stop went; nothing where it was STOPPED before.
pub(super) fn report_to_write(item: &Item, clock: &Clock) -> WriteMirrorStatePartition {
    let (Some(position), Some(ended)) = (item.position, &item.ended) else {
        return WriteMirrorStatePartition::default();
    };
    let aborted = ended.aborted.iter().take(limits::ABORTED_IN_REPORT).map(|aborted| AbortedTransaction {
        producer_id: aborted.producer_id.0,
        producer_epoch: aborted.producer_epoch.0,
        first_offset: aborted.first_offset.0,
    });
    let report = MirrorStopReport {
        stopped_at_ms: clock.wall_ms(),
        mirrored_offset: position.offset.0,
        lag_ms: lag_to_write(item),
        aborted_transaction_count: i32::try_from(ended.aborted_count).unwrap_or(i32::MAX),
        aborted_transactions: aborted.collect(),
        reset_offset: ended.reset_offset.0,
        ..item.unreported.as_ref().map(export_to_write).unwrap_or_default()
    };
    WriteMirrorStatePartition { report: Some(report), ..source_to_write(item, clock) }
}

/// What a report says of an export, with nothing of a stop.
pub(super) fn export_to_write(export: &Export) -> MirrorStopReport {
    MirrorStopReport {
        stopped_at_ms: NEVER_STOPPED_MS,
        mirrored_offset: Offset::NONE.0,
        export_broker_id: export.broker.0,
        export_file: Some(Str::from(&*export.path)),
        ..MirrorStopReport::default()
    }
}

fn source_to_write(item: &Item, clock: &Clock) -> WriteMirrorStatePartition {
    let Some(known) = item.known else { return WriteMirrorStatePartition::default() };
    WriteMirrorStatePartition {
        source_offset_last_known: known.high_watermark.0,
        source_offset_known_at_ms: known.answered_at_wall_ms(clock.now_ms(), clock.wall_ms()),
        source_lag_ms: lag_to_write(item),
        ..WriteMirrorStatePartition::default()
    }
}

/// For how long the source had had something that was missing here, when it last answered; −1 where that is not known.
fn lag_to_write(item: &Item) -> i64 {
    item.known.map_or(-1, |known| i64::try_from(known.lag_ms).unwrap_or(i64::MAX))
}
