//! Records of a line each, written by kcat.

use crate::tools::kcat;

/// So many lines that begin with a text.
pub fn lines(text: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{text} {index}")).collect()
}

/// Writes each line as the value of a record.
///
/// # Panics
/// Where the cluster does not take them.
pub fn write_lines(bootstrap: &str, topic: &str, partition: i32, lines: &[String]) {
    let partition = partition.to_string();
    let arguments = ["-P", "-b", bootstrap, "-t", topic, "-p", &partition];
    kcat(&arguments, Some((lines.join("\n") + "\n").as_bytes())).ok();
}

/// The lines with the offsets that they have where the first is at `first`.
pub fn numbered(first: i64, lines: &[String]) -> Vec<(i64, String)> {
    (first..).zip(lines.iter().cloned()).collect()
}
