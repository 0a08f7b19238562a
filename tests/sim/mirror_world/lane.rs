//! The lane of the world: what it asks for next, and what it takes out of an answer, is production's plan and intake; the
//! connection, and what becomes of what it cannot append, is a stand-in. It sends what came to the owning core, and
//! reports to the manager.
//!
//! A partition that is given to a lane again finds the connection that it left, with its session, or another one.

use std::sync::Arc;

use tarn_mirror::fetch::intake::{self, Fault};
use tarn_mirror::fetch::plan::{
    Assignment, Dialect, FetchPlan, FetchSizes, LeaderHint, News, Received, TopicAtSource, What,
};
use tarn_mirror::known::SourceKnown;
use tarn_mirror::lag::Lag;
use tarn_mirror::local_cluster::{MirrorAppended, MirrorGeneration};
use tarn_mirror::partition::Aligned;
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::metadata::SourceLeader;
use tarn_record::{Offset, TopicId};
use tarn_wire::ErrorCode;
use tarn_wire::messages::FetchRequest;

use super::MirrorWorld;
use super::controller::{PARTITION, TOPIC};
use super::fetching::Answered;
use super::happenings::Event;
use super::manager::now_ms;
use super::network::{Channel, Message};
use super::source::{Shown, There};
use super::writing::Told;
use crate::simulation::{Schedule, Violation};

/// No size keeps anything back here.
const SIZES: FetchSizes =
    FetchSizes { max_wait_ms: 100, min_bytes: 1, max_bytes: 1 << 20, partition_max_bytes: 1 << 20 };
const BATCH_MAX_BYTES: usize = 1 << 20;
/// For how long a source holds a fetch back while it has no news.
const HELD_BACK_MS: i64 = 100;

/// The partition, while it is fetched.
#[derive(Debug)]
pub(super) struct Lane {
    serial: u64,
    is_unproven: bool,
    /// Where an append was out of step, or a batch damaged; the second at the same place is for good.
    out_of_step: Option<Offset>,
    damaged: Option<Offset>,
    lag: Lag,
}

impl Lane {
    /// What it knows of the source.
    pub(super) fn known(&self, now_ms: u64) -> Option<SourceKnown> {
        self.lag.at(now_ms).map(|lag| SourceKnown::of(&lag, now_ms))
    }
}

/// One connection to a source broker: one request at a time, and one answer that is appended.
#[derive(Debug, Default)]
pub(super) struct Connection {
    number: u64,
    plan: FetchPlan,
    /// A request is out, or its answer was not looked at yet.
    is_asking: bool,
    is_appending: bool,
    /// What came while an append was under way: behind one that is refused nothing is appended.
    waiting: Option<Came>,
}

#[derive(Debug)]
pub(super) enum OfLane {
    /// To the source.
    Fetch(Box<FetchRequest>),
    /// From the source.
    Came(Came),
    /// To the owning core.
    Append(Fetched),
    /// From it, and whether that ends a failure.
    Done(u64, MirrorAppended, bool),
}

/// What is to be appended: by which assignment, under which opening of the gate, and how far the source is.
#[derive(Debug)]
pub(super) struct Fetched {
    serial: u64,
    pub(super) generation: MirrorGeneration,
    pub(super) batches: Vec<There>,
    pub(super) shown: Shown,
    ends_failure: bool,
}

#[derive(Debug)]
pub(super) enum Came {
    Answer(Box<Answered>),
    Unreachable,
}

impl Connection {
    /// The partition is fetched no more.
    pub(super) fn lets_go(&mut self) {
        self.plan.remove(PARTITION);
    }
}

impl MirrorWorld {
    pub(super) fn begin_lane(
        &mut self,
        leader: SourceLeader,
        aligned: Aligned,
        generation: MirrorGeneration,
        schedule: &mut Schedule<Event>,
    ) {
        self.serials += 1;
        if self.connection.number == 0 || self.rng.bool() {
            self.connect();
        }
        self.connection.plan.add(Assignment {
            partition: PARTITION,
            topic: Arc::new(TopicAtSource { name: TOPIC.into(), id: TopicId::ZERO }),
            serial: self.serials,
            generation,
            from: aligned.from,
            last_epoch: aligned.last_epoch,
            leader_epoch: leader.epoch,
            compacted: aligned.compacted,
        });
        self.lane = Some(Lane {
            serial: self.serials,
            is_unproven: true,
            out_of_step: None,
            damaged: None,
            lag: Lag::default(),
        });
        self.ask(schedule);
    }

