//! The manager of the world: has done what the partition wants, one step at a time, and takes what became of it.

use std::sync::Arc;

use tarn_image::DesiredState;
use tarn_mirror::alignment::{Apart, SourceLog, align};
use tarn_mirror::backoff::Backoff;
use tarn_mirror::coordinator::{PartitionState, WriteRefused};
use tarn_mirror::local_cluster::{
    EndOrder, Gate, GateOrder, KnownState, LastPosition, LogEnded, LogEnds, MirrorGeneration, Suffix,
};
use tarn_mirror::parted::{Alignment, Rest, judge};
use tarn_mirror::partition::{Persisted, RetryPolicy, Want};
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::metadata::SourceLeader;
use tarn_mirror::state::MirrorState;
use tarn_record::{BrokerId, Epoch, Offset};
use tarn_wire::messages::write_mirror_states_request::{
    AbortedTransaction, MirrorStopReport, WriteMirrorStatePartition,
};

use super::controller::PARTITION;
use super::flushing::FlushedFor;
use super::happenings::Event;
use super::network::{Channel, Message};
use super::{Broken, MirrorWorld};
use crate::simulation::{Schedule, Violation};

const POLICY: RetryPolicy = RetryPolicy { backoff: Backoff { initial_ms: 50, max_ms: 500 }, attempts_max: 3 };
/// The broker that always leads at the source; its epoch tells leaders apart.
const THERE: BrokerId = BrokerId(1);
/// How long it is until a wish that cannot be met yet is looked at again.
const AGAIN_MS: i64 = 200;

/// How late a gate is closed, where it is not waited for.
const NOT_CLOSED_FOR_MS: i64 = 1500;

/// Whose an order is: of a life of the node, the how many-th.
pub(super) type Task = (u64, u64);

/// What others do for the manager.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Read,
    Write(MirrorState, WriteMirrorStatePartition, Option<LastPosition>),
    Gate(GateOrder),
    /// To compare histories: first the ends here, then the source's.
    Ends(SourceLeader),
    EpochEnd(SourceLeader, LogEnds),
    Raise(Epoch),
    Flush,
    EndLog(EndOrder),
    SourceMetadata,
    Complete(i64),
}

/// What became of an order.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Read(PartitionState),
    Written(MirrorState, i32, i64, Option<LastPosition>),
    WrittenByOthers,
    GateClosed,
    GateOpened(MirrorGeneration),
    Ends(SourceLeader, LogEnds),
    Compared(SourceLeader, LogEnds, SourceLog),
    SourceLost,
    Raised(Epoch),
    Flushed(LogEnds),
    Ended(LogEnded),
    EndRefused(Reason),
    /// `None` where the source does not answer.
    SourceMetadata(Option<SourceLeader>),
    Completed(bool),
    Failed(Reason),
}

impl MirrorWorld {
    /// Does what the partition wants.
    pub(super) fn look(&mut self, schedule: &mut Schedule<Event>) {
        self.complete(schedule);
        loop {
            let now_ms = now_ms(schedule);
            match self.partition.want(now_ms) {
                Want::Nothing => return,
                Want::Wait(until_ms) => {
                    if std::mem::replace(&mut self.looks_at_ms, until_ms) != until_ms {
                        schedule.after_ms(until_ms.saturating_sub(now_ms) as i64, Event::Look);
                    }
                    return;
                }
                Want::LeaveLane => {
                    self.lane = None;
                    self.partition.left_lane();
                }
                Want::SourceMetadata => return self.look_at_source(schedule),
                Want::Fetch(leader, aligned, generation) => {
                    self.partition.joined_lane();
                    self.begin_lane(leader, aligned.from, generation, schedule);
                }
                Want::CloseGate if self.broken == Broken::GateNotClosed => {
                    let late = Message::Order((self.life, u64::MAX), self.order_for(Want::CloseGate));
                    self.send_later(NOT_CLOSED_FOR_MS, late, schedule);
                    self.partition.gate_closed();
                }
                Want::EndLog if self.broken == Broken::StoppedBeforeEnd => {
                    let (reset_offset, log_end) = (Offset(0), Offset(0));
                    let aborted = Vec::new();
                    self.partition.log_ended(LogEnded { reset_offset, aborted_count: 0, aborted, log_end });
                }
                want => {
                    self.partition.begin(want);
                    let order = self.order_for(want);
                    self.tasks += 1;
                    self.waits_for = Some(self.tasks);
                    return self.order(order, schedule);
                }
            }
        }
    }

