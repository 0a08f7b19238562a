//! What is deleted from the beginning of a log: at the same offset as in Apache Kafka, and for good.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tarn_record::{BatchBuilder, Compression, Offset, Record, Timestamp};
use tarn_tests::cluster::Cluster;
use tarn_tests::kafka::{KafkaNode, NodeOptions, copy_directory};
use tarn_tests::raw::{RawClient, produce_request};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::tool;
use tarn_tests::waiting::until_some;
use tarn_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tarn_wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tarn_wire::messages::{CreateTopicsRequest, IncrementalAlterConfigsRequest};

use crate::side_by_side::SideBySide;

const LIMIT: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Looked at often, and soon after the start.
const OFTEN: &[(&str, &str)] =
    &[("log.retention.check.interval.ms", "200"), ("log.initial.task.delay.ms", "200")];

#[test]
fn retention_lets_go_what_it_lets_go_in_kafka() {
    let both = SideBySide::start_each_with(OFTEN, &OFTEN[..1]);
    // A batch has one record of 300 kB: three fit into a segment.
    let cases: &[(&str, &[&str], i64)] = &[
        ("size", &["retention.bytes=1500000", "retention.ms=-1"], 3),
        ("nothing.stays", &["retention.bytes=0", "retention.ms=-1"], 10),
        ("age", &["retention.ms=1800000"], 6),
        ("size.and.age", &["retention.ms=1800000", "retention.bytes=700000"], 6),
        ("all.is.old", &["retention.ms=1"], 10),
        ("compacted.too", &["retention.ms=1800000", "cleanup.policy=compact,delete"], 6),
        ("for.ever", &["retention.ms=1", "cleanup.policy="], 0),
    ];
    for (topic, configs, _) in cases {
        // Retention begins when all is written: before, it would end a segment whenever all of it is old.
        let (later, at_once): (Vec<&str>, Vec<&str>) =
            configs.iter().partition(|config| config.starts_with("retention."));
        for bootstrap in [both.kafka.bootstrap(), both.tarn.bootstrap()] {
            let mut client = RawClient::connect(&bootstrap);
            create(
                &mut client,
                topic,
                &[&at_once[..], &["segment.bytes=1048576", "retention.ms=-1"]].concat(),
            );
            // The first six are an hour old.
            for number in 0..10 {
                produce(&mut client, topic, number, if number < 6 { HOUR } else { Duration::ZERO });
            }
            alter(&mut client, topic, &later);
        }
    }
    for (topic, _, start) in cases {
        for bootstrap in [both.kafka.bootstrap(), both.tarn.bootstrap()] {
            until_some(&format!("{topic} to start at {start}"), LIMIT, || {
                let found = starts(&bootstrap, topic);
                if found == (*start, 10) { Ok(()) } else { Err(format!("{found:?} at {bootstrap}")) }
            });
        }
    }
}

#[test]
fn what_was_deleted_stays_deleted_whatever_ends_the_node_and_whoever_starts_on_its_files() {
    let mut tarn = Tarn::start(&TarnOptions::default());
    tarn.create_topic("t", 1);
    let mut client = RawClient::connect(&tarn.bootstrap());
    (0..8).for_each(|number| produce(&mut client, "t", number, Duration::ZERO));
    for (offset, ends) in [(2, "kill"), (5, "stop"), (7, "kill")] {
        assert_eq!(delete_records(&tarn, offset), format!("partition: t-0\tlow_watermark: {offset}"));
        if ends == "kill" {
            tarn.kill()
        } else {
            tarn.stop()
        }
        tarn.start_again();
        assert_eq!(starts(&tarn.bootstrap(), "t"), (offset, 8), "after a {ends}");
    }
    tarn.kill();
    let copy = tempfile::tempdir().expect("a directory");
    let data = copy.path().join("data");
    copy_directory(&tarn.data(), &data);
    let kafka = KafkaNode::start(&NodeOptions { data: Some(data), ..NodeOptions::default() });
    assert_eq!(starts(&kafka.bootstrap(), "t"), (7, 8));
}

/// Makes a topic of one partition. Kafka's own tool does not take a config without a value.
pub(crate) fn create(client: &mut RawClient, topic: &str, configs: &[&str]) {
    let configs = configs.iter().filter_map(|config| config.split_once('='));
    let configs =
        configs.map(|(name, value)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) });
    let topic = CreatableTopic {
        name: topic.into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let made = client.call(7, &request);
    assert_eq!(made.topics[0].error_code, 0, "{:?}", made.topics[0].error_message);
}

/// Sets configs of a topic.
fn alter(client: &mut RawClient, topic: &str, configs: &[&str]) {
    let configs = configs.iter().filter_map(|config| config.split_once('='));
    let configs = configs.map(|(name, value)| AlterableConfig {
        name: name.into(),
        config_operation: 0,
        value: Some(value.into()),
        ..Default::default()
    });
    let resource = AlterConfigsResource {
        resource_type: 2,
        resource_name: topic.into(),
        configs: configs.collect(),
        ..Default::default()
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let altered = client.call(1, &request);
    assert_eq!(altered.responses[0].error_code, 0, "{:?}", altered.responses[0].error_message);
}

/// Where the one partition of a topic starts and ends.
fn starts(bootstrap: &str, topic: &str) -> (i64, i64) {
    let mut cluster = Cluster::connect(bootstrap);
    let topic = cluster.topic(topic);
    let offsets = cluster.offsets(&topic, &topic.partitions[0]);
    (offsets.start, offsets.high_watermark)
}

/// Writes one record, which its number is the key of.
fn produce(client: &mut RawClient, topic: &str, number: i64, age: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    let timestamp = Timestamp((now - age).as_millis() as i64);
    let mut batch = BatchBuilder::new(Offset(0), Compression::None).timestamp(timestamp);
    let (key, value) = (number.to_string(), vec![7; 300_000]);
    batch.add(&Record { key: Some(key.as_bytes()), value: Some(&value), timestamp, ..Record::default() });
    let request = produce_request(topic, batch.build());
    until_some("a record to be written", LIMIT, || {
        let answer = client.call(9, &request);
        match answer.responses[0].partition_responses[0].error_code {
            0 => Ok(()),
            error => Err(format!("error {error}")),
        }
    });
}

/// What kafka-delete-records says of partition 0 of `t`.
fn delete_records(tarn: &Tarn, offset: i64) -> String {
    let file = tempfile::NamedTempFile::new().expect("there is room");
    write_offsets(file.path(), &[("t", offset)]);
    let file = file.path().display().to_string();
    let said =
        tool("DeleteRecordsCommand", &["--bootstrap-server", &tarn.bootstrap(), "--offset-json-file", &file])
            .ok();
    said.lines().find(|line| line.starts_with("partition: ")).unwrap_or(&said).to_owned()
}

/// The file that kafka-delete-records reads: partition 0 of topics, and up to where each is deleted.
pub(crate) fn write_offsets(path: &Path, offsets: &[(&str, i64)]) {
    let partitions: Vec<String> = offsets
        .iter()
        .map(|(topic, offset)| format!(r#"{{"topic":"{topic}","partition":0,"offset":{offset}}}"#))
        .collect();
    let text = format!(r#"{{"partitions":[{}],"version":1}}"#, partitions.join(","));
    fs::write(path, text).expect("there is room");
}
