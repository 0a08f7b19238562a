//! The day the source is lost: what was mirrored becomes writable, nothing that was copied is lost, and
//! applications go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use tarn_mirror::crash_points::POINTS;
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::await_mirrored;
use tarn_tests::dataset::Source;
use tarn_tests::dump::{files_of, problems};
use tarn_tests::kafka::{KafkaNode, NodeOptions};
use tarn_tests::process::Process;
use tarn_tests::relay::Relay;
use tarn_tests::report::{Report, reports};
use tarn_tests::tarn::{Tarn, TarnOptions, has_crash_points};
use tarn_tests::tools::{java, java_program, python, python_program, tool};
use tarn_tests::waiting::{until, until_some};

const COPIED: Duration = Duration::from_secs(90);
const LIMIT: Duration = Duration::from_secs(60);
/// From the command to the last writable partition.
const WRITABLE_WITHIN: Duration = Duration::from_secs(5);
/// Topics of the applications that write all the time.
const TOPICS: usize = 100;
/// Some of them are written by librdkafka.
const OF_LIBRDKAFKA: usize = 10;

#[test]
fn a_mirror_whose_source_has_died_becomes_writable_with_everything_that_was_copied() {
    let mut source = Source::start();
    let mut tarn = Tarn::start(&TarnOptions::default());
    let wanted = |topic: &str| !topic.starts_with("__");
    tarn.mirror_from(&source.bootstrap(), "m", ".*");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    let ends = ends(&source.bootstrap());
    source.node.kill();

    let began = Instant::now();
    let stopped = reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok());
    assert!(began.elapsed() < WRITABLE_WITHIN, "{:?}", began.elapsed());
    assert_eq!(stopped.keys().collect::<Vec<_>>(), ends.keys().collect::<Vec<_>>());
    for (partition, report) in &stopped {
        let (end, stable) = ends[partition];
        assert_eq!(report.mirrored_offset, end, "{partition:?}");
        assert_eq!(report.source_offset, Some(end), "{partition:?}");
        assert_eq!(report.aborted, i64::from(stable < end), "{partition:?}");
        assert_eq!(report.reset_offset, end + report.aborted, "{partition:?}");
    }
    check_ended(&tarn, &stopped);
    let described = tarn.describe_mirror("m");
    assert!(described.iter().all(|one| one.state == "STOPPED" && one.reason_code.is_none()), "{described:?}");
    let topic = ["--bootstrap-server", &tarn.bootstrap(), "--describe", "--topic", "codec.none"];
    let shown = tool("TopicCommand", &topic).ok();
    assert!(shown.contains("mirror.desired.state=stopped:"), "{shown}");
    let dumped: Vec<_> = ["transaction.open-0", "codec.none-0"]
        .iter()
        .flat_map(|partition| files_of(&tarn.data().join(partition)))
        .collect();
    assert_eq!(problems(&dumped), Vec::<String>::new());

    // Asked again, nothing changes.
    assert_eq!(reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok()), stopped);
    assert_eq!(reports(&tarn.mirror("report", &["--mirror", "m", "--json"]).ok()), stopped);
    tarn.kill();
    tarn.start_again();
    assert_eq!(reports(&tarn.mirror("report", &["--mirror", "m", "--json"]).ok()), stopped);
    check_ended(&tarn, &stopped);
    let open = ("transaction.open".to_string(), 0);
    let said =
        java_program("ReadOnlyProducer", &[&tarn.bootstrap(), "transaction.open", "0"], None, LIMIT).ok();
    assert_eq!(said, format!("written at offset {}\n", stopped[&open].reset_offset + 1));
    let said = python("write_refused.py", &[&tarn.bootstrap(), "empty", "0"]).ok();
    let empty = ("empty".to_string(), 0);
    assert_eq!(said, format!("written at offset {}\n", stopped[&empty].reset_offset + 1));
    for level in ["read_uncommitted", "read_committed"] {
        let read =
            java_program("ReadBack", &[&tarn.bootstrap(), level, "transaction.open"], None, LIMIT).ok();
        let last = format!("end transaction.open 0 {}", stopped[&open].reset_offset + 2);
        assert_eq!(read.lines().last(), Some(last.as_str()), "{level}");
        let records = read.lines().count() - 1;
        assert_eq!(records, if level == "read_committed" { 501 } else { 1001 }, "{level}");
    }
}

