//! The manager of the world: has done what the partition wants, one step at a time, and takes what became of it.

use std::sync::Arc;

use tarn_image::DesiredState;
use tarn_image::mirrors::Truncation;
use tarn_mirror::alignment::GoOn;
use tarn_mirror::backoff::Backoff;
use tarn_mirror::consent::Allowed;
use tarn_mirror::coordinator::PartitionState;
use tarn_mirror::divergence::Alignment;
use tarn_mirror::limits::DELETED_LOOKS_APART_MS;
use tarn_mirror::local_cluster::{
    EndOrder, Gate, GateOrder, KnownState, LastPosition, LogEnded, LogEnds, LogTruncated, MirrorGeneration,
    TruncateOrder,
};
use tarn_mirror::partition::{Bound, Persisted, RetryPolicy, Want};
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::metadata::SourceLeader;
use tarn_mirror::state::MirrorState;
use tarn_mirror::truncation::TruncationPlan;
use tarn_record::{Epoch, Offset};

use super::MirrorWorld;
use super::broken::Broken;
use super::comparing::{Asks, Comparing, Looks};
use super::controller::PARTITION;
use super::happenings::Event;
use super::mirrors::{Cluster, Mirror};
use super::network::{Channel, Message};
use super::writing::{Writing, Written};
use crate::simulation::{Schedule, Violation};

const POLICY: RetryPolicy = RetryPolicy { backoff: Backoff { initial_ms: 50, max_ms: 500 }, attempts_max: 3 };
/// How long it is until a wish that cannot be met yet is looked at again.
const AGAIN_MS: i64 = 200;

/// How late a gate is closed, where it is not waited for.
const NOT_CLOSED_FOR_MS: i64 = 1500;

/// Whose an order is: of a life of the node, the how many-th.
pub(super) type Task = (u64, u64);

/// What others do for the manager.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Read(Mirror),
    Write(Box<Writing>),
    Gate(GateOrder),
    /// To compare histories: what has to be known next, here or there.
    Compare(Box<Comparing>),
    Cut(TruncateOrder, TruncationPlan),
    Raise(Epoch),
    Flush,
    EndLog(EndOrder),
    SourceMetadata(Cluster),
    Complete(Mirror, i64),
}

/// What became of an order.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Read(PartitionState),
    Written(Box<Written>),
    WrittenByOthers,
    GateClosed,
    GateOpened(MirrorGeneration),
    /// The comparison goes on.
    Comparing(Box<Comparing>),
    Compared(SourceLeader, Box<Alignment>),
    /// Histories may have parted, and why: where is to be searched for.
    Apart(SourceLeader, Arc<str>),
    SourceLost,
    Cut(TruncationPlan, LogTruncated, i64),
    CutRefused(Reason),
    Raised(Epoch),
    Flushed(LogEnds),
    Ended(LogEnded),
    EndRefused(Reason),
    SourceMetadata(Cluster, Looked),
    Completed(bool),
    Failed(Reason),
}

/// What a look at the source's metadata has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It does not answer.
    Nothing,
    /// It does not know the topic.
    Missing,
    /// The topic has another id.
    Another,
    Leader(SourceLeader),
}

