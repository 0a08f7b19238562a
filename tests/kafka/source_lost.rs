//! A source that goes away, in whatever way: what is said of it meanwhile, what its absence costs, and what a
//! report may claim to have known.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dataset::Source;
use tarn_tests::kafka::{KafkaNode, NodeOptions};
use tarn_tests::overheard::Overheard;
use tarn_tests::process::Process;
use tarn_tests::relay::Relay;
use tarn_tests::report::reports;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{java, tool, tool_with_input};
use tarn_tests::waiting::{until, until_some};

const COPIED: Duration = Duration::from_secs(90);
const LIMIT: Duration = Duration::from_secs(60);
/// What `mirror_from` sets for the mirrors of these tests.
const FETCH_WAIT: Duration = Duration::from_millis(500);
/// How long a source that is gone is watched.
const AWAY: Duration = Duration::from_secs(4);
/// From the source's return to every partition going on.
const GOES_ON_WITHIN: Duration = Duration::from_secs(5);
/// How far the time of an answer may be from when it passed the relay.
const HEARD_WITHIN_MS: i64 = 100;
/// What a link carries that is slower than its applications.
const SLOW_BYTES_PER_SECOND: u64 = 256 * 1024;

#[test]
fn a_report_claims_what_the_source_was_heard_to_say() {
    let overheard = Arc::new(Overheard::default());
    let relay = Relay::heard_by(Some(overheard.clone()));
    let mut source =
        KafkaNode::start(&NodeOptions { relay_port: Some(relay.port()), ..NodeOptions::default() });
    relay.connect_to(&source.relayed());
    for (topic, partitions) in [("busy", "4"), ("quiet", "2")] {
        create(&source.bootstrap(), topic, partitions);
    }
    write(&source.bootstrap(), "quiet", 7);
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&relay.address(), "m", "busy,quiet");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "quiet", COPIED);
    let files = tempfile::TempDir::with_prefix("tarn-load-").expect("the temporary directory is writable");
    let mut load = steady_load(&source.bootstrap(), "busy", &files.path().join("log"));
    let position = |tarn: &Tarn| {
        let described = tarn.describe_mirror("m");
        described.iter().filter(|one| one.topic == "busy").filter_map(|one| one.lag).sum::<i64>()
    };
    until("a mirror that follows", LIMIT, || overheard.known().len() == 6 && position(&tarn) > 0);
    relay.slow_to(SLOW_BYTES_PER_SECOND);
    until("a mirror that lags", LIMIT, || position(&tarn) > 5000);
    source.kill();
    load.kill();

    let stopped = reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok());
    let known = overheard.known();
    let mut ids = BTreeMap::new();
    let mut at_risk = 0;
    for ((topic, index), report) in &stopped {
        let id =
            *ids.entry(topic.clone()).or_insert_with(|| Cluster::connect(&tarn.bootstrap()).topic(topic).id);
        let heard = known[&(id, i32::try_from(*index).expect("a partition's number"))];
        assert_eq!(report.source_offset, Some(heard.high_watermark), "{topic}-{index}");
        let known_at = report.source_known_at_ms.expect("it has answered");
        assert!((known_at - heard.at_ms).abs() <= HEARD_WITHIN_MS, "{topic}-{index}: {report:?}, {heard:?}");
        at_risk += heard.high_watermark - report.mirrored_offset;
    }
    assert!(stopped.len() == 6 && at_risk > 0, "{stopped:?}");

    // What is called at risk is lost, and no more than is lost.
    source.start_again();
    let mut lost = Cluster::connect(&source.bootstrap());
    for topic in lost.topics() {
        for partition in &topic.partitions {
            let report = &stopped[&(topic.name.clone(), i64::from(partition.index))];
            let offsets =
                until_some("a leader that has recovered", LIMIT, || lost.try_offsets(&topic, partition));
            let end = offsets.high_watermark;
            let known = report.source_offset.expect("it has answered");
            assert!(report.mirrored_offset <= known && known <= end, "{}: {report:?}, {end}", topic.name);
        }
    }
}

