//! What is on its way in the world, for how long, and where it arrives.

use super::comparing::Asks;
use super::cutting::{Cut, Ordered};
use super::flushing::FlushedFor;
use super::happenings::Event;
use super::lane::OfLane;
use super::manager::{Answer, Order, Task};
use super::mirrors::{Metadata, Mirror};
use super::owning_core::Flushing;
use super::{MirrorWorld, QUICK_MS, leads};
use crate::simulation::{Schedule, Violation};

/// What is on its way.
pub(super) enum Message {
    /// To whoever carries it out.
    Order(Task, Order),
    /// To the life of the node that gave the order.
    Answer(Task, Answer),
    /// The coordinator's log is flushed up to here, which an answer waits for.
    StatesFlushed(usize, Task, Answer),
    /// The log here is about to be cut.
    Cut(Ordered, Box<Cut>),
    /// The log here is flushed.
    Flushed(Flushing, Vec<FlushedFor>),
    /// The owning core learns of new metadata.
    CoreLearns(Box<Metadata>),
    /// So does the manager.
    ManagerLearns(Box<Metadata>),
    /// The coordinator hears that this mirror is gone, with all bindings up to this version.
    Gone(Mirror, i64),
    /// Between a lane, the source and the owning core.
    OfLane(u64, OfLane),
}

/// Messages from one sender to one receiver keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Channel {
    ManagerToCore,
    ManagerToOthers,
    LaneToCore,
    LaneToSource,
    MetadataToCore,
    MetadataToManager,
    MetadataToCoordinator,
    ToManager,
    ToLane,
    Disk,
    LongDisk,
    CoordinatorsDisk,
}

impl MirrorWorld {
    pub(super) fn arrived(
        &mut self,
        message: Message,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        match message {
            Message::Order(task, order) => self.carry_out(task, order, schedule)?,
            Message::Answer(task, answer) => {
                if task.0 == self.life {
                    self.take_answer(task, answer, schedule)?;
                }
            }
            Message::StatesFlushed(upto, task, answer) => {
                self.states.flush(upto)?;
                self.send(Channel::ToManager, Message::Answer(task, answer), schedule);
            }
            Message::Flushed(flushing, waiting) => self.flushed(flushing, waiting, schedule),
            Message::Cut(ordered, cut) => self.go_on_cutting(ordered, *cut, schedule)?,
            Message::CoreLearns(metadata) => self.core.learns(leads(metadata.bound), metadata.binding),
            Message::ManagerLearns(metadata) => self.manager_learns(&metadata, schedule),
            Message::Gone(mirror, version) => {
                schedule.tally("mirror forgotten");
                self.states.forget(mirror, version)?;
            }
            Message::OfLane(serial, message) => self.of_lane(serial, message, schedule)?,
        }
        if self.core.replica.log().is_half_cut() {
            schedule.tally("log cut only in part");
        }
        if self.core.has_failed() {
            schedule.tally("process ended by its disk");
            self.crash(schedule)?;
        }
        Ok(())
    }

    /// A coordinator's answer leaves once all that it rests on is flushed.
    pub(super) fn answer_flushed(
        &mut self,
        task: Task,
        answer: Answer,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let upto = self.states.end();
        if self.states.has_flushed(upto) {
            self.send(Channel::ToManager, Message::Answer(task, answer), schedule);
        } else {
            let message = Message::StatesFlushed(upto, task, answer);
            self.send(Channel::CoordinatorsDisk, message, schedule);
        }
        Ok(())
    }

    pub(super) fn send(&mut self, channel: Channel, message: Message, schedule: &mut Schedule<Event>) {
        let now_ms = schedule.now_ms();
        if let Message::Answer(task, answer) = &message
            && !self.at_rest
            && self.repeats > 0
            && self.rng.u32(..100) < self.repeats
        {
            schedule.tally("answer repeated");
            let again = Message::Answer(*task, answer.clone());
            let delay_ms = self.rng.i64(1..500);
            self.send_later(delay_ms, again, schedule);
        }
        let most_ms = if self.rng.u8(..4) == 0 { self.slow_ms } else { QUICK_MS };
        let at_ms = (now_ms + self.rng.i64(0..most_ms)).max(*self.busy_until_ms.get(&channel).unwrap_or(&0));
        self.busy_until_ms.insert(channel, at_ms);
        self.send_later(at_ms - now_ms, message, schedule);
    }

    /// Sends outside of any order.
    pub(super) fn send_later(&mut self, delay_ms: i64, message: Message, schedule: &mut Schedule<Event>) {
        self.sent += 1;
        let kind = kind_of(&message);
        self.messages.insert(self.sent, message);
        schedule.after_ms(delay_ms, Event::Arrives(self.sent, kind));
    }
}

pub(super) fn kind_of(message: &Message) -> &'static str {
    match message {
        Message::Order(_, Order::Read(_)) => "read",
        Message::Order(_, Order::Write(_)) => "write",
        Message::Order(_, Order::Gate(_)) => "gate",
        Message::Order(_, Order::Compare(comparing)) => match comparing.asks() {
            Asks::Here => "compare here",
            Asks::There => "compare there",
        },
        Message::Order(_, Order::Cut(..)) => "cut",
        Message::Order(_, Order::Raise(_)) => "raise",
        Message::Order(_, Order::Flush) => "flush",
        Message::Order(_, Order::EndLog(_)) => "end log",
        Message::Order(_, Order::SourceMetadata(_)) => "source metadata",
        Message::Order(_, Order::Complete(..)) => "complete",
        Message::Answer(..) => "answer",
        Message::StatesFlushed(..) => "states flushed",
        Message::Cut(_, cut) => match **cut {
            Cut::Copy(_) => "copy",
            Cut::Drop(_) => "drop",
        },
        Message::Flushed(..) => "flushed",
        Message::CoreLearns(..) => "core learns",
        Message::ManagerLearns(_) => "manager learns",
        Message::Gone(..) => "gone",
        Message::OfLane(..) => "of the lane",
    }
}
