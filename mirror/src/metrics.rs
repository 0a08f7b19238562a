//! What a node's mirroring tells in numbers: counters, written by its lanes, and how its mirrors stand when somebody
//! asks.
//!
//! Names of KIP-1279 are written as the JMX exporter's example writes those of Kafka's coordinators.

use tarn_metrics::{Column, Counter, Exposition, Metric, metrics};

use crate::manager::{Standing, TaskStanding};
use crate::reasons::{REASONS, Reason};
use crate::state::{MirrorState, STATES};

metrics! {
    /// Mirrored partitions of this node that are compared with their source's.
    LOG_ALIGNMENT: Gauge Number "kafka_server_mirror_mirrormetadatamanager_logalignmentpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=LogAlignmentPartitionState";
    /// Mirrored partitions whose leader epoch is being raised.
    EPOCH_FENCING: Gauge Number "kafka_server_mirror_mirrormetadatamanager_epochfencingpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=EpochFencingPartitionState";
    /// Mirrored partitions that wait for their replicas after the source has lost records.
    ULE_RECOVERY: Gauge Number "kafka_server_mirror_mirrormetadatamanager_ulerecoverypartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=UleRecoveryPartitionState";
    /// Partitions that are mirrored.
    MIRRORING: Gauge Number "kafka_server_mirror_mirrormetadatamanager_mirroringpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=MirroringPartitionState";
    /// Mirrored partitions that are being paused.
    PAUSING: Gauge Number "kafka_server_mirror_mirrormetadatamanager_pausingpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=PausingPartitionState";
    /// Mirrored partitions that are paused.
    PAUSED: Gauge Number "kafka_server_mirror_mirrormetadatamanager_pausedpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=PausedPartitionState";
    /// Mirrored partitions that are being made writable.
    STOPPING: Gauge Number "kafka_server_mirror_mirrormetadatamanager_stoppingpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=StoppingPartitionState";
    /// Mirrored partitions that are writable.
    STOPPED: Gauge Number "kafka_server_mirror_mirrormetadatamanager_stoppedpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=StoppedPartitionState";
    /// Mirrored partitions that wait for a retry, or for an operator.
    FAILED: Gauge Number "kafka_server_mirror_mirrormetadatamanager_failedpartitionstate" [],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=FailedPartitionState";
    /// Topics of a mirror.
    TOPICS: Gauge Number "kafka_server_mirror_mirrormetadatamanager_mirrortopiccount" ["mirrorName"],
        jmx "kafka.server.mirror:type=MirrorMetadataManager,name=MirrorTopicCount";
    /// Partitions of a mirror on this node, by state.
    PARTITIONS: Gauge Number "tarn_mirror_partitions" ["mirror", "state"];
    /// Partitions of a mirror on this node with trouble, by its reason code.
    TROUBLED: Gauge Number "tarn_mirror_partitions_with_reason" ["mirror", "reason"];
    /// Records that the source of a mirror has and this node has not, of all partitions.
    LAG_RECORDS: Gauge Number "tarn_mirror_lag_records" ["mirror"];
    /// The most records of one partition that its source has and this node has not.
    LAG_RECORDS_MAX: Gauge Number "tarn_mirror_lag_records_max" ["mirror"];
    /// The longest that a source has had something that is missing here.
    LAG_MS_MAX: Gauge Milliseconds "tarn_mirror_lag_ms_max" ["mirror"];
    /// How long ago the source has last answered for the partition that waits longest.
    SILENCE_MS_MAX: Gauge Milliseconds "tarn_mirror_last_fetch_age_ms_max" ["mirror"];
    /// Records that the source has of a partition and this node has not.
    PARTITION_LAG_RECORDS: Gauge Number "tarn_mirror_partition_lag_records" ["mirror", "topic", "partition"];
    /// For how long the source has had something of a partition that is missing here.
    PARTITION_LAG_MS: Gauge Milliseconds "tarn_mirror_partition_lag_ms" ["mirror", "topic", "partition"];
    /// 1 where a task that follows the source beside the records fails.
    TASK_FAILING: Gauge Truth "tarn_mirror_task_failing" ["mirror", "task"];
    /// Fetch requests that sources have answered.
    FETCHES: Counter Number "tarn_mirror_fetches_total" [];
    /// Time from fetch requests to their answers, added up.
    FETCH_MS: Counter Milliseconds "tarn_mirror_fetch_ms_total" [];
    /// Bytes of mirrored batches.
    BYTES: Counter Bytes "tarn_mirror_bytes_total" [];
    /// Mirrored batches.
    BATCHES: Counter Number "tarn_mirror_batches_total" [];
    /// Mirrored records.
    RECORDS: Counter Number "tarn_mirror_records_total" [];
    /// Answers for a partition that were dropped and asked for again.
    DROPPED: Counter Number "tarn_mirror_dropped_answers_total" [];
    /// Records that sources removed before they were copied.
    GAP_RECORDS: Counter Number "tarn_mirror_gap_records_total" [];
    /// Ends of logs that were exported and dropped, because the source has not got them.
    EXPORTS: Counter Number "tarn_mirror_exports_total" [];
    /// Records in the ends of logs that were exported.
    EXPORTED_RECORDS: Counter Number "tarn_mirror_exported_records_total" [];
    /// Bytes in the ends of logs that were exported.
    EXPORTED_BYTES: Counter Bytes "tarn_mirror_exported_bytes_total" [];
    /// Connections to source brokers that failed or broke.
    LINK_FAILURES: Counter Number "tarn_mirror_link_failures_total" [];
    /// Failures of partitions that are tried again, by reason code.
    RETRIES: Counter Number "tarn_mirror_retries_total" ["reason"];
    /// Failures that an operator is waited for, by reason code.
    TERMINAL_FAILURES: Counter Number "tarn_mirror_terminal_failures_total" ["reason"];
}