    /// Tells the controller of a stop that is done.
    fn complete(&mut self, schedule: &mut Schedule<Event>) {
        if self.partition.has_stopped() && !self.completing {
            self.completing = true;
            let version = self.partition.bound().version;
            self.send(
                Channel::ManagerToOthers,
                Message::Order((self.life, 0), Order::Complete(version)),
                schedule,
            );
        }
    }

    fn order_for(&self, want: Want) -> Order {
        let version = self.partition.bound().version;
        match want {
            Want::WriteState(state) => Order::Write(state, self.write(state), self.partition.position()),
            Want::Compare(leader) => Order::Ends(leader),
            Want::RaiseEpoch(above) => Order::Raise(above),
            Want::CloseGate => Order::Gate(GateOrder { partition: PARTITION, gate: Gate::Closed, version }),
            Want::OpenGate => Order::Gate(GateOrder { partition: PARTITION, gate: Gate::Open, version }),
            Want::Flush => Order::Flush,
            Want::EndLog => match self.partition.position() {
                Some(position) => Order::EndLog(EndOrder {
                    partition: PARTITION,
                    version,
                    position,
                    source_cluster_id: Some("source".into()),
                }),
                None => Order::Read,
            },
            _ => Order::Read,
        }
    }

    fn write(&self, state: MirrorState) -> WriteMirrorStatePartition {
        let bound = self.partition.bound();
        let written = WriteMirrorStatePartition {
            state: state.to_byte(),
            leader_epoch: bound.leader_epoch.0,
            state_epoch: self.partition.state_epoch(),
            state_version: bound.version,
            non_retryable: state == MirrorState::Failed,
            ..WriteMirrorStatePartition::default()
        };
        match (state, self.partition.position(), self.partition.ended()) {
            (MirrorState::Stopping, Some(position), _) => WriteMirrorStatePartition {
                last_mirror_epoch: position.epoch.0,
                last_mirror_offset: position.offset.0,
                ..written
            },
            (MirrorState::Stopped, Some(position), Some(ended)) => {
                let aborted = ended.aborted.iter().map(|aborted| AbortedTransaction {
                    producer_id: aborted.producer_id.0,
                    producer_epoch: aborted.producer_epoch.0,
                    first_offset: aborted.first_offset.0,
                });
                let report = MirrorStopReport {
                    mirrored_offset: position.offset.0,
                    aborted_transaction_count: ended.aborted_count as i32,
                    aborted_transactions: aborted.collect(),
                    reset_offset: ended.reset_offset.0,
                    ..MirrorStopReport::default()
                };
                WriteMirrorStatePartition { report: Some(report), ..written }
            }
            _ => written,
        }
    }

    pub(super) fn look_at_source(&mut self, schedule: &mut Schedule<Event>) {
        if !std::mem::replace(&mut self.asks_metadata, true) {
            let order = Message::Order((self.life, 0), Order::SourceMetadata);
            self.send(Channel::ManagerToOthers, order, schedule);
        }
    }

    fn order(&mut self, order: Order, schedule: &mut Schedule<Event>) {
        let channel = match &order {
            Order::Gate(_) | Order::Ends(_) | Order::Flush | Order::EndLog(_) => Channel::ManagerToCore,
            _ => Channel::ManagerToOthers,
        };
        let task = (self.life, self.tasks);
        if !self.at_rest && self.repeats > 0 && self.rng.u32(..100) < self.repeats {
            schedule.tally("order repeated");
            let again = Message::Order((task.0, u64::MAX), order.clone());
            let delay_ms = self.rng.i64(1..2000);
            self.send_later(delay_ms, again, schedule);
        }
        self.send(channel, Message::Order(task, order), schedule);
    }

