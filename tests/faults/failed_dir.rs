//! A disk that fails under one of several log directories, or cannot be read at the start: its replicas are out of service, and no others.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tarn_tests::cluster::Cluster;
use tarn_tests::lines::{lines, write_lines};
use tarn_tests::process::{Finished, run};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_tests::tools::{kcat, tool};
use tarn_tests::waiting::{until, until_some};
use tempfile::TempDir;

const PARTITIONS: i32 = 6;
const RECORDS: usize = 50;
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_failed_directory_takes_its_own_replicas_along_and_no_others() {
    let TwoDirs { mut tarn, kept, failing, trigger, files: _files, .. } = two_dirs();
    ["t", "made.again"].iter().for_each(|topic| tarn.create_topic(topic, PARTITIONS));
    let before = lines("before", RECORDS);
    (0..PARTITIONS).for_each(|partition| write_lines(&tarn.bootstrap(), "t", partition, &before));
    let [on_kept, on_failing] = [&kept, &failing].map(|dir| partitions_in(dir));
    assert!(!on_kept.is_empty() && !on_failing.is_empty(), "{on_kept:?} {on_failing:?}");

    File::create(&trigger).expect("it is ours");
    for partition in &on_failing {
        assert!(!is_written(&tarn, *partition, 3000), "partition {partition}");
    }
    for partition in &on_kept {
        assert!(is_written(&tarn, *partition, 30_000), "partition {partition}");
    }
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let topic = cluster.topic("t");
    for partition in &topic.partitions {
        let is_kept = on_kept.contains(&partition.index);
        match cluster.try_batches_at(&topic, partition, 0) {
            Ok(batches) => assert!(is_kept && !batches.is_empty(), "partition {partition:?}"),
            // KAFKA_STORAGE_ERROR
            Err(error) => assert!(!is_kept && error.contains("56"), "partition {partition:?}: {error}"),
        }
    }
    // Its old logs stay where the disk has failed, and are another topic's when that comes back.
    tool("TopicCommand", &["--bootstrap-server", &tarn.bootstrap(), "--delete", "--topic", "made.again"])
        .ok();
    ["later", "made.again"].iter().for_each(|topic| tarn.create_topic(topic, PARTITIONS));
    for topic in ["later", "made.again"] {
        (0..PARTITIONS).for_each(|partition| write_lines(&tarn.bootstrap(), topic, partition, &before));
    }
    until("the failure to be said", LIMIT, || tarn.output().contains("a log directory has failed"));
    tarn.stop();

    // With the disk back, everything that was acknowledged is there.
    fs::remove_file(&trigger).expect("it is ours");
    tarn.start_again();
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let again = cluster.topic("made.again");
    for partition in &again.partitions {
        assert_eq!(cluster.offsets(&again, partition).high_watermark, RECORDS as i64, "{partition:?}");
    }
    let topic = cluster.topic("t");
    for partition in &topic.partitions {
        let end = cluster.offsets(&topic, partition).high_watermark;
        let is_kept = on_kept.contains(&partition.index);
        let acknowledged = i64::try_from(RECORDS).expect("it is small") + i64::from(is_kept);
        assert!(end >= acknowledged && (end == acknowledged || !is_kept), "{partition:?} ends at {end}");
    }
}

#[test]
fn a_directory_that_fails_while_the_node_stops_keeps_no_other_from_being_closed_in_order() {
    let TwoDirs { mut tarn, kept, failing, trigger, files: _files, .. } = two_dirs();
    // What is not flushed yet is what a stop has to write.
    tarn.create_topic("t", PARTITIONS);
    let policy = ["--alter", "--topic", "t", "--add-config", "flush.policy=none"];
    tool("ConfigCommand", &[&["--bootstrap-server", &tarn.bootstrap()][..], &policy].concat()).ok();
    let before = lines("before", RECORDS);
    (0..PARTITIONS).for_each(|partition| write_lines(&tarn.bootstrap(), "t", partition, &before));
    assert!(!partitions_in(&kept).is_empty() && !partitions_in(&failing).is_empty());
    File::create(&trigger).expect("it is ours");
    tarn.stop();
    let is_marked = |dir: &Path| dir.join(".kafka_cleanshutdown").exists();
    assert!(is_marked(&kept) && !is_marked(&failing), "{}", tarn.output());
    assert!(tarn.output().contains("logs not closed in order"), "{}", tarn.output());

    fs::remove_file(&trigger).expect("it is ours");
    tarn.start_again();
    let mut cluster = Cluster::connect(&tarn.bootstrap());
    let topic = cluster.topic("t");
    for partition in &topic.partitions {
        assert_eq!(cluster.offsets(&topic, partition).high_watermark, RECORDS as i64, "{partition:?}");
    }
}

