//! Measurements of Tarn, side by side with what it is compared with. `perf/run.sh` prepares what they need
//! and runs them.

mod backlog;
mod batch;
mod broker_client;
mod clients;
mod failure;
mod load;
mod many_topics;
mod measure;
mod peers;
mod program;
mod runs;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use crate::batch::{Codec, Shape};
use crate::broker_client::pipeline::Acks;
use crate::clients::Fetching;
use crate::failure::{Doing, Result};
use crate::load::{Size, VALUE_BYTES};
use crate::many_topics::ManyTopics;
use crate::peers::Peer;
use crate::peers::append_loop::AppendLoop;
use crate::peers::copy_loop::CopyLoop;
use crate::peers::kafka::Kit;
use crate::peers::send_loop::{self, Sent};
use crate::peers::server::ServerKind;
use crate::peers::small_source::SourceKind;
use crate::peers::tarn::Build;
use crate::runs::consume::ConsumeRun;
use crate::runs::failover::FailoverRun;
use crate::runs::lag::{LagPeer, LagRun};
use crate::runs::mirror::MirrorRun;
use crate::runs::partitions::PartitionsRun;
use crate::runs::produce::{Load, ProduceRun};
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
struct LoadArguments {
    /// MB (10^6 bytes) of values that are written each time
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    records_mb: u64,
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    record_bytes: u32,
    /// Bytes of each batch before a codec, about; a batch holds one record at least
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_bytes: u32,
    /// Connections that write
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Partitions of the topic
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: u16,
    /// How often each server is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Who is measured
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "tarn,kafka,loop")]
    peers: Vec<ServerKind>,
}

#[derive(Args)]
struct ProduceArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// Who has a batch when it is acknowledged
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "1,all")]
    acks: Vec<Acks>,
    /// How batches are compressed
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "none,lz4")]
    codec: Vec<Codec>,
    /// MB of values that each case writes first, not measured
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    warm_mb: u64,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct ConsumeArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// How batches are compressed
    #[arg(long, value_name = "CODEC", value_enum, default_value = "none")]
    codec: Codec,
    /// How many consumers read at a time, each all of it
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8")]
    consumers: Vec<u16>,
    /// The largest response to ask for, in bytes
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(i32).range(1..))]
    response_bytes: i32,
    /// Consumers fetch in sessions, as Kafka's own does, and do not name all partitions each time
    #[arg(long)]
    sessions: bool,
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
        Run::AppendLoop { listen, into } => {
            let serve = AppendLoop::new(&listen, &into).and_then(AppendLoop::run);
            serve.map(|()| String::new()).doing(|| format!("serving at {listen}"))
        }
        Run::SendLoop { listen, file, batch_bytes, batch_records } => {
            let serve = send_loop::run(&listen, &file, Sent { batch_bytes, batch_records });
            serve.map(|()| String::new()).doing(|| format!("serving at {listen}"))
        }
        Run::Loop { source, partitions, response_bytes, into } => {
            let copy = CopyLoop { source, partitions, response_bytes };
            copy.run(&into).map(|copied| format!("{copied}\n")).doing(|| "copying".to_owned())
        }
    }
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

impl LoadArguments {
    fn load(&self) -> Load {
        Load {
            shape: Shape { record_bytes: self.record_bytes as usize, batch_bytes: self.batch_bytes as usize },
            bytes: self.records_mb * 1_000_000,
            connections: usize::from(self.connections),
            partitions: usize::from(self.partitions),
        }
    }
}

impl ProduceArguments {
    fn produce_run(self) -> Result<ProduceRun> {
        let shared = self.shared.whole()?;
        Ok(ProduceRun {
            load: self.load.load(),
            rounds: usize::from(self.load.rounds),
            peers: self.load.peers,
            acks: self.acks,
            codecs: self.codec,
            warm_bytes: self.warm_mb * 1_000_000,
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

impl ConsumeArguments {
    fn consume_run(self) -> Result<ConsumeRun> {
        let shared = self.shared.whole()?;
        Ok(ConsumeRun {
            load: self.load.load(),
            codec: self.codec,
            rounds: usize::from(self.load.rounds),
            peers: self.load.peers,
            consumers: self.consumers.into_iter().map(usize::from).collect(),
            response_bytes: self.response_bytes,
            fetching: if self.sessions { Fetching::InSessions } else { Fetching::Alone },
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

impl Shared {
    /// With whole paths, which mean the same to every program that is started.
    fn whole(self) -> Result<Shared> {
        Ok(Shared {
            root: absolute(&self.root)?,
            tarn: absolute(&self.tarn)?,
            kit: absolute(&self.kit)?,
            work: absolute(&self.work)?,
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
