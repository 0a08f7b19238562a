//! Fills a source with the backlog, by Kafka's own producer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::backlog::{Backlog, TOPIC};
use crate::broker_client::BrokerClient;
use crate::failure::{Doing, Failure, Result};
use crate::peers::kafka::{Kafka, Kit};
use crate::program::until;

/// Bytes of each record's value.
pub(crate) const VALUE_BYTES: u64 = 1024;

/// How long it may take to find out that it leads them: after a kill it scans them first.
const LEADS_IN: Duration = Duration::from_secs(120);
/// No machine that can be measured is slower than this.
const RECORDS_PER_SECOND_LEAST: u64 = 5_000;

/// How much is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Records of 1 KiB.
    pub(crate) records: u64,
    /// Partitions.
    pub(crate) partitions: usize,
}

/// Starts a source in `directory` and fills it, or takes what an earlier run has left there. Reads it once:
/// it is in the page cache then, and every checksum is right.
pub(crate) fn source_with_backlog(kit: &Kit, size: Size, directory: &Path) -> Result<(Kafka, Backlog)> {
    let seeded = directory.join("seeded");
    let now = format!("{size:?}\n");
    let earlier = fs::read_to_string(&seeded).ok();
    if earlier.as_ref().is_some_and(|earlier| *earlier != now) {
        let text = format!("{} holds another backlog than {}", directory.display(), now.trim());
        return Err(Failure::Wrong(text));
    }
    let mut source = Kafka::start(kit, "source", directory)?;
    if earlier.is_none() {
        eprintln!("filling the source with {} records of {VALUE_BYTES} bytes", size.records);
        fill(&source, size)?;
    }
    await_leader(&mut source, size)?;
    let backlog = Backlog::read(source.bootstrap(), size.partitions)?;
    if backlog.records() != size.records {
        let text = format!("the source holds {} records of {}", backlog.records(), size.records);
        return Err(Failure::Wrong(text));
    }
    fs::write(&seeded, now).doing(|| format!("writing {}", seeded.display()))?;
    Ok((source, backlog))
}

/// A node that has just started leads its old partitions a moment after it serves.
fn await_leader(source: &mut Kafka, size: Size) -> Result<()> {
    until("a source that leads its partitions", LEADS_IN, || {
        source.expect_running()?;
        let ends = BrokerClient::connect(source.bootstrap())
            .and_then(|mut broker| broker.end_offsets(TOPIC, size.partitions));
        Ok(ends.is_ok_and(|ends| ends.iter().all(Option::is_some)).then_some(()))
    })
}

fn fill(source: &Kafka, size: Size) -> Result<()> {
    source.create_topic(TOPIC, size.partitions)?;
    let (records, value_bytes) = (size.records.to_string(), VALUE_BYTES.to_string());
    let limit = Duration::from_secs(60 + size.records / RECORDS_PER_SECOND_LEAST);
    let arguments = [
        "--topic",
        TOPIC,
        "--num-records",
        &records,
        "--record-size",
        &value_bytes,
        "--throughput",
        "-1",
        "--command-property",
        "batch.size=65536",
        "linger.ms=5",
    ];
    source.tool("ProducerPerformance", &arguments, limit).map(|_| ())
}
