//! The segment that compaction writes in the place of others, under names that end in `.cleaned`.
//!
//! As long as nothing of a single segment has changed nothing is written: most of a log that is compacted often
//! stays as it is.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use tarn_record::{Offset, Timestamp, ValidBatch};

use super::job::{CleanError, Source};
use crate::config::LogConfig;
use crate::descriptors::SegmentFile;
use crate::disk::{DiskFile, Open};
use crate::error::LogError;
use crate::home::{Home, Kind};
use crate::limits::{CLEANED_PIECE_BYTES, SEGMENT_BYTES_MAX};
use crate::log::LogIdentity;
use crate::producers::ProducerStates;
use crate::removal::RemovalJob;
use crate::segment::Segment;
use crate::segment::txn_index::{AbortedTransaction, TxnIndex};

/// A segment that is complete and on the disk, to be handed to [`crate::Log::swap`].
#[derive(Debug)]
#[must_use = "nothing is compacted until it takes its place"]
pub struct Cleaned {
    pub(super) of: LogIdentity,
    pub(super) home: Arc<Home>,
    /// The segments whose place it takes.
    pub(super) sources: Vec<Arc<SegmentFile>>,
    pub(super) segment: Segment,
    /// Producer snapshots that must go before: those between the segments, and all before that know a transaction as
    /// open, whose marker may not be in the log any more.
    pub(super) snapshots: Vec<Offset>,
    pub(super) bytes_before: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    of: LogIdentity,
    home: Arc<Home>,
    sources: Vec<Arc<SegmentFile>>,
    /// Where the last of the sources ends.
    end: Offset,
    bytes_before: u64,
    aborted_before: u64,
    segment: Segment,
    /// `None` while everything is as in the one source.
    file: Option<Arc<dyn DiskFile>>,
    /// What is still to be written at the end of the file.
    piece: Vec<u8>,
}

impl Cleaned {
    /// The base offset of the segment.
    pub fn base(&self) -> Offset {
        self.segment.base()
    }

    /// The bytes of the segments whose place it takes.
    pub fn bytes_before(&self) -> u64 {
        self.bytes_before
    }

    /// Its own bytes.
    pub fn bytes_after(&self) -> u64 {
        u64::from(self.segment.size())
    }

    /// How many segments' place it takes.
    pub fn segments(&self) -> usize {
        self.sources.len()
    }

    /// Removes its files: nobody wants it.
    pub fn discard(self) -> RemovalJob {
        let base = self.base();
        let files = Kind::OF_SEGMENT.map(|kind| self.home.cleaned(base, kind));
        RemovalJob::new(self.home, files.to_vec())
    }
}

impl Output {
    /// Begins with nothing.
    pub(super) fn begin(of: &LogIdentity, sources: &[Source], now: Timestamp) -> Result<Output, LogError> {
        let files: Vec<_> = sources.iter().map(|source| source.view.file().clone()).collect();
        let (home, base) = (files[0].home().clone(), files[0].base());
        for kind in Kind::OF_SEGMENT {
            home.remove(&home.cleaned(base, kind))?;
        }
        let mut output = Output {
            of: of.clone(),
            segment: Segment::replacing(&home, base, now),
            home,
            sources: files,
            end: sources.last().map_or(base, Source::end),
            bytes_before: sources.iter().map(|source| u64::from(source.bytes())).sum(),
            aborted_before: sources.iter().map(Source::aborted).sum(),
            file: None,
            piece: Vec::new(),
        };
        if sources.len() > 1 {
            output.begin_file()?;
        }
        Ok(output)
    }

    /// The next batch stays as it is. Returns how many bytes were written.
    pub(super) fn keep(&mut self, batch: &ValidBatch, config: &LogConfig) -> Result<u64, CleanError> {
        let (header, base) = (batch.header(), self.segment.base());
        if self.segment.size() as usize + header.size() > SEGMENT_BYTES_MAX as usize {
            return Err(CleanError::TooLarge { base });
        }
        self.segment.note(header, config);
        if self.file.is_none() {
            return Ok(0);
        }
        self.piece.extend_from_slice(batch.bytes());
        if self.piece.len() >= CLEANED_PIECE_BYTES {
            self.write_piece()?;
        }
        Ok(header.size() as u64)
    }

    /// The next batch is not as it was.
    pub(super) fn change(&mut self, batch: &ValidBatch, config: &LogConfig) -> Result<u64, CleanError> {
        Ok(self.drop_one()? + self.keep(batch, config)?)
    }

    /// The next batch of the source is not there.
    pub(super) fn drop_one(&mut self) -> Result<u64, CleanError> {
        if self.file.is_some() {
            return Ok(0);
        }
        self.begin_file()?;
        Ok(u64::from(self.segment.size()))
    }

