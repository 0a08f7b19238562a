//! Measurements of Tarn, side by side with what it is compared with. `perf/run.sh` prepares what they need
//! and runs them.

mod backlog;
mod batch;
mod broker_client;
mod clients;
mod failure;
mod load;
mod load_arguments;
mod many_topics;
mod measure;
mod open_loop;
mod peers;
mod program;
mod runs;
mod workplace;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use crate::failure::{Doing, Result};
use crate::load::{Size, VALUE_BYTES};
use crate::load_arguments::{
    ConsumeArguments, FlushArguments, LatencyArguments, ProduceArguments, TailArguments,
};
use crate::many_topics::ManyTopics;
use crate::peers::Peer;
use crate::peers::append_loop::AppendLoop;
use crate::peers::copy_loop::CopyLoop;
use crate::peers::kafka::Kit;
use crate::peers::send_loop::{self, Sent, Shown};
use crate::peers::small_source::SourceKind;
use crate::peers::tarn::Build;
use crate::runs::failover::FailoverRun;
use crate::runs::lag::{LagPeer, LagRun};
use crate::runs::mirror::MirrorRun;
use crate::runs::partitions::PartitionsRun;
use crate::runs::restart::RestartRun;

/// Measurements of Tarn.
#[derive(Parser)]
#[command(name = "perf/run.sh")]
struct Arguments {
    #[command(subcommand)]
    run: Run,
}

