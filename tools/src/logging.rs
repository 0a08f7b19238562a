//! What a server says on standard error: for people or as JSON, at levels that may be changed while it runs.

use std::env::VarError;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;

use tarn_broker::loggers::Loggers;
use tarn_image::config::server::LogFormat;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, registry, reload};

use crate::failure::Failure;

/// The variable that says what is logged at first.
const VARIABLE: &str = "TARN_LOG";

/// Begins to log.
pub(crate) fn start(format: LogFormat) -> Result<Arc<Loggers>, Failure> {
    let loggers = Arc::new(from_environment()?);
    let (filter, handle) = reload::Layer::new(loggers.targets());
    loggers.act_on(handle);
    let filtered = registry().with(filter);
    let lines = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    match format {
        LogFormat::Text => filtered.with(lines).with(loggers.seen()).init(),
        LogFormat::Json => filtered.with(lines.json()).with(loggers.seen()).init(),
    }
    Ok(loggers)
}

fn from_environment() -> Result<Loggers, Failure> {
    let refused = |why: String| Failure::Usage(format!("{VARIABLE}: {why}"));
    match std::env::var(VARIABLE) {
        Ok(text) => {
            text.parse().map_err(|error: tracing_subscriber::filter::ParseError| refused(error.to_string()))
        }
        Err(VarError::NotPresent) => Ok(Loggers::default()),
        Err(VarError::NotUnicode(_)) => Err(refused("it is no text".to_owned())),
    }
}
