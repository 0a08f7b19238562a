//! `perf/run.sh partitions`: what very many empty partitions cost one node of Tarn.
//!
//! Each round has a new node. Half of the topics are made, then the others: the memory between the two is the slope.
//! Then it is asked for one topic and for all, stopped and started, killed and started. A start lasts until every
//! partition answers where it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::in_new_directory;
use super::partitions_report::{Memory, Report, Round, Start};
use crate::broker_client::BrokerClient;
use crate::failure::{Doing, Failure, Result};
use crate::many_topics::ManyTopics;
use crate::measure::cpu::{Processes, cpu_seconds, memory_bytes};
use crate::peers::tarn::{Build, Stopped, Tarn};

/// How long a node is left alone before its memory is read.
const AT_REST: Duration = Duration::from_secs(5);

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct PartitionsRun {
    /// The topics, half of which are made first.
    pub(crate) topics: ManyTopics,
    /// How often all of it is done.
    pub(crate) rounds: usize,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

impl PartitionsRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let mut rounds = Vec::new();
        for number in 0..self.rounds {
            let path = self.work.join(format!("round-{number}"));
            let round = in_new_directory(&path, |directory| self.round(directory))?;
            eprintln!("round {} of {}: {}", number + 1, self.rounds, round.text());
            rounds.push(round);
        }
        let report = Report { topics: self.topics.clone(), rounds };
        Ok((report.json(), report.text()))
    }

    fn round(&self, directory: &Path) -> Result<Round> {
        let tarn = Tarn::start(&self.tarn, directory)?;
        let (first, second) = self.topics.halves();
        let (empty, began) = (memory(&tarn), Instant::now());
        first.create_empty(tarn.bootstrap())?;
        let mut creating = began.elapsed();
        let half = memory(&tarn);
        let began = Instant::now();
        second.create_empty(tarn.bootstrap())?;
        creating += began.elapsed();
        let all = memory(&tarn);
        let descriptors = descriptors(tarn.id());

        let one = asked(&tarn, Some(&self.topics.names()[0]))?;
        let bystander = Bystander::start(tarn.bootstrap())?;
        let everything = asked(&tarn, None)?;
        let held_up = bystander.stop()?;

        let began = Instant::now();
        let stopped = tarn.stop()?;
        let stopping = began.elapsed();
        let (after_stop, tarn) = self.start(stopped)?;
        let (after_kill, tarn) = self.start(tarn.kill())?;
        drop(tarn);
        let (half_count, count) = (first.places().len(), self.topics.places().len());
        let memory = Memory { empty, half, all, half_count, count };
        Ok(Round {
            creating,
            memory,
            descriptors,
            one,
            everything,
            held_up,
            stopping,
            after_stop,
            after_kill,
        })
    }

    fn start(&self, stopped: Stopped) -> Result<(Start, Tarn)> {
        let (began, running) = (Instant::now(), Processes::new(&[], 0).start());
        let tarn = stopped.start()?;
        let serving = began.elapsed();
        self.topics.ends(tarn.bootstrap())?;
        let led = began.elapsed();
        let cpu_seconds = cpu_seconds(&tarn.id().to_string()).unwrap_or(f64::NAN);
        let cost = running.stop();
        let others_cores = cost.others_cores - cpu_seconds / cost.seconds;
        let memory = memory(&tarn).resident;
        Ok((Start { serving, led, cpu_seconds, memory, others_cores }, tarn))
    }
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Of the process.
    pub(crate) resident: f64,
    /// Of the kernel, for its tables of files and names, on the whole machine.
    pub(crate) slab: f64,
}

fn memory(tarn: &Tarn) -> Held {
    thread::sleep(AT_REST);
    let slab = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        slab.lines().find_map(|line| line.strip_prefix("Slab:")?.trim().strip_suffix(" kB")?.parse().ok());
    Held {
        resident: memory_bytes(&tarn.id().to_string()) as f64,
        slab: kib.map_or(f64::NAN, |kib: f64| kib * 1024.0),
    }
}

fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// How long an answer to Metadata takes, for one topic or for all; the longest of three, since the first may spare the
/// others work.
fn asked(tarn: &Tarn, topic: Option<&str>) -> Result<Duration> {
    let ask = || {
        let mut client = BrokerClient::connect(tarn.bootstrap())?;
        let began = Instant::now();
        client.metadata(topic)?;
        Ok(began.elapsed())
    };
    let all: std::io::Result<Vec<Duration>> = (0..3).map(|_| ask()).collect();
    all.doing(|| "asking for metadata".to_owned())?
        .into_iter()
        .max()
        .ok_or(Failure::Wrong("nothing".to_owned()))
}

/// A client that asks for very little all the time, on as many connections as there may be cores.
struct Bystander {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<std::io::Result<Duration>>>,
}

impl Bystander {
    fn start(address: &str) -> Result<Bystander> {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = |_| {
            let (is_over, address) = (is_over.clone(), address.to_owned());
            thread::spawn(move || {
                let mut client = BrokerClient::connect(&address)?;
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    client.brokers()?;
                    longest = longest.max(began.elapsed());
                    thread::sleep(Duration::from_micros(200));
                }
                Ok(longest)
            })
        };
        let threads = (0..4).map(thread).collect();
        Ok(Bystander { is_over, threads })
    }

    /// The longest that one of its answers took.
    fn stop(self) -> Result<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut longest = Duration::ZERO;
        for thread in self.threads {
            let one = thread.join().map_err(|_| Failure::Wrong("a bystander ended".to_owned()))?;
            longest = longest.max(one.doing(|| "asking for the brokers".to_owned())?);
        }
        Ok(longest)
    }
}
