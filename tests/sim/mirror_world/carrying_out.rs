//! Orders of the manager where they are carried out: by the coordinator, the owning core, the controller and the
//! source. Some get lost on the way there, some answers on the way back.

use tarn_mirror::local_cluster::{Gate, LocalError};
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::metadata::SourceLeader;
use tarn_mirror::state::MirrorState;
use tarn_record::{BrokerId, Epoch};

use super::MirrorWorld;
use super::comparing::{Answered, Asks, Comparing};
use super::cutting::Ordered;
use super::flushing::FlushedFor;
use super::happenings::Event;
use super::manager::{Answer, Looked, Order, Task};
use super::network::{Channel, Message};
use crate::simulation::{Schedule, Violation};

/// The broker that always leads at the source; its epoch tells leaders apart.
pub(super) const THERE: BrokerId = BrokerId(1);

impl MirrorWorld {
    /// An order has arrived where it is carried out.
    pub(super) fn carry_out(
        &mut self,
        task: Task,
        order: Order,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let lost = match &order {
            Order::Read(_) | Order::Write(..) => Answer::Failed(Reason::CoordinatorUnavailable),
            Order::Gate(_) => Answer::Failed(Reason::DestinationNoLeader),
            Order::Compare(comparing) => Answer::Failed(match comparing.asks() {
                Asks::Here => Reason::DestinationNoLeader,
                Asks::There => Reason::SourceUnreachable,
            }),
            Order::Cut(..) => Answer::CutRefused(Reason::DestinationNoLeader),
            Order::Raise(_) => Answer::Failed(Reason::ControllerUnavailable),
            Order::Flush | Order::EndLog(_) => Answer::Failed(Reason::DestinationStorage),
            Order::SourceMetadata(cluster) => Answer::SourceMetadata(*cluster, Looked::Nothing),
            Order::Complete(..) => Answer::Completed(false),
        };
        if !self.at_rest && self.rng.u32(..100) < self.losses {
            schedule.tally("order lost");
            self.send(Channel::ToManager, Message::Answer(task, lost), schedule);
            return Ok(());
        }
        let loses_answer = !self.at_rest && self.rng.u32(..100) < self.losses;
        let answer = match order {
            Order::Read(mirror) => {
                let answer = Answer::Read(self.states.read(mirror));
                return self.answer_flushed(task, if loses_answer { lost } else { answer }, schedule);
            }
            Order::Write(writing) => {
                let answer = self.write_state(*writing, schedule)?;
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
            Order::Compare(comparing) => self.compare(*comparing)?,
            Order::Cut(order, cutting) => {
                self.begin_cut(Ordered { task, order, cutting }, schedule);
                return Ok(());
            }
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
            Order::EndLog(order) => {
                match self.core.append_end(&order, self.mirror_life(), schedule.now_ms())? {
                    Ok(ended) => {
                        schedule.tally(if ended.aborted_count > 0 {
                            "log ended with open transactions"
                        } else {
                            "log ended"
                        });
                        self.flush_for(FlushedFor::End(task, loses_answer, ended), schedule);
                        return Ok(());
                    }
                    Err(LocalError::Storage { .. }) => {
                        schedule.tally("end refused by the disk");
                        Answer::EndRefused(Reason::DestinationStorage)
                    }
                    Err(_) => {
                        schedule.tally("end refused");
                        Answer::EndRefused(Reason::DestinationNoLeader)
                    }
                }
            }
            Order::SourceMetadata(cluster) if cluster == self.source.cluster => {
                Answer::SourceMetadata(cluster, self.look_there())
            }
            Order::SourceMetadata(_) => lost.clone(),
            Order::Complete(mirror, version) => {
                let is_stopped = self.states.read(mirror);
                let all_stopped = is_stopped.state == Some(MirrorState::Stopped)
                    && is_stopped.state_version == version
                    && self.states.has_flushed(self.states.end());
                let completed = all_stopped && self.controller.complete(mirror, version);
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

    /// One step of a comparison.
    fn compare(&mut self, comparing: Comparing) -> Result<Answer, Violation> {
        let leader = comparing.leader;
        let answered = match comparing.asks() {
            Asks::Here => comparing.answered_here(&self.core)?,
            Asks::There if self.source.is_gone => Answered::Failed(Reason::SourceUnreachable),
            Asks::There => comparing.answered_there(&mut self.source, &mut self.rng),
        };
        Ok(match answered {
            Answered::GoesOn(comparing) => Answer::Comparing(comparing),
            Answered::Done(alignment) => Answer::Compared(leader, alignment),
            Answered::Apart(why) => Answer::Apart(leader, why),
            Answered::SourceLost => Answer::SourceLost,
            Answered::Failed(reason) => Answer::Failed(reason),
        })
    }

    fn look_there(&self) -> Looked {
        match &self.source {
            source if source.is_gone => Looked::Nothing,
            source if source.is_deleted => Looked::Missing,
            source if source.is_another() => Looked::Another,
            source => Looked::Leader(SourceLeader { broker: THERE, epoch: Epoch(source.epoch()) }),
        }
    }
}
