//! Building the producer states from what is on the disk: the newest snapshot, and the batches above it.

use std::io;
use std::ops::ControlFlow;

use tarn_record::Offset;

use super::Listing;
use crate::error::LogError;
use crate::home::{Home, Kind};
use crate::limits::{SENT_AGAIN_BYTES, SENT_AGAIN_BYTES_MAX};
use crate::log::{Log, LogBatches};
use crate::producers::ProducerStates;
use crate::segment::Segment;

/// What the producer states as of an offset are built from, for any thread.
#[derive(Debug)]
pub(crate) struct ProducersBelow {
    /// All batches below it, those below the log start included.
    batches: LogBatches,
    /// From where on the batches tell where no snapshot does: the log start.
    start: Offset,
    /// A snapshot from below here may be of a history that was dropped as a whole.
    oldest_snapshot: Offset,
    /// One that goes with its segment.
    dropped_snapshot: Option<Offset>,
    /// The offset.
    end: Offset,
}

impl ProducersBelow {
    /// Those as of `end`.
    pub(crate) fn of(log: &Log, end: Offset) -> ProducersBelow {
        let oldest = log.segments.first().map_or(end, Segment::base);
        let batches = log.batches(oldest, end);
        ProducersBelow { batches, start: log.start, oldest_snapshot: oldest, dropped_snapshot: None, end }
    }

    /// The same in a log that will end at `end` and keep no batch from `dropped` on, which may lie lower: the first
    /// one to go may begin below the log start.
    pub(crate) fn below(mut self, end: Offset, dropped: Offset) -> ProducersBelow {
        self.batches.end_at(dropped);
        self.end = self.end.min(end);
        self
    }

    /// The same in a log that loses the segment which begins at `base`, and the snapshot there with it.
    pub(crate) fn without_segment(mut self, base: Offset) -> ProducersBelow {
        self.dropped_snapshot = Some(base);
        self
    }

    /// The same in a log that loses all its batches: a snapshot at the offset alone tells.
    pub(crate) fn without_batches(mut self) -> ProducersBelow {
        self.batches.skip_to(self.end);
        self.oldest_snapshot = self.end;
        self
    }

    /// Builds them; with the offset of the snapshot that they rest on.
    pub(crate) fn build(self, home: &Home) -> Result<(ProducerStates, Option<Offset>), LogError> {
        self.build_from(home, &Listing::read(home)?)
    }

    pub(super) fn build_from(
        mut self,
        home: &Home,
        listing: &Listing,
    ) -> Result<(ProducerStates, Option<Offset>), LogError> {
        let (mut states, mut snapshot) = (ProducerStates::default(), None);
        let range = self.oldest_snapshot.min(self.end)..=self.end;
        for (&offset, _) in listing.snapshots.range(range).rev() {
            if self.dropped_snapshot == Some(offset) {
                continue;
            }
            if let Some(loaded) = read_snapshot(home, offset)? {
                (states, snapshot) = (loaded, Some(offset));
                break;
            }
        }
        // What came after a snapshot counts also where the log starts above it.
        self.batches.skip_to(snapshot.unwrap_or(self.start));
        self.batches.visit(|header, control| {
            states.update(header, control);
            ControlFlow::Continue(())
        })?;
        Ok((states, snapshot))
    }
}

/// The producer states as of `end`, in a log that was cut there. Snapshots above it are removed.
pub(super) fn load_producers(
    log: &mut Log,
    listing: &Listing,
    end: Offset,
) -> Result<ProducerStates, LogError> {
    remove_above(&log.home, listing, end)?;
    log.dirt.snapshot = None;
    let (states, snapshot) = ProducersBelow::of(log, end).build_from(&log.home, listing)?;
    log.dirt.snapshot = snapshot;
    Ok(states)
}

/// Adds to the producer states as of `end`, where a segment begins, the batches before each producer's last one: a
/// snapshot has no more than that, and what a crash kept from being answered is sent again. How many bytes of the log
/// were looked through for it.
pub(super) fn remember_batches_below(log: &mut Log, end: Offset) -> u64 {
    if log.producers.is_empty() {
        return 0;
    }
    let below = log.segments.iter().take_while(|segment| segment.base() < end);
    let below: u64 = below.map(|segment| u64::from(segment.size())).sum();
    let farthest = log.last_batches(end, SENT_AGAIN_BYTES_MAX).from;
    let mut newest = ProducerStates::default();
    let (mut seen, mut looked_through) = (0, 0);
    for bytes in SENT_AGAIN_BYTES {
        if seen == below || log.producers.have_their_batches_in(&newest, farthest) {
            break;
        }
        seen = bytes.min(below);
        looked_through += seen;
        newest = ProducerStates::default();
        // They are below what is checked: where they cannot be read, the snapshot's are enough to go on with.
        let _ = log.last_batches(end, bytes).visit(|header, control| {
            newest.update(header, control);
            ControlFlow::Continue(())
        });
    }
    log.producers.remember_batches_of(&newest);
    looked_through
}

/// Removes the snapshots above an offset: they are of another history.
pub(crate) fn drop_snapshots_above(home: &Home, offset: Offset) -> Result<(), LogError> {
    remove_above(home, &Listing::read(home)?, offset)
}

fn remove_above(home: &Home, listing: &Listing, offset: Offset) -> Result<(), LogError> {
    let above = listing.snapshots.range(offset.plus(1)..).map(|(&above, _)| above);
    above.into_iter().try_for_each(|above| home.remove(&home.file(above, Kind::Snapshot)))
}

/// What a snapshot says; `None` for one that a crash or a full disk left incomplete. One without a producer is read
/// too: the beginning of another one may be as long.
fn read_snapshot(home: &Home, offset: Offset) -> Result<Option<ProducerStates>, LogError> {
    let path = home.file(offset, Kind::Snapshot);
    match home.disk.read_all(&path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(LogError::io("read", &path, cause)),
        Ok(bytes) => Ok(ProducerStates::load(&bytes).ok()),
    }
}
