//! The lane of the world: fetches from the source, sends what came to the owning core, and reports.

use tarn_mirror::known::SourceKnown;
use tarn_mirror::lag::Lag;
use tarn_mirror::local_cluster::{MirrorAppended, MirrorGeneration};
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::metadata::SourceLeader;
use tarn_record::Offset;

use super::MirrorWorld;
use super::happenings::Event;
use super::manager::now_ms;
use super::network::{Channel, Message};
use super::source::{Shown, There};
use super::writing::Told;
use crate::simulation::{Schedule, Violation};

/// The most batches of one answer.
const BATCHES_MAX: usize = 3;

/// What the lane fetches, while it does.
#[derive(Debug)]
pub(super) struct Lane {
    serial: u64,
    leader: SourceLeader,
    generation: MirrorGeneration,
    position: i64,
    is_unproven: bool,
    /// Where an append was out of step; the second at the same place is for good.
    out_of_step: Option<i64>,
    /// An append is under way, and what came meanwhile waits for it: behind one that is refused nothing is appended.
    is_appending: bool,
    waiting: Option<(i64, Came)>,
    lag: Lag,
}

impl Lane {
    /// What it knows of the source.
    pub(super) fn known(&self, now_ms: u64) -> Option<SourceKnown> {
        self.lag.at(now_ms).map(|lag| SourceKnown::of(&lag, now_ms))
    }
}

#[derive(Debug)]
pub(super) enum OfLane {
    /// To the source.
    Fetch(SourceLeader, i64),
    /// From the source.
    Came(i64, Came),
    /// To the owning core: under which opening of the gate, and how far the source is.
    Append(MirrorGeneration, Vec<There>, Shown),
    /// From it, and whether what was appended was anything.
    Done(MirrorAppended, bool),
}

#[derive(Debug)]
pub(super) enum Came {
    Batches(Vec<There>, Shown),
    Moved,
    Parted,
    Unreachable,
}

impl MirrorWorld {
    pub(super) fn begin_lane(
        &mut self,
        leader: SourceLeader,
        from: Offset,
        generation: MirrorGeneration,
        schedule: &mut Schedule<Event>,
    ) {
        self.serials += 1;
        let (serial, position) = (self.serials, from.0);
        self.lane = Some(Lane {
            serial,
            leader,
            generation,
            position,
            is_unproven: true,
            out_of_step: None,
            is_appending: false,
            waiting: None,
            lag: Lag::default(),
        });
        self.fetch(schedule);
    }

    fn fetch(&mut self, schedule: &mut Schedule<Event>) {
        let Some(&Lane { serial, leader, position, .. }) = self.lane.as_ref() else { return };
        self.send(Channel::LaneToSource, Message::OfLane(serial, OfLane::Fetch(leader, position)), schedule);
    }

    pub(super) fn of_lane(
        &mut self,
        serial: u64,
        message: OfLane,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        match message {
            OfLane::Fetch(leader, from) => {
                let came = self.read_at_source(leader, from, schedule);
                self.send(Channel::ToLane, Message::OfLane(serial, OfLane::Came(from, came)), schedule);
            }
            OfLane::Came(asked, came) => self.came(serial, asked, came, schedule),
            OfLane::Append(generation, batches, shown) => {
                let (stopping_at, now_ms) = (self.stopping_at(), schedule.now_ms());
                let fetched = (generation, &*batches, shown);
                let result = self.core.append_mirrored(fetched, stopping_at, &self.source, now_ms)?;
                schedule.tally(match result {
                    MirrorAppended::Appended { .. } => "append",
                    MirrorAppended::StaleGeneration => "append of a stale generation",
                    MirrorAppended::EpochBehind { .. } => "append of a higher epoch",
                    MirrorAppended::NotNext { .. } => "append that is not next",
                    MirrorAppended::Storage(_) => "append refused by the disk",
                    MirrorAppended::NotLeader => "append elsewhere",
                });
                let done = OfLane::Done(result, !batches.is_empty());
                self.send(Channel::ToLane, Message::OfLane(serial, done), schedule);
            }
            OfLane::Done(result, was_something) => self.done(serial, result, was_something, schedule),
        }
        Ok(())
    }