/// A number for each reason.
#[derive(Debug)]
pub struct ByReason([Counter; REASONS.len()]);

impl Default for ByReason {
    fn default() -> ByReason {
        ByReason(std::array::from_fn(|_| Counter::default()))
    }
}

impl ByReason {
    /// The number of one reason.
    pub fn of(&self, reason: Reason) -> &Counter {
        &self.0[reason as usize]
    }

    /// Every reason with its number.
    pub fn all(&self) -> impl Iterator<Item = (Reason, u64)> {
        REASONS.iter().map(|&reason| (reason, self.of(reason).get()))
    }
}

/// The counters of a node; shared by `Arc`.
#[derive(Debug, Default)]
pub struct MirrorMetrics {
    /// Fetch requests answered.
    pub fetches: Counter,
    /// Milliseconds from fetch requests to their answers, summed up.
    pub fetch_ms: Counter,
    /// Bytes of batches appended.
    pub bytes: Counter,
    /// Batches appended.
    pub batches: Counter,
    /// Records in them.
    pub records: Counter,
    /// Answers for a partition that were dropped and asked for again.
    pub dropped: Counter,
    /// Records that the source removed before they were copied.
    pub gap_records: Counter,
    /// Ends of logs that were exported and dropped, because the source has not got them. Nobody removes exports but
    /// the operator.
    pub exports: Counter,
    /// Records in them, control records not counted.
    pub exported_records: Counter,
    /// Bytes in them.
    pub exported_bytes: Counter,
    /// Connections to source brokers that failed or broke.
    pub link_failures: Counter,
    /// Failures of partitions that are tried again.
    pub retries: ByReason,
    /// Failures that an operator is waited for.
    pub terminal_failures: ByReason,
}

/// How the partitions of one mirror stand that this node leads.
#[derive(Debug)]
pub struct MeasuredMirror {
    name: String,
    topics: usize,
    states: [u64; STATES.len()],
    reasons: [u64; REASONS.len()],
    lag_records: u64,
    lag_records_max: u64,
    lag_ms_max: u64,
    silence_ms_max: u64,
    tasks: Vec<TaskStanding>,
    lags: Vec<PartitionLag>,
}

/// How far one partition is behind.
#[derive(Debug)]
struct PartitionLag {
    topic: String,
    partition: String,
    records: Option<u64>,
    ms: Option<u64>,
}

