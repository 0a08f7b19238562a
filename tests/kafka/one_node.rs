//! One Tarn that Kafka's own clients write to and read from, and whose files Kafka's own tools read.

use std::fs;
use std::path::{Path, PathBuf};
use tarn_tests::cluster::Cluster;
use tarn_tests::dump;
use tarn_tests::kafka::{KafkaNode, NodeOptions, copy_directory};
use tarn_tests::process::Finished;
use tarn_tests::tarn::{CLUSTER_ID, Tarn, TarnOptions};
use tarn_tests::tools::{kcat, tool, tool_with_input};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

#[test]
fn java_and_librdkafka_read_what_the_other_wrote() {
    let tarn = Tarn::start(&TarnOptions::default());
    create_topic(&tarn, "t", "1");
    let mut expected = String::new();
    for codec in CODECS {
        produce_with_java(&tarn, "t", codec, "java");
        let from_kcat = format!("kcat-{codec}:1\nkcat-{codec}:2\n");
        let arguments = ["-P", "-b", &tarn.bootstrap(), "-t", "t", "-p", "0", "-K:", "-z", codec];
        kcat(&arguments, Some(from_kcat.as_bytes())).ok();
        expected += &format!("java-{codec}:1\njava-{codec}:2\nkcat-{codec}:1\nkcat-{codec}:2\n");
    }
    assert_eq!(consume_with_kcat(&tarn, "t"), expected);
    assert_eq!(consume_with_java(&tarn, "t", 20).ok(), expected);
}

