//! The options of the runs that put a load on a server.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::Shared;
use crate::batch::{Codec, Shape};
use crate::broker_client::pipeline::Acks;
use crate::clients::Fetching;
use crate::failure::Result;
use crate::peers::kafka::Kit;
use crate::peers::server::{FlushPolicy, ServerKind};
use crate::runs::consume::ConsumeRun;
use crate::runs::flush::FlushRun;
use crate::runs::latency::{LatencyRun, Rate};
use crate::runs::produce::{Load, ProduceRun};
use crate::runs::tail::{self, TailRun};

#[derive(Args)]
struct LoadArguments {
    /// Small batches, as a producer without linger makes them: one value of 100 bytes each, 40 MB and 50 MB to warm,
    /// no codec, where the options below do not say otherwise
    #[arg(long)]
    small: bool,
    /// MB (10^6 bytes) of values that are written each time
    #[arg(long, default_value_if("small", "true", "40"), value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    records_mb: u64,
    /// Bytes of each value
    #[arg(long, default_value_if("small", "true", "100"), value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    record_bytes: u32,
    /// Bytes of each batch before a codec, about; a batch holds one record at least
    #[arg(long, default_value_if("small", "true", "1"), value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
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
pub(crate) struct ProduceArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// Who has a batch when it is acknowledged
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "1,all")]
    acks: Vec<Acks>,
    /// How batches are compressed
    #[arg(
        long,
        default_value_if("small", "true", "none"),
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "none,lz4"
    )]
    codec: Vec<Codec>,
    /// MB of values that each case writes first, not measured
    #[arg(long, default_value_if("small", "true", "50"), value_name = "N", default_value_t = 1_000)]
    warm_mb: u64,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

#[derive(Args)]
pub(crate) struct ConsumeArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// How batches are compressed
    #[arg(long, value_name = "CODEC", value_enum, default_value = "none")]
    codec: Codec,
    /// How many consumers read at a time, each all of it
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8")]
    consumers: Vec<u16>,
    /// MB of batches that all of them together read in each measurement, at least: each reads the topic once, and
    /// again until it has read its share
    #[arg(long, value_name = "N", default_value_t = 6_000)]
    read_mb: u64,
    /// The largest response to ask for, in bytes
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(i32).range(1..))]
    response_bytes: i32,
    /// Consumers fetch in sessions, as Kafka's own does, and do not name all partitions each time
    #[arg(long)]
    sessions: bool,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

#[derive(Args)]
pub(crate) struct LatencyArguments {
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    record_bytes: u32,
    /// Bytes of each batch, about; a batch holds one record at least
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_bytes: u32,
    /// Partitions of the topic, each with a connection that writes to it
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: u16,
    /// Consumers, each of all partitions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    consumers: u16,
    /// Who has a batch when it is acknowledged
    #[arg(long, value_name = "ACKS", value_enum, default_value = "all")]
    acks: Acks,
    /// Batches that are due in a second, in percent of what Kafka can do at most
    #[arg(long, value_name = "N", default_value_t = 20.0)]
    percent: f64,
    /// The same as a number
    #[arg(long, value_name = "N", conflicts_with = "percent")]
    rate: Option<f64>,
    /// Seconds of as much load as a server takes: once to warm it, and once to measure what it can do
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    saturated_seconds: u64,
    /// Seconds at the rate that are not counted
    #[arg(long, value_name = "N", default_value_t = 3)]
    warm_seconds: u64,
    /// Seconds that are
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often each server is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Who is measured
    #[arg(long, value_name = "LIST", value_parser = broker, value_delimiter = ',', default_value = "tarn,kafka")]
    peers: Vec<ServerKind>,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

#[derive(Args)]
pub(crate) struct TailArguments {
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    record_bytes: u32,
    /// Bytes of each batch, about; a batch holds one record at least
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_bytes: u32,
    /// Partitions of the topic, each with a connection that writes to it
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: u16,
    /// How many consumers read, each all of it
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,50",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    consumers: Vec<u16>,
    /// MB of values that are written each second, for each of these; or one for all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "60,8")]
    mb_per_second: Vec<f64>,
    /// Seconds of each measurement: without consumers, and again with them
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often each server is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Who is measured
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "tarn,kafka,loop")]
    peers: Vec<ServerKind>,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

