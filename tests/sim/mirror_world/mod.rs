//! A world of one mirrored partition and the day its source is gone.
//!
//! The partition's machine, the alignment, the coordinator, the owning core's rules, the log and the controller's
//! decisions are production code; what drives them, the source and the network between them are stand-ins. What is
//! said is on its way for a while: orders of one sender keep their order, but some are said again much later, orders
//! and answers get lost, and the machine stops at any time, aimed in half of the seeds at what follows one kind of
//! event. Each seed draws which of all that happens and how often.

mod controller;
mod flushing;
mod happenings;
mod lane;
mod manager;
mod network;
mod oracle;
mod owning_core;
mod rest;
mod source;
mod states;

use std::collections::BTreeMap;

use tarn_broker::replica::Leadership;
use tarn_mirror::partition::{Bound, Partition};
use tarn_mirror::state::MirrorState;

use crate::simulation::{Schedule, Violation, World};
use controller::Controller;
use flushing::FlushedFor;
use happenings::{DRAWN, Event, draw_weights};
use lane::Lane;
use network::{Channel, Message, kind_of};
use owning_core::OwningCore;
use source::Source;
use states::States;

/// How long a message mostly takes at most.
const QUICK_MS: i64 = 3;

/// A rule left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Broken {
    #[default]
    Nothing,
    /// The gate is taken for closed long before the owning core closes it.
    GateNotClosed,
    /// What was asked for under an earlier opening of the gate is appended.
    StaleGenerationAccepted,
    /// A STOPPED is taken for one of the binding's version, whichever it was written for.
    OldStopBelieved,
    /// Flushes reach no medium.
    FlushSkipped,
    /// The position of a stop that has begun is forgotten, and another one taken.
    PositionWrittenAgain,
    /// A restart forgets which transactions are open.
    MarkerLeftOut,
    /// STOPPED is written before the log is ended.
    StoppedBeforeEnd,
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
        "local records found",
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
        self.come_to_rest(schedule)
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
    /// Where the mirror has left the log, as the coordinator has it, while it is not to be mirrored again.
    pub(super) fn stopping_at(&mut self) -> Option<i64> {
        let state = self.states.read();
        let is_left = matches!(state.state, Some(MirrorState::Stopping | MirrorState::Stopped));
        is_left.then(|| state.position.map_or(0, |position| position.offset.0))
    }
}

/// How the one broker there is leads.
fn leads(bound: Bound) -> Leadership {
    Leadership { epoch: bound.leader_epoch, replicas: 1, in_sync: 1 }
}
