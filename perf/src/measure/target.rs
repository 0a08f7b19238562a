//! What a measurement is meant to reach.

/// A bound on a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Less than this.
    Below(f64),
}

impl Target {
    /// Whether a value is within the bound. One that is no number is not.
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Target::AtLeast(bound) => value >= bound,
            Target::AtMost(bound) => value <= bound,
            Target::Below(bound) => value < bound,
        }
    }

    /// The bound, for a table.
    pub(crate) fn text(self) -> String {
        match self {
            Target::AtLeast(bound) => format!("≥ {bound}"),
            Target::AtMost(bound) => format!("≤ {bound}"),
            Target::Below(bound) => format!("< {bound}"),
        }
    }

    /// Whether a value is within the bound, in a word.
    pub(crate) fn word(self, value: f64) -> &'static str {
        if self.is_met(value) { "reached" } else { "missed" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_is_within_all_but_below() {
        let met = [Target::AtLeast(5.0), Target::AtMost(5.0), Target::Below(5.0)].map(|one| one.is_met(5.0));
        assert_eq!(met, [true, true, false]);
        assert_eq!(Target::Below(5.0).word(4.9), "reached");
        assert_eq!(Target::Below(5.0).word(f64::NAN), "missed");
    }
}
