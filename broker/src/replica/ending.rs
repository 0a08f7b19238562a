//! Ending a mirrored log, so that clients may write after it (mirroring.md §8): an abort marker for every
//! transaction that its source left open, then MIRROR_PID_RESET (KIP-1279), which voids what is known of the
//! source's producers.
//!
//! Sans-IO but for the partition's log. What stands behind the position where the mirror left the log tells
//! how far an earlier try came, so that a crash at any step is gone on from.
//!
//! Invariants:
//! * between the position and the reset there are abort markers of this cluster and nothing else;
//! * a transaction is aborted once, and a log reset once for one position;
//! * a log of which nothing was mirrored and that holds records is its clients' own: it is not reset;
//! * no transaction is open in a log that was ended, whosever it was. Markers that a coordinator sends are dropped while
//!   a topic is bound, and a mirrored log whose state was lost looks like one of clients: nobody else would ever end it,
//!   and who reads what is committed would wait for ever;
//! * markers are in the order in which their transactions began, so that a report of the first of them is the
//!   same whoever appended them.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tarn_image::DesiredState;
use tarn_log::producers::OpenTransaction;
use tarn_log::{AbortedSearch, AppendError, LogBatches, LogError, LogIdentity, Together};
use tarn_mirror::limits::ABORTED_IN_REPORT;
use tarn_mirror::local_cluster::{AbortedTransaction, EndOrder, Ending, LastPosition, LocalError, LogEnded};
use tarn_record::builder::{EndTransaction, Outcome, control_batch, end_transaction_marker};
use tarn_record::{
    BatchError, BatchHeader, ControlRecord, ControlType, Epoch, Offset, ProducerEpoch, ProducerId, Timestamp,
    ValidBatch,
};
use tarn_wire::messages::MirrorPidResetRecord;
use tarn_wire::{Cursor, EncodeError, Message, encode_versioned};
use thiserror::Error;

use super::Replica;
use super::ordered::NotOrdered;
use crate::limits::MARKERS_PER_APPEND;

/// The version of the reset record's value.
const RESET_VERSION: i16 = 0;

/// The coordinator's epoch in the marker of a producer of which no marker was seen.
const FIRST_COORDINATOR_EPOCH: i32 = 0;

/// Why a log is not ended.
#[derive(Debug, Error)]
pub enum NotEnded {
    /// It may not be changed by this order.
    #[error(transparent)]
    NotOrdered(#[from] NotOrdered),
    /// The leader epoch was not raised yet, and the source may have appended in it.
    #[error("leader epoch {leader} is not above {position} at the last mirror position, or below {newest}")]
    EpochBehind {
        /// The epoch in which this broker leads.
        leader: Epoch,
        /// The epoch of the position.
        position: Epoch,
        /// The newest epoch in the log.
        newest: Epoch,
    },
    /// Records that were mirrored are gone.
    #[error("the log ends at offset {end}, below {position} where its mirror left it")]
    BelowPosition {
        /// The log end.
        end: Offset,
        /// Where the mirror left it.
        position: Offset,
    },
    /// Something else was appended.
    #[error(
        "what stands at offset {offset} in epoch {epoch}, behind the last mirror position, is of no end of it"
    )]
    Stranger {
        /// The first offset of the batch.
        offset: Offset,
        /// Its leader epoch.
        epoch: Epoch,
    },
    /// Another order, or a truncation, was faster.
    #[error("the log has changed meanwhile")]
    Changed,
    /// What is to be appended is no batch.
    #[error("the end cannot be written: {0}")]
    Record(String),
    /// The log refuses it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The disk does.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl NotEnded {
    /// The same for mirroring.
    pub fn of(self, order: &EndOrder) -> LocalError {
        let partition = order.partition;
        match self {
            NotEnded::Append(AppendError::Storage(error)) | NotEnded::Storage(error) => {
                LocalError::Storage { partition, reason: error.to_string() }
            }
            other => LocalError::NotEnded { partition, reason: other.to_string() },
        }
    }
}

impl From<EncodeError> for NotEnded {
    fn from(error: EncodeError) -> NotEnded {
        NotEnded::Record(error.to_string())
    }
}

impl From<BatchError> for NotEnded {
    fn from(error: BatchError) -> NotEnded {
        NotEnded::Record(error.to_string())
    }
}

/// The question what stands behind the position, ready to be answered on any thread.
#[derive(Debug)]
#[must_use = "nothing is known before it is run"]
pub struct LookBehind {
    batches: LogBatches,
    position: LastPosition,
    log_end: Offset,
    of: LogIdentity,
    /// Where the transactions began that were aborted there; `None` where nothing stands.
    aborted: Option<AbortedSearch>,
}

