//! Where the files of a log stop being right: a look before anything is cut.
//!
//! Opening a log after a crash ends it at the first batch that is not whole and right. A log of which it is
//! known that everything up to some offset was on the disk is looked through first, so that what was promised
//! is never dropped for being damaged.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_record::{BatchError, Offset, Timestamp};

use super::Listing;
use crate::error::LogError;
use crate::home::{Home, Kind};
use crate::segment::{Scan, Segment, Step, WIDE};

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
    pub fault: BatchError,
}

/// Reads every batch of a log that nobody has open, and changes nothing. Takes as long as reading all of it.
pub(crate) fn first_damage(home: &Arc<Home>) -> Result<Option<Damage>, LogError> {
    let listing = Listing::read(home)?;
    let mut end = Offset(0);
    for (&base, &sizes) in &listing.segments {
        end = end.max(base);
        let segment = Segment::found(home, base, sizes, Timestamp::NONE);
        let view = segment.view();
        let file = view.open()?;
        let failed = |cause| view.failed("read", cause);
        let mut scan = Scan::new(file.as_ref(), 0, file.len().map_err(failed)?, WIDE);
        loop {
            let (path, position) = (home.file(base, Kind::Log), scan.position());
            let fault = match scan.step().map_err(failed)? {
                Step::Batch(found) => match scan.check(&found).map_err(failed)? {
                    Ok(()) => {
                        end = found.header.next_offset();
                        continue;
                    }
                    Err(fault) => fault,
                },
                Step::Bad(fault) => fault,
                Step::End => break,
            };
            return Ok(Some(Damage { path, position, offset: end, fault }));
        }
    }
    Ok(None)
}
