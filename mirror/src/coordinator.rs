//! The state of mirrored partitions as one partition of `__mirror_state` holds it: a sans-IO machine.
//!
//! Leaders of mirrored partitions write their states here and read them back after a restart or a move.
//! The machine checks only what tells writers apart, the leader epoch, the state epoch and the version of
//! the topic's binding; whether a step is legal is the leader's to check, who alone knows what it did.
//!
//! Invariants:
//! * replaying what a machine wrote gives a machine that answers the same;
//! * a state epoch rises by one with every write that is taken, from the highest there is to 0, and no write of an
//!   older one is taken;
//! * a write of an older leader epoch or binding version changes nothing, but that leader epochs begin anew with
//!   a topic that was deleted and mirrored again: see [`PartitionState::of_topic_before`];
//! * the last mirror position of a stop is the first that was written, unless a lower one was written since;
//! * the report of a stop is the first that was written; only what was exported since is added to it.

mod reports;

use std::collections::BTreeMap;

use bytes::Bytes;
use tarn_record::{Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::messages::write_mirror_states_request::WriteMirrorStatePartition;
use tarn_wire::messages::{
    MirrorFailoverReportKey, MirrorFailoverReportValue, MirrorPartitionStateKey, MirrorPartitionStateValue,
    MirrorPositionKey, MirrorPositionValue,
};
use tarn_wire::{
    CoordinatorKey, EncodeError, ErrorCode, Str, coordinator_key_type, decode_key, decode_value, encode_key,
    encode_value,
};
use thiserror::Error;

use crate::state::MirrorState;
pub use reports::{NEVER_STOPPED_MS, StopReport};

mod forgetting;

/// The internal topic of mirror states.
pub const STATE_TOPIC: &str = "__mirror_state";

/// A record of the topic: its key, and its value or a tombstone.
pub type StateRecord = (Bytes, Option<Bytes>);

/// The partition of `__mirror_state`, of `count`, that holds a mirrored partition's state.
pub fn coordinator_partition(mirror: &str, partition: TopicIdPartition, count: i32) -> PartitionIndex {
    hash_to_partition(&format!("{mirror}:{}:{}", partition.topic_id, partition.partition), count)
}

/// The partition of `__mirror_state`, of `count`, whose leader is the mirror's home broker.
pub fn home_partition(mirror: &str, count: i32) -> PartitionIndex {
    hash_to_partition(mirror, count)
}

/// Kafka's rule: the hash of Java's `String`, its magnitude, modulo the count.
fn hash_to_partition(text: &str, count: i32) -> PartitionIndex {
    let hash =
        text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let magnitude = if hash == i32::MIN { 0 } else { hash.abs() };
    PartitionIndex(magnitude % count.max(1))
}

/// What the coordinator knows of one mirrored partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionState {
    /// Its state; `None` where only a position is known.
    pub state: Option<MirrorState>,
    /// The highest leader epoch that wrote.
    pub leader_epoch: Epoch,
    /// How many writes were taken.
    pub state_epoch: i32,
    /// Why it is not well, for a person.
    pub error_message: Option<Str>,
    /// Which retry it is in; −1 where it is not retried.
    pub retry_attempt: i16,
    /// The state before FAILED.
    pub previous_state: Option<MirrorState>,
    /// Why it is not well, for an alert.
    pub reason_code: Option<Str>,
    /// The version of the topic's binding that the state belongs to.
    pub state_version: i64,
    /// The last mirror position.
    pub position: Option<Position>,
}

/// Up to where a partition was mirrored when it was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The newest leader epoch of the mirrored log.
    pub epoch: Epoch,
    /// Its end.
    pub offset: Offset,
    /// The version of the stop.
    pub version: i64,
    /// The source's high watermark when it last answered.
    pub source_offset: Offset,
    /// When that was, by this cluster's clock; −1 where it never answered.
    pub source_known_at_ms: i64,
    /// For how long it had had something then that was missing here; −1 where that is not known.
    pub source_lag_ms: i64,
}

/// What the coordinator is asked.
#[derive(Clone, Debug)]
pub enum StateRequest {
    /// The state of some partitions of a mirror.
    Read(String, Vec<TopicIdPartition>),
    /// A new state for some.
    Write(String, Vec<(TopicIdPartition, StateWrite)>),
    /// The reports of all stops of a mirror.
    Reports(String),
    /// To forget a mirror as far as it is of bindings not newer than this version. That may take several
    /// requests.
    Forget(String, i64),
}

/// A new state of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct StateWrite {
    /// The topic's name, for the report of a stop.
    pub topic: Str,
    /// The state, as it is asked for.
    pub state: WriteMirrorStatePartition,
}

