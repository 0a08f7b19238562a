//! A disk that is full while a mirror is stopped, or while something is to be exported: nothing is half done, the reason
//! is shown, and with room again it goes on by itself.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tarn_log::limits::EXPORT_RESERVE_BYTES;
use tarn_tests::cluster::Cluster;
use tarn_tests::compare::await_mirrored;
use tarn_tests::dataset::Source;
use tarn_tests::exports::{exported, exports};
use tarn_tests::lines::{lines, numbered, write_lines};
use tarn_tests::report::reports;
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{java_program, python};
use tarn_tests::waiting::{until, until_some};

const COPIED: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);
const DISK_BYTES: u64 = 64 * 1024 * 1024;
/// Room for an export beside what is left free.
const EXPORT_DISK_BYTES: u64 = EXPORT_RESERVE_BYTES + 1024 * 1024;
const FILLER_BYTES: usize = 64 * 1024;

#[test]
fn a_stop_on_a_full_disk_waits_with_its_reason_and_ends_when_there_is_room() {
    let mut source = Source::start();
    let tarn = Tarn::start_on_small_disk(&TarnOptions::default(), DISK_BYTES);
    let wanted = |topic: &str| topic == "transaction.open" || topic == "empty";
    tarn.mirror_from(&source.bootstrap(), "m", "transaction.open,empty");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    until("a mirror at rest", LIMIT, || tarn.describe_mirror("m").iter().all(|one| one.state == "MIRRORING"));
    source.node.kill();
    let mirrored = ends(&tarn)[&("transaction.open".to_string(), 0)];
    let filler = tarn.data_from_outside().join("filler");
    fill(&filler);

    tarn.mirror("stop", &["--mirror", "m", "--topics", ".*", "--no-wait"]).ok();
    // A log without a record needs a page of the disk. What ends another may fit into its last page.
    until_some("every empty partition to wait, with a reason", LIMIT, || {
        let described = tarn.describe_mirror("m");
        let empty: Vec<_> = described.iter().filter(|one| one.topic == "empty").collect();
        let unsaid = empty.iter().find(|one| one.state == "STOPPED" || one.reason_code.is_none());
        match unsaid {
            None if empty.len() == 3 => Ok(()),
            other => Err(format!("{other:?} of {}", empty.len())),
        }
    });
    // Nothing can be written, by whatever error, and nothing is.
    let said = python("write_refused.py", &[&tarn.bootstrap(), "empty", "0"]);
    assert!(!said.stdout.contains("written"), "{said:?}");
    for partition in 0..3 {
        assert_eq!(ends(&tarn)[&("empty".to_string(), partition)], 0);
    }

    fs::remove_file(&filler).expect("it is ours");
    let stopped = reports(&tarn.mirror("stop", &["--mirror", "m", "--topics", ".*", "--json"]).ok());
    assert_eq!(stopped.len(), 4);
    let open = &stopped[&("transaction.open".to_string(), 0)];
    assert_eq!((open.mirrored_offset, open.aborted), (mirrored, 1));
    // Whatever the first try left in a file, the log has one marker and one reset.
    assert_eq!(open.reset_offset, open.mirrored_offset + 1);
    for ((topic, partition), end) in ends(&tarn) {
        assert_eq!(
            end,
            stopped[&(topic.clone(), i64::from(partition))].reset_offset + 1,
            "{topic}-{partition}"
        );
    }
    let written = python("write_refused.py", &[&tarn.bootstrap(), "transaction.open", "0"]).ok();
    assert_eq!(written, format!("written at offset {}\n", open.reset_offset + 1));
    let read = ["read_uncommitted", "read_committed"].map(|level| {
        let arguments = [tarn.bootstrap(), level.to_string(), "transaction.open".to_string()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        java_program("ReadBack", &arguments, None, LIMIT).ok().lines().count() - 1
    });
    assert_eq!(read, [1001, 501]);
}

#[test]
fn a_failover_that_the_controller_has_no_room_to_write_down_waits_for_it_and_says_so() {
    let mut source = Source::start();
    let tarn = Tarn::start_wholly_on_small_disk(&TarnOptions::default(), DISK_BYTES);
    tarn.mirror_from(&source.bootstrap(), "m", "empty");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "empty", COPIED);
    source.node.kill();
    let filler = tarn.data_from_outside().join("filler");
    fill(&filler);
    // What is left of the metadata log's last page is filled with topics.
    let has_room = |number: &usize| {
        let name = format!("page.{number}.{}", "x".repeat(200));
        let created =
            tarn.command(&["topics", "create", "--bootstrap-server", &tarn.bootstrap(), "--topic", &name]);
        !created.stderr.contains("the disk of the metadata log is full")
    };
    assert!((0..1000).find(|number| !has_room(number)).is_some(), "there is always room");

    let began = Instant::now();
    let said = tarn.mirror("failover", &["--mirror", "m", "--timeout", "2"]).failed_with(1);
    assert!(began.elapsed() >= Duration::from_secs(2), "it waits for as long as it is told: {said}");
    assert!(said.contains("the disk of the metadata log is full"), "{said}");
    assert!(tarn.describe_mirror("m").iter().all(|one| one.state == "MIRRORING"), "nothing is half done");
    fs::remove_file(&filler).expect("it is ours");
    let stopped = reports(&tarn.mirror("failover", &["--mirror", "m", "--json"]).ok());
    assert_eq!(stopped.len(), 3);
}

