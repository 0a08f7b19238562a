//! A log that cannot be made or opened: what its clients are told, and that it comes into service by itself.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use tarn_wire::ErrorCode;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::{FetchRequest, ListOffsetsRequest};

use crate::running::{Client, PATIENCE, Running, copy};

#[test]
fn a_log_that_could_not_be_made_is_made_once_it_can_be() {
    let node = Running::new("");
    let in_the_way = node.log("t", 0);
    fs::write(&in_the_way, "no directory").expect("there is room");
    let mut client = node.client();
    client.create("t", 2, &[]);
    let offline = ErrorCode::KAFKA_STORAGE_ERROR.0;
    assert_eq!(client.produce("t", 1, 10).error_code, offline);
    assert_eq!(fetch(&mut client, 12), offline);
    assert_eq!(fetch(&mut client, 5), ErrorCode::NOT_LEADER_OR_FOLLOWER.0, "it does not know the other");
    assert_eq!(end(&mut client), offline);
    fs::remove_file(&in_the_way).expect("it is there");
    await_service(&mut client);
    assert_eq!((fetch(&mut client, 12), end(&mut client)), (0, 0));
}

#[test]
fn a_log_that_could_not_be_opened_at_the_start_is_opened_once_it_can_be() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    assert_eq!(node.client().produce("t", -1, 10).base_offset, 0);
    let files = node.stop();
    let name = "00000000000000000000.log.swap";
    fs::write(files.path().join("t-0").join(name), "an interrupted compaction").expect("there is room");
    let node = Running::again(files.path());
    let mut client = node.client();
    assert_eq!(client.produce("t", 1, 10).error_code, ErrorCode::KAFKA_STORAGE_ERROR.0);
    fs::remove_file(node.log("t", 0).join(name)).expect("it is there");
    assert_eq!(await_service(&mut client), 1, "with what was in it");
}

#[test]
fn a_log_that_is_opened_later_holds_up_nobody_else() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.create("other", 1, &[]);
    assert_eq!(client.produce("t", -1, 10).base_offset, 0);
    let files = node.stop();
    let swap = "00000000000000000000.log.swap";
    fs::write(files.path().join("t-0").join(swap), "an interrupted compaction").expect("there is room");
    let node = Running::again_with(files.path(), "tarn.cores=0");
    let mut client = node.client();
    let [first, second] =
        ["partition.metadata", "leader-epoch-checkpoint"].map(|file| Held::new(node.log("t", 0).join(file)));
    fs::remove_file(node.log("t", 0).join(swap)).expect("it is there");
    // From here on the opening is at the second, where it waits.
    first.let_go();
    for offset in 0..20 {
        assert_eq!(client.produce("other", -1, 10).base_offset, offset);
        assert_eq!(client.produce("t", -1, 10).error_code, ErrorCode::KAFKA_STORAGE_ERROR.0);
    }
    client.create("later", 1, &[]);
    assert_eq!(client.produce("later", 1, 10).error_code, 0, "nor does it hold up the metadata");
    second.let_go();
    assert_eq!(await_service(&mut client), 1, "with what was in it");
}

#[test]
fn a_topic_is_deleted_once_its_log_is_not_being_opened_any_more() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    let files = node.stop();
    let swap = "00000000000000000000.log.swap";
    fs::write(files.path().join("t-0").join(swap), "an interrupted compaction").expect("there is room");
    let node = Running::again_with(files.path(), "tarn.cores=0");
    let [first, second] =
        ["partition.metadata", "leader-epoch-checkpoint"].map(|file| Held::new(node.log("t", 0).join(file)));
    fs::remove_file(node.log("t", 0).join(swap)).expect("it is there");
    first.let_go();
    std::thread::scope(|scope| {
        scope.spawn(|| node.client().delete("t"));
        second.let_go();
    });
    let mut client = node.client();
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", 1, 10).base_offset, 0, "a log of its own");
}

