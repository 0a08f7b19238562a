//! A world of one partition's log on a failing disk.
//!
//! The log is production code, and so is all that it needs of tarn-log; the driver around it is a
//! stand-in: it appends what producers and other leaders send, runs jobs late, holds read plans for long,
//! writes the checkpoint files now and then, and starts again after crashes. Each seed draws which of all
//! that happens and how often; half of the seeds aim their crashes at what comes right after one kind of
//! event.

mod appends;
pub(crate) mod batches;
pub(crate) mod cleaning;
mod demands;
mod doubts;
mod driver;
mod oracle;
mod producers;
mod reads;
mod restart;
mod retention;
mod transactions;

use std::path::Path;
use std::sync::Arc;

use tarn_log::{FlushJob, Flushed, Log, LogConfig, LogDir, ReadPlan, RemovalJob};
use tarn_record::{Offset, Timestamp};

use crate::disk::{Damage, Faults, SimDisk};
use crate::simulation::{Compared, Demand, Schedule, Violation, World};
use oracle::Oracle;

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A producer sends a batch, or sends one again, or what it should not.
    Append,
    /// Batches of another leader arrive, as they are.
    AppendAsIs,
    /// A transaction ends.
    Marker,
    /// A mirror becomes writable.
    Reset,
    /// This broker becomes leader of the next epoch.
    BecomeLeader,
    /// What is at some offset is read and compared.
    Read,
    /// A plan is made that is used later.
    Plan,
    UsePlan,
    /// The record of a timestamp is searched.
    Search,
    HighWatermark,
    Truncate,
    TruncateFully,
    AdvanceStart,
    /// What is old, or too much, goes.
    Retain,
    /// A client deletes records, and is told so.
    DeleteRecords,
    /// A flush job is made; it runs, and its result comes back.
    Flush,
    FlushRuns,
    FlushComesBack,
    /// The checkpoint files are written.
    Checkpoint,
    /// Files that left the log are removed.
    Remove,
    /// The log is closed in order and opened again.
    Close,
    Crash,
    /// Soon the power goes, in the middle of something.
    PowerWillGo,
    DiskFills,
    DiskHasRoom,
    /// The next sync fails.
    SyncWillFail,
}

/// What happens of itself, with the largest weight that a seed may give it.
const DRAWN: &[(Event, u32)] = &[
    (Event::Append, 40),
    (Event::AppendAsIs, 20),
    (Event::Marker, 10),
    (Event::Reset, 1),
    (Event::BecomeLeader, 4),
    (Event::Read, 10),
    (Event::Plan, 6),
    (Event::Search, 3),
    (Event::HighWatermark, 10),
    (Event::Truncate, 3),
    (Event::TruncateFully, 1),
    (Event::AdvanceStart, 4),
    (Event::Retain, 4),
    (Event::DeleteRecords, 3),
    (Event::Flush, 10),
    (Event::Checkpoint, 5),
    (Event::Close, 1),
    (Event::Crash, 2),
    (Event::PowerWillGo, 2),
    (Event::DiskFills, 1),
    (Event::SyncWillFail, 1),
];

/// A rule left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Broken {
    #[default]
    Nothing,
    /// Flushes reach no medium.
    FlushSkipped,
    /// Names that were made and changed reach no medium.
    NamesNotSynced,
    /// A flush that failed is made again, and what the second one says is believed.
    FailedFlushRetried,
    /// A plan is used although a truncation dropped what it names.
    StalePlanAccepted,
    /// The recovery point on the disk lies above what was flushed.
    RecoveryPointAhead,
    /// The log end is taken for the high watermark.
    MarkerTrustedEarly,
    /// The shutdown is called clean although the log was not closed.
    CleanMarkWithoutClose,
    /// Batches are appended without a look at what the producer sent before.
    SequenceNotChecked,
    /// Retention drops what is not replicated.
    RetentionUnbounded,
    /// A client is told that records are deleted before that is on the medium.
    StartNotKept,
    /// After a crash the log knows of what a producer has sent no more than a snapshot has, its last batch.
    EarlierBatchesForgotten,
}

pub(crate) struct LogWorld {
    rng: fastrand::Rng,
    broken: Broken,
    disk: SimDisk,
    config: Arc<LogConfig>,
    /// `None` only while it is opened again.
    open: Option<Open>,
    oracle: Oracle,
    leader_epoch: i32,
    /// The log start that is sure to be on the disk.
    start_saved: i64,
    weights: Vec<(Event, u32)>,
    aim: Option<Event>,
    /// The faults have stopped.
    at_rest: bool,
    /// What was compared after each event.
    stable: Compared,
    epochs: Compared,
}

/// What a crash takes.
struct Open {
    log: Log,
    dir: Arc<LogDir>,
    flush: Flush,
    plans: Vec<HeldPlan>,
    removals: Vec<RemovalJob>,
}

/// How far the one flush of a log is.
enum Flush {
    None,
    Made { job: FlushJob, began: u64 },
    Ran { flushed: Flushed, upto: i64, began: u64 },
}

