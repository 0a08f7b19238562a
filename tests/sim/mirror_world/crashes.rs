//! The machine of the node stops, at any step of whatever it does.

use tarn_image::DesiredState;
use tarn_mirror::local_cluster::LastPosition;
use tarn_mirror::partition::Partition;
use tarn_mirror::state::MirrorState;

use super::happenings::Event;
use super::manager::Order;
use super::network::Message;
use super::{MirrorWorld, leads};
use crate::simulation::{Schedule, Violation};

/// The steps of a stop at which the machine stops (mirroring.md §8).
pub(super) const IN_A_STOP: &[&str] = &[
    "crash in a stop before the gate is closed",
    "crash in a stop before the position is written",
    "crash in a stop while the position is not flushed",
    "crash in a stop before the epoch is raised",
    "crash in a stop before the log is ended",
    "crash in a stop while the end is not flushed",
    "crash in a stop before STOPPED is written",
    "crash in a stop while STOPPED is not flushed",
    "crash in a stop before it is completed",
];

impl MirrorWorld {
    /// The machine of the node stops, and the process starts on what its disk has kept.
    pub(super) fn crash(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.tally("crash");
        if let Some(step) = self.step_of_stop() {
            schedule.tally(IN_A_STOP[step]);
        }
        // What is on its way to the controller or the coordinator arrives; what waits here is gone.
        self.messages.retain(|_, message| {
            matches!(
                message,
                Message::Order(_, Order::Raise(_) | Order::Complete(..) | Order::Write(_))
                    | Message::StatesFlushed(..)
                    | Message::Gone(..)
            )
        });
        if self.rng.bool() {
            self.coordinator_crashes(schedule)?;
            self.messages.retain(|_, message| !matches!(message, Message::StatesFlushed(..)));
        }
        if self.rng.bool() {
            schedule.tally("leader epoch raised by a crash");
            self.controller.raise_epoch(self.controller.bound().leader_epoch);
        }
        let metadata = self.controller.metadata();
        let brought = (self.mirror_life(), &self.source);
        self.core.crash(leads(metadata.bound), brought, schedule.now_ms())?;
        self.consents.crashed();
        self.forget_member();
        self.core.learns(leads(metadata.bound), metadata.binding);
        self.life += 1;
        (self.asks_metadata, self.flushing) = (false, false);
        self.wait_for_flush.clear();
        self.client_sequence = 0;
        self.connect();
        self.looks_at_bound();
        self.partition = Partition::new(metadata.bound);
        Ok(())
    }

    /// The coordinator's machine stops, and what it has kept is loaded again.
    pub(super) fn coordinator_crashes(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.states.crash(&mut self.rng)?;
        self.forget_gone(schedule)
    }

    /// How far the stop has come that is under way, by what is true and not by what the node knows of it.
    fn step_of_stop(&mut self) -> Option<usize> {
        let bound = self.controller.bound();
        if bound.desired != DesiredState::Stopping {
            return None;
        }
        let mirror = self.controller.mirror();
        let (written, durable) = (self.states.read(mirror), self.states.durable(mirror));
        let is_now = |version: i64| version == bound.version;
        let is_written = |state| written.state == Some(state) && is_now(written.state_version);
        let is_durable = |state| durable.state == Some(state) && is_now(durable.state_version);
        if is_durable(MirrorState::Stopped) {
            return Some(8);
        }
        if is_written(MirrorState::Stopped) {
            return Some(7);
        }
        let position = durable.position.filter(|_| is_durable(MirrorState::Stopping));
        let Some(position) = position else {
            let gate = self.core.replica.binding().filter(|binding| is_now(binding.desired.version));
            let is_closed = gate.is_some_and(|binding| binding.gate.is_none()) && self.partition.is_closed();
            return Some(match is_written(MirrorState::Stopping) {
                true => 2,
                false => usize::from(is_closed),
            });
        };
        let left = LastPosition { epoch: position.epoch, offset: position.offset };
        Some(match () {
            () if bound.leader_epoch <= left.epoch => 3,
            () if !self.core.oracle.has_reset(left) => 4,
            () if !self.core.oracle.has_durable_reset(left) => 5,
            () => 6,
        })
    }
}
