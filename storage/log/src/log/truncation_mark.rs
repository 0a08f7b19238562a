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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TruncationMark {
    /// All below was flushed, and the log does not end below.
    pub(crate) recovery_point: Offset,
    /// The log does not start higher.
    pub(crate) start: Offset,
}

/// When the file can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    /// When all below is flushed.
    pub(crate) flushed: Offset,
    /// When the log starts here or higher.
    pub(crate) start: Offset,
}

/// How much of a log a truncation drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Some segments stay.
    Suffix,
    /// None does.
    Everything,
}

impl Until {
    const NOTHING: Until = Until { flushed: Offset(0), start: Offset(0) };

    /// What the file has to say of a log that starts at `start`.
    fn mark(self, recovery_point: Offset, start: Offset) -> TruncationMark {
        let start = if start < self.start { start } else { TruncationMark::ANY_START };
        TruncationMark { recovery_point, start }
    }
}

impl TruncationMark {
    /// A log start that hides nothing: the checkpoint file is right.
    pub(crate) const ANY_START: Offset = Offset(i64::MAX);

    /// Reads the file, if there is one. A file that says nothing leaves nothing to believe.
    pub(crate) fn read(home: &Home) -> Result<Option<TruncationMark>, LogError> {
        let path = home.path.join(FILE);
        let bytes = match home.disk.read_all(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|cause| LogError::io("read", &path, cause))?,
        };
        let nothing = TruncationMark { recovery_point: Offset(0), start: Offset(0) };
        Ok(Some(TruncationMark::parse(&String::from_utf8_lossy(&bytes)).unwrap_or(nothing)))
    }

    fn parse(text: &str) -> Option<TruncationMark> {
        let mut lines = text.lines();
        if lines.next()? != "0" {
            return None;
        }
        let mut offset = || Some(Offset(lines.next()?.parse().ok()?));
        Some(TruncationMark { recovery_point: offset()?, start: offset()? })
    }

    /// Writes the file, durably.
    pub(crate) fn write(self, home: &Home) -> Result<(), LogError> {
        let path = home.path.join(FILE);
        let text = format!("0\n{}\n{}\n", self.recovery_point, self.start);
        let written = home.disk.write_atomically(&path, text.as_bytes());
        written.map_err(|cause| LogError::io("write", &path, cause))
    }

    /// Removes the file, durably: one that came back would say what is long past.
    pub(crate) fn remove(home: &Home) -> Result<(), LogError> {
        home.remove(&home.path.join(FILE))?;
        home.sync()
    }

    /// When this file can go, which was found beside checkpoint files with these offsets.
    pub(crate) fn until(self, recovery_point: Offset, log_start: Offset) -> Until {
        let hides_nothing = self.start == TruncationMark::ANY_START;
        let start = if hides_nothing { log_start } else { log_start.max(self.start) };
        Until { flushed: recovery_point, start }
    }
}

impl Log {
    /// Says on the disk, before the log is cut at `end` or begins anew at `start`, what stays true. Where
    /// no segment stays, it is all that is left to tell where the log ended.
    pub(super) fn mark_truncation(
        &mut self,
        end: Offset,
        start: Offset,
        extent: Extent,
    ) -> Result<(), LogError> {
        let known = self.dirt.truncation;
        let (unflushes, lowers) = (end < self.recovery_point, start < self.start);
        if extent == Extent::Suffix && !unflushes && !lowers && known.is_none() {
            return Ok(());
        }
        let mut until = known.unwrap_or(Until::NOTHING);
        if unflushes {
            until.flushed = until.flushed.max(self.recovery_point);
        }
        if lowers {
            until.start = until.start.max(self.start);
        }
        // Until the truncation is done both starts are possible.
        until.mark(self.recovery_point.min(end), start.min(self.start)).write(&self.home)?;
        self.dirt.truncation = Some(until);
        Ok(())
    }

    /// Says a new log start on the disk too, where the file there says a lower one.
    pub(super) fn mark_start(&mut self, start: Offset) -> Result<(), LogError> {
        match self.dirt.truncation {
            Some(until) if self.start < until.start => {
                until.mark(self.recovery_point, start).write(&self.home)
            }
            _ => Ok(()),
        }
    }

    /// Removes the file once it says nothing that the checkpoint files could say wrong.
    pub(super) fn drop_mark(&mut self) -> Result<(), LogError> {
        let Some(until) = self.dirt.truncation else { return Ok(()) };
        // Before that the next recovery would begin later and trust indexes that were never synced.
        let is_synced = self.dirt.changes == self.dirt.changes_saved;
        if is_synced && self.recovery_point >= until.flushed && self.start >= until.start {
            TruncationMark::remove(&self.home)?;
            self.dirt.truncation = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_anything_else_says_nothing() {
        let mark = |recovery_point, start| TruncationMark { recovery_point: Offset(recovery_point), start };
        assert_eq!(TruncationMark::parse("0\n17\n5\n"), Some(mark(17, Offset(5))));
        let any = format!("0\n17\n{}\n", TruncationMark::ANY_START);
        assert_eq!(TruncationMark::parse(&any), Some(mark(17, TruncationMark::ANY_START)));
        for text in ["", "0", "0\n17", "1\n17\n5\n", "0\nx\n5\n"] {
            assert_eq!(TruncationMark::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_start_is_said_only_while_the_checkpoint_file_may_say_a_higher_one() {
        let until = Until { flushed: Offset(0), start: Offset(10) };
        assert_eq!(until.mark(Offset(3), Offset(9)).start, Offset(9));
        assert_eq!(until.mark(Offset(3), Offset(10)).start, TruncationMark::ANY_START);
    }
}
