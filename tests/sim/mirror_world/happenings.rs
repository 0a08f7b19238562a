//! What happens of itself in the world: to the source, to the node, and by the hands of clients and operators.

use tarn_image::DesiredState;
use tarn_mirror::partition::Partition;
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::TimestampType;

use super::flushing::FlushedFor;
use super::manager::{Answer, Order};
use super::network::{Channel, Message};
use super::{MirrorWorld, leads};
use crate::log_world::batches::{self, Place, Sent};
use crate::simulation::{Schedule, Violation};

/// A client's idempotent producer, which the source does not know.
const CLIENT: i64 = 50;

/// What an operator commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Start,
    Pause,
    Resume,
    Stop,
    Recover,
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    SourceWrites,
    /// The source's next leader has all batches.
    Election,
    /// It lacks the newest.
    UncleanElection,
    SourceGoes,
    SourceComesBack,
    /// The source's metadata are looked at.
    LooksAtSource,
    LinkBreaks,
    ClientWrites,
    Command(Verb),
    /// The machine stops and starts again; sometimes the coordinator's with it.
    Crash,
    CoordinatorCrashes,
    /// The manager looks at the partition.
    Look,
    /// A message arrives, of this kind.
    Arrives(u64, &'static str),
}

/// What happens of itself, with the largest weight that a seed may give it.
pub(super) const DRAWN: &[(Event, u32)] = &[
    (Event::SourceWrites, 40),
    (Event::Election, 3),
    (Event::UncleanElection, 1),
    (Event::SourceGoes, 3),
    (Event::SourceComesBack, 6),
    (Event::LooksAtSource, 20),
    (Event::LinkBreaks, 3),
    (Event::ClientWrites, 20),
    (Event::Command(Verb::Start), 3),
    (Event::Command(Verb::Pause), 2),
    (Event::Command(Verb::Resume), 4),
    (Event::Command(Verb::Stop), 4),
    (Event::Command(Verb::Recover), 3),
    (Event::Crash, 2),
    (Event::CoordinatorCrashes, 2),
];

impl MirrorWorld {
    pub(super) fn happen(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        match event {
            Event::SourceWrites if self.source.is_gone => {}
            Event::SourceWrites => self.source.write(&mut self.rng, schedule.now_ms()),
            Event::Election => {
                schedule.tally("clean election");
                self.source.elect(self.rng.i32(1..6), 0);
            }
            Event::UncleanElection => {
                schedule.tally("election that lost records");
                self.source.elect(self.rng.i32(1..6), self.rng.usize(1..4));
            }
            Event::SourceGoes => {
                schedule.tally("source gone");
                self.source.is_gone = true;
            }
            Event::SourceComesBack => self.source.is_gone = false,
            Event::LooksAtSource => self.look_at_source(schedule),
            Event::LinkBreaks => {
                schedule.tally("link broken");
                if self.lane.is_some() {
                    self.leave();
                }
            }
            Event::ClientWrites => {
                let id = if self.rng.bool() { CLIENT } else { -1 };
                self.client_writes(id, schedule)?;
            }
            Event::Command(verb) => self.command(verb, schedule),
            Event::Crash => self.crash(schedule)?,
            Event::CoordinatorCrashes => {
                schedule.tally("crash of the coordinator");
                self.states.crash(&mut self.rng)?;
                // Who waits for an answer of it is told that it is elsewhere.
                for message in self.messages.values_mut() {
                    if let Message::StatesFlushed(_, task, _) = message {
                        *message = Message::Answer(*task, Answer::Failed(Reason::CoordinatorUnavailable));
                    }
                }
            }
            Event::Look => {}
            Event::Arrives(number, _) => {
                if let Some(message) = self.messages.remove(&number) {
                    self.arrived(message, schedule)?;
                }
            }
        }
        Ok(())
    }

    fn command(&mut self, verb: Verb, schedule: &mut Schedule<Event>) {
        schedule.tally(match (self.controller.command(verb), verb) {
            (false, _) => "command refused",
            (true, Verb::Start) => "start",
            (true, Verb::Pause) => "pause",
            (true, Verb::Resume) => "resume",
            (true, Verb::Stop) => "stop",
            (true, Verb::Recover) => "recover",
        });
        self.publish(schedule);
    }

