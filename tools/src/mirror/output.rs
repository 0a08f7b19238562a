//! What `tarn mirror` prints: the proposal's tables, sentences and JSON (KIP-1279).
//!
//! What is not known is `-` in a table and absent from JSON. Tarn's own columns and keys stand behind the
//! proposal's. A lag that may have grown since the source last answered is not told like one of now: it is `>=`
//! in Tarn's table, `lagAtLeast` in JSON, and `-` in the proposal's table, which has no place for its age.

use std::io::Write;

use serde::Serialize;
use serde_json::json;

use super::Style;
use super::standing::{Standing, Task};
use crate::failure::Failure;

/// The longest error in the proposal's table.
const ERROR_CHARS: usize = 80;

/// A mirror, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    pub(super) mirror: String,
    pub(super) topics: i32,
    pub(super) source_cluster_id: String,
    pub(super) source_bootstrap_server: String,
}

pub(super) fn created(
    out: &mut impl Write,
    mirror: &str,
    existed: bool,
    style: Style,
) -> Result<(), Failure> {
    match style {
        Style::Json => print_json(out, &json!({ "mirror": mirror, "created": !existed })),
        _ if existed => Ok(writeln!(out, "Mirror {mirror} exists already, with this configuration")?),
        _ => Ok(writeln!(out, "Created mirror {mirror}")?),
    }
}

pub(super) fn listed(out: &mut impl Write, mirrors: &[Listed], style: Style) -> Result<(), Failure> {
    if style == Style::Json {
        return print_json(out, &mirrors);
    }
    if mirrors.is_empty() {
        return Ok(writeln!(out, "No mirrors found")?);
    }
    row(out, &[("MIRROR", 30), ("TOPICS", 10), ("SOURCE-CLUSTER-ID", 26), ("SOURCE-BOOTSTRAP-SERVER", 50)])?;
    for listed in mirrors {
        let topics = listed.topics.to_string();
        let id = or_dash(&listed.source_cluster_id);
        row(out, &[(&listed.mirror, 30), (&topics, 10), (id, 26), (&listed.source_bootstrap_server, 50)])?;
    }
    Ok(())
}

pub(super) fn partitions(out: &mut impl Write, partitions: &[Standing], style: Style) -> Result<(), Failure> {
    if partitions.is_empty() {
        return Ok(writeln!(out, "No mirror partitions found")?);
    }
    let proposal = [
        ("MIRROR", 30),
        ("TOPIC", 40),
        ("PARTITION", 10),
        ("SOURCE-OFFSET", 15),
        ("DESTINATION-OFFSET", 18),
        ("LAG", 10),
        ("STATE", 12),
    ];
    let ours = [("LAG-MS", 10), ("LAST-ANSWER-MS-AGO", 18), ("REASON", 30)];
    let (ours, old) = if style == Style::Tarn { (&ours[..], Old::AtLeast) } else { (&[][..], Old::Unknown) };
    row(out, &[&proposal[..], ours].concat())?;
    for partition in partitions {
        let cells = [
            partition.mirror.clone(),
            partition.topic.clone(),
            partition.partition.to_string(),
            number(partition.source_offset),
            number(partition.destination_offset),
            lag(partition, old),
            partition.state.clone(),
            number(partition.lag_ms),
            number(partition.last_fetch_age_ms),
            reason(partition),
        ];
        let widths = proposal.iter().chain(ours).map(|(_, width)| *width);
        let cells: Vec<(&str, usize)> = cells.iter().map(String::as_str).zip(widths).collect();
        row(out, &cells)?;
    }
    Ok(())
}

/// What has failed. The proposal's table cuts the error; ours has all of it, behind the code of its reason.
pub(super) fn failed(
    out: &mut impl Write,
    partitions: &[Standing],
    attempts_max: Option<i16>,
    style: Style,
) -> Result<(), Failure> {
    if partitions.is_empty() {
        return Ok(writeln!(out, "No failed partitions found")?);
    }
    let error = if style == Style::Proposal { ("ERROR", ERROR_CHARS) } else { ("REASON", 30) };
    row(out, &[("MIRROR", 30), ("TOPIC", 40), ("PARTITION", 10), ("RETRY", 12), error])?;
    for partition in partitions {
        let (index, retry) = (partition.partition.to_string(), retry(partition, attempts_max));
        let error = match style {
            Style::Proposal => {
                partition.error_message.as_deref().unwrap_or("-").chars().take(ERROR_CHARS).collect()
            }
            Style::Tarn | Style::Json => reason(partition),
        };
        let cells = [
            (partition.mirror.as_str(), 30),
            (partition.topic.as_str(), 40),
            (index.as_str(), 10),
            (retry.as_str(), 12),
            (error.as_str(), 0),
        ];
        row(out, &cells)?;
    }
    Ok(())
}

