//! Where a node keeps its logs, its metadata, and what it cuts off logs for a mirror.
//!
//! Invariant: no name that an export gets can be taken for a log directory's own: neither for the directory itself
//! nor for one of its partitions.

use std::path::{Component, Path, PathBuf};

use tarn_record::BrokerId;

use super::ConfigError;
use super::reader::Reader;

/// The key of the directory for exports.
const EXPORTS: &str = "tarn.mirror.export.dir";

/// Where that is unset, its name in the directory of the metadata log.
const EXPORTS_NAME: &str = "mirror-exports";

/// How Kafka and Tarn end the names of directories that are out of the way.
const SET_ASIDE: [&str; 3] = ["-delete", "-stray", "-future"];

/// The directory for what a node cuts off logs for a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorExports {
    /// It lies beside the metadata log, where no other node is.
    Own(PathBuf),
    /// `tarn.mirror.export.dir`: nodes of this cluster and of others may have been given the same.
    Given(PathBuf),
}

impl MirrorExports {
    /// The directory of one node, in which no other one copies.
    pub fn of_node(&self, cluster_id: &str, node: BrokerId) -> PathBuf {
        match self {
            MirrorExports::Own(path) => path.clone(),
            MirrorExports::Given(path) => path.join(cluster_id).join(node.to_string()),
        }
    }

    /// The directory, as it was given.
    pub fn path(&self) -> &Path {
        match self {
            MirrorExports::Own(path) | MirrorExports::Given(path) => path,
        }
    }
}

/// See the module.
pub(super) struct Directories {
    pub(super) logs: Vec<PathBuf>,
    pub(super) metadata_log: PathBuf,
    pub(super) mirror_exports: MirrorExports,
}

impl Directories {
    /// Reads them.
    ///
    /// # Errors
    /// Where there is none for logs, one is given twice, or one for exports is within another.
    pub(super) fn read(reader: &Reader<'_>) -> Result<Directories, ConfigError> {
        let logs = log_dirs(reader)?;
        let Some(first) = logs.first().cloned() else {
            return Err(ConfigError::Missing("log.dirs"));
        };
        let metadata_log = reader.optional("metadata.log.dir")?.map_or(first, PathBuf::from);
        let mirror_exports = match reader.optional(EXPORTS)? {
            Some(given) => MirrorExports::Given(PathBuf::from(given)),
            None => MirrorExports::Own(metadata_log.join(EXPORTS_NAME)),
        };
        let is_a_place_of = |dir: &PathBuf| is_a_logs_place(dir, mirror_exports.path());
        if logs.iter().any(is_a_place_of) || is_a_place_of(&metadata_log) {
            return Err(
                reader.refuse(EXPORTS, "it is a log directory, or would be taken for a partition in one")
            );
        }
        Ok(Directories { logs, metadata_log, mirror_exports })
    }
}

/// `log.dirs`, or the one of `log.dir` where that is not given.
fn log_dirs(reader: &Reader<'_>) -> Result<Vec<PathBuf>, ConfigError> {
    const KEY: &str = "log.dirs";
    let listed = if reader.is_given(KEY) { reader.list(KEY)? } else { reader.list("log.dir")? };
    if listed.is_empty() {
        return Err(ConfigError::Inconsistent(
            "At least one log directory must be defined via log.dirs or log.dir.".to_owned(),
        ));
    }
    let mut dirs: Vec<PathBuf> = Vec::with_capacity(listed.len());
    for dir in listed.into_iter().map(PathBuf::from) {
        if dirs.contains(&dir) {
            return Err(reader.refuse(KEY, "each directory is to be listed once"));
        }
        dirs.push(dir);
    }
    Ok(dirs)
}

/// True where `path` is the log directory `dir`, or lies in what the node would take for a partition of it. Links are
/// not followed.
pub fn is_a_logs_place(dir: &Path, path: &Path) -> bool {
    let Ok(below) = path.strip_prefix(dir) else { return false };
    match below.components().next() {
        None => true,
        Some(Component::Normal(name)) => {
            let name = name.to_string_lossy();
            let number = name.rsplit_once('-').map_or("", |(_, number)| number);
            let is_partition = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            is_partition || SET_ASIDE.iter().any(|suffix| name.ends_with(suffix))
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effective::StaticConfigs;

    #[test]
    fn exports_lie_beside_the_metadata_log_where_nothing_else_is_said() {
        let exports = |more: &[(&str, &str)]| {
            read(more).map(|found| found.mirror_exports.of_node("cluster", BrokerId(7)))
        };
        assert_eq!(exports(&[]), Ok(PathBuf::from("/a/mirror-exports")));
        assert_eq!(exports(&[("metadata.log.dir", "/m")]), Ok(PathBuf::from("/m/mirror-exports")));
        assert_eq!(exports(&[(EXPORTS, "/e")]), Ok(PathBuf::from("/e/cluster/7")));
        assert_eq!(
            exports(&[(EXPORTS, "/a/exports/of-mirrors")]),
            Ok(PathBuf::from("/a/exports/of-mirrors/cluster/7"))
        );
    }

    #[test]
    fn nodes_that_are_given_the_same_directory_have_one_of_their_own_in_it() {
        let given = MirrorExports::Given(PathBuf::from("/e"));
        let of: std::collections::BTreeSet<_> = [("a", 1), ("a", 2), ("b", 1)]
            .map(|(cluster, node)| given.of_node(cluster, BrokerId(node)))
            .into();
        assert_eq!(of.len(), 3, "{of:?}");
    }

    #[test]
    fn exports_never_lie_where_logs_do() {
        for place in ["/a", "/b/", "/m", "/b/orders-0", "/a/orders-12/exports", "/a/orders-0.17-delete"] {
            let refused = read(&[("metadata.log.dir", "/m"), (EXPORTS, place)]).map(|found| found.logs);
            let refused = refused.expect_err(place).to_string();
            assert!(refused.contains(EXPORTS) && refused.contains(place), "{refused}");
        }
    }

    fn read(more: &[(&str, &str)]) -> Result<Directories, ConfigError> {
        let given = [("log.dirs", "/a,/b")].into_iter().chain(more.iter().copied());
        let given: StaticConfigs = given.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Directories::read(&Reader::new(&given))
    }
}
