//! The coordinator of the partition's state, which is production code, its log as a disk leaves it, and what its
//! writes must be like.
//!
//! What it decides it applies at once; an answer leaves once everything that it rests on is flushed. The checker
//! looks at what would be replayed.

use tarn_mirror::coordinator::{
    MirrorCoordinator, PartitionState, StateRecord, StateRequest, StateResponse, StateWrite, StopReport,
    WriteRefused,
};
use tarn_mirror::state::MirrorState;
use tarn_wire::encode_key;
use tarn_wire::messages::MirrorPositionKey;
use tarn_wire::messages::write_mirror_states_request::WriteMirrorStatePartition;

use super::controller::{MIRROR, PARTITION, TOPIC};
use crate::simulation::Violation;

#[derive(Debug, Default)]
pub(super) struct States {
    coordinator: MirrorCoordinator,
    /// Its log, in batches.
    log: Vec<Vec<StateRecord>>,
    /// How many of them are on the disk.
    flushed: usize,
    /// The positions that its log has: in which batch, of which version, where.
    positions: Vec<(usize, i64, i64)>,
    forgets_position: bool,
}

impl States {
    /// One that forgets the position of a stop where another is written: a rule left out.
    pub(super) fn forgetting(forgets_position: bool) -> States {
        States { forgets_position, ..States::default() }
    }

    pub(super) fn read(&mut self) -> PartitionState {
        match self.coordinator.handle(StateRequest::Read(MIRROR.to_owned(), vec![PARTITION])).0 {
            StateResponse::Read(mut states) => states.pop().and_then(|(_, state)| state).unwrap_or_default(),
            _ => PartitionState::default(),
        }
    }

    /// The report of the last stop.
    pub(super) fn report(&mut self) -> Option<StopReport> {
        match self.coordinator.handle(StateRequest::Reports(MIRROR.to_owned())).0 {
            StateResponse::Reports(mut reports) => reports.pop().map(|(_, report)| report),
            _ => None,
        }
    }

    /// The state that was written, and its number; `log_end` is where the partition's log ends.
    pub(super) fn write(
        &mut self,
        write: WriteMirrorStatePartition,
        log_end: i64,
    ) -> Result<Result<i32, WriteRefused>, Violation> {
        let before = self.read();
        if self.forgets_position && write.last_mirror_offset >= 0 {
            self.log.push(vec![tombstone_of_position()?]);
            self.replay()?;
        }
        let asked = StateWrite { topic: TOPIC.into(), state: write };
        let asked = StateRequest::Write(MIRROR.to_owned(), vec![(PARTITION, asked)]);
        let (response, records) = self.coordinator.handle(asked);
        if !records.is_empty() {
            self.log.push(records);
        }
        let StateResponse::Written(mut results) = response else { unreachable!("it was a write") };
        let (_, result) = results.pop().expect("one was asked for");
        if result.is_ok() {
            let after = self.read();
            check_states(&before, &after)?;
            self.check_position(&after, log_end)?;
        }
        Ok(result)
    }

    /// Written once; lower only where the log has lost what it claims.
    fn check_position(&mut self, state: &PartitionState, log_end: i64) -> Result<(), Violation> {
        let Some(position) = state.position else { return Ok(()) };
        let (version, offset) = (position.version, position.offset.0);
        match self.positions.iter().rev().find(|(_, known, _)| *known == version) {
            Some(&(_, _, known)) if known == offset => Ok(()),
            Some(&(_, _, known)) if offset > known || log_end >= known => {
                let text = format!("version {version}: {offset} after {known}, the log ends at {log_end}");
                Err(Violation::new("position", text))
            }
            _ => {
                self.positions.push((self.log.len() - 1, version, offset));
                Ok(())
            }
        }
    }

    /// How many batches an answer that is given now rests on.
    pub(super) fn end(&self) -> usize {
        self.log.len()
    }

    pub(super) fn flush(&mut self, upto: usize) {
        self.flushed = self.flushed.max(upto.min(self.log.len()));
    }

    pub(super) fn has_flushed(&self, upto: usize) -> bool {
        self.flushed >= upto
    }

    /// What a restart would find at least.
    pub(super) fn durable(&self) -> Result<PartitionState, Violation> {
        let mut durable = States { log: self.log[..self.flushed].to_vec(), ..States::default() };
        durable.replay()?;
        Ok(durable.read())
    }

    /// The machine stops: of what was not flushed a part is kept.
    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng) -> Result<(), Violation> {
        let kept = rng.usize(self.flushed..=self.log.len());
        self.log.truncate(kept);
        self.flushed = kept;
        self.positions.retain(|(batch, _, _)| *batch < kept);
        self.replay()
    }

    /// Another broker takes over, and replays what was written.
    pub(super) fn replay(&mut self) -> Result<(), Violation> {
        self.coordinator = MirrorCoordinator::default();
        for (key, value) in self.log.iter().flatten() {
            let replayed = self.coordinator.replay(key, value.as_ref());
            replayed.map_err(|error| Violation::new("coordinator", error))?;
        }
        Ok(())
    }
}

fn tombstone_of_position() -> Result<StateRecord, Violation> {
    let key = MirrorPositionKey {
        mirror_name: MIRROR.into(),
        topic_id: PARTITION.topic_id.0,
        partition: PARTITION.partition.0,
    };
    let key = encode_key(&key).map_err(|error| Violation::new("coordinator", error.to_string()))?;
    Ok((key, None))
}

/// The rule of the proposal for what may follow what, and that nothing is written twice (mirroring.md §2).
fn check_states(before: &PartitionState, after: &PartitionState) -> Result<(), Violation> {
    use MirrorState::{
        EpochFencing, Failed, LogAlignment, Mirroring, Paused, Pausing, Stopped, Stopping, UleRecovery,
    };
    let (from, to) = (before.state, after.state.unwrap_or(Failed));
    let says_more = to == Mirroring && before.error_message != after.error_message;
    let may_repeat = to == Stopping || says_more;
    if from == Some(to) && before.state_version == after.state_version && !may_repeat {
        let found = format!("{to} was written twice for version {}", after.state_version);
        return Err(Violation::new("state writes", found));
    }
    let is_legal = match to {
        _ if from == Some(to) => true,
        Failed => true,
        LogAlignment => matches!(from, None | Some(Failed | Stopped)),
        Mirroring => matches!(from, Some(LogAlignment | Failed | Paused | EpochFencing | UleRecovery)),
        Pausing | EpochFencing | UleRecovery => from == Some(Mirroring),
        Paused => from == Some(Pausing),
        Stopping => from != Some(Stopped),
        Stopped => from == Some(Stopping),
    };
    let text = || format!("{to} was written after {from:?}");
    if is_legal { Ok(()) } else { Err(Violation::new("states", text())) }
}