    /// Another connection: what is on its way over the one before finds nobody.
    pub(super) fn connect(&mut self) {
        let number = self.connection.number + 1;
        self.connection = Connection { number, ..Connection::default() };
        let last_fetched_epoch = self.source.fetching.compares_epochs;
        self.connection.plan.connected(Dialect { topic_ids: false, last_fetched_epoch });
    }

    /// Sends the next request.
    fn ask(&mut self, schedule: &mut Schedule<Event>) {
        let Connection { plan, is_asking, number, .. } = &mut self.connection;
        if *is_asking || plan.is_empty() {
            return;
        }
        *is_asking = true;
        let (request, number) = (Box::new(plan.request(SIZES).0), *number);
        self.send(Channel::LaneToSource, Message::OfLane(number, OfLane::Fetch(request)), schedule);
    }

    pub(super) fn of_lane(
        &mut self,
        number: u64,
        message: OfLane,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let is_connected = number == self.connection.number;
        match message {
            OfLane::Fetch(request) if is_connected => self.answer(&request, schedule),
            OfLane::Came(came) if is_connected && self.connection.is_appending => {
                self.connection.waiting = Some(came);
            }
            OfLane::Came(came) if is_connected => self.came(came, schedule),
            OfLane::Fetch(_) | OfLane::Came(_) => {}
            OfLane::Append(fetched) => {
                let (stopping_at, now_ms) = (self.stopping_at(), schedule.now_ms());
                let result = self.core.append_mirrored(
                    &fetched,
                    stopping_at,
                    (self.mirror_life(), &self.source),
                    now_ms,
                )?;
                schedule.tally(match result {
                    MirrorAppended::Appended { .. } => "append",
                    MirrorAppended::StaleGeneration => "append of a stale generation",
                    MirrorAppended::EpochBehind { .. } => "append of a higher epoch",
                    MirrorAppended::NotNext { .. } => "append that is not next",
                    MirrorAppended::Storage(_) => "append refused by the disk",
                    MirrorAppended::NotLeader => "append elsewhere",
                });
                let done = OfLane::Done(fetched.serial, result, fetched.ends_failure);
                self.send(Channel::ToLane, Message::OfLane(number, done), schedule);
            }
            OfLane::Done(serial, result, ends_failure) => {
                if self.lane.as_ref().is_some_and(|lane| lane.serial == serial) {
                    self.done(result, ends_failure, schedule);
                }
                if is_connected {
                    self.connection.is_appending = false;
                    if let Some(came) = self.connection.waiting.take() {
                        self.came(came, schedule);
                    }
                    self.ask(schedule);
                }
            }
        }
        Ok(())
    }

    /// The source gets a request.
    fn answer(&mut self, request: &FetchRequest, schedule: &mut Schedule<Event>) {
        let number = self.connection.number;
        if self.source.is_gone {
            schedule.tally("fetch from a source that is gone");
            let came = OfLane::Came(Came::Unreachable);
            return self.send(Channel::ToLane, Message::OfLane(number, came), schedule);
        }
        let answered = self.source.answer(request, &mut self.rng);
        let is_held_back = !answered.is_urgent() && request.max_wait_ms > 0;
        let came = Message::OfLane(number, OfLane::Came(Came::Answer(Box::new(answered))));
        match is_held_back {
            true => self.send_later(HELD_BACK_MS, came, schedule),
            false => self.send(Channel::ToLane, came, schedule),
        }
    }

    fn came(&mut self, came: Came, schedule: &mut Schedule<Event>) {
        self.connection.is_asking = false;
        match came {
            Came::Unreachable => self.link_breaks(schedule),
            Came::Answer(answered) => {
                let Answered { response, batches } = *answered;
                match self.connection.plan.receive(response) {
                    Received::SessionLost(_) => schedule.tally("fetch session lost"),
                    Received::News(news) if news.is_empty() => self.still_alive(schedule),
                    Received::News(news) => {
                        for one in news {
                            self.take_news(one, &batches, schedule);
                        }
                    }
                }
            }
        }
        self.ask(schedule);
    }

    /// The connection is lost.
    pub(super) fn link_breaks(&mut self, schedule: &mut Schedule<Event>) {
        self.connect();
        if self.lane.is_some() {
            self.leave(schedule);
            self.source_lost(schedule);
        }
    }

