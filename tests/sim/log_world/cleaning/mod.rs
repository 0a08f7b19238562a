//! A world of one compacted log on a failing disk: rounds of compaction among appends, transactions, flushes,
//! truncations and crashes, with what a cleaner thread does coming back late.

mod driver;
mod oracle;
mod restart;
mod rounds;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tarn_log::{
    Cleaned, Cleaning, FlushJob, Flushed, Log, LogConfig, LogDir, LogError, ReadPlan, RemovalJob, Round,
};
use tarn_record::Timestamp;

use super::{BIT_FLIPPED, NAME_LOST, WRITE_CUT_SHORT, WRITE_LOST, WRITE_TORN, count_damage};
use crate::disk::{Faults, SimDisk};
use crate::simulation::{Schedule, Violation, World};
use oracle::Batches;

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Append,
    /// A transaction ends.
    End,
    HighWatermark,
    Flush,
    FlushRuns,
    FlushComesBack,
    /// The checkpoint files are written.
    Checkpoint,
    /// A round is prepared; its keys are mapped; the next segment is written; it takes its place.
    Clean,
    KeysAreMapped,
    CleanGoesOn,
    SwapComesBack,
    /// Files that left the log are removed.
    Remove,
    /// A plan is made that is used later.
    Plan,
    UsePlan,
    Truncate,
    BeginAnew,
    AdvanceStart,
    Compare,
    Close,
    Crash,
    /// Soon the power goes, in the middle of something.
    PowerWillGo,
}

/// What happens of itself, with the largest weight that a seed may give it.
const DRAWN: &[(Event, u32)] = &[
    (Event::Append, 40),
    (Event::End, 12),
    (Event::HighWatermark, 12),
    (Event::Flush, 16),
    (Event::Checkpoint, 8),
    (Event::Clean, 14),
    (Event::Plan, 4),
    (Event::Truncate, 2),
    (Event::BeginAnew, 1),
    (Event::AdvanceStart, 2),
    (Event::Compare, 4),
    (Event::Close, 1),
    (Event::Crash, 3),
    (Event::PowerWillGo, 4),
];

/// A rule left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Broken {
    #[default]
    Nothing,
    /// What compaction writes takes its place before it is on the medium.
    SwapBeforeSync,
    /// What was written for a log that has changed since is put into it.
    StaleSwapAccepted,
    /// Tombstones go with the first round that may drop them.
    HorizonIgnored,
    /// What may still be taken back is compacted too.
    HighWatermarkIgnored,
}

pub(crate) struct CompactedWorld {
    rng: fastrand::Rng,
    broken: Broken,
    disk: SimDisk,
    config: Arc<LogConfig>,
    /// `None` only while it is opened again.
    open: Option<Open>,
    batches: Batches,
    /// Other histories that a crash may bring back, each with where it starts.
    others: Vec<(Batches, i64)>,
    start: i64,
    start_highest: i64,
    high_watermark: i64,
    /// Batches below were promised to survive.
    flushed: i64,
    /// How often the log was cut.
    cuts: u32,
    /// The recovery point that the file has.
    saved: i64,
    /// Where the next round begins, and where the checkpoint file may say so: what a round did has to be on the medium
    /// before, or a crash undoes what the next rounds rely on.
    first_dirty: i64,
    first_dirty_flushed: i64,
    cleaned_to: i64,
    cleaned_at: i64,
    first_cleaned: BTreeMap<i64, i64>,
    weights: Vec<(Event, u32)>,
    at_rest: bool,
}

/// What a crash takes.
struct Open {
    log: Log,
    dir: Arc<LogDir>,
    flush: Flush,
    step: Step,
    removals: Vec<RemovalJob>,
    plans: Vec<Held>,
}

/// A plan, what it has to give, and how often the log was cut before.
struct Held {
    plan: ReadPlan,
    bytes: Vec<u8>,
    cuts: u32,
}

/// With where the next round began when the flush did.
enum Flush {
    None,
    Made(FlushJob, i64),
    Ran(Flushed, i64, i64),
}

/// How far the one round of a log is.
enum Step {
    None,
    Prepared(Box<Cleaning>),
    Mapped(Box<Round>),
    Written(Box<(Cleaned, Round)>),
}

impl World for CompactedWorld {
    type Event = Event;
    type Broken = Broken;

    const TEST: &'static str = "a_compacted_log_on_a_failing_disk";