/// Whether each partition of a mirror has series of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// It has.
    Told,
    /// Their sums are told alone.
    NotTold,
}

impl MeasuredMirror {
    /// A mirror with so many topics, of whose partitions nothing is known yet.
    pub fn new(name: &str, topics: usize, tasks: Vec<TaskStanding>) -> MeasuredMirror {
        MeasuredMirror {
            name: name.to_owned(),
            topics,
            states: [0; STATES.len()],
            reasons: [0; REASONS.len()],
            lag_records: 0,
            lag_records_max: 0,
            lag_ms_max: 0,
            silence_ms_max: 0,
            tasks,
            lags: Vec::new(),
        }
    }

    /// Adds a partition of a topic that was stopped for good: nobody here looks after it any more.
    pub fn add_stopped(&mut self) {
        self.count(MirrorState::Stopped);
    }

    fn count(&mut self, state: MirrorState) {
        self.states[state.to_byte() as usize] += 1;
    }

    /// Adds a partition. One that is not mirrored has no lag.
    pub fn add(&mut self, topic: &str, partition: i32, standing: &Standing, each: Each) {
        self.count(standing.state);
        standing.reason.into_iter().for_each(|reason| self.reasons[reason as usize] += 1);
        if matches!(standing.state, MirrorState::Stopped | MirrorState::Paused) {
            return;
        }
        let records = standing.source_high_watermark.map(|source| {
            let local = standing.local_high_watermark.map_or(0, |local| local.0);
            u64::try_from(source.0.saturating_sub(local)).unwrap_or(0)
        });
        let silence_ms = standing.last_fetch_age_ms.unwrap_or(0);
        self.lag_records = self.lag_records.saturating_add(records.unwrap_or(0));
        self.lag_records_max = self.lag_records_max.max(records.unwrap_or(0));
        self.lag_ms_max = self.lag_ms_max.max(standing.lag_ms.unwrap_or(0));
        self.silence_ms_max = self.silence_ms_max.max(silence_ms);
        if each == Each::Told {
            let (topic, partition) = (topic.to_owned(), partition.to_string());
            self.lags.push(PartitionLag { topic, partition, records, ms: standing.lag_ms });
        }
    }
}

