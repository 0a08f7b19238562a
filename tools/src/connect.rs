//! The options by which every client command finds its cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tarn_transport::{ClientOptions, Endpoint};

use crate::failure::Failure;

/// Where the cluster is, and how to connect.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConnectArguments {
    /// Brokers to connect to first: host:port, several separated by commas
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    pub(crate) bootstrap_server: Vec<Endpoint>,
    /// A properties file about the connection: client.id, request.timeout.ms, security.protocol
    #[arg(long, value_name = "FILE")]
    pub(crate) command_config: Option<PathBuf>,
}

impl ConnectArguments {
    /// How to connect, from the properties file where there is one.
    pub(crate) fn options(&self) -> Result<ClientOptions, Failure> {
        let mut options = ClientOptions { client_id: "tarn-tools".to_owned(), ..ClientOptions::default() };
        let Some(file) = &self.command_config else { return Ok(options) };
        for (key, value) in properties(file)? {
            apply(&mut options, &key, &value)
                .map_err(|why| Failure::Usage(format!("{}: {key}={value}: {why}", file.display())))?;
        }
        Ok(options)
    }
}

fn apply(options: &mut ClientOptions, key: &str, value: &str) -> Result<(), String> {
    let milliseconds = || {
        let parsed = value.trim().parse().map(Duration::from_millis);
        parsed.map_err(|_| "a number of milliseconds is expected".to_owned())
    };
    match key {
        "client.id" => options.client_id = value.to_owned(),
        "request.timeout.ms" => options.request_timeout = milliseconds()?,
        "socket.connection.setup.timeout.ms" => options.connect_timeout = milliseconds()?,
        "security.protocol" => options.security = value.parse().map_err(|error| format!("{error}"))?,
        _ if key.starts_with("ssl.") || key.starts_with("sasl.") => {
            return Err("not supported yet: connections are PLAINTEXT only".to_owned());
        }
        _ => eprintln!("tarn: {key} is not acted on"),
    }
    Ok(())
}

/// Reads a file of `key=value` lines, sorted by key.
pub(crate) fn properties(file: &Path) -> Result<Vec<(String, String)>, Failure> {
    // As text: the reader panics on a part of a byte order mark that is all there is.
    let text =
        fs::read_to_string(file).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    let read = java_properties::read(text.as_bytes());
    let read = read.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    let mut pairs: Vec<(String, String)> = read.into_iter().collect();
    pairs.sort_unstable();
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_text_is_refused_and_not_a_panic() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for bytes in [&b"\xef"[..], b"\xfe", b"a=\xff"] {
            fs::write(file.path(), bytes).expect("it can be written");
            assert!(matches!(properties(file.path()), Err(Failure::Usage(_))), "{bytes:?}");
        }
    }

    #[test]
    fn what_would_silently_lack_security_is_refused() {
        let mut options = ClientOptions::default();
        assert_eq!(apply(&mut options, "security.protocol", "PLAINTEXT"), Ok(()));
        assert!(apply(&mut options, "security.protocol", "SASL_SSL").is_err());
        assert!(apply(&mut options, "sasl.mechanism", "PLAIN").is_err());
        assert_eq!(apply(&mut options, "request.timeout.ms", "1500"), Ok(()));
        assert_eq!(options.request_timeout, Duration::from_millis(1500));
        assert!(apply(&mut options, "request.timeout.ms", "soon").is_err());
    }
}
