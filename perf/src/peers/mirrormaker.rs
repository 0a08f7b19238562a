//! MirrorMaker 2 with an Apache Kafka as its destination, both new for each copy.
//!
//! It is tuned for large pieces and for low lag alike: large fetches and batches, one task for each
//! partition, a producer that waits no longer than its default.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::kafka::{Kafka, Kit};
use super::{Copy, Setting, properties};
use crate::backlog::{Backlog, Likeness, TOPIC};
use crate::failure::{Doing, Result};
use crate::measure::arrival::Arrival;
use crate::measure::cpu::{Processes, memory_peak_bytes};
use crate::program::Program;

/// Single replicas of its internal topics, on a destination of one node.
const ALONE: &[(&str, &str)] = &[
    ("replication.factor", "1"),
    ("checkpoints.topic.replication.factor", "1"),
    ("heartbeats.topic.replication.factor", "1"),
    ("offset-syncs.topic.replication.factor", "1"),
    ("config.storage.replication.factor", "1"),
    ("offset.storage.replication.factor", "1"),
    ("status.storage.replication.factor", "1"),
    ("offset.storage.partitions", "1"),
    ("status.storage.partitions", "1"),
];

const TUNED: &[(&str, &str)] = &[
    ("src.consumer.max.poll.records", "5000"),
    ("src.consumer.fetch.max.bytes", "52428800"),
    ("src.consumer.max.partition.fetch.bytes", "8388608"),
    ("src.consumer.receive.buffer.bytes", "-1"),
    ("dst.producer.batch.size", "262144"),
    ("dst.producer.linger.ms", "5"),
    ("dst.producer.buffer.memory", "67108864"),
    ("dst.producer.max.request.size", "8388608"),
];

/// A MirrorMaker 2 and its destination, both running.
#[derive(Debug)]
pub(crate) struct MirrorMaker {
    program: Program,
    destination: Kafka,
}

impl MirrorMaker {
    /// Starts MirrorMaker 2 towards a destination that serves; returns before it copies anything.
    pub(crate) fn start(
        kit: &Kit,
        source: &Kafka,
        destination: Kafka,
        topic: &str,
        tasks: usize,
        directory: &Path,
    ) -> Result<MirrorMaker> {
        let config = directory.join("mirrormaker.properties");
        let owned = |&(key, value): &(&'static str, &str)| (key, value.to_owned());
        let mut lines = vec![
            ("clusters", "src,dst".to_owned()),
            ("src.bootstrap.servers", source.bootstrap().to_owned()),
            ("dst.bootstrap.servers", destination.bootstrap().to_owned()),
            ("src->dst.enabled", "true".to_owned()),
            ("src->dst.topics", topic.to_owned()),
            ("dst->src.enabled", "false".to_owned()),
            ("tasks.max", tasks.to_string()),
            (
                "replication.policy.class",
                "org.apache.kafka.connect.mirror.IdentityReplicationPolicy".to_owned(),
            ),
        ];
        lines.extend(ALONE.iter().chain(TUNED).map(owned));
        fs::write(&config, properties(&lines, &[])).doing(|| format!("writing {}", config.display()))?;
        let mut command = kit.mirrormaker_java()?;
        command.arg("org.apache.kafka.connect.mirror.MirrorMaker").arg(&config);
        let program = Program::start("MirrorMaker 2", command, &directory.join("mirrormaker.log"))?;
        Ok(MirrorMaker { program, destination })
    }

    /// The destination's address.
    pub(crate) fn bootstrap(&self) -> &str {
        self.destination.bootstrap()
    }

    /// The ids of both processes.
    pub(crate) fn ids(&self) -> [u32; 2] {
        [self.program.id(), self.destination.id()]
    }

    /// Fails where one of them has ended.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        self.program.expect_running()?;
        self.destination.expect_running()
    }

    /// A clean stop of both.
    pub(crate) fn stop(self) -> Result<()> {
        self.program.stop()?;
        self.destination.stop()
    }
}

/// Copies the backlog and checks it. Measured from the first records at the destination to the last, so
/// that none of the seconds that MirrorMaker 2 takes to start count against it.
pub(crate) fn copy(setting: &Setting<'_>, kit: &Kit, directory: &Path) -> Result<Copy> {
    let backlog = setting.backlog;
    let destination = Kafka::start(kit, "destination", &directory.join("kafka"))?;
    let mut arrival = Arrival::at(destination.bootstrap(), TOPIC, backlog.ends())?;
    let began = Instant::now();
    let tasks = backlog.partitions();
    let mut mirror = MirrorMaker::start(kit, setting.source, destination, TOPIC, tasks, directory)?;
    let already = arrival.first(|| mirror.expect_running())?;
    let running = Processes::new(&mirror.ids(), setting.source.id()).start();
    let first_after_seconds = began.elapsed().as_secs_f64();
    arrival.last(|| mirror.expect_running())?;
    let cost = running.stop();
    let whole_seconds = began.elapsed().as_secs_f64();
    let memory_peak_bytes = mirror.ids().iter().map(|id| memory_peak_bytes(&id.to_string()) as f64).sum();
    let copied = Backlog::read(mirror.bootstrap(), backlog.partitions())?;
    backlog.expect_copy(&copied, Likeness::Records)?;
    mirror.stop()?;
    let timed = 1.0 - already as f64 / backlog.records() as f64;
    Ok(Copy {
        bytes: backlog.bytes() as f64 * timed,
        cost,
        first_after_seconds,
        whole_seconds,
        memory_peak_bytes,
    })
}
