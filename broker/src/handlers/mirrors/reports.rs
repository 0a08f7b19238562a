//! DescribeMirrorReports: what the stops of a mirror's topics knew and kept.

use std::collections::BTreeSet;
use std::rc::Rc;

use tarn_mirror::coordinator::StopReport;
use tarn_record::TopicIdPartition;
use tarn_wire::messages::describe_mirror_reports_response::{AbortedTransaction, MirrorPartitionReport};
use tarn_wire::messages::{DescribeMirrorReportsRequest, DescribeMirrorReportsResponse};
use tarn_wire::{ErrorCode, Str};

use crate::coordinators::mirror_states;
use crate::core::Core;

/// Serves DescribeMirrorReports: all or none, so that nothing that may be lost is missing unnoticed.
pub async fn reports(
    core: &Rc<Core>,
    request: DescribeMirrorReportsRequest,
) -> DescribeMirrorReportsResponse {
    let name = &*request.mirror_name;
    if core.view().image().mirror(name).is_none() {
        let message = format!("there is no mirror {name}");
        return refused(ErrorCode::UNKNOWN_CLUSTER_MIRROR, Some(message));
    }
    let topics: Option<BTreeSet<&str>> =
        request.topics.as_ref().map(|topics| topics.iter().map(|topic| &**topic).collect());
    match mirror_states::reports(core, name).await {
        Ok(mut reports) => {
            reports.retain(|(_, report)| topics.as_ref().is_none_or(|asked| asked.contains(&*report.topic)));
            reports.sort_by(|(a, one), (b, other)| {
                (&*one.topic, a.partition).cmp(&(&*other.topic, b.partition))
            });
            let partitions = reports.into_iter().map(|(partition, report)| of(partition, report)).collect();
            DescribeMirrorReportsResponse { partitions, ..DescribeMirrorReportsResponse::default() }
        }
        Err(error) => refused(error, None),
    }
}

fn of(partition: TopicIdPartition, report: StopReport) -> MirrorPartitionReport {
    let aborted = report.aborted.iter().map(|aborted| AbortedTransaction {
        producer_id: aborted.producer_id.0,
        producer_epoch: aborted.producer_epoch.0,
        first_offset: aborted.first_offset.0,
    });
    MirrorPartitionReport {
        topic_id: partition.topic_id.0,
        partition_index: partition.partition.0,
        state_version: report.version,
        stopped_at_ms: report.stopped_at_ms,
        source_offset_last_known: report.source_offset.0,
        source_offset_known_at_ms: report.source_known_at_ms,
        mirrored_offset: report.mirrored_offset.0,
        lag_ms: report.lag_ms,
        aborted_transaction_count: report.aborted_count,
        aborted_transactions: aborted.collect(),
        reset_offset: report.reset_offset.0,
        export_broker_id: report.export_broker_id,
        export_file: report.export_file,
        topic_name: report.topic,
    }
}

fn refused(error: ErrorCode, message: Option<String>) -> DescribeMirrorReportsResponse {
    DescribeMirrorReportsResponse {
        error_code: error.0,
        error_message: message.map(Str::from),
        ..DescribeMirrorReportsResponse::default()
    }
}
