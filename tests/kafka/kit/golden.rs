//! The same command against Apache Kafka and against Tarn: what they print must be the same.
//!
//! Ids, addresses, times and the like become words first. Every other difference needs an `Explained`
//! entry with its reason, and an entry that explains nothing any more fails the test too.

use crate::process::Finished;
use regex::Regex;
use std::collections::BTreeMap;

/// Who prints a line that the other does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Only Apache Kafka.
    Kafka,
    /// Only Tarn.
    Tarn,
}

/// A difference that is meant.
#[derive(Clone, Copy, Debug)]
pub struct Explained {
    /// Who prints the line.
    pub side: Side,
    /// A pattern for the whole line, after ids and the like have become words.
    pub line: &'static str,
    /// The reason.
    pub why: &'static str,
}

/// What differs between any two clusters, or any two runs.
const WORDS: &[(&str, &str)] = &[
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b(TopicId|ClusterId|Cluster ID|[cC]luster id)(:\s*)[A-Za-z0-9_-]{22}", "${1}${2}ID"),
    (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]", "TIME"),
    (r"\b1[6-9]\d{11}\b", "MILLISECONDS"),
];

/// A program's outputs and exit code, in words that do not change from run to run.
pub fn in_words(finished: &Finished) -> String {
    let mut text = format!("exit code {:?}\n{}", finished.code, finished.stdout);
    // Of a Java exception, its message matters, not the lines of code it came through.
    let said = finished.stderr.lines().filter(|line| !line.starts_with('\t'));
    text.extend(said.map(|line| format!("stderr: {line}\n")));
    WORDS.iter().fold(text, |text, (pattern, word)| replaced(&text, pattern, word))
}

/// Replaces every match of `pattern`.
///
/// # Panics
/// Where the pattern is none.
pub fn replaced(text: &str, pattern: &str, word: &str) -> String {
    let pattern = Regex::new(pattern).unwrap_or_else(|error| panic!("{error}"));
    pattern.replace_all(text, word).into_owned()
}

/// Compares line by line, in order, but for the explained lines.
///
/// # Panics
/// Where lines differ that nothing explains, or an explanation matched no line.
pub fn assert_same(what: &str, kafka: &str, tarn: &str, explained: &[Explained]) {
    let mut used = BTreeMap::new();
    let ours = without_explained(Side::Kafka, kafka, explained, &mut used);
    let theirs = without_explained(Side::Tarn, tarn, explained, &mut used);
    if let Some(difference) = first_difference(&ours, &theirs) {
        panic!("{what}: {difference}\n--- Kafka:\n{kafka}\n--- Tarn:\n{tarn}");
    }
    for (index, entry) in explained.iter().enumerate() {
        assert!(
            used.contains_key(&index),
            "{what}: no line of {:?} matches {:?} any more; its reason was: {}",
            entry.side,
            entry.line,
            entry.why
        );
    }
}

fn without_explained<'a>(
    side: Side,
    text: &'a str,
    explained: &[Explained],
    used: &mut BTreeMap<usize, ()>,
) -> Vec<&'a str> {
    let patterns: Vec<Option<Regex>> = explained
        .iter()
        .map(|entry| {
            let whole = format!("^(?:{})$", entry.line);
            (entry.side == side).then(|| Regex::new(&whole).unwrap_or_else(|error| panic!("{error}")))
        })
        .collect();
    let explains = |line: &str| {
        patterns.iter().position(|pattern| pattern.as_ref().is_some_and(|pattern| pattern.is_match(line)))
    };
    text.lines().filter(|line| explains(line).map(|index| used.insert(index, ())).is_none()).collect()
}

fn first_difference(kafka: &[&str], tarn: &[&str]) -> Option<String> {
    let at = kafka.iter().zip(tarn).position(|(ours, theirs)| ours != theirs);
    let at = at.or_else(|| (kafka.len() != tarn.len()).then(|| kafka.len().min(tarn.len())))?;
    let line = |lines: &[&str]| lines.get(at).map_or("nothing more".into(), |line| format!("{line:?}"));
    Some(format!("Kafka prints {}, Tarn {}", line(kafka), line(tarn)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTRA: Explained = Explained { side: Side::Tarn, line: "extra .*", why: "it has more" };

    #[test]
    fn explained_lines_are_left_out() {
        assert_same("test", "a\nb", "a\nextra 1\nb\nextra 2", &[EXTRA]);
    }

    #[test]
    #[should_panic(expected = "Kafka prints \"b\", Tarn \"c\"")]
    fn another_line_is_a_difference() {
        assert_same("test", "a\nb", "a\nc", &[]);
    }

    #[test]
    #[should_panic(expected = "Kafka prints \"b\", Tarn nothing more")]
    fn a_missing_line_is_a_difference() {
        assert_same("test", "a\nb", "a", &[]);
    }

    #[test]
    #[should_panic(expected = "any more")]
    fn an_explanation_without_a_line_is_stale() {
        assert_same("test", "a", "a", &[EXTRA]);
    }

    #[test]
    fn ids_addresses_and_times_become_words() {
        let finished = Finished {
            code: Some(0),
            stdout: "Topic: t\tTopicId: dnGJdOXTTQWyqEnlRXlXgw\n127.0.0.1:21092 at 1795962000123\n".into(),
            stderr: "[2026-11-29 14:39:42,982] WARN no\n\tat org.apache.X\n".into(),
        };
        let words =
            "exit code Some(0)\nTopic: t\tTopicId: ID\nADDRESS at MILLISECONDS\nstderr: TIME WARN no\n";
        assert_eq!(in_words(&finished), words);
    }
}
