//! Making log directories ready for a node: what `tarn format` does.
//!
//! Every directory gets its `meta.properties`; the one of the metadata log also gets the first snapshot,
//! which holds what the cluster begins with (KIP-1170). Only features are finalized whose APIs Tarn
//! serves, because clients act on them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_image::config::server::ServerConfig;
use tarn_image::features::{METADATA_VERSION, METADATA_VERSION_LATEST};
use tarn_log::Disk;
use tarn_log::checkpoints::CheckpointError;
use tarn_log::meta_properties::{DirectoryId, MetaProperties};
use tarn_record::{BrokerId, Epoch, Offset, Timestamp};
use tarn_wire::messages::{FeatureLevelRecord, ProducerIdsRecord};
use tarn_wire::{EncodeError, MetadataRecord};
use thiserror::Error;

use crate::batch::VoterName;
use crate::metadata_log::TOPIC;
use crate::snapshot::{self, SnapshotError, SnapshotId};

/// What to format.
#[derive(Clone, Debug)]
pub struct FormatOptions<'a> {
    /// The id of the cluster.
    pub cluster_id: &'a str,
    /// The node's configuration.
    pub config: &'a ServerConfig,
    /// Whether the node begins a dynamic quorum of its own (KIP-853).
    pub quorum: Quorum,
    /// What to do with directories that are formatted already.
    pub formatted: Formatted,
}

/// How the quorum is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// As `controller.quorum.voters` says.
    Static,
    /// Dynamic, with this node as its only voter.
    Standalone,
}

/// What to do with directories that are formatted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formatted {
    /// Stop.
    Refuse,
    /// Leave them as they are and format the others.
    Ignore,
}

/// A directory that was formatted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormattedDir {
    /// The directory.
    pub path: PathBuf,
    /// Whether it holds the metadata log.
    pub holds_metadata: bool,
}

/// Why a directory was not formatted.
#[derive(Debug, Error)]
pub enum FormatError {
    /// It is formatted already.
    #[error(
        "Log directory {0} is already formatted. Use --ignore-formatted to ignore this directory and format \
         the others."
    )]
    AlreadyFormatted(PathBuf),
    /// It is formatted for another cluster.
    #[error(
        "Invalid cluster.id in: {file}. Expected {asked}, but read {found}: the directory belongs to cluster \
         {found}. Format with that id to add to it, or another directory for cluster {asked}."
    )]
    OtherCluster {
        /// Its `meta.properties`.
        file: PathBuf,
        /// The cluster to format it for.
        asked: String,
        /// Whose it is.
        found: String,
    },
    /// It is formatted for another node.
    #[error(
        "Stored node id {found} doesn't match node.id {asked} in {file}: the directory belongs to node {found}. \
         Configure that node.id, or another directory."
    )]
    OtherNode {
        /// Its `meta.properties`.
        file: PathBuf,
        /// The node to format it for.
        asked: BrokerId,
        /// Whose it is.
        found: BrokerId,
    },
    /// The configuration names voters, so the quorum is not dynamic.
    #[error("--standalone makes a dynamic quorum, but controller.quorum.voters names a static one")]
    VotersAreStatic,
    /// The configuration names no voters, and nothing says who votes.
    #[error("because controller.quorum.voters is not set, the node needs --standalone to begin a quorum")]
    NoVoters,
    /// The disk refused.
    #[error("{path}: {cause}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file that is there cannot be read.
    #[error("{path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: CheckpointError,
    },
    /// The snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The records.
    #[error(transparent)]
    Unencodable(#[from] EncodeError),
}

