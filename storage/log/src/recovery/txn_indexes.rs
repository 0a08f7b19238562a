//! The transaction indexes of segments that are believed as they are. One that cannot be right would show consumers of
//! committed records what was aborted, or keep them from reading on: it is built anew from the batches.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::Listing;
use super::opener::Opener;
use super::replay::ProducersBelow;
use crate::error::LogError;
use crate::home::Kind;
use crate::log::{Log, aborted_entry};
use crate::segment::Segment;
use crate::segment::txn_index::{TxnIndex, TxnIndexError};

/// A transaction index that was built anew, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltTxnIndex {
    /// Its file.
    pub path: PathBuf,
    /// Where in it was what cannot be.
    pub position: u64,
    /// What that was.
    pub fault: &'static str,
}

/// What of an index is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Its size and its newest entry: whoever closed the log wrote it whole.
    Newest,
    /// Every entry, as in Kafka.
    Every,
}

impl Opener<'_> {
    /// Opens those of the segments before number `upto`, of which the ends are known.
    pub(super) fn open_txn_indexes(&mut self, upto: usize, check: Check) -> Result<(), LogError> {
        for &base in &self.listing.txn_indexes {
            let index = self.log.segment_of(base);
            if index >= upto || self.log.segments[index].base() != base {
                continue;
            }
            match open(self.log, index, check) {
                Ok(found) => {
                    found.into_iter().for_each(|found| self.log.segments[index].set_txn_index(found))
                }
                Err(TxnIndexError::Damaged { path, position, fault }) => {
                    let rebuilt = rebuild(self.log, self.listing, index)?;
                    self.log.segments[index].set_txn_index(rebuilt);
                    self.report.rebuilt_txn_indexes.push(RebuiltTxnIndex { path, position, fault });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn open(log: &Log, index: usize, check: Check) -> Result<Option<TxnIndex>, TxnIndexError> {
    let segment: &Segment = &log.segments[index];
    let Some(found) = segment.find_txn_index()? else { return Ok(None) };
    let offsets = segment.base()..log.segment_end(index);
    match check {
        Check::Newest => found.check_newest(&offsets)?,
        Check::Every => found.sanity_check(&offsets)?,
    }
    Ok(Some(found))
}

fn rebuild(log: &Log, listing: &Listing, index: usize) -> Result<TxnIndex, LogError> {
    let (base, end) = (log.segments[index].base(), log.segment_end(index));
    let (mut states, _) = ProducersBelow::of(log, base).build_from(&log.home, listing)?;
    let mut aborted = Vec::new();
    log.batches(base, end).visit(|header, control| {
        aborted.extend(states.update(header, control).and_then(aborted_entry));
        ControlFlow::Continue(())
    })?;
    Ok(TxnIndex::write_anew(log.home.disk.clone(), log.home.file(base, Kind::TxnIndex), &aborted)?)
}
