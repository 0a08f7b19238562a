//! Histories that have parted: what only this cluster has is kept until an operator consents, is exported then, and
//! kafka-dump-log reads the file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::exports::{exported, exports};
use tarn_tests::kafka::{KafkaNode, NodeOptions, ThreeNodes};
use tarn_tests::lines::{lines, numbered, write_lines};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{kcat, tool};
use tarn_tests::waiting::{until, until_some};

const COPIED: Duration = Duration::from_secs(60);
const MOVED: Duration = Duration::from_secs(60);
/// The exit code where something else must be done first.
const PRECONDITION: i32 = 3;

#[test]
fn what_a_source_lost_to_an_unclean_election_is_exported_and_mirroring_goes_on() {
    let mut source = ThreeNodes::start();
    let (all, rest) = (source.bootstrap(), source.nodes[1].bootstrap());
    let unclean = ["--config", "unclean.leader.election.enable=true", "--replica-assignment", "1:2"];
    create(&all, "orders", &unclean);
    create(&all, "calm", &["--replica-assignment", "2:3"]);
    write_lines(&all, "orders", 0, &lines("both", 500));
    write_lines(&all, "calm", 0, &lines("calm", 10));
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&all, "m", "orders,calm");
    let wanted = |topic: &str| topic == "orders" || topic == "calm";
    await_mirrored(&all, &tarn.bootstrap(), wanted, COPIED);

    // Only the leader has what is written now, and its mirror.
    source.nodes[1].stop();
    let others = format!("{},{}", source.nodes[0].bootstrap(), source.nodes[2].bootstrap());
    write_lines(&others, "orders", 0, &lines("lost", 300));
    until("a copy of what is only there", COPIED, || tarn.high_watermark("orders") == 800);
    source.nodes[0].kill();
    source.nodes[1].start_again();
    until_some("a leader that was not in sync", MOVED, || {
        match Cluster::connect(&rest).topic("orders").partitions[0].leader {
            2 => Ok(()),
            other => Err(format!("node {other} leads")),
        }
    });
    write_lines(&rest, "orders", 0, &lines("other", 400));

    let failed = tarn.await_failed("m", "orders", "SOURCE_TRUNCATED");
    assert!(failed.contains("offsets 500 to 799 (300 records)"), "{failed}");
    assert_eq!(tarn.high_watermark("orders"), 800, "nothing is dropped");
    assert_eq!(exports_of(&tarn, "orders"), Vec::<PathBuf>::new());
    write_lines(&rest, "calm", 0, &lines("calm still", 10));
    await_mirrored(&rest, &tarn.bootstrap(), |topic| topic == "calm", COPIED);

    tarn.mirror("recover", &["--mirror", "m", "--topics", "orders", "--allow-truncation"]).ok();
    await_mirrored(&rest, &tarn.bootstrap(), wanted, COPIED);
    assert_eq!(assert_identical(&rest, &tarn.bootstrap(), wanted).records, 920);
    let exports = exports_of(&tarn, "orders");
    assert_eq!(exports.len(), 1);
    assert_eq!(exported(&exports[0]), numbered(500, &lines("lost", 300)));
    let notice = tarn.await_mirroring("m", "orders");
    let said = notice.error_message.unwrap_or_default();
    let directory = exports[0].display().to_string();
    assert!(said.contains(&directory), "{said} does not name {directory}");
    let log = tarn.output();
    assert!(
        log.contains("what the source has not is exported, and is cut now") && log.contains(&directory),
        "{log}"
    );
}

#[test]
fn a_promoted_topic_is_begun_again_with_consent_to_drop_what_was_written_to_it() {
    let source = KafkaNode::start(&NodeOptions::default());
    for topic in ["orders", "quiet"] {
        create(&source.bootstrap(), topic, &["--partitions", "1"]);
        write_lines(&source.bootstrap(), topic, 0, &lines("there", 100));
    }
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "orders,quiet");
    let wanted = |topic: &str| topic == "orders" || topic == "quiet";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "orders,quiet"]).ok();
    write_lines(&tarn.bootstrap(), "orders", 0, &lines("here", 5));
    // The reset record is at 100.
    assert_eq!(tarn.high_watermark("orders"), 106);
    write_lines(&source.bootstrap(), "orders", 0, &lines("later", 20));

    let refused =
        tarn.mirror("start", &["--mirror", "m", "--topics", "orders,quiet"]).failed_with(PRECONDITION);
    for text in ["orders: ", "LOCAL_RECORDS", "offsets 100 to 105 (5 records)", "--allow-truncation"] {
        assert!(refused.contains(text), "no {text:?} in {refused}");
    }
    assert!(!refused.contains("quiet: "), "{refused}");
    assert_eq!(tarn.high_watermark("orders"), 106, "it is an ordinary topic as before");
    write_lines(&tarn.bootstrap(), "orders", 0, &lines("more", 1));
    // Nobody wrote to the other one: what ended its log is dropped unasked.
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "quiet", COPIED);
    assert_eq!(tarn.await_mirroring("m", "quiet").error_message, None);

    let wait = ["--allow-truncation", "--wait", "--timeout", "50"];
    tarn.mirror("start", &[&["--mirror", "m", "--topics", "orders"][..], &wait].concat()).ok();
    assert_eq!(assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted).records, 220);
    let here = [lines("here", 5), lines("more", 1)].concat();
    assert_eq!(exported(&exports_of(&tarn, "orders")[0]), numbered(101, &here));
    assert_eq!(exports_of(&tarn, "quiet"), Vec::<PathBuf>::new());
    let notice = tarn.await_mirroring("m", "orders");
    assert!(notice.error_message.is_some_and(|said| said.contains("(6 records)")));
    write_lines(&source.bootstrap(), "orders", 0, &lines("last", 3));
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
}

