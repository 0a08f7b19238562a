//! The life of one mirrored partition that this broker leads: what is known of it, and the next step.
//!
//! Every fact that arrives is written down here, and `want` reads the next step from the facts alone, so a
//! partition that starts, restarts, moves or recovers goes one way: read the state, compare histories,
//! raise the epoch, write MIRRORING once, open the gate, fetch. What is done with a log that the source has not is in
//! `truncating`, how it goes on after a failure in `failing`, the way to STOPPED in `stopping`, and what is shown of all
//! this in `shown`. Sans-IO; owned by the manager.
//!
//! Invariants:
//! * MIRRORING is shown only while a lane fetches the partition, and where it left one through a fault, only
//!   once something was appended since, or nothing was missing;
//! * what is to be paused or stopped waits for nothing of the source, nor does it fail for that;
//! * the gate opens only after MIRRORING is persisted and histories were compared, and it is closed
//!   before they are compared again;
//! * a state is written only where it may follow the one before;
//! * waiting for the source's metadata or for this cluster is no failure.

mod failing;
mod shown;
mod stopping;
mod truncating;

use std::sync::Arc;

use tarn_image::DesiredState;
use tarn_image::mirrors::Truncation;
use tarn_record::{BrokerId, Epoch, Offset};

use crate::alignment::Content;
use crate::gaps::{Gap, Gaps};
use crate::limits;
use crate::local_cluster::{LastPosition, MirrorGeneration};
use crate::reasons::Reason;
use crate::source::metadata::SourceLeader;
use crate::state::MirrorState;
use crate::truncation::TruncationPlan;
pub use failing::RetryPolicy;
use failing::Trouble;
use stopping::Stop;
use truncating::{Histories, Truncations};

/// What the metadata says of a mirrored partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What the operator wants of its topic.
    pub desired: DesiredState,
    /// The version of the binding.
    pub version: i64,
    /// The leader epoch here.
    pub leader_epoch: Epoch,
    /// Whether the operator consents to dropping what the source has not.
    pub truncation: Truncation,
}

/// What the coordinator has of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persisted {
    /// The state; `None` where there is none.
    pub state: Option<MirrorState>,
    /// The number of the write.
    pub state_epoch: i32,
    /// The version of the binding that it belongs to.
    pub version: i64,
    /// Why it failed, or was cut before it mirrored.
    pub reason: Option<Reason>,
    /// The same for a person.
    pub message: Option<Arc<str>>,
    /// The state before FAILED.
    pub previous: Option<MirrorState>,
    /// Up to where it was mirrored when it was last stopped.
    pub position: Option<LastPosition>,
}

/// From where to fetch, once histories were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aligned {
    /// The first offset.
    pub from: Offset,
    /// The epoch of the record before it.
    pub last_epoch: Epoch,
    /// Whether the topic is compacted here, so that offsets may be missing within.
    pub compacted: bool,
}

/// The next step of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: it is fetched, or nothing is to be done.
    Nothing,
    /// None before this time.
    Wait(u64),
    /// To know what the coordinator has.
    ReadState,
    /// To have the coordinator write this.
    WriteState(MirrorState),
    /// To know who leads it at the source.
    SourceMetadata,
    /// To compare histories with this broker.
    Compare(SourceLeader),
    /// To find where they part from this broker's.
    Search(SourceLeader),
    /// To have the end of the log dropped, which its source has not.
    Truncate(TruncationPlan),
    /// To have the controller raise the leader epoch above this.
    RaiseEpoch(Epoch),
    /// To have the gate closed.
    CloseGate,
    /// To have it opened.
    OpenGate,
    /// To have all that is in the log made durable and committed.
    Flush,
    /// To have the log ended for the mirror.
    EndLog,
    /// To be fetched.
    Fetch(SourceLeader, Aligned, MirrorGeneration),
    /// To be fetched no more.
    LeaveLane,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateNow {
    Closed,
    /// It may be open under an opening that nothing is fetched for any more; or the owning core does not know
    /// of the binding yet, and lets clients write.
    MustClose,
    Open(MirrorGeneration),
}

#[derive(Clone, Copy, Debug)]
struct Raising {
    above: Epoch,
    asked_at_ms: u64,
}

