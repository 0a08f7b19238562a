//! Whether a connection still moves: `connections.max.idle.ms`, and frames that stop half-way.
//!
//! One timer for each connection, which looks at what moved since, rather than one for each read. Owned
//! by the connection's task.
//!
//! Invariants:
//! * while the server works for the peer (a request in service, an answer parked, no room in the budget)
//!   the peer is not idle;
//! * while a response is being written, only the peer can be late.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::limits;

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stillness {
    /// Nothing was asked for so long.
    Idle(Duration),
    /// A frame began and did not go on for so long.
    FrameStalled(Duration),
    /// The peer took no byte of its response for so long.
    NotReading(Duration),
}

/// What the reading side is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Waiting for the first byte of a frame.
    Between,
    /// In the middle of a frame.
    InFrame,
    /// Not reading: the server has to do something first.
    OurTurn,
}

/// What moves on one connection.
#[derive(Debug)]
pub(crate) struct Progress {
    moved: Cell<Instant>,
    reading: Cell<Reading>,
    writing: Cell<bool>,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Progress {
        Progress { moved: Cell::new(now), reading: Cell::new(Reading::Between), writing: Cell::new(false) }
    }

    /// Bytes went in or out.
    pub(crate) fn moved(&self, now: Instant) {
        self.moved.set(now);
    }

    pub(crate) fn reads(&self, what: Reading) {
        self.reading.set(what);
    }

    /// A write begins, from which on the peer has to take bytes.
    pub(crate) fn write_begins(&self, now: Instant) {
        self.moved.set(now);
        self.writing.set(true);
    }

    pub(crate) fn write_ends(&self, now: Instant) {
        self.moved.set(now);
        self.writing.set(false);
    }

    /// What the connection is to be closed for at `now`, or how long to look away. `answers_due` says
    /// whether the peer waits for answers.
    pub(crate) fn check(
        &self,
        now: Instant,
        idle_timeout: Duration,
        answers_due: bool,
    ) -> Result<Duration, Stillness> {
        let still = now.saturating_duration_since(self.moved.get());
        let stall_timeout = idle_timeout.min(limits::FRAME_STALL_MAX);
        let (allowed, verdict) = match self.reading.get() {
            _ if self.writing.get() => (idle_timeout, Stillness::NotReading(still)),
            Reading::InFrame => (stall_timeout, Stillness::FrameStalled(still)),
            Reading::Between if !answers_due => (idle_timeout, Stillness::Idle(still)),
            Reading::Between | Reading::OurTurn => return Ok(stall_timeout),
        };
        match allowed.checked_sub(still) {
            // What begins meanwhile may have to be given up after the shorter time.
            Some(left) if !left.is_zero() => Ok(left.min(stall_timeout)),
            _ => Err(verdict),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    #[test]
    fn a_connection_without_requests_is_idle_after_the_timeout() {
        let (progress, start) = connection();
        assert_eq!(progress.check(start, IDLE, false), Ok(limits::FRAME_STALL_MAX));
        assert_eq!(progress.check(start + IDLE - secs(1), IDLE, false), Ok(secs(1)));
        assert_eq!(progress.check(start + IDLE, IDLE, false), Err(Stillness::Idle(IDLE)));
        progress.moved(start + IDLE);
        assert_eq!(progress.check(start + IDLE, IDLE, false), Ok(limits::FRAME_STALL_MAX));
    }

    #[test]
    fn a_peer_that_waits_for_us_is_not_idle() {
        let (progress, start) = connection();
        assert_eq!(progress.check(start + 2 * IDLE, IDLE, true), Ok(limits::FRAME_STALL_MAX));
        progress.reads(Reading::OurTurn);
        assert_eq!(progress.check(start + 2 * IDLE, IDLE, false), Ok(limits::FRAME_STALL_MAX));
    }

    #[test]
    fn a_frame_that_stops_half_way_is_given_up_soon_even_where_answers_are_due() {
        let (progress, start) = connection();
        progress.reads(Reading::InFrame);
        let stalled = limits::FRAME_STALL_MAX;
        assert_eq!(progress.check(start + stalled, IDLE, true), Err(Stillness::FrameStalled(stalled)));
        assert_eq!(progress.check(start + secs(5), secs(5), true), Err(Stillness::FrameStalled(secs(5))));
    }

    #[test]
    fn a_peer_that_does_not_read_its_response_is_given_up_after_the_timeout() {
        let (progress, start) = connection();
        progress.write_begins(start + secs(10));
        assert_eq!(progress.check(start + IDLE, IDLE, true), Ok(secs(10)));
        assert_eq!(progress.check(start + IDLE + secs(10), IDLE, true), Err(Stillness::NotReading(IDLE)));
        progress.write_ends(start + IDLE);
        assert_eq!(progress.check(start + IDLE + secs(10), IDLE, true), Ok(limits::FRAME_STALL_MAX));
    }

    fn connection() -> (Progress, Instant) {
        let start = Instant::now();
        (Progress::new(start), start)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