#[test]
fn a_topic_whose_log_could_not_be_made_can_be_deleted() {
    let node = Running::new("");
    let in_the_way = node.log("t", 0);
    fs::write(&in_the_way, "no directory").expect("there is room");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.delete("t");
    fs::remove_file(&in_the_way).expect("nobody took it away");
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", 1, 10).error_code, 0);
}

#[test]
fn a_log_that_was_left_by_a_crash_and_never_opened_since_is_checked_by_the_next_start() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    assert_eq!(node.client().produce("t", -1, 100).base_offset, 0);
    let files = node.stop();
    let marker = ".kafka_cleanshutdown";
    for of_a_clean_stop in [marker, "recovery-point-offset-checkpoint"] {
        fs::remove_file(files.path().join(of_a_clean_stop)).expect("it is there");
    }
    let log = files.path().join("t-0").join("00000000000000000000.log");
    let mut bytes = fs::read(&log).expect("it is there");
    *bytes.last_mut().expect("it has a batch") ^= 1;
    fs::write(&log, bytes).expect("there is room");
    let in_the_way = "00000000000000000000.log.swap";
    fs::write(files.path().join("t-0").join(in_the_way), "an interrupted compaction").expect("there is room");
    let node = Running::again(files.path());
    assert_eq!(node.client().produce("t", 1, 10).error_code, ErrorCode::KAFKA_STORAGE_ERROR.0);
    let files = node.stop();
    assert!(!files.path().join(marker).exists(), "one log of it was not closed in order");
    fs::remove_file(files.path().join("t-0").join(in_the_way)).expect("it is there");
    let node = Running::again(files.path());
    assert_eq!(node.client().produce("t", 1, 10).base_offset, 0, "the damaged batch was found and is gone");
    assert!(node.stop().path().join(marker).exists());
}

#[test]
fn a_topic_whose_directory_does_not_say_whose_it_is_can_be_deleted_and_made_again() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    assert_eq!(node.client().produce("t", -1, 10).base_offset, 0);
    let files = node.stop();
    fs::write(files.path().join("t-0").join("partition.metadata"), "version: x").expect("there is room");
    let node = Running::again(files.path());
    let mut client = node.client();
    assert_eq!(client.produce("t", 1, 10).error_code, ErrorCode::KAFKA_STORAGE_ERROR.0);
    client.delete("t");
    client.create("t", 1, &[]);
    assert_eq!(await_service(&mut client), 0, "a new log");
    let files = node.stop();
    let names = fs::read_dir(files.path()).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let strays: Vec<_> = names.filter(|name| name.starts_with("t-0.") && name.ends_with("-stray")).collect();
    let [stray] = &strays[..] else { panic!("it is kept: {strays:?}") };
    assert!(files.path().join(stray).join("00000000000000000000.log").exists());
}

#[test]
fn a_directory_that_does_not_say_whose_it_is_and_whose_topic_is_gone_is_in_nobodys_way() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    let files = node.stop();
    fs::create_dir(files.path().join("u-0")).expect("there is room");
    fs::write(files.path().join("u-0").join("partition.metadata"), "version: x").expect("there is room");
    fs::write(files.path().join("u-0").join("00000000000000000000.log"), "").expect("there is room");
    let node = Running::again(files.path());
    let mut client = node.client();
    client.create("u", 1, &[]);
    assert_eq!(client.produce("u", 1, 10).error_code, 0);
    assert_eq!(client.produce("t", 1, 10).error_code, 0);
}

