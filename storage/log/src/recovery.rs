//! Opening a log: what the files say, and after an unclean shutdown what can be believed of it.
//!
//! After a clean shutdown the files are trusted; only the batches above the last index entry are visited.
//! After an unclean one everything above the recovery point is read and checked: at the first batch that
//! is not whole and right the log ends. Indexes and producer states are built anew from there. What was cut,
//! and from which offset on, is in the report: whoever opens a log says it. An owner that rather does without
//! the log than without what was in it looks for damage first (`damage`).

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use smallvec::SmallVec;
use tarn_record::{Offset, Timestamp, TopicId};

use crate::checkpoints::PartitionMetadata;
use crate::config::LogConfig;
use crate::disk::Open;
use crate::epochs::EpochHistory;
use crate::error::LogError;
use crate::home::{CLEANED_SUFFIX, DELETED_SUFFIX, Home, Kind, SWAP_SUFFIX, parse_unbroken};
use crate::log::{Dirt, Log, TruncationMark};
use crate::producers::ProducerStates;
use crate::segment::{FileSizes, Segment};

mod damage;
mod epochs_file;
mod holes;
mod opener;
mod replay;
mod swaps;
mod txn_indexes;

pub(crate) use damage::first_damage;
pub use damage::{Damage, Fault};
pub use epochs_file::EpochsFault;
pub use holes::Hole;
use holes::holes;
use opener::{Opener, finish};
pub(crate) use replay::{ProducersBelow, drop_snapshots_above};
pub use txn_indexes::RebuiltTxnIndex;

/// What is known of a log before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The log was closed in order: its files are trusted.
    pub clean: bool,
    /// From the checkpoint: all below was flushed. 0 where unknown.
    pub recovery_point: Offset,
    /// From the checkpoint: where the log starts; 0 where it starts with its first segment.
    pub log_start: Offset,
}

/// What opening a log took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes that were read and checked.
    pub checked_bytes: u64,
    /// Bytes of the segments that were gone through from their beginnings, whatever of them was to be checked.
    pub read_bytes: u64,
    /// Bytes below them that were looked through for what producers may send again.
    pub looked_through_bytes: u64,
    /// Bytes at the end that were not whole batches and were cut off.
    pub cut_bytes: u64,
    /// Where what was cut or dropped began: the offset after the last batch before it.
    pub cut_from: Option<Offset>,
    /// Segments that were dropped because one before them was damaged.
    pub dropped_segments: usize,
    /// There was no segment left of a log of which something was flushed: it begins where that ended.
    pub lost_all_segments: bool,
    /// The recovery point lay above the end of the log or in damage, so the whole log was checked.
    pub distrusted_recovery_point: bool,
    /// All that is left of the log ends below what was flushed of it.
    pub ends_below_flushed: bool,
    /// Segments that compaction had written, and that a crash kept from their places.
    pub completed_swaps: usize,
    /// Segments whose indexes were built anew.
    pub indexed_segments: usize,
    /// Why the leader epochs were not taken from their file but read from the batches.
    pub reread_epochs: Option<EpochsFault>,
    /// Transaction indexes that could not be right.
    pub rebuilt_txn_indexes: Vec<RebuiltTxnIndex>,
    /// What is missing between segments, as far as it shows.
    pub holes: Vec<Hole>,
}

impl RecoveryReport {
    fn note_cut(&mut self, end: Offset) {
        self.cut_from = Some(self.cut_from.map_or(end, |before| before.min(end)));
    }
}

/// The files of a partition's directory.
#[derive(Debug, Default)]
struct Listing {
    segments: BTreeMap<Offset, FileSizes>,
    txn_indexes: Vec<Offset>,
    /// Where segments began of which there are indexes and no `.log`.
    without_log: Vec<Offset>,
    /// Producer snapshots with their sizes, by offset.
    snapshots: BTreeMap<Offset, u64>,
    /// Only Tarn has written the segments from here on, and each of them begins where the one before it ends.
    unbroken_from: Option<Offset>,
    /// What an interrupted operation left.
    leftovers: Vec<PathBuf>,
    /// Compaction was writing segments, or putting them in the place of others.
    has_swap: bool,
}

/// Makes the directory of a new log. Nothing is synced: before the first flush a crash may leave no log, or
/// one without a topic id.
pub(crate) fn create(
    home: Arc<Home>,
    topic_id: TopicId,
    config: Arc<LogConfig>,
    now: Timestamp,
) -> Result<Log, LogError> {
    home.disk.create_dir_all(&home.path).map_err(|cause| LogError::io("create", &home.path, cause))?;
    let listing = Listing::read(&home)?;
    if !listing.segments.is_empty() {
        return Err(LogError::Exists { path: home.path.clone() });
    }
    let mut log = empty(home, topic_id, config);
    log.dirt.changes += 1;
    log.dirt.created = true;
    write_topic_id(&log.home, topic_id)?;
    log.segments.push(Segment::create(&log.home, Offset(0), now)?);
    Ok(log)
}