#[derive(Subcommand)]
enum Run {
    /// Copy a backlog from one Apache Kafka: Tarn, MirrorMaker 2 and a speed-of-light loop in turn
    Mirror(MirrorArguments),
    /// From an append at the source to a default consumer at the destination, in milliseconds
    Lag(LagArguments),
    /// Many mirrored partitions lose their source: from the failover to each partition's first write
    Failover(ManyArguments),
    /// Many mirrored partitions at rest: Tarn is stopped and killed, and started again
    Restart(ManyArguments),
    /// Very many empty partitions on one Tarn: memory, starts, and answers about all of them
    Partitions(PartitionsArguments),
    /// Producers with several requests under way: Tarn, Apache Kafka and a speed-of-light loop in turn
    Produce(ProduceArguments),
    /// Consumers that read what was written, from its first offset: the same three
    Consume(ConsumeArguments),
    /// From the moment when a batch is due to a consumer that has it, at a fixed rate: Tarn and Apache Kafka in turn
    Latency(LatencyArguments),
    /// Consumers at the end of a topic while producers write to it: those two, and a loop that sends a file
    Tail(TailArguments),
    /// Appends that are on the disk when they are acknowledged: Tarn, and a loop that writes and calls fdatasync
    Flush(FlushArguments),
    /// The loop of `produce` alone: receive, check CRCs, write, with one thread. Serves until it is ended
    #[command(hide = true)]
    AppendLoop {
        /// Where to listen
        #[arg(long, value_name = "HOST:PORT")]
        listen: String,
        /// Where to write
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
    /// The loop of `consume` alone: one file, sent with sendfile. Serves until it is ended
    #[command(hide = true)]
    SendLoop {
        /// Where to listen
        #[arg(long, value_name = "HOST:PORT")]
        listen: String,
        /// What to send
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Bytes of each of its batches
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        batch_bytes: u64,
        /// Records of each of its batches
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        batch_records: u64,
        /// Shows so many each second; without it all at once
        #[arg(long, value_name = "N", value_parser = pace)]
        batches_per_second: Option<f64>,
    },
    /// The loop alone: fetch, check CRCs, write, with one thread. Prints one line of JSON
    Loop {
        /// The source broker, which leads every partition of the topic `backlog`
        #[arg(long, value_name = "HOST:PORT")]
        source: String,
        /// How many partitions it has
        #[arg(long, value_name = "N", default_value_t = 4)]
        partitions: usize,
        /// The largest response to ask for, in bytes
        #[arg(long, value_name = "N", default_value_t = 2 << 20)]
        response_bytes: i32,
        /// Where to write the copies
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
}

#[derive(Args)]
struct MirrorArguments {
    /// Records of 1 KiB in the backlog
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// The same as GB (10^9 bytes) of values
    #[arg(long, value_name = "GB", conflicts_with = "records")]
    gb: Option<f64>,
    /// Partitions of the topic
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    partitions: u16,
    /// How often each peer copies it
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Who copies
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "tarn,mirrormaker,loop"
    )]
    peers: Vec<Peer>,
    /// The loop's response size in bytes; without it, several are tried first and the fastest is taken
    #[arg(long, value_name = "N")]
    loop_response_bytes: Option<i32>,
    /// Keep the filled source in this directory, or use the one that is there
    #[arg(long, value_name = "DIR")]
    seed: Option<PathBuf>,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct LagArguments {
    /// Records a second
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "20,100,1000")]
    rates: Vec<u64>,
    /// Seconds that are counted at each rate
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often each peer is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Whose lag is measured
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "tarn,mirrormaker,source"
    )]
    peers: Vec<LagPeer>,
    /// A Python that has confluent-kafka
    #[arg(long, value_name = "FILE", hide = true, default_value = "python3")]
    python: PathBuf,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct ManyArguments {
    /// Topics of the source
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..))]
    topics: u16,
    /// Partitions of each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    partitions: u16,
    /// What the source is
    #[arg(long, value_name = "KIND", value_enum, default_value = "kafka")]
    source: SourceKind,
    /// How often it is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct PartitionsArguments {
    /// Topics that are made
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(2..))]
    topics: u16,
    /// Partitions of each
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    partitions: u16,
    /// How often it is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct Shared {
    /// Print JSON, with every round
    #[arg(long)]
    json: bool,
    /// A further line of Tarn's server.properties; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    tarn_property: Vec<String>,
    /// A further line of Tarn's mirror configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    mirror_property: Vec<String>,
    /// The source tree
    #[arg(long, value_name = "DIR", hide = true, default_value = ".")]
    root: PathBuf,
    /// The Tarn to measure
    #[arg(long, value_name = "FILE", hide = true, default_value = "target/release/tarn")]
    tarn: PathBuf,
    /// Jars, from perf/prepare.sh
    #[arg(long, value_name = "DIR", hide = true, default_value = "target/kit")]
    kit: PathBuf,
    /// A directory for everything that is written
    #[arg(long, value_name = "DIR", hide = true, default_value = "target/perf")]
    work: PathBuf,
}