impl MirrorWorld {
    /// Does what the partition wants.
    pub(super) fn look(&mut self, schedule: &mut Schedule<Event>) {
        self.complete(schedule);
        if self.is_let_go() {
            return;
        }
        loop {
            let now_ms = now_ms(schedule);
            if self.broken == Broken::StopWaitsForSource && self.source.is_gone && self.is_stopping() {
                return;
            }
            match self.partition.want(now_ms) {
                Want::Nothing => return,
                Want::Wait(until_ms) => {
                    if std::mem::replace(&mut self.looks_at_ms, until_ms) != until_ms {
                        schedule.after_ms(until_ms.saturating_sub(now_ms) as i64, Event::Look);
                    }
                    return;
                }
                Want::LeaveLane => self.left_lane(schedule),
                Want::SourceMetadata => return self.look_at_source(schedule),
                Want::Fetch(leader, aligned, generation) => {
                    self.partition.joined_lane();
                    self.begin_lane(leader, aligned, generation, schedule);
                }
                Want::CloseGate if self.broken == Broken::GateNotClosed => {
                    let late = self.order_for(Want::CloseGate, schedule);
                    let late = Message::Order((self.life, u64::MAX), late);
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
                    let order = self.order_for(want, schedule);
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
                Message::Order((self.life, 0), Order::Complete(self.mirror, version)),
                schedule,
            );
        }
    }

    fn is_stopping(&self) -> bool {
        self.partition.bound().desired == DesiredState::Stopping && !self.partition.has_stopped()
    }

    fn order_for(&self, want: Want, schedule: &Schedule<Event>) -> Order {
        let version = self.partition.bound().version;
        match want {
            Want::WriteState(state) => Order::Write(Box::new(self.writing(state, schedule))),
            Want::Compare(leader) => Order::Compare(Box::new(self.comparing(leader, Looks::Only))),
            Want::Search(leader) => Order::Compare(Box::new(self.comparing(leader, Looks::AndSearches))),
            Want::Truncate(cutting) => Order::Cut(cut_order(&cutting, version), cutting),
            Want::RaiseEpoch(above) => Order::Raise(above),
            Want::CloseGate => Order::Gate(GateOrder { partition: PARTITION, gate: Gate::Closed, version }),
            Want::OpenGate => Order::Gate(GateOrder { partition: PARTITION, gate: Gate::Open, version }),
            Want::Flush => Order::Flush,
            Want::EndLog => match self.partition.position() {
                Some(position) => Order::EndLog(EndOrder {
                    partition: PARTITION,
                    version,
                    position,
                    source_cluster_id: Some(self.source.cluster.id()),
                }),
                None => Order::Read(self.mirror),
            },
            _ => Order::Read(self.mirror),
        }
    }

    fn comparing(&self, leader: SourceLeader, looks: Looks) -> Comparing {
        let (content, position) = (self.partition.content(), self.partition.last_position());
        Comparing::new(leader, looks, (content, position), self.source.cluster.id(), self.broken)
    }

    pub(super) fn look_at_source(&mut self, schedule: &mut Schedule<Event>) {
        if !std::mem::replace(&mut self.asks_metadata, true) {
            let order = Message::Order((self.life, 0), Order::SourceMetadata(self.source.cluster));
            self.send(Channel::ManagerToOthers, order, schedule);
        }
    }

    fn order(&mut self, order: Order, schedule: &mut Schedule<Event>) {
        let channel = match &order {
            Order::Gate(_) | Order::Flush | Order::EndLog(_) | Order::Cut(..) => Channel::ManagerToCore,
            Order::Compare(comparing) if comparing.asks() == Asks::Here => Channel::ManagerToCore,
            _ => Channel::ManagerToOthers,
        };
        let task = (self.life, self.tasks);
        let may_repeat = !matches!(order, Order::Cut(..));
        if may_repeat && !self.at_rest && self.repeats > 0 && self.rng.u32(..100) < self.repeats {
            schedule.tally("order repeated");
            let again = Message::Order((task.0, u64::MAX), order.clone());
            let delay_ms = self.rng.i64(1..2000);
            self.send_later(delay_ms, again, schedule);
        }
        self.send(channel, Message::Order(task, order), schedule);
    }

    /// An answer has come back to the node; to the step that waits for it, if any does.
    pub(super) fn take_answer(
        &mut self,
        task: Task,
        answer: Answer,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let now_ms = now_ms(schedule);
        match answer {
            Answer::SourceMetadata(cluster, looked) => {
                // What another cluster has is nothing to the mirror that there is now.
                let looked = if cluster == self.source.cluster { looked } else { Looked::Nothing };
                self.looked(looked, schedule);
                return Ok(());
            }
            Answer::Completed(is_done) => {
                if !is_done {
                    self.completing = false;
                    schedule.after_ms(AGAIN_MS, Event::Look);
                }
                return Ok(());
            }
            _ if self.waits_for != Some(task.1) => {
                if matches!(answer, Answer::Cut(..)) {
                    schedule.tally("cut that nobody waits for any more");
                }
                return Ok(());
            }
            Answer::Comparing(comparing) => {
                self.order(Order::Compare(comparing), schedule);
                return Ok(());
            }
            _ => {}
        }
        self.waits_for = None;
        match &answer {
            Answer::Read(state) => {
                let version = state.state_version;
                let known = state.state.map(|state| KnownState::Known { state, version });
                self.core.set_known_state(known.unwrap_or(KnownState::None));
            }
            Answer::Written(written) => {
                let Written { state, version, .. } = **written;
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
            Answer::Written(written) => {
                let Written { state, state_epoch, version, position, known } = *written;
                match (state, position) {
                    (MirrorState::Stopping, Some(position)) => {
                        self.partition.stopping_written(position, known, state_epoch, version);
                    }
                    _ => self.partition.state_written(state, state_epoch, version),
                }
            }
            Answer::WrittenByOthers => {
                self.partition.state_unknown();
                self.fail(Reason::CoordinatorUnavailable, schedule);
            }
            Answer::GateClosed => self.partition.gate_closed(),
            Answer::GateOpened(generation) => self.partition.gate_opened(generation),
            Answer::Compared(leader, alignment) => {
                if self.partition.source() == Some(leader) {
                    self.compared(leader, &alignment, schedule)?;
                }
            }
            Answer::Apart(leader, why) => {
                if self.partition.source() == Some(leader) {
                    schedule.tally("common point searched for");
                    self.partition.apart(why);
                }
            }
            Answer::Cut(cutting, done, version) => {
                if version != self.partition.bound().version {
                    schedule.tally("cut that is answered under the next version");
                }
                self.partition.truncated(&cutting, &done, version);
            }
            Answer::CutRefused(reason) => {
                self.partition.truncation_refused();
                self.fail(reason, schedule);
            }
            Answer::SourceLost => self.source_lost(schedule),
            Answer::Raised(above) => self.partition.raise_asked(above, now_ms),
            Answer::Flushed(ends) => {
                if self.has_another_log(&ends)? {
                    schedule.tally("position of another log");
                    self.partition.position_is_void();
                }
                self.partition.flushed(&ends);
            }
            Answer::Ended(ended) => self.partition.log_ended(ended),
            Answer::EndRefused(reason) => {
                self.partition.end_refused();
                self.fail(reason, schedule);
            }
            Answer::Failed(reason) => self.fail(reason, schedule),
            Answer::SourceMetadata(..) | Answer::Comparing(_) | Answer::Completed(_) => {}
        }
        Ok(())
    }

    /// Histories were compared.
    fn compared(
        &mut self,
        leader: SourceLeader,
        alignment: &Alignment,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        schedule.tally(match alignment {
            Alignment::GoOn(_) => "history compared",
            Alignment::Diverged(_) => "history parted",
            Alignment::LocalRecords(_) => "local records found",
        });
        let Bound { truncation, version, .. } = self.partition.bound();
        let is_allowed = match self.broken {
            Broken::ConsentNotAsked => true,
            Broken::ConsentKept => truncation == Truncation::Allowed,
            _ => false,
        };
        let allowed = Allowed { consent: is_allowed, divergence_records_max: None };
        if let (true, Some(Ok(cutting))) = (is_allowed, alignment.truncation(allowed)) {
            // What is broken: nobody asks the partition, which takes it for an order that was refused.
            self.tasks += 1;
            self.waits_for = Some(self.tasks);
            self.partition.truncation_refused();
            self.partition.begin(Want::Truncate(cutting));
            self.order(Order::Cut(cut_order(&cutting, version), cutting), schedule);
            return Ok(());
        }
        self.partition.compared(alignment, self.consents.records_max);
        if let Alignment::GoOn(GoOn { gap: Some(gap), .. }) = *alignment
            && self.partition.missed(gap) > 0
        {
            schedule.tally("removed before it was copied");
        }
        match alignment {
            Alignment::GoOn(_) if self.source.is_as_told(leader.epoch.0) => {
                self.core.oracle.check_common(&self.source)
            }
            _ => Ok(()),
        }
    }

    /// The source's metadata have been looked at.
    fn looked(&mut self, looked: Looked, schedule: &mut Schedule<Event>) {
        self.asks_metadata = false;
        let now_ms = now_ms(schedule);
        if looked != Looked::Missing {
            self.missed_at_ms = None;
        }
        match looked {
            Looked::Nothing => schedule.after_ms(AGAIN_MS, Event::Look),
            Looked::Leader(leader) => self.partition.source_seen(Some(leader)),
            Looked::Another => self.fail(Reason::SourceTopicRecreated, schedule),
            Looked::Missing => {
                let missed_ms = now_ms - *self.missed_at_ms.get_or_insert(now_ms);
                schedule.after_ms(AGAIN_MS, Event::Look);
                if self.partition.want(now_ms) != Want::SourceMetadata {
                    return;
                }
                self.fail(
                    match missed_ms >= DELETED_LOOKS_APART_MS {
                        true => Reason::SourceTopicDeleted,
                        false => Reason::SourceLeaderUnknown,
                    },
                    schedule,
                );
            }
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

fn cut_order(cutting: &TruncationPlan, version: i64) -> TruncateOrder {
    let &TruncationPlan { log_end, truncate, export_from, .. } = cutting;
    TruncateOrder { partition: PARTITION, version, log_end, truncate, export_from }
}

fn persisted(state: &PartitionState) -> Persisted {
    Persisted {
        state: state.state,
        state_epoch: state.state_epoch,
        version: state.state_version,
        previous: state.previous_state,
        reason: state.reason_code.as_ref().and_then(|code| Reason::from_code(code)),
        message: state.error_message.as_ref().map(|message| Arc::from(&**message)),
        position: state
            .position
            .map(|position| LastPosition { epoch: position.epoch, offset: position.offset }),
    }
}

pub(super) fn now_ms(schedule: &Schedule<Event>) -> u64 {
    schedule.now_ms().unsigned_abs()
}
