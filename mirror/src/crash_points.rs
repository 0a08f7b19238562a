//! Places in a stop, and in a truncation, at which a test can end the process, as a power cut would.
//!
//! In builds with debug assertions the process aborts at the point that `TARN_CRASH_AT` names; in the others
//! nothing happens. What is to be found then: every step that was done is found done when it is entered again.

use std::sync::LazyLock;

/// Every point, in the order in which a stop reaches them.
pub const POINTS: [&str; 8] = [
    "stop.gate_closed",
    "stop.flushed",
    "stop.position_written",
    "stop.epoch_raised",
    "stop.markers_appended",
    "stop.log_ended",
    "stop.report_written",
    "stop.completed",
];

/// Every point, in the order in which the truncation of a log reaches them.
pub const TRUNCATION_POINTS: [&str; 2] = ["cut.exported", "cut.truncated"];

static CRASH_AT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("TARN_CRASH_AT").ok());

/// Ends the process here if it is told to. `point` is one of `POINTS` or `TRUNCATION_POINTS`.
pub fn reached(point: &'static str) {
    if !cfg!(debug_assertions) {
        return;
    }
    debug_assert!(POINTS.contains(&point) || TRUNCATION_POINTS.contains(&point), "{point} is no crash point");
    if CRASH_AT.as_deref() == Some(point) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Set in the process that is to crash.
    const CHILD: &str = "TARN_CRASH_TEST_CHILD";

    #[test]
    fn a_process_ends_at_the_point_that_it_is_told_and_at_no_other() {
        if std::env::var_os(CHILD).is_some() {
            return POINTS.into_iter().chain(TRUNCATION_POINTS).for_each(reached);
        }
        let ended = |point: &str| {
            let mut child = Command::new(std::env::current_exe().expect("it runs"));
            child.args([
                "--exact",
                "crash_points::tests::a_process_ends_at_the_point_that_it_is_told_and_at_no_other",
            ]);
            child.env(CHILD, "1").env("TARN_CRASH_AT", point);
            child.output().expect("it can be run").status
        };
        for point in ["stop.log_ended", "cut.exported"] {
            assert_eq!(ended(point).signal(), Some(6), "it has aborted");
        }
        assert!(ended("nowhere").success());
    }
}
