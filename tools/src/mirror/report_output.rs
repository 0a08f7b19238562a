//! What is printed of stops: what may be lost, and the report itself.
//!
//! A number that is not known is `-` in a table and absent from JSON. What is at risk is what the source is known
//! to have had; what it took after its last answer nobody here can know, so the age of that answer stands
//! beside it.

use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::Style;
use super::change_output::unprintable;
use super::output::{number, print_json, row};
use super::refusal::{self, Refused};
use super::report::Report;
use crate::failure::Failure;
use crate::progress::{counted, thousands};

/// A stop that has come to its end.
pub(super) struct Stopped<'a> {
    pub(super) mirror: &'a str,
    pub(super) topics: &'a [String],
    /// What was refused beside them.
    pub(super) refused: &'a [Refused],
    /// Where it was asked for.
    pub(super) address: String,
    pub(super) took: Duration,
}

/// Says that topics are writable, and what may be lost; `reports` where they could be read.
pub(super) fn stopped(
    out: &mut impl Write,
    stopped: &Stopped<'_>,
    reports: Option<&[Report]>,
    style: Style,
) -> Result<(), Failure> {
    let Stopped { mirror, topics, refused, ref address, took } = *stopped;
    if style == Style::Json {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let partitions = reports.map(|reports| reports.iter().map(ReportJson::from).collect());
        let answer = StoppedJson { mirror, stopped: topics, took_ms, partitions };
        if refused.is_empty() {
            return print_json(out, &answer);
        }
        let mut answer = serde_json::to_value(answer).map_err(unprintable)?;
        if let Some(fields) = answer.as_object_mut() {
            refusal::add_json(fields, refused, &[]).map_err(unprintable)?;
        }
        return print_json(out, &answer);
    }
    writeln!(out, "Stopped mirroring for topics [{}] in mirror {mirror}", topics.join(", "))?;
    let Some(reports) = reports else {
        return Ok(writeln!(out, "Everything is writable after {:.1} s", took.as_secs_f64())?);
    };
    let (count, are) = (counted(reports.len(), "partition"), if reports.len() == 1 { "is" } else { "are" });
    writeln!(out, "{count} {are} writable after {:.1} s", took.as_secs_f64())?;
    writeln!(out, "{}", at_risk(reports))?;
    writeln!(out, "Each partition: tarn mirror report --bootstrap-server {address} --mirror {mirror}")?;
    Ok(())
}

/// What may be lost, in one sentence; what is not known comes first.
fn at_risk(reports: &[Report]) -> String {
    let records: i64 = reports.iter().filter_map(Report::at_risk).sum();
    let behind = reports.iter().filter(|report| report.at_risk().is_some_and(|lost| lost > 0)).count();
    let unknown = reports.iter().filter(|report| report.at_risk().is_none()).count();
    let aborted: i64 = reports.iter().map(|report| i64::from(report.aborted_count)).sum();
    let age_ms = |report: &Report| Some((report.stopped_at_ms? - report.source_known_at_ms?).max(0));
    let mut parts = Vec::new();
    if unknown > 0 {
        parts.push(format!(
            "Partitions of which nothing is known, because since Tarn started or they were begun the source has not \
             answered, or has lost records that are here: {unknown} of {}",
            reports.len()
        ));
    }
    if unknown < reports.len() {
        let of = if unknown > 0 { "of the others, nothing" } else { "Nothing" };
        parts.push(match records {
            0 => format!("{of} that the source had at its last answer is missing"),
            records => format!(
                "missing records that the source had at its last answer: {}, of {}",
                thousands(records),
                counted(behind, "partition")
            ),
        });
    }
    if let Some(oldest_ms) = reports.iter().filter_map(age_ms).max() {
        parts.push(format!(
            "that was up to {:.1} s old when they were stopped, and what it took since is not known",
            oldest_ms as f64 / 1000.0
        ));
    }
    if aborted > 0 {
        parts.push(format!("aborted transactions: {}", thousands(aborted)));
    }
    parts.join("; ")
}

