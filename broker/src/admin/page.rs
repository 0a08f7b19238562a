//! The answer to a scrape: every metric that a broker describes, from what was gathered for it.

use std::collections::BTreeMap;

use tarn_image::effective::{BrokerView, topic_value};
use tarn_image::{PartitionRegistration, TopicImage};
use tarn_metrics::{Column, Durations, Exposition, Metric, Value};
use tarn_mirror::metrics::Each;
use tarn_record::{BrokerId, TopicId};
use tarn_wire::{ApiKey, ErrorCode};

use super::process::Process;
use super::scrape::{RequestTimings, Scraped, Timings};
use crate::metrics::{self, CoreMeasured, MeasuredLog, OfApi, TopicTraffic};

mod storage;
mod used;

/// Writes the page.
pub(super) fn write(scraped: &Scraped<'_>) -> String {
    let mut page = Exposition::default();
    traffic(scraped, &mut page);
    requests(scraped, &mut page);
    replicas(scraped, &mut page);
    logs(scraped, &mut page);
    cluster(scraped, &mut page);
    quorum(scraped, &mut page);
    let node = &scraped.watched.node;
    tarn_transport::metrics::expose(node.metrics().iter().map(|core| &*core.transport), &mut page);
    if let Some(manager) = node.mirrors() {
        tarn_mirror::metrics::expose(manager.metrics(), &scraped.mirrors, &mut page);
    }
    storage::write(scraped, &mut page);
    let process = Process::now();
    used::write(scraped, &process, &mut page);
    tell_process(&process, &mut page);
    page.finish()
}

fn traffic(scraped: &Scraped<'_>, page: &mut Exposition) {
    let mut all = TopicTraffic::default();
    let mut topics: BTreeMap<TopicId, TopicTraffic> = BTreeMap::new();
    for core in &scraped.cores {
        all.add(&core.traffic);
        core.topics.iter().for_each(|(topic, seen)| topics.entry(*topic).or_default().add(seen));
    }
    if topics.len() > scraped.watched.node.config().admin.topics_max {
        topics.clear();
    }
    page.single(metrics::TOPICS_TOLD, topics.len());
    let named =
        topics.iter().filter_map(|(topic, seen)| Some((&scraped.image.topics().by_id(*topic)?.name, seen)));
    let columns: [Column<TopicTraffic>; 7] = [
        (metrics::MESSAGES_IN, |seen| seen.messages_in),
        (metrics::BYTES_IN, |seen| seen.bytes_in),
        (metrics::BYTES_OUT, |seen| seen.bytes_out),
        (metrics::PRODUCE_REQUESTS, |seen| seen.produce_requests),
        (metrics::FAILED_PRODUCE_REQUESTS, |seen| seen.failed_produce_requests),
        (metrics::FETCH_REQUESTS, |seen| seen.fetch_requests),
        (metrics::FAILED_FETCH_REQUESTS, |seen| seen.failed_fetch_requests),
    ];
    for (metric, number) in columns {
        let mut family = page.family(metric);
        family.series(&[], number(&all));
        named.clone().for_each(|(topic, seen)| family.series(&[topic], number(seen)));
    }
}

/// Kafka tells fetches of consumers and of followers apart, and adds them up; there are no followers here.
fn names(key: ApiKey) -> Vec<&'static str> {
    let name = key.name().unwrap_or_default();
    if key == ApiKey::FETCH { vec![name, "FetchConsumer"] } else { vec![name] }
}

