//! The two ways to open a log: believing its files, and checking them.

use tarn_record::{ControlRecord, Offset, Timestamp};

use super::replay::{load_producers, remember_batches_below};
use super::txn_indexes::Check;
use super::{Listing, RecoveryReport};
use crate::epochs::EpochHistory;
use crate::error::{LogError, sync_failed};
use crate::home::Kind;
use crate::limits::SEGMENT_OFFSETS_MAX;
use crate::log::{Log, aborted_entry};
use crate::segment::{Found, Scan, Segment, Step, WIDE};

/// A gap between two segments that is no loss: batches so far apart do not fit into one.
const GAP_THAT_ROLLS_MIN: i64 = SEGMENT_OFFSETS_MAX / 2;

/// A log that is being opened.
pub(super) struct Opener<'a> {
    pub(super) log: &'a mut Log,
    pub(super) report: &'a mut RecoveryReport,
    pub(super) listing: &'a Listing,
    /// The log was cut below a recovery point that the checkpoint file may still give.
    pub(super) was_cut: bool,
    /// Files were made, changed or removed that later recoveries will believe.
    pub(super) wrote: bool,
    /// The first segment that was checked.
    pub(super) checked_from: usize,
    /// What the file of the epochs says; `None` where there is none that can be read.
    pub(super) epochs_found: Option<EpochHistory>,
}

/// How a segment turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All its bytes are right batches.
    Whole,
    /// It was cut at the first batch that is not.
    Cut,
}

