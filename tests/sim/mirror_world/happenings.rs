//! What happens of itself in the world: to the source, to the node, and by the hands of clients and operators.

use tarn_image::DesiredState;
use tarn_image::mirrors::Truncation;
use tarn_mirror::partition::Partition;
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::TimestampType;

use super::flushing::FlushedFor;
use super::manager::{Answer, Order};
use super::network::{Channel, Message};
use super::{MirrorWorld, leads};
use crate::disk::Faults;
use crate::log_world::batches::{self, Place, Sent};
use crate::simulation::{Schedule, Violation};

/// A client's idempotent producer, which the source does not know.
const CLIENT: i64 = 50;

/// What an operator commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Start(Truncation),
    Pause,
    Resume,
    Stop,
    Recover(Truncation),
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    SourceWrites,
    /// The source's next leader has all batches.
    Election,
    /// It lacks the newest.
    UncleanElection,
    /// It is restored from a backup, which lacks the newest too, while nobody can reach it.
    Restored,
    /// It removes its oldest records.
    SourceRemoves,
    TopicDeleted,
    TopicCreatedAgain,
    SourceGoes,
    /// It goes, and is back before long.
    SourceFlaps,
    FlapEnds,
    SourceComesBack,
    /// The source's metadata are looked at.
    LooksAtSource,
    LinkBreaks,
    ClientWrites,
    Command(Verb),
    /// The operator resumes what was paused just now.
    ChangesMind,
    /// The machine stops and starts again; sometimes the coordinator's with it.
    Crash,
    CoordinatorCrashes,
    /// The disk here takes nothing more.
    DiskFills,
    DiskHasRoom,
    /// The next flush fails, and the process ends.
    FlushFails,
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
    (Event::Restored, 2),
    (Event::SourceRemoves, 3),
    (Event::TopicDeleted, 2),
    (Event::TopicCreatedAgain, 10),
    (Event::SourceGoes, 3),
    (Event::SourceFlaps, 3),
    (Event::SourceComesBack, 6),
    (Event::LooksAtSource, 20),
    (Event::LinkBreaks, 3),
    (Event::ClientWrites, 20),
    (Event::Command(Verb::Start(Truncation::Refused)), 2),
    (Event::Command(Verb::Start(Truncation::Allowed)), 4),
    (Event::Command(Verb::Pause), 3),
    (Event::Command(Verb::Resume), 4),
    (Event::Command(Verb::Stop), 2),
    (Event::Command(Verb::Recover(Truncation::Refused)), 2),
    (Event::Command(Verb::Recover(Truncation::Allowed)), 3),
    (Event::Crash, 2),
    (Event::CoordinatorCrashes, 2),
    (Event::DiskFills, 2),
    (Event::DiskHasRoom, 4),
    (Event::FlushFails, 1),
];