fn requests(scraped: &Scraped<'_>, page: &mut Exposition) {
    let cores = scraped.watched.node.metrics();
    let apis: Vec<&OfApi> = cores.iter().take(1).flat_map(|core| core.requests.iter()).collect();
    let of_key =
        |key| cores.iter().flat_map(|core| core.requests.iter()).filter(move |api: &&OfApi| api.key == key);
    let mut family = page.family(metrics::REQUESTS);
    for api in &apis {
        for (version, number) in (api.min..).zip(0..api.versions.len()) {
            let count: u64 = of_key(api.key).map(|api| api.versions[number].get()).sum();
            let labels = names(api.key).into_iter().filter(|_| count > 0);
            labels.for_each(|name| family.series(&[name, &version.to_string()], count));
        }
    }
    times(scraped, page, metrics::TOTAL_TIME, |timings| Some(&timings.total));
    times(scraped, page, metrics::LOCAL_TIME, |timings| {
        Some(timings.split.as_ref().map_or(&timings.total, |(local, _)| local))
    });
    times(scraped, page, metrics::REMOTE_TIME, |timings| timings.split.as_ref().map(|(_, remote)| remote));
    let mut family = page.family(metrics::ERRORS);
    for api in &apis {
        let mut counts: BTreeMap<ErrorCode, u64> = BTreeMap::new();
        let all = of_key(api.key).flat_map(|api| api.errors.iter());
        all.for_each(|(code, count)| *counts.entry(code).or_default() += count);
        let name = api.key.name().unwrap_or_default();
        counts.into_iter().for_each(|(code, count)| family.series(&[name, code.name()], count));
    }
    let mut family = page.family(metrics::UNANSWERED);
    for api in &apis {
        let count: u64 = of_key(api.key).map(|api| api.closed.get()).sum();
        names(api.key).into_iter().take(1).for_each(|name| family.series(&[name], count));
    }
}

/// Writes a summary of each API that has it.
fn times(
    scraped: &Scraped<'_>,
    page: &mut Exposition,
    metric: &'static Metric,
    of: impl Fn(&RequestTimings) -> Option<&Durations>,
) {
    let (mut family, nothing) = (page.family(metric), Durations::default());
    for (at, (key, timings)) in scraped.timings.requests.iter().enumerate() {
        let Some(durations) = of(timings) else { continue };
        let earlier = scraped.earlier.requests.get(at).and_then(|(_, earlier)| of(earlier));
        let summary = durations.summary_since(earlier.unwrap_or(&nothing));
        names(*key).into_iter().for_each(|name| family.summary(&[name], &summary));
    }
}

/// What this broker is of the cluster's partitions.
#[derive(Debug, Default)]
struct Led {
    leads: u64,
    under_replicated: u64,
    under_min_isr: u64,
    at_min_isr: u64,
}

fn replicas(scraped: &Scraped<'_>, page: &mut Exposition) {
    let cores = &scraped.cores;
    let sum = |number: fn(&CoreMeasured) -> usize| cores.iter().map(number).sum::<usize>();
    let mut led = Led::default();
    for topic in scraped.image.topics().iter() {
        led.add(scraped, topic);
    }
    let unopened = sum(|core| core.unopened);
    page.single(metrics::PARTITION_COUNT, sum(|core| core.replicas) + unopened);
    page.single(metrics::LEADER_COUNT, led.leads);
    page.single(metrics::OFFLINE_REPLICAS, sum(|core| core.offline));
    page.single(metrics::UNDER_REPLICATED, led.under_replicated);
    page.single(metrics::UNDER_MIN_ISR, led.under_min_isr);
    page.single(metrics::AT_MIN_ISR, led.at_min_isr);
    page.single(metrics::FETCH_SESSIONS, sum(|core| core.sessions));
    page.single(metrics::FETCH_SESSION_PARTITIONS, sum(|core| core.session_partitions));
}

impl Led {
    fn add(&mut self, scraped: &Scraped<'_>, topic: &TopicImage) {
        let own = scraped.watched.node.broker_id();
        let led = || topic.partitions.values().filter(|partition| partition.leader == own);
        if led().next().is_none() {
            return;
        }
        let required = min_in_sync(scraped, topic);
        for partition in led() {
            let (in_sync, replicas) = (partition.isr.len(), partition.replicas.len());
            // As Kafka counts: a topic with fewer replicas than it requires needs them all.
            let required = required.min(replicas);
            self.leads += 1;
            self.under_replicated += u64::from(in_sync < replicas);
            self.under_min_isr += u64::from(in_sync < required);
            self.at_min_isr += u64::from(in_sync == required);
        }
    }
}

fn min_in_sync(scraped: &Scraped<'_>, topic: &TopicImage) -> usize {
    let node = &scraped.watched.node;
    let own = node.broker_id().to_string();
    let configs = scraped.image.configs();
    let broker = BrokerView::new(configs, &own, &node.config().properties);
    let key = tarn_image::config::table::topic_key("min.insync.replicas").expect("Kafka has it");
    let value = topic_value(key, configs.topic(&topic.name), &broker);
    value.and_then(|value| value.parse().ok()).unwrap_or(1)
}

