//! The loggers of this process and their levels, as operators see and change them while it runs (KIP-412).
//!
//! A logger is a target of `tracing`: a module, such as `tarn_mirror::fetch`. Its level is its own, or that of the
//! longest other name that it begins with, or that of `root`. A logger is there from when it could first say
//! something, as in Kafka from when its class is loaded; those of the crates are there from the start.
//!
//! Invariants:
//! * a change of several levels is made whole or not at all;
//! * `root` has a level always.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber, warn};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

/// The logger of everything that has no level of its own.
pub const ROOT: &str = "root";

/// Loggers that are there before they say anything.
const CRATES: [&str; 7] =
    ["tarn_broker", "tarn_image", "tarn_log", "tarn_mirror", "tarn_quorum", "tarn_runtime", "tarn_transport"];

/// A level, as Kafka calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing at all; only from the environment.
    Off,
    /// What ends the process, which is said beside the log too.
    Fatal,
    /// What failed.
    Error,
    /// What an operator should look at.
    Warn,
    /// What happens.
    Info,
    /// What happens, in detail.
    Debug,
    /// Every step.
    Trace,
}

/// What to do with the level of one logger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LevelChange {
    /// It gets its own.
    Set(String, LogLevel),
    /// It loses its own.
    Delete(String),
}

/// See the module; one for each process.
#[derive(Debug, Default)]
pub struct Loggers {
    levels: Mutex<Levels>,
    seen: Arc<Mutex<BTreeSet<&'static str>>>,
    filter: OnceLock<reload::Handle<Targets, Registry>>,
}

/// The levels that were set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Levels {
    root: LogLevel,
    own: BTreeMap<String, LogLevel>,
}

