//! What an operator is told before and after a command: what it would drop, what it came to, and that it did nothing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::exports::{exported, exports};
use tarn_tests::kafka::copy_directory;
use tarn_tests::lines::{lines, numbered, write_lines};
use tarn_tests::process::Finished;
use tarn_tests::tarn::{Tarn, TarnOptions};

const COPIED: Duration = Duration::from_secs(60);
/// Records that a backup of the source has, and those that were written since.
const KEPT: i64 = 50;
const LOST: usize = 30;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const PRECONDITION: i32 = 3;

#[test]
fn a_recovery_says_before_what_it_drops_and_after_what_came_of_it() {
    let mut source = Tarn::start_source();
    for topic in ["orders", "calm"] {
        source.create_topic(topic, 1);
        write_lines(&source.bootstrap(), topic, 0, &lines("kept", KEPT as usize));
    }
    let mut tarn = Tarn::start(&TarnOptions::default());
    mirror_and_restore(&mut source, &tarn);
    tarn.await_failed("m", "orders", "SOURCE_TRUNCATED");
    // What is told is what was written down, for as long as it takes.
    tarn.kill();
    tarn.start_again();
    let at = exports_of(&tarn).join("orders-0").display().to_string();
    let mirror = |verb: &str, more: &[&str]| {
        tarn.mirror(verb, &[&["--mirror", "m", "--topics", "orders"][..], more].concat())
    };
    let said = tarn.await_failed("m", "orders", "SOURCE_TRUNCATED");
    let shown = tarn.mirror("describe", &["--mirror", "m", "--failed"]).ok();
    assert!(shown.trim_end().ends_with(&format!("SOURCE_TRUNCATED: {said}")), "{shown}");

    // Tried without consent, it changes nothing, and says so before and after.
    let range = "orders-0: offsets 50 to 79 (30 records)";
    let diverged = json!([{
        "topic": "orders", "partition": 0, "from": KEPT, "to": 80, "records": LOST,
        "reasonCode": "SOURCE_TRUNCATED", "exportBrokerId": 1, "exportDirectory": at,
    }]);
    let dry = mirror("recover", &["--dry-run"]).ok();
    assert!(dry.contains("fail again unless") && dry.contains(range), "{dry}");
    let dry = json_of(&mirror("recover", &["--dry-run", "--json"]));
    assert_eq!((&dry["truncations"], &dry["dryRun"]), (&diverged, &json!(true)));
    let began = mirror("recover", &[]).ok();
    assert!(began.contains("fail again unless") && began.contains(range), "{began}");
    assert!(
        began.contains(&format!("tarn mirror describe --bootstrap-server {} --mirror m", tarn.bootstrap()))
    );
    tarn.await_failed("m", "orders", "SOURCE_TRUNCATED");
    let waited = mirror("recover", &["--wait", "--timeout", "50"]).failed_with(FAILED);
    assert!(waited.contains(&format!("tarn: orders-0 has failed: SOURCE_TRUNCATED: {said}")), "{waited}");

    // With consent it says what that costs, and where it is kept.
    let dry = mirror("recover", &["--allow-truncation", "--dry-run"]).ok();
    let cost = format!("{range}, as of when it failed, would be exported under {at} on node 1 and dropped");
    assert!(dry.contains(&cost), "{dry}");
    let dry = json_of(&mirror("recover", &["--allow-truncation", "--dry-run", "--json"]));
    assert_eq!((&dry["recovered"], &dry["truncations"]), (&json!(["orders"]), &diverged));
    tarn.await_failed("m", "orders", "SOURCE_TRUNCATED");
    assert_eq!(tarn.high_watermark("orders"), 80, "nothing is dropped");
    let done = mirror("recover", &["--allow-truncation", "--wait", "--timeout", "50"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let kept = exports(&exports_of(&tarn), "orders", 0);
    assert_eq!(exported(&kept[0]), numbered(KEPT, &lines("lost", LOST)));
    let told = format!(
        "orders-0: offsets 50 to 79 (30 records) were not the source's and are exported to {}",
        kept[0].display()
    );
    assert!(done.stderr.contains(&told), "{done:?}");
    assert_eq!(tarn.await_mirroring("m", "orders").error_message.map(|said| said.contains(&at)), Some(true));

    // Where nothing is to be done, nothing is said to be done.
    let all = ["--mirror", "m", "--topics", ".*"];
    let nothing = tarn.mirror("recover", &[&all[..], &["--allow-truncation"]].concat()).ok();
    assert_eq!(
        nothing,
        "Nothing to recover in mirror m, every partition of these is mirroring: [calm, orders]\n"
    );
    mirror("pause", &[]).ok();
    let resumed =
        json_of(&tarn.mirror("resume", &[&all[..], &["--wait", "--timeout", "50", "--json"]].concat()));
    assert_eq!((&resumed["resumed"], &resumed["unchanged"]), (&json!(["calm", "orders"]), &json!(["calm"])));
    assert!(tarn.describe_mirror("m").iter().all(|one| one.state == "MIRRORING"));
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |_| true, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "orders" || topic == "calm");
}

#[test]
fn a_start_says_before_what_it_drops_and_waits_for_what_is_not_refused() {
    let source = Tarn::start_source();
    for topic in ["orders", "other"] {
        source.create_topic(topic, 2);
        for partition in 0..2 {
            write_lines(&source.bootstrap(), topic, partition, &lines("there", 100));
        }
    }
    let tarn = Tarn::start(&TarnOptions::default());
    tarn.mirror_from(&source.bootstrap(), "m", "orders");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "orders", COPIED);
    let stands = json_of(&tarn.mirror("failover", &["--mirror", "m", "--dry-run", "--json"]));
    let partitions = stands["partitions"].as_array().expect("it says how they stand");
    assert_eq!(partitions.len(), 2);
    for partition in partitions {
        assert_eq!((&partition["state"], &partition["sourceOffset"]), (&json!("MIRRORING"), &json!(100)));
        assert!(partition["lastFetchAgeMs"].is_i64(), "{partition}");
    }
    tarn.mirror("stop", &["--mirror", "m", "--topics", "orders"]).ok();
    // The reset record is at 100.
    write_lines(&tarn.bootstrap(), "orders", 0, &lines("here", 5));

    let start = |topics: &str, more: &[&str]| {
        tarn.mirror("start", &[&["--mirror", "m", "--topics", topics][..], more].concat())
    };
    let local = |more: Value| {
        let mut local = json!({ "topic": "orders", "partition": 0, "from": 100, "to": 106, "records": 5 });
        local.as_object_mut().expect("it is one").extend(more.as_object().expect("it is one").clone());
        json!([local])
    };
    let refused = start("orders,other", &["--dry-run", "--json"]);
    assert_eq!(refused.code, Some(PRECONDITION), "{refused:?}");
    let refused = json_of(&refused);
    assert_eq!((&refused["started"], &refused["truncations"]), (&json!(["other"]), &local(json!({}))));
    let at = exports_of(&tarn).join("orders-0").display().to_string();
    let allowed = start("orders,other", &["--dry-run", "--allow-truncation"]).ok();
    let cost = format!(
        "orders-0: offsets 100 to 105 (5 records), as of now, would be exported under {at} on node 1 and dropped"
    );
    assert!(allowed.contains("would be started: [orders, other]") && allowed.contains(&cost), "{allowed}");
    let allowed = json_of(&start("orders,other", &["--dry-run", "--allow-truncation", "--json"]));
    let expected =
        local(json!({ "reasonCode": "LOCAL_RECORDS", "exportBrokerId": 1, "exportDirectory": at }));
    assert_eq!((&allowed["started"], &allowed["truncations"]), (&json!(["orders", "other"]), &expected));
    let bound: Vec<_> = tarn.describe_mirror("m").into_iter().map(|one| (one.topic, one.state)).collect();
    assert!(bound.iter().all(|(topic, state)| topic == "orders" && state == "STOPPED"), "{bound:?}");
    write_lines(&tarn.bootstrap(), "orders", 0, &lines("still writable", 1));

    // What is not refused is copied when the command ends, and its code is that of the refusal.
    let waited = start("orders,other", &["--wait", "--timeout", "50"]);
    assert_eq!(waited.code, Some(PRECONDITION), "{waited:?}");
    assert!(
        waited.stderr.contains("tarn: orders: LOCAL_RECORDS: partition 0: offsets 100 to 106 (6 records)")
    );
    assert!(waited.stderr.contains("m: 2 of 2 partitions mirroring, lag 0 records"), "{waited:?}");
    assert_eq!(
        assert_identical(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "other").records,
        200
    );

    // Every export is named at the end.
    write_lines(&tarn.bootstrap(), "orders", 1, &lines("here too", 3));
    let done = start("orders", &["--allow-truncation", "--wait", "--timeout", "50"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for partition in 0..2 {
        let kept = exports(&exports_of(&tarn), "orders", partition);
        let named = format!("are exported to {} on node 1", kept[0].display());
        let lines: Vec<_> = done.stderr.lines().filter(|line| line.ends_with(&named)).collect();
        assert!(lines.iter().any(|line| line.starts_with(&format!("orders-{partition}: "))), "{done:?}");
    }
}

#[test]
fn what_is_no_pattern_is_wrong_usage_of_every_command() {
    // Nobody needs to be asked.
    let tarn = Tarn::formatted(&TarnOptions::default());
    for verb in ["start", "stop", "failover", "pause", "resume", "recover", "report"] {
        for bad in ["a(b", "orders,*", "orders,,payments"] {
            let said = tarn.mirror(verb, &["--mirror", "m", "--topics", bad]).failed_with(USAGE);
            assert!(said.contains("pattern") || said.contains("regular expression"), "{verb} {bad}: {said}");
        }
    }
    let said =
        tarn.mirror("start", &["--mirror", "m", "--topics", "a", "--exclude", "a(b"]).failed_with(USAGE);
    assert!(said.contains("'a(b'"), "{said}");
    // Kafka's tools know one code.
    let bootstrap = tarn.bootstrap();
    let script =
        ["kafka-cluster-mirrors", "--bootstrap-server", &bootstrap, "--mirror", "m", "--topics", "a(b"];
    for action in ["--start", "--stop", "--pause", "--resume", "--recover"] {
        let said = tarn.command(&[&script[..], &[action]].concat()).failed_with(FAILED);
        assert!(said.contains("'a(b'"), "{action}: {said}");
    }
}

/// Mirrors the topics of a source, which then loses what was written to `orders` since its backup and gets other records.
fn mirror_and_restore(source: &mut Tarn, tarn: &Tarn) {
    source.stop();
    let backup = tempfile::tempdir().expect("there is room");
    let backup = backup.path().join("data");
    copy_directory(&source.data(), &backup);
    source.start_again();
    write_lines(&source.bootstrap(), "orders", 0, &lines("lost", LOST));
    tarn.mirror_from(&source.bootstrap(), "m", "orders,calm");
    await_mirrored(
        &source.bootstrap(),
        &tarn.bootstrap(),
        |topic| topic == "orders" || topic == "calm",
        COPIED,
    );
    // The mirror looks at the restored source when all is in it, not between its start and its writes.
    tarn.mirror("pause", &["--mirror", "m", "--topics", "orders,calm"]).ok();
    source.stop();
    fs::remove_dir_all(source.data()).expect("it is ours");
    copy_directory(&backup, &source.data());
    source.start_again();
    write_lines(&source.bootstrap(), "orders", 0, &lines("other", 60));
    tarn.mirror("resume", &["--mirror", "m", "--topics", "orders,calm"]).ok();
}

fn exports_of(tarn: &Tarn) -> PathBuf {
    tarn.data().join("mirror-exports")
}

/// What a command printed, as JSON.
fn json_of(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error} in {finished:?}"))
}
