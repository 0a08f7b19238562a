//! Which mirror has the topic, and which cluster it is of. Two mirrors take the topic over from each other, when it is
//! stopped, and both may be of one cluster; one that has stopped is deleted, and made again by the next start.
//!
//! The manager has a member for the topic's partition while its binding is active: it is let go with that, and begun
//! anew. What is on its way for one that was let go finds nobody.

use std::sync::Arc;

use tarn_image::{Binding, DesiredState};
use tarn_mirror::alignment::Content;
use tarn_mirror::local_cluster::{Gate, GateOrder, LastPosition, LogEnds};
use tarn_mirror::partition::{Bound, Partition};

use super::MirrorWorld;
use super::controller::PARTITION;
use super::happenings::Event;
use super::manager::Order;
use super::network::{Channel, Message};
use super::source::Source;
use crate::simulation::{Schedule, Violation};

/// One of the two mirrors that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mirror {
    First,
    Second,
}

/// A mirror that was deleted and made again is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life(pub(super) u64);

/// One of the two clusters that they may mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    Here,
    There,
}

/// What the metadata say of the topic.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    pub(super) bound: Bound,
    /// `None` where the topic is in no mirror.
    pub(super) binding: Option<Binding>,
    /// Whose the binding is, and of which cluster.
    pub(super) of: Option<(Mirror, Cluster)>,
}

impl Mirror {
    pub(super) const ALL: [Mirror; 2] = [Mirror::First, Mirror::Second];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mirror::First => "m",
            Mirror::Second => "n",
        }
    }

    pub(super) fn named(name: &str) -> Mirror {
        if name == Mirror::First.name() { Mirror::First } else { Mirror::Second }
    }

    pub(super) fn other(self) -> Mirror {
        match self {
            Mirror::First => Mirror::Second,
            Mirror::Second => Mirror::First,
        }
    }
}

impl Cluster {
    pub(super) fn id(self) -> Arc<str> {
        Arc::from(match self {
            Cluster::Here => "source",
            Cluster::There => "another source",
        })
    }
}

impl MirrorWorld {
    /// The metadata have come to the manager, which sees the newest there are when it looks.
    pub(super) fn manager_learns(&mut self, metadata: &Metadata, schedule: &mut Schedule<Event>) {
        let is_newer = |message: &Message| matches!(message, Message::ManagerLearns(_));
        // Whether it may miss that a mirror was deleted and made again is left open.
        if metadata.binding.is_some() && self.messages.values().any(is_newer) && self.rng.bool() {
            schedule.tally("metadata seen together with newer ones");
            return;
        }
        let bound = metadata.bound;
        let is_active = bound.desired != DesiredState::Stopped;
        let Some((mirror, cluster)) = metadata.of.filter(|_| is_active) else {
            return self.let_go(bound, schedule);
        };
        if (self.mirror, self.source.cluster) != (mirror, cluster) {
            schedule.tally("taken over by another mirror");
            self.let_go(bound, schedule);
            self.mirror = mirror;
            self.looks_at(cluster);
        }
        if self.is_let_go() {
            self.partition = Partition::new(bound);
            return;
        }
        if bound.version != self.partition.bound().version || bound.desired != DesiredState::Stopping {
            self.completing = false;
        }
        self.partition.rebound(bound);
        if self.partition.gives_up_step() {
            self.waits_for = None;
        }
    }

    /// The mirror that the manager's member is of.
    pub(super) fn mirror_life(&self) -> Life {
        self.controller.life(self.mirror)
    }

    /// Behind the position of an earlier stop the log is not ended for this mirror's cluster: another mirror has filled
    /// it anew since.
    pub(super) fn has_another_log(&self, ends: &LogEnds) -> Result<bool, Violation> {
        let is_open = |position: &LastPosition| {
            self.partition.content() == Content::Local && ends.latest_epoch > position.epoch
        };
        let Some(position) = self.partition.last_position().filter(is_open) else { return Ok(false) };
        let behind = self.core.replica.look_behind_position(position).run();
        let behind = behind.map_err(|error| Violation::new("read", error.to_string()))?;
        let cluster = Some(self.source.cluster.id());
        Ok(behind.ending().is_none_or(|ending| ending.source_cluster_id != cluster))
    }

    /// True while the manager has nothing to do with the partition.
    pub(super) fn is_let_go(&self) -> bool {
        self.partition.bound().desired == DesiredState::Stopped
    }

    fn let_go(&mut self, bound: Bound, schedule: &mut Schedule<Event>) {
        if !self.is_let_go() && !self.partition.is_closed() {
            schedule.tally("let go with a gate that may be open");
            let order = GateOrder { partition: PARTITION, gate: Gate::Closed, version: i64::MIN };
            let closing = Message::Order((self.life, u64::MAX), Order::Gate(order));
            self.send(Channel::ManagerToCore, closing, schedule);
        }
        self.forget_member();
        self.partition = Partition::new(Bound { desired: DesiredState::Stopped, ..bound });
    }

    /// What the manager knew beside the partition's own.
    pub(super) fn forget_member(&mut self) {
        (self.unsaid, self.known, self.told, self.missed_at_ms) = (None, None, None, None);
        (self.waits_for, self.completing, self.lane) = (None, false, None);
        self.connection.lets_go();
    }

    /// The mirror that has the topic now is of this cluster.
    fn looks_at(&mut self, cluster: Cluster) {
        if self.source.cluster != cluster {
            std::mem::swap(&mut self.source, &mut self.other_source);
            self.connect();
        }
    }

    /// The mirror that the topic is in by the newest metadata, or was in last, is of this cluster.
    pub(super) fn looks_at_bound(&mut self) {
        if let Some((mirror, cluster)) = self.controller.metadata().of {
            self.mirror = mirror;
            self.looks_at(cluster);
        }
    }

    /// What the coordinator keeps of mirrors that are gone goes, when it hears of that or is loaded again.
    pub(super) fn forget_gone(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        for mirror in Mirror::ALL {
            if let Some(version) = self.controller.gone(mirror) {
                self.states.forget(mirror, version)?;
                schedule.tally("mirror forgotten");
            }
        }
        Ok(())
    }

    /// Makes the mirror of a start where it was deleted, once all is forgotten that there was of its name; perhaps of
    /// another cluster.
    pub(super) fn make_again(
        &mut self,
        mirror: Mirror,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        if self.controller.gone(mirror).is_none() {
            return Ok(());
        }
        self.forget_gone(schedule)?;
        self.states.flush(self.states.end())?;
        let cluster = if self.rng.bool() { Cluster::Here } else { Cluster::There };
        self.controller.make_mirror(mirror, cluster);
        schedule.tally("mirror made again");
        Ok(())
    }

    /// The cluster that the topic's mirror is of; the other one rests meanwhile.
    pub(super) fn sources(rng: &mut fastrand::Rng) -> [Source; 2] {
        let here = Source::new(rng, Cluster::Here);
        let mut there = Source::new(rng, Cluster::There);
        there.is_compacted = here.is_compacted;
        [here, there]
    }
}
