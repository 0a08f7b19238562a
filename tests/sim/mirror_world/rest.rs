//! How the world comes to rest once the faults have stopped, and what must be true then.

use tarn_image::DesiredState;
use tarn_image::mirrors::Truncation;
use tarn_mirror::state::MirrorState;

use super::happenings::{Event, Verb};
use super::{MirrorWorld, QUICK_MS, leads};
use crate::simulation::{Schedule, Violation, World as _};

/// How long the world may take to come to rest once the faults have stopped.
const REST_WITHIN_MS: i64 = 60_000;

impl MirrorWorld {
    /// Lets the operator want one thing that can be had, and waits for it.
    pub(super) fn come_to_rest(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.at_rest = true;
        self.slow_ms = QUICK_MS;
        self.core.disk.set_faults(self.core.quiet());
        let stops = self.rng.bool();
        let is_gone = stops && self.rng.bool();
        for source in [&mut self.source, &mut self.other_source] {
            (source.is_gone, source.lies) = (is_gone, 0);
            source.fetching.mends();
        }
        let consent = if self.rng.bool() { Truncation::Allowed } else { Truncation::Refused };
        let verbs: &[Verb] = match stops {
            true => &[Verb::Stop],
            false => &[Verb::Resume, Verb::Recover(consent), Verb::Start(consent)],
        };
        for verb in verbs {
            self.command(*verb, schedule)?;
        }
        self.publish(schedule);
        schedule.after_ms(0, Event::LooksAtSource);
        let until_ms = schedule.now_ms() + REST_WITHIN_MS;
        while !self.rests() {
            if self.source.is_deleted && (self.source.has_ids() || self.is_seen_to_be_away()) {
                self.source.create_again(self.rng.i32(0..8));
            }
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

    /// It waits for an operator.
    pub(super) fn is_stuck(&self) -> bool {
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
        let is_beginning = self.core.oracle.is_beginning_of(&self.source);
        let wrong = |text: String| Err(Violation::new("rest", text));
        if self.controller.bound().desired == DesiredState::Stopped {
            schedule.tally("rest in STOPPED");
            let metadata = self.controller.metadata();
            self.core.learns(leads(metadata.bound), metadata.binding);
            let state = self.states.durable(self.controller.mirror());
            if self.controller.is_bound() && state.state != Some(MirrorState::Stopped) {
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
            let has_parted = self.core.oracle.has_parted_from(&self.source);
            let may_cut = self.controller.bound().truncation == Truncation::Allowed;
            let has_cause = self.source.is_another() || (has_parted && !may_cut);
            return if has_cause { Ok(()) } else { wrong(format!("failed: {}", self.describe())) };
        }
        schedule.tally("rest in MIRRORING");
        match is_beginning {
            true => Ok(()),
            false => Err(Violation::new("identity", format!("at rest: {}", self.describe()))),
        }
    }
}