#[test]
fn applications_that_wrote_to_the_source_go_on_at_the_mirror() {
    let relay = Relay::start();
    let mut source =
        KafkaNode::start(&NodeOptions { relay_port: Some(relay.port()), ..NodeOptions::default() });
    relay.connect_to(&source.relayed());
    let topics: Vec<String> = (0..TOPICS).map(|i| format!("steady{i:03}")).collect();
    create_topics(&source.bootstrap(), &topics);
    let advertised = ("advertised.listeners".to_string(), format!("PLAINTEXT://{}", relay.address()));
    let tarn = Tarn::start(&TarnOptions { properties: vec![advertised], ..TarnOptions::default() });
    tarn.mirror_from(&source.bootstrap(), "m", "steady.*");

    let files = tempfile::TempDir::with_prefix("tarn-steady-").expect("the temporary directory is writable");
    let (log, stop) = (files.path().join("log"), files.path().join("stop"));
    let mut command = java("tools", "512m");
    command.arg("SteadyProducers").arg(relay.address()).arg(&stop).args(&topics[OF_LIBRDKAFKA..]);
    let mut in_java = Process::spawn("SteadyProducers", command, &log);
    let mut command = python_program("steady_librdkafka.py");
    command.arg(relay.address()).arg(&stop).args(&topics[..OF_LIBRDKAFKA]);
    let mut in_python = Process::spawn("steady_librdkafka.py", command, &files.path().join("python.log"));
    until("applications that are acknowledged, and a mirror that follows", LIMIT, || {
        acknowledged(&in_java.output()).len() > 2000
            && acknowledged(&in_python.output()).len() > 500
            && tarn.describe_mirror("m").iter().filter(|one| one.state == "MIRRORING").count() == TOPICS
    });

    source.kill();
    let began = Instant::now();
    let stopped = reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok());
    assert!(began.elapsed() < WRITABLE_WITHIN, "{:?}", began.elapsed());
    assert_eq!(stopped.len(), TOPICS);
    let by_source = [&in_java, &in_python].map(|steady| acknowledged(&steady.output()).len());
    relay.connect_to(&tarn.bootstrap());
    until("applications that go on", LIMIT, || {
        acknowledged(&in_java.output()).len() > by_source[0] + 2000
            && acknowledged(&in_python.output()).len() > by_source[1] + 500
    });
    fs::write(&stop, "").expect("the temporary directory is writable");
    until("applications that end", LIMIT, || in_java.ended().is_some() && in_python.ended().is_some());
    let outputs = [in_java.output(), in_python.output()];
    for output in &outputs {
        let has_failed = output.lines().any(|line| line.starts_with("failed "));
        assert!(output.lines().any(|line| line == "ended") && !has_failed, "{output}");
    }
    let output = &outputs[0];

    let everything = read_back(&tarn, "read_uncommitted", &topics);
    let committed = read_back(&tarn, "read_committed", &topics);
    let by_tarn = outputs
        .iter()
        .zip(by_source)
        .flat_map(|(output, by_source)| acknowledged(output).into_iter().skip(by_source));
    for (topic, offset, value) in by_tarn {
        let position = stopped[&(topic.clone(), 0)].mirrored_offset;
        let found: Vec<i64> = everything[&topic]
            .iter()
            .filter(|(at, what)| *at >= position && *what == value)
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(found, [offset], "{topic}: {value} is once above {position}");
    }
    let copied: BTreeSet<&(i64, String)> = everything.values().flatten().collect();
    assert!(committed.values().flatten().all(|record| copied.contains(record)));
    // A transaction that no line says to have ended is aborted here, however much of it was copied.
    let decided: BTreeSet<&str> =
        output.lines().filter_map(|line| line.strip_prefix("transaction ")).collect();
    let (mut undecided, mut shown) = (0, 0);
    for (_, value) in everything.values().flatten().filter(|(_, value)| value.starts_with("transactional")) {
        let mut parts = value.split('-');
        let round = format!("{} {}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        undecided += i64::from(!decided.contains(round.as_str()));
    }
    for (_, value) in committed.values().flatten().filter(|(_, value)| value.starts_with("transactional")) {
        let round: i64 = value.split('-').nth(1).and_then(|round| round.parse().ok()).unwrap_or(-1);
        assert!(round % 3 != 0, "{value} was aborted at the source");
        shown += 1;
    }
    let aborted: i64 = stopped.values().map(|report| report.aborted).sum();
    assert!(shown > 0 && undecided > 0 && aborted > 0, "{shown} {undecided} {aborted}");

    // What the report calls at risk, the source's log shows as lost.
    source.start_again();
    let lost = ends(&source.bootstrap());
    for (partition, report) in &stopped {
        let at_risk = report.source_offset.map_or(0, |known| (known - report.mirrored_offset).max(0));
        let missing = lost[partition].0 - report.mirrored_offset;
        assert!(missing >= 0 && at_risk <= missing, "{partition:?}: {report:?}, {missing} missing");
    }
}

