//! The file `truncation-checkpoint`: what the checkpoint files must not be believed.
//!
//! Recovery points and log starts are written for all logs of a directory together, now and then. When a
//! log is cut below its recovery point, or begins anew below its start, the files on the disk still say
//! the old offsets; after a crash they would vouch for bytes that were never synced, or hide records.
//! This file says at most how much of them to believe. It is Tarn's own, lies in the partition's
//! directory, is written before the log changes and goes when the checkpoint files can be right again.

use std::io;

use tarn_record::Offset;

use super::Log;
use crate::error::LogError;
use crate::home::Home;

const FILE: &str = "truncation-checkpoint";

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TruncationMark {
    /// All below was flushed.
    pub(crate) recovery_point: Offset,
    /// The log does not start higher.
    pub(crate) start: Offset,
    /// The bases of the segments that begin above the end of the one before, with nothing lost between.
    pub(crate) gaps: Vec<Offset>,
}

/// When the file can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    /// When all below is flushed.
    pub(crate) flushed: Offset,
    /// When the log starts here or higher.
    pub(crate) start: Offset,
    /// The segments that follow a gap.
    pub(crate) gaps: Vec<Offset>,
}

impl Until {
    const NOTHING: Until = Until { flushed: Offset(0), start: Offset(0), gaps: Vec::new() };

    /// What the file has to say of a log that starts at `start`.
    fn mark(&self, recovery_point: Offset, start: Offset) -> TruncationMark {
        let start = if start < self.start { start } else { TruncationMark::ANY_START };
        TruncationMark { recovery_point, start, gaps: self.gaps.clone() }
    }
}

impl TruncationMark {
    /// A log start that hides nothing: the checkpoint file is right.
    const ANY_START: Offset = Offset(i64::MAX);

    /// Reads the file, if there is one. A file that says nothing leaves nothing to believe.
    pub(crate) fn read(home: &Home) -> Result<Option<TruncationMark>, LogError> {
        let path = home.path.join(FILE);
        let bytes = match home.disk.read_all(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|cause| LogError::io("read", &path, cause))?,
        };
        let nothing = TruncationMark { recovery_point: Offset(0), start: Offset(0), gaps: Vec::new() };
        Ok(Some(TruncationMark::parse(&String::from_utf8_lossy(&bytes)).unwrap_or(nothing)))
    }

    fn parse(text: &str) -> Option<TruncationMark> {
        let mut lines = text.lines();
        if lines.next()? != "0" {
            return None;
        }
        let offset = |line: &str| line.parse().ok().map(Offset);
        Some(TruncationMark {
            recovery_point: offset(lines.next()?)?,
            start: offset(lines.next()?)?,
            gaps: lines.map(offset).collect::<Option<_>>()?,
        })
    }

    fn write(self, home: &Home) -> Result<(), LogError> {
        let path = home.path.join(FILE);
        let offsets = [self.recovery_point, self.start].into_iter().chain(self.gaps);
        let text = offsets.fold("0\n".to_owned(), |text, offset| format!("{text}{offset}\n"));
        let written = home.disk.write_atomically(&path, text.as_bytes());
        written.map_err(|cause| LogError::io("write", &path, cause))
    }

    /// Removes the file.
    pub(crate) fn remove(home: &Home) -> Result<(), LogError> {
        home.remove(&home.path.join(FILE))
    }
}

impl Log {
    /// Says on the disk, before the log is cut at `end` or begins anew at `start`, what stays true.
    pub(super) fn mark_truncation(&mut self, end: Offset, start: Offset) -> Result<(), LogError> {
        let known = self.dirt.truncation.clone();
        let (unflushes, lowers) = (end < self.recovery_point, start < self.start);
        if !unflushes && !lowers && known.is_none() {
            return Ok(());
        }
        let mut until = known.unwrap_or(Until::NOTHING);
        until.gaps.retain(|gap| *gap < end);
        if unflushes {
            until.flushed = until.flushed.max(self.recovery_point);
        }
        if lowers {
            until.start = until.start.max(self.start);
        }
        until.mark(self.recovery_point.min(end), start).write(&self.home)?;
        self.dirt.truncation = Some(until);
        Ok(())
    }

    /// Says on the disk that the segment about to begin at `base` follows a gap: else a recovery would
    /// take what lies between for lost.
    pub(super) fn mark_gap(&mut self, base: Offset) -> Result<(), LogError> {
        let mut until = self.dirt.truncation.clone().unwrap_or(Until::NOTHING);
        until.gaps.push(base);
        until.mark(self.recovery_point, self.start).write(&self.home)?;
        self.dirt.truncation = Some(until);
        Ok(())
    }

    /// Says a new log start on the disk too, where the file there says a lower one.
    pub(super) fn mark_start(&mut self, start: Offset) -> Result<(), LogError> {
        match &self.dirt.truncation {
            Some(until) if self.start < until.start => {
                until.mark(self.recovery_point, start).write(&self.home)
            }
            _ => Ok(()),
        }
    }

    /// Removes the file once it says nothing that the checkpoint files could say wrong.
    pub(super) fn drop_mark(&mut self) -> Result<(), LogError> {
        let Some(until) = &mut self.dirt.truncation else { return Ok(()) };
        // A checkpoint file may give a recovery point from before a gap for as long as it likes.
        let first = self.segments[0].base();
        until.gaps.retain(|gap| *gap > first);
        if until.gaps.is_empty() && self.recovery_point >= until.flushed && self.start >= until.start {
            TruncationMark::remove(&self.home)?;
            self.dirt.truncation = None;
        }
        Ok(())
    }
}
