//! What a stop knew and kept of one partition: written with STOPPED, before clients may write, and kept until the
//! mirror is deleted.
//!
//! What was exported before its log was cut is named here too, from the write after the cut on: in the report of the
//! stop before it, in one of no stop where there was none, and in that of the next stop.
//!
//! Invariants:
//! * the report of a stop is the first that was written;
//! * the newest export of a partition is named, whichever stops came after it.

use tarn_record::{Offset, ProducerEpoch, ProducerId, TopicIdPartition};
use tarn_wire::messages::mirror_failover_report_value::AbortedTransaction as AbortedRecord;
use tarn_wire::messages::{MirrorFailoverReportKey, MirrorFailoverReportValue};
use tarn_wire::{EncodeError, Str, encode_key, encode_value};

use super::{PartitionState, StateRecord, StateWrite};
use crate::limits;
use crate::local_cluster::AbortedTransaction;

/// When a partition was stopped that never was, and of which something was exported.
pub const NEVER_STOPPED_MS: i64 = -1;

/// The report of one partition's stop. Times are by the clock on this cluster's wall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// The topic's name.
    pub topic: Str,
    /// The version of the stop.
    pub version: i64,
    /// When it was stopped; `NEVER_STOPPED_MS` in a report of no stop.
    pub stopped_at_ms: i64,
    /// The source's high watermark when it last answered; −1 where it never did.
    pub source_offset: Offset,
    /// When that was; −1 where it never was.
    pub source_known_at_ms: i64,
    /// Up to where the source was copied.
    pub mirrored_offset: Offset,
    /// For how long the source had had something then that was missing here; −1 where that is not known.
    pub lag_ms: i64,
    /// How many transactions were aborted, which the source had not decided.
    pub aborted_count: i32,
    /// The first of them; `limits::ABORTED_IN_REPORT` at most.
    pub aborted: Vec<AbortedTransaction>,
    /// The offset of the reset record.
    pub reset_offset: Offset,
    /// The broker that exported what was cut last; −1 where nothing was.
    pub export_broker_id: i32,
    /// The directory with it, on that broker.
    pub export_file: Option<Str>,
}

impl StopReport {
    /// What becomes of the report that is known by a write that makes `state` of a partition; `None` where it stays.
    pub(super) fn after(
        known: Option<&StopReport>,
        write: &StateWrite,
        state: &PartitionState,
    ) -> Option<StopReport> {
        let given = StopReport::of(write, state)?;
        let next = match known {
            Some(known) if !given.is_of_a_stop() => StopReport {
                export_broker_id: given.export_broker_id,
                export_file: given.export_file,
                ..known.clone()
            },
            Some(known) if known.is_of_a_stop() && known.version >= given.version => return None,
            Some(known) if given.export_file.is_none() => StopReport {
                export_broker_id: known.export_broker_id,
                export_file: known.export_file.clone(),
                ..given
            },
            _ => given,
        };
        (known != Some(&next)).then_some(next)
    }

    fn is_of_a_stop(&self) -> bool {
        self.stopped_at_ms != NEVER_STOPPED_MS
    }

    /// The report in a write that makes `state` of a partition; `None` where there is none. What the source had
    /// is that which was known when the position was written.
    fn of(write: &StateWrite, state: &PartitionState) -> Option<StopReport> {
        let given = write.state.report.as_ref()?;
        let version = state.state_version;
        let position = state.position.filter(|position| position.version == version);
        let (source_offset, source_known_at_ms) = match position {
            Some(position) => (position.source_offset, position.source_known_at_ms),
            None => (Offset(write.state.source_offset_last_known), write.state.source_offset_known_at_ms),
        };
        // Who ends a stop that another process began knows only what is written.
        let written = position.map(|position| position.source_lag_ms).filter(|lag_ms| *lag_ms >= 0);
        let lag_ms = written.unwrap_or(given.lag_ms);
        let aborted = given.aborted_transactions.iter().take(limits::ABORTED_IN_REPORT);
        Some(StopReport {
            topic: write.topic.to_owned_str(),
            version,
            stopped_at_ms: given.stopped_at_ms,
            source_offset,
            source_known_at_ms,
            mirrored_offset: Offset(given.mirrored_offset),
            lag_ms,
            aborted_count: given.aborted_transaction_count,
            aborted: aborted
                .map(|aborted| AbortedTransaction {
                    producer_id: ProducerId(aborted.producer_id),
                    producer_epoch: ProducerEpoch(aborted.producer_epoch),
                    first_offset: Offset(aborted.first_offset),
                })
                .collect(),
            reset_offset: Offset(given.reset_offset),
            export_broker_id: given.export_broker_id,
            export_file: given.export_file.as_ref().map(Str::to_owned_str),
        })
    }

    /// The report that a record holds.
    pub(super) fn read(value: MirrorFailoverReportValue) -> StopReport {
        StopReport {
            topic: value.topic_name.to_owned_str(),
            version: value.state_version,
            stopped_at_ms: value.stopped_at_ms,
            source_offset: Offset(value.source_offset_last_known),
            source_known_at_ms: value.source_offset_known_at_ms,
            mirrored_offset: Offset(value.mirrored_offset),
            lag_ms: value.lag_ms,
            aborted_count: value.aborted_transaction_count,
            aborted: value
                .aborted_transactions
                .iter()
                .map(|aborted| AbortedTransaction {
                    producer_id: ProducerId(aborted.producer_id),
                    producer_epoch: ProducerEpoch(aborted.producer_epoch),
                    first_offset: Offset(aborted.first_offset),
                })
                .collect(),
            reset_offset: Offset(value.reset_offset),
            export_broker_id: value.export_broker_id,
            export_file: value.export_file.as_ref().map(Str::to_owned_str),
        }
    }

    /// The record that holds it.
    pub(super) fn record(
        &self,
        (mirror, partition): &(String, TopicIdPartition),
    ) -> Result<StateRecord, EncodeError> {
        let key = MirrorFailoverReportKey {
            mirror_name: mirror.as_str().into(),
            topic_id: partition.topic_id.0,
            partition: partition.partition.0,
        };
        let aborted = self.aborted.iter().map(|aborted| AbortedRecord {
            producer_id: aborted.producer_id.0,
            producer_epoch: aborted.producer_epoch.0,
            first_offset: aborted.first_offset.0,
        });
        let value = MirrorFailoverReportValue {
            topic_name: self.topic.clone(),
            state_version: self.version,
            stopped_at_ms: self.stopped_at_ms,
            source_offset_last_known: self.source_offset.0,
            source_offset_known_at_ms: self.source_known_at_ms,
            mirrored_offset: self.mirrored_offset.0,
            lag_ms: self.lag_ms,
            aborted_transaction_count: self.aborted_count,
            aborted_transactions: aborted.collect(),
            reset_offset: self.reset_offset.0,
            export_broker_id: self.export_broker_id,
            export_file: self.export_file.clone(),
        };
        Ok((encode_key(&key)?, Some(encode_value(&value, 0)?)))
    }
}