#[test]
fn a_directory_that_fails_while_its_logs_are_recovered_is_not_tried_again() {
    let mut two = two_dirs();
    two.tarn.create_topic("t", PARTITIONS);
    let before = lines("before", RECORDS);
    (0..PARTITIONS).for_each(|partition| write_lines(&two.tarn.bootstrap(), "t", partition, &before));
    let [on_kept, on_failing] = [&two.kept, &two.failing].map(|dir| partitions_in(dir));
    assert!(!on_kept.is_empty() && !on_failing.is_empty(), "{on_kept:?} {on_failing:?}");
    two.tarn.kill();
    File::create(&two.trigger).expect("it is ours");
    two.tarn.spawn_with(&named(&two.environment));
    until("the failure to be said", LIMIT, || two.tarn.output().contains("a log directory has failed"));
    // A second sync would succeed, and say nothing of what the first was to write.
    fs::remove_file(&two.trigger).expect("it is ours");
    for partition in &on_kept {
        assert!(is_written(&two.tarn, *partition, 30_000), "partition {partition}");
    }
    for partition in &on_failing {
        assert!(!is_written(&two.tarn, *partition, 3000), "partition {partition}");
    }
    two.tarn.stop();
    two.start_again();
    for partition in 0..PARTITIONS {
        assert!(is_written(&two.tarn, partition, 30_000), "partition {partition}");
    }
}

#[test]
fn a_directory_that_cannot_be_opened_at_the_start_takes_its_own_replicas_along_and_no_others() {
    let mut two = two_dirs();
    ["t", "made.again"].iter().for_each(|topic| two.tarn.create_topic(topic, PARTITIONS));
    let before = lines("before", RECORDS);
    (0..PARTITIONS).for_each(|partition| write_lines(&two.tarn.bootstrap(), "t", partition, &before));
    let [on_kept, on_failing] = [&two.kept, &two.failing].map(|dir| partitions_in(dir));
    assert!(!on_kept.is_empty() && !on_failing.is_empty(), "{on_kept:?} {on_failing:?}");
    two.tarn.stop();
    let away = two.failing.with_extension("away");
    fs::rename(&two.failing, &away).expect("it is ours");
    File::create(&two.failing).expect("it is ours");

    for _ in 0..2 {
        two.start_without_the_failing();
        assert!(two.tarn.output().contains("a log directory cannot be opened"), "{}", two.tarn.output());
        for partition in &on_kept {
            assert!(is_written(&two.tarn, *partition, 30_000), "partition {partition}");
        }
        for partition in &on_failing {
            assert!(!is_written(&two.tarn, *partition, 3000), "partition {partition}");
        }
        two.tarn.stop();
    }
    two.start_without_the_failing();
    let bootstrap = two.tarn.bootstrap();
    let described = tool("LogDirsCommand", &["--bootstrap-server", &bootstrap, "--describe"]).ok();
    assert!(described.contains("KafkaStorageException"), "{described}");
    tool("TopicCommand", &["--bootstrap-server", &bootstrap, "--delete", "--topic", "made.again"]).ok();
    for topic in ["later", "made.again"] {
        two.tarn.create_topic(topic, PARTITIONS);
        (0..PARTITIONS).for_each(|partition| write_lines(&bootstrap, topic, partition, &before));
    }
    two.tarn.stop();

    fs::remove_file(&two.failing).expect("it is ours");
    fs::rename(&away, &two.failing).expect("it is ours");
    two.start_again();
    let mut cluster = Cluster::connect(&two.tarn.bootstrap());
    let topic = cluster.topic("t");
    for partition in &topic.partitions {
        let end = cluster.offsets(&topic, partition).high_watermark;
        let written = if on_kept.contains(&partition.index) { 2 } else { 0 };
        assert_eq!(end, RECORDS as i64 + written, "{partition:?}");
    }
    for name in ["later", "made.again"] {
        let topic = cluster.topic(name);
        for partition in &topic.partitions {
            assert_eq!(cluster.offsets(&topic, partition).high_watermark, RECORDS as i64, "{name}");
        }
    }
}

