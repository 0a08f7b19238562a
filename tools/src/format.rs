//! `tarn format` and `tarn random-uuid`: what is done once, before a node starts for the first time.

use std::fs;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tarn_image::config::server::ServerConfig;
use tarn_log::RealDisk;
use tarn_log::known_dirs::KnownDirs;
use tarn_log::meta_properties::{DirectoryId, MetaProperties};
use tarn_quorum::format::{FormatOptions, Formatted, FormattedDir, Quorum, format};
use tarn_record::{Timestamp, TopicId};

use crate::failure::Failure;
use crate::server::read_config;

/// What to format.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The id of the cluster, the same for all its nodes: `tarn random-uuid` prints one
    #[arg(short = 't', long, value_name = "ID", value_parser = cluster_id)]
    #[arg(required_unless_present = "forget_directory")]
    cluster_id: Option<String>,
    /// The node's server.properties
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Begin a quorum of this node alone, to which others may be added later
    #[arg(short, long)]
    standalone: bool,
    /// Leave directories that are formatted already as they are
    #[arg(short = 'g', long)]
    ignore_formatted: bool,
    /// Format nothing, and have the node forget the log directory with this directory.id, which is gone for good: the
    /// next start makes its partitions anew, empty, in the others. The node must not run
    #[arg(long, value_name = "ID", conflicts_with_all = ["cluster_id", "standalone", "ignore_formatted"])]
    forget_directory: Option<DirectoryId>,
}

/// The name of the metadata.version that Tarn formats with.
const METADATA_VERSION_NAME: &str = "4.4-IV2";

/// Formats every log directory of the configuration that needs it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (config, _) = read_config(&arguments.config)?;
    if let Some(id) = arguments.forget_directory {
        return forget(&config, id);
    }
    // Without one the command line was refused.
    let cluster_id = arguments.cluster_id.as_deref().unwrap_or_default();
    let quorum = if arguments.standalone { Quorum::Standalone } else { Quorum::Static };
    let formatted = if arguments.ignore_formatted { Formatted::Ignore } else { Formatted::Refuse };
    let options = FormatOptions { cluster_id, config: &config, quorum, formatted };
    let now = Timestamp(tarn_runtime::wall_clock_ms());
    let dirs = format(&(Arc::new(RealDisk) as _), &options, now)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let mut out = stdout().lock();
    if dirs.is_empty() {
        writeln!(out, "All of the log directories are already formatted.")?;
    }
    for dir in &dirs {
        writeln!(out, "{}", line(&config, quorum, dir))?;
    }
    Ok(())
}

/// Has the node forget a directory, which must not be in `log.dirs`.
fn forget(config: &ServerConfig, id: DirectoryId) -> Result<(), Failure> {
    let is_there = |dir: &&PathBuf| directory_id(dir) == Some(id);
    if let Some(dir) = config.log_dirs.iter().chain([&config.metadata_log_dir]).find(is_there) {
        return Err(Failure::Failed(format!("{} has the id {id}: it is not gone", dir.display())));
    }
    let forgotten = KnownDirs::forget(&(Arc::new(RealDisk) as _), &config.metadata_log_dir, id);
    let path = forgotten.map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(writeln!(
        stdout(),
        "Forgot log directory {id}, last at {}. The next start at which no other directory is away makes its partitions anew, empty.",
        path.display()
    )?)
}

/// The id of a directory that says one.
fn directory_id(dir: &Path) -> Option<DirectoryId> {
    let bytes = fs::read(dir.join(MetaProperties::FILE_NAME)).ok()?;
    MetaProperties::read(&bytes).ok()?.directory_id
}

fn line(config: &ServerConfig, quorum: Quorum, dir: &FormattedDir) -> String {
    let kind = match (dir.holds_metadata, quorum, config.quorum.voters.is_empty()) {
        (false, _, _) => "data directory",
        (true, Quorum::Standalone, _) => "dynamic metadata voter directory",
        (true, Quorum::Static, true) => "dynamic metadata directory",
        (true, Quorum::Static, false) => "metadata directory",
    };
    format!("Formatting {kind} {} with metadata.version {METADATA_VERSION_NAME}.", dir.path.display())
}

/// Prints an id for a cluster, which no command line takes for an option.
pub(crate) fn print_random_uuid() -> Result<(), Failure> {
    Ok(writeln!(stdout().lock(), "{}", TopicId::random())?)
}

/// Checks an id as Kafka does, though not its last four bits: those name no byte.
fn cluster_id(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match text.len() == 22 && text.bytes().all(fits) {
        true => Ok(text.to_owned()),
        false => {
            Err("22 characters of URL-safe base64 are expected, as `tarn random-uuid` prints them".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_22_characters_of_base64() {
        assert!(cluster_id("MkU3OEVBNTcwNTJENDM2Qk").is_ok());
        assert!(cluster_id(&TopicId::random().to_string()).is_ok());
        for bad in ["", "short", "MkU3OEVBNTcwNTJENDM2Qk=", "MkU3OEVBNTcwNTJENDM2Q/"] {
            assert!(cluster_id(bad).is_err(), "{bad}");
        }
    }
}
