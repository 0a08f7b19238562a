//! Waiting until topics are copied, or mirror again, and saying meanwhile how far that is.
//!
//! Invariants:
//! * what the topics came to before the command that is waited for ends no wait;
//! * a wait ends where only another command can help.

use std::time::{Duration, Instant};

use tarn_mirror::reasons::Reason;
use tarn_runtime::sleep;

use super::refusal::is_precondition;
use super::standing::{self, Standing};
use super::summary::{exports, summary};
use crate::admin::Cluster;
use crate::failure::Failure;
use crate::progress::Line;

/// The pause between two looks at a mirror.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Where there is no terminal, a line is printed so often.
const SAY_AGAIN: Duration = Duration::from_secs(1);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Every partition has what its source has.
    Copied,
    /// Every partition mirrors.
    Mirroring,
}

/// A wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait<'a> {
    pub(super) mirror: &'a str,
    pub(super) topics: &'a [String],
    pub(super) until: Until,
    pub(super) timeout_s: Option<u64>,
    /// Where it was asked for.
    pub(super) address: &'a str,
}

/// Waits, and says what was exported at the end.
pub(super) async fn wait(cluster: &Cluster, wait: &Wait<'_>) -> Result<(), Failure> {
    let Wait { mirror, topics, until, timeout_s, address } = *wait;
    let deadline = timeout_s.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let line = Line::spinner(format!("{mirror}: waiting for its state"));
    let mut said = None;
    loop {
        let partitions = standing::read(cluster, Some(mirror), Some(topics)).await?.partitions;
        let summary = summary(mirror, &partitions);
        if until.is_reached(topics, &partitions)? {
            drop(line);
            eprintln!("{summary}");
            exports(address, mirror, &partitions).iter().for_each(|export| eprintln!("{export}"));
            return Ok(());
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Failure::Failed(format!("{} in time: {summary}", until.undone())));
        }
        if line.is_hidden() && said.is_none_or(|said: Instant| said.elapsed() >= SAY_AGAIN) {
            eprintln!("{summary}");
            said = Some(Instant::now());
        }
        line.say(summary);
        sleep(LOOK_AGAIN).await;
    }
}

impl Until {
    /// True where there is nothing more to wait for.
    ///
    /// # Errors
    /// Why that will not come to be by itself.
    fn is_reached(self, topics: &[String], partitions: &[Standing]) -> Result<bool, Failure> {
        if partitions.is_empty() && !topics.is_empty() {
            return Err(Failure::Failed("the mirror shows none of these topics any more".to_owned()));
        }
        let is_there = match self {
            Until::Copied => Standing::is_copied,
            Until::Mirroring => Standing::is_mirroring,
        };
        if partitions.iter().all(is_there) {
            return Ok(true);
        }
        if let Some((other, desired)) = partitions.iter().find_map(|one| Some((one, one.wanted_otherwise()?)))
        {
            let topic = &other.topic;
            return Err(Failure::Failed(format!("{topic} is not to be mirrored any more: it is {desired}")));
        }
        let mut stuck = partitions.iter().filter(|partition| partition.is_stuck());
        let Some(first) = stuck.next() else { return Ok(false) };
        let why = first.error_message.as_deref().or(first.reason_code.as_deref()).unwrap_or_default();
        let more = match stuck.count() {
            0 => String::new(),
            1 => " (and 1 more partition)".to_owned(),
            more => format!(" (and {more} more partitions)"),
        };
        let reason = first.reason_code.as_deref().and_then(Reason::from_code);
        let code = reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
        let sentence = format!("{} has failed: {code}{why}{more}", first.name());
        Err(match self == Until::Copied && reason.is_some_and(is_precondition) {
            true => Failure::Precondition(sentence),
            false => Failure::Failed(sentence),
        })
    }

    /// That it has not come to be.
    fn undone(self) -> &'static str {
        match self {
            Until::Copied => "not copied",
            Until::Mirroring => "not mirroring",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_last_partition_or_where_an_operator_is_needed() {
        let behind = Standing { source_offset: Some(9), ..copied(0) };
        let mirroring = [copied(0), behind.clone()];
        assert_eq!(reached(Until::Copied, &[copied(0), copied(1)]), Ok(true));
        assert_eq!(reached(Until::Copied, &mirroring), Ok(false));
        assert_eq!(reached(Until::Mirroring, &mirroring), Ok(true));
        let aligning = Standing { state: "LOG_ALIGNMENT".to_owned(), ..copied(2) };
        assert_eq!(reached(Until::Mirroring, &[copied(0), aligning]), Ok(false));

        let failed = reached(Until::Mirroring, &[copied(0), failed(1), failed(2)]).unwrap_err();
        assert_eq!(failed.exit_code(), 1);
        let said = "orders-1 has failed: LOCAL_RECORDS: so it is (and 1 more partition)";
        assert_eq!(failed.to_string(), said);
        assert_eq!(reached(Until::Copied, &[self::failed(1)]).unwrap_err().exit_code(), 3);
    }

    #[test]
    fn what_a_topic_came_to_before_the_command_ends_no_wait() {
        let before = Standing { failed_version: Some(6), ..failed(1) };
        assert_eq!(reached(Until::Mirroring, &[copied(0), before]), Ok(false));
    }

    #[test]
    fn nobody_waits_for_what_somebody_else_has_stopped_or_deleted() {
        let paused =
            Standing { state: "PAUSED".to_owned(), desired_state: Some("paused".to_owned()), ..copied(0) };
        let said = reached(Until::Mirroring, &[paused]).unwrap_err().to_string();
        assert_eq!(said, "orders is not to be mirrored any more: it is paused");
        assert!(reached(Until::Copied, &[]).is_err());
        assert_eq!(Until::Copied.is_reached(&[], &[]), Ok(true), "nothing is waited for");
    }

    fn reached(until: Until, partitions: &[Standing]) -> Result<bool, Failure> {
        until.is_reached(&["orders".to_owned()], partitions)
    }

    fn copied(partition: i32) -> Standing {
        Standing {
            topic: "orders".to_owned(),
            partition,
            state: "MIRRORING".to_owned(),
            source_offset: Some(4),
            destination_offset: Some(4),
            last_fetch_age_ms: Some(10),
            desired_state: Some("mirroring".to_owned()),
            desired_version: Some(7),
            ..Standing::default()
        }
    }

    fn failed(partition: i32) -> Standing {
        Standing {
            state: "FAILED".to_owned(),
            reason_code: Some("LOCAL_RECORDS".to_owned()),
            error_message: Some("so it is".to_owned()),
            failed_version: Some(7),
            ..copied(partition)
        }
    }
}
