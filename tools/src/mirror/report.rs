//! `tarn mirror report`: what a stop knew of the source, what was copied, and what was aborted; and what was exported
//! before a log was cut.

use std::io::stdout;

use tarn_wire::messages::DescribeMirrorReportsRequest;
use tarn_wire::messages::describe_mirror_reports_response::MirrorPartitionReport;

use super::refusal;
use super::report_output as output;
use super::{ReportArguments, Style, patterns};
use crate::admin::Cluster;
use crate::failure::Failure;
use crate::progress::while_waiting;

/// What is known of one partition that was stopped, or cut. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// The number of the stop.
    pub(super) state_version: i64,
    /// `None` where something was exported and it was never stopped.
    pub(super) stopped_at_ms: Option<i64>,
    /// The source's high watermark in its last answer.
    pub(super) source_offset: Option<i64>,
    /// When that was, by the clock of this cluster.
    pub(super) source_known_at_ms: Option<i64>,
    pub(super) mirrored_offset: Option<i64>,
    /// For how long the source had had something that was missing here.
    pub(super) lag_ms: Option<i64>,
    pub(super) aborted_count: i32,
    /// The first of the aborted transactions: producer id, producer epoch, first offset.
    pub(super) aborted: Vec<(i64, i16, i64)>,
    pub(super) reset_offset: Option<i64>,
    /// What was exported last: the node that has it, and the directory there.
    pub(super) export: Option<(i32, String)>,
}

impl Report {
    /// The records that the source is known to have had and this cluster has not: at least so many are lost
    /// where the source is. `None` where the source has never answered.
    pub(super) fn at_risk(&self) -> Option<i64> {
        Some((self.source_offset? - self.mirrored_offset?).max(0))
    }
}

/// Shows the reports of stopped topics.
pub(super) async fn report(arguments: ReportArguments, style: Style) -> Result<(), Failure> {
    let ReportArguments { named, topics, .. } = arguments;
    let patterns = patterns::parsed(&patterns::checked(&topics)?)?;
    let cluster = Cluster::connect(&named.connect).await?;
    let mut reports = while_waiting("asking", read(&cluster, &named.mirror, None)).await?;
    reports.retain(|report| patterns.is_empty() || patterns.matches(&report.topic));
    output::reports(&mut stdout().lock(), &named.mirror, &reports, style)
}

/// Reads the reports of a mirror, in the order of topics and partitions.
pub(super) async fn read(
    cluster: &Cluster,
    mirror: &str,
    topics: Option<&[String]>,
) -> Result<Vec<Report>, Failure> {
    let request = DescribeMirrorReportsRequest {
        mirror_name: mirror.into(),
        topics: topics.map(|topics| topics.iter().map(|topic| topic.as_str().into()).collect()),
    };
    let answer = cluster.call_mirror_api(&request).await?;
    refusal::check(answer.error_code, answer.error_message.as_deref())?;
    let mut reports: Vec<Report> = answer.partitions.iter().map(of).collect();
    reports.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Ok(reports)
}

fn of(partition: &MirrorPartitionReport) -> Report {
    let known = |number: i64| (number >= 0).then_some(number);
    Report {
        topic: partition.topic_name.to_string(),
        partition: partition.partition_index,
        state_version: partition.state_version,
        stopped_at_ms: known(partition.stopped_at_ms),
        source_offset: known(partition.source_offset_last_known),
        source_known_at_ms: known(partition.source_offset_known_at_ms),
        mirrored_offset: known(partition.mirrored_offset),
        lag_ms: known(partition.lag_ms),
        aborted_count: partition.aborted_transaction_count,
        aborted: partition
            .aborted_transactions
            .iter()
            .map(|aborted| (aborted.producer_id, aborted.producer_epoch, aborted.first_offset))
            .collect(),
        reset_offset: known(partition.reset_offset),
        export: partition.export_file.as_ref().map(|file| (partition.export_broker_id, file.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_risk_is_never_negative_and_unknown_where_the_source_never_answered() {
        let report = |source_offset| Report { source_offset, mirrored_offset: Some(10), ..Report::default() };
        assert_eq!(report(Some(14)).at_risk(), Some(4));
        assert_eq!(report(Some(9)).at_risk(), Some(0));
        assert_eq!(report(None).at_risk(), None);
    }
}
