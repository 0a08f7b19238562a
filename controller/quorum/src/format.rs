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
use tarn_record::{Epoch, Offset, Timestamp};
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
    for dir in dirs {
        match (is_formatted(disk, &dir)?, options.formatted) {
            (true, Formatted::Refuse) => return Err(FormatError::AlreadyFormatted(dir)),
            (true, Formatted::Ignore) => {}
            (false, _) => unformatted.push(dir),
        }
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

fn is_formatted(disk: &Arc<dyn Disk>, dir: &Path) -> Result<bool, FormatError> {
    let path = dir.join(MetaProperties::FILE_NAME);
    if !disk.exists(&path) {
        return Ok(false);
    }
    let bytes = disk.read_all(&path).map_err(|cause| FormatError::Io { path: path.clone(), cause })?;
    match MetaProperties::read(&bytes) {
        Ok(_) => Ok(true),
        Err(cause) => Err(FormatError::Unreadable { path, cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_hand_out_producer_ids_that_do_not_meet() {
        let (one, other) = (first_producer_id("MkU3OEVBNTcwNTJENDM2Qk"), first_producer_id("other"));
        assert!(one >= 1 << 42 && other >= 1 << 42);
        assert_eq!(one % (1 << 42), 0);
        assert_ne!(one, other);
        assert_eq!(one, first_producer_id("MkU3OEVBNTcwNTJENDM2Qk"));
    }
}