#[test]
fn an_idempotent_producer_and_acks_of_every_kind_are_served() {
    let tarn = Tarn::start(&TarnOptions::default());
    create_topic(&tarn, "t", "2");
    for configs in
        [["acks=all", "enable.idempotence=true"], ["acks=1", "linger.ms=0"], ["acks=0", "linger.ms=0"]]
    {
        let mut arguments = vec!["--bootstrap-server".to_string(), tarn.bootstrap()];
        arguments.extend(
            ["--topic", "t", "--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
                .map(String::from),
        );
        for config in configs {
            arguments.extend(["--command-property".to_string(), config.to_string()]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        tool("ProducerPerformance", &arguments).ok();
    }
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let topic = cluster.topic("t");
    tarn_tests::waiting::until("60,000 records", std::time::Duration::from_secs(10), || {
        let ends = topic.partitions.iter().map(|partition| cluster.offsets(&topic, partition).high_watermark);
        ends.sum::<i64>() == 60_000
    });
}

#[test]
fn records_and_topics_survive_a_stop_and_a_kill() {
    let mut tarn = Tarn::start(&TarnOptions::default());
    create_topic(&tarn, "t", "1");
    let id = Cluster::connect(&tarn.bootstrap()).topic("t").id;
    produce_with_java(&tarn, "t", "lz4", "first");
    tarn.stop();
    tarn.start_again();
    produce_with_java(&tarn, "t", "zstd", "second");
    tarn.kill();
    tarn.start_again();
    produce_with_java(&tarn, "t", "none", "third");
    let expected = "first-lz4:1\nfirst-lz4:2\nsecond-zstd:1\nsecond-zstd:2\nthird-none:1\nthird-none:2\n";
    assert_eq!(consume_with_kcat(&tarn, "t"), expected);
    assert_eq!(Cluster::connect(&tarn.bootstrap()).topic("t").id, id);
}

#[test]
fn a_deleted_topic_is_gone_after_a_restart_and_its_name_is_free() {
    let mut tarn = Tarn::start(&TarnOptions::default());
    create_topic(&tarn, "t", "2");
    let before = Cluster::connect(&tarn.bootstrap()).topic("t").id;
    produce_with_java(&tarn, "t", "none", "old");
    tool("TopicCommand", &["--bootstrap-server", &tarn.bootstrap(), "--delete", "--topic", "t"]).ok();
    tarn.stop();
    tarn.start_again();
    assert_eq!(Cluster::connect(&tarn.bootstrap()).topics(), []);
    create_topic(&tarn, "t", "1");
    assert_ne!(Cluster::connect(&tarn.bootstrap()).topic("t").id, before);
    assert_eq!(consume_with_kcat(&tarn, "t"), "");
}

#[test]
fn kafka_dump_log_finds_nothing_wrong_with_our_files() {
    let mut tarn = Tarn::start(&TarnOptions {
        properties: vec![("log.segment.bytes".into(), "1048576".into())],
        ..TarnOptions::default()
    });
    create_topic(&tarn, "t", "1");
    for codec in CODECS {
        let compression = format!("compression.type={codec}");
        let arguments = [
            "--bootstrap-server",
            &tarn.bootstrap(),
            "--topic",
            "t",
            "--num-records",
            "10000",
            "--record-size",
            "200",
            "--throughput",
            "-1",
            "--command-property",
            &compression,
        ];
        tool("ProducerPerformance", &arguments).ok();
    }
    tarn.stop();
    let directory = tarn.data().join("t-0");
    let found = dump::problems(&dump::files_of(&directory));
    assert_eq!(found, Vec::<String>::new());
    assert!(dump::files_with(&directory, "log").len() > 5, "the log was rolled");
    assert!(!dump::files_with(&directory, "snapshot").is_empty(), "a roll writes a snapshot");
}

#[test]
fn kafka_dump_log_reads_the_metadata_log() {
    let mut tarn = Tarn::start(&TarnOptions::default());
    create_topic(&tarn, "named.in.the.log", "3");
    tarn.stop();
    let logs = dump::files_with(&tarn.data().join("__cluster_metadata-0"), "log");
    let text = dump::metadata(&logs);
    for record in ["FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"] {
        assert!(text.contains(&format!("\"type\":\"{record}\"")), "no {record} in {text}");
    }
    assert!(text.contains("named.in.the.log"), "{text}");
    assert!(!text.contains("Could not decode"), "{text}");
}

#[test]
fn a_metadata_log_that_was_shortened_is_whole_to_us_and_to_kafka() {
    let property = |key: &str, value: &str| (key.to_string(), value.to_string());
    let properties = vec![
        property("metadata.log.segment.ms", "10"),
        property("metadata.log.max.record.bytes.between.snapshots", "2000"),
        property("metadata.max.retention.bytes", "1"),
    ];
    let mut tarn = Tarn::start(&TarnOptions { properties, ..TarnOptions::default() });
    let topics: Vec<String> = (0..15).map(|number| format!("kept-{number}")).collect();
    topics.iter().for_each(|topic| create_topic(&tarn, topic, "1"));
    tarn.stop();
    let directory = tarn.data().join("__cluster_metadata-0");
    let (logs, snapshots) = (dump::files_with(&directory, "log"), dump::files_with(&directory, "checkpoint"));
    let first = logs.first().and_then(|log| log.file_name()).expect("there is a log");
    assert_ne!(first, "00000000000000000000.log", "its beginning went");
    let text = dump::metadata(&snapshots) + &dump::metadata(&logs);
    assert!(!text.contains("Could not decode"), "{text}");
    topics.iter().for_each(|topic| assert!(text.contains(topic), "{topic}: {text}"));
    let copy = tempfile::tempdir().unwrap();
    let data = copy.path().join("data");
    copy_directory(&tarn.data(), &data);
    let node = KafkaNode::start(&NodeOptions { data: Some(data), ..NodeOptions::default() });
    tarn.start_again();
    for bootstrap in [node.bootstrap(), tarn.bootstrap()] {
        let mut cluster = Cluster::connect(&bootstrap);
        topics.iter().for_each(|topic| assert_eq!(cluster.topic(topic).partitions.len(), 1, "{topic}"));
    }
}

#[test]
fn a_kafka_node_serves_a_copy_of_our_directory() {
    let mut tarn = Tarn::start(&TarnOptions::default());
    create_topic(&tarn, "t", "1");
    produce_with_java(&tarn, "t", "zstd", "from-tarn");
    let id = Cluster::connect(&tarn.bootstrap()).topic("t").id;
    tarn.stop();
    let copy = tempfile::tempdir().unwrap();
    let data = copy.path().join("data");
    copy_directory(&tarn.data(), &data);
    let node = KafkaNode::start(&NodeOptions { data: Some(data), ..NodeOptions::default() });
    assert_eq!(Cluster::connect(&node.bootstrap()).topic("t").id, id);
    let arguments = ["-C", "-b", &node.bootstrap(), "-t", "t", "-p", "0", "-e", "-q", "-K:"];
    assert_eq!(kcat(&arguments, None).ok(), "from-tarn-zstd:1\nfrom-tarn-zstd:2\n");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let tarn = Tarn::unformatted(&TarnOptions::default());
    let config = tarn.config().display().to_string();
    let unformatted = tarn.command(&["server", &config]).failed();
    assert!(unformatted.contains("tarn format"), "{unformatted}");

    tarn.command(&["format", "-t", CLUSTER_ID, "-c", &config]).ok();
    let again = tarn.command(&["format", "-t", CLUSTER_ID, "-c", &config]).failed();
    assert!(again.contains("already formatted"), "{again}");

    let missing = tarn.command(&["server", "/no/such/server.properties"]).failed();
    assert!(missing.contains("/no/such/server.properties"), "{missing}");
    for (key, value) in [
        ("log.segment.bytes", "many"),
        ("num.partitions", "0"),
        ("tarn.cores", "x"),
        ("listener.security.protocol.map", "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT"),
    ] {
        let refused = refused_with(key, value);
        // Of a list, the entry that is wrong.
        let wrong = value.split(',').next().unwrap_or(value);
        assert!(refused.contains(key) && refused.contains(wrong), "{key}={value}: {refused}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let first = Tarn::start(&TarnOptions::default());
    let listener = format!("PLAINTEXT://{}", first.bootstrap());
    let second = Tarn::unformatted(&TarnOptions::default());
    let controller = format!("CONTROLLER://{}", second.controller());
    let text = fs::read_to_string(second.config()).unwrap();
    let text =
        text + &format!("listeners={listener},{controller}\nadvertised.listeners={listener},{controller}\n");
    fs::write(second.config(), text).unwrap();
    let config = second.config().display().to_string();
    second.command(&["format", "-t", CLUSTER_ID, "-c", &config]).ok();
    let refused = second.command(&["server", &config]).failed();
    assert!(refused.contains(&first.bootstrap()) && refused.contains("in use"), "{refused}");
}

#[test]
fn random_uuids_are_kafkas_and_differ() {
    let tarn = Tarn::unformatted(&TarnOptions::default());
    let one = tarn.command(&["random-uuid"]).ok();
    let two = tarn.command(&["random-uuid"]).ok();
    assert_ne!(one, two);
    assert!(one.trim().len() == 22 && !one.starts_with('-'), "{one:?}");
}

fn refused_with(key: &str, value: &str) -> String {
    let tarn = Tarn::formatted(&TarnOptions::default());
    let text = fs::read_to_string(tarn.config()).expect("it was just written") + &format!("{key}={value}\n");
    let config: PathBuf = Path::new(&tarn.config()).to_path_buf();
    fs::write(&config, text).expect("there is room");
    tarn.command(&["server", &config.display().to_string()]).failed()
}

fn create_topic(tarn: &Tarn, name: &str, partitions: &str) {
    let arguments =
        ["--bootstrap-server", &tarn.bootstrap(), "--create", "--topic", name, "--partitions", partitions];
    tool("TopicCommand", &arguments).ok();
}

fn produce_with_java(tarn: &Tarn, topic: &str, codec: &str, who: &str) {
    let lines = format!("{who}-{codec}:1\n{who}-{codec}:2\n");
    let arguments = [
        "--bootstrap-server",
        &tarn.bootstrap(),
        "--topic",
        topic,
        "--compression-codec",
        codec,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
    ];
    tool_with_input("ConsoleProducer", &arguments, Some(lines.as_bytes())).ok();
}

fn consume_with_java(tarn: &Tarn, topic: &str, records: usize) -> Finished {
    let arguments = [
        "--bootstrap-server",
        &tarn.bootstrap(),
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        &records.to_string(),
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "key.separator=:",
    ];
    tool("consumer.ConsoleConsumer", &arguments)
}

fn consume_with_kcat(tarn: &Tarn, topic: &str) -> String {
    kcat(&["-C", "-b", &tarn.bootstrap(), "-t", topic, "-p", "0", "-e", "-q", "-K:"], None).ok()
}
