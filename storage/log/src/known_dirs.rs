//! The file `known-directories`: which log directories a node has had, and where each was last.
//!
//! It lies in the directory of the metadata log. A directory that is taken out of `log.dirs` takes its logs along, and
//! nothing else on the node says that there were any: without this they would be made anew, empty.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use thiserror::Error;

use crate::checkpoints::CheckpointError;
use crate::disk::Disk;
use crate::error::LogError;
use crate::log_dir::{LogDirError, lock};
use crate::meta_properties::DirectoryId;

/// The log directories of a node, by their ids, with their last paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownDirs(pub BTreeMap<DirectoryId, PathBuf>);

/// Why a directory was not forgotten. The file stays as it was.
#[derive(Debug, Error)]
pub enum NotForgotten {
    /// The node has had no such directory, or has forgotten it.
    #[error("the node knows no log directory with the id {id}; those that it knows: {known}")]
    Unknown {
        /// The id.
        id: DirectoryId,
        /// Those that it knows.
        known: KnownDirs,
    },
    /// The node runs, the file is damaged, or the disk refused.
    #[error(transparent)]
    Refused(#[from] LogDirError),
}

impl KnownDirs {
    /// The name of the file in the directory of the metadata log.
    pub const FILE_NAME: &'static str = "known-directories";

    /// Reads the file.
    ///
    /// # Errors
    /// Where it is not the JSON of this version, or a key is not the id of a directory.
    pub fn read(bytes: &[u8]) -> Result<KnownDirs, CheckpointError> {
        let malformed = |line, expected| CheckpointError::Malformed { line, expected };
        let object: Value =
            serde_json::from_slice(bytes).map_err(|error| malformed(error.line(), "a JSON object"))?;
        match object.get(VERSION_KEY) {
            Some(version) if *version == VERSION => {}
            Some(other) => return Err(unsupported(VERSION_KEY, &other.to_string())),
            None => return Err(CheckpointError::MissingKey { key: VERSION_KEY }),
        }
        let dirs = object.get(DIRS_KEY).and_then(Value::as_object);
        let dirs = dirs.ok_or(CheckpointError::MissingKey { key: DIRS_KEY })?.iter();
        let dirs = dirs.map(|(id, path)| match (id.parse::<DirectoryId>(), path.as_str()) {
            (Ok(known), Some(path)) if !known.is_reserved() => Ok((known, PathBuf::from(path))),
            _ => Err(unsupported("a directory's id", id)),
        });
        Ok(KnownDirs(dirs.collect::<Result<_, _>>()?))
    }

    /// The content of the file.
    pub fn write(&self) -> Vec<u8> {
        let dirs = self.0.iter().map(|(id, path)| (id.to_string(), path.to_string_lossy().into()));
        let dirs = dirs.collect::<serde_json::Map<String, Value>>();
        format!("{:#}\n", json!({ VERSION_KEY: VERSION, DIRS_KEY: dirs })).into_bytes()
    }

    /// Forgets a directory, in the file beside the metadata log of a node that does not run; where it was last.
    ///
    /// # Errors
    /// Where the node does not know it, or runs; a file that is damaged; or the disk's refusal.
    pub fn forget(
        disk: &Arc<dyn Disk>,
        metadata_dir: &Path,
        id: DirectoryId,
    ) -> Result<PathBuf, NotForgotten> {
        let _lock = lock(disk, metadata_dir)?;
        let file = metadata_dir.join(KnownDirs::FILE_NAME);
        let mut known = match disk.read_all(&file) {
            Ok(bytes) => KnownDirs::read(&bytes)
                .map_err(|cause| LogDirError::Checkpoint { path: file.clone(), cause })?,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => KnownDirs::default(),
            Err(cause) => return Err(LogDirError::from(LogError::io("read", &file, cause)).into()),
        };
        let Some(path) = known.0.remove(&id) else { return Err(NotForgotten::Unknown { id, known }) };
        disk.write_atomically(&file, &known.write())
            .map_err(|cause| LogDirError::from(LogError::io("write", &file, cause)))?;
        Ok(path)
    }
}

impl std::fmt::Display for KnownDirs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (number, (id, path)) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{id} ({})", path.display())?;
        }
        Ok(())
    }
}

