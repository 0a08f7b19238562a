//! A world of one mirrored partition and the day its source is gone.
//!
//! The partition's machine, the alignment, the coordinator, the owning core's rules, the log and the controller's
//! decisions are production code; what drives them, the source and the network between them are stand-ins. What is
//! said is on its way for a while: orders of one sender keep their order, but some are said again much later, orders
//! and answers get lost, and the machine stops at any time, aimed in half of the seeds at what follows one kind of
//! event. Each seed draws which of all that happens and how often.

mod broken;
mod carrying_out;
mod comparing;
mod consents;
mod controller;
mod cutting;
mod expected;
mod exports;
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
mod transitions;
mod waiting;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_broker::replica::Leadership;
use tarn_mirror::known::SourceKnown;
use tarn_mirror::partition::{Bound, Partition};
use tarn_mirror::state::MirrorState;

use crate::simulation::{Schedule, Violation, World};
pub(crate) use broken::Broken;
use consents::Consents;
use controller::Controller;
use flushing::FlushedFor;
use happenings::{DRAWN, Event, draw_weights};
use lane::Lane;
use network::{Channel, Message, kind_of};
use owning_core::OwningCore;
use source::Source;
use states::States;
use writing::Told;

/// How long a message mostly takes at most.
const QUICK_MS: i64 = 3;

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
    /// What lanes knew of the source that fetch it no more, and what it really told them.
    known: Option<SourceKnown>,
    told: Option<Told>,
    missed_at_ms: Option<u64>,
    consents: Consents,
    /// What was exported under a version of the binding, and is not written down with MIRRORING yet.
    unsaid: Option<(i64, Arc<str>)>,
    shown: MirrorState,
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
    aim: Option<(&'static str, &'static str)>,
    /// The power goes in the middle of cuts.
    loses_power: bool,
    at_rest: bool,
    steps: u64,
}

impl World for MirrorWorld {
    type Event = Event;
    type Broken = Broken;

    const TEST: &'static str = "a_mirrored_partition_that_is_stopped";
    fn expected() -> Vec<&'static str> {
        let crashes = AIMS.iter().map(|(_, name)| *name);
        expected::EXPECTED.iter().copied().chain(crashes).chain(transitions::expected()).collect()
    }

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
        let source = Source::new(&mut rng);
        let records_max = (rng.u8(..3) == 0).then(|| rng.u64(0..20));
        let mut world = MirrorWorld {
            core: OwningCore::new(&mut rng, leads(bound), source.is_compacted, broken),
            source,
            loses_power: rng.bool(),
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
            known: None,
            told: None,
            missed_at_ms: None,
            consents: Consents::new(records_max),
            unsaid: None,
            shown: MirrorState::LogAlignment,
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
        if let (Event::Arrives(_, kind), Some((aim, name))) = (event, self.aim)
            && kind == aim
            && !self.at_rest
            && self.rng.u8(..4) == 0
        {
            schedule.tally(name);
            self.crash(schedule)?;
        }
        self.look(schedule);
        self.note_shown(schedule);
        self.check_waits(schedule)?;
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
        schedule.tally_many("lies of the source", self.source.lied);
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
            "{} {reason}, offset {} of {} from {} in epoch {}, {} {} of {} {}, epoch {}, wants {:?}, position {:?}, fetched {}, step {:?}, on its way {:?}",
            self.partition.state(),
            self.core.oracle.end(),
            self.source.end(),
            self.source.start(),
            self.source.epoch(),
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

/// The arrivals after which some seeds crash, and what that is called.
const AIMS: &[(&str, &str)] = &[
    ("gate", "crash after the gate"),
    ("flush", "crash after an order to flush"),
    ("flushed", "crash after a flush"),
    ("write", "crash after a write of a state"),
    ("states flushed", "crash after a state is flushed"),
    ("raise", "crash after the epoch is raised"),
    ("end log", "crash after the end of the log"),
    ("complete", "crash after a stop is completed"),
    ("answer", "crash after an answer"),
    ("cut", "crash after an order to cut"),
    ("copy", "crash after an export"),
    ("drop", "crash after a cut"),
];

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
