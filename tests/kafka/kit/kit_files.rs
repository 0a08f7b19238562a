//! Where the kit's files are: jars, class archives, the built `tarn`.
//!
//! `tests/run.sh` puts them there; `TARN_KIT` and `TARN_BIN` name other places.

use std::env;
use std::path::{Path, PathBuf};

/// The root of the source tree.
pub fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the tree").to_path_buf()
}

/// The directory that `tests/run.sh` fills.
pub fn kit_dir() -> PathBuf {
    env::var_os("TARN_KIT").map_or_else(|| source_root().join("target/kit"), PathBuf::from)
}

/// The `tarn` to test.
///
/// # Panics
/// Where it is not built.
pub fn tarn_binary() -> PathBuf {
    let binary =
        env::var_os("TARN_BIN").map_or_else(|| source_root().join("target/debug/tarn"), PathBuf::from);
    assert!(binary.is_file(), "{} is missing: cargo build -p tarn", binary.display());
    binary
}

/// One file of the kit.
///
/// # Panics
/// Where it is missing.
pub fn kit_file(name: &str) -> PathBuf {
    let file = kit_dir().join(name);
    assert!(file.exists(), "{} is missing: tests/kafka/prepare.sh", file.display());
    file
}

/// The class path of Kafka 4.4.0 and of the programs in `tests/kafka/java`. Its order is the one that
/// the class archives were made with.
pub fn class_path() -> String {
    let list = kit_file("k440/current/classpath");
    std::fs::read_to_string(&list)
        .unwrap_or_else(|error| panic!("{}: {error}", list.display()))
        .trim()
        .to_string()
}