    /// Writes the rest and the indexes and waits until all is on the disk; `None` where nothing has changed.
    pub(super) fn finish(
        mut self,
        aborted: &[AbortedTransaction],
        closed_snapshots: &mut BTreeSet<Offset>,
    ) -> Result<Option<Cleaned>, CleanError> {
        if aborted.len() as u64 != self.aborted_before {
            self.drop_one()?;
        }
        if self.file.is_none() {
            return Ok(None);
        }
        let complete = self.write_piece().and_then(|()| self.write_indexes(aborted));
        let snapshots = complete.and_then(|()| self.snapshots_to_go(closed_snapshots));
        match snapshots {
            Ok(snapshots) => {
                let Output { of, home, sources, segment, bytes_before, .. } = self;
                Ok(Some(Cleaned { of, home, sources, segment, snapshots, bytes_before }))
            }
            Err(error) => {
                self.discard();
                Err(error.into())
            }
        }
    }

    /// Removes what was written, as far as the disk lets it.
    pub(super) fn discard(self) {
        let base = self.segment.base();
        for kind in Kind::OF_SEGMENT {
            let _ = self.home.remove(&self.home.cleaned(base, kind));
        }
    }

    /// Makes the file, with what the segment has already: the beginning of its source.
    fn begin_file(&mut self) -> Result<(), LogError> {
        let path = self.home.cleaned(self.segment.base(), Kind::Log);
        let created = self.home.disk.open(&path, Open::Create);
        self.file = Some(created.map_err(|cause| LogError::io("create", &path, cause))?);
        let source = self.sources[0].clone();
        let read_failed = |cause| LogError::io("read", &source.path(), cause);
        let from = source.open().map_err(read_failed)?;
        let (mut at, end) = (0, u64::from(self.segment.size()));
        while at < end {
            self.piece.resize((end - at).min(CLEANED_PIECE_BYTES as u64) as usize, 0);
            let read = from.read_at(&mut self.piece, at).map_err(read_failed)?;
            if read < self.piece.len() {
                return Err(read_failed(io::ErrorKind::UnexpectedEof.into()));
            }
            self.write_at(at)?;
            at += read as u64;
        }
        Ok(())
    }

    fn write_piece(&mut self) -> Result<(), LogError> {
        self.write_at(u64::from(self.segment.size()) - self.piece.len() as u64)
    }

    fn write_at(&mut self, position: u64) -> Result<(), LogError> {
        let path = self.home.cleaned(self.segment.base(), Kind::Log);
        let file = self.file.as_ref().expect("it was made before anything is written to it");
        let written = file.write_at(&[IoSlice::new(&self.piece)], position);
        written.map_err(|cause| LogError::io("write", &path, cause))?;
        self.piece.clear();
        Ok(())
    }

    fn write_indexes(&mut self, aborted: &[AbortedTransaction]) -> Result<(), LogError> {
        let (home, base) = (self.home.clone(), self.segment.base());
        let (offsets, times) = self.segment.take_indexes();
        // Where one has a file, so has the other: Kafka takes a time index without an offset index for damage.
        let has_files = !offsets.is_empty() || !times.is_empty();
        for (kind, bytes) in [(Kind::OffsetIndex, offsets), (Kind::TimeIndex, times)] {
            if has_files {
                write_and_sync(&home, &home.cleaned(base, kind), &bytes)?;
            }
        }
        if !aborted.is_empty() {
            let mut index = TxnIndex::new(home.disk.clone(), home.cleaned(base, Kind::TxnIndex));
            index.append(aborted)?;
            index.sync()?;
            self.segment.set_txn_index(index.renamed(home.file(base, Kind::TxnIndex)));
        }
        let path = home.cleaned(base, Kind::Log);
        let synced = self.file.as_ref().map_or(Ok(()), |file| file.sync_data());
        synced.map_err(|cause| LogError::unsynced(&path, cause))
    }

    /// The snapshots below the end of the segments that must not be read any more. Those within the segments have none of
    /// their own then. Of the others it is those in which a transaction is open, or that cannot be read: where its marker
    /// is gone nothing ends it, and the next one of its producer would seem to have begun with it. `closed` remembers
    /// the others from one group to the next.
    fn snapshots_to_go(&self, closed: &mut BTreeSet<Offset>) -> Result<Vec<Offset>, LogError> {
        let (home, base) = (&self.home, self.segment.base());
        let entries = home.disk.list(&home.path).map_err(|cause| LogError::io("list", &home.path, cause))?;
        let snapshots = entries.iter().filter_map(|entry| match Kind::parse(&entry.name)? {
            (Kind::Snapshot, offset) => Some(offset),
            _ => None,
        });
        let mut to_go = Vec::new();
        for offset in snapshots.filter(|offset| *offset < self.end) {
            if offset <= base && (closed.contains(&offset) || self.is_closed(offset)) {
                closed.insert(offset);
            } else {
                to_go.push(offset);
            }
        }
        Ok(to_go)
    }

    /// True where no transaction is open in a snapshot.
    fn is_closed(&self, offset: Offset) -> bool {
        let read = self.home.disk.read_all(&self.home.file(offset, Kind::Snapshot));
        let states = read.ok().and_then(|bytes| ProducerStates::load(&bytes).ok());
        states.is_some_and(|states| states.open_transactions().next().is_none())
    }
}

fn write_and_sync(home: &Home, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let failed = |cause| LogError::io("write", path, cause);
    let file = home.disk.open(path, Open::Create).map_err(failed)?;
    file.write_at(&[IoSlice::new(bytes)], 0).map_err(failed)?;
    file.sync_data().map_err(|cause| LogError::unsynced(path, cause))
}