const VERSION_KEY: &str = "version";
const DIRS_KEY: &str = "directories";
const VERSION: i32 = 0;

fn unsupported(key: &'static str, value: &str) -> CheckpointError {
    CheckpointError::Unsupported { key, value: value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Descriptors;
    use crate::disk::RealDisk;
    use crate::log_dir::LogDir;
    use proptest::prelude::*;
    use uuid::Uuid;

    const A: DirectoryId = DirectoryId(Uuid::from_u128(1 << 100));
    const B: DirectoryId = DirectoryId(Uuid::from_u128(2 << 100));

    #[test]
    fn a_directory_has_a_line() {
        let written = String::from_utf8(known(&[(A, "/a"), (B, "/b")]).write()).expect("it is JSON");
        assert!(written.lines().any(|line| line.trim() == format!("\"{A}\": \"/a\",")), "{written}");
    }

    #[test]
    fn what_is_no_such_file_is_told() {
        assert!(matches!(KnownDirs::read(b""), Err(CheckpointError::Malformed { .. })));
        assert_eq!(KnownDirs::read(b"{}"), Err(CheckpointError::MissingKey { key: "version" }));
        assert_eq!(KnownDirs::read(b"{\"version\":1}"), Err(unsupported("version", "1")));
        let no_dirs = KnownDirs::read(b"{\"version\":0}");
        assert_eq!(no_dirs, Err(CheckpointError::MissingKey { key: "directories" }));
        for id in ["x", "AAAAAAAAAAAAAAAAAAAAAQ"] {
            let text = json!({ "version": 0, "directories": { id: "/a" } }).to_string();
            assert_eq!(KnownDirs::read(text.as_bytes()), Err(unsupported("a directory's id", id)));
        }
    }

    #[test]
    fn a_directory_is_forgotten_once_and_not_while_the_node_runs() {
        let files = tempfile::tempdir().expect("a directory");
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let forget = |id| KnownDirs::forget(&disk, files.path(), id);
        let node = LogDir::open(disk.clone(), files.path(), Descriptors::new(10)).expect("it is new");
        assert_eq!(node.known_dirs().expect("none is no damage"), None);
        let both = known(&[(A, "/a"), (B, "/b")]);
        node.write_known_dirs(&both).expect("there is room");
        assert!(matches!(forget(A), Err(NotForgotten::Refused(LogDirError::Locked { .. }))));
        assert_eq!(node.known_dirs().expect("it is whole"), Some(both));
        drop(node);
        assert_eq!(forget(A).expect("it is known"), Path::new("/a"));
        let refused = forget(A).expect_err("it is forgotten").to_string();
        assert!(refused.contains(&A.to_string()) && refused.contains(&format!("{B} (/b)")), "{refused}");
        let node = LogDir::open(disk.clone(), files.path(), Descriptors::new(10)).expect("nobody has it");
        assert_eq!(node.known_dirs().expect("it is whole"), Some(known(&[(B, "/b")])));
    }

    #[test]
    fn forgetting_leaves_the_mark_of_a_stop_in_order() {
        let files = tempfile::tempdir().expect("a directory");
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        std::fs::write(files.path().join(KnownDirs::FILE_NAME), known(&[(A, "/a")]).write()).expect("room");
        std::fs::write(files.path().join(".kafka_cleanshutdown"), "x").expect("room");
        KnownDirs::forget(&disk, files.path(), A).expect("it is known");
        assert!(files.path().join(".kafka_cleanshutdown").exists());
    }

    proptest! {
        #[test]
        fn any_path_reads_back(path in any::<String>()) {
            let dirs = known(&[(A, &path)]);
            prop_assert_eq!(KnownDirs::read(&dirs.write()), Ok(dirs));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = KnownDirs::read(&bytes);
        }
    }

    fn known(dirs: &[(DirectoryId, &str)]) -> KnownDirs {
        KnownDirs(dirs.iter().map(|(id, path)| (*id, PathBuf::from(path))).collect())
    }
}