#[test]
fn a_directory_taken_out_of_log_dirs_takes_its_own_replicas_along_and_no_others() {
    let mut two = two_dirs();
    two.tarn.create_topic("t", PARTITIONS);
    let before = lines("before", RECORDS);
    (0..PARTITIONS).for_each(|partition| write_lines(&two.tarn.bootstrap(), "t", partition, &before));
    let [on_kept, on_gone] = [&two.kept, &two.failing].map(|dir| partitions_in(dir));
    assert!(!on_kept.is_empty() && !on_gone.is_empty(), "{on_kept:?} {on_gone:?}");
    let id = directory_id(&two.failing);
    two.tarn.stop();
    two.tarn.reconfigure(&options(&[&two.kept]));
    for _ in 0..2 {
        two.start_without_the_failing();
        let says_so = |line: &&str| line.contains("no directory of log.dirs has this id");
        until("it to be said", LIMIT, || since_start(&two.tarn).lines().any(|line| says_so(&line)));
        let said = since_start(&two.tarn);
        let line = said.lines().find(says_so).expect("it was said");
        let path = two.failing.display().to_string();
        assert!(line.contains("ERROR") && line.contains(&id) && line.contains(&path), "{line}");
        for partition in &on_kept {
            assert!(is_written(&two.tarn, *partition, 30_000), "partition {partition}");
        }
        for partition in &on_gone {
            assert!(!is_written(&two.tarn, *partition, 3000), "partition {partition}");
        }
        let described =
            tool("LogDirsCommand", &["--bootstrap-server", &two.tarn.bootstrap(), "--describe"]).ok();
        assert!(described.contains(&path) && described.contains("KafkaStorageException"), "{described}");
        let refused = forget(&two.tarn, &id);
        assert_eq!(refused.code, Some(1), "while it runs: {refused:?}");
        two.tarn.stop();
    }

    // The same directory at another path.
    let moved = two.failing.with_extension("moved");
    fs::rename(&two.failing, &moved).expect("it is ours");
    two.tarn.reconfigure(&options(&[&two.kept, &moved]));
    two.start_again();
    assert!(two.tarn.output().contains("a log directory has moved"), "{}", two.tarn.output());
    let mut cluster = Cluster::connect(&two.tarn.bootstrap());
    let topic = cluster.topic("t");
    for partition in &topic.partitions {
        let written = if on_kept.contains(&partition.index) { 2 } else { 0 };
        let end = cluster.offsets(&topic, partition).high_watermark;
        assert_eq!(end, RECORDS as i64 + written, "{partition:?}");
    }
    two.tarn.stop();
    let refused = forget(&two.tarn, &id);
    assert!(refused.code == Some(1) && refused.stderr.contains("it is not gone"), "{refused:?}");

    // Gone for good.
    two.tarn.reconfigure(&options(&[&two.kept]));
    let forgotten = forget(&two.tarn, &id).ok();
    assert!(forgotten.contains(&moved.display().to_string()), "{forgotten}");
    two.start_again();
    let mut cluster = Cluster::connect(&two.tarn.bootstrap());
    let topic = cluster.topic("t");
    for partition in topic.partitions.iter().filter(|partition| on_gone.contains(&partition.index)) {
        assert_eq!(cluster.offsets(&topic, partition).high_watermark, 0, "{partition:?}");
    }
    assert!(!since_start(&two.tarn).contains("no directory of log.dirs has this id"));
    two.tarn.stop();
}

#[test]
fn a_directory_whose_logs_were_moved_to_another_is_forgotten() {
    let mut two = two_dirs();
    two.tarn.create_topic("t", PARTITIONS);
    let before = lines("before", RECORDS);
    (0..PARTITIONS).for_each(|partition| write_lines(&two.tarn.bootstrap(), "t", partition, &before));
    two.tarn.stop();
    for partition in partitions_in(&two.failing) {
        let name = format!("t-{partition}");
        fs::rename(two.failing.join(&name), two.kept.join(&name)).expect("they are on one disk");
    }
    two.tarn.reconfigure(&options(&[&two.kept]));
    two.start_again();
    assert!(two.tarn.output().contains("no partition is missed: it is forgotten"), "{}", two.tarn.output());
    let mut cluster = Cluster::connect(&two.tarn.bootstrap());
    let topic = cluster.topic("t");
    for partition in &topic.partitions {
        assert_eq!(cluster.offsets(&topic, partition).high_watermark, RECORDS as i64, "{partition:?}");
    }
    two.tarn.stop();
    two.start_again();
    assert!(!since_start(&two.tarn).contains("a log directory is gone"), "{}", two.tarn.output());
    two.tarn.stop();
}

#[test]
fn a_note_of_directories_that_is_damaged_is_said_and_written_anew() {
    let mut two = two_dirs();
    two.tarn.stop();
    let note = two.kept.join("known-directories");
    let whole = fs::read_to_string(&note).expect("it was written");
    assert!(whole.contains(&directory_id(&two.failing)), "{whole}");
    fs::write(&note, "nonsense").expect("it is ours");
    two.start_again();
    assert!(two.tarn.output().contains("nothing in it is believed"), "{}", two.tarn.output());
    assert_eq!(fs::read_to_string(&note).expect("it was written"), whole);
    two.tarn.stop();
}

#[test]
fn a_copy_of_a_directory_keeps_the_node_from_starting() {
    let mut two = two_dirs();
    two.tarn.stop();
    fs::copy(two.kept.join("meta.properties"), two.failing.join("meta.properties")).expect("it is ours");
    let refused = two.tarn.command(&["server", &two.tarn.config().display().to_string()]);
    let names = [&two.kept, &two.failing].map(|dir| dir.display().to_string());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(names.iter().all(|name| refused.stderr.contains(&**name)), "{refused:?}");
    assert!(refused.stderr.contains("the same directory.id"), "{refused:?}");
}

