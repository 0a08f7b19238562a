//! The data set of an older release: every kind of partition that it can hold, made once by
//! `tests/kafka/java/DataSet.java` and kept as a directory, beside its jars. Each test starts a cluster of one
//! on its own copy.

use crate::dataset::{fill, recipe};
use crate::kafka::copy_directory;
use crate::kit_files::kit_dir;
use crate::old_kafka::{Controller, OldCluster, Release};
use crate::tools::kcat;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Mutex;
use tempfile::TempDir;

/// More than this many records are in each set.
pub const RECORDS: i64 = 100_000;

/// Topics of records in the formats before 0.11, where the release can hold them, and what each sets.
pub const OLD_FORMATS: [(&str, &str); 2] = [("format.magic0", "0.9.0"), ("format.magic1", "0.10.0")];

/// In no address; `DataSet.java` asks this controller nothing.
const NO_CONTROLLER: &str = "-";

/// A running cluster of one with the data set. Nothing in it is compacted any more.
#[derive(Debug)]
pub struct OldSource {
    /// The cluster, whose only node is 1.
    pub cluster: OldCluster,
    _copy: TempDir,
}

impl OldSource {
    /// Starts a release on a copy of its data set, which the first caller makes.
    ///
    /// # Panics
    /// Where the set cannot be made.
    pub fn start(release: Release) -> OldSource {
        let copy = TempDir::with_prefix("tarn-old-source-").expect("the temporary directory is writable");
        let data = copy.path().join("data");
        copy_directory(&built(release), &data);
        let cluster = OldCluster::start(release, &data, 1, &[("log.cleaner.enable", "false")]);
        OldSource { cluster, _copy: copy }
    }

    /// Its address.
    pub fn bootstrap(&self) -> String {
        self.cluster.bootstrap()
    }
}

/// Whether a release can hold records in the formats before 0.11.
pub fn holds_old_formats(release: Release) -> bool {
    // From 3.0 on the broker ignores a topic's `message.format.version`.
    !release.version.starts_with("3.")
}

fn built(release: Release) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let controller = match release.controller {
        Controller::ZooKeeper => "zookeeper",
        Controller::KRaft => "kraft",
    };
    let directory = kit_dir().join(format!("old-{}/dataset-{controller}", release.version));
    fs::create_dir_all(&directory).expect("the kit's directory is writable");
    let lock = File::create(directory.join("lock")).expect("the kit's directory is writable");
    lock.lock().expect("another test process lets go of the lock");
    let (data, stamp) = (directory.join("data"), directory.join("stamp"));
    let wanted = recipe(RECORDS) + &format!("{OLD_FORMATS:?}");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return data;
    }
    if data.exists() {
        fs::remove_dir_all(&data).expect("the kit's directory is writable");
    }
    let scratch = TempDir::with_prefix("tarn-old-set-").expect("the temporary directory is writable");
    let making = scratch.path().join("data");
    let cluster = OldCluster::start(release, &making, 1, &[]);
    fill(&cluster.bootstrap(), NO_CONTROLLER, RECORDS, 1, None);
    if holds_old_formats(release) {
        // The broker turns what is produced into magic 0 and 1.
        for (name, version) in OLD_FORMATS {
            cluster.create_topic(name, 2, 1, &[("message.format.version", version)]);
            append(&cluster.bootstrap(), name, "as it was once written");
        }
    }
    cluster.shut_down();
    copy_directory(&making, &data);
    fs::write(&stamp, wanted).expect("the kit's directory is writable");
    data
}

/// Appends one record to both partitions of a topic that has two.
///
/// # Panics
/// Where that fails.
pub fn append(bootstrap: &str, topic: &str, text: &str) {
    for partition in ["0", "1"] {
        let arguments =
            ["-P", "-X", "message.timeout.ms=20000", "-b", bootstrap, "-t", topic, "-p", partition];
        kcat(&arguments, Some(format!("{text}\n").as_bytes())).ok();
    }
}
