//! Histories that have parted: what only this cluster has is kept until an operator consents, is exported then, and
//! kafka-dump-log reads the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_tests::cluster::Cluster;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::dump::{files_with, problems, records};
use tarn_tests::kafka::{KafkaNode, NodeOptions, ThreeNodes};
use tarn_tests::tarn::{MirrorPartition, Tarn, TarnOptions};
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
    write(&all, "orders", &lines("both", 500));
    write(&all, "calm", &lines("calm", 10));
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&all, "m", "orders,calm");
    let wanted = |topic: &str| topic == "orders" || topic == "calm";
    await_mirrored(&all, &tarn.bootstrap(), wanted, COPIED);

    // Only the leader has what is written now, and its mirror.
    source.nodes[1].stop();
    let others = format!("{},{}", source.nodes[0].bootstrap(), source.nodes[2].bootstrap());
    write(&others, "orders", &lines("lost", 300));
    until("a copy of what is only there", COPIED, || end(&tarn, "orders") == 800);
    source.nodes[0].kill();
    source.nodes[1].start_again();
    until_some("a leader that was not in sync", MOVED, || {
        match Cluster::connect(&rest).topic("orders").partitions[0].leader {
            2 => Ok(()),
            other => Err(format!("node {other} leads")),
        }
    });
    write(&rest, "orders", &lines("other", 400));

    let failed = await_failed(&tarn, "orders", "SOURCE_TRUNCATED");
    assert!(failed.contains("offsets 500 to 799 (300 records)"), "{failed}");
    assert_eq!(end(&tarn, "orders"), 800, "nothing is dropped");
    assert_eq!(exports(&tarn, "orders"), Vec::<PathBuf>::new());
    write(&rest, "calm", &lines("calm still", 10));
    await_mirrored(&rest, &tarn.bootstrap(), |topic| topic == "calm", COPIED);

    tarn.mirror("recover", &["--mirror", "m", "--topics", "orders", "--allow-truncation"]).ok();
    await_mirrored(&rest, &tarn.bootstrap(), wanted, COPIED);
    assert_eq!(assert_identical(&rest, &tarn.bootstrap(), wanted).records, 920);
    let exported = exports(&tarn, "orders");
    assert_eq!(problems(&exported), Vec::<String>::new());
    assert_eq!(read(&exported), numbered(500, &lines("lost", 300)));
    let notice = await_mirroring(&tarn, "orders");
    let said = notice.error_message.unwrap_or_default();
    let directory = exported[0].parent().expect("it is in one").display().to_string();
    assert!(said.contains(&directory), "{said} does not name {directory}");
    let log = tarn.output();
    assert!(
        log.contains("what the source has not was exported and cut") && log.contains(&directory),
        "{log}"
    );
}

#[test]
fn a_promoted_topic_is_begun_again_with_consent_to_drop_what_was_written_to_it() {
    let source = KafkaNode::start(&NodeOptions::default());
    for topic in ["orders", "quiet"] {
        create(&source.bootstrap(), topic, &["--partitions", "1"]);
        write(&source.bootstrap(), topic, &lines("there", 100));
    }
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "orders,quiet");
    let wanted = |topic: &str| topic == "orders" || topic == "quiet";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "orders,quiet"]).ok();
    write(&tarn.bootstrap(), "orders", &lines("here", 5));
    // The reset record is at 100.
    assert_eq!(end(&tarn, "orders"), 106);
    write(&source.bootstrap(), "orders", &lines("later", 20));

    let refused =
        tarn.mirror("start", &["--mirror", "m", "--topics", "orders,quiet"]).failed_with(PRECONDITION);
    for text in ["orders: ", "LOCAL_RECORDS", "offsets 100 to 105 (5 records)", "--allow-truncation"] {
        assert!(refused.contains(text), "no {text:?} in {refused}");
    }
    assert!(!refused.contains("quiet: "), "{refused}");
    assert_eq!(end(&tarn, "orders"), 106, "it is an ordinary topic as before");
    write(&tarn.bootstrap(), "orders", &lines("more", 1));
    // Nobody wrote to the other one: what ended its log is dropped unasked.
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "quiet", COPIED);
    assert_eq!(await_mirroring(&tarn, "quiet").error_message, None);

    let wait = ["--allow-truncation", "--wait", "--timeout", "50"];
    tarn.mirror("start", &[&["--mirror", "m", "--topics", "orders"][..], &wait].concat()).ok();
    assert_eq!(assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted).records, 220);
    let here = [lines("here", 5), lines("more", 1)].concat();
    assert_eq!(read(&exports(&tarn, "orders")), numbered(101, &here));
    assert_eq!(exports(&tarn, "quiet"), Vec::<PathBuf>::new());
    let notice = await_mirroring(&tarn, "orders");
    assert!(notice.error_message.is_some_and(|said| said.contains("(6 records)")));
    write(&source.bootstrap(), "orders", &lines("last", 3));
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
}

#[test]
#[ignore = "the test above begins a promoted topic again too"]
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
    tarn.mirror("start", &["--mirror", "m", "--topics", "keyed", "--allow-truncation"]).ok();
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
    let exported: Vec<String> = read(&exports(&tarn, "keyed")).into_iter().map(|(_, value)| value).collect();
    let values: Vec<String> = (40..60).map(|key| format!("here {key}")).collect();
    assert_eq!(exported, values, "each key that was written here is in the files");
    assert!(tarn.output().contains("all of the log is dropped and mirrored again"));
}

