//! The source that mirrors are tested against: a cluster of one with every kind of partition, made once
//! by `tests/kafka/java/DataSet.java` and kept as a directory. Each test starts a node on its own copy,
//! so it may kill, restart or change it.

use crate::kafka::{KafkaNode, NodeOptions, copy_directory};
use crate::kit_files::{kit_dir, source_root};
use crate::tools::java_program;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

/// More than this many records are in the set.
pub const RECORDS: i64 = 1_000_000;

/// The leader epochs of the set's partitions are at least this far ahead of a new topic's.
pub const EPOCHS_AHEAD: i32 = 20;

const BUILD_LIMIT: Duration = Duration::from_secs(240);

/// A running node with the data set.
#[derive(Debug)]
pub struct Source {
    /// The node.
    pub node: KafkaNode,
    _copy: TempDir,
}

impl Source {
    /// Starts a node on a copy of the data set, which the first caller makes.
    ///
    /// # Panics
    /// Where the set cannot be made.
    pub fn start() -> Source {
        Source::start_with(NodeOptions::default())
    }

    /// `start`, with options.
    ///
    /// # Panics
    /// Where the set cannot be made.
    pub fn start_with(options: NodeOptions) -> Source {
        let copy = TempDir::with_prefix("tarn-source-").expect("the temporary directory is writable");
        let data = copy.path().join("data");
        copy_directory(&built(), &data);
        let node = KafkaNode::start(&NodeOptions { data: Some(data), ..options });
        Source { node, _copy: copy }
    }

    /// Its address.
    pub fn bootstrap(&self) -> String {
        self.node.bootstrap()
    }
}

/// Copies the directory with the data set, which the first caller makes.
///
/// # Panics
/// Where the set cannot be made.
pub fn copy_into(directory: &Path) {
    copy_directory(&built(), directory);
}

/// Fills a running cluster with the same kinds of partitions. `broker_epoch` raises the leader epochs of a
/// cluster of one. `controller` is `-` where there is none to ask: then cleaners must be off before anything is
/// compared.
///
/// # Panics
/// Where that fails.
pub fn fill(bootstrap: &str, controller: &str, records: i64, replication: i32, broker_epoch: Option<i64>) {
    let arguments = [
        bootstrap.to_string(),
        controller.to_string(),
        records.to_string(),
        replication.to_string(),
        broker_epoch.unwrap_or(-1).to_string(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    eprintln!("{}", java_program("DataSet", &arguments, None, BUILD_LIMIT).ok());
}

/// The directory with the data set, made if it is not there or was made by other programs than today's.
fn built() -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory = kit_dir().join("dataset");
    fs::create_dir_all(&directory).expect("the kit's directory is writable");
    let lock = File::create(directory.join("lock")).expect("the kit's directory is writable");
    lock.lock().expect("another test process lets go of the lock");
    let (data, stamp) = (directory.join("data"), directory.join("stamp"));
    let wanted = recipe(RECORDS);
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return data;
    }
    remove_if_there(&data);
    // On a busy machine a heartbeat may be late; a leader lost in between would change the set.
    let patient = ("broker.session.timeout.ms".to_string(), "20000".to_string());
    let mut node = KafkaNode::start(&NodeOptions { properties: vec![patient], ..NodeOptions::default() });
    fill(&node.bootstrap(), &node.controller(), RECORDS, 1, Some(node.broker_epoch()));
    node.stop();
    copy_directory(&node.data(), &data);
    fs::write(&stamp, wanted).expect("the kit's directory is writable");
    data
}

/// Everything that decides what a set of so many records looks like.
pub(crate) fn recipe(records: i64) -> String {
    let java = source_root().join("tests/kafka/java");
    let names = ["DataSet.java", "Producing.java", "RawBatches.java", "Fence.java"];
    let read = |name: &str| {
        let file = java.join(name);
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    format!("{records}\n") + &names.map(read).concat()
}

fn remove_if_there(directory: &Path) {
    if directory.exists() {
        fs::remove_dir_all(directory).expect("the kit's directory is writable");
    }
}
