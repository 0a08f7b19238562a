//! What a stop and a deletion leave on the disk.

use std::path::Path;

use crate::running::Running;

#[test]
fn a_stop_leaves_checkpoints_of_everything_and_a_clean_mark() {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.create("lazy", 1, &[("tarn.flush", "none")]);
    for topic in ["t", "lazy"] {
        (0..3).for_each(|_| assert_eq!(client.produce(topic, 1, 10).error_code, 0));
    }
    let files = node.stop();
    assert!(files.path().join(".kafka_cleanshutdown").exists());
    for checkpoint in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
        assert_eq!(lines(files.path(), checkpoint), ["lazy 0 3", "t 0 3"], "{checkpoint}");
    }
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

/// The lines of a checkpoint file after its version and count.
fn lines(dir: &Path, checkpoint: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(checkpoint)).expect("it is written");
    let mut lines: Vec<_> = text.lines().skip(2).map(str::to_owned).collect();
    lines.sort();
    lines
}
