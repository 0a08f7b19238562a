//! kafka-dump-log as the judge of files.

use crate::process::Finished;
use crate::tools::tool;
use std::fs;
use std::path::{Path, PathBuf};

const TOOL: &str = "DumpLogSegments";

/// What the tool heads a list of gaps with.
const GAPS: &str = "Non-consecutive offsets in";

/// What the tool heads a list of faults with, or says of a bad record.
const FAULTS: &[&str] = &[
    "Mismatches in",
    "Found timestamp mismatch in",
    "Found out of order timestamp in",
    "isvalid: false",
    "Found invalid",
    "Exception",
];

/// The faults that the tool reports of these files, records looked into.
///
/// # Panics
/// Where the tool fails, or there is no file.
pub fn problems(files: &[PathBuf]) -> Vec<String> {
    let deep = run(files, &["--deep-iteration"]);
    let (stdout, stderr) = (deep.stdout.clone(), deep.stderr.clone());
    deep.ok();
    let indexes: Vec<PathBuf> =
        files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "index")).cloned().collect();
    let sane = if indexes.is_empty() { String::new() } else { run(&indexes, &["--index-sanity-check"]).ok() };
    let lines: Vec<&str> = stdout.lines().chain(stderr.lines()).chain(sane.lines()).collect();
    let faults = lines.iter().enumerate().filter(|(at, line)| is_fault(line, &lines[at + 1..]));
    faults.map(|(_, line)| (*line).to_string()).collect()
}

fn is_fault(line: &str, next: &[&str]) -> bool {
    if line.starts_with(GAPS) {
        // The tool counts every segment that does not begin at 0: "-1 is followed by" its first offset.
        let pairs = next.iter().take_while(|line| line.starts_with(' '));
        return pairs.into_iter().any(|pair| !pair.trim_start().starts_with("-1 is followed by"));
    }
    FAULTS.iter().any(|fault| line.contains(fault))
}

/// The records of a metadata log, decoded.
///
/// # Panics
/// Where the tool fails, or there is no file.
pub fn metadata(files: &[PathBuf]) -> String {
    run(files, &["--cluster-metadata-decoder"]).ok()
}

/// The batches and records of segments, or the entries of their indexes, a line each.
///
/// # Panics
/// Where the tool fails, or there is no file.
pub fn records(files: &[PathBuf]) -> String {
    run(files, &["--print-data-log"]).ok()
}

/// The files of a partition that the tool reads.
///
/// # Panics
/// Where there is no such directory.
pub fn files_of(partition: &Path) -> Vec<PathBuf> {
    ["log", "index", "timeindex", "txnindex", "snapshot"]
        .into_iter()
        .flat_map(|kind| files_with(partition, kind))
        .collect()
}

/// The files of a partition of one kind, oldest first.
///
/// # Panics
/// Where there is no such directory.
pub fn files_with(partition: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(partition).unwrap_or_else(|error| panic!("{}: {error}", partition.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the directory is readable").path())
        .filter(|file| file.extension().is_some_and(|kind| kind == extension))
        .collect();
    files.sort();
    files
}

fn run(files: &[PathBuf], options: &[&str]) -> Finished {
    assert!(!files.is_empty(), "there is no file to dump");
    let list: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    tool(TOOL, &[options, &["--files", &list.join(",")]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_gap_within_a_segment_is_one() {
        let head = "Non-consecutive offsets in /d/t-0/00000000000000000005.log";
        assert!(!is_fault(head, &["  -1 is followed by 5", "other"]));
        assert!(is_fault(head, &["  -1 is followed by 5", "  7 is followed by 9"]));
        assert!(is_fault("baseOffset: 5 isvalid: false", &[]));
        assert!(!is_fault("baseOffset: 5 isvalid: true", &[]));
    }
}