#[test]
fn nothing_is_cut_that_cannot_be_exported_and_it_is_once_it_can() {
    let source = Tarn::start_source();
    source.create_topic("orders", 1);
    write_lines(&source.bootstrap(), "orders", 0, &lines("there", 10));
    let tarn = Tarn::start_with_small_exports(&TarnOptions::default(), EXPORT_DISK_BYTES);
    let wanted = |topic: &str| topic == "orders";
    tarn.mirror_from(&source.bootstrap(), "m", "orders");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "orders"]).ok();
    write_lines(&tarn.bootstrap(), "orders", 0, &lines("here", 5));

    let await_failed = |words: &str| {
        tarn.mirror("start", &["--mirror", "m", "--topics", "orders", "--allow-truncation"]).ok();
        let said = tarn.await_failed("m", "orders", "DESTINATION_STORAGE");
        assert!(said.contains(words), "{said}");
        assert_eq!(tarn.high_watermark("orders"), 16, "nothing is cut");
        assert_eq!(
            exports(&tarn.in_exports(&tarn.exports_from_outside()), "orders", 0),
            Vec::<PathBuf>::new(),
            "nor half copied"
        );
    };
    tarn.remount_exports("ro");
    await_failed("Read-only file system");
    tarn.mirror("stop", &["--mirror", "m", "--topics", "orders"]).ok();
    tarn.remount_exports("rw");
    let filler = tarn.exports_from_outside().join("filler");
    fill(&filler);
    await_failed("room for 0 bytes");
    // It goes on by itself.
    fs::remove_file(&filler).expect("it is ours");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), wanted, COPIED);
    let kept = exports(&tarn.in_exports(&tarn.exports_from_outside()), "orders", 0);
    assert_eq!(kept.iter().map(|kept| exported(kept)).collect::<Vec<_>>(), [numbered(11, &lines("here", 5))]);
    tarn.await_mirroring("m", "orders");
}

/// Writes until there is no room for another byte.
fn fill(file: &Path) {
    let mut filler = File::create(file).expect("the directory is writable");
    let mut chunk = &[0; FILLER_BYTES][..];
    while !chunk.is_empty() {
        match filler.write(chunk) {
            Ok(written) if written > 0 => {}
            Ok(_) => chunk = &chunk[..chunk.len() / 2],
            Err(error) if error.kind() == ErrorKind::StorageFull => chunk = &chunk[..chunk.len() / 2],
            Err(error) => panic!("{}: {error}", file.display()),
        }
    }
}

/// High watermarks of every partition.
fn ends(tarn: &Tarn) -> BTreeMap<(String, i32), i64> {
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let mut ends = BTreeMap::new();
    for topic in cluster.topics() {
        for partition in &topic.partitions {
            let offsets = cluster.offsets(&topic, partition);
            ends.insert((topic.name.clone(), partition.index), offsets.high_watermark);
        }
    }
    ends
}
