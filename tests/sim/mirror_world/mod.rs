//! A world of one mirrored partition and the day its source is gone.
//!
//! The partition's machine, the alignment, the coordinator, the owning core's rules, the log and the controller's
//! decisions are production code; what drives them, the source and the network between them are stand-ins. What is
//! said is on its way for a while: orders of one sender keep their order, but some are said again much later, orders
//! and answers get lost, and the machine stops at any time, aimed in half of the seeds at what follows one kind of
//! event. Each seed draws which of all that happens and how often.

mod controller;
mod lane;
mod manager;
mod oracle;
mod owning_core;
mod source;
mod states;

use std::collections::BTreeMap;

use tarn_broker::replica::Leadership;
use tarn_image::DesiredState;
use tarn_mirror::local_cluster::LogEnded;
use tarn_mirror::partition::{Bound, Partition};
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::TimestampType;

use crate::log_world::batches::{self, Place, Sent};
use crate::simulation::{Schedule, Violation, World};
use controller::Controller;
use lane::{Lane, OfLane};
use manager::{Answer, Order, Task};
use owning_core::{Flushing, OwningCore};
use source::Source;
use states::States;

/// How long the world may take to come to rest once the faults have stopped.
const REST_WITHIN_MS: i64 = 60_000;
/// How long a message mostly takes at most.
const QUICK_MS: i64 = 3;
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
const DRAWN: &[(Event, u32)] = &[
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

/// A rule left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Broken {
    #[default]
    Nothing,
    /// The gate is taken for closed long before the owning core closes it.
    GateNotClosed,
    /// What was asked for under an earlier opening of the gate is appended.
    StaleGenerationAccepted,
    /// Flushes reach no medium.
    FlushSkipped,
    /// The position of a stop that has begun is forgotten, and another one taken.
    PositionWrittenAgain,
    /// A restart forgets which transactions are open.
    MarkerLeftOut,
    /// STOPPED is written before the log is ended.
    StoppedBeforeEnd,
}

/// What is on its way.
enum Message {
    /// To whoever carries it out.
    Order(Task, Order),
    /// To the life of the node that gave the order.
    Answer(Task, Answer),
    /// The coordinator's log is flushed up to here, which an answer waits for.
    StatesFlushed(usize, Task, Answer),
    /// The log here is.
    Flushed(Flushing, Vec<FlushedFor>),
    /// The owning core learns of new metadata.
    CoreLearns(Bound, tarn_image::Binding),
    /// So does the manager.
    ManagerLearns(Bound),
    /// Between a lane, the source and the owning core.
    OfLane(u64, OfLane),
}

/// Who waits for a flush of the log; some answers will be lost.
#[derive(Debug)]
enum FlushedFor {
    Flush(Task, bool),
    End(Task, bool, LogEnded),
    Client,
}

/// Messages from one sender to one receiver keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Channel {
    ManagerToCore,
    ManagerToOthers,
    LaneToCore,
    LaneToSource,
    MetadataToCore,
    MetadataToManager,
    ToManager,
    ToLane,
    Disk,
    CoordinatorsDisk,
}

pub(crate) struct MirrorWorld {
    rng: fastrand::Rng,
    broken: Broken,
    source: Source,
    core: OwningCore,
    states: States,
    controller: Controller,
    partition: Partition,
    life: u64,
    tasks: u64,
    waits_for: Option<u64>,
    completing: bool,
    lane: Option<Lane>,
    serials: u64,
    asks_metadata: bool,
    flushing: bool,
    wait_for_flush: Vec<FlushedFor>,
    client_sequence: i32,
    /// When the newest wait of the partition is over.
    looks_at_ms: u64,
    messages: BTreeMap<u64, Message>,
    sent: u64,
    /// When the newest message of a channel arrives.
    busy_until_ms: BTreeMap<Channel, i64>,
    slow_ms: i64,
    /// Of a hundred orders or answers.
    losses: u32,
    repeats: u32,
    weights: Vec<(Event, u32)>,
    aim: Option<&'static str>,
    at_rest: bool,
    steps: u64,
}

impl World for MirrorWorld {
    type Event = Event;
    type Broken = Broken;