#[test]
fn a_copy_of_a_partition_under_another_name_is_put_aside_and_holds_up_no_stop_in_order() {
    let node = Running::new("");
    for topic in ["orders", "zz"] {
        node.client().create(topic, 1, &[]);
    }
    assert_eq!(node.client().produce("orders", -1, 10).error_code, 0);
    let files = node.stop();
    let copies = ["orders-7", "yy-0", "zz-0"].map(|name| files.path().join(name));
    fs::remove_dir_all(&copies[2]).expect("it is ours");
    for copied in &copies {
        fs::create_dir(copied).expect("there is room");
        copy(&files.path().join("orders-0"), copied);
    }
    // As a crash leaves it.
    fs::remove_file(files.path().join(".kafka_cleanshutdown")).expect("it was closed in order");
    let node = Running::again(files.path());
    let mut client = node.client();
    let begun = Instant::now();
    while client.produce("orders", 1, 10).error_code != 0 {
        assert!(begun.elapsed() < PATIENCE, "it is not recovered");
    }
    assert_eq!(client.produce("zz", 1, 10).base_offset, 0, "a log of its own");
    let files = node.stop();
    assert!(files.path().join(".kafka_cleanshutdown").exists(), "the stop was in order");
    let names = fs::read_dir(files.path()).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let names: Vec<_> = names.collect();
    for copied in ["orders-7", "yy-0", "zz-0"] {
        let is_stray = |name: &&String| name.starts_with(&format!("{copied}.")) && name.ends_with("-stray");
        let stray = names.iter().find(is_stray).unwrap_or_else(|| panic!("{copied} is kept: {names:?}"));
        assert!(files.path().join(stray).join("00000000000000000000.log").exists());
    }
}

/// A pipe in the place of a file: whoever opens it waits.
struct Held {
    path: PathBuf,
    kept: Option<Vec<u8>>,
}

impl Held {
    fn new(path: PathBuf) -> Held {
        let kept = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        let made = Command::new("mkfifo").arg(&path).status().expect("it is a tool of every system");
        assert!(made.success());
        Held { path, kept }
    }

    /// Waits until somebody opens it, who then reads nothing. All who come later find what was there.
    fn let_go(self) {
        let began = Instant::now();
        let reader = loop {
            let opened = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&self.path);
            if let Ok(reader) = opened {
                break reader;
            }
            assert!(began.elapsed() < PATIENCE, "nobody reads {}", self.path.display());
            std::thread::yield_now();
        };
        let put_back = || self.kept.as_ref().map_or(Ok(()), |kept| fs::write(&self.path, kept));
        // Whoever opened it has read what its size says, which is nothing, and its directory may have been renamed since.
        if let Err(error) = fs::remove_file(&self.path).and_then(|()| put_back()) {
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
        drop(reader);
    }
}

/// Opening a pipe that nobody reads fails with this, and waits without.
const O_NONBLOCK: i32 = 0o4000;

/// Writes until it is taken; its offset.
fn await_service(client: &mut Client) -> i64 {
    let began = Instant::now();
    loop {
        let produced = client.produce("t", 1, 10);
        if produced.error_code == 0 {
            return produced.base_offset;
        }
        assert_eq!(produced.error_code, ErrorCode::KAFKA_STORAGE_ERROR.0);
        assert!(began.elapsed() < PATIENCE, "it is not tried again");
    }
}

/// The error of a fetch from partition 0.
fn fetch(client: &mut Client, version: i16) -> i16 {
    let partition = FetchPartition { partition_max_bytes: 1000, ..Default::default() };
    let topics = vec![FetchTopic { topic: "t".into(), partitions: vec![partition], ..Default::default() }];
    let request =
        FetchRequest { replica_id: -1, max_bytes: 1000, session_epoch: -1, topics, ..Default::default() };
    client.call(version, &request).responses[0].partitions[0].error_code
}

/// The error of a question for the end of partition 0.
fn end(client: &mut Client) -> i16 {
    let partition = ListOffsetsPartition { timestamp: -1, current_leader_epoch: -1, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: "t".into(), partitions: vec![partition] }];
    let answer = client.call(5, &ListOffsetsRequest { replica_id: -1, topics, ..Default::default() });
    answer.topics[0].partitions[0].error_code
}
