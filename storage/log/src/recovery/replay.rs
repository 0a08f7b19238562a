//! Building the producer states from what is on the disk: the newest snapshot, and the batches above it.

use std::io;
use std::ops::ControlFlow;

use tarn_record::Offset;

use super::Listing;
use crate::error::LogError;
use crate::home::{Home, Kind};
use crate::log::Log;
use crate::producers::ProducerStates;
use crate::segment::Segment;

/// The producer states as of `end`, in a log that was cut there. Snapshots above it are removed.
pub(crate) fn producers_below(log: &mut Log, end: Offset) -> Result<ProducerStates, LogError> {
    let listing = Listing::read(&log.home)?;
    load_producers(log, &listing, end)
}

/// The same, with the directory's listing at hand.
pub(super) fn load_producers(
    log: &mut Log,
    listing: &Listing,
    end: Offset,
) -> Result<ProducerStates, LogError> {
    remove_above(&log.home, listing, end)?;
    let mut states = ProducerStates::default();
    let mut from = log.start;
    log.dirt.snapshot = None;
    // One from below the first segment may be of a history that was dropped as a whole.
    let first = log.segments.first().map_or(end, Segment::base);
    for (&offset, &len) in listing.snapshots.range(first.min(end)..=end).rev() {
        if let Some(loaded) = read_snapshot(&log.home, offset, len)? {
            (states, from) = (loaded, offset);
            log.dirt.snapshot = Some(offset);
            break;
        }
    }
    log.batches(from, end).visit(|header, control| {
        states.update(header, control);
        ControlFlow::Continue(())
    })?;
    Ok(states)
}

/// Removes the snapshots above an offset: they are of another history.
pub(crate) fn drop_snapshots_above(home: &Home, offset: Offset) -> Result<(), LogError> {
    remove_above(home, &Listing::read(home)?, offset)
}

fn remove_above(home: &Home, listing: &Listing, offset: Offset) -> Result<(), LogError> {
    let above = listing.snapshots.range(offset.plus(1)..).map(|(&above, _)| above);
    above.into_iter().try_for_each(|above| home.remove(&home.file(above, Kind::Snapshot)))
}

/// What a snapshot says; `None` for one that a crash left incomplete.
fn read_snapshot(home: &Home, offset: Offset, len: u64) -> Result<Option<ProducerStates>, LogError> {
    let empty = ProducerStates::default();
    if len == empty.snapshot().len() as u64 {
        // It has no room for a producer.
        return Ok(Some(empty));
    }
    let path = home.file(offset, Kind::Snapshot);
    match home.disk.read_all(&path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(LogError::io("read", &path, cause)),
        Ok(bytes) => Ok(ProducerStates::load(&bytes).ok()),
    }
}