/// Notes which targets there are, as a layer around all others.
#[derive(Debug)]
pub struct SeenTargets(Arc<Mutex<BTreeSet<&'static str>>>);

impl Default for Levels {
    fn default() -> Levels {
        Levels { root: LogLevel::Info, own: BTreeMap::new() }
    }
}

impl FromStr for Loggers {
    type Err = ParseError;

    /// Reads `info,tarn_mirror=debug`; what names no target is the level of `root`.
    fn from_str(text: &str) -> Result<Loggers, ParseError> {
        let mut levels = Levels::default();
        if !text.trim().is_empty() {
            let targets: Targets = text.parse()?;
            levels.root = targets.default_level().map_or(LogLevel::Info, LogLevel::of_filter);
            levels.own = targets
                .iter()
                .map(|(target, level)| (target.to_owned(), LogLevel::of_filter(level)))
                .collect();
        }
        Ok(Loggers { levels: Mutex::new(levels), ..Loggers::default() })
    }
}

impl Loggers {
    /// What is logged now, to be put into a `reload::Layer`, and into the handle of it here.
    pub fn targets(&self) -> Targets {
        self.levels().targets()
    }

    /// Changes of levels act on the filter behind this handle, from now on.
    pub fn act_on(&self, filter: reload::Handle<Targets, Registry>) {
        // A process has one log.
        let _ = self.filter.set(filter);
    }

    /// The layer that tells which loggers there are. The outermost, so that it is asked of those too that say nothing.
    pub fn seen(&self) -> SeenTargets {
        SeenTargets(self.seen.clone())
    }

    /// Every logger with its level, by name.
    pub fn all(&self) -> Vec<(String, LogLevel)> {
        let levels = self.levels();
        self.names(&levels).into_iter().map(|name| (name.to_owned(), levels.of(name))).collect()
    }

    /// Changes levels.
    pub fn change(&self, changes: &[LevelChange]) {
        let targets = {
            let mut levels = self.levels();
            changes.iter().for_each(|change| levels.change(change));
            levels.targets()
        };
        if let Some(Err(error)) = self.filter.get().map(|filter| filter.reload(targets)) {
            warn!(%error, "the levels of the log cannot be changed");
        }
        for change in changes {
            match change {
                LevelChange::Set(logger, level) => warn!(logger, level = level.name(), "log level set"),
                LevelChange::Delete(logger) => warn!(logger, "log level no longer set"),
            }
        }
    }

    fn names<'a>(&self, levels: &'a Levels) -> BTreeSet<&'a str> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = BTreeSet::from([ROOT]);
        names.extend(CRATES);
        names.extend(levels.own.keys().map(String::as_str));
        for target in seen.iter() {
            names.extend(with_parents(target).collect::<Vec<&str>>());
        }
        names
    }

    /// Levels are replaced one after the other; each is one whatever happens.
    fn levels(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A module and those around it.
fn with_parents(target: &'static str) -> impl Iterator<Item = &'static str> {
    std::iter::successors(Some(target), |target| Some(target.rsplit_once("::")?.0))
}

impl Levels {
    fn of(&self, name: &str) -> LogLevel {
        let covering = self.own.iter().filter(|(own, _)| name.starts_with(own.as_str()));
        covering.max_by_key(|(own, _)| own.len()).map_or(self.root, |(_, level)| *level)
    }

    fn change(&mut self, change: &LevelChange) {
        match change {
            LevelChange::Set(name, level) if name == ROOT => self.root = *level,
            LevelChange::Set(name, level) => {
                self.own.insert(name.clone(), *level);
            }
            LevelChange::Delete(name) => {
                self.own.remove(name);
            }
        }
    }

    fn targets(&self) -> Targets {
        let own = self.own.iter().map(|(name, level)| (name.as_str(), level.filter()));
        Targets::new().with_default(self.root.filter()).with_targets(own)
    }
}

impl LogLevel {
    /// The levels that may be set, as Kafka has them.
    pub const SETTABLE: [LogLevel; 6] =
        [LogLevel::Debug, LogLevel::Error, LogLevel::Fatal, LogLevel::Info, LogLevel::Trace, LogLevel::Warn];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "OFF",
            LogLevel::Fatal => "FATAL",
            LogLevel::Error => "ERROR",
            LogLevel::Warn => "WARN",
            LogLevel::Info => "INFO",
            LogLevel::Debug => "DEBUG",
            LogLevel::Trace => "TRACE",
        }
    }

    fn filter(self) -> LevelFilter {
        match self {
            // What ends the process is an error here; nothing is logged above that.
            LogLevel::Off | LogLevel::Fatal => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }

    fn of_filter(filter: LevelFilter) -> LogLevel {
        let levels = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        levels.into_iter().find(|level| level.filter() == filter).unwrap_or(LogLevel::Off)
    }
}

impl<S: Subscriber> Layer<S> for SeenTargets {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(metadata.target());
        Interest::always()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use tracing::{debug, info};
    use tracing_subscriber::prelude::*;

    #[test]
    fn a_logger_has_its_own_level_or_that_of_what_is_around_it() {
        let loggers: Loggers = "warn,tarn_mirror=debug,tarn_mirror::fetch=off".parse().expect("it is one");
        let level = |name: &str| loggers.levels().of(name);
        assert_eq!(level("tarn_broker"), LogLevel::Warn);
        assert_eq!(level("tarn_mirror::manager"), LogLevel::Debug);
        assert_eq!(level("tarn_mirror::fetch::lane"), LogLevel::Off);
        loggers.change(&[
            LevelChange::Delete("tarn_mirror::fetch".to_owned()),
            LevelChange::Set(ROOT.to_owned(), LogLevel::Fatal),
        ]);
        let level = |name: &str| loggers.levels().of(name);
        assert_eq!(level("tarn_mirror::fetch::lane"), LogLevel::Debug);
        assert_eq!(level(ROOT), LogLevel::Fatal);
    }

    #[test]
    fn without_a_word_the_level_is_info() {
        for text in ["", " ", "tarn_mirror=debug"] {
            let loggers: Loggers = text.parse().expect("it is one");
            assert_eq!(loggers.levels().root, LogLevel::Info, "{text:?}");
        }
        assert!("tarn_mirror=loud".parse::<Loggers>().is_err());
    }

    #[test]
    fn a_change_acts_on_what_is_logged_and_loggers_are_there_once_they_spoke() {
        let loggers = Loggers::default();
        let (filter, handle) = reload::Layer::new(loggers.targets());
        loggers.act_on(handle);
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let log = tracing_subscriber::registry().with(filter).with(lines).with(loggers.seen());
        tracing::subscriber::with_default(log, || {
            info!(target: "some::module::within", "one");
            debug!(target: "some::module::within", "two");
            let names: Vec<String> = loggers.all().into_iter().map(|(name, _)| name).collect();
            let is_there = |name: &str| names.iter().any(|known| known == name);
            assert!(is_there("some::module::within") && is_there("some"), "{names:?}");
            loggers.change(&[LevelChange::Set("some::module".to_owned(), LogLevel::Debug)]);
            debug!(target: "some::module::within", "three");
            debug!(target: "other", "four");
            loggers.change(&[LevelChange::Set(ROOT.to_owned(), LogLevel::Error)]);
            info!(target: "other", "five");
            info!(target: "some::module::within", "six");
        });
        let text = String::from_utf8(written.0.lock().expect("nobody panicked").clone()).expect("it is text");
        let said = |word: &str| text.lines().any(|line| line.ends_with(&format!(": {word}")));
        let all: Vec<bool> = ["one", "two", "three", "four", "five", "six"].into_iter().map(said).collect();
        assert_eq!(all, [true, false, true, false, false, true], "{text}");
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