#[test]
fn a_new_directory_is_formatted_with_the_command_that_the_start_says() {
    let mut two = two_dirs();
    two.tarn.stop();
    let new = two.kept.with_extension("new");
    two.tarn.reconfigure(&options(&[&new, &two.kept, &two.failing]));
    let config = two.tarn.config().display().to_string();
    let refused = two.tarn.command(&["server", &config]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let command = refused.stderr.lines().find_map(|line| line.split_once(" format ")).expect("a command").1;
    let arguments: Vec<&str> = ["format"].into_iter().chain(command.split_whitespace()).collect();
    two.tarn.command(&arguments).ok();
    two.start_again();
    two.tarn.stop();
}

/// What the node has said since it was started last.
fn since_start(tarn: &Tarn) -> String {
    let said = tarn.output();
    said.rsplit_once(" starting ").map_or(said.clone(), |(_, last)| last.to_owned())
}

fn forget(tarn: &Tarn, id: &str) -> Finished {
    let config = tarn.config().display().to_string();
    tarn.command(&["format", "--config", &config, &format!("--forget-directory={id}")])
}

/// What `meta.properties` has as its `directory.id`.
fn directory_id(dir: &Path) -> String {
    let text = fs::read_to_string(dir.join("meta.properties")).expect("it was formatted");
    let id = text.lines().find_map(|line| line.strip_prefix("directory.id="));
    id.expect("it has one").to_owned()
}

/// A node with a log directory whose syncs fail while a file is there.
struct TwoDirs {
    tarn: Tarn,
    kept: PathBuf,
    failing: PathBuf,
    trigger: PathBuf,
    environment: Vec<(&'static str, String)>,
    files: TempDir,
}

impl TwoDirs {
    /// Starts the node again, with syncs that fail while the trigger is there.
    fn start_again(&mut self) {
        self.tarn.start_again_with(&named(&self.environment));
    }

    /// Starts the node again and waits until it answers: not all of its partitions will be in service.
    fn start_without_the_failing(&mut self) {
        self.tarn.spawn_with(&named(&self.environment));
        let address = self.tarn.bootstrap();
        until_some("tarn to answer", Duration::from_secs(30), || Cluster::try_connect(&address).map(drop));
    }
}

fn named<'a>(environment: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    environment.iter().map(|(name, value)| (*name, &**value)).collect()
}

/// These log directories, of which `kept` has the metadata.
fn options(dirs: &[&PathBuf]) -> TarnOptions {
    let kept = dirs.iter().find(|dir| dir.ends_with("kept")).expect("it holds the metadata");
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    TarnOptions {
        properties: vec![
            ("log.dirs".into(), dirs.join(",")),
            ("metadata.log.dir".into(), kept.display().to_string()),
        ],
        ..TarnOptions::default()
    }
}

fn two_dirs() -> TwoDirs {
    let files = TempDir::with_prefix("tarn-dirs-").expect("the temporary directory is writable");
    let [kept, failing] = ["kept", "failing"].map(|name| files.path().join(name));
    let trigger = files.path().join("now");
    let tarn = Tarn::formatted(&options(&[&kept, &failing]));
    let environment = vec![
        ("LD_PRELOAD", preloaded(files.path()).display().to_string()),
        ("FAIL_UNDER", failing.display().to_string()),
        ("FAIL_WHEN", trigger.display().to_string()),
    ];
    let mut two = TwoDirs { tarn, kept, failing, trigger, environment, files };
    two.start_again();
    two
}

/// Writes a record, with so much patience.
fn is_written(tarn: &Tarn, partition: i32, patience_ms: u32) -> bool {
    let (bootstrap, partition) = (tarn.bootstrap(), partition.to_string());
    let timeout = format!("message.timeout.ms={patience_ms}");
    let arguments = ["-P", "-b", &bootstrap, "-t", "t", "-p", &partition, "-X", &timeout];
    kcat(&arguments, Some(b"after\n")).code == Some(0)
}

/// The partitions of the topic `t` that have their directory here.
fn partitions_in(dir: &Path) -> BTreeSet<i32> {
    let entries =
        fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("it can be read").file_name());
    let number = |name: &str| name.strip_prefix("t-")?.parse().ok();
    entries.filter_map(|name| number(&name.to_string_lossy())).collect()
}

/// The library that lets syncs fail.
fn preloaded(directory: &Path) -> PathBuf {
    let library = directory.join("fail_syncs.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/fail_syncs.c");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    run("cc", command, None, LIMIT).ok();
    library
}