    fn read_at_source(&mut self, leader: SourceLeader, from: i64, schedule: &mut Schedule<Event>) -> Came {
        if self.source.is_gone {
            schedule.tally("fetch from a source that is gone");
            return Came::Unreachable;
        }
        if leader.epoch.0 != self.source.epoch() {
            schedule.tally("fetch from an old leader");
            return Came::Moved;
        }
        if self.source.is_deleted || self.source.is_another() {
            schedule.tally("fetch of a topic that is gone");
            return Came::Moved;
        }
        let shown = self.source.show(&mut self.rng);
        match self.source.fetch(from, BATCHES_MAX, shown) {
            Some(batches) => Came::Batches(batches, shown),
            None => {
                schedule.tally("fetch out of range");
                Came::Parted
            }
        }
    }

    fn came(&mut self, serial: u64, asked: i64, came: Came, schedule: &mut Schedule<Event>) {
        let Some(lane) = self.lane.as_mut().filter(|lane| lane.serial == serial) else { return };
        if lane.is_appending {
            lane.waiting = Some((asked, came));
            return;
        }
        if asked != lane.position {
            // What is under way answers what is not wanted any more.
            return self.fetch(schedule);
        }
        match came {
            Came::Batches(batches, shown) => {
                let (now, high_watermark) = (now_ms(schedule), Offset(shown.high_watermark));
                lane.lag.answered(now, high_watermark, Offset(lane.position));
                self.told = Some(Told { high_watermark: high_watermark.0, at_ms: schedule.now_ms() });
                lane.is_appending = true;
                if batches.is_empty() {
                    // The source holds a fetch back while there is nothing.
                    let again = Message::OfLane(serial, OfLane::Fetch(lane.leader, lane.position));
                    let append = OfLane::Append(lane.generation, batches, shown);
                    self.send(Channel::LaneToCore, Message::OfLane(serial, append), schedule);
                    return self.send_later(100, again, schedule);
                }
                lane.position = batches.last().map_or(lane.position, |batch| batch.stored.last + 1);
                let append = OfLane::Append(lane.generation, batches, shown);
                self.send(Channel::LaneToCore, Message::OfLane(serial, append), schedule);
                self.fetch(schedule);
            }
            Came::Moved => {
                self.leave(schedule);
                self.source_lost(schedule);
            }
            Came::Parted => {
                self.leave(schedule);
                if self.partition.said_diverged() {
                    self.fail(Reason::SourceError, schedule);
                }
            }
            Came::Unreachable => {
                self.leave(schedule);
                self.source_lost(schedule);
            }
        }
    }

    fn done(
        &mut self,
        serial: u64,
        result: MirrorAppended,
        was_something: bool,
        schedule: &mut Schedule<Event>,
    ) {
        let Some(lane) = self.lane.as_mut().filter(|lane| lane.serial == serial) else { return };
        lane.is_appending = false;
        let waiting = lane.waiting.take();
        match result {
            MirrorAppended::Appended { log_end, .. } => {
                lane.lag.appended(log_end);
                lane.out_of_step = None;
                let is_at_end = self.core.oracle.end() >= self.source.end();
                if (was_something || is_at_end) && std::mem::take(&mut lane.is_unproven) {
                    self.partition.goes_on();
                }
            }
            MirrorAppended::StaleGeneration | MirrorAppended::NotLeader => {
                self.leave(schedule);
                self.fail(Reason::DestinationNoLeader, schedule);
            }
            MirrorAppended::EpochBehind { batch_epoch, .. } => {
                self.leave(schedule);
                self.partition.fell_behind(batch_epoch);
            }
            MirrorAppended::NotNext { log_end, .. }
                if lane.out_of_step.replace(log_end.0) != Some(log_end.0) =>
            {
                lane.position = log_end.0;
            }
            MirrorAppended::NotNext { .. } => {
                self.leave(schedule);
                self.fail(Reason::SourceError, schedule);
            }
            MirrorAppended::Storage(_) => {
                self.leave(schedule);
                self.fail(Reason::DestinationStorage, schedule);
            }
        }
        if let Some((asked, came)) = waiting {
            self.came(serial, asked, came, schedule);
        }
    }

    /// The lane leaves the partition through a fault.
    pub(super) fn leave(&mut self, schedule: &Schedule<Event>) {
        self.left_lane(schedule);
        self.partition.doubt();
    }
}
