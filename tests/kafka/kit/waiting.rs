//! Waiting for a condition, with a limit and a reason.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Asks every 10 ms until there is an answer.
///
/// # Panics
/// After `limit`, naming `what` was awaited and the last reason why it was not there.
pub fn until_some<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(reason) if Instant::now() >= deadline => {
                panic!("not within {limit:?}: {what}; last seen: {reason}")
            }
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
}

/// Asks every 10 ms until `holds`.
///
/// # Panics
/// After `limit`, naming `what` was awaited.
pub fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    until_some(what, limit, || if holds() { Ok(()) } else { Err("it does not hold".into()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_first_answer() {
        let mut asked = 0;
        let answer = until_some("three", Duration::from_secs(5), || {
            asked += 1;
            if asked == 3 { Ok(asked) } else { Err(format!("only {asked}")) }
        });
        assert_eq!(answer, 3);
    }

    #[test]
    #[should_panic(expected = "last seen: too early")]
    fn waiting_says_what_it_saw_last() {
        until_some::<()>("never", Duration::from_millis(30), || Err("too early".into()));
    }
}