/// What stands behind the position.
#[derive(Debug)]
pub struct Behind {
    log_end: Offset,
    of: LogIdentity,
    markers: u32,
    /// The first markers: their offsets, whose transactions they ended.
    first: Vec<(Offset, ProducerId, ProducerEpoch)>,
    /// What they have aborted. The markers do not say where it began; the transaction index does.
    aborted: Vec<AbortedTransaction>,
    reset: Option<Offset>,
    /// What the reset says.
    ending: Option<Ending>,
    stranger: Option<(Offset, Epoch)>,
}

impl LookBehind {
    /// True where nothing stands there, so that no file is read.
    pub fn is_trivial(&self) -> bool {
        self.log_end == self.position.offset
    }

    /// Reads what stands there, up to the reset.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn run(self) -> Result<Behind, LogError> {
        let LookBehind { batches, position, log_end, of, aborted } = self;
        let (first, reset, ending, stranger) = (Vec::new(), None, None, None);
        let mut behind =
            Behind { log_end, of, markers: 0, first, aborted: Vec::new(), reset, ending, stranger };
        batches.visit(|header, control| behind.visit(header, control, position))?;
        if let Some(search) = aborted.filter(|_| behind.markers > 0) {
            behind.aborted = behind.aborted_in(&search.run()?);
        }
        Ok(behind)
    }
}

impl Behind {
    /// How the log was ended there, if it was.
    pub fn ending(self) -> Option<Ending> {
        self.ending
    }

    /// The transactions that the first markers have ended, as the index has them.
    fn aborted_in(&self, indexed: &[tarn_log::AbortedTransaction]) -> Vec<AbortedTransaction> {
        let began = |marker: Offset| {
            let entry = indexed.iter().find(|entry| entry.last_offset == marker);
            entry.map(|entry| entry.first_offset)
        };
        let known = self.first.iter().filter_map(|&(marker, producer_id, producer_epoch)| {
            Some(AbortedTransaction { producer_id, producer_epoch, first_offset: began(marker)? })
        });
        known.collect()
    }

    fn visit(
        &mut self,
        header: &BatchHeader,
        control: Option<&ControlRecord>,
        position: LastPosition,
    ) -> ControlFlow<()> {
        let is_of_the_end = header.base_offset >= position.offset && header.leader_epoch > position.epoch;
        let of_type = |control: &ControlRecord| (control.control_type, control.value.clone());
        match control.map(of_type) {
            Some((ControlType::MirrorPidReset, value)) if is_of_the_end => {
                self.reset = Some(header.base_offset);
                self.ending = ending_of(value);
                ControlFlow::Break(())
            }
            Some((ControlType::Abort, _)) if is_of_the_end => {
                if self.first.len() < ABORTED_IN_REPORT {
                    self.first.push((header.base_offset, header.producer_id, header.producer_epoch));
                }
                self.markers = self.markers.saturating_add(1);
                ControlFlow::Continue(())
            }
            _ => {
                self.stranger = Some((header.base_offset, header.leader_epoch));
                ControlFlow::Break(())
            }
        }
    }
}

/// What a reset record says; nothing where it cannot be read.
fn ending_of(value: Bytes) -> Option<Ending> {
    let mut value = Cursor::new(value);
    let version = value.get_i16().ok()?;
    let record = MirrorPidResetRecord::decode(&mut value, version).ok()?;
    let source_cluster_id = record.source_cluster_id.map(|id| Arc::from(&*id));
    Some(Ending { source_cluster_id })
}

/// The transactions that were aborted, as a report has them.
#[derive(Debug, Default)]
struct Aborted {
    count: u32,
    first: Vec<AbortedTransaction>,
}

impl Aborted {
    fn add(&mut self, transactions: &[OpenTransaction]) {
        self.count = self.count.saturating_add(transactions.len() as u32);
        let room = ABORTED_IN_REPORT.saturating_sub(self.first.len());
        self.first.extend(transactions.iter().take(room).map(|open| AbortedTransaction {
            producer_id: open.producer_id,
            producer_epoch: open.producer_epoch,
            first_offset: open.first_offset,
        }));
    }
}

impl Replica {
    /// What has to be known before the log is ended.
    ///
    /// # Errors
    /// Where it may not be ended by this order, or not yet.
    pub fn look_behind(&self, order: &EndOrder) -> Result<LookBehind, NotEnded> {
        self.check_order(order)?;
        Ok(self.look_behind_position(order.position))
    }

    /// The question what stands behind a position.
    pub fn look_behind_position(&self, position: LastPosition) -> LookBehind {
        let log_end = self.log.end();
        let batches = self.log.batches(position.offset, log_end);
        let stands = position.offset < log_end;
        let aborted = stands.then(|| self.log.search_aborted(position.offset, log_end));
        LookBehind { batches, position, log_end, of: self.log.identity(), aborted }
    }