/// Writes what a node has counted and how its mirrors stand.
pub fn expose(metrics: &MirrorMetrics, mirrors: &[MeasuredMirror], page: &mut Exposition) {
    const BY_STATE: [&Metric; STATES.len()] =
        [LOG_ALIGNMENT, EPOCH_FENCING, ULE_RECOVERY, MIRRORING, PAUSING, PAUSED, STOPPING, STOPPED, FAILED];
    for (state, metric) in BY_STATE.into_iter().enumerate() {
        page.single(metric, mirrors.iter().map(|mirror| mirror.states[state]).sum::<u64>());
    }
    of_each_mirror(mirrors, page);
    of_each_partition(mirrors, page);
    let counters: [(&'static Metric, &Counter); 11] = [
        (FETCHES, &metrics.fetches),
        (FETCH_MS, &metrics.fetch_ms),
        (BYTES, &metrics.bytes),
        (BATCHES, &metrics.batches),
        (RECORDS, &metrics.records),
        (DROPPED, &metrics.dropped),
        (GAP_RECORDS, &metrics.gap_records),
        (EXPORTS, &metrics.exports),
        (EXPORTED_RECORDS, &metrics.exported_records),
        (EXPORTED_BYTES, &metrics.exported_bytes),
        (LINK_FAILURES, &metrics.link_failures),
    ];
    counters.into_iter().for_each(|(metric, counter)| page.single(metric, counter.get()));
    for (metric, counted) in [(RETRIES, &metrics.retries), (TERMINAL_FAILURES, &metrics.terminal_failures)] {
        let mut family = page.family(metric);
        counted.all().for_each(|(reason, count)| family.series(&[reason.code()], count));
    }
}

fn of_each_mirror(mirrors: &[MeasuredMirror], page: &mut Exposition) {
    let numbers: [Column<MeasuredMirror>; 5] = [
        (TOPICS, |mirror| mirror.topics as u64),
        (LAG_RECORDS, |mirror| mirror.lag_records),
        (LAG_RECORDS_MAX, |mirror| mirror.lag_records_max),
        (LAG_MS_MAX, |mirror| mirror.lag_ms_max),
        (SILENCE_MS_MAX, |mirror| mirror.silence_ms_max),
    ];
    for (metric, number) in numbers {
        let mut family = page.family(metric);
        mirrors.iter().for_each(|mirror| family.series(&[&mirror.name], number(mirror)));
    }
    let mut partitions = page.family(PARTITIONS);
    for mirror in mirrors {
        let states = STATES.iter().zip(mirror.states);
        states.for_each(|(state, count)| partitions.series(&[&mirror.name, state.name()], count));
    }
    let mut troubled = page.family(TROUBLED);
    for mirror in mirrors {
        let reasons = REASONS.iter().zip(mirror.reasons).filter(|(_, count)| *count > 0);
        reasons.for_each(|(reason, count)| troubled.series(&[&mirror.name, reason.code()], count));
    }
    let mut failing = page.family(TASK_FAILING);
    for mirror in mirrors {
        let tasks = mirror.tasks.iter();
        tasks.for_each(|task| failing.series(&[&mirror.name, task.name], task.state == "failing"));
    }
}

fn of_each_partition(mirrors: &[MeasuredMirror], page: &mut Exposition) {
    let lags: [Column<PartitionLag, Option<u64>>; 2] =
        [(PARTITION_LAG_RECORDS, |lag| lag.records), (PARTITION_LAG_MS, |lag| lag.ms)];
    for (metric, number) in lags {
        let mut family = page.family(metric);
        for (mirror, lag) in
            mirrors.iter().flat_map(|mirror| mirror.lags.iter().map(move |lag| (mirror, lag)))
        {
            let labels = [mirror.name.as_str(), &lag.topic, &lag.partition];
            number(lag).into_iter().for_each(|number| family.series(&labels, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_number_of_its_own() {
        let counted = ByReason::default();
        for (index, reason) in REASONS.iter().enumerate() {
            counted.of(*reason).add(index as u64 + 1);
        }
        let numbers: Vec<u64> = counted.all().map(|(_, number)| number).collect();
        assert_eq!(numbers, (1..=REASONS.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn the_lag_of_a_mirror_is_the_sum_of_its_partitions_and_none_is_negative() {
        let mut mirror = MeasuredMirror::new("dr", 2, Vec::new());
        mirror.add("a", 0, &standing(MirrorState::Mirroring, 10_000, 4_000), Each::Told);
        mirror.add("a", 1, &standing(MirrorState::Failed, 10, 20), Each::Told);
        mirror.add("b", 0, &standing(MirrorState::Stopped, 99, 0), Each::Told);
        let mut page = Exposition::default();
        expose(&MirrorMetrics::default(), &[mirror], &mut page);
        let page = page.finish();
        for line in [
            "tarn_mirror_lag_records{mirror=\"dr\"} 6000",
            "tarn_mirror_lag_records_max{mirror=\"dr\"} 6000",
            "tarn_mirror_partition_lag_records{mirror=\"dr\",topic=\"a\",partition=\"1\"} 0",
            "tarn_mirror_partitions{mirror=\"dr\",state=\"FAILED\"} 1",
            "kafka_server_mirror_mirrormetadatamanager_stoppedpartitionstate 1",
            "kafka_server_mirror_mirrormetadatamanager_mirrortopiccount{mirrorName=\"dr\"} 2",
        ] {
            assert!(page.lines().any(|written| written == line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("topic=\"b\""), "what is stopped has no lag\n{page}");
    }

    fn standing(state: MirrorState, source: i64, local: i64) -> Standing {
        Standing {
            state,
            retry_attempt: 0,
            reason: None,
            message: None,
            source_high_watermark: Some(tarn_record::Offset(source)),
            local_high_watermark: Some(tarn_record::Offset(local)),
            lag_ms: Some(5),
            last_fetch_age_ms: Some(1),
        }
    }
}
