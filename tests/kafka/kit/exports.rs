//! What Tarn exported of a log before it cut it: found in its export directory, and read by kafka-dump-log.

use crate::dump::{files_with, problems, records};
use std::fs;
use std::path::{Path, PathBuf};

/// The exports of a partition, oldest first; `directory` is the export directory.
pub fn exports(directory: &Path, topic: &str, partition: i32) -> Vec<PathBuf> {
    let Ok(exports) = fs::read_dir(directory.join(format!("{topic}-{partition}"))) else { return Vec::new() };
    let mut exports: Vec<PathBuf> = exports.flatten().map(|entry| entry.path()).collect();
    exports.sort();
    exports
}

/// The offsets and values of the records of an export, control records left out.
///
/// # Panics
/// Where kafka-dump-log finds anything wrong with its files.
pub fn exported(export: &Path) -> Vec<(i64, String)> {
    let files = files_with(export, "log");
    assert_eq!(problems(&files), Vec::<String>::new(), "{}", export.display());
    records(&files).lines().filter_map(record).collect()
}

fn record(line: &str) -> Option<(i64, String)> {
    let rest = line.trim_start().strip_prefix("| offset: ")?;
    let offset = rest.split(' ').next()?.parse().ok()?;
    Some((offset, rest.split_once("payload: ")?.1.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_record_is_no_record() {
        let line =
            "| offset: 7 CreateTime: 1 keySize: -1 valueSize: 6 sequence: -1 headerKeys: [] payload: here 0";
        assert_eq!(record(line), Some((7, "here 0".to_string())));
        assert_eq!(
            record("| offset: 6 CreateTime: 1 keySize: 4 valueSize: 26 controlType: UNKNOWN(7)"),
            None
        );
        assert_eq!(record("baseOffset: 6 lastOffset: 6 count: 1"), None);
    }
}
