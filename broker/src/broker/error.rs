//! Why a node does not start, with what a person needs to put it right.

use std::path::PathBuf;

use tarn_log::log_dir::LogDirError;
use tarn_log::meta_properties::DirectoryId;
use tarn_quorum::ControllerError;
use tarn_runtime::probe::ProbeError;
use thiserror::Error;

use crate::layout::NoSuchCpu;

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The kernel refuses io_uring.
    #[error(transparent)]
    NoIoUring(#[from] ProbeError),
    /// A core is configured for a CPU that is not there.
    #[error(transparent)]
    NoSuchCpu(#[from] NoSuchCpu),
    /// A node that is only a broker, or only a controller.
    #[error("process.roles must name both broker and controller: nodes of one role are not served yet")]
    OneRole,
    /// A log directory was never formatted.
    #[error("log directory {} is not formatted", dir.display())]
    NotFormatted {
        /// The directory.
        dir: PathBuf,
        /// The cluster that another directory of the node belongs to.
        cluster: Option<String>,
    },
    /// Two log directories have one id.
    #[error(
        "log directories {} and {} have the same directory.id {id}: one is a copy of the other; take one of them out \
         of log.dirs",
        other.display(), dir.display()
    )]
    SameDirectory {
        /// One directory.
        dir: PathBuf,
        /// The other.
        other: PathBuf,
        /// Their id.
        id: DirectoryId,
    },
    /// A log directory belongs to somebody else.
    #[error("log directory {} belongs to {theirs}, not to {ours}", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        theirs: String,
        /// Who we are.
        ours: String,
    },
    /// A log directory cannot be used.
    #[error("log directory {}: {cause}", dir.display())]
    LogDir {
        /// The directory.
        dir: PathBuf,
        /// Why.
        cause: LogDirError,
    },
    /// What is cut off logs would be kept in one.
    #[error(
        "tarn.mirror.export.dir leads to {}, which is the log directory {} or would be taken for a partition in it",
        exports.display(), dir.display()
    )]
    ExportsAmongLogs {
        /// The directory for exports, without links.
        exports: PathBuf,
        /// The log directory.
        dir: PathBuf,
    },
    /// There are partitions, and no metadata.
    #[error(
        "the metadata log in {} holds nothing, but there are {partitions} partitions in the log directories: it was \
         lost, or they are another node's; restore it, or move the partitions' directories away to begin anew",
        dir.display()
    )]
    MetadataLost {
        /// Where the metadata log should be.
        dir: PathBuf,
        /// How many partitions have a directory.
        partitions: usize,
    },
    /// The controller.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The controller does not take this broker.
    #[error("the controller refused to register this broker: {0}")]
    NotRegistered(String),
    /// A listener.
    #[error("listener {listener}: {cause}")]
    Listener {
        /// The listener as it is configured.
        listener: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The listener for metrics and health checks.
    #[error("tarn.admin.listener={address}: {cause}")]
    AdminListener {
        /// The address as it is configured.
        address: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The machine.
    #[error("{0}")]
    Machine(std::io::Error),
}