/// A plan, and what it has to give while it is current.
struct HeldPlan {
    plan: ReadPlan,
    bytes: Vec<u8>,
    /// The offsets of the batches it names, the last of which may be cut short.
    first: i64,
    last: i64,
    /// Where the log was cut since.
    cut_at: i64,
}

impl World for LogWorld {
    type Event = Event;
    type Broken = Broken;

    const TEST: &'static str = "a_log_on_a_failing_disk";
    fn expected() -> Vec<&'static str> {
        vec![
            "append",
            "append refused for its sequence",
            "append recognised as sent again",
            "append as it is",
            "append refused by a full disk",
            "transaction committed",
            "transaction aborted",
            "producer state reset",
            "transaction aborted at the end of a mirror",
            "read",
            "plan used",
            "plan found stale",
            "search",
            "truncation",
            "truncation below what was flushed",
            "truncation of everything",
            "history begun anew in an older epoch",
            "log start advanced",
            "old segments dropped",
            "large log shortened",
            "records deleted",
            "flush",
            "flush of batches alone",
            "flush of the whole disk",
            "flush that came back after a truncation",
            "flush that failed",
            "clean restart",
            "crash",
            "power loss in the middle",
            "power loss while opening",
            WRITE_CUT_SHORT,
            WRITE_TORN,
            WRITE_LOST,
            NAME_LOST,
            BIT_FLIPPED,
            "history lost in part",
            "segment rolled",
            "segments removed",
        ]
    }

    fn expected_in_all() -> Vec<&'static str> {
        Vec::new()
    }

    fn demands() -> &'static [Demand] {
        demands::ALL
    }

    fn new(seed: u64, broken: Broken, schedule: &mut Schedule<Event>) -> LogWorld {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(rng.u64(..));
        let config = Arc::new(LogConfig {
            segment_bytes: 1 << rng.u32(9..14),
            index_interval_bytes: 1 << rng.u32(6..12),
            segment_index_bytes: 8 * rng.u32(2..40),
            segment_ms: if rng.bool() { 3_000 } else { i64::MAX },
            ..LogConfig::default()
        });
        let weights = draw_weights(&mut rng);
        let aimed: Vec<Event> =
            weights.iter().filter(|(_, weight)| *weight > 0).map(|&(event, _)| event).collect();
        let aim = rng.bool().then(|| aimed[rng.usize(..aimed.len())]);
        let mut world = LogWorld {
            rng,
            broken,
            disk,
            config,
            open: None,
            oracle: Oracle::default(),
            leader_epoch: 0,
            start_saved: 0,
            weights,
            aim,
            at_rest: false,
            stable: Compared::default(),
            epochs: Compared::default(),
        };
        world.create();
        world.disk.set_faults(world.quiet());
        world.schedule_next(schedule);
        world
    }

    fn step(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.happen(event, schedule)?;
        if self.disk.power_lost() {
            schedule.tally("power loss in the middle");
            self.crash(schedule)?;
        } else if self.aim == Some(event) && self.rng.u8(..4) == 0 {
            self.crash(schedule)?;
        }
        if DRAWN.iter().any(|(drawn, _)| *drawn == event) {
            self.schedule_next(schedule);
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Violation> {
        if let Some(found) = self.disk.violation() {
            return Err(Violation::new("disk", found));
        }
        let (log, oracle) = (&self.open().log, &self.oracle);
        let (found, expected) = ((log.start().0, log.end().0), (oracle.start, oracle.end));
        if found != expected {
            return Err(Violation::new("order", format!("the log spans {found:?} instead of {expected:?}")));
        }
        let found = log.last_stable_offset(Offset(oracle.high_watermark)).0;
        let (expected, highest) = (oracle.last_stable(), oracle.last_stable_max());
        if !(expected..=highest).contains(&found) {
            let text = format!("the last stable offset is {found} instead of {expected}, at most {highest}");
            return Err(Violation::new("last stable offset", text));
        }
        let is_stable_demanded = expected == highest;
        if log.recovery_point() > log.flushed_to() || log.flushed_to() > log.end() {
            return Err(Violation::new(
                "order",
                "the recovery point is above the flushed end, or that above the end",
            ));
        }
        let epochs = log.epochs().starts();
        if epochs.iter().any(|begun| begun.start < log.start() || begun.start > log.end()) {
            return Err(Violation::new("epochs", format!("an epoch begins outside of the log: {epochs:?}")));
        }
        let epoch = oracle.batches.last().map(|last| self.compare_epoch(last)).transpose()?;
        self.stable.count(is_stable_demanded);
        epoch.into_iter().for_each(|is_demanded| self.epochs.count(is_demanded));
        Ok(())
    }

    fn settle(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.at_rest = true;
        self.disk.keep_power();
        self.disk.set_faults(self.quiet());
        self.flush_all(schedule)?;
        self.compare_all(schedule)?;
        let before = self.oracle.batches.len();
        self.crash(schedule)?;
        if self.oracle.batches.len() < before {
            return Err(Violation::new("durability", "a crash at rest lost batches"));
        }
        demands::STABLE.tally(self.stable, schedule);
        demands::EPOCHS.tally(self.epochs, schedule);
        Ok(())
    }

    fn describe(&self) -> String {
        let Oracle { start, end, high_watermark, flushed, .. } = self.oracle;
        let files = self.disk.describe(Path::new(restart::DIR));
        format!("{start}..{end}, replicated {high_watermark}, flushed {flushed}; {files}")
    }

    fn fingerprint(&self) -> u64 {
        let oracle = &self.oracle;
        let numbers = [oracle.start, oracle.end, oracle.high_watermark, oracle.flushed, oracle.last_stable()];
        let mixed = numbers.iter().fold(self.disk.syncs(), |mixed, &number| {
            mixed.rotate_left(13).wrapping_mul(0x0100_0000_01b3) ^ number as u64
        });
        mixed ^ oracle.batches.last().map_or(0, |batch| u64::from(tarn_record::crc32c(&batch.bytes)))
    }
}

impl LogWorld {
    fn happen(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        match event {
            Event::Append => self.append(schedule),
            Event::AppendAsIs => self.append_as_is(schedule),
            Event::Marker => self.append_marker(schedule),
            Event::Reset => self.append_reset(schedule),
            Event::BecomeLeader => self.become_leader(),
            Event::Read => self.read_somewhere(schedule),
            Event::Plan => self.hold_plan(schedule),
            Event::UsePlan => self.use_plan(schedule),
            Event::Search => self.search(schedule),
            Event::HighWatermark => self.raise_high_watermark(),
            Event::Truncate => self.truncate(schedule),
            Event::TruncateFully => self.truncate_fully(schedule),
            Event::AdvanceStart => self.advance_start(schedule),
            Event::Retain => self.retain(schedule),
            Event::DeleteRecords => self.delete_records(schedule),
            Event::Flush => self.begin_flush(schedule),
            Event::FlushRuns => self.run_flush(schedule),
            Event::FlushComesBack => self.end_flush(schedule),
            Event::Checkpoint => self.write_checkpoints(),
            Event::Remove => self.remove_files(schedule),
            Event::Close => self.close(schedule),
            Event::Crash => self.crash(schedule),
            Event::PowerWillGo => {
                self.disk.lose_power_after(self.rng.u32(..40));
                Ok(())
            }
            Event::DiskFills => {
                let full_after = Some(self.rng.u32(..6));
                self.disk.set_faults(Faults { full_after, ..self.disk.faults() });
                schedule.after_ms(self.rng.i64(1..400), Event::DiskHasRoom);
                Ok(())
            }
            Event::DiskHasRoom => {
                self.disk.set_faults(self.quiet());
                Ok(())
            }
            Event::SyncWillFail => {
                self.disk.set_faults(Faults { sync_fails: true, ..self.disk.faults() });
                schedule.after_ms(self.rng.i64(1..200), Event::DiskHasRoom);
                Ok(())
            }
        }
    }

    /// A disk without faults, but for the one that is broken on purpose.
    fn quiet(&self) -> Faults {
        Faults {
            sync_lies: self.broken == Broken::FlushSkipped,
            names_lie: self.broken == Broken::NamesNotSynced,
            ..Faults::default()
        }
    }

    fn schedule_next(&mut self, schedule: &mut Schedule<Event>) {
        let all: u32 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.rng.u32(..all);
        for &(event, weight) in &self.weights {
            if drawn < weight {
                schedule.after_ms(self.rng.i64(1..50), event);
                return;
            }
            drawn -= weight;
        }
    }

    fn open(&self) -> &Open {
        self.open.as_ref().expect("the log is open between events")
    }

    fn open_mut(&mut self) -> &mut Open {
        self.open.as_mut().expect("the log is open between events")
    }

    fn log_mut(&mut self) -> &mut Log {
        &mut self.open_mut().log
    }
}

/// Which events a seed has, and how often.
fn draw_weights(rng: &mut fastrand::Rng) -> Vec<(Event, u32)> {
    let draw = |&(event, most): &(Event, u32)| {
        let drawn = if rng.bool() { rng.u32(1..=most) } else { 0 };
        (event, if event == Event::Append { drawn.max(most / 4) } else { drawn })
    };
    DRAWN.iter().map(draw).collect()
}

const WRITE_CUT_SHORT: &str = "write cut short by the disk";
const WRITE_TORN: &str = "write torn by the disk";
const WRITE_LOST: &str = "write lost by the disk";
const NAME_LOST: &str = "change of a name lost by the disk";
const BIT_FLIPPED: &str = "bit flipped by the disk";

/// Counts what a crash and the failed syncs before it did.
fn count_damage<E>(damage: &Damage, schedule: &mut Schedule<E>) {
    schedule.tally_many(WRITE_CUT_SHORT, damage.cut_short);
    schedule.tally_many(WRITE_TORN, damage.torn);
    schedule.tally_many(WRITE_LOST, damage.lost);
    schedule.tally_many(NAME_LOST, damage.names_lost);
    schedule.tally_many(BIT_FLIPPED, damage.bits_flipped);
}

fn now(schedule: &Schedule<Event>) -> Timestamp {
    Timestamp(schedule.now_ms())
}
