//! Appending: as leader, which gives batches their offsets, and as it is, which keeps them.
//!
//! Everything is checked before the first byte is written. Then one write takes as many consecutive
//! batches as the segment holds, and only after it do the log end, the indexes, the epochs and the
//! producer states move.

use std::io::IoSlice;

use smallvec::SmallVec;
use tarn_record::builder::{EndTransaction, end_transaction_marker};
use tarn_record::{
    BatchHeader, ClientBatch, ControlRecord, Epoch, Offset, Stamp, Stamped, Timestamp, TimestampType,
    ValidBatch,
};

use super::{Log, Together};
use crate::config::FlushPolicy;
use crate::epochs::EpochError;
use crate::error::{AppendError, LogError};
use crate::limits::SEGMENT_BYTES_MAX;
use crate::producers::{Check, CompletedTransaction, MarkerRule, Origin, Outcome};
use crate::segment::txn_index::AbortedTransaction;

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of the first record; the log end where all batches were there already.
    pub first: Offset,
    /// The offset of the last record.
    pub last: Offset,
    /// How many bytes were written.
    pub bytes: usize,
    /// The timestamp that the records got; [`Timestamp::NONE`] where they keep their own.
    pub log_append_time: Timestamp,
    /// The producer sent this batch before: its first offset and largest timestamp. Nothing was written.
    pub duplicate_of: Option<(Offset, Timestamp)>,
    /// How many batches the log had already; they were skipped.
    pub skipped: usize,
    /// A new segment was begun.
    pub rolled: bool,
}

/// When the transaction index is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aborts {
    NotedNow,
    NotedLater,
}

impl Appended {
    fn nothing(end: Offset) -> Appended {
        Appended {
            first: end,
            last: end.plus(-1),
            bytes: 0,
            log_append_time: Timestamp::NONE,
            duplicate_of: None,
            skipped: 0,
            rolled: false,
        }
    }
}

impl Log {
    /// Appends a client's batch at the log end, in `leader_epoch`. With `LogAppendTime` its records get
    /// the timestamp `now`. A batch that the producer sent before is recognised and not written again.
    ///
    /// # Errors
    /// Where the producer's sequence or epoch does not fit, the leader was deposed, or the disk refused.
    /// Nothing has changed then.
    pub fn append_as_leader(
        &mut self,
        client: &ClientBatch,
        leader_epoch: Epoch,
        timestamp_type: TimestampType,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let header = client.batch.header();
        if let Check::Duplicate { base_offset, last_offset, timestamp } =
            self.producers.check(header, Origin::Client)?
        {
            return Ok(Appended {
                first: base_offset,
                last: last_offset,
                duplicate_of: Some((base_offset, timestamp)),
                ..Appended::nothing(self.end)
            });
        }
        self.append_timed(&client.batch, client.max_timestamp, leader_epoch, timestamp_type, now)
    }

    /// Appends at the log end, in `leader_epoch`, the marker that ends a transaction as its coordinator
    /// decided. A transaction that has no records here has its marker too.
    ///
    /// # Errors
    /// Where the producer or the coordinator was replaced by a newer one, the leader was deposed, or the
    /// disk refused. Nothing has changed then.
    pub fn append_marker(
        &mut self,
        end: &EndTransaction,
        rule: MarkerRule,
        leader_epoch: Epoch,
        timestamp_type: TimestampType,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let marker = end_transaction_marker(end, Offset(0), leader_epoch, now);
        let marker = ValidBatch::parse(marker).expect("it was written whole, with its checksum");
        self.producers.check_marker(marker.header(), end.coordinator_epoch, rule)?;
        self.append_timed(&marker, now.0, leader_epoch, timestamp_type, now)
    }

    fn append_timed(
        &mut self,
        batch: &ValidBatch,
        max_timestamp: i64,
        leader_epoch: Epoch,
        timestamp_type: TimestampType,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let (stamp, log_append_time) = match timestamp_type {
            TimestampType::CreateTime => (Stamp::CreateTime { max_timestamp }, Timestamp::NONE),
            TimestampType::LogAppendTime => (Stamp::LogAppendTime(now), now),
        };
        let appended = self.append_stamped(batch, leader_epoch, stamp, now)?;
        Ok(Appended { log_append_time, ..appended })
    }

