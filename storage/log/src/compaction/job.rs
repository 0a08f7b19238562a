//! A round of compaction: what a cleaner thread does with one log.
//!
//! The log's core makes a [`Cleaning`], a copy of what it knows. The thread maps the keys, which gives a
//! [`Round`], and then gets one new segment after the other out of it, complete and on the disk, each to be handed
//! to [`Log::swap`] before the next is made: so no more than one group of segments is there twice. What was
//! done for a log that has changed meanwhile is dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tarn_record::{BatchHeader, ControlRecord, ControlType, Offset, ProducerId, Timestamp, ValidBatch};
use thiserror::Error;

use super::OffsetMap;
use super::dirtiness::{CleanRules, Dirtiness, Spent, Watch};
use super::filter::{Filter, Kept, LastRecords, Mapper, Place};
use super::grouping::{Sizes, groups};
use super::offset_map::Room;
use super::output::{Cleaned, Output};
use crate::config::LogConfig;
use crate::descriptors::SegmentFile;
use crate::disk::ReadFrom;
use crate::error::LogError;
use crate::home::{CLEANED_SUFFIX, Kind, SWAP_SUFFIX};
use crate::log::{Log, LogIdentity};
use crate::producers::{LastRecord, ProducerStates};
use crate::segment::txn_index::{AbortedTransaction, TxnIndex};
use crate::segment::{Found, Scan, Segment, SegmentView, Step, WIDE};

/// Why a round, or what is left of it, was not done. The log is as it was.
#[derive(Debug, Error)]
pub enum CleanError {
    /// The log was cut, or lost segments at its start: it is to be looked at again.
    #[error("the log has changed while it was compacted")]
    Changed,
    /// Who watched said so.
    #[error("the compaction was given up")]
    GivenUp,
    /// Not even the keys of one batch.
    #[error("the keys of the batch at offset {offset} do not fit into a map of {bytes} bytes")]
    MapTooSmall {
        /// Its base offset.
        offset: Offset,
        /// What the map has.
        bytes: usize,
    },
    /// What stays of segments is more than one can be, though together they were not.
    #[error("what stays of the segments from offset {base} on is more than one segment can hold")]
    TooLarge {
        /// The base of the first.
        base: Offset,
    },
    /// Files cannot be read or written, or are damaged.
    #[error(transparent)]
    Storage(#[from] LogError),
}

/// A log that is ready to be compacted.
#[derive(Debug)]
#[must_use = "nothing is compacted until its keys are mapped"]
pub struct Cleaning {
    of: LogIdentity,
    config: Arc<LogConfig>,
    sources: Vec<Source>,
    /// The transaction indexes of all segments, with the files of these and their sizes.
    indexes: Vec<(Arc<SegmentFile>, u32, TxnIndex)>,
    aborted: Vec<AbortedTransaction>,
    last_of_producers: BTreeMap<ProducerId, LastRecord>,
    rules: CleanRules,
    first_dirty: Offset,
    end: Offset,
    now: Timestamp,
}

/// A segment that is written anew.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) view: SegmentView,
    sizes: Sizes,
    aborted: u64,
}

/// A round whose keys are mapped.
#[derive(Debug)]
pub struct Round {
    of: LogIdentity,
    config: Arc<LogConfig>,
    sources: Vec<Source>,
    /// Those that are still to be written anew, by their numbers.
    groups: VecDeque<Range<usize>>,
    filter: Filter,
    /// Producer snapshots in which no transaction is open.
    closed_snapshots: BTreeSet<Offset>,
    map_fullness: f64,
    end: Offset,
    now: Timestamp,
}

impl Log {
    /// Prepares the compaction of what [`Log::dirtiness`] just found.
    pub fn cleaning(&self, dirtiness: &Dirtiness, rules: &CleanRules, now: Timestamp) -> Cleaning {
        let upto = self.segments.partition_point(|segment| segment.base() < dirtiness.end);
        let source = |index: usize| {
            let (segment, end) = (&self.segments[index], self.segment_end(index));
            let (index_bytes, time_index_bytes) = segment.index_bytes();
            let (base, bytes) = (segment.base(), segment.size());
            Source {
                view: segment.view().clone(),
                sizes: Sizes { base, end, bytes, index_bytes, time_index_bytes },
                aborted: segment.txn_index().map_or(0, TxnIndex::len),
            }
        };
        let index =
            |segment: &Segment| Some((segment.file().clone(), segment.size(), segment.txn_index()?.clone()));
        Cleaning {
            of: self.identity(),
            config: self.config.clone(),
            sources: (0..upto).map(source).collect(),
            indexes: self.segments.iter().filter_map(index).collect(),
            aborted: self.unnoted_aborts.clone(),
            last_of_producers: self.producers.last_records(),
            rules: *rules,
            first_dirty: dirtiness.first_dirty,
            end: dirtiness.end,
            now,
        }
    }
}