impl<'a> Opener<'a> {
    /// Nothing was looked at yet.
    pub(super) fn new(
        log: &'a mut Log,
        report: &'a mut RecoveryReport,
        listing: &'a Listing,
        was_cut: bool,
    ) -> Opener<'a> {
        Opener { log, report, listing, was_cut, wrote: false, checked_from: 0, epochs_found: None }
    }

    /// Takes the files for what they are.
    pub(super) fn trust_files(&mut self) -> Result<(), LogError> {
        let segments = self.log.segments.len();
        self.index_where_missing(segments)?;
        let active = self.log.active_mut();
        let last = active.resume()?;
        self.log.end = last.map_or(active.base(), |last| last.next_offset());
        self.open_txn_indexes(segments, Check::Newest)?;
        (self.log.flushed_to, self.log.recovery_point) = (self.log.end, self.log.end);
        self.log.dirt.dirty_from = self.log.active().base();
        // Whoever closed it may have found nothing to sync, and have inherited it itself.
        self.log.dirt.inherited = true;
        // Where no batch can be found, the epochs are not compared with any.
        let newest = last.or_else(|| self.log.newest_batch().run().ok().flatten());
        self.read_epochs(newest.as_ref())?;
        self.log.producers = load_producers(self.log, self.listing, self.log.end)?;
        Ok(())
    }

    /// Believes only what lies below the recovery point; nothing at all where the log turns out to end
    /// below it, since then it is another log's.
    pub(super) fn recover(&mut self, recovery_point: Offset) -> Result<(), LogError> {
        let (mut recovery_point, flushed) = (recovery_point, recovery_point);
        if self.check_from(recovery_point, flushed).is_err() || self.log.end < recovery_point {
            self.report.distrusted_recovery_point = recovery_point > Offset(0);
            recovery_point = Offset(0);
            self.check_from(recovery_point, flushed)?;
            self.report.ends_below_flushed = self.log.end < flushed;
        }
        let log = &mut *self.log;
        if log.end <= log.start {
            // No batch tells whether the file is of this history or of one that was dropped.
            log.epochs.clear();
        }
        log.recovery_point = recovery_point.min(log.end).max(log.segments[0].base());
        log.flushed_to = log.recovery_point;
        log.dirt.appended_bytes = self.report.checked_bytes;
        log.dirt.inherited = true;
        if self.wrote {
            // A later recovery, which may begin at a later segment, believes the indexes that this one built.
            log.home.sync()?;
        }
        // A log of which nothing was to be found out is as it was: there may be very many of these.
        let had_more_snapshots =
            self.listing.snapshots.keys().any(|&at| at > log.segments[self.checked_from].base());
        if self.wrote || had_more_snapshots || log.end > log.recovery_point {
            log.dirt.changes += 1;
        }
        Ok(())
    }

    /// Checks what lies above `recovery_point`; gaps between segments below `flushed` were always there.
    fn check_from(&mut self, recovery_point: Offset, flushed: Offset) -> Result<(), LogError> {
        let first = self.first_to_check(recovery_point);
        self.checked_from = first;
        self.index_where_missing(first)?;
        let base = self.log.segments[first].base();
        self.log.end = base;
        self.log.dirt.dirty_from = base;
        self.open_txn_indexes(first, Check::Every)?;
        // The batches that are checked correct it.
        self.read_epochs(None)?;
        self.log.epochs.truncate_to(recovery_point);
        self.log.producers = load_producers(self.log, self.listing, base)?;
        self.report.looked_through_bytes += remember_batches_below(self.log, base);
        for index in first..self.log.segments.len() {
            if index > first {
                self.log.end = self.log.end.max(self.log.segments[index].base());
                self.log.write_snapshot(self.log.end)?;
                self.wrote = true;
            }
            let verdict = self.check_segment(index, recovery_point)?;
            if verdict == Verdict::Cut || self.lost_its_end(index, flushed) {
                return self.drop_after(index);
            }
        }
        Ok(())
    }

    /// The segment that was the last one when the recovery point was taken: its indexes were not synced.
    /// After a cut its length may not be on the disk either, and it can be the one before, since the log
    /// goes on where its last batch ended.
    fn first_to_check(&self, recovery_point: Offset) -> usize {
        let last = self.log.segment_of(recovery_point.plus(-1));
        if self.was_cut { last.saturating_sub(1) } else { last }
    }

    /// True where a segment ends before the next begins, above what was flushed, and it did not end there when
    /// the next was begun: batches between them were written and did not reach the disk. Where another program
    /// may have written the segment the gap is none of loss, since Kafka's cleaner and its followers of compacted
    /// logs leave such gaps; and it has the batches of the next segment acknowledged.
    fn lost_its_end(&self, index: usize, flushed: Offset) -> bool {
        let (segment, next) = (&self.log.segments[index], self.log.segments.get(index + 1));
        let is_unbroken = self.listing.unbroken_from.is_some_and(|from| segment.base() >= from);
        is_unbroken && next.is_some_and(|next| is_loss(self.log.end, next.base(), flushed))
    }

    /// Builds a segment anew from its file, up to the first batch that is not right.
    fn check_segment(&mut self, index: usize, recovery_point: Offset) -> Result<Verdict, LogError> {
        let log = &mut *self.log;
        let next_base = log.segments.get(index + 1).map(Segment::base);
        let view = log.segments[index].view().clone();
        let failed = |cause| view.failed("read", cause);
        let file = view.open()?;
        let len = file.len().map_err(failed)?;
        log.segments[index].reset()?;
        self.report.indexed_segments += 1;
        self.report.read_bytes += len;
        let mut scan = Scan::new(file.as_ref(), view.base(), 0, len, WIDE);
        let verdict = loop {
            let found = match scan.step().map_err(failed)? {
                Step::Batch(found) => found,
                Step::Bad(_) => break Verdict::Cut,
                Step::End => break Verdict::Whole,
            };
            if next_base.is_some_and(|next| found.header.last_offset() >= next) {
                // A truncation dropped it, and the next segment replaced it: its length was lost in a crash.
                break Verdict::Whole;
            }
            let follows = found.header.base_offset >= log.end;
            let is_new = found.header.last_offset() >= recovery_point;
            if !follows || is_new && scan.check(&found).map_err(failed)?.is_err() {
                break Verdict::Cut;
            }
            self.report.checked_bytes += if is_new { found.header.size() as u64 } else { 0 };
            let control = scan.read_control(&found).map_err(failed)?;
            note_again(log, index, &found, control.as_ref())?;
        };
        let cut = len - u64::from(log.segments[index].size());
        self.wrote |= cut > 0 || next_base.is_some();
        if cut > 0 {
            self.report.cut_bytes += cut;
            self.report.note_cut(log.end);
            log.segments[index].cut_tail()?;
            // Else they could come back after another crash, and continue what is appended meanwhile.
            file.sync_data().map_err(|cause| view.failed("sync", sync_failed(cause)))?;
        }
        if next_base.is_some() {
            log.segments[index].finish_indexes()?;
            log.home.sync_indexes(view.base())?;
        }
        Ok(verdict)
    }

    /// Removes the segments after a damaged one, newest first, for good: one that came back after another
    /// crash would be taken for what follows the batches appended meanwhile.
    fn drop_after(&mut self, index: usize) -> Result<(), LogError> {
        let log = &mut *self.log;
        if log.segments.len() == index + 1 {
            return Ok(());
        }
        self.wrote = true;
        self.report.note_cut(log.end);
        while log.segments.len() > index + 1 {
            let Some(dropped) = log.segments.pop() else { break };
            self.report.dropped_segments += 1;
            self.report.cut_bytes += u64::from(dropped.size());
            for kind in Kind::ALL {
                log.home.remove(&log.home.file(dropped.base(), kind))?;
            }
        }
        log.home.sync()
    }

    /// Builds the indexes that are missing of the segments before number `upto`.
    fn index_where_missing(&mut self, upto: usize) -> Result<(), LogError> {
        let active = self.log.segments.len() - 1;
        for (index, segment) in self.log.segments.iter_mut().enumerate().take(upto) {
            if segment.size() == 0 || segment.is_indexed() {
                continue;
            }
            segment.reindex(&self.log.config)?;
            self.report.read_bytes += u64::from(segment.size());
            if index < active {
                segment.finish_indexes()?;
                self.wrote = true;
            }
            self.report.indexed_segments += 1;
        }
        Ok(())
    }
}