    fn expected() -> Vec<&'static str> {
        vec![
            "append",
            "transaction committed",
            "transaction aborted",
            "flush",
            "flush that came back after a swap",
            "round of compaction",
            "segment swapped in",
            "segments became one",
            "swap refused as stale",
            "round of a log that has changed",
            "compaction without room",
            "power loss in a swap",
            "swap completed by an opening",
            "plan used after a swap",
            "plan found stale",
            "truncation",
            "history begun anew",
            "log start advanced",
            "clean restart",
            "crash",
            "power loss while opening",
            WRITE_CUT_SHORT,
            WRITE_TORN,
            WRITE_LOST,
            NAME_LOST,
            BIT_FLIPPED,
            "tombstone gone",
        ]
    }

    fn expected_in_all() -> Vec<&'static str> {
        Vec::new()
    }

    fn new(seed: u64, broken: Broken, schedule: &mut Schedule<Event>) -> CompactedWorld {
        let mut rng = fastrand::Rng::with_seed(seed);
        let config = LogConfig {
            segment_bytes: 1 << rng.u32(8..13),
            index_interval_bytes: 1 << rng.u32(6..10),
            segment_index_bytes: 8 * rng.u32(4..40),
            segment_ms: i64::MAX,
            ..LogConfig::default()
        };
        let mut world = CompactedWorld {
            disk: SimDisk::new(rng.u64(..)),
            weights: draw_weights(&mut rng),
            rng,
            broken,
            config: Arc::new(config),
            open: None,
            batches: Batches::default(),
            others: Vec::new(),
            start: 0,
            start_highest: 0,
            high_watermark: 0,
            flushed: 0,
            cuts: 0,
            saved: 0,
            first_dirty: 0,
            first_dirty_flushed: 0,
            cleaned_to: 0,
            cleaned_at: 0,
            first_cleaned: BTreeMap::new(),
            at_rest: false,
        };
        world.create();
        world.schedule_next(schedule);
        world
    }

    fn step(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.happen(event, schedule)?;
        if self.disk.power_lost() {
            if event == Event::SwapComesBack {
                schedule.tally("power loss in a swap");
            }
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
        let log = &self.open().log;
        let (found, expected) = ((log.start().0, log.end().0), (self.start, self.batches.end(self.start)));
        if found != expected {
            return Err(Violation::new("order", format!("the log spans {found:?} instead of {expected:?}")));
        }
        Ok(())
    }

    fn settle(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.at_rest = true;
        self.disk.keep_power();
        self.disk.set_faults(Faults::default());
        self.flush_all(schedule)?;
        self.compare(schedule)?;
        self.crash(schedule)
    }

    fn describe(&self) -> String {
        let (start, end, flushed) = (self.start, self.batches.end(self.start), self.flushed);
        let files = self.disk.describe(Path::new("/data/compacted-0"));
        format!("{start}..{end}, flushed {flushed}, cleaned to {}; {files}", self.cleaned_to)
    }

    fn fingerprint(&self) -> u64 {
        let numbers =
            [self.start, self.batches.end(self.start), self.flushed, self.cleaned_to, self.first_dirty];
        numbers.iter().fold(self.disk.syncs(), |mixed, &number| {
            mixed.rotate_left(13).wrapping_mul(0x0100_0000_01b3) ^ number as u64
        })
    }
}

impl CompactedWorld {
    fn happen(&mut self, event: Event, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        match event {
            Event::Append => self.append(schedule),
            Event::End => self.end_transaction(schedule),
            Event::HighWatermark => self.raise_high_watermark(),
            Event::Flush => self.begin_flush(schedule),
            Event::FlushRuns => self.run_flush(schedule),
            Event::FlushComesBack => self.end_flush(schedule),
            Event::Checkpoint => self.write_checkpoints(),
            Event::Clean => self.prepare_round(schedule),
            Event::KeysAreMapped => self.map_keys(schedule),
            Event::CleanGoesOn => self.write_segment(schedule),
            Event::SwapComesBack => self.swap(schedule),
            Event::Remove => self.remove_files(schedule),
            Event::Plan => self.hold_plan(schedule),
            Event::UsePlan => self.use_plan(schedule),
            Event::Truncate => self.truncate(schedule),
            Event::BeginAnew => self.begin_anew(schedule),
            Event::AdvanceStart => self.advance_start(schedule),
            Event::Compare => self.compare(schedule),
            Event::Close => self.close(schedule),
            Event::Crash => self.crash(schedule),
            Event::PowerWillGo => {
                self.disk.lose_power_after(self.rng.u32(..40));
                Ok(())
            }
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

    fn end(&self) -> i64 {
        self.batches.end(self.start)
    }

    fn read_failed(&self, error: String) -> Result<(), Violation> {
        if self.disk.power_lost() { Ok(()) } else { Err(Violation::new("read", error)) }
    }

    /// The disk never fails here but by losing its power.
    fn failed(&self, error: &LogError) -> Result<(), Violation> {
        if self.disk.power_lost() { Ok(()) } else { Err(Violation::new("disk", error.to_string())) }
    }
}

/// Which events a seed has, and how often.
fn draw_weights(rng: &mut fastrand::Rng) -> Vec<(Event, u32)> {
    let draw = |&(event, most): &(Event, u32)| {
        let drawn = if rng.bool() { rng.u32(1..=most) } else { 0 };
        let is_needed = matches!(
            event,
            Event::Append | Event::Flush | Event::Checkpoint | Event::HighWatermark | Event::Clean
        );
        (event, if is_needed { drawn.max(most / 4) } else { drawn })
    };
    DRAWN.iter().map(draw).collect()
}

fn now(schedule: &Schedule<Event>) -> Timestamp {
    Timestamp(schedule.now_ms())
}
