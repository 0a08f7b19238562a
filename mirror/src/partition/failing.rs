//! How a partition goes on after something went wrong: what is waited for, what is tried again and what is left to an
//! operator.
//!
//! Invariants:
//! * whatever else goes wrong, what waits for an operator does not go on without one;
//! * what passes by itself is tried for ever, and uses up no attempts.

use std::sync::Arc;

use tarn_image::DesiredState;

use super::{Partition, Want};
use crate::backoff::Backoff;
use crate::limits;
use crate::reasons::{Reason, Treatment};

/// How failures are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// `mirror.failed.retry.initial.backoff.ms` and `.max.backoff.ms`.
    pub backoff: Backoff,
    /// `mirror.failed.retry.max.attempts`; after these an operator is waited for. What passes by itself is tried
    /// without end and uses up none of them.
    pub attempts_max: u16,
}

/// What is not well with a partition, and when it is tried again.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) reason: Reason,
    pub(super) message: Arc<str>,
    pub(super) until_ms: u64,
}

impl Partition {
    /// Something went wrong; how it goes on is the reason's to say. `spread` is drawn from 0 to 1.
    pub fn failed(
        &mut self,
        reason: Reason,
        message: Arc<str>,
        now_ms: u64,
        spread: f64,
        policy: &RetryPolicy,
    ) {
        if self.bound.desired != DesiredState::Mirroring {
            // What the source does or does not is nothing to a pause or a stop, which are tried without end.
            if is_of_this_cluster(reason) {
                self.hold(reason, message, now_ms, spread);
            }
            return;
        }
        match reason.treatment() {
            Treatment::Terminal => self.fails_for_good(reason, message),
            Treatment::Retried if !reason.is_waited_for() => {
                if !reason.passes_by_itself() {
                    if self.attempts_used >= policy.attempts_max {
                        return self.fails_for_good(reason, message);
                    }
                    self.attempts_used += 1;
                }
                self.attempts = self.attempts.saturating_add(1);
                let until_ms = now_ms + policy.backoff.wait_ms(u32::from(self.attempts), spread);
                self.failure = Some(Trouble { reason, message, until_ms });
                self.held = None;
            }
            Treatment::Retried | Treatment::OfTheLink | Treatment::Notice => {
                self.hold(reason, message, now_ms, spread);
            }
        }
    }

    fn hold(&mut self, reason: Reason, message: Arc<str>, now_ms: u64, spread: f64) {
        self.holds = self.holds.saturating_add(1);
        let until_ms = now_ms + Backoff::new(limits::HOLD_MS).wait_ms(self.holds, spread);
        self.held = Some(Trouble { reason, message, until_ms });
    }

    pub(super) fn fails_for_good(&mut self, reason: Reason, message: Arc<str>) {
        self.terminal = Some((reason, message));
        self.held = None;
        self.failure = None;
    }

    /// The disk here takes again what it did not: a failure of that kind is over.
    pub(super) fn storage_is_back(&mut self) {
        if self.failure.as_ref().is_some_and(|failure| failure.reason == Reason::DestinationStorage) {
            self.failure = None;
            self.attempts = self.attempts_used;
        }
    }

    /// A step has ended well, which ends a wait and no failure.
    pub(super) fn went_well(&mut self) {
        self.held = None;
    }

    pub(super) fn held_or(&self, now_ms: u64, step: Want) -> Want {
        let waits = self.held.iter().chain(&self.failure).map(|trouble| trouble.until_ms);
        match waits.max() {
            Some(until_ms) if until_ms > now_ms => Want::Wait(until_ms),
            _ => step,
        }
    }
}

/// Reasons that this cluster gives, whatever its source is like.
fn is_of_this_cluster(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::DestinationStorage
            | Reason::DestinationUnderMinIsr
            | Reason::DestinationNoLeader
            | Reason::CoordinatorUnavailable
            | Reason::ControllerUnavailable
    )
}
