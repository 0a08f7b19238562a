//! How large a response a lane asks for.
//!
//! All that is allowed while the source fills it, little at the tip. A link that dies before a response is whole
//! would die again at the same place: each time half as much is asked for, down to where a source sends one batch,
//! which it sends whole whatever its size (KIP-74). After enough answers that were filled twice as much is tried;
//! where that is cut too, the next try waits for more of them.

use tarn_transport::ClientError;

use crate::limits;

/// The response size asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseSize {
    now: usize,
    /// What may be asked for over this link, as far as is known.
    allowed: usize,
    /// What may be asked for at all.
    max: usize,
    /// Answers in a row that were filled and came whole.
    whole: u32,
    /// So many of them allow twice as much.
    grows_after: u32,
}

impl ResponseSize {
    pub(super) fn up_to(max: i32) -> ResponseSize {
        let max = usize::try_from(max).unwrap_or(0).max(1);
        ResponseSize { now: max, allowed: max, max, whole: 0, grows_after: limits::WHOLE_RESPONSES.0 }
    }

    pub(super) fn now(&self) -> usize {
        self.now
    }

    /// A response of about so many bytes came.
    pub(super) fn answered(&mut self, bytes: usize) {
        let is_filled = bytes >= self.now / 2;
        if is_filled && self.allowed < self.max {
            self.whole += 1;
            if self.whole >= self.grows_after {
                self.whole = 0;
                self.allowed = self.allowed.saturating_mul(2).min(self.max);
            }
        }
        if is_filled {
            self.now = self.now.saturating_mul(4).min(self.allowed);
        } else if bytes < self.now / 8 {
            self.now = (self.now / 2).max(limits::TIP_RESPONSE_BYTES).min(self.allowed);
        }
    }

    /// The connection ended, or time ran out, while a response was due.
    pub(super) fn missed(&mut self, error: &ClientError) {
        if matches!(error, ClientError::Closed { .. } | ClientError::TimedOut { .. }) {
            self.allowed = (self.now / 2).max(limits::RESPONSE_BYTES_MIN).min(self.now);
            self.now = self.allowed;
            self.whole = 0;
            self.grows_after = self.grows_after.saturating_mul(2).min(limits::WHOLE_RESPONSES.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_asked_for_shrinks_at_the_tip_and_grows_back_in_two_answers() {
        let mut size = ResponseSize::up_to(2 << 20);
        for _ in 0..10 {
            size.answered(1000);
        }
        assert_eq!(size.now(), limits::TIP_RESPONSE_BYTES);
        size.answered(limits::TIP_RESPONSE_BYTES);
        size.answered(1 << 20);
        assert_eq!(size.now(), 2 << 20);
        let mut small = ResponseSize::up_to(1000);
        small.answered(1);
        assert_eq!(small.now(), 1000);
    }

    #[test]
    fn a_link_that_cuts_responses_is_asked_for_half_each_time_down_to_a_batch() {
        let mut size = ResponseSize::up_to(1 << 20);
        size.missed(&cut());
        assert_eq!(size.now(), 1 << 19);
        for _ in 0..40 {
            size.missed(&cut());
        }
        assert_eq!(size.now(), limits::RESPONSE_BYTES_MIN);
        let mut small = ResponseSize::up_to(100);
        small.missed(&cut());
        assert_eq!(small.now(), 100, "less than the least is never more");
    }

    #[test]
    fn what_came_whole_is_asked_for_twice_and_more_rarely_where_that_is_cut_again() {
        let mut size = ResponseSize::up_to(8 << 20);
        let mut answers_until_cut = Vec::new();
        for _ in 0..8 {
            while size.now() > 1 << 20 {
                size.missed(&cut());
            }
            let mut answers = 0;
            while size.now() <= 1 << 20 {
                size.answered(size.now());
                answers += 1;
            }
            answers_until_cut.push(answers);
        }
        assert!(answers_until_cut.is_sorted(), "{answers_until_cut:?}");
        assert_eq!(answers_until_cut.last(), Some(&limits::WHOLE_RESPONSES.1));
        for _ in 0..4 * limits::WHOLE_RESPONSES.1 {
            size.answered(size.now());
        }
        assert_eq!(size.now(), 8 << 20, "a link that is well again carries all that is allowed");
    }

    #[test]
    fn an_answer_that_came_and_made_no_sense_says_nothing_of_the_link() {
        let mut size = ResponseSize::up_to(1 << 20);
        size.missed(&ClientError::Malformed { detail: "no frame".into() });
        assert_eq!(size.now(), 1 << 20);
    }

    fn cut() -> ClientError {
        ClientError::Closed { detail: "the broker closed it".into() }
    }
}