#[test]
fn a_source_that_is_away_costs_nothing_and_goes_on_when_it_is_back() {
    let mut source = Source::start();
    let tarn = Tarn::start(&TarnOptions::default());
    let wanted = |topic: &str| !topic.starts_with("__");
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    until("a mirror at rest", LIMIT, || tarn.describe_mirror("m").iter().all(|one| one.state == "MIRRORING"));
    let states = mirror_state_ends(&tarn);
    source.node.kill();
    let killed = Instant::now();
    let said = until_some("a reason beside every partition", 2 * FETCH_WAIT + LIMIT, || {
        let described = tarn.describe_mirror("m");
        match described.iter().find(|one| one.reason_code.as_deref() != Some("SOURCE_UNREACHABLE")) {
            None => Ok((killed.elapsed(), described)),
            Some(silent) => Err(format!("{silent:?}")),
        }
    });
    // The command that asks is a process of its own.
    assert!(said.0 < 2 * FETCH_WAIT + Duration::from_millis(500), "{:?}", said.0);
    for partition in &said.1 {
        assert_eq!(partition.state, "MIRRORING", "{partition:?}");
        let message = partition.error_message.as_deref().unwrap_or_default();
        // The connection that broke, or the address that refuses another.
        let has_cause = message.contains("closed") || message.contains(&source.bootstrap());
        assert!(has_cause, "no cause in {message:?}");
        assert!(partition.last_fetch_age_ms.is_some_and(|age| age < 2000), "{partition:?}");
    }

    let used = tarn.cpu_time();
    std::thread::sleep(AWAY);
    let used = tarn.cpu_time() - used;
    assert!(used < AWAY / 10, "{used:?} of processor time in {AWAY:?}");
    assert_eq!(mirror_state_ends(&tarn), states);

    source.node.start_again();
    let back = Instant::now();
    for topic in ["codec.none", "empty"] {
        write(&source.bootstrap(), topic, 10);
    }
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, LIMIT);
    until("no reason beside any partition", LIMIT, || {
        tarn.describe_mirror("m").iter().all(|one| one.reason_code.is_none() && one.state == "MIRRORING")
    });
    assert!(back.elapsed() < GOES_ON_WITHIN, "{:?}", back.elapsed());
    assert_eq!(mirror_state_ends(&tarn), states);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
}

#[test]
fn a_topic_that_is_deleted_or_made_anew_at_the_source_stays_here_as_it_was() {
    let source = KafkaNode::start(&NodeOptions::default());
    for topic in ["gone", "anew", "kept"] {
        create(&source.bootstrap(), topic, "1");
        write(&source.bootstrap(), topic, 20);
    }
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "gone,anew,kept");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| !topic.starts_with("__"), COPIED);
    let mut here = Cluster::connect(&tarn.bootstrap());
    let before: BTreeMap<String, _> =
        here.topics().into_iter().map(|topic| (topic.name.clone(), topic)).collect();
    for topic in ["gone", "anew"] {
        let delete = ["--bootstrap-server", &source.bootstrap(), "--delete", "--topic", topic];
        tool("TopicCommand", &delete).ok();
    }
    create(&source.bootstrap(), "anew", "1");
    write(&source.bootstrap(), "anew", 50);
    write(&source.bootstrap(), "kept", 5);
    for (topic, reason) in [("gone", "SOURCE_TOPIC_DELETED"), ("anew", "SOURCE_TOPIC_RECREATED")] {
        until_some(&format!("{topic} to be FAILED, {reason}"), LIMIT, || {
            let described = tarn.describe_mirror("m");
            let one = described.iter().find(|one| one.topic == topic).ok_or("it is not there")?;
            match one.state == "FAILED" && one.reason_code.as_deref() == Some(reason) {
                true => Ok(()),
                false => Err(format!("{one:?}")),
            }
        });
    }
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "kept", LIMIT);
    for topic in ["gone", "anew"] {
        let now = here.topic(topic);
        assert_eq!(now.id, before[topic].id, "{topic}");
        assert_eq!(here.offsets(&now, &now.partitions[0]).high_watermark, 20, "{topic}");
    }
    // What the source has lost can be stopped, and then written to.
    let stopped = reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok());
    assert_eq!(stopped.len(), 3);
    assert_eq!(stopped[&("gone".to_string(), 0)].mirrored_offset, 20);
    assert_eq!(stopped[&("anew".to_string(), 0)].mirrored_offset, 20);
    write(&tarn.bootstrap(), "gone", 1);
}

/// Where the partitions of `__mirror_state` end.
fn mirror_state_ends(tarn: &Tarn) -> Vec<i64> {
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let topics = cluster.try_topics().expect("tarn answers");
    let states = topics.iter().find(|topic| topic.name == "__mirror_state").expect("it is there").clone();
    states.partitions.iter().map(|partition| cluster.offsets(&states, partition).high_watermark).collect()
}

fn create(bootstrap: &str, topic: &str, partitions: &str) {
    let arguments =
        ["--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", partitions];
    tool("TopicCommand", &arguments).ok();
}

/// Writes records, each in a batch of its own or with others.
fn write(bootstrap: &str, topic: &str, records: usize) {
    let lines: String = (0..records).map(|i| format!("record {i}\n")).collect();
    let arguments = ["--bootstrap-server", bootstrap, "--topic", topic];
    let written = tool_with_input("ConsoleProducer", &arguments, Some(lines.as_bytes()));
    let said = written.stderr.clone();
    written.ok();
    // A leader that has only just come back is warned of, and asked again.
    assert!(!said.contains("ERROR"), "{said}");
}

/// A producer that writes two megabytes a second until it is ended.
fn steady_load(bootstrap: &str, topic: &str, log: &Path) -> Process {
    let mut command = java("tools", "256m");
    command.arg("org.apache.kafka.tools.ProducerPerformance").args([
        "--topic",
        topic,
        "--num-records",
        "100000000",
        "--record-size",
        "200",
        "--throughput",
        "10000",
        "--command-property",
        &format!("bootstrap.servers={bootstrap}"),
    ]);
    Process::spawn("ProducerPerformance", command, log)
}