/// What the coordinator answers, partition by partition in the order of the request.
#[derive(Clone, Debug, PartialEq)]
pub enum StateResponse {
    /// The states; `None` where there is none.
    Read(Vec<(TopicIdPartition, Option<PartitionState>)>),
    /// The new state epochs, or why a write was not taken.
    Written(Vec<(TopicIdPartition, Result<i32, WriteRefused>)>),
    /// The reports there are here, in the order of their partitions.
    Reports(Vec<(TopicIdPartition, StopReport)>),
    /// How many records are left to be forgotten.
    Forgotten(usize),
}

/// Why a write was not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WriteRefused {
    /// A newer leader has written.
    #[error("leader epoch {given} is older than {current}, which has written since")]
    FencedLeader {
        /// The writer's.
        given: Epoch,
        /// The newest.
        current: Epoch,
    },
    /// Somebody has written since the writer read.
    #[error("state epoch {given} is older than {current}")]
    FencedState {
        /// The writer's.
        given: i32,
        /// The newest.
        current: i32,
    },
    /// The binding has a newer version.
    #[error("version {given} of the binding is older than {current}")]
    OldVersion {
        /// The writer's.
        given: i64,
        /// The newest.
        current: i64,
    },
    /// The state is none of those there are.
    #[error("{0} is not a mirror partition state")]
    NotAState(i8),
    /// A text is too long for a record.
    #[error("the state does not fit a record: {0}")]
    TooLong(String),
}

impl WriteRefused {
    /// The error code of the protocol.
    pub fn code(&self) -> ErrorCode {
        match self {
            WriteRefused::FencedLeader { .. } => ErrorCode::FENCED_LEADER_EPOCH,
            WriteRefused::FencedState { .. } | WriteRefused::OldVersion { .. } => {
                ErrorCode::FENCED_STATE_EPOCH
            }
            WriteRefused::NotAState(_) | WriteRefused::TooLong(_) => ErrorCode::INVALID_REQUEST,
        }
    }
}

/// One partition of `__mirror_state`. Owned by the core that owns that partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MirrorCoordinator {
    states: BTreeMap<(String, TopicIdPartition), PartitionState>,
    /// Kept until the mirror is deleted.
    reports: BTreeMap<(String, TopicIdPartition), StopReport>,
    unread: forgetting::Unread,
}

impl MirrorCoordinator {
    /// Takes one record of the log over. Records of kinds that are not known are left alone.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), String> {
        let kind = coordinator_key_type(key).map_err(|error| error.to_string())?;
        if kind == MirrorPartitionStateKey::TYPE {
            let key: MirrorPartitionStateKey = decode_key(key.clone()).map_err(|error| error.to_string())?;
            let named = named(&key.mirror_name, key.topic_id, key.partition);
            let Some(value) = value else { return self.forget(&named, Forgotten::State) };
            let value: MirrorPartitionStateValue =
                decode_value(value.clone()).map_err(|error| error.to_string())?;
            self.states.entry(named).or_default().take_over(value)
        } else if kind == MirrorPositionKey::TYPE {
            let key: MirrorPositionKey = decode_key(key.clone()).map_err(|error| error.to_string())?;
            let named = named(&key.mirror_name, key.topic_id, key.partition);
            let Some(value) = value else { return self.forget(&named, Forgotten::Position) };
            let value: MirrorPositionValue =
                decode_value(value.clone()).map_err(|error| error.to_string())?;
            self.states.entry(named).or_default().position = Some(position_of(&value));
            Ok(())
        } else if kind == MirrorFailoverReportKey::TYPE {
            let key: MirrorFailoverReportKey = decode_key(key.clone()).map_err(|error| error.to_string())?;
            let named = named(&key.mirror_name, key.topic_id, key.partition);
            let Some(value) = value else {
                self.reports.remove(&named);
                return Ok(());
            };
            let value: MirrorFailoverReportValue =
                decode_value(value.clone()).map_err(|error| error.to_string())?;
            self.reports.insert(named, StopReport::read(value));
            Ok(())
        } else {
            self.unread.replay(kind, key, value.is_some())
        }
    }

    /// Answers a request. What it changes is changed at once; the records say it again for the log.
    pub fn handle(&mut self, request: StateRequest) -> (StateResponse, Vec<StateRecord>) {
        match request {
            StateRequest::Read(mirror, partitions) => {
                let state = |partition: TopicIdPartition| {
                    (partition, self.states.get(&(mirror.clone(), partition)).cloned())
                };
                (StateResponse::Read(partitions.into_iter().map(state).collect()), Vec::new())
            }
            StateRequest::Write(mirror, writes) => {
                let mut records = Vec::new();
                let mut results = Vec::with_capacity(writes.len());
                for (partition, write) in writes {
                    results.push((partition, self.write(&mirror, partition, &write, &mut records)));
                }
                (StateResponse::Written(results), records)
            }
            StateRequest::Reports(mirror) => {
                let of_mirror = self.reports.iter().filter(|((name, _), _)| *name == mirror);
                let reports = of_mirror.map(|((_, partition), report)| (*partition, report.clone()));
                (StateResponse::Reports(reports.collect()), Vec::new())
            }
            StateRequest::Forget(mirror, version) => {
                let (left, records) = self.forget_mirror(&mirror, version);
                (StateResponse::Forgotten(left), records)
            }
        }
    }

    fn write(
        &mut self,
        mirror: &str,
        partition: TopicIdPartition,
        write: &StateWrite,
        records: &mut Vec<StateRecord>,
    ) -> Result<i32, WriteRefused> {
        let named = (mirror.to_owned(), partition);
        let known = self.states.get(&named).cloned().unwrap_or_default();
        let next = known.after(&write.state)?;
        let report = StopReport::after(self.reports.get(&named), write, &next);
        let mut written = vec![state_record(&named, &next).map_err(too_long)?];
        if next.position != known.position {
            written.push(position_record(&named, next.position.as_ref()).map_err(too_long)?);
        }
        if next.state.is_none() {
            written.remove(0);
        }
        if let Some(report) = &report {
            written.push(report.record(&named).map_err(too_long)?);
        }
        records.append(&mut written);
        let state_epoch = next.state_epoch;
        if let Some(report) = report {
            self.reports.insert(named.clone(), report);
        }
        // Of what says nothing nothing is in the log either.
        if next != PartitionState::default() {
            self.states.insert(named, next);
        }
        Ok(state_epoch)
    }

    fn forget(&mut self, named: &(String, TopicIdPartition), what: Forgotten) -> Result<(), String> {
        if let Some(known) = self.states.get_mut(named) {
            match what {
                Forgotten::State => {
                    *known = PartitionState { position: known.position, ..Default::default() }
                }
                Forgotten::Position => known.position = None,
            }
            if *known == PartitionState::default() {
                self.states.remove(named);
            }
        }
        Ok(())
    }
}