fn main() -> ExitCode {
    match run(Arguments::parse().run) {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(failure) => {
            eprintln!("perf: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(run: Run) -> Result<String> {
    match run {
        Run::Mirror(arguments) => {
            let json = arguments.shared.json;
            arguments.mirror_run()?.run().map(|report| printed(report, json))
        }
        Run::Lag(arguments) => {
            let json = arguments.shared.json;
            arguments.lag_run()?.run().map(|report| printed(report, json))
        }
        Run::Failover(arguments) => {
            let json = arguments.shared.json;
            arguments.failover_run()?.run().map(|report| printed(report, json))
        }
        Run::Restart(arguments) => {
            let json = arguments.shared.json;
            arguments.restart_run()?.run().map(|report| printed(report, json))
        }
        Run::Partitions(arguments) => {
            let json = arguments.shared.json;
            arguments.partitions_run()?.run().map(|report| printed(report, json))
        }
        Run::Produce(arguments) => {
            let json = arguments.shared.json;
            arguments.produce_run()?.run().map(|report| printed(report, json))
        }
        Run::Consume(arguments) => {
            let json = arguments.shared.json;
            arguments.consume_run()?.run().map(|report| printed(report, json))
        }
        Run::Latency(arguments) => {
            let json = arguments.shared.json;
            arguments.latency_run()?.run().map(|report| printed(report, json))
        }
        Run::Flush(arguments) => {
            let json = arguments.shared.json;
            arguments.flush_run()?.run().map(|report| printed(report, json))
        }
        Run::Tail(arguments) => {
            let json = arguments.shared.json;
            arguments.tail_run()?.run().map(|report| printed(report, json))
        }
        Run::AppendLoop { listen, into } => {
            let serve = AppendLoop::new(&listen, &into).and_then(AppendLoop::run);
            serve.map(|()| String::new()).doing(|| format!("serving at {listen}"))
        }
        Run::SendLoop { listen, file, batch_bytes, batch_records, batches_per_second } => {
            let shown = Shown::new(Sent { batch_bytes, batch_records }, batches_per_second);
            let serve = send_loop::run(&listen, &file, shown);
            serve.map(|()| String::new()).doing(|| format!("serving at {listen}"))
        }
        Run::Loop { source, partitions, response_bytes, into } => {
            let copy = CopyLoop { source, partitions, response_bytes };
            copy.run(&into).map(|copied| format!("{copied}\n")).doing(|| "copying".to_owned())
        }
    }
}

/// A number of batches in a second.
fn pace(text: &str) -> std::result::Result<f64, String> {
    let pace = text.parse().map_err(|error| format!("{error}"))?;
    if f64::is_normal(pace) && pace > 0.0 { Ok(pace) } else { Err("above 0".to_owned()) }
}

fn printed((json, text): (Value, String), as_json: bool) -> String {
    if as_json { format!("{json:#}\n") } else { text }
}

impl MirrorArguments {
    fn mirror_run(self) -> Result<MirrorRun> {
        let records = self.gb.map_or(self.records, |gb| (gb * 1e9 / VALUE_BYTES as f64).ceil() as u64);
        let shared = self.shared.whole()?;
        Ok(MirrorRun {
            size: Size { records, partitions: usize::from(self.partitions) },
            rounds: usize::from(self.rounds),
            peers: self.peers,
            response_bytes: self.loop_response_bytes,
            seed: self.seed.map(|seed| absolute(&seed)).transpose()?,
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

impl LagArguments {
    fn lag_run(self) -> Result<LagRun> {
        let shared = self.shared.whole()?;
        Ok(LagRun {
            rates: self.rates,
            seconds: self.seconds,
            rounds: usize::from(self.rounds),
            peers: self.peers,
            python: self.python,
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            root: shared.root,
            work: shared.work,
        })
    }
}

impl PartitionsArguments {
    fn partitions_run(self) -> Result<PartitionsRun> {
        let shared = self.shared.whole()?;
        Ok(PartitionsRun {
            topics: ManyTopics::new(self.topics, self.partitions),
            rounds: usize::from(self.rounds),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

impl ManyArguments {
    fn failover_run(self) -> Result<FailoverRun> {
        let shared = self.shared.whole()?;
        Ok(FailoverRun {
            topics: ManyTopics::new(self.topics, self.partitions),
            source: self.source,
            rounds: usize::from(self.rounds),
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }

    fn restart_run(self) -> Result<RestartRun> {
        let FailoverRun { topics, source, rounds, tarn, kit, work } = self.failover_run()?;
        Ok(RestartRun { topics, source, rounds, tarn, kit, work })
    }
}

impl Shared {
    /// With whole paths, which mean the same to every program that is started.
    fn whole(self) -> Result<Shared> {
        Ok(Shared {
            root: absolute(&self.root)?,
            tarn: absolute(&self.tarn)?,
            kit: absolute(&self.kit)?,
            work: workplace::take(&absolute(&self.work)?)?,
            ..self
        })
    }

    fn build(&self) -> Build {
        Build {
            binary: self.tarn.clone(),
            server: self.tarn_property.clone(),
            mirror: self.mirror_property.clone(),
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).doing(|| format!("looking for {}", path.display()))
}