impl Cleaning {
    /// Notes where each key is newest in what was not compacted yet: all of it, or as much as the map has room for. It
    /// may be nothing, where a transaction has its marker in a segment that cannot be compacted yet: there is no use in
    /// another round before [`Dirtiness::end`] is higher.
    ///
    /// # Errors
    /// See [`CleanError`].
    pub fn map(mut self, mut map: OffsetMap, watch: &mut Watch<'_>) -> Result<Round, CleanError> {
        self.remove_leftovers()?;
        self.read_aborted()?;
        let noted = self.decided_end(watch).and_then(|limit| self.note_keys(&mut map, limit, watch));
        let end = noted
            .map_err(|error| self.sources.iter().fold(error, |error, source| or_changed(source, error)))?;
        let has_news = end > self.first_dirty;
        let upto = self.sources.partition_point(|source| has_news && source.sizes.base < end);
        self.sources.truncate(upto);
        let last_of_producers = self
            .last_of_producers(watch)
            .map_err(|error| self.sources.iter().fold(error, |error, source| or_changed(source, error)))?;
        let sizes: Vec<Sizes> = self.sources.iter().map(|source| source.sizes).collect();
        let Cleaning { of, config, sources, aborted, rules, now, .. } = self;
        let groups = groups(&sizes, &config).into();
        let map_fullness = map.fullness();
        let filter = Filter::new(map, &aborted, last_of_producers, end, now, rules.delete_retention_ms);
        let closed_snapshots = BTreeSet::new();
        Ok(Round { of, config, sources, groups, filter, closed_snapshots, map_fullness, end, now })
    }

    /// Removes what an earlier round left that was given up: beside an unfinished file an opening would take back a
    /// swap that has come too far for that.
    fn remove_leftovers(&self) -> Result<(), CleanError> {
        let Some(source) = self.sources.first() else { return Ok(()) };
        let home = source.view.file().home();
        let listed = home.disk.list(&home.path).map_err(|cause| LogError::io("list", &home.path, cause));
        let entries = listed.map_err(|error| or_changed(source, error.into()))?;
        let is_left = |name: &str| name.ends_with(CLEANED_SUFFIX) || name.ends_with(SWAP_SUFFIX);
        let left = entries.iter().filter(|entry| !entry.is_dir && is_left(&entry.name));
        Ok(left.map(|entry| home.path.join(&entry.name)).try_for_each(|path| home.remove(&path))?)
    }

    /// Reads which transactions were aborted that touch the segments.
    fn read_aborted(&mut self) -> Result<(), CleanError> {
        let upper = self.sources.last().map_or(self.end, |source| source.sizes.end);
        let kept = std::mem::take(&mut self.aborted);
        for (file, size, index) in &self.indexes {
            let collected =
                index.collect(Offset(0), upper, ReadFrom::Disk).map_err(|error| {
                    match has_left(file, *size) {
                        true => CleanError::Changed,
                        false => LogError::from(error).into(),
                    }
                })?;
            self.aborted.extend(collected.transactions);
            if collected.complete {
                return Ok(());
            }
        }
        self.aborted.extend(kept.into_iter().filter(|entry| entry.first_offset < upper));
        Ok(())
    }

    /// What has to stay of the producers that are known: what is the last of each now, and what was where the segments
    /// end. The snapshot there tells the second, as long as there is one.
    fn last_of_producers(&self, watch: &mut Watch<'_>) -> Result<LastRecords, CleanError> {
        let Some(last) = self.sources.last().filter(|_| !self.last_of_producers.is_empty()) else {
            return Ok(LastRecords::new());
        };
        let home = last.view.file().home();
        let snapshot = home.disk.read_all(&home.file(last.sizes.end, Kind::Snapshot));
        let states = match snapshot.ok().and_then(|bytes| ProducerStates::load(&bytes).ok()) {
            Some(states) => states,
            None => {
                let mut states = ProducerStates::default();
                for source in &self.sources {
                    source.visit_headers(watch, |header, control| {
                        states.update(header, control);
                    })?;
                }
                states
            }
        };
        let then = states.last_records();
        let both = |(id, now): (&ProducerId, &LastRecord)| (*id, [*now, *then.get(id).unwrap_or(now)]);
        Ok(self.last_of_producers.iter().map(both).collect())
    }

