//! How the partitions of a mirror stand: read page by page, and awaited.

use std::time::{Duration, Instant};

use tarn_image::DesiredState;
use tarn_mirror::limits::THROTTLE_MAX;
use tarn_mirror::reasons::{Reason, Treatment};
use tarn_mirror::state::MirrorState;
use tarn_runtime::sleep;
use tarn_wire::messages::DescribeClusterMirrorsRequest;
use tarn_wire::messages::describe_cluster_mirrors_request as asked;
use tarn_wire::messages::describe_cluster_mirrors_response::{
    DescribedMirror, DescribedMirrorPartition, MirrorCursor, MirrorTask,
};

use super::config;
use super::refusal::{self, is_precondition};
use super::verbs::summary;
use crate::admin::Cluster;
use crate::failure::Failure;
use crate::progress::Line;

/// The pause between two looks at a mirror.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Where there is no terminal, a line is printed so often.
const SAY_AGAIN: Duration = Duration::from_secs(1);

/// How old the source's last answer may be for a lag to be that of now, beside what is waited for on purpose.
const CURRENT_WITHIN_MS: i64 = 5_000;

/// A source without news answers each `fetch.wait.max.ms`; the last of so many waits may be under way.
const WAITS_WITHIN: i64 = 2;

/// The number of the retry where there is none any more.
const NO_MORE_RETRIES: i16 = -1;

/// One partition of a mirror. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) mirror: String,
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) source_offset: Option<i64>,
    pub(super) destination_offset: Option<i64>,
    pub(super) state: String,
    pub(super) retry_attempt: i16,
    pub(super) error_message: Option<String>,
    pub(super) reason_code: Option<String>,
    pub(super) lag_ms: Option<i64>,
    pub(super) last_fetch_age_ms: Option<i64>,
    /// Every partition of the topic was stopped before.
    pub(super) is_of_stopped_topic: bool,
    /// How long the source may wait before it answers: the mirror's `fetch.wait.max.ms`.
    pub(super) wait_max_ms: i64,
}

/// Something that a mirror does beside copying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) mirror: String,
    pub(super) name: String,
    pub(super) state: String,
    pub(super) reason_code: Option<String>,
    pub(super) error_message: Option<String>,
    pub(super) last_success_age_ms: Option<i64>,
}

/// What was found of mirrors.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) partitions: Vec<Standing>,
    pub(super) tasks: Vec<Task>,
}

impl Standing {
    /// The records that the source had in its last answer and this cluster lacks.
    pub(super) fn lag(&self) -> Option<i64> {
        Some((self.source_offset? - self.destination_offset?).max(0))
    }

    /// True where the lag is that of now: the partition is fetched, and the source answers. Where it is not,
    /// the source may have more by now.
    pub(super) fn is_lag_current(&self) -> bool {
        let reason = self.reason_code.as_deref().map(Reason::from_code);
        // What waits for an operator does not mirror: beside MIRRORING such a reason says what was cut before.
        let says_no_more = |treatment| matches!(treatment, Treatment::Notice | Treatment::Terminal);
        let is_well =
            reason.is_none_or(|reason| reason.is_some_and(|reason| says_no_more(reason.treatment())));
        let is_fresh = self.last_fetch_age_ms.is_some_and(|age_ms| age_ms <= self.current_within_ms());
        self.is_mirroring() && is_well && is_fresh
    }

    /// Longer than a mirror that is well may go without an answer.
    fn current_within_ms(&self) -> i64 {
        let waits_ms = self.wait_max_ms.saturating_mul(WAITS_WITHIN);
        let quota_ms = match self.reason_code.as_deref().and_then(Reason::from_code) {
            Some(Reason::Throttled) => i64::try_from(THROTTLE_MAX.as_millis()).unwrap_or(i64::MAX),
            _ => 0,
        };
        CURRENT_WITHIN_MS.saturating_add(waits_ms).saturating_add(quota_ms)
    }

    pub(super) fn is_mirroring(&self) -> bool {
        self.state == MirrorState::Mirroring.name()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state == MirrorState::Failed.name()
    }

    /// True where only an operator can help.
    pub(super) fn is_terminal(&self) -> bool {
        let reason = self.reason_code.as_deref().and_then(Reason::from_code);
        let is_of_a_kind = reason.is_some_and(|reason| reason.treatment() == Treatment::Terminal);
        self.has_failed() && (is_of_a_kind || self.retry_attempt == NO_MORE_RETRIES)
    }

