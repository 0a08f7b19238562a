//! Whether a connection still moves: `connections.max.idle.ms`, and frames that stop half-way or trickle.
//!
//! One timer for each connection, which looks at what moved since, rather than one for each read. Owned
//! by the connection's task.
//!
//! Invariants:
//! * while the server works for the peer (a request in service, an answer parked, no room in the budget)
//!   the peer is not idle;
//! * while a response is being written, only the peer can be late;
//! * a frame is too slow only where others wait for the memory that it holds, and only by what it brought in
//!   a whole stretch of reading: time in which the server did not read is not counted.

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
    /// A frame held so many bytes of the budget and brought so few for so long, while others waited for it.
    FrameTrickled {
        /// What it held.
        held: usize,
        /// What it brought.
        brought: usize,
        /// In how long.
        time: Duration,
    },
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

/// Whether connections wait for the memory that frames hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// There is room.
    Free,
    /// Others wait.
    Wanted,
}

/// What moves on one connection.
#[derive(Debug)]
pub(crate) struct Progress {
    moved: Cell<Instant>,
    reading: Cell<Reading>,
    writing: Cell<bool>,
    stretch: Cell<Stretch>,
}

/// The stretch of a frame by which it is judged.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    began: Instant,
    /// What the frame holds of the budget.
    held: usize,
    brought: usize,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Progress {
        Progress {
            moved: Cell::new(now),
            reading: Cell::new(Reading::Between),
            writing: Cell::new(false),
            stretch: Cell::new(Stretch { began: now, held: 0, brought: 0 }),
        }
    }

    /// A frame goes on, and holds so many bytes of the budget from now on.
    pub(crate) fn frame_holds(&self, held: usize, now: Instant) {
        self.moved.set(now);
        self.reading.set(Reading::InFrame);
        self.stretch.set(Stretch { began: now, held, brought: 0 });
    }

    /// So many bytes of a frame came in.
    pub(crate) fn frame_brought(&self, bytes: usize, now: Instant) {
        self.moved.set(now);
        let stretch = self.stretch.get();
        self.stretch.set(Stretch { brought: stretch.brought.saturating_add(bytes), ..stretch });
    }

    /// Bytes went in or out.
    pub(crate) fn moved(&self, now: Instant) {
        self.moved.set(now);
    }

    /// What the reading side does. A frame that is not being read, or of which nothing is known yet but that it
    /// has begun, is not judged.
    pub(crate) fn reads(&self, what: Reading) {
        self.reading.set(what);
        self.stretch.set(Stretch { held: 0, ..self.stretch.get() });
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

    /// True while the peer has to take bytes.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.get()
    }

    /// What the connection is to be closed for at `now`, or how long to look away. `answers_due` says
    /// whether the peer waits for answers.
    pub(crate) fn check(
        &self,
        now: Instant,
        idle_timeout: Duration,
        answers_due: bool,
        budget: Budget,
    ) -> Result<Duration, Stillness> {
        let still = now.saturating_duration_since(self.moved.get());
        let stall_timeout = idle_timeout.min(limits::FRAME_STALL_MAX);
        let (allowed, verdict) = match self.reading.get() {
            _ if self.writing.get() => (idle_timeout, Stillness::NotReading(still)),
            Reading::InFrame => {
                self.judge_stretch(now, stall_timeout, budget)?;
                (stall_timeout, Stillness::FrameStalled(still))
            }
            Reading::Between if !answers_due => (idle_timeout, Stillness::Idle(still)),
            Reading::Between | Reading::OurTurn => return Ok(stall_timeout),
        };
        match allowed.checked_sub(still) {
            // What begins meanwhile may have to be given up after the shorter time.
            Some(left) if !left.is_zero() => Ok(left.min(stall_timeout)),
            _ => Err(verdict),
        }
    }

    /// Once the stretch is over: whether it brought its share. The next begins with it.
    fn judge_stretch(&self, now: Instant, length: Duration, budget: Budget) -> Result<(), Stillness> {
        let Stretch { began, held, brought } = self.stretch.get();
        let time = now.saturating_duration_since(began);
        if held == 0 || time < length {
            return Ok(());
        }
        self.stretch.set(Stretch { began: now, held, brought: 0 });
        // A large frame is noted chunk by chunk, and the one that is coming is not noted yet.
        let unnoted = if held > limits::SMALL_FRAME_BYTES_MAX { limits::READ_CHUNK_BYTES } else { 0 };
        let share = held.div_ceil(limits::FRAME_SHARE_MIN);
        if budget == Budget::Free || brought.saturating_add(unnoted) >= share {
            return Ok(());
        }
        Err(Stillness::FrameTrickled { held, brought, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    #[test]
    fn a_connection_without_requests_is_idle_after_the_timeout() {
        let (progress, start) = connection();
        assert_eq!(progress.check(start, IDLE, false, Budget::Free), Ok(limits::FRAME_STALL_MAX));
        assert_eq!(progress.check(start + IDLE - secs(1), IDLE, false, Budget::Free), Ok(secs(1)));
        assert_eq!(progress.check(start + IDLE, IDLE, false, Budget::Free), Err(Stillness::Idle(IDLE)));
        progress.moved(start + IDLE);
        assert_eq!(progress.check(start + IDLE, IDLE, false, Budget::Free), Ok(limits::FRAME_STALL_MAX));
    }

    #[test]
    fn a_peer_that_waits_for_us_is_not_idle() {
        let (progress, start) = connection();
        assert_eq!(progress.check(start + 2 * IDLE, IDLE, true, Budget::Free), Ok(limits::FRAME_STALL_MAX));
        progress.reads(Reading::OurTurn);
        assert_eq!(progress.check(start + 2 * IDLE, IDLE, false, Budget::Free), Ok(limits::FRAME_STALL_MAX));
    }

    #[test]
    fn a_frame_that_stops_half_way_is_given_up_soon_even_where_answers_are_due() {
        let (progress, start) = connection();
        progress.reads(Reading::InFrame);
        let stalled = limits::FRAME_STALL_MAX;
        assert_eq!(
            progress.check(start + stalled, IDLE, true, Budget::Free),
            Err(Stillness::FrameStalled(stalled))
        );
        assert_eq!(
            progress.check(start + secs(5), secs(5), true, Budget::Free),
            Err(Stillness::FrameStalled(secs(5)))
        );
    }

    #[test]
    fn a_peer_that_does_not_read_its_response_is_given_up_after_the_timeout() {
        let (progress, start) = connection();
        progress.write_begins(start + secs(10));
        assert_eq!(progress.check(start + IDLE, IDLE, true, Budget::Free), Ok(secs(10)));
        assert_eq!(
            progress.check(start + IDLE + secs(10), IDLE, true, Budget::Free),
            Err(Stillness::NotReading(IDLE))
        );
        progress.write_ends(start + IDLE);
        assert_eq!(
            progress.check(start + IDLE + secs(10), IDLE, true, Budget::Free),
            Ok(limits::FRAME_STALL_MAX)
        );
    }

    #[test]
    fn a_frame_that_trickles_is_given_up_where_others_wait_for_what_it_holds() {
        for (held, enough) in [(16_000, 1_000), (100 << 20, (100 << 20) / 16)] {
            for (brought, budget, is_kept) in [
                (enough, Budget::Wanted, true),
                (enough / 2, Budget::Wanted, false),
                (enough / 2, Budget::Free, true),
            ] {
                let (progress, start) = connection();
                progress.frame_holds(held, start);
                for second in 1..=30 {
                    assert!(progress.check(start + secs(second - 1), IDLE, true, Budget::Wanted).is_ok());
                    progress.frame_brought(brought / 30 + 1, start + secs(second));
                }
                let checked = progress.check(start + secs(30), IDLE, true, budget);
                assert_eq!(checked.is_ok(), is_kept, "{brought} of {held}: {checked:?}");
            }
        }
    }

    #[test]
    fn a_frame_is_judged_by_its_newest_stretch_and_not_while_the_server_does_not_read() {
        let (progress, start) = connection();
        let trickled = |second: u64| {
            progress.frame_brought(1, start + secs(second));
            progress.check(start + secs(second), IDLE, true, Budget::Wanted)
        };
        progress.frame_holds(64 << 20, start);
        progress.frame_brought(32 << 20, start + secs(1));
        assert!(trickled(30).is_ok());
        assert!(matches!(trickled(60), Err(Stillness::FrameTrickled { brought: 1, .. })));
        progress.reads(Reading::OurTurn);
        assert!(trickled(90).is_ok());
        progress.frame_holds(96 << 20, start + secs(100));
        assert!(trickled(129).is_ok());
        assert!(trickled(130).is_err());
    }

    #[test]
    fn a_frame_that_begins_is_not_judged_by_the_one_before() {
        let (progress, start) = connection();
        progress.frame_holds(64 << 20, start);
        progress.reads(Reading::OurTurn);
        progress.reads(Reading::Between);
        let begins = start + secs(60);
        progress.moved(begins);
        progress.reads(Reading::InFrame);
        assert!(progress.check(begins, IDLE, true, Budget::Wanted).is_ok());
    }

    #[test]
    fn a_chunk_that_is_still_coming_is_no_trickle() {
        let (progress, start) = connection();
        progress.frame_holds(4 << 20, start);
        progress.frame_brought(1, start + secs(29));
        assert!(progress.check(start + secs(30), IDLE, true, Budget::Wanted).is_ok());
    }

    fn connection() -> (Progress, Instant) {
        let start = Instant::now();
        (Progress::new(start), start)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