/// Formats every log directory of the configuration.
///
/// # Errors
/// The first thing that stands in the way. Directories formatted before it stay formatted.
pub fn format(
    disk: &Arc<dyn Disk>,
    options: &FormatOptions<'_>,
    now: Timestamp,
) -> Result<Vec<FormattedDir>, FormatError> {
    let config = options.config;
    match options.quorum {
        Quorum::Standalone if !config.quorum.voters.is_empty() => return Err(FormatError::VotersAreStatic),
        Quorum::Static if config.quorum.voters.is_empty() => return Err(FormatError::NoVoters),
        _ => {}
    }
    let mut dirs = config.log_dirs.clone();
    if !dirs.contains(&config.metadata_log_dir) {
        dirs.push(config.metadata_log_dir.clone());
    }
    let mut unformatted = Vec::new();
    let mut already = None;
    for dir in dirs {
        match properties(disk, &dir)? {
            // Also where it would be left as it is: the node would not start with it.
            Some(properties) => check_owner(&dir, &properties, options)?,
            None => {
                unformatted.push(dir);
                continue;
            }
        }
        already = already.or(Some(dir));
    }
    if let (Some(dir), Formatted::Refuse) = (already, options.formatted) {
        return Err(FormatError::AlreadyFormatted(dir));
    }
    unformatted.into_iter().map(|dir| format_one(disk, options, dir, now)).collect()
}

fn format_one(
    disk: &Arc<dyn Disk>,
    options: &FormatOptions<'_>,
    path: PathBuf,
    now: Timestamp,
) -> Result<FormattedDir, FormatError> {
    disk.create_dir_all(&path).map_err(|cause| FormatError::Io { path: path.clone(), cause })?;
    let directory_id = DirectoryId::random();
    let holds_metadata = path == options.config.metadata_log_dir;
    if holds_metadata {
        write_first_snapshot(disk, options, &path, directory_id, now)?;
    }
    let properties = MetaProperties {
        cluster_id: options.cluster_id.to_owned(),
        node_id: options.config.node_id,
        directory_id: Some(directory_id),
    };
    // Last: a directory without it is not formatted, whatever else is in it.
    let file = path.join(MetaProperties::FILE_NAME);
    disk.write_atomically(&file, &properties.write())
        .map_err(|cause| FormatError::Io { path: file, cause })?;
    Ok(FormattedDir { path, holds_metadata })
}

fn write_first_snapshot(
    disk: &Arc<dyn Disk>,
    options: &FormatOptions<'_>,
    path: &Path,
    directory_id: DirectoryId,
    now: Timestamp,
) -> Result<(), FormatError> {
    let dir = path.join(format!("{TOPIC}-0"));
    disk.create_dir_all(&dir).map_err(|cause| FormatError::Io { path: dir.clone(), cause })?;
    let voter = match options.quorum {
        Quorum::Standalone => Some(voter_name(options.config, directory_id)),
        Quorum::Static => None,
    };
    let first = SnapshotId { end_offset: Offset(0), epoch: Epoch(0) };
    let records = bootstrap_records(options.cluster_id);
    let contents = snapshot::contents(first, &records, voter.as_ref(), now, now)?;
    Ok(snapshot::store(disk, &dir, first, &contents)?)
}

/// The node as a voter of a dynamic quorum.
fn voter_name(config: &ServerConfig, directory_id: DirectoryId) -> VoterName {
    let listeners = config.advertised_controller_listeners();
    VoterName {
        id: config.node_id.0,
        directory_id: directory_id.0,
        endpoints: listeners.map(|one| (one.name.clone(), one.host.clone(), one.port)).collect(),
    }
}

/// What a cluster begins with: its metadata.version, and producer ids of its own.
fn bootstrap_records(cluster_id: &str) -> Vec<MetadataRecord> {
    let version =
        FeatureLevelRecord { name: METADATA_VERSION.into(), feature_level: METADATA_VERSION_LATEST };
    let producer_ids = ProducerIdsRecord {
        broker_id: -1,
        broker_epoch: -1,
        next_producer_id: first_producer_id(cluster_id),
    };
    vec![version.into(), producer_ids.into()]
}

/// Where the producer ids of a cluster begin. Producers that fail over bring ids of the old cluster with
/// them, so clusters hand out ids from ranges that do not meet: (1 + hash mod (2²¹ − 1)) · 2⁴².
pub fn first_producer_id(cluster_id: &str) -> i64 {
    const RANGES: u64 = (1 << 21) - 1;
    const RANGE_BITS: u32 = 42;
    // FNV-1a: the value is part of a cluster's history, so it must never change.
    let hash = cluster_id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let range = 1 + hash % RANGES;
    (range << RANGE_BITS) as i64
}