#[test]
#[ignore = "its parts are tested without a source"]
fn where_nothing_can_be_exported_nothing_is_cut_until_it_can() {
    let source = KafkaNode::start(&NodeOptions::default());
    create(&source.bootstrap(), "orders", &["--partitions", "1"]);
    write(&source.bootstrap(), "orders", &lines("there", 10));
    let directory = tempfile::tempdir().expect("there is room");
    let exports_at = directory.path().join("exports");
    let properties = vec![("tarn.mirror.export.dir".to_string(), exports_at.display().to_string())];
    let tarn = Tarn::start(&TarnOptions { properties, ..TarnOptions::default() });
    tarn.mirror_from(&source.bootstrap(), "m", "orders");
    let wanted = |topic: &str| topic == "orders";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "orders"]).ok();
    write(&tarn.bootstrap(), "orders", &lines("here", 5));
    // No directory can be made where a file is, whoever asks.
    fs::remove_dir_all(&exports_at).ok();
    fs::write(&exports_at, "").expect("there is room");
    tarn.mirror("start", &["--mirror", "m", "--topics", "orders", "--allow-truncation"]).ok();
    let said = await_failed(&tarn, "orders", "DESTINATION_STORAGE");
    assert!(said.contains("cannot be exported"), "{said}");
    assert_eq!(end(&tarn, "orders"), 16, "nothing is cut");
    fs::remove_file(&exports_at).expect("it is ours");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    await_mirroring(&tarn, "orders");
    assert_eq!(read(&exports_of(&exports_at, "orders")), numbered(11, &lines("here", 5)));
}

fn create(bootstrap: &str, topic: &str, more: &[&str]) {
    let arguments = ["--bootstrap-server", bootstrap, "--create", "--topic", topic];
    tool("TopicCommand", &[&arguments[..], more].concat()).ok();
}

fn lines(text: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{text} {index}")).collect()
}

fn write(bootstrap: &str, topic: &str, lines: &[String]) {
    kcat(&["-P", "-b", bootstrap, "-t", topic, "-p", "0"], Some((lines.join("\n") + "\n").as_bytes())).ok();
}

fn keyed(keys: std::ops::Range<usize>, text: &str) -> Vec<String> {
    keys.map(|key| format!("{key}:{text} {key}")).collect()
}

fn write_keyed(bootstrap: &str, topic: &str, lines: &[String]) {
    let arguments = ["-P", "-b", bootstrap, "-t", topic, "-p", "0", "-K:"];
    kcat(&arguments, Some((lines.join("\n") + "\n").as_bytes())).ok();
}

/// The high watermark of partition 0.
fn end(tarn: &Tarn, topic: &str) -> i64 {
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let topic = cluster.topic(topic);
    cluster.offsets(&topic, &topic.partitions[0]).high_watermark
}

/// Waits until a topic is FAILED with this reason, and returns what is said of it.
fn await_failed(tarn: &Tarn, topic: &str, reason: &str) -> String {
    until_some(&format!("{topic} to be FAILED with {reason}"), COPIED, || {
        let shown = shown(tarn, topic);
        match shown.state == "FAILED" && shown.reason_code.as_deref() == Some(reason) {
            true => Ok(shown.error_message.unwrap_or_default()),
            false => Err(format!("{shown:?}")),
        }
    })
}

fn await_mirroring(tarn: &Tarn, topic: &str) -> MirrorPartition {
    until_some(&format!("{topic} to be MIRRORING"), COPIED, || {
        let shown = shown(tarn, topic);
        if shown.state == "MIRRORING" { Ok(shown) } else { Err(format!("{shown:?}")) }
    })
}

fn shown(tarn: &Tarn, topic: &str) -> MirrorPartition {
    let all = tarn.describe_mirror("m");
    all.into_iter().find(|one| one.topic == topic).expect("it is bound")
}

/// The files that hold what was dropped of partition 0 of a topic.
fn exports(tarn: &Tarn, topic: &str) -> Vec<PathBuf> {
    exports_of(&tarn.data().join("mirror-exports"), topic)
}

fn exports_of(directory: &Path, topic: &str) -> Vec<PathBuf> {
    let Ok(exports) = fs::read_dir(directory.join(format!("{topic}-0"))) else { return Vec::new() };
    let mut exports: Vec<PathBuf> = exports.flatten().map(|entry| entry.path()).collect();
    exports.sort();
    exports.iter().flat_map(|export| files_with(export, "log")).collect()
}

/// The records of such files, as kafka-dump-log prints them: offsets and values. Control records are left out.
fn read(files: &[PathBuf]) -> Vec<(i64, String)> {
    let record = |line: &str| {
        let rest = line.trim_start().strip_prefix("| offset: ")?;
        let offset = rest.split(' ').next()?.parse().ok()?;
        Some((offset, rest.split_once("payload: ")?.1.to_owned()))
    };
    records(files).lines().filter_map(record).collect()
}

fn numbered(first: i64, lines: &[String]) -> Vec<(i64, String)> {
    (first..).zip(lines.iter().cloned()).collect()
}
