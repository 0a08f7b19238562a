//! What a stop and a deletion leave on the disk.

use std::path::Path;

use tarn_broker::{Broker, StartError};
use tarn_wire::messages::{FeatureLevelRecord, ProduceRequest};

use crate::running::{self, Running};

#[test]
fn a_stop_leaves_checkpoints_of_everything_and_a_clean_mark() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.create("lazy", 1, &[("flush.policy", "none")]);
    for topic in ["t", "lazy"] {
        (0..3).for_each(|_| assert_eq!(client.produce(topic, 1, 10).error_code, 0));
    }
    let files = node.stop();
    assert!(files.path().join(".kafka_cleanshutdown").exists());
    for checkpoint in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
        assert_eq!(lines(files.path(), checkpoint), ["lazy 0 3", "t 0 3"], "{checkpoint}");
    }
}

/// What was not answered its producer sends again, and after a start a log knows the last batch of each alone.
#[test]
fn what_was_appended_before_a_stop_was_answered() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", -1, 10).error_code, 0);
    (0..500).for_each(|_| client.send(9, &running::produce("t", -1, 10)));
    let files = node.stop();
    let answers = client.receive_all::<ProduceRequest>(9);
    let errors = answers.iter().map(|answer| answer.responses[0].partition_responses[0].error_code);
    let taken = 1 + errors.filter(|error| *error == 0).count();
    assert_eq!(lines(files.path(), "recovery-point-offset-checkpoint"), [format!("t 0 {taken}")]);
}

#[test]
fn a_topic_that_is_made_again_at_once_has_a_log_of_its_own() {
    let node = Running::new("");
    let mut client = node.client();
    for _ in 0..10 {
        client.create("t", 1, &[]);
        (0..5).for_each(|_| assert_eq!(client.produce("t", -1, 10).error_code, 0));
        client.delete("t");
    }
    client.create("t", 1, &[]);
    assert_eq!(client.produce("t", -1, 10).base_offset, 0);
    let files = node.stop();
    assert_eq!(lines(files.path(), "recovery-point-offset-checkpoint"), ["t 0 1"]);
}

#[test]
fn a_start_that_is_refused_after_its_controller_has_begun_leaves_the_clean_mark() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    let files = node.stop();
    let again = tempfile::tempdir().expect("a directory");
    running::copy(files.path(), again.path());
    let of_a_later_tarn = FeatureLevelRecord { name: "mirror.version".into(), feature_level: 99 };
    running::write_metadata(again.path(), &[of_a_later_tarn.into()]);
    let marker = again.path().join(".kafka_cleanshutdown");
    assert!(marker.exists());
    let refused = Broker::start(running::config(again.path(), "")).map(drop).expect_err("it is too old");
    assert!(matches!(refused, StartError::NotRegistered(_)), "{refused}");
    assert!(marker.exists(), "it has changed nothing");
}

#[test]
fn exports_are_not_kept_among_logs_by_whatever_link_they_get_there() {
    let files = Running::new("").stop();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(files.path(), &link).expect("it is new");
    let kept_in = |path: &Path| {
        let more = format!("tarn.mirror.export.dir={}\n", path.display());
        Broker::start(running::config(files.path(), &more)).map(drop)
    };
    for place in ["", "orders-0", "orders-0/below", "orders-0.17-delete"] {
        let refused = kept_in(&link.join(place)).expect_err("it is a log directory's own");
        assert!(matches!(refused, StartError::ExportsAmongLogs { .. }), "{refused}");
    }
    std::fs::create_dir(files.path().join("kept")).expect("it is new");
    let again =
        Running::again_with(files.path(), &format!("tarn.mirror.export.dir={}/kept\n", link.display()));
    drop(again);
}

#[test]
fn a_metadata_log_that_was_lost_is_not_begun_anew_over_partitions() {
    let node = Running::new("");
    node.client().create("t", 1, &[]);
    let files = node.stop();
    let metadata = Path::new("__cluster_metadata-0");
    let log = metadata.join("00000000000000000000.log");
    for lose in [
        (|path: &Path| std::fs::remove_file(path)) as fn(&Path) -> std::io::Result<()>,
        |path| std::fs::File::create(path).map(drop),
        |path| std::fs::remove_dir_all(path.parent().expect("it is in a directory")),
    ] {
        let again = tempfile::tempdir().expect("a directory");
        running::copy(files.path(), again.path());
        lose(&again.path().join(&log)).expect("it is there");
        for _ in 0..2 {
            let refused = Broker::start(running::config(again.path(), "")).map(drop).expect_err("it is lost");
            assert!(matches!(refused, StartError::MetadataLost { partitions: 1, .. }), "{refused}");
            assert!(again.path().join("t-0").exists(), "nothing is renamed");
        }
    }
}

#[test]
fn a_metadata_log_that_lost_its_newest_part_is_not_gone_on_with() {
    let node = Running::new("");
    node.client().create("first", 1, &[]);
    let early = node.stop();
    let node = Running::again(early.path());
    node.client().create("later", 1, &[]);
    let left = node.stop();
    let files = tempfile::tempdir().expect("a directory");
    running::copy(left.path(), files.path());
    // Its files as they were when it was stopped before: whole, and older than the partitions beside them.
    let log = "__cluster_metadata-0/00000000000000000000.log";
    std::fs::copy(early.path().join(log), files.path().join(log)).expect("it is there");
    for _ in 0..2 {
        let refused = Broker::start(running::config(files.path(), "")).map(drop).expect_err("a part is lost");
        let message = refused.to_string();
        assert!(
            message.contains("newest part was lost") && message.contains(".kafka_cleanshutdown"),
            "{message}"
        );
        assert!(files.path().join("later-0").exists(), "nothing is renamed");
    }
    std::fs::remove_file(files.path().join(".kafka_cleanshutdown")).expect("it is as it was found");
    let node = Running::again(files.path());
    assert_eq!(node.client().produce("first", 1, 10).error_code, 0, "the remedy works");
}

/// The lines of a checkpoint file after its version and count.
fn lines(dir: &Path, checkpoint: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(checkpoint)).expect("it is written");
    let mut lines: Vec<_> = text.lines().skip(2).map(str::to_owned).collect();
    lines.sort();
    lines
}
