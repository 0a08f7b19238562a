//! When a mirror looks at its source's metadata: at intervals, and soon when something asks for it.

use crate::backoff::Backoff;
use crate::limits;

/// When to look next.
pub(super) struct Refresh {
    is_running: bool,
    /// The look that is running is the one of the interval.
    pub(super) is_periodic: bool,
    is_wanted: bool,
    /// A sync that a look began has not ended.
    pub(super) is_syncing: bool,
    periodic_at_ms: u64,
    not_before_ms: u64,
    attempts: u32,
}

impl Refresh {
    /// A first look is due at once.
    pub(super) fn new(now_ms: u64) -> Refresh {
        Refresh {
            is_running: false,
            is_periodic: false,
            is_wanted: true,
            is_syncing: false,
            periodic_at_ms: now_ms,
            not_before_ms: now_ms,
            attempts: 0,
        }
    }

    /// Something must be known: look as soon as the last look is not too near.
    pub(super) fn look_soon(&mut self) {
        self.is_wanted = true;
    }

    /// Patterns have changed: the look of the interval is due now.
    pub(super) fn look_now(&mut self) {
        self.periodic_at_ms = 0;
    }

    /// When the next look is due; never while one is running.
    pub(super) fn due_ms(&self, now_ms: u64) -> u64 {
        if self.is_running {
            return u64::MAX;
        }
        let due_ms =
            if self.is_wanted { self.not_before_ms } else { self.periodic_at_ms.max(self.not_before_ms) };
        due_ms.max(now_ms)
    }

    /// A look begins.
    pub(super) fn begin(&mut self, now_ms: u64, interval_ms: u64) {
        self.is_running = true;
        self.is_wanted = false;
        self.is_periodic = self.periodic_at_ms <= now_ms;
        if self.is_periodic {
            let spread = 0.9 + 0.2 * fastrand::f64();
            self.periodic_at_ms = now_ms + (interval_ms as f64 * spread) as u64;
        }
    }

    /// A look has ended. Where it did not help, the next one comes later each time.
    pub(super) fn ended(&mut self, now_ms: u64, helped: bool) {
        self.is_running = false;
        self.attempts = if helped { 0 } else { self.attempts.saturating_add(1) };
        self.is_wanted |= !helped;
        let wait_ms = Backoff::new(limits::REFRESH_MS).wait_ms(self.attempts.max(1), fastrand::f64());
        self.not_before_ms = now_ms + wait_ms;
    }
}
