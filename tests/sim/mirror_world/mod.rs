//! A world of one mirrored partition and the day its source is gone.
//!
//! The partition's machine, the alignment, the coordinator, the owning core's rules, the log and the controller's
//! decisions are production code; what drives them, the source and the network between them are stand-ins. What is
//! said is on its way for a while: orders of one sender keep their order, but some are said again much later, orders
//! and answers get lost, and the machine stops at any time, aimed in half of the seeds at what follows one kind of
//! event. Each seed draws which of all that happens and how often.

mod aims;
mod broken;
mod carrying_out;
mod comparing;
mod consents;
mod controller;
mod crashes;
mod cutting;
mod expected;
mod exports;
mod fetching;
mod flushing;
mod happenings;
mod lane;
mod manager;
mod mirrors;
mod network;
mod oracle;
mod owning_core;
mod rest;
mod source;
mod states;
mod transitions;
mod waiting;
mod writable;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_broker::replica::Leadership;
use tarn_mirror::known::SourceKnown;
use tarn_mirror::partition::{Bound, Partition};
use tarn_mirror::state::MirrorState;

use crate::simulation::{Schedule, Violation, World};
use aims::Aim;
pub(crate) use broken::Broken;
use consents::Consents;
use controller::Controller;
use flushing::FlushedFor;
use happenings::{DRAWN, Event, draw_weights};
use lane::{Connection, Lane};
use mirrors::{Cluster, Mirror};
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
    /// The cluster that the manager's mirror is of, and another one.
    source: Source,
    other_source: Source,
    core: OwningCore,
    states: States,
    controller: Controller,
    /// The manager's member, and the mirror that it is of.
    partition: Partition,
    mirror: Mirror,
    life: u64,
    tasks: u64,
    waits_for: Option<u64>,
    completing: bool,
    lane: Option<Lane>,
    connection: Connection,
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
    /// How long it is at most from one of these to the next.
    pace_ms: i64,
    aim: Option<Aim>,
    /// Some appends are late.
    delays_appends: bool,
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
        let crashes = crashes::IN_A_STOP.iter().copied().chain(Aim::names());
        expected::EXPECTED.iter().copied().chain(crashes).collect()
    }

    fn expected_in_all() -> Vec<&'static str> {
        transitions::expected()
    }

    fn new(seed: u64, broken: Broken, schedule: &mut Schedule<Event>) -> MirrorWorld {
        let mut rng = fastrand::Rng::with_seed(seed);
        let second = if rng.bool() { Cluster::Here } else { Cluster::There };
        let controller = Controller::new(second);
        let bound = controller.bound();
        let mut weights = draw_weights(&mut rng);
        let slow_ms = [2, 50, 500, 3000][rng.usize(..4)];
        let aim = Aim::draw(&mut rng);
        weights.extend(aim.iter().flat_map(|aim| aim.brings_about()));
        let pace_ms = [50, 100, 200][rng.usize(..3)];
        let chance = |rng: &mut fastrand::Rng| if rng.bool() { rng.u32(1..20) } else { 0 };
        let (losses, repeats) = (chance(&mut rng), chance(&mut rng));
        let states = States::forgetting(broken == Broken::PositionWrittenAgain);
        let [source, other_source] = MirrorWorld::sources(&mut rng);
        let records_max = rng.bool().then(|| rng.u64(0..20));
        let mut world = MirrorWorld {
            core: OwningCore::new(&mut rng, leads(bound), source.is_compacted, broken),
            source,
            other_source,
            loses_power: rng.bool(),
            delays_appends: rng.u8(..4) == 0,
            rng,
            broken,
            states,
            controller,
            partition: Partition::new(bound),
            mirror: Mirror::First,
            life: 0,
            tasks: 0,
            waits_for: None,
            completing: false,
            lane: None,
            connection: Connection::default(),
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
            pace_ms,
            aim,
            at_rest: false,
            steps: 0,
        };
        world.core.learns(leads(bound), world.controller.metadata().binding);
        schedule.after_ms(0, Event::Look);
        world.schedule_next(schedule);
        world
    }

    fn step(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.steps += 1;
        self.happen(event, schedule)?;
        if let Event::Arrives(_, kind) = event {
            self.aim_behind(kind, schedule)?;
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
        self.check_writable()?;
        self.core.check_end()
    }

    fn settle(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.count_lies(schedule);
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

impl MirrorWorld {
    /// Where the mirror has left the log, as the coordinator has it, while it is not to be mirrored again.
    pub(super) fn stopping_at(&mut self) -> Option<i64> {
        let state = self.states.read(self.controller.mirror());
        let is_left = matches!(state.state, Some(MirrorState::Stopping | MirrorState::Stopped));
        is_left.then(|| state.position.map_or(0, |position| position.offset.0))
    }
}

/// How the one broker there is leads.
fn leads(bound: Bound) -> Leadership {
    Leadership { epoch: bound.leader_epoch, replicas: 1, in_sync: 1 }
}