#[derive(Args)]
pub(crate) struct FlushArguments {
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    record_bytes: u32,
    /// Bytes of each batch, about; a batch holds one record at least
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_bytes: u32,
    /// What is flushed: `group` is measured with acks=all, `each` with acks=1
    #[arg(long, value_name = "LIST", value_parser = flushing, value_delimiter = ',', default_value = "group,each")]
    policies: Vec<FlushPolicy>,
    /// How many produce at a time, each with one batch under way
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,16,64",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    producers: Vec<u16>,
    /// Seconds of each measurement
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often each is made
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    pub(crate) shared: Shared,
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
    pub(crate) fn produce_run(self) -> Result<ProduceRun> {
        let warm_bytes = self.warm_bytes();
        let shared = self.shared.whole()?;
        Ok(ProduceRun {
            load: self.load.load(),
            rounds: usize::from(self.load.rounds),
            peers: self.load.peers,
            acks: self.acks,
            codecs: self.codec,
            warm_bytes,
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }

    fn warm_bytes(&self) -> u64 {
        self.warm_mb * 1_000_000
    }
}

impl ConsumeArguments {
    pub(crate) fn consume_run(self) -> Result<ConsumeRun> {
        let shared = self.shared.whole()?;
        Ok(ConsumeRun {
            load: self.load.load(),
            codec: self.codec,
            rounds: usize::from(self.load.rounds),
            peers: self.load.peers,
            consumers: self.consumers.into_iter().map(usize::from).collect(),
            read_bytes: self.read_mb * 1_000_000,
            response_bytes: self.response_bytes,
            fetching: if self.sessions { Fetching::InSessions } else { Fetching::Alone },
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

impl LatencyArguments {
    pub(crate) fn latency_run(self) -> Result<LatencyRun> {
        let shared = self.shared.whole()?;
        Ok(LatencyRun {
            shape: Shape { record_bytes: self.record_bytes as usize, batch_bytes: self.batch_bytes as usize },
            partitions: usize::from(self.partitions),
            consumers: usize::from(self.consumers),
            acks: self.acks,
            rate: self.rate.map_or(Rate::PercentOfKafka(self.percent), Rate::Batches),
            saturated: Duration::from_secs(self.saturated_seconds),
            warm_up: Duration::from_secs(self.warm_seconds),
            counted: Duration::from_secs(self.seconds),
            rounds: usize::from(self.rounds),
            peers: self.peers,
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

impl TailArguments {
    pub(crate) fn tail_run(self) -> Result<TailRun> {
        let shared = self.shared.whole()?;
        Ok(TailRun {
            shape: Shape { record_bytes: self.record_bytes as usize, batch_bytes: self.batch_bytes as usize },
            partitions: usize::from(self.partitions),
            cases: tail::cases(&self.consumers, &self.mb_per_second)?,
            time: Duration::from_secs(self.seconds),
            rounds: usize::from(self.rounds),
            peers: self.peers,
            kit: Kit::new(&shared.kit, &shared.root),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

impl FlushArguments {
    pub(crate) fn flush_run(self) -> Result<FlushRun> {
        let shared = self.shared.whole()?;
        Ok(FlushRun {
            shape: Shape { record_bytes: self.record_bytes as usize, batch_bytes: self.batch_bytes as usize },
            policies: self.policies,
            producers: self.producers.into_iter().map(usize::from).collect(),
            time: Duration::from_secs(self.seconds),
            rounds: usize::from(self.rounds),
            tarn: shared.build(),
            work: shared.work,
        })
    }
}

/// A policy that flushes something.
fn flushing(name: &str) -> std::result::Result<FlushPolicy, String> {
    match FlushPolicy::from_str(name, false)? {
        FlushPolicy::None => Err("nothing is flushed".to_owned()),
        policy => Ok(policy),
    }
}

/// A server that keeps what it is sent and gives it to others.
fn broker(name: &str) -> std::result::Result<ServerKind, String> {
    match ServerKind::from_str(name, false)? {
        ServerKind::Loop => Err("a loop does not do this".to_owned()),
        kind => Ok(kind),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Produce {
        #[command(flatten)]
        arguments: ProduceArguments,
    }

    /// The batches of a run with these options, and what is written to warm.
    fn shape_and_warming(options: &[&str]) -> (usize, usize, u64) {
        let options = ["produce"].iter().chain(options);
        let arguments = Produce::try_parse_from(options).unwrap().arguments;
        let shape = arguments.load.load().shape;
        (shape.record_bytes, shape.records(), arguments.warm_bytes())
    }

    #[test]
    fn small_batches_hold_one_value_of_100_bytes_and_any_option_goes_first() {
        assert_eq!(shape_and_warming(&[]), (1024, 63, 1_000_000_000));
        assert_eq!(shape_and_warming(&["--small"]), (100, 1, 50_000_000));
        assert_eq!(shape_and_warming(&["--small", "--record-bytes", "10"]), (10, 1, 50_000_000));
    }
}
