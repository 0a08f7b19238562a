//! What is here already when a mirror begins: an empty topic is taken over, records are never, and nothing is
//! mirrored back to where it came from.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::tool;

const COPIED: Duration = Duration::from_secs(60);
const OTHER_CLUSTER: &str = "QW5vdGhlclRhcm5DbHVzdA";

/// Two clusters with the topics `filled`, which has records, and `empty`, under the same ids; and `named`,
/// under ids of their own.
fn two_clusters() -> (Tarn, Tarn) {
    let mut source = Tarn::start(&TarnOptions::default());
    source.create_topic("filled", 2);
    source.create_topic("empty", 1);
    generate(&source, "filled", "20");
    source.stop();
    let mut here = source.copied_as(OTHER_CLUSTER);
    source.start_again();
    here.start_again();
    source.create_topic("named", 1);
    here.create_topic("named", 1);
    (source, here)
}

/// The exit code where something else must be done first.
const PRECONDITION: i32 = 3;

#[test]
fn a_topic_with_records_of_its_own_is_refused_and_left_as_it_is() {
    let (source, here) = two_clusters();
    generate(&here, "filled", "5");
    let before = records(&here, "filled");
    here.create_mirror("m", &[("bootstrap.servers", &source.bootstrap())]).ok();
    let said = here.mirror("start", &["--mirror", "m", "--topics", "filled"]).failed_with(PRECONDITION);
    for text in ["LOCAL_RECORDS", "filled", "offsets 0 to ", "1 more partition"] {
        assert!(said.contains(text), "no {text:?} in {said}");
    }
    assert_eq!(here.describe_mirror("m"), []);
    assert_eq!(records(&here, "filled"), before);
    // It is no mirror topic, so its clients go on.
    generate(&here, "filled", "1");
    assert_eq!(records(&here, "filled"), before + 1);
}

#[test]
fn a_topic_of_which_nothing_could_be_mirrored_is_given_back_as_it_was() {
    let (source, here) = two_clusters();
    generate(&here, "filled", "5");
    let before = records(&here, "filled");
    // What is there cannot be exported, so nothing of it is dropped.
    fs::write(here.data().join("mirror-exports"), "").expect("there is room");
    here.create_mirror("m", &[("bootstrap.servers", &source.bootstrap())]).ok();
    let filled = ["--mirror", "m", "--topics", "filled"];
    here.mirror("start", &[&filled[..], &["--allow-truncation"]].concat()).ok();
    here.await_failed("m", "filled", "DESTINATION_STORAGE");
    let stopped = here.mirror("stop", &[&filled[..], &["--json"]].concat()).ok();
    let stopped: Value =
        serde_json::from_str(&stopped).unwrap_or_else(|error| panic!("{error} in {stopped}"));
    let partitions = stopped["partitions"].as_array().expect("it has reports");
    assert_eq!(partitions.len(), 2);
    for partition in partitions {
        assert_eq!((&partition["mirroredOffset"], partition.get("resetOffset")), (&json!(0), None));
    }
    assert_eq!(records(&here, "filled"), before, "nothing is dropped, and nothing appended");
    generate(&here, "filled", "1");
    let refused = here.mirror("start", &filled).failed_with(PRECONDITION);
    assert!(refused.contains("LOCAL_RECORDS") && refused.contains("offsets 0 to "), "{refused}");
    assert_eq!(records(&here, "filled"), before + 1);
}

#[test]
fn a_topic_with_more_partitions_than_the_source_has_is_refused_for_that() {
    let (source, here) = two_clusters();
    here.create_mirror("m", &[("bootstrap.servers", &source.bootstrap())]).ok();
    let grow = ["--bootstrap-server", &here.bootstrap(), "--alter", "--topic", "filled", "--partitions", "4"];
    tool("TopicCommand", &grow).ok();
    let before = records(&here, "filled");
    // Consent to drop records does not help, so it is not advised.
    for consent in [&[][..], &["--allow-truncation"]] {
        let start = [&["--mirror", "m", "--topics", "filled"][..], consent].concat();
        let refused = here.mirror("start", &start).failed_with(PRECONDITION);
        assert!(refused.contains("4 partitions here and 2 at the source"), "{refused}");
        assert!(!refused.contains("LOCAL_RECORDS"), "{refused}");
    }
    assert_eq!(records(&here, "filled"), before);
}

#[test]
fn a_topic_of_another_id_is_refused_and_the_others_of_the_request_start() {
    let (source, here) = two_clusters();
    here.create_mirror("m", &[("bootstrap.servers", &source.bootstrap())]).ok();
    let said =
        here.mirror("start", &["--mirror", "m", "--topics", "named,empty,filled"]).failed_with(PRECONDITION);
    assert!(said.contains("named: ") && said.contains("TOPIC_ID_CONFLICT"), "{said}");
    assert!(said.contains("filled: ") && said.contains("LOCAL_RECORDS"), "{said}");
    let bound: Vec<String> = here.describe_mirror("m").into_iter().map(|one| one.topic).collect();
    assert_eq!(bound, ["empty"]);
    generate(&source, "empty", "7");
    let wanted = |topic: &str| topic == "empty";
    await_mirrored(&source.bootstrap(), &here.bootstrap(), wanted, COPIED);
    assert_eq!(assert_identical(&source.bootstrap(), &here.bootstrap(), wanted).records, 7);
}

#[test]
fn a_topic_that_is_mirrored_from_here_is_not_mirrored_back() {
    let (source, here) = two_clusters();
    here.mirror_from(&source.bootstrap(), "m", "empty");
    source.create_mirror("back", &[("bootstrap.servers", &here.bootstrap())]).ok();
    let said = source.mirror("start", &["--mirror", "back", "--topics", "empty"]).failed_with(PRECONDITION);
    for text in ["MIRROR_LOOP", "empty", "mirror m"] {
        assert!(said.contains(text), "no {text:?} in {said}");
    }
    assert_eq!(source.describe_mirror("back"), []);
}

fn generate(tarn: &Tarn, topic: &str, records: &str) {
    let bootstrap = tarn.bootstrap();
    let arguments = ["produce", "--bootstrap-server", &bootstrap, "--topic", topic, "--count", records];
    tarn.command(&arguments).ok();
}

fn records(tarn: &Tarn, topic: &str) -> i64 {
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let topic = cluster.topic(topic);
    topic.partitions.iter().map(|partition| cluster.offsets(&topic, partition).high_watermark).sum()
}
