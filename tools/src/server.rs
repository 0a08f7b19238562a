//! `tarn server`: one node, from its configuration to its clean stop.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use tarn_broker::{Broker, StartError};
use tarn_image::config::server::{Notice, ServerConfig};
use tarn_record::TopicId;
use tarn_runtime::signal::{StopSignal, StopSignals};
use tarn_runtime::{machine, probe};
use tracing::{info, warn};

use crate::failure::Failure;
use crate::logging;

/// Which node to run.
#[derive(Debug, Args)]
#[command(
    after_help = "Logs go to standard error. TARN_LOG sets what is logged: info (the default), debug, \
                        or per part, as in TARN_LOG=info,tarn_mirror=debug; `kafka-configs --entity-type broker-loggers` \
                        changes it while the node runs. SIGTERM and SIGINT stop the node \
                        cleanly."
)]
pub(crate) struct Arguments {
    /// The node's server.properties, with Kafka's keys
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
}

/// Runs the node until it is asked to stop.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Before any thread starts, so that all of them leave the signals to this one.
    let signals = StopSignals::hold_back()?;
    let (config, notices) = read_config(&arguments.config)?;
    let loggers = logging::start(config.admin.log_format)?;
    probe::check().map_err(|error| Failure::Failed(error.to_string()))?;
    match machine::raise_nofile() {
        Ok(limit) => {
            info!(version = env!("CARGO_PKG_VERSION"), node = %config.node_id, open_files = limit, "starting")
        }
        Err(error) => warn!("the limit on open files cannot be raised: {error}"),
    }
    if let Some(line) = one_line(&notices) {
        warn!("{}: {line}", arguments.config.display());
    }
    let hint = FormatHint { config: &arguments.config, standalone: config.quorum.voters.is_empty() };
    let broker = Broker::start_logging(config, loggers).map_err(|error| start_failure(error, &hint))?;
    let serving = broker.addresses().iter().map(|(name, address)| format!("{name} at {address}"));
    info!("serving {}", serving.collect::<Vec<_>>().join(", "));
    let signal = signals.wait()?;
    info!("stopping: {}", describe(signal));
    broker.stop();
    info!("stopped");
    Ok(())
}

/// Reads a `server.properties`.
pub(crate) fn read_config(file: &Path) -> Result<(ServerConfig, Vec<Notice>), Failure> {
    let refused = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    ServerConfig::parse(&text).map_err(|error| refused(error.to_string()))
}

/// All notices in one line: a file written for Kafka has many.
fn one_line(notices: &[Notice]) -> Option<String> {
    let (mut unknown, mut idle) = (Vec::new(), Vec::new());
    for notice in notices {
        match notice {
            Notice::Unknown { key } => unknown.push(key.as_str()),
            Notice::NotActedOn { key } => idle.push(key.as_str()),
        }
    }
    let part = |what: &str, keys: &[&str]| (!keys.is_empty()).then(|| format!("{what}: {}", keys.join(", ")));
    let parts = [part("accepted without effect", &idle), part("unknown and ignored", &unknown)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// How an unformatted directory is made ready.
#[derive(Debug)]
struct FormatHint<'a> {
    config: &'a Path,
    standalone: bool,
}

impl FormatHint<'_> {
    fn command(&self, program: &str, cluster_id: &str) -> String {
        let standalone = if self.standalone { " --standalone" } else { "" };
        format!("{program} format -t {cluster_id} -c {}{standalone}", self.config.display())
    }

    /// What to do about a directory that is not formatted, where another is formatted for `cluster`.
    fn message(&self, program: &str, dir: &Path, cluster: Option<&str>) -> String {
        match cluster {
            None => format!(
                "{} is not formatted. A new cluster begins with\n    {}\nand a node of a cluster that is there \
                 already is formatted with that cluster's id.",
                dir.display(),
                self.command(program, &TopicId::random().to_string())
            ),
            Some(cluster) => format!(
                "{} is not formatted, and another log directory is, for cluster {cluster}. If its disk should be mounted \
                 there, mount it; a new directory of that cluster is formatted with\n    {} --ignore-formatted",
                dir.display(),
                self.command(program, cluster)
            ),
        }
    }
}

fn start_failure(error: StartError, hint: &FormatHint<'_>) -> Failure {
    match error {
        StartError::NotFormatted { dir, cluster } => {
            let program = std::env::args().next().unwrap_or_else(|| "tarn".to_owned());
            Failure::Failed(hint.message(&program, &dir, cluster.as_deref()))
        }
        StartError::NoSuchCpu(error) => Failure::Usage(format!("{}: {error}", hint.config.display())),
        error => Failure::Failed(error.to_string()),
    }
}

fn describe(signal: StopSignal) -> &'static str {
    match signal {
        StopSignal::Terminate => "SIGTERM",
        StopSignal::Interrupt => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_share_one_line() {
        let unknown = |key: &str| Notice::Unknown { key: key.to_owned() };
        let idle = Notice::NotActedOn { key: "num.io.threads".to_owned() };
        assert_eq!(one_line(&[]), None);
        assert_eq!(
            one_line(&[unknown("a.b"), idle, unknown("c")]).as_deref(),
            Some("accepted without effect: num.io.threads; unknown and ignored: a.b, c")
        );
    }

    #[test]
    fn the_command_that_formats_fits_the_quorum() {
        let config = Path::new("/etc/tarn.properties");
        let hint = FormatHint { config, standalone: true };
        assert_eq!(hint.command("tarn", "ID"), "tarn format -t ID -c /etc/tarn.properties --standalone");
        let hint = FormatHint { config, standalone: false };
        assert_eq!(hint.command("tarn", "ID"), "tarn format -t ID -c /etc/tarn.properties");
    }

    #[test]
    fn a_second_directory_is_formatted_for_the_cluster_of_the_first() {
        let hint = FormatHint { config: Path::new("c"), standalone: true };
        let message = hint.message("tarn", Path::new("/b"), Some("ID"));
        assert!(message.starts_with("/b is not formatted"), "{message}");
        assert!(
            message.ends_with("\n    tarn format -t ID -c c --standalone --ignore-formatted"),
            "{message}"
        );
        let message = hint.message("tarn", Path::new("/b"), None);
        assert!(message.contains("A new cluster") && !message.contains("--ignore-formatted"), "{message}");
    }
}
