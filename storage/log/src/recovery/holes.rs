//! Segments that are missing between others.
//!
//! Whose `.log` was removed by hand, but not its indexes, is told by these for nothing. Of one that is gone with all its
//! files only the batches before it tell: looking for those of every segment would take longer than all else of a start.

use tarn_record::Offset;

use super::Listing;
use crate::log::Log;

/// Offsets that a log does not have, between others that it has. Who reads there goes on where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The first of them.
    pub from: Offset,
    /// The offset after the last of them.
    pub to: Offset,
}

/// Those that the indexes tell of, of a log that was opened.
pub(super) fn holes(log: &Log, listing: &Listing) -> Vec<Hole> {
    let mut holes: Vec<Hole> = Vec::new();
    for &gone in &listing.without_log {
        let before = log.segment_of(gone);
        let (Some(segment), Some(next)) = (log.segments.get(before), log.segments.get(before + 1)) else {
            continue;
        };
        let to = next.base();
        if segment.base() > gone || to <= log.start || holes.last().is_some_and(|hole| hole.to == to) {
            continue;
        }
        let last = segment.view().locate_below(to, to).ok().flatten();
        let from = last.map_or(gone, |last| last.header.next_offset());
        // Compaction may have moved what it had into the one before it.
        if from <= gone {
            holes.push(Hole { from: from.max(log.start), to });
        }
    }
    holes
}
