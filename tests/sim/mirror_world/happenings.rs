//! What happens of itself in the world: to the source, to the node, and by the hands of clients and operators.

use tarn_image::DesiredState;
use tarn_image::mirrors::Truncation;
use tarn_mirror::reasons::Reason;
use tarn_record::TimestampType;

use super::MirrorWorld;
use super::aims::Meanwhile;
use super::flushing::FlushedFor;
use super::manager::Answer;
use super::network::{Channel, Message};
use crate::disk::Faults;
use crate::log_world::batches::{self, Place, Sent};
use crate::simulation::{Schedule, Violation};

/// A client's idempotent producer, which the source does not know.
const CLIENT: i64 = 50;

/// What an operator commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// With the mirror that has the topic, or had it last.
    Start(Truncation),
    /// With the other one.
    StartOther(Truncation),
    Pause,
    Resume,
    Stop,
    Recover(Truncation),
    /// To delete the mirror that has the topic.
    Delete,
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
    /// Somebody else has the leader epoch here raised.
    LedAnew,
    /// What voids an append that is late.
    Meanwhile(Meanwhile),
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
    (Event::Command(Verb::StartOther(Truncation::Refused)), 1),
    (Event::Command(Verb::StartOther(Truncation::Allowed)), 3),
    (Event::Command(Verb::Delete), 3),
    (Event::Command(Verb::Pause), 3),
    (Event::Command(Verb::Resume), 4),
    (Event::Command(Verb::Stop), 2),
    (Event::Command(Verb::Recover(Truncation::Refused)), 2),
    (Event::Command(Verb::Recover(Truncation::Allowed)), 3),
    (Event::Crash, 2),
    (Event::LedAnew, 1),
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
                let raise = self.raise();
                self.source.elect(raise, 0);
            }
            Event::UncleanElection => {
                schedule.tally("election that lost records");
                let raise = self.raise();
                self.source.elect(raise, self.rng.usize(1..4));
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
            Event::SourceComesBack | Event::FlapEnds => {
                self.source.is_gone = false;
                self.source.fetching.loses_session();
            }
            Event::LooksAtSource => self.look_at_source(schedule),
            Event::LinkBreaks => {
                schedule.tally("link broken");
                self.connect();
                if self.lane.is_some() {
                    self.leave(schedule);
                }
            }
            Event::ClientWrites => {
                let id = if self.rng.bool() { CLIENT } else { -1 };
                self.client_writes(id, schedule)?;
            }
            Event::Command(verb) => {
                self.command(verb, schedule)?;
                if verb == Verb::Pause && self.rng.bool() {
                    schedule.after_ms(self.rng.i64(0..20), Event::ChangesMind);
                }
            }
            Event::ChangesMind => self.command(Verb::Resume, schedule)?,
            Event::Crash => self.crash(schedule)?,
            Event::LedAnew => {
                schedule.tally("leader epoch raised by others");
                self.controller.raise_epoch(self.controller.bound().leader_epoch);
                self.publish(schedule);
            }
            Event::Meanwhile(meanwhile) => self.meanwhile(meanwhile, schedule)?,
            Event::CoordinatorCrashes => {
                schedule.tally("crash of the coordinator");
                self.coordinator_crashes(schedule)?;
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

    /// By how much an election raises the epoch: a few, or past all that the leader here is ahead.
    fn raise(&mut self) -> i32 {
        if self.rng.u8(..4) == 0 { self.rng.i32(10..40) } else { self.rng.i32(1..6) }
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

    pub(super) fn command(&mut self, verb: Verb, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let version = self.controller.bound().version;
        let mirror = self.controller.mirror_of(verb);
        if matches!(verb, Verb::Start(_) | Verb::StartOther(_)) {
            self.make_again(mirror, schedule)?;
        }
        let is_done = self.controller.command(verb);
        if let (true, Verb::Delete, Some(version)) = (is_done, verb, self.controller.gone(mirror)) {
            self.send(Channel::MetadataToCoordinator, Message::Gone(mirror, version), schedule);
        }
        schedule.tally(match (is_done, verb) {
            (false, _) => "command refused",
            (true, Verb::Start(Truncation::Allowed)) => "start with consent",
            (true, Verb::StartOther(Truncation::Allowed)) => "start by the other mirror, with consent",
            (true, Verb::StartOther(_)) => "start by the other mirror",
            (true, Verb::Recover(Truncation::Allowed)) => "recover with consent",
            (true, Verb::Start(_)) => "start",
            (true, Verb::Pause) => "pause",
            (true, Verb::Resume) => "resume",
            (true, Verb::Stop) => "stop",
            (true, Verb::Recover(_)) => "recover",
            (true, Verb::Delete) => "mirror deleted",
        });
        let bound = self.controller.bound();
        if bound.version != version && bound.truncation == Truncation::Allowed {
            self.consents.given(bound.version);
        }
        self.publish(schedule);
        Ok(())
    }

    /// The metadata in force are on their way to whoever acts on them.
    pub(super) fn publish(&mut self, schedule: &mut Schedule<Event>) {
        let metadata = Box::new(self.controller.metadata());
        self.send(Channel::MetadataToCore, Message::CoreLearns(metadata.clone()), schedule);
        self.send(Channel::MetadataToManager, Message::ManagerLearns(metadata), schedule);
    }

    /// A client's write; accepted only where the partition is STOPPED for all to see.
    pub(super) fn client_writes(&mut self, id: i64, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let first_sequence = if id < 0 { -1 } else { self.client_sequence };
        let epoch = if id < 0 { -1 } else { 0 };
        let sent = Sent { id, epoch, first_sequence, records: self.rng.i32(1..3), transactional: false };
        let place = Place { base: 0, epoch: 0, now_ms: schedule.now_ms() };
        let batch = batches::records(&mut self.rng, sent, place, TimestampType::CreateTime).client;
        let taken = self.core.append_local(&batch, self.mirror_life(), schedule.now_ms())?;
        match taken {
            None if id >= 0 => self.client_sequence = 0,
            Some(_) if id >= 0 => self.client_sequence += sent.records,
            _ => {}
        }
        schedule.tally(if taken.is_some() { "client write" } else { "client write refused" });
        if taken.is_some() {
            self.flush_for(FlushedFor::Client, schedule);
        }
        Ok(())
    }

    pub(super) fn schedule_next(&mut self, schedule: &mut Schedule<Event>) {
        let all: u32 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.rng.u32(..all);
        for &(event, weight) in &self.weights {
            if drawn < weight {
                schedule.after_ms(self.rng.i64(1..self.pace_ms), event);
                return;
            }
            drawn -= weight;
        }
    }
}

/// Which events a seed has, and how often. In some seeds much is written between two of the others.
pub(super) fn draw_weights(rng: &mut fastrand::Rng) -> Vec<(Event, u32)> {
    let calm = [1, 4, 16][rng.usize(..3)];
    let draw = |&(event, most): &(Event, u32)| {
        let drawn = if rng.bool() { rng.u32(1..=most) } else { 0 };
        let is_needed = match event {
            Event::SourceWrites | Event::LooksAtSource => true,
            // Some sources are gone for good.
            Event::SourceComesBack | Event::TopicCreatedAgain => rng.u8(..4) > 0,
            _ => false,
        };
        let weight = if is_needed { drawn.max(most / 4) } else { drawn };
        (event, if event == Event::SourceWrites { weight * calm } else { weight })
    };
    DRAWN.iter().map(draw).collect()
}