impl MirrorWorld {
    pub(super) fn happen(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        match event {
            Event::SourceWrites if self.source.is_gone || self.source.is_deleted => {}
            Event::SourceWrites => self.source.write(&mut self.rng, schedule.now_ms()),
            Event::Election => {
                schedule.tally("clean election");
                self.source.elect(self.rng.i32(1..6), 0);
            }
            Event::UncleanElection => {
                schedule.tally("election that lost records");
                self.source.elect(self.rng.i32(1..6), self.rng.usize(1..4));
            }
            Event::Restored if self.source.is_gone && self.may_become_another() => {
                schedule.tally("source restored from a backup");
                self.source.restore(self.rng.usize(1..6));
            }
            Event::Restored => {}
            Event::SourceRemoves => {
                schedule.tally("log start moved");
                let start = self.rng.i64(self.source.start()..=self.source.end());
                self.source.delete_below(start);
            }
            // Epochs alone would not tell the next one from it.
            Event::TopicDeleted if self.source.is_compacted && !self.source.has_ids() => {}
            Event::TopicDeleted if self.source.is_deleted => {}
            Event::TopicDeleted => {
                schedule.tally("topic deleted");
                self.source.is_deleted = true;
            }
            Event::TopicCreatedAgain
                if self.source.is_deleted && (self.source.has_ids() || self.may_become_another()) =>
            {
                schedule.tally("topic created again");
                self.source.create_again(self.rng.i32(0..8));
            }
            Event::TopicCreatedAgain => {}
            Event::SourceGoes | Event::SourceFlaps if self.source.is_gone => {}
            Event::SourceFlaps => {
                schedule.tally("source flaps");
                self.source.is_gone = true;
                schedule.after_ms(self.rng.i64(1..100), Event::FlapEnds);
            }
            Event::SourceGoes => {
                schedule.tally("source gone");
                self.source.is_gone = true;
            }
            Event::SourceComesBack | Event::FlapEnds => self.source.is_gone = false,
            Event::LooksAtSource => self.look_at_source(schedule),
            Event::LinkBreaks => {
                schedule.tally("link broken");
                if self.lane.is_some() {
                    self.leave(schedule);
                }
            }
            Event::ClientWrites => {
                let id = if self.rng.bool() { CLIENT } else { -1 };
                self.client_writes(id, schedule)?;
            }
            Event::Command(verb) => {
                self.command(verb, schedule);
                if verb == Verb::Pause && self.rng.bool() {
                    schedule.after_ms(self.rng.i64(0..20), Event::ChangesMind);
                }
            }
            Event::ChangesMind => self.command(Verb::Resume, schedule),
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
            Event::DiskFills => {
                schedule.tally("disk full");
                let faults = self.core.disk.faults();
                self.core.disk.set_faults(Faults { full: true, ..faults });
            }
            Event::DiskHasRoom => {
                let faults = self.core.disk.faults();
                self.core.disk.set_faults(Faults { full: false, ..faults });
            }
            Event::FlushFails => {
                schedule.tally("disk that fails");
                let faults = self.core.disk.faults();
                self.core.disk.set_faults(Faults { sync_fails: true, ..faults });
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

    /// What is compacted differs from its source as it is, so that epochs alone have to tell histories apart.
    fn may_become_another(&self) -> bool {
        self.is_seen_to_be_away() && !self.source.is_compacted
    }

    /// A history that changes without a new leader epoch or topic id takes the source longer than any question or
    /// answer is on its way: whoever asked it before has been refused meanwhile, and asks anew.
    pub(super) fn is_seen_to_be_away(&self) -> bool {
        let is_left = self.lane.is_none() && self.waits_for.is_none();
        let is_asked = self.partition.bound().desired == DesiredState::Mirroring && !self.is_stuck();
        is_left && (self.partition.source().is_none() || !is_asked)
    }

    pub(super) fn command(&mut self, verb: Verb, schedule: &mut Schedule<Event>) {
        let version = self.controller.bound().version;
        schedule.tally(match (self.controller.command(verb), verb) {
            (false, _) => "command refused",
            (true, Verb::Start(Truncation::Allowed)) => "start with consent",
            (true, Verb::Recover(Truncation::Allowed)) => "recover with consent",
            (true, Verb::Start(_)) => "start",
            (true, Verb::Pause) => "pause",
            (true, Verb::Resume) => "resume",
            (true, Verb::Stop) => "stop",
            (true, Verb::Recover(_)) => "recover",
        });
        let bound = self.controller.bound();
        if bound.version != version && bound.truncation == Truncation::Allowed {
            self.consents.given(bound.version);
        }
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
                Message::Order(_, Order::Raise(_) | Order::Complete(_) | Order::Write(_))
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
        self.core.crash(leads(bound), &self.source, schedule.now_ms())?;
        self.consents.crashed();
        (self.unsaid, self.known, self.told, self.missed_at_ms) = (None, None, None, None);
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
        let is_needed = match event {
            Event::SourceWrites | Event::LooksAtSource => true,
            // Some sources are gone for good.
            Event::SourceComesBack | Event::TopicCreatedAgain => rng.u8(..4) > 0,
            _ => false,
        };
        (event, if is_needed { drawn.max(most / 4) } else { drawn })
    };
    DRAWN.iter().map(draw).collect()
}
