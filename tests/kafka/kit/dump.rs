//! kafka-dump-log as the judge of files.

use crate::process::Finished;
use crate::tools::tool;
use std::fs;
use std::path::{Path, PathBuf};

const TOOL: &str = "DumpLogSegments";

/// What the tool heads a list of faults with, or says of a bad record.
const FAULTS: &[&str] = &[
    "Mismatches in",
    "Non-consecutive offsets in",
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
    let lines = stdout.lines().chain(stderr.lines()).chain(sane.lines());
    lines.filter(|line| FAULTS.iter().any(|fault| line.contains(fault))).map(str::to_string).collect()
}

/// The records of a metadata log, decoded.
///
/// # Panics
/// Where the tool fails, or there is no file.
pub fn metadata(files: &[PathBuf]) -> String {
    run(files, &["--cluster-metadata-decoder"]).ok()
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
