//! How large a response a lane asks for.

use crate::limits;

/// The response size asked for: all that is allowed while the source fills it, little at the tip.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseSize {
    now: usize,
    max: usize,
}

impl ResponseSize {
    pub(super) fn up_to(max: i32) -> ResponseSize {
        let max = usize::try_from(max).unwrap_or(0).max(1);
        ResponseSize { now: max, max }
    }

    pub(super) fn now(&self) -> usize {
        self.now
    }

    pub(super) fn answered(&mut self, bytes: usize) {
        if bytes >= self.now / 2 {
            self.now = self.now.saturating_mul(4).min(self.max);
        } else if bytes < self.now / 8 {
            self.now = (self.now / 2).max(limits::TIP_RESPONSE_BYTES).min(self.max);
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
}
