//! The file `mirror-export`: where what was cut off the log last is kept.
//!
//! It is written when the copy is complete and before the log is cut, and says on whose order that was, so that whoever
//! opens the log after a crash can still tell where the rest is. Whether the cut came about after it is told by the log
//! itself: one that still holds the last batch of the copy, or holds it again, has lost nothing, however long it has
//! become since. It is Tarn's own, lies in the partition's directory
//! and goes with it. One is written over the other; none is removed because it was read, for only who reads it knows
//! whether it is news.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_record::{BatchHeader, Epoch, Offset};

use super::{Exported, Log, LogBatches};
use crate::error::LogError;
use crate::home::Home;

const FILE: &str = "mirror-export";

/// A copy of what was cut off a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportNote {
    /// The version of the order to cut it.
    pub version: i64,
    /// The directory.
    pub path: PathBuf,
    /// The first offset in it.
    pub from: Offset,
    /// Where the log ended.
    pub to: Offset,
    /// How many records of applications it holds.
    pub records: u64,
    /// The bytes of its batches.
    pub bytes: u64,
}

/// What tells a batch from any other that may ever stand in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchMark {
    base_offset: Offset,
    leader_epoch: Epoch,
    crc: u32,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    note: ExportNote,
    /// The last batch of the copy, which no cut leaves.
    last: BatchMark,
}

/// The question what was cut off a log last, ready to be asked on any thread.
#[derive(Debug)]
#[must_use = "nothing is read before it is run"]
pub struct NotedExport {
    home: Arc<Home>,
    batches: LogBatches,
}

impl Log {
    /// Asks what was cut off last.
    pub fn noted_export(&self) -> NotedExport {
        NotedExport { home: self.home.clone(), batches: self.batches(self.start, self.end) }
    }
}

impl BatchMark {
    pub(super) fn of(header: &BatchHeader) -> BatchMark {
        let BatchHeader { base_offset, leader_epoch, crc, .. } = *header;
        BatchMark { base_offset, leader_epoch, crc }
    }
}

impl Exported {
    /// Notes, durably, that what was copied is about to be cut off the log. Waits for the disk.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn note(&self, version: i64) -> Result<(), LogError> {
        let Exported { path, from, to, counts, bytes, last, .. } = self;
        let note = ExportNote {
            version,
            path: path.clone(),
            from: *from,
            to: *to,
            records: counts.records,
            bytes: *bytes,
        };
        let file = self.home().path.join(FILE);
        let content = Content { note, last: *last }.to_string();
        let written = self.home().disk.write_atomically(&file, content.as_bytes());
        written.map_err(|cause| LogError::io("write", &file, cause))
    }

    /// Removes the note: nothing was cut.
    pub(super) fn forget(&self) -> Result<(), LogError> {
        self.home().remove(&self.home().path.join(FILE))
    }
}

impl NotedExport {
    /// Reads it. `None` where nothing was noted, or what can be understood; or where the log has what was copied.
    ///
    /// # Errors
    /// Where the disk refuses, or the log cannot be read there.
    pub fn run(self) -> Result<Option<ExportNote>, LogError> {
        let file = self.home.path.join(FILE);
        let bytes = match self.home.disk.read_all(&file) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|cause| LogError::io("read", &file, cause))?,
        };
        let Some(Content { note, last }) = Content::parse(&String::from_utf8_lossy(&bytes)) else {
            return Ok(None);
        };
        Ok(if is_there(self.batches, last)? { None } else { Some(note) })
    }
}

/// True where a batch is among these.
fn is_there(mut batches: LogBatches, batch: BatchMark) -> Result<bool, LogError> {
    batches.skip_to(batch.base_offset);
    let mut is_it = false;
    batches.visit(|header, _| {
        is_it = BatchMark::of(header) == batch;
        ControlFlow::Break(())
    })?;
    Ok(is_it)
}

impl Content {
    fn parse(text: &str) -> Option<Content> {
        let mut lines = text.splitn(10, '\n');
        if lines.next()? != "0" {
            return None;
        }
        let version = lines.next()?.parse().ok()?;
        let (from, to) = (Offset(lines.next()?.parse().ok()?), Offset(lines.next()?.parse().ok()?));
        let (records, bytes) = (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
        let base_offset = Offset(lines.next()?.parse().ok()?);
        let (leader_epoch, crc) = (Epoch(lines.next()?.parse().ok()?), lines.next()?.parse().ok()?);
        let path = Path::new(lines.next()?.strip_suffix('\n')?).to_owned();
        let note = ExportNote { version, path, from, to, records, bytes };
        Some(Content { note, last: BatchMark { base_offset, leader_epoch, crc } })
    }
}

/// The file's content.
impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ExportNote { version, path, from, to, records, bytes } = &self.note;
        let BatchMark { base_offset, leader_epoch, crc } = self.last;
        write!(f, "0\n{version}\n{from}\n{to}\n{records}\n{bytes}\n")?;
        write!(f, "{base_offset}\n{leader_epoch}\n{crc}\n{}\n", path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_anything_else_says_nothing() {
        let note = ExportNote {
            version: 17,
            path: "/var/lib/tarn/mirror-exports/t-0/5-9.1".into(),
            from: Offset(5),
            to: Offset(9),
            records: 3,
            bytes: 400,
        };
        let last = BatchMark { base_offset: Offset(8), leader_epoch: Epoch(2), crc: 7 };
        let content = Content { note, last };
        let text = content.to_string();
        assert_eq!(Content::parse(&text), Some(content));
        for cut in 0..text.len() {
            assert_eq!(Content::parse(&text[..cut]), None, "{:?}", &text[..cut]);
        }
        assert_eq!(Content::parse(&text.replacen('0', "1", 1)), None);
    }
}
