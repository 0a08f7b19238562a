//! What the source removed before it could be copied: said beside a partition's state for as long as its
//! binding is the same, for nobody else will ever notice.
//!
//! Owned by the partition.

use tarn_record::Offset;

/// Offsets of one partition that are at neither side's end but missing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first: Offset,
    /// The offset after the last of them.
    pub next: Offset,
}

/// The gaps of one partition. Of all but the newest only the sums are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    newest: Option<Gap>,
    count: u64,
    offsets: u64,
}

impl Gap {
    /// How many offsets are missing.
    pub fn offsets(&self) -> u64 {
        u64::try_from(self.next.0.saturating_sub(self.first.0)).unwrap_or(0)
    }
}

impl Gaps {
    /// Adds one, and says how many offsets of it are news: a comparison that is made again finds again what
    /// it found.
    pub fn add(&mut self, gap: Gap) -> u64 {
        let known = self.newest.filter(|known| known.first == gap.first);
        let more = gap.offsets().saturating_sub(known.map_or(0, |known| known.offsets()));
        self.count += u64::from(known.is_none());
        self.offsets += more;
        self.newest = Some(gap);
        more
    }

    /// A sentence; `None` where nothing is missing.
    pub fn said(&self) -> Option<String> {
        let Gap { first, next } = self.newest?;
        let range = format!("offsets {first} to {}", next.plus(-1));
        let (count, offsets) = (self.count, self.offsets);
        Some(match count {
            1 => format!("{range} ({offsets}) were removed at the source before they were copied"),
            _ => format!(
                "{offsets} offsets in {count} ranges, the newest {range}, were removed at the source before they \
                 were copied"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_summed_up_and_the_newest_is_named() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.said(), None);
        assert_eq!(gaps.add(gap(100, 140)), 40);
        let said = gaps.said().unwrap_or_default();
        assert_eq!(said, "offsets 100 to 139 (40) were removed at the source before they were copied");
        assert_eq!(gaps.add(gap(200, 201)), 1);
        let said = gaps.said().unwrap_or_default();
        assert!(said.starts_with("41 offsets in 2 ranges, the newest offsets 200 to 200,"), "{said}");
    }

    #[test]
    fn what_is_found_again_is_counted_once() {
        let mut gaps = Gaps::default();
        gaps.add(gap(100, 140));
        assert_eq!(gaps.add(gap(100, 140)), 0);
        assert_eq!(gaps.add(gap(100, 150)), 10, "the source has removed more meanwhile");
        assert!(gaps.said().is_some_and(|said| said.starts_with("offsets 100 to 149 (50)")));
    }

    fn gap(first: i64, next: i64) -> Gap {
        Gap { first: Offset(first), next: Offset(next) }
    }
}
