//! A panic as a value.
//!
//! The executor would end with the first task that panics (W4), and its partitions with it. Tasks that
//! serve one connection are wrapped, so that a fault costs that connection and nothing else.

use futures_util::FutureExt;
use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use thiserror::Error;

/// What a panicking task or job said.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("panicked: {message}")]
pub struct Panic {
    /// The panic's own message, or a remark that it had none.
    pub message: String,
}

impl Panic {
    pub(crate) fn from_payload(payload: Box<dyn Any + Send>) -> Panic {
        let message = match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(other) => match other.downcast::<&'static str>() {
                Ok(text) => (*text).to_owned(),
                Err(_) => "no message".to_owned(),
            },
        };
        Panic { message }
    }
}

/// Runs `future`, turning a panic in it into an error. State that the future shares with others must
/// be fit to be used after it stopped anywhere.
///
/// # Errors
/// The panic, after the panic hook has reported where it happened.
pub async fn catch_panics<F: Future>(future: F) -> Result<F::Output, Panic> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(Panic::from_payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    #[test]
    fn a_panic_becomes_its_message() {
        let literal = block_on(catch_panics(async { panic!("no such segment") }));
        assert_eq!(literal, Err::<(), _>(Panic { message: "no such segment".to_owned() }));
        let formatted = block_on(catch_panics(async { panic!("offset {}", 7) }));
        assert_eq!(formatted, Err::<(), _>(Panic { message: "offset 7".to_owned() }));
        let other = block_on(catch_panics(async { std::panic::panic_any(7) }));
        assert_eq!(other, Err::<(), _>(Panic { message: "no message".to_owned() }));
    }

    #[test]
    fn a_future_that_does_not_panic_is_untouched() {
        assert_eq!(block_on(catch_panics(async { 7 })), Ok(7));
    }
}