#[test]
fn a_compacted_topic_is_mirrored_again_whole_and_no_key_is_lost() {
    let source = KafkaNode::start(&NodeOptions::default());
    create(&source.bootstrap(), "keyed", &["--partitions", "1", "--config", "cleanup.policy=compact"]);
    let there = keyed(0..50, "there");
    write_keyed(&source.bootstrap(), "keyed", &there);
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "keyed");
    let wanted = |topic: &str| topic == "keyed";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "keyed"]).ok();
    let here = keyed(40..60, "here");
    write_keyed(&tarn.bootstrap(), "keyed", &here);
    let allowed = ["--mirror", "m", "--topics", "keyed", "--allow-truncation"];
    let dry = tarn.mirror("start", &[&allowed[..], &["--dry-run", "--json"]].concat()).ok();
    let dry: Value = serde_json::from_str(&dry).unwrap_or_else(|error| panic!("{error} in {dry}"));
    let told = &dry["truncations"][0];
    // The reset record is at 50.
    assert_eq!((&told["from"], &told["to"], told.get("records")), (&json!(0), &json!(71), None), "{told}");
    tarn.mirror("start", &allowed).ok();
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
    let exports = exports_of(&tarn, "keyed");
    let exported: Vec<String> = exported(&exports[0]).into_iter().map(|(_, value)| value).collect();
    let there = (0..50).map(|key| format!("there {key}"));
    let values: Vec<String> = there.chain((40..60).map(|key| format!("here {key}"))).collect();
    assert_eq!(exported, values, "all of the log is in the files");
    assert!(tarn.output().contains("all of the log is exported, dropped now and mirrored again"));
}

/// The source's cleaner has been where both logs had the same.
#[test]
fn what_the_source_compacted_meanwhile_is_mirrored_again_whole_and_no_key_is_lost() {
    let properties = vec![("log.cleaner.backoff.ms".to_string(), "100".to_string())];
    let source = KafkaNode::start(&NodeOptions { properties, ..NodeOptions::default() });
    let compacting =
        ["--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01", "--config"];
    let from_later_on = [&compacting[..], &["min.compaction.lag.ms=600000", "--partitions", "1"]].concat();
    create(&source.bootstrap(), "keyed", &from_later_on);
    for text in ["old", "there"] {
        write_keyed(&source.bootstrap(), "keyed", &keyed(0..50, text));
    }
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "keyed");
    let wanted = |topic: &str| topic == "keyed";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "keyed"]).ok();
    write_keyed(&tarn.bootstrap(), "keyed", &keyed(40..60, "here"));

    let alter = |configs: &str| {
        let of =
            ["--bootstrap-server", &source.bootstrap(), "--entity-type", "topics", "--entity-name", "keyed"];
        tool("ConfigCommand", &[&of[..], &["--alter", "--add-config", configs]].concat()).ok();
    };
    alter("min.compaction.lag.ms=0,segment.ms=100");
    until("the source's cleaner", COPIED, || {
        // Only what is in a closed segment is cleaned, and an append closes one.
        write_keyed(&source.bootstrap(), "keyed", &keyed(20..30, "later"));
        !read(&source.bootstrap(), "keyed").iter().any(|line| line.contains(":old "))
    });
    alter("min.compaction.lag.ms=600000");

    let refused = tarn.mirror("start", &["--mirror", "m", "--topics", "keyed"]).failed_with(PRECONDITION);
    assert!(refused.contains("LOCAL_RECORDS"), "{refused}");
    tarn.mirror("start", &["--mirror", "m", "--topics", "keyed", "--allow-truncation"]).ok();
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
    let newest = |lines: Vec<String>| -> BTreeMap<String, String> {
        lines.iter().filter_map(|line| line.split_once(':')).map(|(k, v)| (k.into(), v.into())).collect()
    };
    let mirrored = newest(read(&tarn.bootstrap(), "keyed"));
    assert_eq!(mirrored, newest(read(&source.bootstrap(), "keyed")));
    assert_eq!(mirrored.len(), 50, "every key that the source has");
    let exported: Vec<String> =
        exported(&exports_of(&tarn, "keyed")[0]).into_iter().map(|(_, value)| value).collect();
    let values = |text: &str, keys: std::ops::Range<usize>| keys.map(|key| format!("{text} {key}")).collect();
    let all: Vec<Vec<String>> = vec![values("old", 0..50), values("there", 0..50), values("here", 40..60)];
    assert_eq!(exported, all.concat(), "whatever this log held is in the files");
}

/// What a consumer reads of partition 0, each record as `key:value`.
fn read(bootstrap: &str, topic: &str) -> Vec<String> {
    let whole =
        ["-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k:%s\\n"];
    kcat(&whole, None).ok().lines().map(str::to_owned).collect()
}

fn create(bootstrap: &str, topic: &str, more: &[&str]) {
    let arguments = ["--bootstrap-server", bootstrap, "--create", "--topic", topic];
    tool("TopicCommand", &[&arguments[..], more].concat()).ok();
}

fn keyed(keys: std::ops::Range<usize>, text: &str) -> Vec<String> {
    keys.map(|key| format!("{key}:{text} {key}")).collect()
}

fn write_keyed(bootstrap: &str, topic: &str, lines: &[String]) {
    let arguments = ["-P", "-b", bootstrap, "-t", topic, "-p", "0", "-K:"];
    kcat(&arguments, Some((lines.join("\n") + "\n").as_bytes())).ok();
}

/// The exports of partition 0 of a topic.
fn exports_of(tarn: &Tarn, topic: &str) -> Vec<PathBuf> {
    exports(&tarn.data().join("mirror-exports"), topic, 0)
}