enum Forgotten {
    State,
    Position,
}

impl Position {
    /// Where the log has lost what the position claims it goes down, and never up again. What was known of the
    /// source stays: that was before the stop.
    fn lowered_to(self, given: Position) -> Position {
        match given.offset < self.offset {
            true => Position { epoch: given.epoch, offset: given.offset, ..self },
            false => self,
        }
    }

    /// A stop that leaves the log where an earlier one did, and heard nothing of the source since, knows what that one
    /// knew.
    fn or_as_known_before(self, before: Position) -> Position {
        let is_there = (before.epoch, before.offset) == (self.epoch, self.offset);
        if !is_there || self.source_offset >= Offset(0) {
            return self;
        }
        Position {
            source_offset: before.source_offset,
            source_known_at_ms: before.source_known_at_ms,
            source_lag_ms: before.source_lag_ms,
            ..self
        }
    }
}

impl PartitionState {
    /// What a write makes of this state.
    fn after(&self, write: &WriteMirrorStatePartition) -> Result<PartitionState, WriteRefused> {
        let leader_epoch = Epoch(write.leader_epoch);
        let mut next = self.clone();
        if self.of_topic_before(write) {
            next = PartitionState { state_epoch: self.state_epoch, ..PartitionState::default() };
        } else if leader_epoch != Epoch::NONE && leader_epoch < self.leader_epoch {
            return Err(WriteRefused::FencedLeader { given: leader_epoch, current: self.leader_epoch });
        }
        // A higher one is of a mirror of the same name that was deleted since, and forgotten here.
        if write.state_epoch != -1 && write.state_epoch != self.state_epoch {
            return Err(WriteRefused::FencedState { given: write.state_epoch, current: self.state_epoch });
        }
        if write.state_version != -1 && write.state_version < self.state_version {
            return Err(WriteRefused::OldVersion { given: write.state_version, current: self.state_version });
        }
        if write.last_mirror_offset != -1 {
            let given = Position {
                epoch: Epoch(write.last_mirror_epoch),
                offset: Offset(write.last_mirror_offset),
                version: next.state_version.max(write.state_version),
                source_offset: Offset(write.source_offset_last_known),
                source_known_at_ms: write.source_offset_known_at_ms,
                source_lag_ms: write.source_lag_ms,
            };
            let given = next.position.map_or(given, |before| given.or_as_known_before(before));
            let known = next.position.filter(|known| known.version == given.version);
            next.position = Some(known.map_or(given, |known| known.lowered_to(given)));
        }
        if write.state != -1 {
            next.enter(write)?;
        }
        Ok(next)
    }

