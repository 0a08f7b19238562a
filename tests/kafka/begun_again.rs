//! Topics that were promoted and written to, and are mirrored again: whatever happens meanwhile, no record that only
//! this cluster has is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tarn_mirror::crash_points::TRUNCATION_POINTS;
use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::exports::{exported, exports};
use tarn_tests::lines::{lines, numbered, write_lines};
use tarn_tests::process::{Finished, Process};
use tarn_tests::report::{reported_exports, reports};
use tarn_tests::tarn::{Tarn, TarnOptions, has_crash_points};
use tarn_tests::tools::python_program;
use tarn_tests::waiting::until;

/// The exit code where something else must be done first.
const PRECONDITION: i32 = 3;
const COPIED: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);
/// Records of each partition at the source.
const THERE: usize = 20;
/// Where records of this cluster begin: behind the reset record.
const HERE: i64 = THERE as i64 + 1;

#[test]
fn a_cut_that_dies_at_any_of_its_steps_is_gone_on_with_by_the_next_start() {
    if !has_crash_points() {
        eprintln!("the optimised tarn has no crash points: nothing to try");
        return;
    }
    let source = source(2);
    for point in TRUNCATION_POINTS {
        // Of two partitions of one core one comes after the other.
        let one_core = TarnOptions { cores: Some("0"), ..TarnOptions::default() };
        let mut tarn = Tarn::formatted(&one_core);
        tarn.start_again_with(&[("TARN_CRASH_AT", point)]);
        promote(&source, &tarn);
        let here = |partition| lines(&format!("here {partition}"), 5);
        (0..2).for_each(|partition| write_lines(&tarn.bootstrap(), "orders", partition, &here(partition)));
        // Its answer may be lost with it.
        let _ = tarn.mirror("start", &["--mirror", "m", "--topics", "orders", "--allow-truncation"]);
        until(&format!("a death at {point}"), LIMIT, || !tarn.is_running());
        tarn.kill();
        let copied =
            |tarn: &Tarn, partition| exports(&tarn.data().join("mirror-exports"), "orders", partition);
        let first: Vec<_> = (0..2).flat_map(|partition| copied(&tarn, partition)).collect();
        assert_eq!(first.len(), 1, "{point}");
        let (said, directory) = (tarn.output(), first[0].display().to_string());
        let naming: Vec<&str> = said.lines().filter(|line| line.contains(&directory)).collect();
        assert!(matches!(naming[..], [line] if line.contains("and is cut now")), "{point}: {naming:?}");
        tarn.start_again();

        await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
        assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
        let mut copies = 0;
        for partition in 0..2 {
            let exports = copied(&tarn, partition);
            assert!(!exports.is_empty(), "{point}: nothing of partition {partition} is kept");
            for export in &exports {
                assert_eq!(exported(export), numbered(HERE, &here(partition)), "{point}: {export:?}");
            }
            copies += exports.len();
        }
        // What was copied and not yet cut is taken over; what was cut is not cut again; and both are told.
        assert_eq!(copies, 2, "{point}");
        tarn.await_mirroring("m", "orders");
        let reported = reported_exports(&tarn.mirror("report", &["--mirror", "m", "--json"]).ok());
        let reported: BTreeSet<_> = reported.into_values().collect();
        let wanted = (0..2).map(|partition| (1, copied(&tarn, partition).remove(0)));
        assert_eq!(reported, wanted.collect(), "{point}");
    }
}

