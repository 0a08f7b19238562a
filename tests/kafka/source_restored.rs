//! A source that was restored from a backup: it lacks records that were mirrored and has others in their place. They are
//! dropped here only where an operator, or the configuration, allows it, and exported first.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tarn_tests::compare::{assert_identical, await_mirrored};
use tarn_tests::exports::{exported, exports};
use tarn_tests::kafka::copy_directory;
use tarn_tests::lines::{lines, numbered, write_lines};
use tarn_tests::report::{reported_exports, reports};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::tool;

const COPIED: Duration = Duration::from_secs(60);
/// Records that the backup has, and those that were written since.
const KEPT: i64 = 50;
const LOST: usize = 30;

#[test]
fn what_a_restored_source_lacks_is_dropped_only_where_that_is_allowed_and_exported_first() {
    let topics = ["asked", "promoted", "set", "limited", "given", "many"];
    let mut source = Tarn::start_source();
    for topic in topics {
        source.create_topic(topic, 1);
        write_lines(&source.bootstrap(), topic, 0, &lines("kept", KEPT as usize));
    }
    source.stop();
    let backup = tempfile::tempdir().expect("there is room");
    let backup = backup.path().join("data");
    copy_directory(&source.data(), &backup);
    source.start_again();
    for topic in topics {
        write_lines(&source.bootstrap(), topic, 0, &lost());
    }
    let tarn = Tarn::start(&TarnOptions::default());
    let start =
        |mirror: &str, topics: &str| tarn.mirror("start", &["--mirror", mirror, "--topics", topics]).ok();
    tarn.mirror_from(&source.bootstrap(), "m", "asked,promoted,set,limited");
    let unasked =
        [("bootstrap.servers", &*source.bootstrap()), ("mirror.support.unclean.leader.election", "true")];
    tarn.create_mirror("u", &[&unasked[..], &[("mirror.divergence.max.records", "30")]].concat()).ok();
    start("u", "given,many");
    set(&tarn, "set", "mirror.support.unclean.leader.election=true");
    set(&tarn, "limited", "mirror.support.unclean.leader.election=true,mirror.divergence.max.records=29");
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topics.contains(&topic), COPIED);
    write_lines(&source.bootstrap(), "many", 0, &lines("one more", 1));
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), |topic| topic == "many", COPIED);
    tarn.mirror("stop", &["--mirror", "m", "--topics", "promoted"]).ok();

    source.stop();
    fs::remove_dir_all(source.data()).expect("it is ours");
    copy_directory(&backup, &source.data());
    source.start_again();
    for topic in topics {
        write_lines(&source.bootstrap(), topic, 0, &lines("other", 60));
    }

    // What is allowed is done unasked, up to so many records.
    let unasked = |topic: &str| topic == "set" || topic == "given";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), unasked, COPIED);
    assert_eq!(assert_identical(&source.bootstrap(), &tarn.bootstrap(), unasked).records, 220);
    for topic in ["set", "given"] {
        assert_eq!(kept(&tarn, topic), [numbered(KEPT, &lost())], "{topic}");
    }
    // A report names what was exported of what was never stopped, too.
    let report = |topic: &str| tarn.mirror("report", &["--mirror", "m", "--topics", topic, "--json"]).ok();
    let named = ("set".to_string(), 0);
    let exported = (1, exports(&tarn.data().join("mirror-exports"), "set", 0).remove(0));
    assert_eq!(reported_exports(&report("set")), BTreeMap::from([(named.clone(), exported.clone())]));
    let table = tarn.mirror("report", &["--mirror", "m", "--topics", "set"]).ok();
    assert!(table.trim_end().ends_with(&format!("1:{}", exported.1.display())), "{table}");
    for (mirror, topic, max, last) in [("m", "limited", 29, 79), ("u", "many", 30, 80)] {
        let said = tarn.await_failed(mirror, topic, "SOURCE_TRUNCATED");
        let range = format!("offsets {KEPT} to {last} ({} records)", max + 1);
        let limit = format!("more than mirror.divergence.max.records={max}");
        assert!(said.contains(&range) && said.contains(&limit), "{said}");
    }

    // All else waits for an operator, whoever asks how often.
    start("m", "promoted");
    for (topic, reason, last) in [("asked", "SOURCE_TRUNCATED", 79), ("promoted", "LOCAL_RECORDS", 80)] {
        for _ in 0..2 {
            let said = tarn.await_failed("m", topic, reason);
            let range = format!("offsets {KEPT} to {last} (30 records)");
            assert!(said.contains(&range) && said.contains("recover --allow-truncation"), "{said}");
            tarn.mirror("recover", &["--mirror", "m", "--topics", topic]).ok();
        }
        tarn.await_failed("m", topic, reason);
        assert_eq!(tarn.high_watermark(topic), last + 1, "{topic}: nothing is dropped");
    }
    for topic in ["asked", "promoted", "limited", "many"] {
        assert_eq!(kept(&tarn, topic), Vec::<Vec<_>>::new(), "{topic}");
    }
    tarn.mirror("stop", &["--mirror", "m", "--topics", "set"]).ok();
    assert_eq!(reports(&report("set"))[&named].mirrored_offset, 110);
    assert_eq!(reported_exports(&report("set")), BTreeMap::from([(named, exported)]));
    // One of them is taken over as it is: the better copy.
    let stopped = reports(&tarn.mirror("stop", &["--mirror", "m", "--topics", "limited", "--json"]).ok());
    assert_eq!(stopped[&("limited".to_string(), 0)].mirrored_offset, 80);
    tarn.mirror("recover", &["--mirror", "m", "--topics", "asked,promoted", "--allow-truncation"]).ok();
    let recovered = |topic: &str| topic == "asked" || topic == "promoted";
    await_mirrored(&source.bootstrap(), &tarn.bootstrap(), recovered, COPIED);
    assert_identical(&source.bootstrap(), &tarn.bootstrap(), recovered);
    for topic in ["asked", "promoted"] {
        assert_eq!(kept(&tarn, topic), [numbered(KEPT, &lost())], "{topic}");
    }
}

fn lost() -> Vec<String> {
    lines("lost", LOST)
}

/// What each export of a topic holds.
fn kept(tarn: &Tarn, topic: &str) -> Vec<Vec<(i64, String)>> {
    let exports: Vec<PathBuf> = exports(&tarn.data().join("mirror-exports"), topic, 0);
    exports.iter().map(|export| exported(export)).collect()
}

fn set(tarn: &Tarn, topic: &str, configs: &str) {
    let bootstrap = tarn.bootstrap();
    let of_topic = ["--bootstrap-server", &bootstrap, "--entity-type", "topics", "--entity-name", topic];
    tool("ConfigCommand", &[&of_topic[..], &["--alter", "--add-config", configs]].concat()).ok();
}