    /// An order has arrived where it is carried out.
    pub(super) fn carry_out(
        &mut self,
        task: Task,
        order: Order,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let lost = match &order {
            Order::Read | Order::Write(..) => Answer::Failed(Reason::CoordinatorUnavailable),
            Order::Gate(_) | Order::Ends(_) => Answer::Failed(Reason::DestinationNoLeader),
            Order::EpochEnd(..) => Answer::Failed(Reason::SourceUnreachable),
            Order::Raise(_) => Answer::Failed(Reason::ControllerUnavailable),
            Order::Flush | Order::EndLog(_) => Answer::Failed(Reason::DestinationStorage),
            Order::SourceMetadata => Answer::SourceMetadata(None),
            Order::Complete(_) => Answer::Completed(false),
        };
        if !self.at_rest && self.rng.u32(..100) < self.losses {
            schedule.tally("order lost");
            self.send(Channel::ToManager, Message::Answer(task, lost), schedule);
            return Ok(());
        }
        let loses_answer = !self.at_rest && self.rng.u32(..100) < self.losses;
        let answer = match order {
            Order::Read => {
                let answer = Answer::Read(self.states.read());
                return self.answer_flushed(task, if loses_answer { lost } else { answer }, schedule);
            }
            Order::Write(state, write, position) => {
                let answer = self.write_state(state, write, position, schedule)?;
                if loses_answer {
                    schedule.tally("answer lost");
                }
                return self.answer_flushed(task, if loses_answer { lost } else { answer }, schedule);
            }
            Order::Gate(order) => match (self.core.set_gate(&order), order.gate) {
                (None, _) => {
                    schedule.tally("gate not known yet");
                    Answer::Failed(Reason::DestinationNoLeader)
                }
                (Some(_), Gate::Closed) => Answer::GateClosed,
                (Some(generation), Gate::Open) => {
                    schedule.tally("gate opened");
                    Answer::GateOpened(generation)
                }
            },
            Order::Ends(leader) => Answer::Ends(leader, self.core.replica.ends()),
            Order::EpochEnd(leader, ours) => self.compare_at_source(leader, ours),
            Order::Raise(above) => {
                schedule.tally("epoch raised");
                self.controller.raise_epoch(above);
                self.publish(schedule);
                Answer::Raised(above)
            }
            Order::Flush => {
                self.flush_for(FlushedFor::Flush(task, loses_answer), schedule);
                return Ok(());
            }
            Order::EndLog(order) => match self.core.append_end(&order, schedule.now_ms())? {
                Ok(ended) => {
                    schedule.tally(if ended.aborted_count > 0 {
                        "log ended with open transactions"
                    } else {
                        "log ended"
                    });
                    self.flush_for(FlushedFor::End(task, loses_answer, ended), schedule);
                    return Ok(());
                }
                Err(_) => {
                    schedule.tally("end refused");
                    Answer::EndRefused(Reason::DestinationNoLeader)
                }
            },
            Order::SourceMetadata => {
                let epoch = Epoch(self.source.epoch());
                let is_there = !self.source.is_gone;
                Answer::SourceMetadata(is_there.then_some(SourceLeader { broker: THERE, epoch }))
            }
            Order::Complete(version) => {
                let is_stopped = self.states.read();
                let all_stopped = is_stopped.state == Some(MirrorState::Stopped)
                    && is_stopped.state_version == version
                    && self.states.has_flushed(self.states.end());
                let completed = all_stopped && self.controller.complete(version);
                if completed {
                    schedule.tally("stop completed");
                    self.publish(schedule);
                }
                Answer::Completed(completed)
            }
        };
        if loses_answer {
            schedule.tally("answer lost");
        }
        let answer = if loses_answer { lost } else { answer };
        self.send(Channel::ToManager, Message::Answer(task, answer), schedule);
        Ok(())
    }