#[test]
fn a_stop_that_dies_at_any_of_its_steps_is_completed_by_the_next_start() {
    if !has_crash_points() {
        eprintln!("the optimised tarn has no crash points: nothing to try");
        return;
    }
    let source = Source::start();
    let wanted = |topic: &str| topic == "transaction.open" || topic == "empty";
    let ends: BTreeMap<_, _> =
        ends(&source.bootstrap()).into_iter().filter(|((topic, _), _)| wanted(topic)).collect();
    for point in POINTS {
        let mut tarn = Tarn::formatted(&TarnOptions::default());
        tarn.start_again_with(&[("TARN_CRASH_AT", point)]);
        tarn.mirror_from(&source.bootstrap(), "m", "transaction.open,empty");
        await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
        // Its answer may be lost with it.
        let _ = tarn.mirror("stop", &["--mirror", "m", "--topics", ".*", "--no-wait"]);
        until(&format!("a death at {point}"), LIMIT, || !tarn.is_running());
        tarn.kill();
        tarn.start_again();
        let json = tarn.mirror("stop", &["--mirror", "m", "--topics", ".*", "--json"]).ok();
        let stopped = reports(&json);
        for (partition, (end, stable)) in &ends {
            let report = &stopped[partition];
            assert_eq!(report.mirrored_offset, *end, "{point} {partition:?}");
            assert_eq!(report.aborted, i64::from(stable < end), "{point} {partition:?}");
            assert_eq!(report.reset_offset, end + report.aborted, "{point} {partition:?}");
        }
        check_ended(&tarn, &stopped);
    }
}

#[test]
fn a_source_that_is_gone_or_hangs_keeps_nobody_from_stopping() {
    let mut source = Source::start();
    let tarn = Tarn::start(&TarnOptions::default());
    let wanted = |topic: &str| topic == "codec.none" || topic == "codec.gzip" || topic == "empty";
    tarn.mirror_from(&source.bootstrap(), "m", "codec.none,codec.gzip,empty");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    let mirror = |verb: &str, topics: &str| tarn.mirror(verb, &["--mirror", "m", "--topics", topics]);
    let state = |topic: &str| -> BTreeSet<String> {
        let all = tarn.describe_mirror("m");
        all.into_iter().filter(|one| one.topic == topic).map(|one| one.state).collect()
    };
    let is = |topic: &str, wanted: &str| state(topic) == BTreeSet::from([wanted.to_string()]);

    assert!(mirror("pause", "codec.gzip").ok().starts_with("Paused mirroring for 1 topic(s)"));
    until("a paused topic", LIMIT, || is("codec.gzip", "PAUSED"));
    mirror("pause", "codec.gzip").ok();
    source.node.pause();
    // A frozen source: a stop does not ask it.
    mirror("stop", "empty").ok();
    assert!(is("empty", "STOPPED"));
    source.node.resume();
    source.node.kill();
    // A paused topic stops, and what the source last said is still shown of the others.
    mirror("stop", "codec.gzip").ok();
    assert!(is("codec.gzip", "STOPPED"));
    until("the last known lag with its reason", LIMIT, || {
        let json = tarn.mirror("describe", &["--mirror", "m", "--json"]).ok();
        let lines: Vec<serde_json::Value> = serde_json::from_str(&json).expect("it is JSON");
        lines.iter().filter(|line| line["topic"] == "codec.none").all(|line| {
            line["lagAtLeast"] == 0
                && line["reasonCode"] == "SOURCE_UNREACHABLE"
                && line["sourceOffset"].is_i64()
        })
    });
    let began = Instant::now();
    let refused = mirror("resume", "codec.gzip").failed_with(3);
    assert!(refused.contains("codec.gzip"), "{refused}");
    let refused = mirror("start", "codec.gzip").failed_with(1);
    assert!(refused.contains("topic codec.gzip is still stopped"), "{refused}");
    mirror("stop", "other").failed_with(3);
    tarn.mirror("stop", &["--mirror", "ghost", "--topics", ".*"]).failed_with(3);
    tarn.mirror("delete", &["--mirror", "m"]).failed_with(3);
    mirror("stop", ".*").ok();
    assert!(began.elapsed() < LIMIT);
    assert!(is("codec.none", "STOPPED"));
    tarn.mirror("delete", &["--mirror", "m"]).ok();
    let listed = tarn.mirror("list", &[]).ok();
    assert_eq!(listed, "No mirrors found\n");
    let said = java_program("ReadOnlyProducer", &[&tarn.bootstrap(), "codec.none", "0"], None, LIMIT).ok();
    assert!(said.starts_with("written at offset "), "{said}");
}