    fn is_copied(&self) -> bool {
        self.is_lag_current() && self.lag() == Some(0)
    }
}

/// Reads one mirror, or all of them; with `topics` only these.
pub(super) async fn read(
    cluster: &Cluster,
    mirror: Option<&str>,
    topics: Option<&[String]>,
) -> Result<Found, Failure> {
    let topic =
        |name: &String| asked::DescribeMirrorTopic { topic_name: name.as_str().into(), partitions: None };
    let mut request = DescribeClusterMirrorsRequest {
        mirror_names: mirror.map(|name| vec![name.into()]),
        topics: topics.map(|topics| topics.iter().map(topic).collect()),
        ..DescribeClusterMirrorsRequest::default()
    };
    let mut found = Found::default();
    loop {
        let answer = cluster.call_mirror_api(&request).await?;
        refusal::check(answer.error_code, answer.error_message.as_deref())?;
        let first_page = request.cursor.is_none();
        for mirror in &answer.mirrors {
            refusal::check(mirror.error_code, mirror.error_message.as_deref())?;
            let wait_max_ms = match mirror.topics.is_empty() {
                true => 0,
                false => config::wait_max_ms(cluster, &mirror.mirror_name).await?,
            };
            gather(mirror, wait_max_ms, &mut found);
        }
        match answer.next_cursor {
            Some(next) if first_page || request.cursor != Some(cursor(&next)) => {
                request.cursor = Some(cursor(&next));
            }
            _ => return Ok(found),
        }
    }
}

fn cursor(next: &MirrorCursor) -> asked::MirrorCursor {
    asked::MirrorCursor {
        mirror_name: next.mirror_name.clone(),
        topic_name: next.topic_name.clone(),
        partition_index: next.partition_index,
    }
}

fn gather(mirror: &DescribedMirror, wait_max_ms: i64, found: &mut Found) {
    for topic in &mirror.topics {
        let stopped = DesiredState::Stopped.to_string();
        let standing = |partition| Standing {
            wait_max_ms,
            is_of_stopped_topic: topic.desired_state.as_deref() == Some(&*stopped),
            ..standing(&mirror.mirror_name, &topic.topic_name, partition)
        };
        found.partitions.extend(topic.partitions.iter().map(standing));
    }
    for described in &mirror.tasks {
        let task = task(&mirror.mirror_name, described);
        if !found.tasks.contains(&task) {
            found.tasks.push(task);
        }
    }
}

fn standing(mirror: &str, topic: &str, partition: &DescribedMirrorPartition) -> Standing {
    Standing {
        mirror: mirror.to_owned(),
        topic: topic.to_owned(),
        partition: partition.partition_index,
        source_offset: known(partition.source_offset),
        destination_offset: known(partition.destination_offset),
        state: partition.state_value.to_string(),
        retry_attempt: partition.retry_attempt,
        error_message: text(partition.error_message.as_deref()),
        reason_code: text(partition.reason_code.as_deref()),
        lag_ms: known(partition.lag_ms),
        last_fetch_age_ms: known(partition.last_fetch_age_ms),
        ..Standing::default()
    }
}

fn task(mirror: &str, task: &MirrorTask) -> Task {
    Task {
        mirror: mirror.to_owned(),
        name: task.name.to_string(),
        state: task.state.to_string(),
        reason_code: text(task.reason_code.as_deref()),
        error_message: text(task.error_message.as_deref()),
        last_success_age_ms: known(task.last_success_age_ms),
    }
}

fn known(number: i64) -> Option<i64> {
    (number >= 0).then_some(number)
}