/// The reports of a mirror.
pub(super) fn reports(
    out: &mut impl Write,
    mirror: &str,
    reports: &[Report],
    style: Style,
) -> Result<(), Failure> {
    if style == Style::Json {
        return print_json(out, &reports.iter().map(ReportJson::from).collect::<Vec<_>>());
    }
    if reports.is_empty() {
        return Ok(writeln!(out, "No topic of mirror {mirror} that was asked for has been stopped")?);
    }
    const COLUMNS: [(&str, usize); 11] = [
        ("TOPIC", 40),
        ("PARTITION", 10),
        ("STOPPED-AT", 24),
        ("MIRRORED-OFFSET", 16),
        ("SOURCE-OFFSET", 14),
        ("SOURCE-KNOWN-AT", 24),
        ("AT-RISK", 10),
        ("LAG-MS", 10),
        ("ABORTED", 8),
        ("RESET-OFFSET", 12),
        ("EXPORT", 10),
    ];
    row(out, &COLUMNS)?;
    for report in reports {
        let cells = [
            report.topic.clone(),
            report.partition.to_string(),
            time(report.stopped_at_ms).unwrap_or_else(|| "-".to_owned()),
            number(report.mirrored_offset),
            number(report.source_offset),
            time(report.source_known_at_ms).unwrap_or_else(|| "-".to_owned()),
            number(report.at_risk()),
            number(report.lag_ms),
            report.aborted_count.to_string(),
            number(report.reset_offset),
            report.export.as_ref().map_or_else(|| "-".to_owned(), |(node, path)| format!("{node}:{path}")),
        ];
        let widths = COLUMNS.iter().map(|(_, width)| *width);
        row(out, &cells.iter().map(String::as_str).zip(widths).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// A time as RFC 3339 has it, in UTC to the millisecond.
fn time(ms: Option<i64>) -> Option<String> {
    Some(format!("{:.3}", Timestamp::from_millisecond(ms?).ok()?))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoppedJson<'a> {
    mirror: &'a str,
    stopped: &'a [String],
    took_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<Vec<ReportJson<'a>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportJson<'a> {
    topic: &'a str,
    partition: i32,
    state_version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mirrored_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_offset_last_known: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_offset_known_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records_at_risk: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_ms: Option<i64>,
    aborted_transaction_count: i32,
    aborted_transactions: Vec<AbortedJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    export_broker_id: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    export_file: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AbortedJson {
    producer_id: i64,
    producer_epoch: i16,
    first_offset: i64,
}

impl<'a> From<&'a Report> for ReportJson<'a> {
    fn from(report: &'a Report) -> ReportJson<'a> {
        let aborted = report.aborted.iter().map(|&(producer_id, producer_epoch, first_offset)| AbortedJson {
            producer_id,
            producer_epoch,
            first_offset,
        });
        ReportJson {
            topic: &report.topic,
            partition: report.partition,
            state_version: report.state_version,
            stopped_at_ms: report.stopped_at_ms,
            stopped_at: time(report.stopped_at_ms),
            mirrored_offset: report.mirrored_offset,
            source_offset_last_known: report.source_offset,
            source_offset_known_at_ms: report.source_known_at_ms,
            records_at_risk: report.at_risk(),
            lag_ms: report.lag_ms,
            aborted_transaction_count: report.aborted_count,
            aborted_transactions: aborted.collect(),
            reset_offset: report.reset_offset,
            export_broker_id: report.export.as_ref().map(|(node, _)| *node),
            export_file: report.export.as_ref().map(|(_, path)| path.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_lost_is_one_sentence() {
        let report = |source_offset, aborted_count| Report {
            source_offset,
            source_known_at_ms: source_offset.map(|_| 10_000),
            stopped_at_ms: Some(12_500),
            mirrored_offset: Some(10),
            aborted_count,
            ..Report::default()
        };
        assert_eq!(
            at_risk(&[report(Some(10), 0)]),
            "Nothing that the source had at its last answer is missing; that was up to 2.5 s old when they were \
             stopped, and what it took since is not known"
        );
        assert_eq!(
            at_risk(&[report(Some(1510), 2), report(Some(10), 0), report(None, 0)]),
            "Partitions of which nothing is known, because since Tarn started or they were begun the source has not \
             answered, or has lost records that are here: 1 of 3; missing records that the source had at its last answer: 1,500, of 1 partition; that was \
             up to 2.5 s old when they were stopped, and what it took since is not known; aborted transactions: 2"
        );
        let nothing = at_risk(&[report(None, 0)]);
        assert!(nothing.ends_with("1 of 1") && !nothing.contains("missing"), "{nothing}");
    }

    #[test]
    fn a_report_is_a_row_with_what_is_not_known_left_open() {
        let report = Report {
            topic: "orders".to_owned(),
            partition: 3,
            stopped_at_ms: Some(1_764_466_245_123),
            mirrored_offset: Some(42),
            reset_offset: Some(43),
            ..Report::default()
        };
        let mut out = Vec::new();
        reports(&mut out, "dr", std::slice::from_ref(&report), Style::Tarn).unwrap();
        let text = String::from_utf8(out).unwrap();
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            cells,
            ["orders", "3", "2025-11-30T01:30:45.123Z", "42", "-", "-", "-", "-", "0", "43", "-"]
        );
        let mut out = Vec::new();
        reports(&mut out, "dr", &[report], Style::Json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json[0]["mirroredOffset"], 42);
        assert!(json[0].get("sourceOffsetLastKnown").is_none());
    }

    #[test]
    fn what_was_exported_of_a_partition_that_was_never_stopped_is_a_row_too() {
        let report = Report {
            topic: "orders".to_owned(),
            export: Some((2, "/exports/orders-0/10-16.5".to_owned())),
            ..Report::default()
        };
        let mut out = Vec::new();
        reports(&mut out, "dr", std::slice::from_ref(&report), Style::Tarn).unwrap();
        let text = String::from_utf8(out).unwrap();
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = ["orders", "0", "-", "-", "-", "-", "-", "-", "0", "-", "2:/exports/orders-0/10-16.5"];
        assert_eq!(cells, expected);
        let mut out = Vec::new();
        reports(&mut out, "dr", &[report], Style::Json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&json[0]["exportBrokerId"], &json[0]["exportFile"]),
            (&2.into(), &"/exports/orders-0/10-16.5".into())
        );
        assert!(json[0].get("stoppedAtMs").is_none() && json[0].get("mirroredOffset").is_none());
    }
}
