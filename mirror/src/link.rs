//! The connection to one source broker as a state: up, not reached and why, when to try again.
//!
//! A source broker that does not answer is no fault of its partitions: they stay MIRRORING and show what
//! is written here. Owned by the lane that connects; sans-IO.

use std::sync::Arc;

use tarn_wire::ErrorCode;

use crate::backoff::Backoff;
use crate::fetch::progress::{LinkTrouble, Trouble};
use crate::limits;
use crate::reasons::Reason;
use crate::source::SourceError;

/// One connection to a source broker.
#[derive(Debug, Default)]
pub struct Link {
    trouble: Option<LinkTrouble>,
    retry_at_ms: u64,
    was_up: bool,
}

/// What a connection that came up means for the partitions that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameUp {
    /// It is the first: what was decided before still holds.
    First,
    /// The source may have changed meanwhile: its history must be compared again.
    AfterOutage,
}

impl Link {
    /// When to connect; the past means at once.
    pub fn retry_at_ms(&self) -> u64 {
        self.retry_at_ms
    }

    /// The connection is there.
    pub fn came_up(&mut self) -> CameUp {
        let before = if self.was_up || self.trouble.is_some() { CameUp::AfterOutage } else { CameUp::First };
        self.was_up = true;
        before
    }

    /// The broker answered a request, which ends every trouble. True where there was one.
    pub fn answered(&mut self) -> bool {
        self.retry_at_ms = 0;
        self.trouble.take().is_some()
    }

    /// No connection to the cluster could be made, or it broke. `spread` is drawn from 0 to 1.
    pub fn failed(&mut self, now_ms: u64, error: &SourceError, spread: f64) {
        let (since_ms, attempts) =
            self.trouble.as_ref().map_or((now_ms, 0), |was| (was.since_ms, was.attempts));
        let attempts = attempts.saturating_add(1);
        self.retry_at_ms = now_ms + Backoff::new(limits::RECONNECT_MS).wait_ms(attempts, spread);
        self.trouble = Some(LinkTrouble {
            reason: error.reason(),
            what: Trouble::Said(Arc::from(error.to_string())),
            since_ms,
            attempts,
        });
    }

    /// The broker has been silent for longer than it was asked to wait.
    pub fn late(&mut self, asked_at_ms: u64) {
        self.trouble.take_if(|trouble| trouble.reason == Reason::Throttled);
        self.trouble.get_or_insert(LinkTrouble {
            reason: Reason::SourceUnreachable,
            what: Trouble::Silent,
            since_ms: asked_at_ms,
            attempts: 0,
        });
    }

    /// The broker answers, and its quota wants no request for this long.
    pub fn held_back(&mut self, now_ms: u64, wait_ms: u64) {
        self.trouble.get_or_insert_with(|| LinkTrouble {
            reason: Reason::Throttled,
            what: Trouble::Said(Arc::from(format!("the source's quota holds fetches back for {wait_ms} ms"))),
            since_ms: now_ms,
            attempts: 0,
        });
    }

    /// The broker answers, but refuses what it is asked as a whole.
    pub fn refused(&mut self, now_ms: u64, code: ErrorCode) {
        let since_ms = self.trouble.as_ref().map_or(now_ms, |was| was.since_ms);
        let refused = format!("the source refuses fetches: {} ({})", code.name(), code.message());
        self.trouble = Some(LinkTrouble {
            reason: Reason::of_refusal(code),
            what: Trouble::Said(Arc::from(refused)),
            since_ms,
            attempts: 0,
        });
    }

    /// What is wrong.
    pub fn trouble(&self) -> Option<&LinkTrouble> {
        self.trouble.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_transport::ClientError;

    #[test]
    fn attempts_are_spaced_and_count_from_the_first_failure() {
        let mut link = Link::default();
        link.failed(1000, &closed(), 0.5);
        link.failed(1050, &closed(), 0.5);
        let trouble = link.trouble().expect("it failed");
        assert_eq!((trouble.since_ms, trouble.attempts, link.retry_at_ms()), (1000, 2, 1150));
        assert_eq!(trouble.reason, Reason::SourceUnreachable);
        assert_eq!(link.came_up(), CameUp::AfterOutage);
        assert!(link.answered());
        assert_eq!((link.trouble(), link.retry_at_ms()), (None, 0));
    }

    #[test]
    fn the_first_connection_is_no_return_from_an_outage_and_the_second_is() {
        let mut link = Link::default();
        assert_eq!(link.came_up(), CameUp::First);
        assert!(!link.answered());
        assert_eq!(link.came_up(), CameUp::AfterOutage);
    }

    #[test]
    fn a_silent_broker_shows_for_how_long_it_has_been_by_now() {
        let mut link = Link::default();
        link.late(4000);
        let trouble = link.trouble().expect("it is silent");
        assert_eq!((trouble.since_ms, trouble.reason), (4000, Reason::SourceUnreachable));
        for (now_ms, silent_ms) in [(5000, "1000 ms"), (64_000, "60000 ms")] {
            let said = trouble.message_at(now_ms);
            assert!(said.ends_with(silent_ms), "{said}");
        }
        assert!(link.answered());
    }

    #[test]
    fn a_broker_that_refuses_is_not_away_and_says_what_it_is_about() {
        let mut link = Link::default();
        link.refused(5000, ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
        link.refused(6000, ErrorCode::UNKNOWN_SERVER_ERROR);
        let trouble = link.trouble().expect("it refused");
        assert_eq!((trouble.reason, trouble.since_ms), (Reason::SourceError, 5000));
        let said = trouble.message_at(6000);
        assert!(said.contains("UNKNOWN_SERVER_ERROR"), "{said}");
        link.refused(7000, ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
        assert_eq!(link.trouble().map(|trouble| trouble.reason), Some(Reason::SourceAuthorizationFailed));
        assert!(link.answered());
        assert_eq!(link.trouble(), None);
    }

    #[test]
    fn a_quota_is_shown_until_the_next_answer_and_hides_no_silence() {
        let mut link = Link::default();
        link.held_back(1000, 9000);
        let reason = |link: &Link| link.trouble().map(|trouble| trouble.reason);
        assert_eq!(reason(&link), Some(Reason::Throttled));
        link.late(10_000);
        assert_eq!(reason(&link), Some(Reason::SourceUnreachable));
        link.held_back(20_000, 9000);
        assert_eq!(reason(&link), Some(Reason::SourceUnreachable));
        assert!(link.answered());
        assert_eq!(reason(&link), None);
    }

    fn closed() -> SourceError {
        ClientError::Closed { detail: "the broker closed it".into() }.into()
    }
}