    /// Appends a batch of this broker's own making at the log end, in `leader_epoch`: markers,
    /// coordinators' records, metadata. Sequences are not checked.
    ///
    /// # Errors
    /// As for [`Log::append_as_leader`].
    pub fn append_as_leader_raw(
        &mut self,
        batch: &ValidBatch,
        leader_epoch: Epoch,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let stamp = Stamp::CreateTime { max_timestamp: batch.header().max_timestamp };
        self.append_stamped(batch, leader_epoch, stamp, now)
    }

    fn append_stamped(
        &mut self,
        batch: &ValidBatch,
        leader_epoch: Epoch,
        stamp: Stamp,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let newest = self.latest_epoch();
        if leader_epoch < newest {
            return Err(EpochError::Regressed { offset: self.end, epoch: leader_epoch, newest }.into());
        }
        self.check_room(batch.header())?;
        let stamped = batch.restamped(self.end, leader_epoch, stamp);
        let rolled = self.prepare(&stamped.header, now)?;
        self.write(&[IoSlice::new(&stamped.header_bytes), IoSlice::new(&stamped.body)])?;
        if self.config.flush != FlushPolicy::None {
            self.active().file().promise();
        }
        let Stamped { header, .. } = stamped;
        let aborted = self.note(&header, ControlRecord::parse(batch).as_ref());
        self.note_aborted(aborted.as_slice());
        self.active_mut().spill();
        let (first, last) = (header.base_offset, header.last_offset());
        Ok(Appended { first, last, bytes: header.size(), rolled, ..Appended::nothing(self.end) })
    }

    /// Appends batches that another leader wrote, as they are: a follower's or a mirror's. Offsets may
    /// have gaps, epochs do not decrease. Batches that the log has already are skipped. An empty log
    /// accepts the batch that spans its start.
    ///
    /// # Errors
    /// Where a batch overlaps the log and is not the one there, or is of an older epoch, or the disk
    /// refused. What was appended before an error stays: the log end says up to where.
    pub fn append_as_is(&mut self, batches: &[ValidBatch], now: Timestamp) -> Result<Appended, AppendError> {
        self.append_runs(batches, Aborts::NotedNow, now)
    }

    fn append_runs(
        &mut self,
        batches: &[ValidBatch],
        aborts: Aborts,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let skipped = self.count_known(batches)?;
        let mut rest = &batches[skipped..];
        self.check_order(rest)?;
        let mut appended = Appended { skipped, ..Appended::nothing(self.end) };
        if let Some(first) = rest.first() {
            appended.first = first.header().base_offset;
        }
        while let Some(first) = rest.first() {
            appended.rolled |= self.prepare(first.header(), now)?;
            let (run, after) = rest.split_at(self.run_length(rest));
            self.write_run(run, aborts)?;
            appended.bytes += run.iter().map(|batch| batch.bytes().len()).sum::<usize>();
            appended.last = self.end.plus(-1);
            rest = after;
        }
        self.active_mut().spill();
        Ok(appended)
    }

    /// Appends batches of this broker's own making that have their offsets and epoch, with as few writes as
    /// possible: the end of a mirror. They are promised to be on the disk after a flush of `together`. The
    /// transaction index of what they abort is written with the next append, or flush of everything: its
    /// file is mostly new, and to make so many at once takes longer than all else of a stop.
    ///
    /// # Errors
    /// As for [`Log::append_as_is`].
    pub fn append_own(
        &mut self,
        batches: &[ValidBatch],
        together: Together,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let first = self.segments.len().saturating_sub(1);
        let appended = self.append_runs(batches, Aborts::NotedLater, now);
        if together == Together::Few {
            self.segments.iter().skip(first).for_each(|segment| segment.file().promise());
        }
        appended
    }