/// What a directory's `meta.properties` says; `None` for one that is not formatted.
fn properties(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Option<MetaProperties>, FormatError> {
    let path = dir.join(MetaProperties::FILE_NAME);
    if !disk.exists(&path) {
        return Ok(None);
    }
    let bytes = disk.read_all(&path).map_err(|cause| FormatError::Io { path: path.clone(), cause })?;
    let properties = MetaProperties::read(&bytes);
    properties.map(Some).map_err(|cause| FormatError::Unreadable { path, cause })
}

/// A directory that is formatted must be this node's, of this cluster.
fn check_owner(
    dir: &Path,
    properties: &MetaProperties,
    options: &FormatOptions<'_>,
) -> Result<(), FormatError> {
    let file = dir.join(MetaProperties::FILE_NAME);
    if properties.cluster_id != options.cluster_id {
        let (asked, found) = (options.cluster_id.to_owned(), properties.cluster_id.clone());
        return Err(FormatError::OtherCluster { file, asked, found });
    }
    if properties.node_id != options.config.node_id {
        let (asked, found) = (options.config.node_id, properties.node_id);
        return Err(FormatError::OtherNode { file, asked, found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_another_cluster_or_node_is_not_taken_for_formatted() {
        let files = tempfile::tempdir().expect("a directory");
        assert_eq!(try_format(files.path(), 1, OURS, Formatted::Refuse).map(|dirs| dirs.len()), Ok(2));
        let refused = |node, cluster, formatted| {
            try_format(files.path(), node, cluster, formatted).expect_err("it is not ours")
        };
        for formatted in [Formatted::Refuse, Formatted::Ignore] {
            let message = refused(1, THEIRS, formatted);
            assert!(message.contains(OURS) && message.contains(THEIRS), "both ids: {message}");
            let message = refused(2, OURS, formatted);
            assert!(message.starts_with("Stored node id 1 doesn't match node.id 2"), "{message}");
        }
        assert!(refused(1, OURS, Formatted::Refuse).contains("is already formatted"));
        assert_eq!(try_format(files.path(), 1, OURS, Formatted::Ignore), Ok(Vec::new()));
    }

    #[test]
    fn nothing_is_formatted_beside_a_directory_of_another_cluster() {
        let files = tempfile::tempdir().expect("a directory");
        try_format(files.path(), 1, OURS, Formatted::Refuse).expect("it is new");
        std::fs::remove_dir_all(files.path().join("a")).expect("it is there");
        try_format(files.path(), 1, THEIRS, Formatted::Ignore).expect_err("b is of another cluster");
        assert!(!files.path().join("a").exists());
        let formatted = try_format(files.path(), 1, OURS, Formatted::Ignore);
        assert_eq!(formatted, Ok(vec![files.path().join("a")]));
    }

    const OURS: &str = "MkU3OEVBNTcwNTJENDM2Qk";
    const THEIRS: &str = "AAU3OEVBNTcwNTJENDM2Qg";

    /// Formats directories a and b; those that were, or the error's sentence.
    fn try_format(
        files: &Path,
        node: i32,
        cluster_id: &str,
        formatted: Formatted,
    ) -> Result<Vec<PathBuf>, String> {
        let (a, b) = (files.join("a"), files.join("b"));
        let text = format!(
            "process.roles=broker,controller\nnode.id={node}\nlog.dirs={},{}\n\
             controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n",
            a.display(),
            b.display()
        );
        let (config, _) = ServerConfig::parse(&text).expect("the test's file is good");
        let options = FormatOptions { cluster_id, config: &config, quorum: Quorum::Standalone, formatted };
        let disk: Arc<dyn Disk> = Arc::new(tarn_log::RealDisk);
        let dirs = format(&disk, &options, Timestamp(0)).map_err(|error| error.to_string())?;
        Ok(dirs.into_iter().map(|dir| dir.path).collect())
    }

    #[test]
    fn clusters_hand_out_producer_ids_that_do_not_meet() {
        let (one, other) = (first_producer_id("MkU3OEVBNTcwNTJENDM2Qk"), first_producer_id("other"));
        assert!(one >= 1 << 42 && other >= 1 << 42);
        assert_eq!(one % (1 << 42), 0);
        assert_ne!(one, other);
        assert_eq!(one, first_producer_id("MkU3OEVBNTcwNTJENDM2Qk"));
    }
}