fn text(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Waits until these topics are copied to their end, and says meanwhile how far that is.
pub(super) async fn wait_until_copied(
    cluster: &Cluster,
    mirror: &str,
    topics: &[String],
    timeout_s: Option<u64>,
) -> Result<(), Failure> {
    let deadline = timeout_s.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let line = Line::spinner(format!("{mirror}: waiting for its state"));
    let mut said = None;
    loop {
        let partitions = read(cluster, Some(mirror), Some(topics)).await?.partitions;
        let summary = summary(mirror, &partitions);
        if partitions.iter().all(Standing::is_copied) {
            drop(line);
            eprintln!("{summary}");
            return Ok(());
        }
        if let Some(stuck) = partitions.iter().find(|partition| partition.is_terminal()) {
            let why = stuck.error_message.as_deref().or(stuck.reason_code.as_deref()).unwrap_or_default();
            let sentence = format!("{}-{} has failed: {why}", stuck.topic, stuck.partition);
            let reason = stuck.reason_code.as_deref().and_then(Reason::from_code);
            return Err(match reason.is_some_and(is_precondition) {
                true => Failure::Precondition(sentence),
                false => Failure::Failed(sentence),
            });
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Failure::Failed(format!("not copied in time: {summary}")));
        }
        if line.is_hidden() && said.is_none_or(|said: Instant| said.elapsed() >= SAY_AGAIN) {
            eprintln!("{summary}");
            said = Some(Instant::now());
        }
        line.say(summary);
        sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_never_negative_and_unknown_where_an_end_is() {
        let standing = |source_offset, destination_offset| Standing {
            source_offset,
            destination_offset,
            ..Standing::default()
        };
        assert_eq!(standing(Some(10), Some(4)).lag(), Some(6));
        assert_eq!(standing(Some(4), Some(10)).lag(), Some(0));
        assert_eq!(standing(None, Some(4)).lag(), None);
        assert_eq!(standing(Some(4), None).lag(), None);
    }

    #[test]
    fn a_lag_is_of_now_only_while_the_source_answers_and_the_partition_is_fetched() {
        let well = Standing {
            state: "MIRRORING".to_owned(),
            source_offset: Some(4),
            destination_offset: Some(4),
            last_fetch_age_ms: Some(500),
            ..Standing::default()
        };
        let is_copied = |standing: Standing| {
            assert_eq!(standing.lag(), Some(0));
            assert_eq!(standing.is_lag_current(), standing.is_copied());
            standing.is_copied()
        };
        let with = |reason: &str| Standing { reason_code: Some(reason.to_owned()), ..well.clone() };
        assert!(is_copied(well.clone()) && is_copied(with("SOURCE_GAP")));
        for reason in ["SOURCE_UNREACHABLE", "SOURCE_ERROR", "SOURCE_OF_LATER_VERSIONS"] {
            assert!(!is_copied(with(reason)), "{reason}");
        }
        for state in ["FAILED", "LOG_ALIGNMENT", "EPOCH_FENCING", "PAUSED", "STOPPED"] {
            assert!(!is_copied(Standing { state: state.to_owned(), ..well.clone() }), "{state}");
        }
        for age_ms in [None, Some(60_000)] {
            assert!(!is_copied(Standing { last_fetch_age_ms: age_ms, ..well.clone() }), "{age_ms:?}");
        }
    }

    #[test]
    fn a_mirror_that_waits_long_at_its_source_or_for_its_quota_is_current_all_the_same() {
        let is_current = |wait_max_ms, reason: Option<&str>, age_ms| {
            let standing = Standing {
                state: "MIRRORING".to_owned(),
                reason_code: reason.map(str::to_owned),
                last_fetch_age_ms: Some(age_ms),
                wait_max_ms,
                ..Standing::default()
            };
            standing.is_lag_current()
        };
        assert!(is_current(30_000, None, 30_000) && !is_current(500, None, 30_000));
        assert!(is_current(30_000, None, 65_000) && !is_current(30_000, None, 65_001));
        assert!(is_current(500, Some("LOCAL_RECORDS"), 500), "they were cut, and it mirrors");
        assert!(
            !is_current(500, Some("SOURCE_UNREACHABLE"), 500) && !is_current(500, Some("UNHEARD_OF"), 500)
        );
        assert!(is_current(500, Some("THROTTLED"), 30_500) && !is_current(500, Some("THROTTLED"), 60_000));
        assert!(is_current(i64::MAX, Some("THROTTLED"), i64::MAX), "no wait is too long to be added");
    }

    #[test]
    fn only_a_failure_that_waits_for_an_operator_is_terminal() {
        let standing = |state: &str, reason: Option<&str>| Standing {
            state: state.to_owned(),
            reason_code: reason.map(str::to_owned),
            ..Standing::default()
        };
        assert!(standing("FAILED", Some("SOURCE_TRUNCATED")).is_terminal());
        assert!(!standing("FAILED", Some("SOURCE_LEADER_UNKNOWN")).is_terminal());
        assert!(!standing("MIRRORING", Some("SOURCE_UNREACHABLE")).is_terminal());
        assert!(!standing("FAILED", None).is_terminal());
        let used_up = |state| Standing { retry_attempt: -1, ..standing(state, Some("DESTINATION_STORAGE")) };
        assert!(used_up("FAILED").is_terminal() && !used_up("LOG_ALIGNMENT").is_terminal());
    }
}
