//! `perf/run.sh mirror`: one backlog, copied by each peer in turn.
//!
//! Peers never run at the same time. Each copy goes to a new directory and a new process, and the order
//! rotates from round to round, so that no peer always follows the same other. The copy is read back and
//! compared outside the measured time.

use std::path::PathBuf;

use serde_json::Value;

use super::in_new_directory;
use super::mirror_report::{Report, Round, Trial};
use crate::backlog::Backlog;
use crate::failure::Result;
use crate::load::{Size, source_with_backlog};
use crate::peers::kafka::{Kafka, Kit};
use crate::peers::{Copy, Peer, Setting, copy_loop, mirrormaker, tarn};

/// Response sizes that the loop is tried with.
const LOOP_RESPONSE_BYTES: [i32; 5] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 8 << 20];
/// How often each is tried.
const LOOP_TRIALS: usize = 2;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct MirrorRun {
    /// The backlog.
    pub(crate) size: Size,
    /// How often each peer copies it.
    pub(crate) rounds: usize,
    /// Who copies.
    pub(crate) peers: Vec<Peer>,
    /// The loop's response size; `None` tries some and takes the best.
    pub(crate) response_bytes: Option<i32>,
    /// Where the source lives on for later runs; `None` removes it.
    pub(crate) seed: Option<PathBuf>,
    /// The Tarn to measure.
    pub(crate) tarn: tarn::Build,
    /// Jars.
    pub(crate) kit: Kit,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

impl MirrorRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let directory = self.seed.clone().unwrap_or_else(|| self.work.join("source"));
        let (source, backlog) = source_with_backlog(&self.kit, self.size, &directory)?;
        rustix::fs::sync();
        let trials = self.try_the_loop(&source, &backlog)?;
        let best = trials.iter().max_by(|one, other| one.mb_per_second.total_cmp(&other.mb_per_second));
        let response_bytes = best.map(|best| best.response_bytes).or(self.response_bytes).unwrap_or_default();
        let setting = Setting { source: &source, backlog: &backlog };
        let mut rounds = Vec::new();
        for round in 0..self.rounds {
            rounds.push(self.round(round, &setting, response_bytes)?);
        }
        source.stop()?;
        let report =
            Report { bytes: backlog.bytes(), records: backlog.records(), response_bytes, trials, rounds };
        Ok((report.json(), report.text()))
    }

    fn try_the_loop(&self, source: &Kafka, backlog: &Backlog) -> Result<Vec<Trial>> {
        if self.response_bytes.is_some() || !self.peers.contains(&Peer::Loop) {
            return Ok(Vec::new());
        }
        let setting = Setting { source, backlog };
        let mut trials = Vec::new();
        for _ in 0..LOOP_TRIALS {
            for response_bytes in LOOP_RESPONSE_BYTES {
                let copy = in_new_directory(&self.work.join("trial"), |directory| {
                    copy_loop::copy(&setting, response_bytes, directory)
                })?;
                let trial = Trial::of(response_bytes, &copy);
                eprintln!("copy loop with responses of {} KiB: {}", response_bytes >> 10, trial.text());
                trials.push(trial);
            }
        }
        Ok(trials)
    }

    fn round(&self, round: usize, setting: &Setting<'_>, response_bytes: i32) -> Result<Round> {
        let mut peers = self.peers.clone();
        let first = round % peers.len().max(1);
        peers.rotate_left(first);
        let mut copies = Round::new();
        for peer in peers {
            let path = self.work.join(format!("round-{round}-{}", peer.key()));
            let copy: Copy = in_new_directory(&path, |directory| match peer {
                Peer::Tarn => tarn::copy(setting, &self.tarn, directory),
                Peer::Mirrormaker => mirrormaker::copy(setting, &self.kit, directory),
                Peer::Loop => copy_loop::copy(setting, response_bytes, directory),
            })?;
            let cost = Trial::of(response_bytes, &copy).text();
            eprintln!("round {} of {}: {}: {cost}", round + 1, self.rounds, peer.title());
            copies.insert(peer, copy);
        }
        Ok(copies)
    }
}
