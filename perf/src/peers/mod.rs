//! What is measured side by side: Tarn, MirrorMaker 2 with its destination broker, and a loop that does
//! only what every mirror must do. All copy from one Apache Kafka. And the servers that clients load:
//! Tarn, Apache Kafka, and loops that do only what every broker must do.

pub(crate) mod append_loop;
pub(crate) mod copy_loop;
pub(crate) mod kafka;
pub(crate) mod metrics_page;
pub(crate) mod mirrormaker;
pub(crate) mod relay;
pub(crate) mod send_loop;
pub(crate) mod server;
pub(crate) mod small_source;
pub(crate) mod sync_loop;
pub(crate) mod tarn;

use std::net::TcpListener;
use std::time::Duration;

use clap::ValueEnum;

use crate::backlog::Backlog;
use crate::broker_client::BrokerClient;
use crate::failure::{Failure, Result};
use crate::measure::cpu::Cost;
use crate::program::{Program, until};
use kafka::Kafka;

/// How long a server may take to serve.
const READY_IN: Duration = Duration::from_secs(180);
/// Below the kernel's range for outgoing connections, so that none takes a port between its choice and its
/// use.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A peer that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Peer {
    /// The destination is a Tarn.
    Tarn,
    /// MirrorMaker 2 copies to an Apache Kafka.
    Mirrormaker,
    /// The copy loop.
    Loop,
}

impl Peer {
    /// Its name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Peer::Tarn => "Tarn",
            Peer::Mirrormaker => "MirrorMaker 2 + its broker",
            Peer::Loop => "copy loop",
        }
    }

    /// Its name in JSON and on the command line.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Peer::Tarn => "tarn",
            Peer::Mirrormaker => "mirrormaker",
            Peer::Loop => "loop",
        }
    }
}

/// What a copy is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    /// The source.
    pub(crate) source: &'a Kafka,
    /// What it holds.
    pub(crate) backlog: &'a Backlog,
}

/// One copy that was made and checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    /// Bytes of the source's log that were copied while it was measured.
    pub(crate) bytes: f64,
    /// What they cost.
    pub(crate) cost: Cost,
    /// From the command to the first record at the destination.
    pub(crate) first_after_seconds: f64,
    /// From the command to the last.
    pub(crate) whole_seconds: f64,
    /// The most memory that the destination's processes had resident, each at its own peak.
    pub(crate) memory_peak_bytes: f64,
}

/// A port of 127.0.0.1 on which nothing listens.
fn free_port() -> Result<u16> {
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..1000)
        .map(|_| fastrand::u16(PORTS))
        .find(free)
        .ok_or_else(|| Failure::Wrong(format!("no port of {PORTS:?} is free")))
}

/// The same with its address.
pub(crate) fn free_address() -> Result<String> {
    Ok(format!("127.0.0.1:{}", free_port()?))
}

/// Waits until the broker at `address` says that a broker serves.
fn await_ready(program: &mut Program, address: &str) -> Result<()> {
    until(&format!("a broker that serves at {address}"), READY_IN, || {
        program.expect_running()?;
        let brokers = BrokerClient::connect(address).and_then(|mut broker| broker.brokers());
        Ok((brokers.unwrap_or_default() > 0).then_some(()))
    })
}

/// Lines of a properties file.
fn properties(lines: &[(&str, String)], further: &[String]) -> String {
    let lines = lines.iter().map(|(key, value)| format!("{key}={value}"));
    lines.chain(further.iter().cloned()).fold(String::new(), |text, line| text + &line + "\n")
}
