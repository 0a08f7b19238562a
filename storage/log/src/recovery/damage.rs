//! Where the files of a log stop being right: a look before anything is cut.
//!
//! Opening a log after a crash ends it at the first batch that is not whole and right. A log of which it is
//! known that everything up to some offset was on the disk is looked through first, so that what was promised
//! is never dropped for being damaged. What recovery would end the log at is damage here too: bytes that are no
//! batch, a batch that does not follow the one before, a segment that ends before the next begins. That one is
//! damage whoever wrote the log: who looks here has a log that is never compacted.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tarn_record::{BatchError, Offset, Timestamp};
use thiserror::Error;

use super::Listing;
use super::opener::is_loss;
use crate::disk::DiskFile;
use crate::error::LogError;
use crate::home::{Home, Kind};
use crate::segment::{FileSizes, Scan, Segment, Step, WIDE};

/// The first bytes of a log that are not the batch that should be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment's file.
    pub path: PathBuf,
    /// Where in it.
    pub position: u64,
    /// The offset after the last right batch before: what is missing begins here.
    pub offset: Offset,
    /// What is wrong.
    pub fault: Fault,
    /// Where the next segment begins.
    pub next_segment: Option<Offset>,
    /// True where a right batch comes after it: then it is not the end of an append that a crash cut short.
    pub is_followed: bool,
}

/// What is wrong in a log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Bytes that are not the batch that should be there.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A segment ends before the next begins.
    #[error("what comes next is at offset {0}")]
    MissingUpTo(Offset),
}

/// A segment of the listing.
type Listed = (Offset, FileSizes);

/// Reads every batch of a log that nobody has open, and changes nothing; all below `flushed` was on the disk.
/// Takes as long as reading all of it.
pub(crate) fn first_damage(home: &Arc<Home>, flushed: Offset) -> Result<Option<Damage>, LogError> {
    let listing = Listing::read(home)?;
    let segments: Vec<Listed> = listing.segments.iter().map(|(&base, &sizes)| (base, sizes)).collect();
    let mut end = Offset(0);
    for (number, &(base, sizes)) in segments.iter().enumerate() {
        let later = &segments[number + 1..];
        let next = later.first().map(|(base, _)| *base);
        end = end.max(base);
        let segment = Segment::found(home, base, sizes, Timestamp::NONE);
        let view = segment.view();
        let file = view.open()?;
        let failed = |cause| view.failed("read", cause);
        let len = file.len().map_err(failed)?;
        let found = first_in_segment(file.as_ref(), len, (base, next), &mut end).map_err(failed)?;
        let missing =
            next.filter(|next| is_loss(end, *next, flushed)).map(|next| (len, Fault::MissingUpTo(next)));
        if let Some((position, fault)) = found.or(missing) {
            let in_file =
                position < len && has_batch(file.as_ref(), base, (position + 1, len), end).map_err(failed)?;
            let is_followed = in_file || have_batch(home, later, end)?;
            let (path, offset, next_segment) = (home.file(base, Kind::Log), end, next);
            return Ok(Some(Damage { path, position, offset, fault, next_segment, is_followed }));
        }
    }
    Ok(None)
}

/// The first fault in the file of a segment that begins at the first offset and ends before the second. `end`
/// goes up to what was right.
fn first_in_segment(
    file: &dyn DiskFile,
    len: u64,
    (base, next): (Offset, Option<Offset>),
    end: &mut Offset,
) -> io::Result<Option<(u64, Fault)>> {
    let mut scan = Scan::new(file, base, 0, len, WIDE);
    loop {
        let position = scan.position();
        let found = match scan.step()? {
            Step::Batch(found) => found,
            Step::Bad(fault) => return Ok(Some((position, fault.into()))),
            Step::End => return Ok(None),
        };
        let right = scan.check(&found)?.and_then(|()| found.follows(*end, Offset(i64::MAX)));
        if let Err(fault) = right {
            return Ok(Some((position, fault.into())));
        }
        if next.is_some_and(|next| found.header.last_offset() >= next) {
            // A truncation dropped it, and the next segment replaced it: its length was lost in a crash.
            return Ok(None);
        }
        *end = found.header.next_offset();
    }
}

/// True where one of the segments has a right batch at `least` or above.
fn have_batch(home: &Arc<Home>, segments: &[Listed], least: Offset) -> Result<bool, LogError> {
    for &(base, sizes) in segments {
        let segment = Segment::found(home, base, sizes, Timestamp::NONE);
        let view = segment.view();
        let file = view.open()?;
        let failed = |cause| view.failed("read", cause);
        let len = file.len().map_err(failed)?;
        if has_batch(file.as_ref(), base, (0, len), least).map_err(failed)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True where a right batch at `least` or above begins at `from` or at any byte after it: where damage has a
/// length in it, nothing tells where the next batch begins.
fn has_batch(file: &dyn DiskFile, base: Offset, (from, len): (u64, u64), least: Offset) -> io::Result<bool> {
    let mut scan = Scan::new(file, base, from, len, WIDE);
    loop {
        let position = scan.position();
        match scan.step()? {
            Step::End => return Ok(false),
            Step::Batch(found) if found.header.base_offset >= least && scan.check(&found)?.is_ok() => {
                return Ok(true);
            }
            Step::Batch(_) | Step::Bad(_) => scan.go_to(position + 1),
        }
    }
}
