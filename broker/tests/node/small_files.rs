//! Every small file that a start reads, damaged in every way: the node starts and serves, or says which file
//! it is, and nothing panics.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::running::{Running, copy};
use tarn_wire::ErrorCode;

/// What becomes of a node one of whose files is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It starts, and every record is there.
    Serves,
    /// It starts, without this one partition.
    WithoutThePartition,
    /// It says which file it is.
    RefusesToStart,
}

use Fate::{RefusesToStart, Serves, WithoutThePartition};

/// The files; what becomes of a node where one has no right content, and where it cannot be read.
const FILES: [(&str, Fate, Fate); 11] = [
    ("meta.properties", RefusesToStart, RefusesToStart),
    (".kafka_cleanshutdown", Serves, RefusesToStart),
    ("recovery-point-offset-checkpoint", Serves, Serves),
    ("replication-offset-checkpoint", Serves, Serves),
    ("log-start-offset-checkpoint", Serves, Serves),
    ("cleaner-offset-checkpoint", Serves, Serves),
    ("t-0/partition.metadata", WithoutThePartition, WithoutThePartition),
    ("t-0/leader-epoch-checkpoint", Serves, WithoutThePartition),
    ("t-0/truncation-checkpoint", Serves, WithoutThePartition),
    ("__cluster_metadata-0/quorum-state", RefusesToStart, RefusesToStart),
    ("__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", RefusesToStart, RefusesToStart),
];

#[test]
fn a_small_file_without_its_content_is_done_without_or_named() {
    let left = a_node_that_was();
    for (file, fate, _) in FILES {
        let whole = fs::read(left.path().join(file)).unwrap_or_default();
        let contents: [&[u8]; 4] =
            [&whole[..whole.len() / 2], b"", b"\xff\xfe\x00 no such thing\n", &[0; 64]];
        for content in contents {
            let files = tempfile::tempdir().expect("a directory");
            copy(left.path(), files.path());
            fs::write(files.path().join(file), content).expect("there is room");
            // A crash before the first flush leaves it empty.
            let is_empty_id = file.ends_with("partition.metadata") && content.is_empty();
            check(files, file, if is_empty_id { Serves } else { fate });
        }
    }
}

#[test]
fn a_small_file_that_cannot_be_read_is_done_without_or_named() {
    let left = a_node_that_was();
    for (file, _, fate) in FILES {
        let files = tempfile::tempdir().expect("a directory");
        copy(left.path(), files.path());
        let path = files.path().join(file);
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).expect("there is room");
        check(files, file, fate);

        let files = tempfile::tempdir().expect("a directory");
        copy(left.path(), files.path());
        let path = files.path().join(file);
        if fs::exists(&path).expect("it can be looked for") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("it is ours");
            // Whoever may do everything may read it all the same, and nothing is wrong.
            check(files, file, if fs::read(&path).is_ok() { Serves } else { fate });
        }
    }
}

#[test]
fn a_small_file_that_is_lost_is_done_without() {
    let left = a_node_that_was();
    for (file, _, _) in FILES.iter().filter(|(file, ..)| *file != "meta.properties") {
        let files = tempfile::tempdir().expect("a directory");
        copy(left.path(), files.path());
        let _ = fs::remove_file(files.path().join(file));
        check(files, file, Serves);
    }
}

/// A directory with two records in "t", cleanly stopped.
fn a_node_that_was() -> tempfile::TempDir {
    let node = Running::new("");
    let mut client = node.client();
    client.create("t", 1, &[]);
    client.create("other", 1, &[]);
    for offset in 0..2 {
        assert_eq!(client.produce("t", -1, 10).base_offset, offset);
    }
    node.stop()
}

fn check(files: tempfile::TempDir, file: &str, fate: Fate) {
    let name = Path::new(file).file_name().expect("it has one").to_string_lossy().into_owned();
    match (Running::try_on(files), fate) {
        (Err(refused), RefusesToStart) => assert!(refused.contains(&name), "{file}: {refused}"),
        (Ok(node), Serves | WithoutThePartition) => {
            let mut client = node.client();
            assert_eq!(client.produce("other", 1, 10).error_code, 0, "{file}");
            let produced = client.produce("t", 1, 10);
            let expected = if fate == Serves { (0, 2) } else { (ErrorCode::KAFKA_STORAGE_ERROR.0, -1) };
            assert_eq!((produced.error_code, produced.base_offset), expected, "{file}");
        }
        (started, _) => panic!("{file}: {fate:?} was expected, not {:?}", started.map(drop)),
    }
}
