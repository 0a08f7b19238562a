//! Several measurements of one thing, as their middle and their ends.

use serde_json::{Value, json};

/// The median and the extremes of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The middle one, or the mean of the middle two.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) least: f64,
    /// The largest.
    pub(crate) most: f64,
}

impl Spread {
    /// Of these; `None` where there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Spread { median, least, most })
    }

    /// `median (least–most)`, with so many decimals.
    pub(crate) fn text(&self, decimals: usize) -> String {
        format!("{:.decimals$} ({:.decimals$}–{:.decimals$})", self.median, self.least, self.most)
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.least, "max": self.most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).map(|spread| spread.text(1)), Some("2.0 (1.0–3.0)".into()));
        assert_eq!(Spread::of([4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }
}
