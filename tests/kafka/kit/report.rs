//! What a stop of Tarn says: the JSON of `tarn mirror stop`, `failover` and `report`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One stopped partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of the stop.
    pub version: i64,
    /// The offset after the last mirrored record.
    pub mirrored_offset: i64,
    /// The source's high watermark in its last answer; `None` where it never answered.
    pub source_offset: Option<i64>,
    /// When that answer came, in milliseconds since 1970; `None` where there was none.
    pub source_known_at_ms: Option<i64>,
    /// How many open transactions were aborted.
    pub aborted: i64,
    /// Where the reset record is.
    pub reset_offset: i64,
}

/// The partitions of an answer, by topic and number.
///
/// # Panics
/// Where the text is no such answer.
pub fn reports(json: &str) -> BTreeMap<(String, i64), Report> {
    let answer: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"));
    let partitions = answer.get("partitions").unwrap_or(&answer);
    let lines = partitions.as_array().unwrap_or_else(|| panic!("no partitions in {json}"));
    lines.iter().map(report).collect()
}

/// What a report says was exported, by topic and number: the node that has it, and the directory there.
///
/// # Panics
/// Where the text is no such answer.
pub fn reported_exports(json: &str) -> BTreeMap<(String, i64), (i64, PathBuf)> {
    let lines: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"));
    let lines = lines.as_array().unwrap_or_else(|| panic!("no partitions in {json}"));
    let export = |line: &Value| {
        let directory = PathBuf::from(line.get("exportFile")?.as_str()?);
        Some((named(line), (line["exportBrokerId"].as_i64()?, directory)))
    };
    lines.iter().filter_map(export).collect()
}

fn named(line: &Value) -> (String, i64) {
    let topic = line["topic"].as_str().unwrap_or_else(|| panic!("no topic in {line}"));
    let partition = line["partition"].as_i64().unwrap_or_else(|| panic!("no partition in {line}"));
    (topic.to_string(), partition)
}

fn report(line: &Value) -> ((String, i64), Report) {
    let number = |key: &str| line[key].as_i64();
    let needed = |key: &str| number(key).unwrap_or_else(|| panic!("no {key} in {line}"));
    let report = Report {
        version: needed("stateVersion"),
        mirrored_offset: needed("mirroredOffset"),
        source_offset: number("sourceOffsetLastKnown"),
        source_known_at_ms: number("sourceOffsetKnownAtMs"),
        aborted: needed("abortedTransactionCount"),
        reset_offset: needed("resetOffset"),
    };
    (named(line), report)
}
