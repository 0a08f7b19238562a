//! `perf/run.sh flush`: appends that are on the disk when they are acknowledged, against a loop that writes the same
//! bytes to the same disk and calls `fdatasync`.
//!
//! So many producers have one append of one batch under way each, all to one partition. The rate is that of
//! acknowledged appends. The disk's own rate at so many is what the loop gets where each `fdatasync` is of as many
//! appends as there are producers: the most that a group commit can share.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::side_by_side::{Columns, Ratio, Report};
use crate::batch::{Codec, Shape};
use crate::broker_client::pipeline::Acks;
use crate::clients::{Enough, Producers};
use crate::failure::{Doing, Failure, Result};
use crate::measure::cpu::{Cost, Processes};
use crate::measure::quantity::Quantity;
use crate::measure::target::Target;
use crate::peers::free_address;
use crate::peers::metrics_page::metric;
use crate::peers::server::{FlushPolicy, Server, ServerKind};
use crate::peers::sync_loop::{self, Synced};
use crate::peers::tarn::Build;

/// Flushes of a Tarn's core, each of all logs that waited for one.
const FLUSHES: &str = "kafka_log_logflushstats_logflushrateandtimems_count";

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct FlushRun {
    /// What each batch is like.
    pub(crate) shape: Shape,
    /// The policies; each with each number of producers is a case.
    pub(crate) policies: Vec<FlushPolicy>,
    /// Producers at a time.
    pub(crate) producers: Vec<usize>,
    /// How long each measurement takes.
    pub(crate) time: Duration,
    /// How often each is made.
    pub(crate) rounds: usize,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

/// What was appended once, and with how many flushes.
#[derive(Clone, Copy, Debug)]
struct Flushed {
    appends: f64,
    syncs: f64,
    seconds: f64,
    cost: Cost,
}

const COLUMNS: Columns<Flushed> = Columns {
    quantities: &[
        Quantity::new("appends_per_second", "appends/s", 0, Flushed::appends_per_second),
        Quantity::new("syncs_per_second", "syncs/s", 0, Flushed::syncs_per_second),
        Quantity::new("appends_per_sync", "appends per sync", 1, |flushed| flushed.appends / flushed.syncs),
        Quantity::new("cpu_percent", "server % of a core", 0, |flushed| {
            100.0 * flushed.cost.cpu_seconds / flushed.cost.seconds
        }),
        Quantity::new("others_cores", "others' cores", 2, |flushed| flushed.cost.others_cores),
    ],
    ratios: &[
        Ratio {
            key: "tarn_disk_appends_per_second",
            title: "Tarn / disk, appends/s",
            of: (ServerKind::Tarn, ServerKind::Loop),
            quantity: Flushed::appends_per_second,
            target: Target::AtLeast(0.7),
        },
        Ratio {
            key: "tarn_disk_syncs_per_second",
            title: "Tarn / disk, syncs/s",
            of: (ServerKind::Tarn, ServerKind::Loop),
            quantity: Flushed::syncs_per_second,
            target: Target::AtLeast(0.7),
        },
    ],
};

impl Flushed {
    fn appends_per_second(&self) -> f64 {
        self.appends / self.seconds
    }

    fn syncs_per_second(&self) -> f64 {
        self.syncs / self.seconds
    }
}

/// The acknowledgement that waits for the disk.
fn acks_of(policy: FlushPolicy) -> Acks {
    match policy {
        FlushPolicy::Each => Acks::One,
        FlushPolicy::Group | FlushPolicy::None => Acks::All,
    }
}

impl FlushRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let batch = self.shape.batch(Codec::None).doing(|| "making a batch".to_owned())?;
        let admin = free_address()?;
        let mut tarn = self.tarn.clone();
        tarn.server.push(format!("tarn.admin.listener={admin}"));
        let server = Server::tarn(&tarn, &self.work.join("tarn"))?;
        let settings: Vec<(FlushPolicy, usize)> =
            self.policies.iter().flat_map(|policy| self.producers.iter().map(|n| (*policy, *n))).collect();
        for setting in &settings {
            self.tarn(&server, &admin, &batch, *setting)?;
        }
        let name = |(policy, producers): &(FlushPolicy, usize)| {
            format!("{}, acks={}, producers: {producers}", policy.name(), acks_of(*policy).name())
        };
        let names = settings.iter().map(name).collect();
        let peers = [ServerKind::Tarn, ServerKind::Loop];
        let cases = COLUMNS.measured(names, (&peers, self.rounds), |case, kind| match kind {
            ServerKind::Loop => self.disk(&batch, settings[case].1),
            _ => self.tarn(&server, &admin, &batch, settings[case]),
        })?;
        server.stop()?;
        let said = format!(
            "batches of {} bytes and {} records to one partition, one under way for each producer, {:?} each, \
             {} rounds",
            batch.len(),
            self.shape.records(),
            self.time,
            self.rounds
        );
        Ok(Report { said, cases, columns: COLUMNS }.printed())
    }

    fn tarn(
        &self,
        server: &Server,
        admin: &str,
        batch: &[u8],
        (policy, producers): (FlushPolicy, usize),
    ) -> Result<Flushed> {
        let topic = format!("flushed-{:08x}", fastrand::u32(..));
        server.create_topic(&topic, 1, policy)?;
        let flushes = || metric(admin, FLUSHES).doing(|| format!("asking {admin} for its metrics"));
        let connected = Producers::connect(&server.address, (&topic, 1), producers, acks_of(policy), batch);
        let connected = connected.doing(|| format!("connecting to {}", server.address))?;
        let (before, running) = (flushes()?, Processes::of_server(server.id).start());
        let done = connected.run(1, Enough::Time(self.time));
        let cost = running.stop();
        let done = done.doing(|| format!("producing to {}", server.address))?;
        let syncs = flushes()? - before;
        let held = server.ends(&topic, 1)?.into_iter().sum::<i64>();
        let written = done.requests as i64 * self.shape.records() as i64;
        if held != written {
            let text = format!("{written} records were acknowledged, and the topic ends after {held}");
            return Err(Failure::Wrong(text));
        }
        server.delete_topic(&topic)?;
        rustix::fs::sync();
        Ok(Flushed { appends: done.requests as f64, syncs, seconds: cost.seconds, cost })
    }

    fn disk(&self, batch: &[u8], producers: usize) -> Result<Flushed> {
        let path = self.work.join("synced");
        // This program does the work itself: it is not among the others, and there is no server.
        let running = Processes::new(&[], 0).start();
        let synced: io::Result<Synced> = sync_loop::run(&path, batch, producers as u64, self.time);
        let cost = running.stop();
        let synced = synced.doing(|| format!("writing {}", path.display()))?;
        rustix::fs::sync();
        let seconds = synced.took.as_secs_f64();
        Ok(Flushed { appends: synced.appends as f64, syncs: synced.syncs as f64, seconds, cost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_acknowledged_appends_and_the_disks_own_is_what_they_are_held_against() {
        let cost = Cost { seconds: 2.0, cpu_seconds: 1.0, source_cpu_seconds: 0.0, others_cores: 0.0 };
        let flushed = Flushed { appends: 3200.0, syncs: 100.0, seconds: 2.0, cost };
        let told: Vec<f64> = COLUMNS.quantities.iter().map(|quantity| (quantity.of)(&flushed)).collect();
        assert_eq!(told, [1600.0, 50.0, 32.0, 50.0, 0.0]);
        assert!(COLUMNS.ratios[0].target.is_met(1600.0 / 2200.0));
    }

    #[test]
    fn each_policy_is_asked_by_the_acknowledgement_that_waits_for_the_disk() {
        assert_eq!([FlushPolicy::Group, FlushPolicy::Each].map(acks_of), [Acks::All, Acks::One]);
    }
}