/// Writes `partition.metadata`, which the first flush syncs.
pub(crate) fn write_topic_id(home: &Home, topic_id: TopicId) -> Result<(), LogError> {
    let path = home.path.join(PartitionMetadata::FILE_NAME);
    let content = PartitionMetadata { topic_id }.write();
    let file = home.disk.open(&path, Open::Create);
    let written = file.and_then(|file| {
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(&content)], 0)
    });
    written.map_err(|cause| LogError::io("write", &path, cause))
}

/// Opens the log in a directory.
pub(crate) fn open(
    home: Arc<Home>,
    config: Arc<LogConfig>,
    opening: Opening,
    now: Timestamp,
) -> Result<(Log, RecoveryReport), LogError> {
    let (listing, mark) = (Listing::read(&home)?, TruncationMark::read(&home)?);
    open_listed(listing, mark, home, config, opening, now)
}

/// The same where no more than `bytes` of its segments are to be read, as far as that can be told before; else `None`,
/// and nothing is changed. What was read in fact is in the report.
pub(crate) fn open_within(
    bytes: u64,
    home: Arc<Home>,
    config: Arc<LogConfig>,
    opening: Opening,
    now: Timestamp,
) -> Result<Option<(Log, RecoveryReport)>, LogError> {
    let (listing, mark) = (Listing::read(&home)?, TruncationMark::read(&home)?);
    if !opening.clean && listing.bytes_to_read(opening.recovery_point, mark) > bytes {
        return Ok(None);
    }
    open_listed(listing, mark, home, config, opening, now).map(Some)
}

fn open_listed(
    mut listing: Listing,
    mark: Option<TruncationMark>,
    home: Arc<Home>,
    config: Arc<LogConfig>,
    opening: Opening,
    now: Timestamp,
) -> Result<(Log, RecoveryReport), LogError> {
    let mut completed_swaps = 0;
    if listing.has_swap {
        completed_swaps = swaps::complete(&home)?;
        listing = Listing::read(&home)?;
    }
    listing.leftovers.iter().try_for_each(|path| home.remove(path))?;
    let topic_id = read_topic_id(&home)?;
    let mut log = empty(home, topic_id, config);
    log.unbroken_from = listing.unbroken_from;
    let believed =
        mark.unwrap_or(TruncationMark { recovery_point: opening.recovery_point, start: opening.log_start });
    log.start = opening.log_start.min(believed.start);
    let is_empty = listing.segments.is_empty() && mark.is_none();
    let lost_all_segments = is_empty && opening.recovery_point > opening.log_start;
    let mut report = RecoveryReport { lost_all_segments, completed_swaps, ..RecoveryReport::default() };
    let on_disk = opening.recovery_point.min(believed.recovery_point);
    place_segments(&mut log, &listing, believed.recovery_point, now)?;
    let mut opener = Opener::new(&mut log, &mut report, &listing, mark.is_some());
    if opening.clean && opener.trust_files().is_ok() {
        let epochs_found = opener.epochs_found.take();
        report.holes = holes(&log, &listing);
        // The end of a log that was cut into a gap is not told by a segment without a batch.
        let tells_its_end = log.active().size() > 0;
        report.ends_below_flushed = mark.is_none() && tells_its_end && log.end < opening.recovery_point;
        finish(&mut log, &listing, epochs_found.as_ref(), now)?;
        if log.recovery_point < opening.recovery_point {
            // The log was cut into a gap between batches, whose end nothing tells: what is appended from
            // there on was never synced.
            let honest =
                TruncationMark { recovery_point: log.recovery_point, start: TruncationMark::ANY_START };
            honest.write(&log.home)?;
            log.dirt.truncation = Some(honest.until(opening.recovery_point, opening.log_start));
        } else if mark.is_some() {
            // Whoever closed the log wrote the checkpoint files after it.
            TruncationMark::remove(&log.home)?;
        }
        return Ok((log, report));
    }
    opener.recover(on_disk)?;
    let epochs_found = opener.epochs_found.take();
    report.holes = holes(&log, &listing);
    let said = mark.unwrap_or(TruncationMark { recovery_point: on_disk, start: TruncationMark::ANY_START });
    let until = said.until(opening.recovery_point, opening.log_start);
    // Where the checkpoint file is right about the start, the mark must not hold down what it says later.
    let start = if log.start >= until.start { TruncationMark::ANY_START } else { said.start };
    let corrected = TruncationMark { recovery_point: said.recovery_point.min(log.recovery_point), start };
    let is_lower = log.recovery_point < on_disk;
    if is_lower || mark.is_some_and(|mark| mark.start != start) {
        corrected.write(&log.home)?;
    }
    if is_lower || mark.is_some() {
        log.dirt.truncation = Some(until);
    }
    finish(&mut log, &listing, epochs_found.as_ref(), now)?;
    Ok((log, report))
}