    /// True where no segment has a byte.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.iter().all(|segment| segment.size() == 0)
    }

    /// Checks what is to be appended as it is, all before anything is written.
    fn check_order(&self, batches: &[ValidBatch]) -> Result<(), AppendError> {
        let mut newest = self.latest_epoch();
        let mut end = None;
        for batch in batches {
            let header = batch.header();
            let (base, last, epoch) = (header.base_offset, header.last_offset(), header.leader_epoch);
            if end.is_some_and(|end| base < end) {
                return Err(AppendError::Overlap { base, last, end: end.unwrap_or(base) });
            }
            if epoch > Epoch::NONE && epoch < newest {
                return Err(AppendError::EpochRegressed { base, epoch, newest });
            }
            check_size(header)?;
            newest = newest.max(epoch);
            end = Some(header.next_offset());
        }
        Ok(())
    }

    /// How many of the batches, the first of which fits, the active segment takes.
    fn run_length(&self, batches: &[ValidBatch]) -> usize {
        let active = self.active();
        let bytes_max = self.config.segment_bytes.min(SEGMENT_BYTES_MAX) as usize;
        let mut bytes = active.size() as usize;
        let takes = |batch: &ValidBatch| {
            bytes += batch.bytes().len();
            bytes <= bytes_max && active.can_hold(batch.header().last_offset())
        };
        batches
            .iter()
            .position({
                let mut takes = takes;
                move |batch| !takes(batch)
            })
            .map_or(batches.len(), |refused| refused.max(1))
    }

    /// Writes batches with one system call and takes note of them.
    fn write_run(&mut self, run: &[ValidBatch], aborts: Aborts) -> Result<(), LogError> {
        let parts: SmallVec<[IoSlice<'_>; 32]> =
            run.iter().map(|batch| IoSlice::new(batch.bytes())).collect();
        self.write(&parts)?;
        let mut aborted = Vec::new();
        for batch in run {
            let header = batch.header();
            let control = if header.is_control() { ControlRecord::parse(batch) } else { None };
            aborted.extend(self.note(header, control.as_ref()));
        }
        match aborts {
            Aborts::NotedNow => self.note_aborted(&aborted),
            Aborts::NotedLater => self.unnoted_aborts.append(&mut aborted),
        }
        Ok(())
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> Result<(), LogError> {
        let written = self.active().write(parts);
        if written.is_err() {
            self.dirt.torn = true;
            // Nobody who reads the file is to find a part of it. What cannot be cut now is before the log goes on.
            let _ = self.mend();
        }
        written
    }

    /// Takes note of a batch that is in the active segment. What it says of an aborted transaction is still
    /// to be noted.
    fn note(&mut self, header: &BatchHeader, control: Option<&ControlRecord>) -> Option<AbortedTransaction> {
        debug_assert!(header.next_offset() > self.end);
        let last = self.segments.len() - 1;
        self.segments[last].note(header, &self.config);
        self.note_epoch(header);
        self.dirt.epoch_changes += u32::from(std::mem::take(&mut self.dirt.has_begun_epoch));
        if header.base_offset < self.start {
            self.epochs.advance_log_start(self.start);
        }
        let ended = self.producers.update(header, control);
        self.end = header.next_offset();
        self.dirt.roll_at = None;
        self.dirt.appended_bytes += header.size() as u64;
        ended.and_then(aborted_entry)
    }

    /// Takes note of the epoch of a batch that is in the log. Batches from old brokers have none.
    pub(crate) fn note_epoch(&mut self, header: &BatchHeader) {
        let epoch = header.leader_epoch;
        if epoch > Epoch::NONE && self.epochs.at(header.base_offset) != Some(epoch) {
            self.epochs.found(epoch, header.base_offset);
            self.dirt.epoch_changes += 1;
        }
    }

    /// Adds to the transaction index; what the disk has no room for is kept until it has.
    fn note_aborted(&mut self, aborted: &[AbortedTransaction]) {
        if aborted.is_empty() {
            return;
        }
        if !self.unnoted_aborts.is_empty() || self.active_mut().note_aborted(aborted).is_err() {
            self.unnoted_aborts.extend_from_slice(aborted);
        }
    }

    fn check_room(&self, header: &BatchHeader) -> Result<(), AppendError> {
        let records = i64::from(header.last_offset_delta) + 1;
        if self.end.0.checked_add(records).is_none_or(|next| next == i64::MAX) {
            return Err(AppendError::OutOfOffsets { end: self.end, records });
        }
        check_size(header)
    }
}

fn check_size(header: &BatchHeader) -> Result<(), AppendError> {
    let (bytes, max) = (header.size(), SEGMENT_BYTES_MAX as usize);
    if bytes > max { Err(AppendError::TooLarge { bytes, max }) } else { Ok(()) }
}

/// What the transaction index says of a transaction that ended; nothing if it was committed.
pub(crate) fn aborted_entry(ended: CompletedTransaction) -> Option<AbortedTransaction> {
    (ended.outcome == Outcome::Aborted).then_some(AbortedTransaction {
        producer_id: ended.producer_id,
        first_offset: ended.first_offset,
        last_offset: ended.last_offset,
        last_stable_offset: ended.last_stable_offset,
    })
}
