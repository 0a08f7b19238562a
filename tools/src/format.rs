//! `tarn format` and `tarn random-uuid`: what is done once, before a node starts for the first time.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tarn_image::config::server::ServerConfig;
use tarn_log::RealDisk;
use tarn_quorum::format::{FormatOptions, Formatted, FormattedDir, Quorum, format};
use tarn_record::{Timestamp, TopicId};

use crate::failure::Failure;
use crate::server::read_config;

/// What to format.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The id of the cluster, the same for all its nodes: `tarn random-uuid` prints one
    #[arg(short = 't', long, value_name = "ID", value_parser = cluster_id)]
    cluster_id: String,
    /// The node's server.properties
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Begin a quorum of this node alone, to which others may be added later
    #[arg(short, long)]
    standalone: bool,
    /// Leave directories that are formatted already as they are
    #[arg(short = 'g', long)]
    ignore_formatted: bool,
}

/// The name of the metadata.version that Tarn formats with.
const METADATA_VERSION_NAME: &str = "4.4-IV2";

/// Formats every log directory of the configuration that needs it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (config, _) = read_config(&arguments.config)?;
    let quorum = if arguments.standalone { Quorum::Standalone } else { Quorum::Static };
    let formatted = if arguments.ignore_formatted { Formatted::Ignore } else { Formatted::Refuse };
    let options = FormatOptions { cluster_id: &arguments.cluster_id, config: &config, quorum, formatted };
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