fn logs(scraped: &Scraped<'_>, page: &mut Exposition) {
    let told = if scraped.each == Each::Told { &scraped.cores[..] } else { &[] };
    let mut logs: Vec<_> = told.iter().flat_map(|core| &core.logs).collect();
    logs.sort_by(|one, other| (&one.topic, one.partition).cmp(&(&other.topic, other.partition)));
    page.single(metrics::PARTITIONS_TOLD, logs.len());
    let columns: [Column<MeasuredLog, Value>; 4] = [
        (metrics::LOG_SIZE, |log| log.bytes.into()),
        (metrics::LOG_SEGMENTS, |log| log.segments.into()),
        (metrics::LOG_START, |log| log.start.0.into()),
        (metrics::LOG_END, |log| log.end.0.into()),
    ];
    for (metric, value) in columns {
        let mut family = page.family(metric);
        logs.iter().for_each(|log| family.series(&[&log.topic, &log.partition.to_string()], value(log)));
    }
    let Timings { flushes, cold_lookups, .. } = &scraped.timings;
    page.family(metrics::FLUSHES).summary(&[], &flushes.summary_since(&scraped.earlier.flushes));
    let begun: u64 = scraped.watched.node.metrics().iter().map(|core| core.cold_lookups.begun.get()).sum();
    page.single(metrics::COLD_LOOKUPS, begun.saturating_sub(cold_lookups.count()));
    let summary = cold_lookups.summary_since(&scraped.earlier.cold_lookups);
    page.family(metrics::COLD_LOOKUP_TIME).summary(&[], &summary);
}

fn cluster(scraped: &Scraped<'_>, page: &mut Exposition) {
    let topics = scraped.image.topics();
    let partitions = || topics.iter().flat_map(|topic| topic.partitions.values());
    let count =
        |is: fn(&PartitionRegistration) -> bool| partitions().filter(|partition| is(partition)).count();
    let brokers = || scraped.image.registrations().brokers();
    page.single(metrics::ACTIVE_BROKERS, brokers().filter(|broker| !broker.fenced).count());
    page.single(metrics::FENCED_BROKERS, brokers().filter(|broker| broker.fenced).count());
    page.single(metrics::GLOBAL_TOPICS, topics.len());
    page.single(metrics::GLOBAL_PARTITIONS, partitions().count());
    page.single(metrics::OFFLINE_PARTITIONS, count(|partition| partition.leader == BrokerId::NONE));
    let is_unpreferred =
        |partition: &PartitionRegistration| partition.replicas.first() != Some(&partition.leader);
    page.single(metrics::PREFERRED_IMBALANCE, count(is_unpreferred));
    page.single(metrics::LAST_APPLIED, scraped.image.provenance().offset.0);
}

fn quorum(scraped: &Scraped<'_>, page: &mut Exposition) {
    let Some(quorum) = scraped.cores.iter().find_map(|core| core.quorum.as_ref()) else { return };
    let leads = quorum.leader_id == scraped.watched.node.broker_id().0;
    let leader = quorum.current_voters.iter().find(|voter| voter.replica_id == quorum.leader_id);
    page.single(metrics::ACTIVE_CONTROLLER, leads);
    page.single(metrics::LAST_COMMITTED, quorum.high_watermark - 1);
    page.single(metrics::RAFT_LEADER, i64::from(quorum.leader_id));
    page.single(metrics::RAFT_EPOCH, i64::from(quorum.leader_epoch));
    page.single(metrics::RAFT_HIGH_WATERMARK, quorum.high_watermark);
    leader.into_iter().for_each(|leader| page.single(metrics::RAFT_LOG_END, leader.log_end_offset));
}

fn tell_process(process: &Process, page: &mut Exposition) {
    page.family(metrics::BUILD_INFO).series(&[env!("CARGO_PKG_VERSION")], 1u64);
    let mut known =
        |metric, value: Option<Value>| value.into_iter().for_each(|value| page.single(metric, value));
    known(metrics::CPU_SECONDS, process.cpu_seconds.map(Value::Real));
    known(metrics::RESIDENT_BYTES, process.resident_bytes.map(Value::Unsigned));
    known(metrics::OPEN_FDS, process.open_fds.map(Value::Unsigned));
    known(metrics::MAX_FDS, process.max_fds.map(Value::Unsigned));
    known(metrics::START_TIME, process.started_at.map(Value::Real));
}
