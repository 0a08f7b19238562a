//! The shape that Kafka's text checkpoints share: a version, a count, and as many rows of fields.
//!
//! Reading allocates nothing: rows are slices of the file, and a count is only compared with the rows
//! that are there.

use std::fmt::{Display, Write};
use std::str::{FromStr, Lines, SplitWhitespace};

use super::CheckpointError;

/// The only version of these files.
const VERSION: &str = "0";

/// The rows of one checkpoint, read one after the other.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    lines: Lines<'a>,
    line: usize,
    left: usize,
}

/// One row: fields separated by blanks.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    fields: SplitWhitespace<'a>,
    line: usize,
}

impl<'a> Rows<'a> {
    /// Reads the version and the count.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Rows<'a>, CheckpointError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| CheckpointError::Malformed { line: 1, expected: "UTF-8 text" })?;
        let mut lines = text.lines();
        if lines.next().map(str::trim) != Some(VERSION) {
            return Err(CheckpointError::Malformed { line: 1, expected: "version 0" });
        }
        let count = lines.next().and_then(|count| count.trim().parse().ok());
        let left = count.ok_or(CheckpointError::Malformed { line: 2, expected: "the number of entries" })?;
        Ok(Rows { lines, line: 2, left })
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// Where there are fewer or more rows than the count says.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'a>>, CheckpointError> {
        self.line += 1;
        match (self.lines.next(), self.left) {
            (None, 0) => Ok(None),
            (Some(blank), 0) if blank.trim().is_empty() => Ok(None),
            (Some(_), 0) => Err(CheckpointError::Malformed { line: self.line, expected: "the end" }),
            (None, left) => Err(CheckpointError::Missing { left }),
            (Some(text), left) => {
                self.left = left - 1;
                Ok(Some(Row { fields: text.split_whitespace(), line: self.line }))
            }
        }
    }

    /// The content of a checkpoint with these rows.
    pub(crate) fn write(rows: impl Iterator<Item = impl Display>) -> Vec<u8> {
        let mut body = String::new();
        let mut count = 0;
        for row in rows {
            count += 1;
            // Writing to a string cannot fail.
            let _ = writeln!(body, "{row}");
        }
        format!("{VERSION}\n{count}\n{body}").into_bytes()
    }
}

impl<'a> Row<'a> {
    /// The next field as text.
    pub(crate) fn text(&mut self) -> Result<&'a str, CheckpointError> {
        self.fields.next().ok_or_else(|| self.refuse("one more field"))
    }

    /// The next field as a number.
    pub(crate) fn number<N: FromStr>(&mut self) -> Result<N, CheckpointError> {
        let number = self.fields.next().and_then(|field| field.parse().ok());
        number.ok_or_else(|| self.refuse("a number"))
    }

    /// Makes sure that no field is left.
    pub(crate) fn end(&mut self) -> Result<(), CheckpointError> {
        self.fields.next().map_or(Ok(()), |_| Err(self.refuse("no more field")))
    }

    /// The error for this row.
    pub(crate) fn refuse(&self, expected: &'static str) -> CheckpointError {
        CheckpointError::Malformed { line: self.line, expected }
    }
}
