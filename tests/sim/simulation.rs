//! Virtual time, and the search for a seed that breaks a rule.
//!
//! A [`World`] owns production code as plain structs and everything it meets. Time moves only from one
//! event to the next; events at the same time keep the order in which they were scheduled, so a seed is a
//! history. After each event the world's checkers look; at the end the faults stop and the world has to
//! come to rest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// How many events a violation shows.
const EVENTS_SHOWN: usize = 50;
/// Among so many seeds everything that is expected has to happen.
const BLOCK: u64 = 1000;

/// What is simulated.
pub(crate) trait World: Sized {
    /// One thing that happens.
    type Event: Copy + Debug;
    /// A rule left out on purpose, to see that the checkers notice; `Default` is none.
    type Broken: Copy + Debug + Default + Send + Sync;

    /// The name of the test that runs this world's seeds.
    const TEST: &'static str;
    /// What has to happen at least once in each block of seeds.
    fn expected() -> Vec<&'static str>;
    /// What has to happen at least once in all that CI runs.
    fn expected_in_all() -> Vec<&'static str>;
    /// What its checkers have to demand in each block of seeds, and may not excuse.
    fn demands() -> &'static [Demand] {
        &[]
    }

    fn new(seed: u64, broken: Self::Broken, schedule: &mut Schedule<Self::Event>) -> Self;
    fn step(&mut self, event: Self::Event, schedule: &mut Schedule<Self::Event>) -> Result<(), Violation>;
    /// Cheap checks, after each event.
    fn check(&mut self) -> Result<(), Violation>;
    /// The faults have stopped: comes to rest and compares everything.
    fn settle(&mut self, schedule: &mut Schedule<Self::Event>) -> Result<(), Violation>;
    /// Numbers that differ when histories do.
    fn fingerprint(&self) -> u64;
    /// How things stand, in a line: shown where one seed is replayed.
    fn describe(&self) -> String;
}

/// What comes next, and what has been.
#[derive(Debug)]
pub(crate) struct Schedule<E> {
    now_ms: i64,
    scheduled: u64,
    queue: BinaryHeap<Reverse<Entry<E>>>,
    tally: Tally,
}

/// Comparisons of one kind, some of which excuse more than one result: a checker that excuses too much finds nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// What the table calls those that demand one result.
    pub(crate) demanded: &'static str,
    /// And the others.
    pub(crate) excused: &'static str,
    /// The fewest of the former for one of the latter.
    pub(crate) for_one_excused: u64,
    /// The fewest of the former for one seed.
    pub(crate) for_a_seed: u64,
}

impl Demand {
    /// Counts one.
    pub(crate) fn count<E>(&self, is_demanded: bool, schedule: &mut Schedule<E>) {
        schedule.tally(if is_demanded { self.demanded } else { self.excused });
    }

    /// Counts many.
    pub(crate) fn tally<E>(&self, compared: Compared, schedule: &mut Schedule<E>) {
        schedule.tally_many(self.demanded, compared.demanded);
        schedule.tally_many(self.excused, compared.excused);
    }
}

/// How many comparisons demanded one result, and how many excused others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) demanded: u64,
    pub(crate) excused: u64,
}

impl Compared {
    pub(crate) fn count(&mut self, is_demanded: bool) {
        *if is_demanded { &mut self.demanded } else { &mut self.excused } += 1;
    }
}

/// How often things happened.
#[derive(Debug, Default)]
struct Tally(Vec<(&'static str, u64)>);

impl Tally {
    fn count(&mut self, what: &'static str, times: u64) {
        // A name is mostly the same text at the same address: only what is new here is compared as a text.
        let at = self.0.iter().position(|&(known, _)| std::ptr::eq(known, what));
        match at.or_else(|| self.0.iter().position(|&(known, _)| known == what)) {
            Some(at) => self.0[at].1 += times,
            None => self.0.push((what, times)),
        }
    }
}

#[derive(Debug)]
struct Entry<E> {
    at_ms: i64,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.order).cmp(&(other.at_ms, other.order))
    }
}

