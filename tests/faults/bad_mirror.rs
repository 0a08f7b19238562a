//! Mirrors that cannot be: each verb says what is wrong and leaves nothing behind.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;
use tarn_tests::kafka::{CLUSTER_ID, KafkaNode, NodeOptions};
use tarn_tests::ports::{free_port, local};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::tool;
use tarn_tests::waiting::until;

/// How long what is saved takes to be said, and a source that is back to be found.
const SAVED: Duration = Duration::from_secs(30);
const BACK: Duration = Duration::from_secs(120);
/// The exit code of what failed, and may go well another time.
const FAILED: i32 = 1;
/// The exit code of what was asked for wrongly.
const USAGE: i32 = 2;
/// The exit code where something else must be done first.
const PRECONDITION: i32 = 3;

/// Asserts that a creation ended with this code, said `expected`, and left no mirror.
fn assert_refused(tarn: &Tarn, code: i32, configs: &[(&str, &str)], expected: &[&str]) {
    let said = tarn.create_mirror("m", configs).failed_with(code);
    for text in expected {
        assert!(said.contains(text), "no {text:?} in {said}");
    }
    let listed = tarn.mirror("list", &[]).ok();
    assert!(listed.contains("No mirrors found"), "{configs:?} left {listed}");
}

#[test]
fn a_source_that_cannot_be_reached_is_refused() {
    let tarn = Tarn::start(&TarnOptions::default());
    let nobody = local(free_port());
    assert_refused(&tarn, FAILED, &[("bootstrap.servers", &nobody)], &[&nobody]);
    let no_name = "no.such.host.invalid:9092";
    assert_refused(&tarn, FAILED, &[("bootstrap.servers", no_name)], &[no_name]);
    assert_refused(&tarn, FAILED, &[("bootstrap.servers", "no-port")], &["bootstrap.servers", "no-port"]);
}

#[test]
fn a_source_that_is_no_kafka_is_refused() {
    let tarn = Tarn::start(&TarnOptions::default());
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", &[0; 64], &[0, 0, 0, 4, 9, 9, 9, 9]] {
        let address = answers_always(answer.to_vec());
        assert_refused(&tarn, FAILED, &[("bootstrap.servers", &address)], &[&address]);
    }
}

#[test]
fn a_source_that_is_another_cluster_or_ourselves_is_refused() {
    let source = KafkaNode::start(&NodeOptions::default());
    let tarn = Tarn::start(&TarnOptions::default());
    let other = "AnotherClusterAltogeth";
    let pinned = [("bootstrap.servers", &*source.bootstrap()), ("source.cluster.id", other)];
    assert_refused(&tarn, PRECONDITION, &pinned, &[CLUSTER_ID, other]);
    assert_refused(&tarn, PRECONDITION, &[("bootstrap.servers", &tarn.bootstrap())], &["itself"]);
}

#[test]
fn bad_properties_are_refused_by_name() {
    let source = KafkaNode::start(&NodeOptions::default());
    let tarn = Tarn::start(&TarnOptions::default());
    let bootstrap = source.bootstrap();
    assert_refused(&tarn, FAILED, &[], &["bootstrap.servers"]);
    for (key, value) in [
        ("no.such.key", "1"),
        ("fetch.wait.max.ms", "soon"),
        ("fetch.min.bytes", "-5"),
        ("topics.include", "a(b"),
        ("security.protocol", "MAGIC"),
        ("security.protocol", "SASL_SSL"),
    ] {
        assert_refused(&tarn, FAILED, &[("bootstrap.servers", &bootstrap), (key, value)], &[key]);
    }
}

#[test]
fn unknown_mirrors_and_bad_names_are_errors() {
    let source = KafkaNode::start(&NodeOptions::default());
    let tarn = Tarn::start(&TarnOptions::default());
    for arguments in
        [&["describe", "--mirror", "ghost"][..], &["start", "--mirror", "ghost", "--topics", "t"]]
    {
        let said = tarn.mirror(arguments[0], &arguments[1..]).failed_with(PRECONDITION);
        assert!(said.contains("ghost"), "{said}");
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "bootstrap.servers={}", source.bootstrap()).unwrap();
    let config = file.path().display().to_string();
    for name in ["a name", "..", "slash/"] {
        let said = tarn.mirror("create", &["--mirror", name, "--mirror-config", &config]).failed();
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn topics_that_are_not_there_and_bad_patterns_are_errors() {
    let source = KafkaNode::start(&NodeOptions::default());
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.create_mirror("m", &[("bootstrap.servers", &source.bootstrap())]).ok();
    for (topics, code) in
        [("a(b", USAGE), ("no.such.topic", PRECONDITION), ("__consumer_offsets", PRECONDITION)]
    {
        let said = tarn.mirror("start", &["--mirror", "m", "--topics", topics]).failed_with(code);
        assert!(said.contains(topics), "{said}");
    }
    assert_eq!(tarn.describe_mirror("m"), []);
    // What is saved is said in the log.
    let said = tarn.mirror("start", &["--mirror", "m", "--topics", "later.*"]).ok();
    assert!(said.contains("No matching topics found yet. Patterns saved to mirror m"), "{said}");
    until("the pattern to be saved", SAVED, || tarn.output().contains("later.*"));
    let log = tarn.output();
    assert!(!log.contains("no.such.topic") && !log.contains("__consumer_offsets"), "{log}");
    assert_eq!(tarn.describe_mirror("m"), []);
}

#[test]
fn topics_of_a_source_that_is_away_are_saved_and_mirrored_once_it_is_back() {
    let mut source = KafkaNode::start(&NodeOptions::default());
    let create = ["--bootstrap-server", &source.bootstrap(), "--create", "--topic", "t"];
    tool("TopicCommand", &create).ok();
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.create_mirror("m", &[("bootstrap.servers", &source.bootstrap())]).ok();
    source.stop();
    let said = tarn.mirror("start", &["--mirror", "m", "--topics", "t"]).ok();
    assert!(said.contains("saved") && said.contains("could not be looked up"), "{said}");
    source.start_again();
    until("the topic to be mirrored", BACK, || {
        tarn.describe_mirror("m").first().is_some_and(|partition| partition.state == "MIRRORING")
    });
}

/// Listens, and answers whatever comes with the same bytes, then closes.
fn answers_always(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            // The peer may be gone already.
            let _ = stream.read(&mut request);
            let _ = stream.write_all(&bytes);
        }
    });
    address
}