#[test]
fn where_nothing_can_be_exported_nothing_is_cut_and_a_stop_counts_nothing_as_mirrored() {
    let source = source(1);
    let directory = tempfile::tempdir().expect("there is room");
    let exports_at = directory.path().join("exports");
    let properties = vec![("tarn.mirror.export.dir".to_string(), exports_at.display().to_string())];
    let tarn = Tarn::start(&TarnOptions { properties, ..TarnOptions::default() });
    let mirror = |verb: &str, more: &[&str]| {
        tarn.mirror(verb, &[&["--mirror", "m", "--topics", "orders"][..], more].concat())
    };
    promote(&source, &tarn);
    let here = lines("here", 6);
    write_lines(&tarn.bootstrap(), "orders", 0, &here[..5]);
    let end = HERE + 5;
    // No directory can be made where a file is, whoever asks.
    fs::remove_dir_all(&exports_at).ok();
    fs::write(&exports_at, "").expect("there is room");

    mirror("start", &["--allow-truncation"]).ok();
    let said = tarn.await_failed("m", "orders", "DESTINATION_STORAGE");
    assert!(
        said.contains("cannot be exported") && said.contains(&exports_at.display().to_string()),
        "{said}"
    );
    assert_eq!(tarn.high_watermark("orders"), end, "nothing is cut");

    // Another command takes the consent away, and what is to be done is said.
    mirror("pause", &[]).ok();
    mirror("resume", &[]).ok();
    let said = tarn.await_failed("m", "orders", "LOCAL_RECORDS");
    let range = format!("offsets {THERE} to {} (5 records)", end - 1);
    assert!(said.contains(&range) && said.contains("--allow-truncation"), "{said}");
    let refused = mirror("recover", &[]).failed_with(PRECONDITION);
    assert!(refused.contains(&range) && refused.contains("--allow-truncation"), "{refused}");
    let local = |to: i64, records: i64| json!([{ "topic": "orders", "partition": 0, "from": THERE, "to": to, "records": records }]);
    let refused = refused_in_json(mirror("recover", &["--json"]));
    assert_eq!((&refused["recovered"], &refused["truncations"]), (&json!([]), &local(end, 5)));
    assert_eq!(tarn.high_watermark("orders"), end, "nothing is dropped");

    // A stop does not count what clients wrote as mirrored, nor does it end the log once more.
    let stopped = reports(&mirror("stop", &["--json"]).ok());
    let named = ("orders".to_string(), 0);
    let report = &stopped[&named];
    assert_eq!((report.mirrored_offset, report.reset_offset), (THERE as i64, THERE as i64));
    assert_eq!(tarn.high_watermark("orders"), end);
    write_lines(&tarn.bootstrap(), "orders", 0, &here[5..]);
    let refused = mirror("start", &[]).failed_with(PRECONDITION);
    assert!(refused.contains(&format!("offsets {THERE} to {end} (6 records)")), "{refused}");
    let refused = refused_in_json(mirror("start", &["--json"]));
    assert_eq!((&refused["started"], &refused["truncations"]), (&json!([]), &local(end + 1, 6)));
    let topic = &refused["refused"][0];
    assert_eq!((&topic["topic"], &topic["reasonCode"]), (&json!("orders"), &json!("LOCAL_RECORDS")));

    mirror("start", &["--allow-truncation"]).ok();
    tarn.await_failed("m", "orders", "DESTINATION_STORAGE");
    fs::remove_file(&exports_at).expect("it is ours");
    // It goes on by itself.
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
    let exports = exports(&tarn.in_exports(&exports_at), "orders", 0);
    assert_eq!(exports.iter().map(|export| exported(export)).collect::<Vec<_>>(), [numbered(HERE, &here)]);
    // Where it is kept is said beside the state, in one line of the log, and by the report, now and after the next stop.
    let kept = exports[0].display().to_string();
    let said = tarn.await_mirroring("m", "orders").error_message.unwrap_or_default();
    assert!(said.ends_with(&format!("{kept} on node 1")), "{said}");
    let log = tarn.output();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&kept) && line.contains("INFO")).collect();
    assert!(lines.len() == 1 && lines[0].contains("node=1") && lines[0].contains("records=6"), "{lines:?}");
    for _ in 0..2 {
        let json = tarn.mirror("report", &["--mirror", "m", "--json"]).ok();
        assert_eq!(reports(&json)[&named].mirrored_offset, THERE as i64);
        assert_eq!(reported_exports(&json), BTreeMap::from([(named.clone(), (1, exports[0].clone()))]));
        mirror("stop", &[]).ok();
    }
    // Its source has nothing new, and says so to who begins again.
    mirror("start", &["--wait", "--timeout", "50"]).ok();
}

