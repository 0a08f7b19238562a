//! Why a command did not do what it was asked, as a sentence and an exit code.

use std::io;

use tarn_transport::ClientError;
use tarn_wire::ErrorCode;
use thiserror::Error;

/// How a command ends that does not succeed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
    /// It cannot be done now, and nothing was done: asked again, it may be.
    #[error("{0}")]
    NotNow(String),
    /// It was asked for wrongly.
    #[error("{0}")]
    Usage(String),
    /// Something else must be done first: a code of `tarn mirror` alone.
    #[error("{0}")]
    Precondition(String),
    /// Nobody reads what the command prints any more, as after `| head`.
    #[error("nobody reads the output")]
    ReaderGone,
}

impl Failure {
    /// The code that the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::ReaderGone => 0,
            Failure::Failed(_) | Failure::NotNow(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Precondition(_) => 3,
        }
    }

    /// What is told of it on standard error: each line begins with `tarn: `, however many there are.
    pub(crate) fn told(&self) -> String {
        let lines = self.to_string();
        lines.lines().map(|line| format!("tarn: {line}")).collect::<Vec<_>>().join("\n")
    }

    /// What a broker answered: its own words where it gave some, else those of the error code.
    pub(crate) fn answered(code: ErrorCode, message: Option<&str>) -> Failure {
        let said = message.filter(|message| !message.is_empty()).unwrap_or_else(|| code.message());
        Failure::Failed(format!("{said} ({})", code.name()))
    }

    /// Fails where the answer of a broker is an error.
    pub(crate) fn check(code: i16, message: Option<&str>) -> Result<(), Failure> {
        match ErrorCode(code) {
            ErrorCode::NONE => Ok(()),
            code => Err(Failure::answered(code, message)),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_refuses_has_failed_in_the_words_of_the_broker() {
        let code = ErrorCode::UNKNOWN_CLUSTER_MIRROR;
        let failure = Failure::check(code.0, Some("there is no mirror ghost")).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        assert_eq!(failure.to_string(), "there is no mirror ghost (UNKNOWN_CLUSTER_MIRROR)");
        assert_eq!(Failure::answered(ErrorCode::REQUEST_TIMED_OUT, None).exit_code(), 1);
        assert_eq!(Failure::check(0, None), Ok(()));
    }

    #[test]
    fn every_line_of_a_failure_says_who_failed() {
        let two = Failure::Precondition("a: it is full\n  partition 0".to_owned());
        assert_eq!(two.told(), "tarn: a: it is full\ntarn:   partition 0");
        assert_eq!(Failure::Failed("it ended".to_owned()).told(), "tarn: it ended");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 1);
    }
}