    fn write_state(
        &mut self,
        state: MirrorState,
        write: WriteMirrorStatePartition,
        position: Option<LastPosition>,
        schedule: &mut Schedule<Event>,
    ) -> Result<Answer, Violation> {
        let version = write.state_version;
        let before = self.states.read();
        Ok(match self.states.write(write, self.core.oracle.end())? {
            Ok(state_epoch) => {
                schedule.tally(written(state));
                self.check_left(&before)?;
                if state == MirrorState::Stopped && before.state == Some(MirrorState::Stopping) {
                    let position = self.states.read().position.map_or(-1, |position| position.offset.0);
                    self.core.oracle.check_ended(position)?;
                }
                Answer::Written(state, state_epoch, version, position)
            }
            Err(WriteRefused::FencedState { .. }) => {
                schedule.tally("write of an old state epoch refused");
                Answer::WrittenByOthers
            }
            Err(WriteRefused::OldVersion { .. }) => {
                schedule.tally("write of an old version refused");
                Answer::WrittenByOthers
            }
            Err(WriteRefused::FencedLeader { .. }) => Answer::Failed(Reason::DestinationNoLeader),
            Err(_) => Answer::Failed(Reason::CoordinatorUnavailable),
        })
    }

    /// Where the mirror is said to have left the log, what it has brought ends: nothing gets in between a flush and that,
    /// and what clients wrote is not taken for it.
    fn check_left(&mut self, before: &PartitionState) -> Result<(), Violation> {
        let (position, end) = (self.states.read().position, self.core.oracle.mirrored_end());
        match position.filter(|_| position != before.position) {
            Some(position) if position.offset.0 != end => {
                let at = position.offset;
                let text =
                    format!("the mirror has left the log at {at}, and has brought what is below {end}");
                Err(Violation::new(if at.0 < end { "gate" } else { "position" }, text))
            }
            _ => Ok(()),
        }
    }

    fn compare_at_source(&self, leader: SourceLeader, ours: LogEnds) -> Answer {
        if self.source.is_gone {
            return Answer::Failed(Reason::SourceUnreachable);
        }
        if leader.epoch.0 != self.source.epoch() {
            return Answer::SourceLost;
        }
        let epoch_end = (ours.latest_epoch != Epoch::NONE).then(|| self.source.end_of(ours.latest_epoch));
        let high_watermark = Offset(self.source.end());
        Answer::Compared(leader, ours, SourceLog { log_start: Offset(0), high_watermark, epoch_end })
    }