/// One partition.
#[derive(Debug)]
pub struct Partition {
    bound: Bound,
    persisted: Option<Persisted>,
    source: Option<SourceLeader>,
    histories: Histories,
    truncations: Truncations,
    gate: GateNow,
    /// The leader epoch here must be above this: a batch has it.
    behind: Option<Epoch>,
    raising: Option<Raising>,
    in_lane: bool,
    /// It left a lane through a fault, and nothing was appended since: that it is fetched proves nothing.
    doubted: bool,
    /// What its next step waits for, in the state it has: over when the step goes well.
    held: Option<Trouble>,
    /// Why it is FAILED and tried again: over when something is appended, whatever goes well before.
    failure: Option<Trouble>,
    /// Why it waits for an operator. Whatever else goes wrong meanwhile does not make it go on.
    terminal: Option<(Reason, Arc<str>)>,
    /// The source said that histories diverge, and comparing them has not ended that yet.
    said_diverged: bool,
    /// Failures since something was appended.
    attempts: u16,
    /// Those of them after so many of which it is given up.
    attempts_used: u16,
    holds: u32,
    gaps: Gaps,
    stop: Stop,
    /// The step that is under way.
    busy: Option<Want>,
    /// That step is an order to the gate, and the binding has got another version since it was given.
    gate_asked_before: bool,
}

impl Partition {
    /// A partition of which only the metadata is known.
    pub fn new(bound: Bound) -> Partition {
        Partition {
            bound,
            persisted: None,
            source: None,
            histories: Histories::Open,
            truncations: Truncations::default(),
            gate: GateNow::MustClose,
            behind: None,
            raising: None,
            in_lane: false,
            doubted: false,
            held: None,
            failure: None,
            terminal: None,
            said_diverged: false,
            attempts: 0,
            attempts_used: 0,
            holds: 0,
            gaps: Gaps::default(),
            stop: Stop::default(),
            busy: None,
            gate_asked_before: false,
        }
    }

    /// The next step.
    pub fn want(&self, now_ms: u64) -> Want {
        if self.busy.is_some() {
            return Want::Nothing;
        }
        if self.in_lane {
            return self.want_in_lane(now_ms);
        }
        if self.gate == GateNow::MustClose {
            return self.held_or(now_ms, Want::CloseGate);
        }
        let Some(persisted) = &self.persisted else { return self.held_or(now_ms, Want::ReadState) };
        let step = match self.bound.desired {
            DesiredState::Mirroring => self.want_to_mirror(persisted, now_ms),
            DesiredState::Paused => want_to_pause(persisted),
            DesiredState::Stopping => self.want_to_stop(persisted, now_ms),
            DesiredState::Stopped => Want::Nothing,
        };
        match step {
            Want::Nothing => Want::Nothing,
            // A stop that has begun must end before it is mirrored again.
            Want::WriteState(next) if !next.may_follow(persisted.state) => Want::Nothing,
            step => self.held_or(now_ms, step),
        }
    }

    /// The source removed something before it was copied; how much of that is news.
    pub fn missed(&mut self, gap: Gap) -> u64 {
        self.gaps.add(gap)
    }

    /// Whose records its log may hold.
    pub fn content(&self) -> Content {
        let persisted = self.persisted.as_ref();
        let state = |of: fn(&Persisted) -> Option<MirrorState>| persisted.and_then(of);
        Content::of(state(|persisted| persisted.state), state(|persisted| persisted.previous))
    }

    /// Up to where it was mirrored when it was last stopped.
    pub fn last_position(&self) -> Option<LastPosition> {
        self.persisted.as_ref()?.position
    }

    /// The metadata here.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// The number of the coordinator's last write that is known; −1 before one is.
    pub fn state_epoch(&self) -> i32 {
        self.persisted.as_ref().map_or(-1, |persisted| persisted.state_epoch)
    }

    /// Who leads it at the source.
    pub fn source(&self) -> Option<SourceLeader> {
        self.source
    }

    /// True while a lane fetches it.
    pub fn is_in_lane(&self) -> bool {
        self.in_lane
    }

    /// True where nothing goes on before the source's metadata say who leads it there.
    pub fn waits_for_source(&self) -> bool {
        let is_given_up = self.terminal.is_some()
            || self.persisted.as_ref().is_some_and(|persisted| self.is_written_off(persisted));
        let is_wanted = self.bound.desired == DesiredState::Mirroring && !is_given_up;
        is_wanted && !self.in_lane && self.source.is_none()
    }

    /// A step has begun, which is this: until it ends, nothing else is wanted.
    pub fn begin(&mut self, step: Want) {
        self.busy = Some(step);
        self.gate_asked_before = false;
    }

    /// The step has ended, with whatever is told next.
    pub fn end(&mut self) {
        self.busy = None;
    }

    /// Gives up a step that is under way and whose end nobody wants any more: a pause or a stop does not wait for a
    /// source that may never answer, nor for a copy that takes as long as the disk does; its gate, which it closes
    /// first, keeps what was ordered before from cutting the log. True where there was one; its end must not be told.
    pub fn gives_up_step(&mut self) -> bool {
        let takes_long = matches!(self.busy, Some(Want::Compare(_) | Want::Search(_) | Want::Truncate(_)));
        let gives_up = takes_long && self.bound.desired != DesiredState::Mirroring;
        if gives_up {
            self.may_be_truncated();
            self.busy = None;
        }
        gives_up
    }