fn empty(home: Arc<Home>, topic_id: TopicId, config: Arc<LogConfig>) -> Log {
    Log {
        home,
        topic_id,
        config,
        segments: SmallVec::new(),
        start: Offset(0),
        end: Offset(0),
        generation: 0,
        epochs: EpochHistory::default(),
        producers: ProducerStates::default(),
        unnoted_aborts: Vec::new(),
        unbroken_from: None,
        flushed_to: Offset(0),
        recovery_point: Offset(0),
        dirt: Dirt::default(),
        retired: Vec::new(),
        swapped_out: Vec::new(),
        swaps: 0,
    }
}

impl Listing {
    fn read(home: &Home) -> Result<Listing, LogError> {
        let entries = home.disk.list(&home.path).map_err(|cause| LogError::io("list", &home.path, cause))?;
        let mut listing = Listing::default();
        let mut index_sizes: BTreeMap<Offset, FileSizes> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            let Some((kind, base)) = Kind::parse(&entry.name) else {
                listing.note_other(home, &entry.name);
                continue;
            };
            match kind {
                Kind::Log => {
                    let log = u32::try_from(entry.len).unwrap_or(u32::MAX);
                    listing.segments.insert(base, FileSizes { log, ..FileSizes::default() });
                }
                Kind::OffsetIndex => index_sizes.entry(base).or_default().index = entry.len,
                Kind::TimeIndex => index_sizes.entry(base).or_default().time_index = entry.len,
                Kind::TxnIndex => listing.txn_indexes.push(base),
                Kind::Snapshot => {
                    listing.snapshots.insert(base, entry.len);
                }
            }
        }
        for (base, sizes) in index_sizes {
            match listing.segments.get_mut(&base) {
                Some(found) => *found = FileSizes { log: found.log, ..sizes },
                // Indexes of a segment that is gone.
                None => {
                    let kinds = [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex];
                    listing.leftovers.extend(kinds.map(|kind| home.file(base, kind)));
                    listing.without_log.push(base);
                }
            }
        }
        Ok(listing)
    }

    /// The bytes of the segments that a recovery goes through: those from `Opener::first_to_check` on.
    fn bytes_to_read(&self, recovery_point: Offset, mark: Option<TruncationMark>) -> u64 {
        let believed = mark.map_or(recovery_point, |mark| mark.recovery_point.min(recovery_point));
        let mut below = self.segments.range(..believed).rev().map(|(&base, _)| base);
        let last = if mark.is_some() { below.nth(1) } else { below.next() };
        self.segments.range(last.unwrap_or(Offset(0))..).map(|(_, sizes)| u64::from(sizes.log)).sum()
    }

    fn note_other(&mut self, home: &Home, name: &str) {
        if let Some(from) = parse_unbroken(name) {
            // Of several the lowest says all; they are listed in order.
            match self.unbroken_from {
                None => self.unbroken_from = Some(from),
                Some(_) => self.leftovers.push(home.path.join(name)),
            }
            return;
        }
        self.has_swap |= name.ends_with(CLEANED_SUFFIX) || name.ends_with(SWAP_SUFFIX);
        let interrupted = [DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"];
        if interrupted.iter().any(|suffix| name.ends_with(suffix)) {
            self.leftovers.push(home.path.join(name));
        }
    }
}

/// Puts the segments into the log but for those that lie wholly below its start, which are removed. A
/// directory without segments gets an empty one: a crash came while all were being replaced, so the log
/// ends where it was flushed, or higher.
fn place_segments(
    log: &mut Log,
    listing: &Listing,
    recovery_point: Offset,
    now: Timestamp,
) -> Result<(), LogError> {
    let first = listing.segments.range(..=log.start).next_back().map(|(&base, _)| base);
    let first = first.unwrap_or(Offset(0));
    for &base in listing.segments.range(..first).map(|(base, _)| base) {
        Kind::ALL.iter().try_for_each(|&kind| log.home.remove(&log.home.file(base, kind)))?;
    }
    for (&base, &sizes) in listing.segments.range(first..) {
        log.segments.push(Segment::found(&log.home, base, sizes, now));
    }
    if log.segments.is_empty() {
        log.dirt.changes += 1;
        log.segments.push(Segment::create(&log.home, log.start.max(recovery_point), now)?);
    }
    log.start = log.start.max(log.segments[0].base());
    Ok(())
}

/// The topic's id; zero where the file is not there, as before Kafka 2.8, or a crash left it empty.
pub(crate) fn read_topic_id(home: &Home) -> Result<TopicId, LogError> {
    let path = home.path.join(PartitionMetadata::FILE_NAME);
    if !home.disk.exists(&path) {
        return Ok(TopicId::ZERO);
    }
    let bytes = home.disk.read_all(&path).map_err(|cause| LogError::io("read", &path, cause))?;
    if bytes.is_empty() {
        return Ok(TopicId::ZERO);
    }
    let metadata = PartitionMetadata::read(&bytes).map_err(|cause| LogError::Checkpoint { path, cause })?;
    Ok(metadata.topic_id)
}