    /// An answer has come back to the node; to the step that waits for it, if any does.
    pub(super) fn take_answer(&mut self, task: Task, answer: Answer, schedule: &mut Schedule<Event>) {
        let now_ms = now_ms(schedule);
        match answer {
            Answer::SourceMetadata(leader) => {
                self.asks_metadata = false;
                match leader {
                    Some(_) => self.partition.source_seen(leader),
                    None => schedule.after_ms(AGAIN_MS, Event::Look),
                }
                return;
            }
            Answer::Completed(is_done) => {
                if !is_done {
                    self.completing = false;
                    schedule.after_ms(AGAIN_MS, Event::Look);
                }
                return;
            }
            _ if self.waits_for != Some(task.1) => return,
            // The step goes on at the source.
            Answer::Ends(leader, ours) => return self.order(Order::EpochEnd(leader, ours), schedule),
            _ => {}
        }
        self.waits_for = None;
        match &answer {
            Answer::Read(state) => {
                let version = state.state_version;
                let known = state.state.map(|state| KnownState::Known { state, version });
                self.core.set_known_state(known.unwrap_or(KnownState::None));
            }
            &Answer::Written(state, _, version, _) => {
                self.core.set_known_state(KnownState::Known { state, version });
            }
            _ => {}
        }
        self.partition.end();
        match answer {
            Answer::Read(state) => {
                let mut persisted = persisted(&state);
                if self.broken == Broken::PositionWrittenAgain {
                    persisted.position = None;
                }
                self.partition.state_read(persisted);
            }
            Answer::Written(MirrorState::Stopping, state_epoch, version, Some(position)) => {
                self.partition.stopping_written(position, None, state_epoch, version);
            }
            Answer::Written(state, state_epoch, version, _) => {
                self.partition.state_written(state, state_epoch, version);
            }
            Answer::WrittenByOthers => {
                self.partition.state_unknown();
                self.fail(Reason::CoordinatorUnavailable, schedule);
            }
            Answer::GateClosed => self.partition.gate_closed(),
            Answer::GateOpened(generation) => self.partition.gate_opened(generation),
            Answer::Compared(leader, ours, there) => {
                if self.partition.source() == Some(leader) {
                    let content = self.partition.content();
                    // Nobody here consents to anything, so where exactly they part makes no difference.
                    let suffix = Suffix { records: 1, ..Suffix::default() };
                    let alignment = match align(&ours, content, &there) {
                        Ok(go_on) => Alignment::GoOn(go_on),
                        Err(Apart(why)) => {
                            let mirrored_end = ours.log_start;
                            let rest = Rest { why, suffix, mirrored_end, compacted_there: false };
                            judge(&ours, content, &there, None, rest)
                        }
                    };
                    schedule.tally(match &alignment {
                        Alignment::GoOn(_) => "history compared",
                        Alignment::Diverged(_) => "history parted",
                        Alignment::LocalRecords(_) => "local records found",
                    });
                    self.partition.compared(&alignment, None);
                }
            }
            Answer::SourceLost => self.source_lost(schedule),
            Answer::Raised(above) => self.partition.raise_asked(above, now_ms),
            Answer::Flushed(ends) => self.partition.flushed(&ends),
            Answer::Ended(ended) => self.partition.log_ended(ended),
            Answer::EndRefused(reason) => {
                self.partition.end_refused();
                self.fail(reason, schedule);
            }
            Answer::Failed(reason) => self.fail(reason, schedule),
            Answer::SourceMetadata(_) | Answer::Ends(..) | Answer::Completed(_) => {}
        }
    }

    /// The metadata have come to the manager.
    pub(super) fn manager_learns(&mut self, bound: tarn_mirror::partition::Bound) {
        if bound.version != self.partition.bound().version || bound.desired != DesiredState::Stopping {
            self.completing = false;
        }
        self.partition.rebound(bound);
        if self.partition.gives_up_step() {
            self.waits_for = None;
        }
    }

    pub(super) fn source_lost(&mut self, schedule: &mut Schedule<Event>) {
        self.partition.source_lost();
        self.fail(Reason::SourceLeaderUnknown, schedule);
    }

    pub(super) fn fail(&mut self, reason: Reason, schedule: &mut Schedule<Event>) {
        let spread = self.rng.f64();
        self.partition.failed(reason, Arc::from(reason.code()), now_ms(schedule), spread, &POLICY);
    }
}

fn written(state: MirrorState) -> &'static str {
    match state {
        MirrorState::LogAlignment => "LOG_ALIGNMENT written",
        MirrorState::EpochFencing => "EPOCH_FENCING written",
        MirrorState::UleRecovery => "ULE_RECOVERY written",
        MirrorState::Mirroring => "MIRRORING written",
        MirrorState::Pausing => "PAUSING written",
        MirrorState::Paused => "PAUSED written",
        MirrorState::Stopping => "STOPPING written",
        MirrorState::Stopped => "STOPPED written",
        MirrorState::Failed => "FAILED written",
    }
}

fn persisted(state: &PartitionState) -> Persisted {
    Persisted {
        state: state.state,
        state_epoch: state.state_epoch,
        version: state.state_version,
        previous: state.previous_state,
        position: state
            .position
            .map(|position| LastPosition { epoch: position.epoch, offset: position.offset }),
        ..Persisted::default()
    }
}

fn now_ms(schedule: &Schedule<Event>) -> u64 {
    schedule.now_ms().unsigned_abs()
}
