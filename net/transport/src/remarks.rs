//! What is said of things that happen again and again, such as connections that end badly or writes to a full
//! disk: so many lines a minute for each reason, so that whoever makes them happen cannot fill the disk with
//! the log.
//!
//! A server has one for its connections, on each core; the accepting task of each listener has one for those
//! that it refuses; a controller has one, and each core of a broker for its flushes. `R` is a reason.
//!
//! Invariants:
//! * of one reason at most `REMARKS_MAX` lines are said in a window: that begins with a line and lasts for
//!   `REMARKS_INTERVAL`, and the next begins with the first line after it;
//! * what was left out is counted, and told with the next line of its reason.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::limits::{REMARKS_INTERVAL, REMARKS_MAX};

/// Why a line about a connection is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// What a client sent is no request that is served.
    Malformed,
    /// The service gave a connection up.
    ByService,
    /// A response could not be finished.
    Unsent,
    /// The service panicked.
    Panicked,
    /// An address has too many connections.
    Refused,
}

/// A line that may be said; its text is the end of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remark {
    /// How many lines of this reason were left out since the last.
    left_out: u64,
    /// Whether the next ones of this reason are left out for now.
    next: Next,
}

/// What becomes of the next line of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Said,
    LeftOut,
}

/// See the module.
#[derive(Debug)]
pub struct Remarks<R> {
    reasons: BTreeMap<R, Lines>,
}

impl<R> Default for Remarks<R> {
    fn default() -> Remarks<R> {
        Remarks { reasons: BTreeMap::new() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    since: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl<R: Ord> Remarks<R> {
    /// Whether a line of this reason may be said now; `None` counts it.
    pub fn may_say(&mut self, reason: R, now: Instant) -> Option<Remark> {
        let lines = self.reasons.entry(reason).or_default();
        let is_over = |since| now.saturating_duration_since(since) >= REMARKS_INTERVAL;
        if lines.since.is_none_or(is_over) {
            (lines.since, lines.said) = (Some(now), 0);
        }
        if lines.said >= REMARKS_MAX {
            lines.left_out += 1;
            return None;
        }
        lines.said += 1;
        let next = if lines.said < REMARKS_MAX { Next::Said } else { Next::LeftOut };
        Some(Remark { left_out: std::mem::take(&mut lines.left_out), next })
    }
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.left_out > 0 {
            write!(f, "; {} such lines were left out before this", self.left_out)?;
        }
        match self.next {
            Next::Said => Ok(()),
            Next::LeftOut => {
                write!(f, "; further ones are left out for up to {} s", REMARKS_INTERVAL.as_secs())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn of_many_lines_a_few_are_said_and_the_others_counted() {
        let (mut remarks, began) = (Remarks::default(), Instant::now());
        let said = (0..1000).filter_map(|at| remarks.may_say(Reason::Malformed, began + millis(at)));
        let said: Vec<_> = said.collect();
        assert_eq!(said.len(), REMARKS_MAX as usize);
        assert_eq!(
            said.last().map(|last| last.next),
            Some(Next::LeftOut),
            "it is said that there may be more"
        );
        assert!(said.iter().all(|remark| remark.left_out == 0));
        let later = remarks.may_say(Reason::Malformed, began + REMARKS_INTERVAL);
        let left_out = 1000 - u64::from(REMARKS_MAX);
        assert_eq!(later, Some(Remark { left_out, next: Next::Said }));
        let text = later.map(|remark| remark.to_string());
        assert_eq!(text, Some(format!("; {left_out} such lines were left out before this")));
        let after = remarks.may_say(Reason::Malformed, began + REMARKS_INTERVAL);
        assert_eq!(after, Some(Remark { left_out: 0, next: Next::Said }), "and told once");
    }

    #[test]
    fn one_reason_does_not_silence_another() {
        let (mut remarks, now) = (Remarks::default(), Instant::now());
        while remarks.may_say(Reason::Malformed, now).is_some() {}
        for other in [Reason::ByService, Reason::Unsent, Reason::Panicked, Reason::Refused] {
            assert!(remarks.may_say(other, now).is_some(), "{other:?}");
        }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
}
