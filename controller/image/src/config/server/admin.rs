//! What a node shows of itself to those who run it.

use super::reader::Reader;
use super::{ConfigError, host_and_port};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// `tarn.admin.listener`: host and port; a port of 0 lets the kernel choose. `None` for no listener.
    pub listener: Option<(String, u16)>,
    /// `tarn.metrics.topics.max`
    pub topics_max: usize,
    /// `tarn.metrics.partitions.max`
    pub partitions_max: usize,
    /// `tarn.log.format`
    pub log_format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object for each.
    Json,
}

/// The key of the listener.
const LISTENER: &str = "tarn.admin.listener";

impl AdminConfig {
    pub(super) fn read(reader: &Reader<'_>) -> Result<AdminConfig, ConfigError> {
        let listener = match reader.optional(LISTENER)? {
            Some(text) => {
                let parts = host_and_port(&text);
                Some(parts.ok_or_else(|| reader.refuse(LISTENER, "host:port is expected"))?)
            }
            None => None,
        };
        let log_format = match reader.text("tarn.log.format")?.as_str() {
            "json" => LogFormat::Json,
            _ => LogFormat::Text,
        };
        Ok(AdminConfig {
            listener,
            topics_max: reader.number("tarn.metrics.topics.max")?,
            partitions_max: reader.number("tarn.metrics.partitions.max")?,
            log_format,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::ServerConfig;

    #[test]
    fn nothing_listens_unless_it_is_asked_to() {
        let admin = parse("").expect("it is good");
        assert_eq!((admin.listener, admin.log_format), (None, LogFormat::Text));
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let listener =
            |text: &str| parse(&format!("tarn.admin.listener={text}\n")).map(|admin| admin.listener);
        assert_eq!(listener("127.0.0.1:9404"), Ok(Some(("127.0.0.1".to_owned(), 9404))));
        assert_eq!(listener("[::1]:0"), Ok(Some(("::1".to_owned(), 0))));
        let refused = listener("localhost").expect_err("a port is missing").to_string();
        assert_eq!(
            refused,
            "Invalid value localhost for configuration tarn.admin.listener: host:port is expected"
        );
    }

    #[test]
    fn a_format_is_one_of_two() {
        assert_eq!(parse("tarn.log.format=json\n").map(|admin| admin.log_format), Ok(LogFormat::Json));
        assert!(parse("tarn.log.format=xml\n").is_err());
    }

    fn parse(more: &str) -> Result<AdminConfig, ConfigError> {
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\nlog.dirs=/data\n\
             controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n{more}"
        );
        ServerConfig::parse(&text).map(|(config, _)| config.admin)
    }
}