    /// True where this state is of a topic that was deleted, and the write of one that was made anew since with the
    /// same id, as a mirror makes them.
    ///
    /// Leader epochs of one topic only rise, and whoever knows a version of the binding, which is an offset in the
    /// metadata log, knows every leader epoch that was given out before it. So a newer version with an older leader
    /// epoch is of another topic. It was STOPPED when it was deleted, and nothing of it is in the log there is now.
    /// A topic made anew begins with a state; a position alone says nothing of that.
    fn of_topic_before(&self, write: &WriteMirrorStatePartition) -> bool {
        let leader_epoch = Epoch(write.leader_epoch);
        let begins_anew = write.state != -1 && write.state_version > self.state_version;
        begins_anew && leader_epoch != Epoch::NONE && leader_epoch < self.leader_epoch
    }

    fn enter(&mut self, write: &WriteMirrorStatePartition) -> Result<(), WriteRefused> {
        let state = MirrorState::from_byte(write.state).map_err(|_| WriteRefused::NotAState(write.state))?;
        self.previous_state = match (state, self.state) {
            (MirrorState::Failed, Some(MirrorState::Failed)) => self.previous_state,
            (MirrorState::Failed, before) => before,
            _ => None,
        };
        self.state = Some(state);
        self.leader_epoch = self.leader_epoch.max(Epoch(write.leader_epoch));
        self.state_version = self.state_version.max(write.state_version);
        self.state_epoch = self.state_epoch.checked_add(1).unwrap_or(0);
        self.error_message = write.error_message.as_ref().map(Str::to_owned_str);
        self.reason_code = write.reason_code.as_ref().map(Str::to_owned_str);
        self.retry_attempt = match write.retry_attempt {
            _ if write.non_retryable => -1,
            -1 => self.retry_attempt,
            attempt => i16::try_from(attempt).unwrap_or(i16::MAX),
        };
        Ok(())
    }

    fn take_over(&mut self, value: MirrorPartitionStateValue) -> Result<(), String> {
        let state = |byte: i8| match byte {
            -1 => Ok(None),
            byte => MirrorState::from_byte(byte).map(Some).map_err(|error| error.to_string()),
        };
        self.state = state(value.state)?;
        self.previous_state = state(value.previous_state)?;
        self.leader_epoch = Epoch(value.leader_epoch);
        self.state_epoch = value.state_epoch;
        self.error_message = value.error_message;
        self.retry_attempt = value.retry_attempt;
        self.reason_code = value.reason_code;
        self.state_version = value.state_version;
        Ok(())
    }
}

fn named(mirror: &str, topic_id: uuid::Uuid, partition: i32) -> (String, TopicIdPartition) {
    let partition = PartitionIndex(partition);
    (mirror.to_owned(), TopicIdPartition { topic_id: TopicId(topic_id), partition })
}

fn too_long(error: EncodeError) -> WriteRefused {
    WriteRefused::TooLong(error.to_string())
}

fn state_record(
    (mirror, partition): &(String, TopicIdPartition),
    state: &PartitionState,
) -> Result<StateRecord, EncodeError> {
    let key = MirrorPartitionStateKey {
        mirror_name: mirror.as_str().into(),
        topic_id: partition.topic_id.0,
        partition: partition.partition.0,
    };
    let byte = |state: Option<MirrorState>| state.map_or(-1, MirrorState::to_byte);
    let value = MirrorPartitionStateValue {
        state: byte(state.state),
        leader_epoch: state.leader_epoch.0,
        state_epoch: state.state_epoch,
        error_message: state.error_message.clone(),
        retry_attempt: state.retry_attempt,
        previous_state: byte(state.previous_state),
        reason_code: state.reason_code.clone(),
        state_version: state.state_version,
    };
    Ok((encode_key(&key)?, Some(encode_value(&value, 0)?)))
}

fn position_record(
    (mirror, partition): &(String, TopicIdPartition),
    position: Option<&Position>,
) -> Result<StateRecord, EncodeError> {
    let key = MirrorPositionKey {
        mirror_name: mirror.as_str().into(),
        topic_id: partition.topic_id.0,
        partition: partition.partition.0,
    };
    let value = |position: &Position| MirrorPositionValue {
        last_mirror_epoch: position.epoch.0,
        last_mirror_offset: position.offset.0,
        state_version: position.version,
        source_offset_last_known: position.source_offset.0,
        source_offset_known_at_ms: position.source_known_at_ms,
        source_lag_ms: position.source_lag_ms,
    };
    let value = position.map(|position| encode_value(&value(position), 0)).transpose()?;
    Ok((encode_key(&key)?, value))
}

fn position_of(value: &MirrorPositionValue) -> Position {
    Position {
        epoch: Epoch(value.last_mirror_epoch),
        offset: Offset(value.last_mirror_offset),
        version: value.state_version,
        source_offset: Offset(value.source_offset_last_known),
        source_known_at_ms: value.source_offset_known_at_ms,
        source_lag_ms: value.source_lag_ms,
    }
}

#[cfg(test)]
mod tests;