    /// Appends what is missing behind the position; durable after a flush of `together`.
    ///
    /// # Errors
    /// Where it may not be ended by this order, or the disk refuses. What was appended is found by the next try.
    pub fn end_log(
        &mut self,
        order: &EndOrder,
        behind: &Behind,
        together: Together,
        now: Timestamp,
    ) -> Result<LogEnded, NotEnded> {
        self.check_order(order)?;
        if behind.log_end != self.log.end() || behind.of != self.log.identity() {
            return Err(NotEnded::Changed);
        }
        let (mut aborted, reset) = match behind.stranger {
            Some(_) if order.position == LastPosition::NOTHING => (Aborted::default(), Some(Offset::NONE)),
            Some((offset, epoch)) => return Err(NotEnded::Stranger { offset, epoch }),
            None => (Aborted { count: behind.markers, first: behind.aborted.clone() }, behind.reset),
        };
        let missing = if reset.is_none() { Some(order) } else { None };
        let appended = self.append_end(missing, &mut aborted, together, now)?;
        let reset_offset = reset.or(appended).unwrap_or(Offset::NONE);
        let Aborted { count: aborted_count, first: aborted } = aborted;
        Ok(LogEnded { reset_offset, aborted_count, aborted, log_end: self.log.end() })
    }

    /// Whether an end that was appended is on the disk and committed.
    pub fn has_durable_end(&self, ended: &LogEnded) -> bool {
        self.high_watermark().min(self.log.flushed_to()) >= ended.log_end
    }

    fn check_order(&self, order: &EndOrder) -> Result<(), NotEnded> {
        self.check_ordered(order.version, |desired| desired == DesiredState::Stopping)?;
        let position = order.position;
        let (leader, newest, end) = (self.leadership.epoch, self.log.latest_epoch(), self.log.end());
        if leader <= position.epoch || leader < newest {
            return Err(NotEnded::EpochBehind { leader, position: position.epoch, newest });
        }
        if end < position.offset {
            return Err(NotEnded::BelowPosition { end, position: position.offset });
        }
        Ok(())
    }

    /// Appends the missing markers, and the reset where it is; its offset.
    fn append_end(
        &mut self,
        missing_reset: Option<&EndOrder>,
        aborted: &mut Aborted,
        together: Together,
        now: Timestamp,
    ) -> Result<Option<Offset>, NotEnded> {
        let epoch = self.leadership.epoch;
        loop {
            let open = self.log.producers().open_transactions().take(MARKERS_PER_APPEND);
            let open: Vec<OpenTransaction> = open.collect();
            let offsets = (self.log.end().0..).map(Offset);
            let markers = open.iter().zip(offsets).map(|(open, offset)| marker(open, offset, epoch, now));
            let mut batches: Vec<ValidBatch> = markers.collect::<Result<_, _>>()?;
            let next_offset = self.log.end().plus(open.len() as i64);
            let is_last = open.len() < MARKERS_PER_APPEND;
            let reset = missing_reset.filter(|_| is_last);
            if let Some(order) = reset {
                batches.push(reset_record(order, next_offset, epoch, now)?);
            }
            if !batches.is_empty() {
                let appended = self.log.append_own(&batches, together, now);
                self.advance_high_watermark();
                appended?;
            }
            aborted.add(&open);
            if is_last {
                return Ok(reset.map(|_| next_offset));
            }
        }
    }
}

fn marker(
    open: &OpenTransaction,
    offset: Offset,
    epoch: Epoch,
    now: Timestamp,
) -> Result<ValidBatch, BatchError> {
    let end = EndTransaction {
        producer_id: open.producer_id,
        producer_epoch: open.producer_epoch,
        outcome: Outcome::Abort,
        coordinator_epoch: open.coordinator_epoch.max(FIRST_COORDINATOR_EPOCH),
    };
    ValidBatch::parse(end_transaction_marker(&end, offset, epoch, now))
}

fn reset_record(
    order: &EndOrder,
    offset: Offset,
    epoch: Epoch,
    now: Timestamp,
) -> Result<ValidBatch, NotEnded> {
    let source_cluster_id = order.source_cluster_id.as_deref().map(Into::into);
    let value = encode_versioned(&MirrorPidResetRecord { source_cluster_id }, RESET_VERSION)?;
    let bytes = control_batch(ControlType::MirrorPidReset, &value, offset, epoch, now);
    Ok(ValidBatch::parse(bytes)?)
}

#[cfg(test)]
pub(crate) mod tests;