/// Which retry it is, and of how many; a number alone where they never end.
fn retry(partition: &Standing, attempts_max: Option<i16>) -> String {
    let attempt = partition.retry_attempt;
    match attempts_max {
        _ if partition.is_terminal() => "NonRetryable".to_owned(),
        _ if partition.is_tried_for_ever() => format!("{attempt}/no-limit"),
        Some(max) => format!("{attempt}/{max}"),
        None => attempt.to_string(),
    }
}

pub(super) fn tasks(out: &mut impl Write, tasks: &[Task]) -> Result<(), Failure> {
    if tasks.is_empty() {
        return Ok(());
    }
    row(out, &[("MIRROR", 30), ("TASK", 20), ("STATE", 10), ("LAST-SUCCESS-MS-AGO", 20), ("REASON", 30)])?;
    for task in tasks {
        let age = number(task.last_success_age_ms);
        let reason = why(task.reason_code.as_deref(), task.error_message.as_deref());
        let cells = [
            (task.mirror.as_str(), 30),
            (task.name.as_str(), 20),
            (task.state.as_str(), 10),
            (age.as_str(), 20),
            (reason.as_str(), 30),
        ];
        row(out, &cells)?;
    }
    Ok(())
}

/// The tasks in JSON, with what is not known left out.
pub(super) fn tasks_json(out: &mut impl Write, tasks: &[Task]) -> Result<(), Failure> {
    print_json(out, &tasks)
}

pub(super) fn json(out: &mut impl Write, partitions: &[Standing]) -> Result<(), Failure> {
    print_json(out, &partitions.iter().map(PartitionJson::from).collect::<Vec<_>>())
}

/// A partition in JSON: the proposal's keys, then ours.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartitionJson<'a> {
    mirror: &'a str,
    topic: &'a str,
    partition: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<i64>,
    state: &'a str,
    retry_attempt: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_at_least: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_fetch_age_ms: Option<i64>,
}

impl<'a> From<&'a Standing> for PartitionJson<'a> {
    fn from(partition: &'a Standing) -> PartitionJson<'a> {
        PartitionJson {
            mirror: &partition.mirror,
            topic: &partition.topic,
            partition: partition.partition,
            source_offset: partition.source_offset,
            destination_offset: partition.destination_offset,
            lag: partition.lag().filter(|_| partition.is_lag_current()),
            state: &partition.state,
            retry_attempt: partition.retry_attempt,
            error_message: partition.error_message.as_deref(),
            reason_code: partition.reason_code.as_deref(),
            lag_at_least: partition.lag().filter(|_| !partition.is_lag_current()),
            lag_ms: partition.lag_ms,
            last_fetch_age_ms: partition.last_fetch_age_ms,
        }
    }
}

pub(super) fn print_json(out: &mut impl Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(writeln!(out, "{text}")?)
}

/// Cells of at least their widths, spaces between, none at the end.
pub(super) fn row(out: &mut impl Write, cells: &[(&str, usize)]) -> Result<(), Failure> {
    let padded: Vec<String> = cells.iter().map(|(cell, width)| format!("{cell:<width$}")).collect();
    Ok(writeln!(out, "{}", padded.join(" ").trim_end())?)
}

/// How a lag is told that is not of now.
#[derive(Clone, Copy)]
enum Old {
    AtLeast,
    Unknown,
}

fn lag(partition: &Standing, old: Old) -> String {
    match (partition.lag(), old) {
        (Some(lag), Old::AtLeast) if !partition.is_lag_current() => format!(">={lag}"),
        (Some(_), Old::Unknown) if !partition.is_lag_current() => number(None),
        (lag, _) => number(lag),
    }
}

pub(super) fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn reason(partition: &Standing) -> String {
    why(partition.reason_code.as_deref(), partition.error_message.as_deref())
}

