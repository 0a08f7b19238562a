//! Why a measurement could not be made.

use std::io;
use std::time::Duration;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was to be done, and with what.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended that should run, or ended badly.
    #[error("{program} {how}; its last lines:\n{tail}")]
    Program {
        /// Its name.
        program: String,
        /// How it ended.
        how: String,
        /// The end of its output.
        tail: String,
    },
    /// Something did not happen in time.
    #[error("not within {limit:?}: {what}")]
    Late {
        /// What was awaited.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// What was found is not what must be there.
    #[error("{0}")]
    Wrong(String),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Says what was being done when the system refused it.
pub(crate) trait Doing<T> {
    /// The same, with what was being done.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Failure::Io { doing: what(), source })
    }
}
