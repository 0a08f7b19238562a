//! Batches as large as a source can have them.

use std::time::Duration;

use tarn_record::{BatchBuilder, Compression, Offset, Record, Timestamp};
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::kafka::{KafkaNode, NodeOptions};
use tarn_tests::raw::{RawClient, produce_request};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::tool;
use tarn_tests::waiting::until_some;

const COPIED: Duration = Duration::from_secs(90);
/// The largest batch that is taken: `tarn.mirror.batch.max.bytes`.
const LARGEST: usize = 100 * 1024 * 1024;
/// By name of the topic.
const PRODUCE_VERSION: i16 = 9;

#[test]
fn a_batch_of_a_hundred_mebibytes_is_copied_and_a_larger_one_fails_its_partition_alone() {
    let allowed = (LARGEST * 2).to_string();
    let properties = [("message.max.bytes", &allowed), ("socket.request.max.bytes", &allowed)]
        .map(|(key, value)| (key.to_string(), value.clone()));
    let source = KafkaNode::start(&NodeOptions {
        properties: properties.into(),
        heap: Some("768m"),
        ..NodeOptions::default()
    });
    let bootstrap = source.bootstrap();
    for topic in ["large", "larger"] {
        tool("TopicCommand", &["--bootstrap-server", &bootstrap, "--create", "--topic", topic]).ok();
    }
    let mut client = RawClient::connect(&bootstrap);
    for bytes in [1000, LARGEST, 1000, LARGEST / 2, 1000] {
        produce(&mut client, "large", bytes);
    }
    for bytes in [1000, LARGEST + 1] {
        produce(&mut client, "larger", bytes);
    }
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&bootstrap, "m", "large.*");
    let large = |topic: &str| topic == "large";
    await_mirrored(&bootstrap, &tarn.bootstrap(), large, COPIED);
    until_some("the larger one to fail its partition", COPIED, || {
        let described = tarn.describe_mirror("m");
        let one = described.iter().find(|one| one.topic == "larger").ok_or("it is not there")?;
        let has_failed = one.state == "FAILED" && one.reason_code.as_deref() == Some("BATCH_TOO_LARGE");
        if has_failed { Ok(()) } else { Err(format!("{one:?}")) }
    });
    produce(&mut client, "large", 1000);
    await_mirrored(&bootstrap, &tarn.bootstrap(), large, COPIED);
    let compared = assert_identical(&bootstrap, &tarn.bootstrap(), large);
    assert_eq!(compared.batches, 6);
}

/// Appends one batch of exactly this size.
fn produce(client: &mut RawClient, topic: &str, bytes: usize) {
    let now = Timestamp(1_700_000_000_000);
    let batch = |value: usize| {
        let mut batch = BatchBuilder::new(Offset(0), Compression::None).timestamp(now);
        batch.add(&Record { value: Some(&vec![7; value]), timestamp: now, ..Record::default() });
        batch.build()
    };
    let records = batch(bytes - (batch(bytes).len() - bytes));
    assert_eq!(records.len(), bytes);
    let request = produce_request(topic, records);
    let answer = client.call(PRODUCE_VERSION, &request);
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, 0, "{partition:?}");
}
