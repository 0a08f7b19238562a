//! How the partitions of a mirror stand, read page by page.

use serde::Serialize;
use tarn_image::DesiredState;
use tarn_mirror::limits::THROTTLE_MAX;
use tarn_mirror::reasons::{Reason, Treatment};
use tarn_mirror::state::MirrorState;
use tarn_wire::messages::DescribeClusterMirrorsRequest;
use tarn_wire::messages::describe_cluster_mirrors_request as asked;
use tarn_wire::messages::describe_cluster_mirrors_response::{
    DescribedMirror, DescribedMirrorPartition, MirrorCursor, MirrorTask,
};

use super::config;
use super::refusal;
use crate::admin::Cluster;
use crate::failure::Failure;

/// How old the source's last answer may be for a lag to be that of now, beside what is waited for on purpose.
const CURRENT_WITHIN_MS: i64 = 5_000;

/// A source without news answers each `fetch.wait.max.ms`; the last of so many waits may be under way.
const WAITS_WITHIN: i64 = 2;

/// What is said of every export.
const EXPORTED: &str = " exported to ";

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
    /// What is wanted of the topic, and the number of the command that said so.
    pub(super) desired_state: Option<String>,
    pub(super) desired_version: Option<i64>,
    /// The number of the command after which it failed, where that is written down.
    pub(super) failed_version: Option<i64>,
    /// How long the source may wait before it answers: the mirror's `fetch.wait.max.ms`.
    pub(super) wait_max_ms: i64,
}

/// Something that a mirror does beside copying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) mirror: String,
    #[serde(rename = "task")]
    pub(super) name: String,
    pub(super) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
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

    /// True where it is tried again until it goes well.
    pub(super) fn is_tried_for_ever(&self) -> bool {
        self.reason_code.as_deref().and_then(Reason::from_code).is_some_and(Reason::is_tried_for_ever)
    }

    /// True where it is shown as it failed before the last command for its topic, which it will take up any moment.
    pub(super) fn is_of_before(&self) -> bool {
        self.failed_version.zip(self.desired_version).is_some_and(|(failed, now)| failed < now)
    }

    /// True where only an operator can help, and it has come to that since the last command for its topic.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_terminal() && !self.is_of_before()
    }

    pub(super) fn is_copied(&self) -> bool {
        self.is_lag_current() && self.lag() == Some(0)
    }

    /// True where every partition of its topic was stopped before.
    pub(super) fn is_of_stopped_topic(&self) -> bool {
        self.desired_state.as_deref() == Some(&*DesiredState::Stopped.to_string())
    }

    /// What is wanted of its topic, where that is not that it is mirrored.
    pub(super) fn wanted_otherwise(&self) -> Option<&str> {
        self.desired_state.as_deref().filter(|desired| *desired != DesiredState::Mirroring.to_string())
    }

    /// What was exported of it before its log was truncated, where that is shown beside its state.
    pub(super) fn export(&self) -> Option<&str> {
        self.error_message.as_deref().filter(|said| self.is_mirroring() && said.contains(EXPORTED))
    }

    /// As a partition is named.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
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
        let standing = |partition| Standing {
            wait_max_ms,
            desired_state: text(topic.desired_state.as_deref()),
            desired_version: known(topic.state_version),
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
        failed_version: known(partition.state_version),
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

    #[test]
    fn what_failed_before_the_last_command_is_not_stuck_yet() {
        let failed = |failed_version, desired_version| Standing {
            state: "FAILED".to_owned(),
            reason_code: Some("SOURCE_TRUNCATED".to_owned()),
            failed_version,
            desired_version,
            ..Standing::default()
        };
        assert!(!failed(Some(4), Some(7)).is_stuck() && failed(Some(7), Some(7)).is_stuck());
        assert!(
            failed(None, Some(7)).is_stuck() && failed(None, None).is_stuck(),
            "nobody says that it is older"
        );
        let retried = Standing { reason_code: Some("SOURCE_ERROR".to_owned()), ..failed(Some(7), Some(7)) };
        assert!(!retried.is_stuck());
    }

    #[test]
    fn an_export_is_what_is_told_beside_mirroring_alone() {
        let said =
            "offsets 5 to 9 (5 records) were not the source's and are exported to /e/t-0/5-10.7 on node 1";
        let standing = |state: &str, said: &str| Standing {
            state: state.to_owned(),
            error_message: Some(said.to_owned()),
            ..Standing::default()
        };
        assert_eq!(standing("MIRRORING", said).export(), Some(said));
        let failed = "what is to be dropped cannot be exported: no room";
        assert_eq!(standing("FAILED", said).export().or(standing("MIRRORING", failed).export()), None);
    }
}
