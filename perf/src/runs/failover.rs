//! `perf/run.sh failover`: many mirrored partitions lose their source.
//!
//! Each round has a new Tarn. It mirrors everything that the source has, and is then told to stop everything,
//! with the source killed by SIGKILL just before: the failover, from the command to each partition's first
//! accepted write.
//!
//! The source keeps its directory from round to round, so it is filled once; a transaction that is open in
//! some of its partitions stays so.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::failover_report::{Report, Round};
use super::in_new_directory;
use super::mirrored::{LIMIT, await_copied, await_state, connect};
use crate::failure::{Doing, Failure, Result};
use crate::many_topics::{ManyTopics, PATTERN};
use crate::measure::cpu::{Processes, memory_peak_bytes};
use crate::measure::writable::Writers;
use crate::peers::kafka::Kit;
use crate::peers::small_source::{SmallSource, SourceKind};
use crate::peers::tarn::{Build, MIRROR, Tarn};

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct FailoverRun {
    /// The source's topics.
    pub(crate) topics: ManyTopics,
    /// What the source is.
    pub(crate) source: SourceKind,
    /// How often it is lost.
    pub(crate) rounds: usize,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// Jars.
    pub(crate) kit: Kit,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

impl FailoverRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let directory = self.work.join("source");
        let source = self.start_source(&directory)?;
        eprintln!("filling {} partitions of {}", self.topics.places().len(), self.source.title());
        self.topics.create(source.bootstrap())?;
        let (mut next, mut rounds) = (Some(source), Vec::new());
        for number in 0..self.rounds {
            let source = match next.take() {
                Some(source) => source,
                None => self.start_source(&directory)?,
            };
            let path = self.work.join(format!("round-{number}"));
            let round = in_new_directory(&path, |directory| self.round(source, directory))?;
            eprintln!("round {} of {}: {}", number + 1, self.rounds, round.text());
            rounds.push(round);
        }
        let report = Report { topics: self.topics.clone(), source: self.source, rounds };
        Ok((report.json(), report.text()))
    }

    fn start_source(&self, directory: &Path) -> Result<SmallSource> {
        SmallSource::start(self.source, &self.kit, &self.tarn, directory)
    }

    fn round(&self, source: SmallSource, directory: &Path) -> Result<Round> {
        let ends = self.topics.ends(source.bootstrap())?;
        let tarn = Tarn::start(&self.tarn, directory)?;
        tarn.create_mirror(source.bootstrap())?;
        let began = Instant::now();
        tarn.start_mirror(PATTERN)?;
        await_copied(&self.topics, &tarn, &ends)?;
        let copied = began.elapsed();

        let writers = Writers::at(tarn.bootstrap(), &self.topics)?;
        let mut control = connect(&tarn)?;
        let source_id = source.id();
        source.kill();
        let running = Processes::new(&[tarn.id()], source_id).start();
        let writes = writers.until_written(LIMIT, || {
            let stopped = control.stop_everything(MIRROR);
            let stopped = stopped.doing(|| "asking for the failover".to_owned())?;
            if stopped == self.topics.topics() {
                return Ok(());
            }
            Err(Failure::Wrong(format!("{stopped} topics were stopped of {}", self.topics.topics())))
        })?;
        let cost = running.stop();
        await_state(&self.topics, &tarn, "STOPPED")?;
        let memory_peak_bytes = memory_peak_bytes(&tarn.id().to_string()) as f64;
        // What a clean stop takes, another run measures.
        drop(tarn);
        Ok(Round { copied, writes, cost, memory_peak_bytes })
    }
}