    const TEST: &'static str = "a_mirrored_partition_that_is_stopped";
    const EXPECTED: &'static [&'static str] = &[
        "LOG_ALIGNMENT written",
        "MIRRORING written",
        "PAUSING written",
        "PAUSED written",
        "STOPPING written",
        "STOPPED written",
        "FAILED written",
        "log ended",
        "log ended with open transactions",
        "end refused",
        "stop completed",
        "write of an old state epoch refused",
        "gate opened",
        "gate not known yet",
        "epoch raised",
        "history compared",
        "history parted",
        "append",
        "append of a stale generation",
        "append of a higher epoch",
        "fetch from an old leader",
        "fetch from a source that is gone",
        "clean election",
        "election that lost records",
        "source gone",
        "link broken",
        "client write",
        "client write refused",
        "crash",
        "crash of the coordinator",
        "order lost",
        "order repeated",
        "answer lost",
        "start",
        "pause",
        "resume",
        "stop",
        "recover",
        "command refused",
        "rest in MIRRORING",
        "rest in FAILED",
        "rest in STOPPED",
    ];

    fn new(seed: u64, broken: Broken, schedule: &mut Schedule<Event>) -> MirrorWorld {
        let mut rng = fastrand::Rng::with_seed(seed);
        let controller = Controller::new();
        let bound = controller.bound();
        let weights = draw_weights(&mut rng);
        let slow_ms = [2, 50, 500, 3000][rng.usize(..4)];
        let aim = rng.bool().then(|| AIMS[rng.usize(..AIMS.len())]);
        let chance = |rng: &mut fastrand::Rng| if rng.bool() { rng.u32(1..20) } else { 0 };
        let (losses, repeats) = (chance(&mut rng), chance(&mut rng));
        let states = States::forgetting(broken == Broken::PositionWrittenAgain);
        let mut world = MirrorWorld {
            source: Source::new(rng.i32(0..8)),
            core: OwningCore::new(&mut rng, leads(bound), broken),
            rng,
            broken,
            states,
            controller,
            partition: Partition::new(bound),
            life: 0,
            tasks: 0,
            waits_for: None,
            completing: false,
            lane: None,
            serials: 0,
            asks_metadata: false,
            flushing: false,
            wait_for_flush: Vec::new(),
            client_sequence: 0,
            looks_at_ms: 0,
            messages: BTreeMap::new(),
            sent: 0,
            busy_until_ms: BTreeMap::new(),
            slow_ms,
            losses,
            repeats,
            weights,
            aim,
            at_rest: false,
            steps: 0,
        };
        world.core.learns(leads(bound), world.controller.binding().clone());
        schedule.after_ms(0, Event::Look);
        world.schedule_next(schedule);
        world
    }

    fn step(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.steps += 1;
        self.happen(event, schedule)?;
        let is_aimed = matches!(event, Event::Arrives(_, kind) if self.aim == Some(kind));
        if is_aimed && !self.at_rest && self.rng.u8(..4) == 0 {
            schedule.tally("aimed crash");
            self.crash(schedule)?;
        }
        self.look(schedule);
        if !self.at_rest && DRAWN.iter().any(|(drawn, _)| *drawn == event) {
            self.schedule_next(schedule);
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Violation> {
        if let Some(found) = self.core.disk.violation() {
            return Err(Violation::new("disk", found));
        }
        let shows_mirroring = self.partition.state() == MirrorState::Mirroring;
        if shows_mirroring && self.lane.is_none() {
            return Err(Violation::new("shown state", "MIRRORING is shown and nobody fetches"));
        }
        self.core.check_end()
    }

    fn settle(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.at_rest = true;
        self.slow_ms = QUICK_MS;
        let stops = self.rng.bool();
        self.source.is_gone = stops && self.rng.bool();
        let verbs: &[Verb] = if stops { &[Verb::Stop] } else { &[Verb::Resume, Verb::Recover, Verb::Start] };
        for verb in verbs {
            self.controller.command(*verb);
        }
        self.publish(schedule);
        schedule.after_ms(0, Event::LooksAtSource);
        let until_ms = schedule.now_ms() + REST_WITHIN_MS;
        while !self.rests() {
            let Some(event) = schedule.next().filter(|_| schedule.now_ms() <= until_ms) else {
                return Err(Violation::new("rest", format!("it does not come to rest: {}", self.describe())));
            };
            if matches!(event, Event::Arrives(..) | Event::Look | Event::LooksAtSource) {
                self.step(event, schedule)?;
                self.check()?;
            }
        }
        self.check_rest(schedule)
    }

    fn fingerprint(&self) -> u64 {
        let numbers = [
            self.steps,
            self.sent,
            self.source.end() as u64,
            self.core.oracle.end() as u64,
            self.partition.state_epoch() as u64,
            self.partition.state() as u64,
        ];
        numbers
            .iter()
            .fold(0, |mixed: u64, number| mixed.rotate_left(13).wrapping_mul(0x0100_0000_01b3) ^ number)
    }

    fn describe(&self) -> String {
        let reason = self.partition.trouble().map(|(reason, _)| reason.code()).unwrap_or_default();
        let (bound, newest) = (self.partition.bound(), self.controller.bound());
        format!(
            "{} {reason}, offset {} of {}, {} {} of {} {}, epoch {}, wants {:?}, position {:?}, fetched {}, step {:?}, on its way {:?}",
            self.partition.state(),
            self.core.oracle.end(),
            self.source.end(),
            bound.desired,
            bound.version,
            newest.desired,
            newest.version,
            bound.leader_epoch,
            self.partition.want(u64::MAX),
            self.partition.position().map(|position| position.offset.0),
            self.lane.is_some(),
            self.waits_for,
            self.messages.values().map(kind_of).collect::<Vec<_>>(),
        )
    }
}

/// The arrivals after which some seeds crash.
const AIMS: &[&str] = &["gate", "flush", "flushed", "write", "states flushed", "raise", "end log", "answer"];

impl MirrorWorld {
    fn happen(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
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

    fn arrived(&mut self, message: Message, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        match message {
            Message::Order(task, order) => self.carry_out(task, order, schedule)?,
            Message::Answer(task, answer) => {
                if task.0 == self.life {
                    self.take_answer(task, answer, schedule);
                }
            }
            Message::StatesFlushed(upto, task, answer) => {
                self.states.flush(upto);
                self.send(Channel::ToManager, Message::Answer(task, answer), schedule);
            }
            Message::Flushed(flushing, waiting) => self.flushed(flushing, waiting, schedule),
            Message::CoreLearns(bound, binding) => self.core.learns(leads(bound), binding),
            Message::ManagerLearns(bound) => self.manager_learns(bound),
            Message::OfLane(serial, message) => self.of_lane(serial, message, schedule)?,
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
    fn publish(&mut self, schedule: &mut Schedule<Event>) {
        let (bound, binding) = (self.controller.bound(), self.controller.binding().clone());
        self.send(Channel::MetadataToCore, Message::CoreLearns(bound, binding), schedule);
        self.send(Channel::MetadataToManager, Message::ManagerLearns(bound), schedule);
    }

    /// A client's write; accepted only where the partition is STOPPED for all to see.
    fn client_writes(&mut self, id: i64, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
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
    fn crash(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
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

    /// A coordinator's answer leaves once all that it rests on is flushed.
    fn answer_flushed(
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

    /// Has the log flushed; one flush is under way at a time.
    fn flush_for(&mut self, waiting: FlushedFor, schedule: &mut Schedule<Event>) {
        self.wait_for_flush.push(waiting);
        if !self.flushing {
            self.begin_flush(schedule);
        }
    }

    fn begin_flush(&mut self, schedule: &mut Schedule<Event>) {
        self.flushing = true;
        let (flushing, waiting) = (self.core.begin_flush(), std::mem::take(&mut self.wait_for_flush));
        self.send(Channel::Disk, Message::Flushed(flushing, waiting), schedule);
    }

    fn flushed(&mut self, flushing: Flushing, waiting: Vec<FlushedFor>, schedule: &mut Schedule<Event>) {
        let result = self.core.end_flush(flushing);
        schedule.tally(if result.is_ok() { "flush" } else { "flush that failed" });
        for waiting in waiting {
            let storage = Answer::Failed(Reason::DestinationStorage);
            let (task, loses, answer) = match (waiting, &result) {
                (FlushedFor::Client, _) => continue,
                (FlushedFor::Flush(task, loses), Ok(ends)) => (task, loses, Answer::Flushed(*ends)),
                (FlushedFor::End(task, loses, ended), Ok(_)) => {
                    match self.core.replica.has_durable_end(&ended) {
                        true => (task, loses, Answer::Ended(ended)),
                        false => (task, loses, Answer::EndRefused(Reason::DestinationNoLeader)),
                    }
                }
                (FlushedFor::Flush(task, loses) | FlushedFor::End(task, loses, _), Err(_)) => {
                    (task, loses, storage.clone())
                }
            };
            if loses {
                schedule.tally("answer lost");
            }
            let answer = if loses { storage } else { answer };
            self.send(Channel::ToManager, Message::Answer(task, answer), schedule);
        }
        self.flushing = false;
        if !self.wait_for_flush.is_empty() {
            self.begin_flush(schedule);
        }
    }

    /// Where the mirror has left the log, as the coordinator has it, while it is not to be mirrored again.
    fn stopping_at(&mut self) -> Option<i64> {
        let state = self.states.read();
        let is_left = matches!(state.state, Some(MirrorState::Stopping | MirrorState::Stopped));
        is_left.then(|| state.position.map_or(0, |position| position.offset.0))
    }

    fn send(&mut self, channel: Channel, message: Message, schedule: &mut Schedule<Event>) {
        let now_ms = schedule.now_ms();
        let most_ms = if self.rng.u8(..4) == 0 { self.slow_ms } else { QUICK_MS };
        let at_ms = (now_ms + self.rng.i64(0..most_ms)).max(*self.busy_until_ms.get(&channel).unwrap_or(&0));
        self.busy_until_ms.insert(channel, at_ms);
        self.send_later(at_ms - now_ms, message, schedule);
    }

    /// Sends outside of any order.
    fn send_later(&mut self, delay_ms: i64, message: Message, schedule: &mut Schedule<Event>) {
        self.sent += 1;
        let kind = kind_of(&message);
        self.messages.insert(self.sent, message);
        schedule.after_ms(delay_ms, Event::Arrives(self.sent, kind));
    }

    fn is_stuck(&self) -> bool {
        self.partition.state() == MirrorState::Failed && self.partition.retry_attempt() == -1
    }

    /// Nothing is left to be done: all is copied, or stopped, or it waits for an operator.
    fn rests(&self) -> bool {
        if self.partition.bound() != self.controller.bound() {
            return false;
        }
        match self.controller.bound().desired {
            DesiredState::Mirroring => {
                let is_copied = self.lane.is_some()
                    && self.partition.state() == MirrorState::Mirroring
                    && self.core.oracle.end() == self.source.end();
                is_copied || self.is_stuck()
            }
            DesiredState::Stopped => true,
            DesiredState::Stopping | DesiredState::Paused => false,
        }
    }

    fn check_rest(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.core.compare_all()?;
        let is_beginning = self.core.oracle.is_beginning_of(&self.source.log);
        let wrong = |text: String| Err(Violation::new("rest", text));
        if self.controller.bound().desired == DesiredState::Stopped {
            schedule.tally("rest in STOPPED");
            let learns = (leads(self.controller.bound()), self.controller.binding().clone());
            self.core.learns(learns.0, learns.1);
            let state = self.states.durable()?;
            if state.state != Some(MirrorState::Stopped) {
                return wrong(format!("it is stopped, and {:?} is written", state.state));
            }
            let before = self.core.oracle.end();
            self.client_writes(-1, schedule)?;
            return match self.core.oracle.end() > before {
                true => Ok(()),
                false => wrong("it has stopped, and clients may not write".to_owned()),
            };
        }
        if self.is_stuck() {
            schedule.tally("rest in FAILED");
            let has_cause = !is_beginning || self.core.oracle.has_local_records();
            return if has_cause { Ok(()) } else { wrong(format!("failed: {}", self.describe())) };
        }
        schedule.tally("rest in MIRRORING");
        match is_beginning {
            true => Ok(()),
            false => Err(Violation::new("identity", format!("at rest: {}", self.describe()))),
        }
    }

    fn schedule_next(&mut self, schedule: &mut Schedule<Event>) {
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

fn kind_of(message: &Message) -> &'static str {
    match message {
        Message::Order(_, Order::Read) => "read",
        Message::Order(_, Order::Write(..)) => "write",
        Message::Order(_, Order::Gate(_)) => "gate",
        Message::Order(_, Order::Ends(_)) => "ends",
        Message::Order(_, Order::EpochEnd(..)) => "epoch end",
        Message::Order(_, Order::Raise(_)) => "raise",
        Message::Order(_, Order::Flush) => "flush",
        Message::Order(_, Order::EndLog(_)) => "end log",
        Message::Order(_, Order::SourceMetadata) => "source metadata",
        Message::Order(_, Order::Complete(_)) => "complete",
        Message::Answer(..) => "answer",
        Message::StatesFlushed(..) => "states flushed",
        Message::Flushed(..) => "flushed",
        Message::CoreLearns(..) => "core learns",
        Message::ManagerLearns(_) => "manager learns",
        Message::OfLane(..) => "of the lane",
    }
}

/// How the one broker there is leads.
fn leads(bound: Bound) -> Leadership {
    Leadership { epoch: bound.leader_epoch, replicas: 1, in_sync: 1 }
}

/// Which events a seed has, and how often.
fn draw_weights(rng: &mut fastrand::Rng) -> Vec<(Event, u32)> {
    let draw = |&(event, most): &(Event, u32)| {
        let drawn = if rng.bool() { rng.u32(1..=most) } else { 0 };
        let is_needed = matches!(event, Event::SourceWrites | Event::LooksAtSource);
        (event, if is_needed { drawn.max(most / 4) } else { drawn })
    };
    DRAWN.iter().map(draw).collect()
}