/// What a log must hold behind the position that a report names: one abort marker for each transaction that was
/// open, then one reset record, all of them in a newer epoch than the mirrored batches.
fn check_ended(tarn: &Tarn, stopped: &BTreeMap<(String, i64), Report>) {
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    for topic in cluster.topics() {
        for partition in &topic.partitions {
            let named = (topic.name.clone(), i64::from(partition.index));
            let Some(report) = stopped.get(&named) else { continue };
            let offsets = cluster.offsets(&topic, partition);
            assert_eq!(offsets.high_watermark, report.reset_offset + 1, "{named:?}");
            assert_eq!(offsets.last_stable, offsets.high_watermark, "{named:?}");
            let mirrored = match report.mirrored_offset > offsets.start {
                true => {
                    cluster.try_batches_at(&topic, partition, report.mirrored_offset - 1).expect("it is read")
                }
                false => Vec::new(),
            };
            let newest = mirrored.first().map_or(-1, |batch| batch.leader_epoch());
            let mut control = Vec::new();
            let mut at = report.mirrored_offset;
            while at < offsets.high_watermark {
                let batches = cluster.try_batches_at(&topic, partition, at).expect("it is read");
                for batch in batches {
                    control.push(batch.control_type().unwrap_or(-1));
                    let epoch = batch.leader_epoch();
                    assert!(
                        epoch > newest && epoch <= partition.leader_epoch,
                        "{named:?}: {newest}, {epoch}"
                    );
                    at = batch.next_offset();
                }
            }
            let mut expected = vec![0; usize::try_from(report.aborted).expect("a count")];
            expected.push(7);
            assert_eq!(control, expected, "{named:?}");
        }
    }
}

/// High watermark and last stable offset of every partition that is not internal, once each has a leader.
fn ends(bootstrap: &str) -> BTreeMap<(String, i64), (i64, i64)> {
    until_some("the ends of every partition", LIMIT, || {
        let mut cluster = Cluster::try_connect(bootstrap)?;
        let mut ends = BTreeMap::new();
        for topic in cluster.try_topics()?.iter().filter(|topic| !topic.name.starts_with("__")) {
            for partition in &topic.partitions {
                let offsets = cluster.try_offsets(topic, partition)?;
                let named = (topic.name.clone(), i64::from(partition.index));
                ends.insert(named, (offsets.high_watermark, offsets.last_stable));
            }
        }
        Ok(ends)
    })
}

/// The acknowledgements that `SteadyProducers` printed, in their order: topic, offset, value.
fn acknowledged(output: &str) -> Vec<(String, i64, String)> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("acked ")?.split(' ');
        let (topic, _, offset) = (words.next()?, words.next()?, words.next()?);
        Some((topic.to_string(), offset.parse().ok()?, words.next()?.to_string()))
    };
    // The last line may not be whole yet.
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    whole.lines().filter_map(line).collect()
}

/// What a consumer of this isolation level reads: offset and value of each record, by topic. It must come to each end.
fn read_back(tarn: &Tarn, level: &str, topics: &[String]) -> BTreeMap<String, Vec<(i64, String)>> {
    let bootstrap = tarn.bootstrap();
    let mut arguments = vec![bootstrap.as_str(), level];
    arguments.extend(topics.iter().map(String::as_str));
    let text = java_program("ReadBack", &arguments, None, LIMIT).ok();
    let mut read: BTreeMap<String, Vec<(i64, String)>> =
        topics.iter().map(|topic| (topic.clone(), Vec::new())).collect();
    for line in text.lines().filter(|line| !line.starts_with("end ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let record = (words[2].parse().expect("an offset"), words[3].to_string());
        read.get_mut(words[0]).expect("a topic that was asked for").push(record);
    }
    read
}

fn create_topics(bootstrap: &str, topics: &[String]) {
    let mut cluster = tarn_tests::raw::RawClient::connect(bootstrap);
    let topic = |name: &String| tarn_wire::messages::create_topics_request::CreatableTopic {
        name: name.as_str().into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = tarn_wire::messages::CreateTopicsRequest {
        topics: topics.iter().map(topic).collect(),
        timeout_ms: 30_000,
        ..Default::default()
    };
    let answer = cluster.call(7, &request);
    assert!(answer.topics.iter().all(|topic| topic.error_code == 0), "{answer:?}");
    let all = || Cluster::connect(bootstrap).try_topics();
    until_some("the topics' leaders", LIMIT, || match all()?.len() >= topics.len() {
        true => Ok(()),
        false => Err("not all of them".to_string()),
    });
}
