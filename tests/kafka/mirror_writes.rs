//! What a client may not do to a mirror topic, as Kafka's own clients see it.

use std::time::Duration;
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dataset::Source;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{java_program, tool, tool_with_input};

const LIMIT: Duration = Duration::from_secs(60);

fn wanted(topic: &str) -> bool {
    topic == "codec.none" || topic == "empty"
}

#[test]
fn a_java_producer_is_told_who_owns_a_mirror_topic() {
    let (source, tarn) = mirrored_pair();
    for configs in [&["acks=all"][..], &["acks=1", "enable.idempotence=false"]] {
        let bootstrap = tarn.bootstrap();
        let arguments = [&[bootstrap.as_str(), "codec.none", "0"], configs].concat();
        let said = java_program("ReadOnlyProducer", &arguments, None, LIMIT).ok();
        assert!(said.starts_with("org.apache.kafka.common.errors.PolicyViolationException: "), "{said}");
        // It names the mirror, and what would make the topic writable.
        assert!(said.contains("mirror m") && said.contains("stop"), "{said}");
    }
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
}

#[test]
fn topics_that_are_not_mirrored_take_writes_beside_those_that_are() {
    let (_source, tarn) = mirrored_pair();
    let create = ["--bootstrap-server", &tarn.bootstrap(), "--create", "--topic", "own"];
    tool("TopicCommand", &create).ok();
    let said = java_program("ReadOnlyProducer", &[&tarn.bootstrap(), "own", "0"], None, LIMIT).ok();
    assert_eq!(said, "written at offset 0\n");
}

#[test]
fn tools_that_would_change_a_mirror_topic_are_refused() {
    let (source, tarn) = mirrored_pair();
    let bootstrap = tarn.bootstrap();
    let topics = |arguments: &[&str]| {
        let all = [&["--bootstrap-server", &bootstrap, "--topic", "codec.none"], arguments].concat();
        tool("TopicCommand", &all).failed()
    };
    let deleted = topics(&["--delete"]);
    assert!(deleted.contains("PolicyViolation"), "{deleted}");
    let grown = topics(&["--alter", "--partitions", "9"]);
    assert!(grown.contains("PolicyViolation"), "{grown}");
    for bound in ["mirror.name=other", "mirror.desired.state=stopped:9"] {
        let alter =
            ["--entity-type", "topics", "--entity-name", "codec.none", "--alter", "--add-config", bound];
        let refused =
            tool("ConfigCommand", &[&["--bootstrap-server", &bootstrap], &alter[..]].concat()).failed();
        let key = bound.split('=').next().unwrap_or_default();
        assert!(refused.contains(key), "{refused}");
    }
    let from_console = ["--bootstrap-server", &bootstrap, "--topic", "empty", "--sync"];
    let said = tool_with_input("ConsoleProducer", &from_console, Some(b"refused\n"));
    assert!(said.stderr.contains("PolicyViolationException"), "{said:?}");
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
    assert_eq!(Cluster::connect(&bootstrap).topic("codec.none").partitions.len(), 4);
}

fn mirrored_pair() -> (Source, Tarn) {
    let source = Source::start();
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "codec.none,empty");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, LIMIT);
    (source, tarn)
}