    /// Where the first transaction begins whose marker is not in these segments. It is decided, but its marker may not be on
    /// the disk: if a crash took it the transaction could end otherwise, after its records had replaced others.
    fn decided_end(&self, watch: &mut Watch<'_>) -> Result<Offset, CleanError> {
        let mut open = BTreeMap::new();
        for source in self.sources.iter().filter(|source| source.sizes.end > self.first_dirty) {
            source.visit_headers(watch, |header, control| {
                match control.map(|control| control.control_type) {
                    Some(ControlType::MirrorPidReset) => open.clear(),
                    Some(kind) if kind.ends_transaction() => drop(open.remove(&header.producer_id)),
                    None if header.is_transactional() && !header.is_control() => {
                        open.entry(header.producer_id).or_insert(header.base_offset);
                    }
                    _ => {}
                }
            })?;
        }
        Ok(open.into_values().min().unwrap_or(self.end).min(self.end).max(self.first_dirty))
    }

    /// Returns the offset after the last one whose key is in the map, or needs no place there; `limit` at most.
    fn note_keys(
        &self,
        map: &mut OffsetMap,
        limit: Offset,
        watch: &mut Watch<'_>,
    ) -> Result<Offset, CleanError> {
        let mut mapper = Mapper::new(map, &self.aborted, self.first_dirty);
        let mut end = self.first_dirty;
        let is_noted = |source: &&Source| source.sizes.end > self.first_dirty && source.sizes.base < limit;
        for source in self.sources.iter().filter(is_noted) {
            let mut full_at = None;
            let visited = source.visit(watch, |batch, _| {
                let header = batch.header();
                if header.next_offset() <= self.first_dirty {
                    return Ok(ControlFlow::Continue(0));
                }
                if header.base_offset >= limit {
                    return Ok(ControlFlow::Break(()));
                }
                if mapper.note(batch)? == Room::Full {
                    full_at = Some(header.base_offset);
                    return Ok(ControlFlow::Break(()));
                }
                end = header.next_offset();
                Ok(ControlFlow::Continue(0))
            });
            visited?;
            match full_at {
                Some(offset) if end == self.first_dirty => {
                    return Err(CleanError::MapTooSmall { offset, bytes: map.bytes() });
                }
                Some(_) => return Ok(end),
                None => end = source.sizes.end.min(limit),
            }
        }
        Ok(end)
    }
}

impl Round {
    /// The offset up to which the log is compacted when the round is over: where the next one begins.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// How much of the memory for keys was needed, from 0 to 1.
    pub fn map_fullness(&self) -> f64 {
        self.map_fullness
    }

    /// Writes the next segment that takes the place of others, and waits until it is on the disk; `None` when the
    /// round is over. Segments of which everything stays are left alone.
    ///
    /// # Errors
    /// See [`CleanError`]. The round is over then.
    pub fn next(&mut self, watch: &mut Watch<'_>) -> Result<Option<Cleaned>, CleanError> {
        while let Some(group) = self.groups.pop_front() {
            if let Some(cleaned) = self.clean(group, watch)? {
                return Ok(Some(cleaned));
            }
        }
        Ok(None)
    }

    fn clean(&mut self, group: Range<usize>, watch: &mut Watch<'_>) -> Result<Option<Cleaned>, CleanError> {
        let sources = &self.sources[group];
        let output = Output::begin(&self.of, sources, self.now);
        let written = output.map_err(CleanError::from).and_then(|mut output| {
            match write(&mut self.filter, sources, &mut output, &self.config, watch) {
                Ok(aborted) => output.finish(&aborted, &mut self.closed_snapshots),
                Err(error) => {
                    // What is left of it is written over by the next, or removed when the log is opened.
                    output.discard();
                    Err(error)
                }
            }
        });
        written.map_err(|error| sources.iter().fold(error, |error, source| or_changed(source, error)))
    }
}

/// Writes what stays of the segments; returns what their transaction index has to say.
fn write(
    filter: &mut Filter,
    sources: &[Source],
    output: &mut Output,
    config: &LogConfig,
    watch: &mut Watch<'_>,
) -> Result<Vec<AbortedTransaction>, CleanError> {
    let last_filled = sources.iter().rposition(|source| source.sizes.bytes > 0);
    for (number, source) in sources.iter().enumerate() {
        source.visit(watch, |batch, place| {
            let place = if last_filled == Some(number) { place } else { Place::Inside };
            let kept = filter.keep(batch, place)?;
            Ok(ControlFlow::Continue(match kept {
                Kept::AsIs => output.keep(batch, config)?,
                Kept::Rewritten(changed) | Kept::Emptied(changed) => output.change(&changed, config)?,
                Kept::Gone => output.drop_one()?,
            }))
        })?;
    }
    Ok(filter.take_aborted())
}

