//! The steps from whatever state a partition is in to STOPPED, after which clients may write (mirroring.md §8).
//!
//! The gate is closed, all of the log is made durable and committed, its end is written down as the last mirror
//! position, the leader epoch is raised above it, the log is ended, and STOPPED is written with the report. The
//! source is not asked. A partition that comes here again, in another process or on another broker, finds each step
//! done by what the coordinator and the log have.
//!
//! Invariants:
//! * the position of a stop is written once; it only goes down, where the log has lost what it claims;
//! * what came into a log that nothing was mirrored into since the last stop, or ever, is not counted as mirrored,
//!   neither by clients nor by another mirror: a position that speaks of another log is none;
//! * the log is ended only behind a position that is written, and in a leader epoch above it;
//! * STOPPED is written only once the log is ended, or where it was STOPPED before and no alignment has begun since.

use std::sync::Arc;

use tarn_image::DesiredState;
use tarn_record::Epoch;

use super::{GateNow, Partition, Persisted, Want};
use crate::alignment::Content;
use crate::known::SourceKnown;
use crate::limits;
use crate::local_cluster::{LastPosition, LogEnded, LogEnds};
use crate::state::MirrorState;

/// What a stop has found and done in this life of the partition.
#[derive(Debug, Default)]
pub(super) struct Stop {
    /// Where the log ends, all of it durable and committed.
    flushed: Option<LastPosition>,
    /// How the log was ended.
    ended: Option<Arc<LogEnded>>,
    /// What was known of the source when the position was written.
    known: Option<SourceKnown>,
    /// The last stop's position speaks of a log that another mirror has filled anew since.
    position_is_void: bool,
}

impl Stop {
    /// The leader epoch has become another one. Unless it is the one that was asked for, the partition may have
    /// been led elsewhere meanwhile, and its log be another.
    pub(super) fn led_anew(&mut self, epoch: Epoch, raised_above: Option<Epoch>) {
        if raised_above.is_none_or(|above| epoch.0 != above.0.saturating_add(1)) {
            self.look_again();
        }
    }

    /// The log is to be looked at again. What was known of the source belongs to the position that was written.
    fn look_again(&mut self) {
        *self = Stop { known: self.known, ..Stop::default() };
    }
}

impl Partition {
    /// The next step of a stop.
    pub(super) fn want_to_stop(&self, persisted: &Persisted, now_ms: u64) -> Want {
        if persisted.state == Some(MirrorState::Stopped) {
            let is_older = self.is_older(persisted);
            return if is_older { Want::WriteState(MirrorState::Stopped) } else { Want::Nothing };
        }
        let Some(position) = self.position() else { return Want::Flush };
        let is_written = persisted.state == Some(MirrorState::Stopping)
            && persisted.position == Some(position)
            && !self.is_older(persisted);
        if !is_written {
            return Want::WriteState(MirrorState::Stopping);
        }
        if let Some(want) = self.want_epoch_above(position, now_ms) {
            return want;
        }
        if self.stop.ended.is_none() { Want::EndLog } else { Want::WriteState(MirrorState::Stopped) }
    }

    /// The last mirror position of the stop that is under way: the first that was written, or a lower one where the
    /// log has lost what that claims. `None` before the log's end is known.
    ///
    /// Where an alignment has begun since an earlier stop and not ended, nothing was mirrored since: the position is
    /// that stop's, and what stands behind it is its ending, and what clients wrote.
    pub fn position(&self) -> Option<LastPosition> {
        let end = self.stop.flushed?;
        let persisted = self.persisted.as_ref()?;
        let before = match persisted.state {
            Some(MirrorState::Stopping) => persisted.position,
            _ if self.content() == Content::Mirrored => None,
            _ if self.stop.position_is_void => Some(LastPosition::NOTHING),
            _ => Some(persisted.position.unwrap_or(LastPosition::NOTHING)),
        };
        Some(before.filter(|before| before.offset <= end.offset).unwrap_or(end))
    }

    /// How the log was ended by the stop that is under way.
    pub fn ended(&self) -> Option<&Arc<LogEnded>> {
        self.stop.ended.as_ref()
    }

    /// What was known of the source when the position was written, where that was in this life.
    pub fn known_at_stop(&self) -> Option<SourceKnown> {
        self.stop.known
    }

    /// True where it is STOPPED for the stop that is wanted.
    pub fn has_stopped(&self) -> bool {
        let is_stopped = |persisted: &Persisted| {
            persisted.state == Some(MirrorState::Stopped) && !self.is_older(persisted)
        };
        self.bound.desired == DesiredState::Stopping && self.persisted.as_ref().is_some_and(is_stopped)
    }

    /// True where it is known that nothing of the mirror can be appended.
    pub fn is_closed(&self) -> bool {
        self.gate == GateNow::Closed
    }

    /// All of the log is durable and committed, and ends here.
    pub fn flushed(&mut self, ends: &LogEnds) {
        self.truncation_is_flushed();
        // It was opened or bound anew since: what was flushed is not the end.
        if self.gate == GateNow::Closed && self.bound.desired == DesiredState::Stopping {
            self.stop.flushed = Some(LastPosition { epoch: ends.latest_epoch, offset: ends.log_end });
        }
        self.went_well();
    }

    /// Behind the position of the last stop the log is not ended for this mirror's source: another mirror has filled it
    /// anew since. To be told before how far it is flushed.
    pub fn position_is_void(&mut self) {
        self.stop.position_is_void = true;
    }

    /// The coordinator has written STOPPING with this position and what was known of the source, for this version
    /// of the binding.
    pub fn stopping_written(
        &mut self,
        position: LastPosition,
        known: Option<SourceKnown>,
        state_epoch: i32,
        version: i64,
    ) {
        self.state_written(MirrorState::Stopping, state_epoch, version);
        self.stop.known = known;
        if let Some(persisted) = &mut self.persisted {
            persisted.position = Some(position);
        }
    }

    /// The log is ended: this or an earlier order has done it.
    pub fn log_ended(&mut self, ended: LogEnded) {
        if self.gate == GateNow::Closed {
            self.stop.ended = Some(Arc::new(ended));
        }
        self.went_well();
    }

    /// The owning core does not end the log: the gate, the log's end and the position are looked at again.
    pub fn end_refused(&mut self) {
        self.gate = GateNow::MustClose;
        self.stop.look_again();
    }

    /// Above which epoch the leader epoch must still be raised, so that whoever reads the log can tell what comes
    /// after the position from what the source may have there.
    fn want_epoch_above(&self, position: LastPosition, now_ms: u64) -> Option<Want> {
        let can_be_exceeded = |epoch: &Epoch| epoch.0 < i32::MAX - limits::EPOCH_LEAP;
        let at_source = self.source.map(|source| source.epoch);
        let of_source = at_source.into_iter().chain(self.behind).filter(can_be_exceeded);
        let above = of_source.chain([position.epoch]).max()?;
        if self.bound.leader_epoch > above {
            return None;
        }
        Some(self.wait_for_raised(now_ms).unwrap_or(Want::RaiseEpoch(above)))
    }
}

#[cfg(test)]
mod tests;