#[test]
fn whatever_is_acknowledged_while_a_topic_is_begun_again_is_exported() {
    let source = source(2);
    let tarn = Tarn::start(&TarnOptions::default());
    promote(&source, &tarn);
    let files = tempfile::tempdir().expect("there is room");
    let mut writers = ["true", "false"].map(|idempotent| {
        let mut command = python_program("write_until_refused.py");
        let partition = if idempotent == "true" { "0" } else { "1" };
        command.args([&tarn.bootstrap(), "orders", partition, idempotent]);
        Process::spawn("write_until_refused.py", command, &files.path().join(idempotent))
    });
    let written = |writers: &[Process]| writers.iter().map(|one| acknowledged(one).len()).min().unwrap_or(0);
    until("records that are acknowledged", LIMIT, || written(&writers) > 500);
    let refused = tarn.mirror("start", &["--mirror", "m", "--topics", "orders"]).failed_with(PRECONDITION);
    assert!(refused.contains("LOCAL_RECORDS") && refused.contains("partition 1"), "{refused}");
    let before = written(&writers);
    until("writers that are not disturbed by what was refused", LIMIT, || written(&writers) > before + 500);

    tarn.mirror("start", &["--mirror", "m", "--topics", "orders", "--allow-truncation"]).ok();
    until("writers that are refused", LIMIT, || writers.iter_mut().all(|one| one.ended().is_some()));
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), wanted);
    for (partition, writer) in (0..).zip(&writers) {
        let output = writer.output();
        assert!(output.ends_with("ended\n"), "{output}");
        let errors: BTreeSet<&str> = output
            .lines()
            .filter_map(|line| line.strip_prefix("refused ")?.split_once(' '))
            .map(|(_, error)| error)
            .collect();
        assert_eq!(errors, BTreeSet::from(["POLICY_VIOLATION"]), "partition {partition}");
        let exports = exports(&tarn.data().join("mirror-exports"), "orders", partition);
        let kept: Vec<_> = exports.iter().flat_map(|export| exported(export)).collect();
        let acknowledged = acknowledged(writer);
        let lost: Vec<_> = acknowledged.iter().filter(|record| kept.binary_search(record).is_err()).collect();
        assert!(lost.is_empty(), "partition {partition}: {lost:?} of {} were lost", acknowledged.len());
        assert!(acknowledged.len() > 1000);
    }
}

/// What a command printed that was refused with `--json`.
fn refused_in_json(refused: Finished) -> Value {
    assert_eq!(refused.code, Some(PRECONDITION), "{refused:?}");
    serde_json::from_str(&refused.stdout).unwrap_or_else(|error| panic!("{error} in {refused:?}"))
}

/// The offsets and values that a writer was told are kept.
fn acknowledged(writer: &Process) -> Vec<(i64, String)> {
    let output = writer.output();
    // The last line may not be whole yet.
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    let record = |line: &str| {
        let mut words = line.strip_prefix("acked ")?.split(' ').skip(2);
        Some((words.next()?.parse().ok()?, words.next()?.to_string()))
    };
    whole.lines().filter_map(record).collect()
}

fn wanted(topic: &str) -> bool {
    topic == "orders"
}

/// A source with the topic `orders`.
fn source(partitions: i32) -> Tarn {
    let source = Tarn::start_source();
    source.create_topic("orders", partitions);
    for partition in 0..partitions {
        write_lines(&source.bootstrap(), "orders", partition, &lines("there", THERE));
    }
    source
}

/// Mirrors the topic, and stops it.
fn promote(source: &Tarn, tarn: &Tarn) {
    tarn.mirror_from(&source.bootstrap(), "m", "orders");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "orders"]).ok();
}