    /// The source has answered, and nothing is new.
    fn still_alive(&mut self, schedule: &mut Schedule<Event>) {
        let Some(lane) = self.lane.as_mut() else { return };
        lane.lag.still_alive(now_ms(schedule));
        if lane.lag.at(now_ms(schedule)).is_some()
            && let Some(told) = &mut self.told
        {
            told.at_ms = schedule.now_ms();
        }
    }

    fn take_news(&mut self, news: News, there: &[There], schedule: &mut Schedule<Event>) {
        let News { serial, generation, asked, what, .. } = news;
        let Some(lane) = self.lane.as_mut().filter(|lane| lane.serial == serial) else { return };
        match what {
            What::Records { records, high_watermark, log_start } => {
                let taken = intake::take(records, asked, BATCH_MAX_BYTES);
                let high_watermark = high_watermark.max(taken.next);
                lane.lag.answered(now_ms(schedule), high_watermark, asked);
                self.told = Some(Told { high_watermark: high_watermark.0, at_ms: schedule.now_ms() });
                let ends_failure = taken.next > asked || (taken.fault.is_none() && high_watermark <= asked);
                let is_taken = |batch: &&There| {
                    taken.batches.iter().any(|one| one.header().base_offset.0 == batch.stored.base)
                };
                let batches: Vec<There> = there.iter().filter(is_taken).cloned().collect();
                let next = taken.next;
                if !batches.is_empty() {
                    self.connection.plan.advance(PARTITION, serial, next, taken.last_epoch);
                }
                let shown = Shown { start: log_start.0.max(0), high_watermark: high_watermark.0 };
                let fetched = Fetched { serial, generation, batches, shown, ends_failure };
                self.connection.is_appending = true;
                self.send_append(self.connection.number, fetched, schedule);
                if let Some(fault) = taken.fault {
                    self.met(&fault, next, schedule);
                }
            }
            What::Diverged => {
                schedule.tally("source says that logs part");
                self.parted(schedule);
            }
            What::Error(ErrorCode::OFFSET_OUT_OF_RANGE, _) => {
                schedule.tally("fetch out of range");
                self.parted(schedule);
            }
            What::Error(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, _) => {
                schedule.tally("fetch of a topic that is gone");
                self.leave(schedule);
                self.source_lost(schedule);
            }
            What::Error(_, hint) => {
                schedule.tally("fetch from an old leader");
                self.moved(hint, schedule);
            }
        }
    }

    /// A batch is damaged.
    fn met(&mut self, fault: &Fault, at: Offset, schedule: &mut Schedule<Event>) {
        schedule.tally("batch damaged on the way");
        let Some(lane) = self.lane.as_mut() else { return };
        let is_again = lane.damaged.replace(at) == Some(at);
        match fault {
            Fault::Damaged(_) if !is_again => self.connection.plan.again(PARTITION, lane.serial, at),
            _ => {
                self.leave(schedule);
                self.fail(Reason::CorruptBatch, schedule);
            }
        }
    }

    fn parted(&mut self, schedule: &mut Schedule<Event>) {
        self.leave(schedule);
        if self.partition.said_diverged() {
            self.fail(Reason::SourceError, schedule);
        }
    }

    fn moved(&mut self, hint: Option<LeaderHint>, schedule: &mut Schedule<Event>) {
        let before = self.partition.source();
        let Some(LeaderHint { leader, epoch, .. }) = hint else {
            self.leave(schedule);
            return self.source_lost(schedule);
        };
        schedule.tally("leader told by the source");
        self.left_lane(schedule);
        self.partition.source_seen(Some(SourceLeader { broker: leader, epoch }));
        if self.partition.source() == before {
            self.partition.doubt();
            self.source_lost(schedule);
        }
    }

    fn done(&mut self, result: MirrorAppended, ends_failure: bool, schedule: &mut Schedule<Event>) {
        let Some(lane) = self.lane.as_mut() else { return };
        match result {
            MirrorAppended::Appended { log_end, .. } => {
                lane.lag.appended(log_end);
                lane.out_of_step = None;
                if ends_failure && std::mem::take(&mut lane.is_unproven) {
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
            MirrorAppended::NotNext { log_end, .. } if lane.out_of_step.replace(log_end) != Some(log_end) => {
                self.connection.plan.again(PARTITION, lane.serial, log_end);
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
    }

    /// The lane leaves the partition through a fault.
    pub(super) fn leave(&mut self, schedule: &Schedule<Event>) {
        self.left_lane(schedule);
        self.partition.doubt();
    }
}
