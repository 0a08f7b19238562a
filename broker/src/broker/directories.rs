//! Taking the log directories: formatted, ours, and locked for as long as the node runs. As in Kafka one whose disk fails
//! then is out of service, and the node starts with the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use tarn_image::MetadataImage;
use tarn_image::config::server::{ServerConfig, is_a_logs_place};
use tarn_log::meta_properties::{DirectoryId, MetaProperties};
use tarn_log::{Descriptors, Disk, LogDir, LogDirError, LogError, RealDisk};
use tarn_quorum::metadata_log;
use tarn_record::{BrokerId, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tracing::{error, warn};

use super::error::StartError;
use crate::log_dirs::{LogDirs, Stray};

/// The share of the process's files that segments may have; the rest is for connections and the system.
pub(super) fn descriptors_for_segments(files: u64) -> usize {
    usize::try_from(files.saturating_sub(512) / 2).unwrap_or(usize::MAX).max(64)
}

/// What the directories say.
pub(super) struct Opened {
    /// The id of the cluster they belong to.
    pub(super) cluster_id: String,
    /// Those of `log.dirs` that could not be opened.
    pub(super) missing: Vec<PathBuf>,
}

/// Opens the directories into `dirs`.
pub(super) fn open_dirs(
    config: &ServerConfig,
    descriptors: &Arc<Descriptors>,
    dirs: &mut Vec<Arc<LogDir>>,
) -> Result<Opened, StartError> {
    let (mut cluster, mut missing): (Option<String>, Vec<PathBuf>) = (None, Vec::new());
    let mut by_id: BTreeMap<DirectoryId, PathBuf> = BTreeMap::new();
    let mut paths = config.log_dirs.clone();
    if !paths.contains(&config.metadata_log_dir) {
        paths.push(config.metadata_log_dir.clone());
    }
    for path in paths.clone() {
        let dir = match open_dir(&path, descriptors) {
            Ok(dir) => dir,
            Err(StartError::LogDir { dir, cause: LogDirError::Storage(cause) })
                if dir != config.metadata_log_dir
                    && config.log_dirs.iter().any(|other| *other != dir && !missing.contains(other)) =>
            {
                error!(dir = %dir.display(), %cause, "a log directory cannot be opened: what is in it is out of service until the node is started again");
                missing.push(dir);
                continue;
            }
            Err(StartError::NotFormatted { dir, .. }) => {
                return Err(StartError::NotFormatted { dir, cluster: cluster_of_any(&paths) });
            }
            Err(refused) => return Err(refused),
        };
        dirs.push(dir.clone());
        let Some(properties) = dir.properties() else {
            return Err(StartError::NotFormatted { dir: path, cluster: cluster_of_any(&paths) });
        };
        let ours = cluster.get_or_insert_with(|| properties.cluster_id.clone());
        if *ours != properties.cluster_id || properties.node_id != config.node_id {
            return Err(StartError::NotOurs {
                dir: path,
                theirs: format!("node {} of cluster {}", properties.node_id, properties.cluster_id),
                ours: format!("node {} of cluster {ours}", config.node_id),
            });
        }
        if let Some(id) = properties.directory_id
            && let Some(other) = by_id.insert(id, path.clone())
        {
            return Err(StartError::SameDirectory { dir: path, other, id });
        }
    }
    Ok(Opened { cluster_id: cluster.unwrap_or_default(), missing })
}

/// The cluster that the first of these directories belongs to that says so.
fn cluster_of_any(paths: &[PathBuf]) -> Option<String> {
    paths.iter().find_map(|path| {
        let bytes = fs::read(path.join(MetaProperties::FILE_NAME)).ok()?;
        Some(MetaProperties::read(&bytes).ok()?.cluster_id)
    })
}

/// Opens one, and sees that it can be read.
fn open_dir(path: &Path, descriptors: &Arc<Descriptors>) -> Result<Arc<LogDir>, StartError> {
    let failed = |cause| StartError::LogDir { dir: path.to_owned(), cause };
    let properties = path.join(MetaProperties::FILE_NAME);
    match properties.try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(StartError::NotFormatted { dir: path.to_owned(), cluster: None }),
        Err(cause) => {
            return Err(failed(LogError::Io { action: "look for", path: properties, cause }.into()));
        }
    }
    let dir = LogDir::open(Arc::new(RealDisk), path, descriptors.clone()).map_err(failed)?;
    dir.deleted().map_err(failed)?;
    Ok(dir)
}