/// True where a log that ends at `end` and goes on at `next` has lost batches that were above `flushed`.
pub(super) fn is_loss(end: Offset, next: Offset, flushed: Offset) -> bool {
    (1..GAP_THAT_ROLLS_MIN).contains(&(next.0 - end.0)) && next > flushed
}

/// Makes the parts of an opened log agree, and removes the snapshots that nobody will read.
pub(super) fn finish(
    log: &mut Log,
    listing: &Listing,
    epochs_found: Option<&EpochHistory>,
    now: Timestamp,
) -> Result<(), LogError> {
    if log.end < log.start {
        log.truncate_fully_and_start_at(log.start, now)?.removal.run()?;
    }
    log.epochs.confine(log.start, log.end);
    let is_as_found = epochs_found.map_or(log.epochs.newest().is_none(), |found| *found == log.epochs);
    log.dirt.epoch_changes += u32::from(!is_as_found);
    log.expire_producers(now);
    let newest = listing.snapshots.range(..=log.end).next_back();
    for &offset in listing.snapshots.keys() {
        let has_segment = log.segments[log.segment_of(offset)].base() == offset;
        if !has_segment && newest.is_some_and(|(&newest, _)| offset < newest) {
            log.home.remove(&log.home.file(offset, Kind::Snapshot))?;
        }
    }
    Ok(())
}

/// Takes note of a batch that is in segment number `index`.
fn note_again(
    log: &mut Log,
    index: usize,
    found: &Found,
    control: Option<&ControlRecord>,
) -> Result<(), LogError> {
    log.segments[index].note(&found.header, &log.config);
    log.segments[index].spill();
    log.note_epoch(&found.header);
    let ended = log.producers.update(&found.header, control);
    if let Some(aborted) = ended.and_then(aborted_entry) {
        log.segments[index].note_aborted(&[aborted])?;
    }
    log.end = found.header.next_offset();
    Ok(())
}