    /// The metadata has changed.
    pub fn rebound(&mut self, bound: Bound) {
        if bound.version != self.bound.version {
            self.held = None;
            self.failure = None;
            self.terminal = None;
            self.said_diverged = false;
            (self.attempts, self.attempts_used, self.holds) = (0, 0, 0);
            self.gaps = Gaps::default();
            self.stop = Stop::default();
            self.truncations.rebound();
            // Histories are compared before the first append under a new version.
            self.histories = Histories::Open;
            if !self.in_lane {
                self.gate = GateNow::MustClose;
            }
            self.gate_asked_before |= matches!(self.busy, Some(Want::CloseGate | Want::OpenGate));
        } else if bound.leader_epoch != self.bound.leader_epoch {
            // The metadata may show it before the controller's answer is here.
            let asked = match self.busy {
                Some(Want::RaiseEpoch(above)) => Some(above),
                _ => self.raising.map(|raising| raising.above),
            };
            self.stop.led_anew(bound.leader_epoch, asked);
        }
        self.bound = bound;
        if self.raising.is_some_and(|raising| bound.leader_epoch > raising.above) {
            self.raising = None;
        }
        if self.behind.is_some_and(|behind| bound.leader_epoch >= behind) {
            self.behind = None;
        }
    }

    /// The coordinator has answered.
    pub fn state_read(&mut self, persisted: Persisted) {
        self.truncations.read(&persisted);
        self.persisted = Some(persisted);
        self.went_well();
    }

    /// The coordinator has written a state, for this version of the binding.
    pub fn state_written(&mut self, state: MirrorState, state_epoch: i32, version: i64) {
        let why = match state {
            MirrorState::Failed => self.terminal.as_ref(),
            MirrorState::Mirroring => self.truncations.notice(),
            _ => None,
        };
        let before = self.persisted.as_ref();
        let previous = match before.and_then(|before| before.state) {
            _ if state != MirrorState::Failed => None,
            Some(MirrorState::Failed) => before.and_then(|before| before.previous),
            other => other,
        };
        self.persisted = Some(Persisted {
            state: Some(state),
            state_epoch,
            version,
            reason: why.map(|(reason, _)| *reason),
            message: why.map(|(_, message)| message.clone()),
            previous,
            position: before.and_then(|before| before.position),
        });
        self.truncations.reported();
        self.went_well();
    }

    /// Somebody else has written: what the coordinator has must be read again.
    pub fn state_unknown(&mut self) {
        self.persisted = None;
    }

    /// The source's metadata tell who leads it. Older news than what is known is left aside. A new leader
    /// or epoch means that histories must be compared again.
    pub fn source_seen(&mut self, leader: Option<SourceLeader>) {
        let leader = leader.filter(|leader| leader.broker != BrokerId::NONE);
        let Some(leader) = leader else {
            if !self.in_lane {
                self.source = None;
            }
            return;
        };
        let is_older = |known: SourceLeader| leader.epoch != Epoch::NONE && leader.epoch < known.epoch;
        if self.source == Some(leader) || self.source.is_some_and(is_older) {
            return;
        }
        self.source = Some(leader);
        self.histories = Histories::Open;
    }

    /// The source's broker says that it does not lead it: somebody else must be found.
    pub fn source_lost(&mut self) {
        self.source = None;
        self.histories = Histories::Open;
    }

    /// The controller has been asked to raise the leader epoch above this; the metadata will show it.
    pub fn raise_asked(&mut self, above: Epoch, now_ms: u64) {
        if self.bound.leader_epoch <= above {
            self.raising = Some(Raising { above, asked_at_ms: now_ms });
        }
        self.went_well();
    }

    /// The gate is closed.
    pub fn gate_closed(&mut self) {
        self.gate_is(GateNow::Closed);
    }

    /// The gate is open.
    pub fn gate_opened(&mut self, generation: MirrorGeneration) {
        self.gate_is(GateNow::Open(generation));
    }

    /// An order to the gate was carried out. One of an older version of the binding says nothing of this one: whatever
    /// it did, the gate is closed first.
    fn gate_is(&mut self, now: GateNow) {
        let is_overtaken = std::mem::take(&mut self.gate_asked_before);
        self.gate = if is_overtaken { GateNow::MustClose } else { now };
        self.went_well();
    }

    /// A lane has been told to fetch it.
    pub fn joined_lane(&mut self) {
        self.in_lane = true;
        self.held = None;
    }

    /// No lane fetches it any more: what is on its way must not be appended, and histories must be
    /// compared before it is fetched again.
    pub fn left_lane(&mut self) {
        self.in_lane = false;
        self.histories = Histories::Open;
        self.gate = GateNow::MustClose;
    }