/// Takes note of the partitions that must be in a directory that is not in service, so that no new log is begun in
/// their place: those that this broker leads, and that are nowhere else. How many they are.
pub(super) fn note_missing(log_dirs: &LogDirs, image: &MetadataImage, broker: BrokerId) -> usize {
    let mut partitions = 0;
    for topic in image.topics().iter() {
        let led = topic.partitions.iter().filter(|(_, registered)| registered.leader == broker);
        for (index, _) in led {
            let partition = TopicIdPartition { topic_id: topic.id, partition: *index };
            partitions += usize::from(log_dirs.note_missing(&topic.name, partition));
        }
    }
    if partitions > 0 {
        warn!(partitions, "out of service: their logs are in no directory that could be opened");
    }
    partitions
}

/// Refuses to export into a log directory, or a partition in one, by whatever links: a topic that is deleted, or a
/// start that looks for strays, would take the exports along.
pub(super) fn refuse_exports_among_logs(config: &ServerConfig) -> Result<(), StartError> {
    let exports = resolved(config.mirror_exports.path());
    let mut dirs = config.log_dirs.iter().chain([&config.metadata_log_dir]);
    match dirs.find(|dir| is_a_logs_place(&resolved(dir), &exports)) {
        Some(dir) => Err(StartError::ExportsAmongLogs { exports, dir: dir.clone() }),
        None => Ok(()),
    }
}

/// The path without links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = &std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, real)) = there else { return path.to_owned() };
    path.strip_prefix(above).map_or(real.clone(), |rest| real.join(rest))
}

/// Refuses to begin a cluster anew over partitions that are there: an empty metadata log beside them was lost.
pub(super) fn refuse_lost_metadata(config: &ServerConfig, dirs: &[Arc<LogDir>]) -> Result<(), StartError> {
    let dir = config.metadata_log_dir.join(format!("{}-0", metadata_log::TOPIC));
    if holds_metadata(&dir).map_err(StartError::Machine)? {
        return Ok(());
    }
    let mut partitions = 0;
    for one in dirs {
        let found = one.partitions();
        partitions += found.map_err(|cause| StartError::LogDir { dir: one.path().to_owned(), cause })?.len();
    }
    if partitions == 0 { Ok(()) } else { Err(StartError::MetadataLost { dir, partitions }) }
}

/// True where there is a record, or a snapshot that is later than the one of a format.
fn holds_metadata(dir: &Path) -> io::Result<bool> {
    let entries = match RealDisk.list(dir) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    Ok(entries.iter().any(|entry| match entry.name.rsplit_once('.') {
        Some((_, "log")) => entry.len > 0,
        Some((name, "checkpoint")) => {
            name.starts_with(|first: char| first.is_ascii_digit()) && !name.starts_with(FIRST_OFFSET)
        }
        _ => false,
    }))
}

/// How the name of the snapshot begins that a format leaves.
const FIRST_OFFSET: &str = "00000000000000000000-";

/// A start that was refused has changed nothing: what was closed in order is taken for that by the next
/// start too, which else would cut what this one refused to cut. `metadata` is the directory of the metadata log
/// and where its controller left that, if one has begun.
pub(super) fn leave_as_found(dirs: &[Arc<LogDir>], metadata: Option<(&Path, Offset)>) {
    for dir in dirs {
        let Some(mut found) = dir.clean_shutdown() else { continue };
        if let Some((_, end)) = metadata.filter(|(path, _)| *path == dir.path()) {
            found.metadata_end = Some(end);
        }
        if let Err(error) = dir.mark_clean(found) {
            warn!(dir = %dir.path().display(), %error, "no longer marked as cleanly shut down");
        }
    }
}

/// Directories of partitions that the metadata does not know, by name and id. They are never removed: if the metadata
/// was lost, they hold all that is left.
pub(super) fn put_strays_aside(log_dirs: &LogDirs, image: &MetadataImage) {
    let topics = image.topics();
    let exists = |name: &str, partition: PartitionIndex, id: TopicId| {
        // A directory that does not say whose it is belongs to the topic of its name, if there is one.
        let topic = if id.is_zero() { topics.by_name(name) } else { topics.by_id(id) };
        topic.is_some_and(|topic| &*topic.name == name && topic.partitions.contains_key(&partition))
    };
    let strays = match log_dirs.put_strays_aside(exists) {
        Ok(strays) => strays,
        Err(error) => {
            return error!(%error, "a partition that the metadata does not know stays where it is");
        }
    };
    for Stray { topic, partition, topic_id, path } in strays {
        match topics.by_id(topic_id) {
            Some(owner) => error!(
                path = %path.display(), was = format!("{topic}-{partition}"), topic = &*owner.name,
                "this directory was called as no partition of the topic that it says it belongs to, as a copy is: it is not \
                 served, and kept under this name"
            ),
            None => error!(
                path = %path.display(), was = format!("{topic}-{partition}"),
                "the metadata does not know the topic of this partition: its directory is kept under this name"
            ),
        }
    }
}
