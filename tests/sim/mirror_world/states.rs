//! The coordinator of the partition's state, which is production code, its log as a disk leaves it, and what its
//! writes must be like.
//!
//! What it decides it applies at once; an answer leaves once everything that it rests on is flushed. The checker
//! looks at what would be replayed.
//!
//! A position that is not flushed may be lost, and another one be written for the same version.

use tarn_mirror::coordinator::{
    MirrorCoordinator, PartitionState, StateRecord, StateRequest, StateResponse, StateWrite, StopReport,
    WriteRefused,
};
use tarn_mirror::local_cluster::LastPosition;
use tarn_mirror::state::MirrorState;
use tarn_wire::encode_key;
use tarn_wire::messages::MirrorPositionKey;
use tarn_wire::messages::write_mirror_states_request::WriteMirrorStatePartition;

use super::controller::{PARTITION, TOPIC};
use super::mirrors::Mirror;
use crate::simulation::Violation;

#[derive(Debug, Default)]
pub(super) struct States {
    coordinator: MirrorCoordinator,
    /// Its log, in batches.
    log: Vec<Vec<StateRecord>>,
    /// How many of them are on the disk.
    flushed: usize,
    /// What these say: a restart finds it at least.
    durable: MirrorCoordinator,
    /// The positions that its log has: in which batch, of which version, where.
    positions: Vec<(usize, i64, LastPosition)>,
    /// Of each mirror, up to which version all is over and forgotten.
    forgotten: [i64; 2],
    forgets_position: bool,
}

impl States {
    /// One that forgets the position of a stop where another is written: a rule left out.
    pub(super) fn forgetting(forgets_position: bool) -> States {
        States { forgets_position, ..States::default() }
    }

    pub(super) fn read(&mut self, mirror: Mirror) -> PartitionState {
        state_in(&mut self.coordinator, mirror)
    }

    /// What a restart would find at least.
    pub(super) fn durable(&mut self, mirror: Mirror) -> PartitionState {
        state_in(&mut self.durable, mirror)
    }

    /// The report of the last stop.
    pub(super) fn report(&mut self, mirror: Mirror) -> Option<StopReport> {
        match self.coordinator.handle(StateRequest::Reports(mirror.name().to_owned())).0 {
            StateResponse::Reports(mut reports) => reports.pop().map(|(_, report)| report),
            _ => None,
        }
    }

    /// Forgets a mirror as far as it is of bindings not newer than this version.
    pub(super) fn forget(&mut self, mirror: Mirror, version: i64) -> Result<(), Violation> {
        let asked = StateRequest::Forget(mirror.name().to_owned(), version);
        let (response, records) = self.coordinator.handle(asked);
        if !records.is_empty() {
            self.log.push(records);
        }
        let forgotten = &mut self.forgotten[mirror as usize];
        *forgotten = version.max(*forgotten);
        let left = self.read(mirror);
        let is_left = left.state.is_some_and(|_| left.state_version <= version)
            || left.position.is_some_and(|position| position.version <= version);
        match response {
            StateResponse::Forgotten(0) if !is_left => Ok(()),
            other => {
                Err(Violation::new("forgetting", format!("{other:?} up to {version}, and {left:?} is left")))
            }
        }
    }

    /// True where all that was written of a mirror under this version is forgotten, or is to be.
    pub(super) fn has_forgotten(&self, mirror: Mirror, version: i64) -> bool {
        version <= self.forgotten[mirror as usize]
    }

    /// The state that was written, and its number; `log_end` is where the partition's log ends.
    pub(super) fn write(
        &mut self,
        mirror: Mirror,
        write: WriteMirrorStatePartition,
        log_end: i64,
    ) -> Result<Result<i32, WriteRefused>, Violation> {
        let before = self.read(mirror);
        if self.forgets_position && write.last_mirror_offset >= 0 {
            self.log.push(vec![tombstone_of_position(mirror)?]);
            self.replay()?;
        }
        let asked = StateWrite { topic: TOPIC.into(), state: write };
        let asked = StateRequest::Write(mirror.name().to_owned(), vec![(PARTITION, asked)]);
        let (response, records) = self.coordinator.handle(asked);
        if !records.is_empty() {
            self.log.push(records);
        }
        let StateResponse::Written(mut results) = response else { unreachable!("it was a write") };
        let (_, result) = results.pop().expect("one was asked for");
        if result.is_ok() {
            let after = self.read(mirror);
            check_states(&before, &after)?;
            self.check_position(&after, log_end)?;
        }
        Ok(result)
    }

    /// Written once; lower only where the log has lost what it claims.
    fn check_position(&mut self, state: &PartitionState, log_end: i64) -> Result<(), Violation> {
        let Some(position) = state.position else { return Ok(()) };
        let version = position.version;
        let position = LastPosition { epoch: position.epoch, offset: position.offset };
        match self.positions.iter().rev().find(|(_, known, _)| *known == version) {
            Some((_, _, known)) if *known == position => Ok(()),
            Some((_, _, known)) if position.offset >= known.offset || log_end >= known.offset.0 => {
                let text =
                    format!("version {version}: {position:?} after {known:?}, the log ends at {log_end}");
                Err(Violation::new("position", text))
            }
            _ => {
                self.positions.push((self.log.len() - 1, version, position));
                Ok(())
            }
        }
    }

    /// How many batches an answer that is given now rests on.
    pub(super) fn end(&self) -> usize {
        self.log.len()
    }

    pub(super) fn flush(&mut self, upto: usize) -> Result<(), Violation> {
        let upto = upto.min(self.log.len());
        if upto > self.flushed {
            replay(&mut self.durable, &self.log[self.flushed..upto])?;
            self.flushed = upto;
        }
        Ok(())
    }

    pub(super) fn has_flushed(&self, upto: usize) -> bool {
        self.flushed >= upto
    }

    /// The machine stops: of what was not flushed a part is kept.
    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng) -> Result<(), Violation> {
        let kept = rng.usize(self.flushed..=self.log.len());
        self.log.truncate(kept);
        self.positions.retain(|(batch, _, _)| *batch < kept);
        self.flush(kept)?;
        self.replay()
    }

    /// Another broker takes over, and replays what was written.
    fn replay(&mut self) -> Result<(), Violation> {
        self.coordinator = MirrorCoordinator::default();
        replay(&mut self.coordinator, &self.log)
    }
}

fn replay(coordinator: &mut MirrorCoordinator, log: &[Vec<StateRecord>]) -> Result<(), Violation> {
    log.iter().flatten().try_for_each(|(key, value)| {
        coordinator.replay(key, value.as_ref()).map_err(|error| Violation::new("coordinator", error))
    })
}

fn state_in(coordinator: &mut MirrorCoordinator, mirror: Mirror) -> PartitionState {
    match coordinator.handle(StateRequest::Read(mirror.name().to_owned(), vec![PARTITION])).0 {
        StateResponse::Read(mut states) => states.pop().and_then(|(_, state)| state).unwrap_or_default(),
        _ => PartitionState::default(),
    }
}

fn tombstone_of_position(mirror: Mirror) -> Result<StateRecord, Violation> {
    let key = MirrorPositionKey {
        mirror_name: mirror.name().into(),
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