fn why(code: Option<&str>, message: Option<&str>) -> String {
    match (code, message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (one, other) => one.or(other).unwrap_or("-").to_owned(),
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn printed(print: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn standing() -> Standing {
        Standing {
            mirror: "m".to_owned(),
            topic: "orders".to_owned(),
            partition: 2,
            source_offset: Some(100),
            destination_offset: Some(90),
            state: "MIRRORING".to_owned(),
            last_fetch_age_ms: Some(20),
            ..Standing::default()
        }
    }

    #[test]
    fn the_proposals_table_has_its_columns_and_widths() {
        let table = printed(|out| partitions(out, &[standing()], Style::Proposal));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0].find("TOPIC"), Some(31));
        assert_eq!(lines[0].find("PARTITION"), Some(72));
        assert_eq!(lines[0].find("SOURCE-OFFSET"), Some(83));
        assert_eq!(lines[0].find("DESTINATION-OFFSET"), Some(99));
        assert_eq!(lines[0].find("LAG"), Some(118));
        assert_eq!(lines[0].find("STATE"), Some(129));
        assert!(lines[0].ends_with("STATE") && lines[1].ends_with("MIRRORING"));
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["m", "orders", "2", "100", "90", "10", "MIRRORING"]
        );
    }

    #[test]
    fn what_is_unknown_is_a_dash_in_tables_and_absent_from_json() {
        let unknown = Standing { source_offset: None, last_fetch_age_ms: None, ..standing() };
        let table = printed(|out| partitions(out, std::slice::from_ref(&unknown), Style::Tarn));
        let cells: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["m", "orders", "2", "-", "90", "-", "MIRRORING", "-", "-", "-"]);
        let printed: Value = serde_json::from_str(&printed(|out| json(out, &[unknown]))).unwrap();
        let keys: Vec<&String> = printed[0].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 6, "{keys:?}");
        assert_eq!(printed[0]["destinationOffset"], 90);
        assert!(printed[0].get("lag").is_none() && printed[0].get("errorMessage").is_none());
    }

    #[test]
    fn a_lag_that_may_have_grown_is_not_told_like_one_of_now() {
        let gone = Standing {
            state: "FAILED".to_owned(),
            lag_ms: Some(60_000),
            last_fetch_age_ms: Some(60_000),
            ..standing()
        };
        let cells = |partition: &Standing, style| {
            let table = printed(|out| partitions(out, std::slice::from_ref(partition), style));
            let line = table.lines().nth(1).unwrap().to_owned();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let shown = cells(&gone, Style::Tarn);
        assert_eq!(shown[3..], ["100", "90", ">=10", "FAILED", "60000", "60000", "-"]);
        assert_eq!(cells(&gone, Style::Proposal)[3..], ["100", "90", "-", "FAILED"]);
        assert_eq!(cells(&standing(), Style::Tarn)[3..], ["100", "90", "10", "MIRRORING", "-", "20", "-"]);
        let printed: Value = serde_json::from_str(&printed(|out| json(out, &[gone, standing()]))).unwrap();
        let told = |index: usize| (printed[index].get("lag"), printed[index].get("lagAtLeast"));
        assert_eq!(told(0), (None, Some(&10.into())));
        assert_eq!(told(1), (Some(&10.into()), None));
    }

    #[test]
    fn a_failed_partition_shows_its_attempts_or_that_there_are_none() {
        let used_up = Standing { retry_attempt: -1, ..failed_with("SOURCE_ERROR") };
        let all = [
            failed_with("SOURCE_ERROR"),
            failed_with("SOURCE_TRUNCATED"),
            used_up,
            failed_with("DESTINATION_STORAGE"),
        ];
        for style in [Style::Tarn, Style::Proposal] {
            let table = printed(|out| failed(out, &all, Some(20), style));
            let retries: Vec<_> =
                table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3)).collect();
            assert_eq!(retries, ["3/20", "NonRetryable", "NonRetryable", "3/no-limit"]);
        }
    }

    #[test]
    fn why_it_failed_is_told_whole_with_its_code_and_cut_in_the_proposals_table_alone() {
        let failed_so = failed_with("SOURCE_TRUNCATED");
        let table = |style| printed(|out| failed(out, std::slice::from_ref(&failed_so), None, style));
        let ours = table(Style::Tarn);
        assert!(ours.ends_with(&format!(" SOURCE_TRUNCATED: {}\n", "x".repeat(200))), "{ours}");
        let theirs = table(Style::Proposal);
        assert!(theirs.ends_with(&format!(" {}\n", "x".repeat(ERROR_CHARS))), "{theirs}");
        let headings =
            |table: &str| table.lines().next().unwrap().split_whitespace().nth(4).map(str::to_owned);
        let expected = [Some("REASON".to_owned()), Some("ERROR".to_owned())];
        assert_eq!([headings(&ours), headings(&theirs)], expected);
    }

    fn failed_with(code: &str) -> Standing {
        Standing {
            state: "FAILED".to_owned(),
            reason_code: Some(code.to_owned()),
            error_message: Some("x".repeat(200)),
            retry_attempt: 3,
            ..standing()
        }
    }

    #[test]
    fn tasks_in_json_leave_out_what_is_not_known() {
        let task = Task {
            mirror: "m".to_owned(),
            name: "metadata".to_owned(),
            state: "failing".to_owned(),
            reason_code: Some("SOURCE_UNREACHABLE".to_owned()),
            error_message: None,
            last_success_age_ms: Some(7),
        };
        let printed: Value = serde_json::from_str(&printed(|out| tasks_json(out, &[task]))).unwrap();
        let expected = json!([{
            "mirror": "m", "task": "metadata", "state": "failing", "reasonCode": "SOURCE_UNREACHABLE",
            "lastSuccessAgeMs": 7,
        }]);
        assert_eq!(printed, expected);
    }

    #[test]
    fn empty_answers_are_said() {
        assert_eq!(printed(|out| partitions(out, &[], Style::Proposal)), "No mirror partitions found\n");
        assert_eq!(printed(|out| failed(out, &[], None, Style::Tarn)), "No failed partitions found\n");
        assert_eq!(printed(|out| listed(out, &[], Style::Proposal)), "No mirrors found\n");
        assert_eq!(printed(|out| json(out, &[])), "[]\n");
    }
}
