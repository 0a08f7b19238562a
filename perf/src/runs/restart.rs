//! `perf/run.sh restart`: a Tarn with many mirrored partitions at rest is stopped and started.
//!
//! The source is filled once and stays; each round has a new Tarn, which mirrors everything, and is then
//!
//! 1. stopped in order, with all logs as the copy left them, and started;
//! 2. stopped in order again, now with nothing to write, and started;
//! 3. killed by SIGKILL, and started.
//!
//! A start is measured from the new process to the first answer to a client, and to the moment when all partitions
//! are MIRRORING and end where the source does. A relay counts what the source says meanwhile.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::in_new_directory;
use super::mirrored::{await_copied, await_state};
use super::restart_report::{Report, Round, Start, Stop};
use crate::failure::Result;
use crate::many_topics::{Ends, ManyTopics, PATTERN};
use crate::measure::cpu::{Processes, cpu_seconds, ended_cpu_seconds};
use crate::peers::kafka::Kit;
use crate::peers::relay::Relay;
use crate::peers::small_source::{SmallSource, SourceKind};
use crate::peers::tarn::{Build, Stopped, Tarn};

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct RestartRun {
    /// The source's topics.
    pub(crate) topics: ManyTopics,
    /// What the source is.
    pub(crate) source: SourceKind,
    /// How often all of it is done.
    pub(crate) rounds: usize,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// Jars.
    pub(crate) kit: Kit,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

/// A source that runs behind a relay.
struct Source<'a> {
    relay: &'a Relay,
    id: u32,
    ends: Ends,
}

impl RestartRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let relay = Relay::start()?;
        let directory = self.work.join("source");
        let running =
            SmallSource::start_behind(Some(&relay), self.source, &self.kit, &self.tarn, &directory)?;
        eprintln!("filling {} partitions of {}", self.topics.places().len(), self.source.title());
        self.topics.create(running.bootstrap())?;
        let ends = self.topics.ends(running.bootstrap())?;
        let source = Source { relay: &relay, id: running.id(), ends };
        let mut rounds = Vec::new();
        for number in 0..self.rounds {
            let path = self.work.join(format!("round-{number}"));
            let round = in_new_directory(&path, |directory| self.round(&source, directory))?;
            eprintln!("round {} of {}: {}", number + 1, self.rounds, round.text());
            rounds.push(round);
        }
        running.kill();
        let report = Report { topics: self.topics.clone(), source: self.source, rounds };
        Ok((report.json(), report.text()))
    }

    fn round(&self, source: &Source<'_>, directory: &Path) -> Result<Round> {
        let tarn = Tarn::start(&self.tarn, directory)?;
        tarn.create_mirror(source.relay.address())?;
        tarn.start_mirror(PATTERN)?;
        await_copied(&self.topics, &tarn, &source.ends)?;

        let (stop_after_copy, stopped) = stop(tarn)?;
        let (after_stop, tarn) = self.start(source, stopped)?;
        let (stop_at_rest, stopped) = stop(tarn)?;
        let (_, tarn) = self.start(source, stopped)?;
        let (after_kill, tarn) = self.start(source, tarn.kill())?;
        drop(tarn);
        Ok(Round { stop_after_copy, after_stop, stop_at_rest, after_kill })
    }

    fn start(&self, source: &Source<'_>, stopped: Stopped) -> Result<(Start, Tarn)> {
        let (began, said_before) = (Instant::now(), source.relay.said_bytes());
        let running = Processes::new(&[], source.id).start();
        let tarn = stopped.start()?;
        let serving = began.elapsed();
        await_state(&self.topics, &tarn, "MIRRORING")?;
        let mirroring = began.elapsed();
        let cpu_seconds = cpu_seconds(&tarn.id().to_string()).unwrap_or(f64::NAN);
        let cost = running.stop();
        await_copied(&self.topics, &tarn, &source.ends)?;
        let said_bytes = (source.relay.said_bytes() - said_before) as f64;
        let others_cores = cost.others_cores - cpu_seconds / cost.seconds;
        let bytes_per_partition = said_bytes / self.topics.places().len() as f64;
        Ok((Start { serving, mirroring, cpu_seconds, bytes_per_partition, others_cores }, tarn))
    }
}

fn stop(tarn: Tarn) -> Result<(Stop, Stopped)> {
    let before = cpu_seconds(&tarn.id().to_string()).unwrap_or(f64::NAN) + ended_cpu_seconds();
    let began = Instant::now();
    let stopped = tarn.stop()?;
    Ok((Stop { took: began.elapsed(), cpu_seconds: ended_cpu_seconds() - before }, stopped))
}