    /// It left its lane through a fault, of the source or here.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    /// What its lane fetched is appended, or nothing is missing: what failed before is over.
    pub fn goes_on(&mut self) {
        self.said_diverged = false;
        self.doubted = false;
        (self.attempts, self.attempts_used, self.holds) = (0, 0, 0);
        self.held = None;
        self.failure = None;
    }

    /// The source says that its history is another one than ours. That is compared, which finds what is wrong,
    /// if anything. True where it was compared for that already and nothing was found.
    pub fn said_diverged(&mut self) -> bool {
        std::mem::replace(&mut self.said_diverged, true)
    }

    /// A batch of the source has this epoch, which is above ours.
    pub fn fell_behind(&mut self, epoch: Epoch) {
        self.behind = Some(epoch.max(self.behind.unwrap_or(epoch)));
    }

    fn want_in_lane(&self, now_ms: u64) -> Want {
        let is_led_elsewhere = !matches!(self.histories, Histories::Same(_));
        if self.bound.desired != DesiredState::Mirroring || is_led_elsewhere || self.terminal.is_some() {
            return Want::LeaveLane;
        }
        self.want_epoch(now_ms).map_or(Want::Nothing, |want| self.held_or(now_ms, want))
    }

    fn want_to_mirror(&self, persisted: &Persisted, now_ms: u64) -> Want {
        if self.is_written_off(persisted) {
            return Want::Nothing;
        }
        if self.terminal.is_some() {
            return Want::WriteState(MirrorState::Failed);
        }
        match persisted.state {
            None | Some(MirrorState::Stopped) => Want::WriteState(MirrorState::LogAlignment),
            // What was mirrored before it failed goes on where it was.
            Some(MirrorState::Failed) if self.content() == Content::Local => {
                Want::WriteState(MirrorState::LogAlignment)
            }
            // A pause that has begun ends before it is mirrored again.
            Some(MirrorState::Pausing) => Want::WriteState(MirrorState::Paused),
            Some(_) => self.want_to_fetch(now_ms),
        }
    }

    fn want_to_fetch(&self, now_ms: u64) -> Want {
        if self.must_flush_truncation() {
            return Want::Flush;
        }
        let Some(source) = self.source else { return Want::SourceMetadata };
        let aligned = match &self.histories {
            Histories::Open => return Want::Compare(source),
            Histories::Apart(_) => return Want::Search(source),
            Histories::Diverged(_) if self.gate != GateNow::Closed => return Want::CloseGate,
            Histories::Diverged(plan) => return Want::Truncate(*plan),
            Histories::Same(aligned) => *aligned,
        };
        if let Some(want) = self.want_epoch(now_ms) {
            return want;
        }
        if self.persisted.as_ref().is_none_or(|persisted| self.must_write_mirroring(persisted)) {
            return Want::WriteState(MirrorState::Mirroring);
        }
        match self.gate {
            GateNow::Open(generation) => Want::Fetch(source, aligned, generation),
            GateNow::Closed | GateNow::MustClose => Want::OpenGate,
        }
    }

    /// What the leader epoch needs, if anything.
    fn want_epoch(&self, now_ms: u64) -> Option<Want> {
        if let Some(wait) = self.wait_for_raised(now_ms) {
            return Some(wait);
        }
        let ours = self.bound.leader_epoch.0;
        let at_source = self.source.map_or(Epoch::NONE, |source| source.epoch);
        let needed = self.behind.unwrap_or(Epoch::NONE).max(at_source);
        let is_near = needed.0 > ours.saturating_sub(limits::EPOCH_MARGIN) && needed != Epoch::NONE;
        is_near.then(|| Want::RaiseEpoch(Epoch(needed.0.saturating_add(limits::EPOCH_LEAP))))
    }

    /// The controller has raised the epoch: the metadata will show it soon, or it is asked again.
    fn wait_for_raised(&self, now_ms: u64) -> Option<Want> {
        let again_at_ms = self.raising?.asked_at_ms + limits::EPOCH_SHOWN_WITHIN_MS;
        (now_ms < again_at_ms).then_some(Want::Wait(again_at_ms))
    }

    /// True where FAILED is written down for this version of the binding, which only another one ends.
    fn is_written_off(&self, persisted: &Persisted) -> bool {
        persisted.state == Some(MirrorState::Failed) && !self.is_older(persisted)
    }

    fn is_older(&self, persisted: &Persisted) -> bool {
        persisted.version < self.bound.version
    }
}

/// What was mirroring is paused in two steps; whatever else it was is kept until it is resumed.
fn want_to_pause(persisted: &Persisted) -> Want {
    match persisted.state {
        Some(MirrorState::Mirroring) => Want::WriteState(MirrorState::Pausing),
        Some(MirrorState::Pausing) => Want::WriteState(MirrorState::Paused),
        _ => Want::Nothing,
    }
}

#[cfg(test)]
mod tests;