/// Why a batch was not dealt with.
enum Fault {
    Unreadable(tarn_record::ReadError),
    Other(CleanError),
}

impl From<tarn_record::ReadError> for Fault {
    fn from(cause: tarn_record::ReadError) -> Fault {
        Fault::Unreadable(cause)
    }
}

impl From<CleanError> for Fault {
    fn from(error: CleanError) -> Fault {
        Fault::Other(error)
    }
}

impl Source {
    /// How many bytes of batches it has.
    pub(super) fn bytes(&self) -> u32 {
        self.sizes.bytes
    }

    /// Where the next segment begins.
    pub(super) fn end(&self) -> Offset {
        self.sizes.end
    }

    /// How many aborted transactions its index has.
    pub(super) fn aborted(&self) -> u64 {
        self.aborted
    }

    /// Hands over the header of every batch, and what its control record says.
    fn visit_headers(
        &self,
        watch: &mut Watch<'_>,
        mut each: impl FnMut(&BatchHeader, Option<&ControlRecord>),
    ) -> Result<(), CleanError> {
        let (view, size) = (&self.view, u64::from(self.view.size));
        let failed = |cause: io::Error| view.failed("read", cause);
        let file = view.open()?;
        let mut scan = Scan::new(file.as_ref(), view.base(), 0, size, WIDE);
        let mut expected = view.base();
        loop {
            match scan.step().map_err(failed)? {
                Step::Batch(found) => {
                    self.check_place(&found, &mut expected)?;
                    each(&found.header, scan.read_control(&found).map_err(failed)?.as_ref())
                }
                Step::Bad(fault) => return Err(view.damaged(scan.position(), fault).into()),
                Step::End => return tell(watch, Spent { read: size, written: 0 }),
            }
        }
    }

    /// What is out of order, or overlaps the next segment, would be written into indexes that cannot hold it.
    fn check_place(&self, found: &Found, expected: &mut Offset) -> Result<(), LogError> {
        let placed = found.follows(*expected, self.end());
        *expected = found.header.next_offset();
        placed.map_err(|fault| self.view.damaged(found.position, fault))
    }

    /// Hands over every batch, and whether it is the last one; told back is how much was written for it.
    fn visit(
        &self,
        watch: &mut Watch<'_>,
        mut each: impl FnMut(&ValidBatch, Place) -> Result<ControlFlow<(), u64>, Fault>,
    ) -> Result<(), CleanError> {
        let (view, size) = (&self.view, u64::from(self.view.size));
        if size == 0 {
            return Ok(());
        }
        let read_failed = |cause: io::Error| view.failed("read", cause);
        let file = view.open()?;
        let mut scan = Scan::new(file.as_ref(), view.base(), 0, size, WIDE);
        let (mut spent, mut expected) = (Spent::default(), view.base());
        loop {
            let found = match scan.step().map_err(read_failed)? {
                Step::Batch(found) => found,
                Step::Bad(fault) => return Err(view.damaged(scan.position(), fault).into()),
                Step::End => break,
            };
            self.check_place(&found, &mut expected)?;
            let taken = scan.take(&found).map_err(read_failed)?;
            let batch = taken.map_err(|fault| view.damaged(found.position, fault))?;
            let place = if scan.position() >= size { Place::Last } else { Place::Inside };
            match each(&batch, place) {
                Ok(ControlFlow::Continue(written)) => spent.written += written,
                Ok(ControlFlow::Break(())) => break,
                Err(Fault::Unreadable(cause)) => return Err(view.unreadable(found.position, cause).into()),
                Err(Fault::Other(error)) => return Err(error),
            }
            spent.read += found.header.size() as u64;
            if spent.read >= WIDE as u64 {
                tell(watch, std::mem::take(&mut spent))?;
            }
        }
        tell(watch, spent)
    }
}

fn tell(watch: &mut Watch<'_>, spent: Spent) -> Result<(), CleanError> {
    if watch(spent).is_break() { Err(CleanError::GivenUp) } else { Ok(()) }
}

/// What a failure means for a segment that may have left the log, in whole or in part.
fn or_changed(source: &Source, error: CleanError) -> CleanError {
    match error {
        CleanError::Storage(_) if has_left(source.view.file(), source.sizes.bytes) => CleanError::Changed,
        other => other,
    }
}

fn has_left(file: &SegmentFile, bytes: u32) -> bool {
    file.is_retired() || !file.is_current(0, bytes)
}
