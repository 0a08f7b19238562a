//! Apache Kafka's directory under Tarn and Tarn's under Apache Kafka, after a stop in order and after SIGKILL: whoever
//! starts on a copy serves every record, at the same offsets and in the same batches.

use std::path::Path;
use std::time::Duration;

use tarn_tests::cluster::Cluster;
use tarn_tests::compare::assert_identical;
use tarn_tests::dataset::{RECORDS, copy_into};
use tarn_tests::dump;
use tarn_tests::kafka::{KafkaNode, NodeOptions, copy_directory};
use tarn_tests::lines::lines;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::kcat;
use tarn_tests::waiting::until_some;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(30);
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
/// Topics of the data set that take more records.
const WRITTEN_TO: [&str; 2] = ["codec.none", "producers.interleaved"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stopped,
    Killed,
}

#[test]
fn each_serves_what_the_other_has_left_after_a_stop() {
    each_serves_what_the_other_has_left(End::Stopped);
}

#[test]
fn each_serves_what_the_other_has_left_after_a_kill() {
    each_serves_what_the_other_has_left(End::Killed);
}

fn each_serves_what_the_other_has_left(end: End) {
    let files = TempDir::with_prefix("tarn-interchange-").expect("the temporary directory is writable");
    let of_kafka = files.path().join("kafka");
    copy_into(&of_kafka);
    let kafka_on = |data: &Path| NodeOptions { data: Some(data.to_owned()), ..NodeOptions::default() };
    let mut kafka = KafkaNode::start(&kafka_on(&of_kafka));
    write(&kafka.bootstrap(), "by Kafka");
    match end {
        End::Stopped => kafka.stop(),
        End::Killed => kafka.kill(),
    }
    let mut tarn = Tarn::unformatted(&TarnOptions::default());
    copy_directory(&of_kafka, &tarn.data());
    tarn.start_again();
    kafka.start_again();
    assert_all_is_there(&kafka, &tarn);

    drop(kafka);
    write(&tarn.bootstrap(), "by Tarn");
    match end {
        End::Stopped => tarn.stop(),
        End::Killed => tarn.kill(),
    }
    let of_tarn = files.path().join("tarn");
    copy_directory(&tarn.data(), &of_tarn);
    for topic in WRITTEN_TO {
        let partition = of_tarn.join(format!("{topic}-0"));
        assert_eq!(dump::problems(&dump::files_of(&partition)), Vec::<String>::new(), "{topic}");
    }
    let kafka = KafkaNode::start(&kafka_on(&of_tarn));
    tarn.start_again();
    assert_all_is_there(&kafka, &tarn);
    assert!(read(&kafka, WRITTEN_TO[0]).contains("by Tarn, zstd 9"));
}

/// Some records in each codec.
fn write(bootstrap: &str, who: &str) {
    for topic in WRITTEN_TO {
        for codec in CODECS {
            let text = lines(&format!("{who}, {codec}"), 10).join("\n") + "\n";
            let arguments = ["-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec];
            kcat(&arguments, Some(text.as_bytes())).ok();
        }
    }
}

fn read(kafka: &KafkaNode, topic: &str) -> String {
    kcat(&["-C", "-b", &kafka.bootstrap(), "-t", topic, "-p", "0", "-e", "-q"], None).ok()
}

fn assert_all_is_there(kafka: &KafkaNode, tarn: &Tarn) {
    // A node says that it leads before it does.
    until_some("Kafka to lead", LIMIT, || {
        let mut cluster = Cluster::try_connect(&kafka.bootstrap())?;
        let topics = cluster.try_topics()?;
        let mut partitions =
            topics.iter().flat_map(|topic| topic.partitions.iter().map(move |one| (topic, one)));
        partitions.try_for_each(|(topic, one)| cluster.try_offsets(topic, one).map(drop))
    });
    let compared = assert_identical(&kafka.bootstrap(), &tarn.bootstrap(), |topic| !topic.starts_with("__"));
    assert!(compared.records > RECORDS && compared.partitions > 20, "{compared:?}");
}