impl<E> Schedule<E> {
    fn new() -> Schedule<E> {
        Schedule { now_ms: 0, scheduled: 0, queue: BinaryHeap::new(), tally: Tally::default() }
    }

    /// The virtual time.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Lets an event happen later.
    pub(crate) fn after_ms(&mut self, delay_ms: i64, event: E) {
        self.scheduled += 1;
        let entry = Entry { at_ms: self.now_ms + delay_ms, order: self.scheduled, event };
        self.queue.push(Reverse(entry));
    }

    /// Forgets the events for which `keep` does not hold, as a crash does.
    pub(crate) fn retain(&mut self, keep: impl Fn(&E) -> bool) {
        self.queue.retain(|Reverse(entry)| keep(&entry.event));
    }

    /// Counts something for the table.
    pub(crate) fn tally(&mut self, what: &'static str) {
        self.tally.count(what, 1);
    }

    /// Counts something that has happened so often.
    pub(crate) fn tally_many(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            self.tally.count(what, times);
        }
    }

    /// Goes on to the next event: the world's to call only while it comes to rest.
    pub(crate) fn next(&mut self) -> Option<E> {
        let Reverse(entry) = self.queue.pop()?;
        self.now_ms = entry.at_ms;
        Some(entry.event)
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Which checker found it.
    pub(crate) checker: &'static str,
    /// What it found.
    pub(crate) found: String,
}

impl Violation {
    pub(crate) fn new(checker: &'static str, found: impl Into<String>) -> Violation {
        Violation { checker, found: found.into() }
    }
}

/// One seed's history.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) seed: u64,
    pub(crate) events: u64,
    pub(crate) virtual_ms: i64,
    /// A digest of all that happened.
    pub(crate) trace: u64,
    pub(crate) tally: BTreeMap<&'static str, u64>,
    pub(crate) violation: Option<Violation>,
    last_events: VecDeque<String>,
}

/// Whether a run shows each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Nothing,
    EachEvent,
}

/// Runs one seed for at most `events` events.
pub(crate) fn run<W: World>(seed: u64, events: u64, broken: W::Broken, show: Show) -> History {
    let mut schedule = Schedule::new();
    let mut recent: VecDeque<(i64, W::Event)> = VecDeque::with_capacity(EVENTS_SHOWN);
    let (mut happened, mut trace) = (0, 0u64);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = W::new(seed, broken, &mut schedule);
        while happened < events {
            let Some(event) = schedule.next() else { break };
            happened += 1;
            if recent.len() == EVENTS_SHOWN {
                recent.pop_front();
            }
            recent.push_back((schedule.now_ms, event));
            let stepped = world.step(event, &mut schedule);
            if show == Show::EachEvent {
                eprintln!("{happened:>6} {:>9} ms  {event:?}: {}", schedule.now_ms, world.describe());
            }
            stepped?;
            world.check()?;
            trace = trace.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ world.fingerprint();
        }
        world.settle(&mut schedule)?;
        trace ^= world.fingerprint();
        Ok(())
    }));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => Some(Violation::new("panic", panic_text(panic.as_ref()))),
    };
    let shown = |(at_ms, event): &(i64, W::Event)| format!("{at_ms:>9} ms  {event:?}");
    let last_events = if violation.is_some() { recent.iter().map(shown).collect() } else { VecDeque::new() };
    let (virtual_ms, tally) = (schedule.now_ms, schedule.tally.0.into_iter().collect());
    History { seed, events: happened, virtual_ms, trace, tally, violation, last_events }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

impl History {
    /// The violation, the events before it and how to see it again.
    fn report<W: World>(&self) -> String {
        let Some(violation) = &self.violation else { return String::new() };
        let events: String = self.last_events.iter().map(|event| format!("{event}\n")).collect();
        format!(
            "seed {}: {}: {}\nthe last of {} events:\n{events}replay: SEED={} EVENTS={} tests/run.sh sim::{}",
            self.seed,
            violation.checker,
            violation.found,
            self.events,
            self.seed,
            self.events,
            W::TEST,
        )
    }
}