    /// The metadata in force are on their way to whoever acts on them.
    pub(super) fn publish(&mut self, schedule: &mut Schedule<Event>) {
        let (bound, binding) = (self.controller.bound(), self.controller.binding().clone());
        self.send(Channel::MetadataToCore, Message::CoreLearns(bound, binding), schedule);
        self.send(Channel::MetadataToManager, Message::ManagerLearns(bound), schedule);
    }

    /// A client's write; accepted only where the partition is STOPPED for all to see.
    pub(super) fn client_writes(&mut self, id: i64, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let first_sequence = if id < 0 { -1 } else { self.client_sequence };
        let epoch = if id < 0 { -1 } else { 0 };
        let sent = Sent { id, epoch, first_sequence, records: self.rng.i32(1..3), transactional: false };
        let place = Place { base: 0, epoch: 0, now_ms: schedule.now_ms() };
        let batch = batches::records(&mut self.rng, sent, place, TimestampType::CreateTime).client;
        let before = self.core.oracle.end();
        let taken = self.core.append_local(&batch, schedule.now_ms())?;
        match taken {
            None if id >= 0 => self.client_sequence = 0,
            Some(_) if id >= 0 => self.client_sequence += sent.records,
            _ => {}
        }
        schedule.tally(if taken.is_some() { "client write" } else { "client write refused" });
        if self.core.oracle.end() > before {
            let desired = self.core.replica.binding().map(|binding| binding.desired.desired);
            let durable = self.states.durable()?.state;
            let is_wanted = matches!(desired, Some(DesiredState::Stopping | DesiredState::Stopped));
            if !is_wanted || durable != Some(MirrorState::Stopped) {
                let text = format!("a client wrote while {desired:?} is wanted and {durable:?} is written");
                return Err(Violation::new("writable", text));
            }
        }
        if taken.is_some() {
            self.flush_for(FlushedFor::Client, schedule);
        }
        Ok(())
    }

    /// The machine of the node stops, and the process starts on what its disk has kept.
    pub(super) fn crash(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.tally("crash");
        // What is on its way to the controller or the coordinator arrives; what waits here is gone.
        self.messages.retain(|_, message| {
            matches!(
                message,
                Message::Order(_, Order::Raise(_) | Order::Complete(_) | Order::Write(..))
                    | Message::StatesFlushed(..)
            )
        });
        if self.rng.bool() {
            self.states.crash(&mut self.rng)?;
            self.messages.retain(|_, message| !matches!(message, Message::StatesFlushed(..)));
        }
        if self.rng.bool() {
            self.controller.raise_epoch(self.controller.bound().leader_epoch);
        }
        let (bound, binding) = (self.controller.bound(), self.controller.binding().clone());
        self.core.crash(leads(bound), schedule.now_ms())?;
        self.core.learns(leads(bound), binding);
        self.life += 1;
        (self.waits_for, self.completing, self.asks_metadata) = (None, false, false);
        self.lane = None;
        self.flushing = false;
        self.wait_for_flush.clear();
        self.client_sequence = 0;
        self.partition = Partition::new(bound);
        Ok(())
    }

    pub(super) fn schedule_next(&mut self, schedule: &mut Schedule<Event>) {
        let all: u32 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.rng.u32(..all);
        for &(event, weight) in &self.weights {
            if drawn < weight {
                schedule.after_ms(self.rng.i64(1..100), event);
                return;
            }
            drawn -= weight;
        }
    }
}

/// Which events a seed has, and how often.
pub(super) fn draw_weights(rng: &mut fastrand::Rng) -> Vec<(Event, u32)> {
    let draw = |&(event, most): &(Event, u32)| {
        let drawn = if rng.bool() { rng.u32(1..=most) } else { 0 };
        let is_needed = matches!(event, Event::SourceWrites | Event::LooksAtSource);
        (event, if is_needed { drawn.max(most / 4) } else { drawn })
    };
    DRAWN.iter().map(draw).collect()
}