/// Seeds together.
#[derive(Debug, Default)]
pub(crate) struct Table {
    seeds: u64,
    events: u64,
    virtual_ms: i64,
    tally: BTreeMap<&'static str, u64>,
    /// How often what is expected happened in the block that has the least of it.
    least: BTreeMap<&'static str, u64>,
}

impl Table {
    fn add(&mut self, history: &History) {
        self.seeds += 1;
        self.events += history.events;
        self.virtual_ms += history.virtual_ms;
        for (what, count) in &history.tally {
            *self.tally.entry(what).or_default() += count;
        }
    }

    /// Adds a whole block.
    fn add_block(&mut self, block: &Table, expected: &[&'static str]) {
        self.seeds += block.seeds;
        self.events += block.events;
        self.virtual_ms += block.virtual_ms;
        for (what, count) in &block.tally {
            *self.tally.entry(what).or_default() += count;
        }
        for what in expected {
            let count = block.tally.get(what).copied().unwrap_or_default();
            self.least.entry(what).and_modify(|least| *least = count.min(*least)).or_insert(count);
        }
    }

    fn never_happened(&self, in_all: &[&'static str]) -> Vec<&'static str> {
        let in_no_block = self.least.iter().filter(|(_, least)| **least == 0).map(|(what, _)| *what);
        let never = in_all.iter().copied().filter(|what| !self.tally.contains_key(what));
        in_no_block.chain(never).collect()
    }

    /// The demands that were not made often enough.
    fn made_too_seldom(&self, demands: &'static [Demand]) -> Vec<&'static str> {
        let count = |what| self.tally.get(what).copied().unwrap_or_default();
        let is_too_seldom = |demand: &&Demand| {
            let fewest = (self.seeds * demand.for_a_seed).max(count(demand.excused) * demand.for_one_excused);
            count(demand.demanded) < fewest
        };
        demands.iter().filter(is_too_seldom).map(|demand| demand.demanded).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.virtual_ms as f64 / 3_600_000.0;
        writeln!(f, "{} seeds, {} events, {hours:.1} virtual hours", self.seeds, self.events)?;
        writeln!(f, "{:>10} {:>10} {:>16}", "in all", "for a seed", "least of a block")?;
        self.tally.iter().try_for_each(|(what, count)| {
            let least = self.least.get(what).map(u64::to_string).unwrap_or_default();
            let for_a_seed = *count as f64 / self.seeds.max(1) as f64;
            writeln!(f, "{count:>10} {for_a_seed:>10.2} {least:>16}  {what}")
        })
    }
}

/// Seeds that once failed, each behind the name of its world's test.
const KEPT_SEEDS: &str = include_str!("seeds.txt");

fn kept_seeds(test: &str) -> impl Iterator<Item = u64> {
    let lines = KEPT_SEEDS.lines().filter(|line| !line.starts_with('#'));
    let named = lines.filter_map(move |line| line.strip_prefix(test)?.strip_prefix(' '));
    named.map(|seed| seed.trim().parse().expect("a seed is a number"))
}

/// Runs the seeds that once failed, then the others, or the one that `SEED` names, on all CPUs; `FROM` and `SEEDS` name
/// others. Panics with the first violation, and where something expected never happened in a block of seeds. Prints the
/// table.
pub(crate) fn search<W: World>(seeds: std::ops::Range<u64>, events: u64) {
    let events = from_environment("EVENTS").unwrap_or(events);
    if let Some(seed) = from_environment("SEED") {
        let history = run::<W>(seed, events, W::Broken::default(), Show::EachEvent);
        assert!(history.violation.is_none(), "{}", history.report::<W>());
        return;
    }
    for seed in kept_seeds(W::TEST) {
        let history = run::<W>(seed, events, W::Broken::default(), Show::Nothing);
        assert!(history.violation.is_none(), "{}", history.report::<W>());
    }
    let first = from_environment("FROM").unwrap_or(seeds.start);
    let end = first + from_environment("SEEDS").unwrap_or(seeds.end - seeds.start);
    let (mut all, expected) = (Table::default(), W::expected());
    let mut begin = first;
    while begin < end {
        let next = end.min(begin + BLOCK);
        let (block, violation) = run_all::<W>(begin..next, events, W::Broken::default());
        let is_whole = block.seeds == BLOCK && violation.is_none();
        let seldom = if is_whole { block.made_too_seldom(W::demands()) } else { Vec::new() };
        all.add_block(&block, &expected);
        if let Some(history) = violation {
            eprintln!("{all}");
            panic!("{}", history.report::<W>());
        }
        assert!(seldom.is_empty(), "demanded too seldom, or excused too often: {seldom:?}\n{block}");
        begin = next;
    }
    eprintln!("{all}");
    let in_all = if all.seeds >= seeds.end - seeds.start { W::expected_in_all() } else { Vec::new() };
    let missing = all.never_happened(&in_all);
    assert!(missing.is_empty(), "never happened in all, or in some {BLOCK} seeds: {missing:?}");
}

/// Demands that the checker finds the broken rule within the seeds.
pub(crate) fn must_be_found<W: World>(
    seeds: std::ops::Range<u64>,
    events: u64,
    broken: W::Broken,
    checkers: &[&str],
) {
    let (_, found) = run_all::<W>(seeds, events, broken);
    let history = found.unwrap_or_else(|| panic!("no seed finds {broken:?}"));
    let violation = history.violation.as_ref().expect("it is what ended the search");
    assert!(checkers.contains(&violation.checker), "{broken:?} was found as {}", history.report::<W>());
    eprintln!("{broken:?} is found by seed {} as {}", history.seed, violation.checker);
}

/// Demands that a seed gives the same history each time.
pub(crate) fn must_repeat<W: World>(seeds: std::ops::Range<u64>, events: u64) {
    for seed in seeds {
        let [first, second] = [(); 2].map(|()| run::<W>(seed, events, W::Broken::default(), Show::Nothing));
        let same = (first.trace, &first.tally, first.events) == (second.trace, &second.tally, second.events);
        assert!(same, "seed {seed} gives two histories");
    }
}

/// Runs seeds until one fails; of those that fail the smallest is returned.
fn run_all<W: World>(
    seeds: std::ops::Range<u64>,
    events: u64,
    broken: W::Broken,
) -> (Table, Option<History>) {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicU64::new(u64::MAX);
    let results = Mutex::new((Table::default(), None::<History>));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || seed > failed.load(Ordering::Relaxed) {
                return;
            }
            let history = run::<W>(seed, events, broken, Show::Nothing);
            let mut results = results.lock().expect("no thread panics while it holds the results");
            results.0.add(&history);
            if history.violation.is_some() {
                failed.fetch_min(seed, Ordering::Relaxed);
                if results.1.as_ref().is_none_or(|known| known.seed > seed) {
                    results.1 = Some(history);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    results.into_inner().expect("no thread panicked while it held the results")
}

fn from_environment(key: &str) -> Option<u64> {
    let value = std::env::var(key).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{key} is not a number: {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Demand =
        Demand { demanded: "demanded", excused: "excused", for_one_excused: 10, for_a_seed: 3 };

    #[test]
    fn a_checker_that_excuses_too_much_is_told() {
        let seldom = |demanded, excused| {
            let tally = BTreeMap::from([(DEMAND.demanded, demanded), (DEMAND.excused, excused)]);
            Table { seeds: 7, tally, ..Table::default() }.made_too_seldom(&[DEMAND])
        };
        assert_eq!(seldom(21, 2), [""; 0]);
        assert_eq!(seldom(21, 3), [DEMAND.demanded]);
        assert_eq!(seldom(20, 0), [DEMAND.demanded]);
        assert_eq!(seldom(0, 0), [DEMAND.demanded]);
    }
}
