//! What a cluster refuses a mirror command: has it failed, or must something else be done first?
//!
//! A precondition is one that asking again does not change: another command, or another topic or cluster, comes
//! first. It has an error code of mirroring, or a reason code before its sentence.

use serde::Serialize;
use serde_json::{Map, Value};
use tarn_mirror::reasons::Reason;
use tarn_wire::ErrorCode;

use super::truncation::{self, Truncation, TruncationJson};
use crate::failure::Failure;

/// Fails where the answer to a mirror request is an error.
pub(super) fn check(code: i16, message: Option<&str>) -> Result<(), Failure> {
    let said = Failure::check(code, message);
    match said {
        Err(Failure::Failed(why))
            if is_about_state(ErrorCode(code)) || reason_in(message).is_some_and(is_precondition) =>
        {
            Err(Failure::Precondition(why))
        }
        Err(Failure::Failed(why)) if ErrorCode(code).is_retriable() => Err(Failure::NotNow(why)),
        said => said,
    }
}

/// A topic that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    topic: String,
    code: ErrorCode,
    reason: Option<Reason>,
    /// Its sentence alone.
    failure: Failure,
    /// What it is about.
    ranges: Vec<Truncation>,
}

impl Refused {
    /// What a cluster answered for a topic; `None` where that is no refusal.
    pub(super) fn of(
        topic: &str,
        code: i16,
        message: Option<&str>,
        ranges: impl IntoIterator<Item = Truncation>,
    ) -> Option<Refused> {
        let failure = check(code, message).err()?;
        Some(Refused {
            topic: topic.to_owned(),
            code: ErrorCode(code),
            reason: reason_in(message),
            failure,
            ranges: ranges.into_iter().collect(),
        })
    }

    /// The refusal with the ranges that it is about, one a line, where they are more than the one its sentence names.
    fn with_ranges(&self) -> String {
        let mut said = format!("{}: {}", self.topic, self.failure);
        if self.ranges.len() > 1 {
            for line in truncation::lines(&self.ranges, Truncation::offsets) {
                said.push_str(&format!("\n  {line}"));
            }
        }
        said
    }
}

/// Fails where topics were refused, each with its sentence: with a precondition only where all of them wait for
/// one.
pub(super) fn of_topics(refused: &[Refused]) -> Result<(), Failure> {
    if refused.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = refused.iter().map(Refused::with_ranges).collect();
    let is_precondition = |refused: &Refused| matches!(refused.failure, Failure::Precondition(_));
    Err(match refused.iter().all(is_precondition) {
        true => Failure::Precondition(lines.join("\n")),
        false => Failure::Failed(lines.join("\n")),
    })
}

/// How a command ends that waited for what was not refused. What was refused at once is told, whatever went wrong with
/// the others later.
pub(super) fn after(waited: Result<(), Failure>, refusal: Result<(), Failure>) -> Result<(), Failure> {
    if let (Err(_), Err(refused)) = (&waited, &refusal) {
        eprintln!("{}", refused.told());
    }
    waited.and(refusal)
}

/// A topic that was refused, in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RefusedJson<'a> {
    topic: &'a str,
    error: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_code: Option<&'static str>,
    message: String,
}

/// Adds to the JSON of an answer what was refused, and what stands in the way or would be dropped; nothing where there
/// is none.
pub(super) fn add_json(
    answer: &mut Map<String, Value>,
    refused: &[Refused],
    truncations: &[Truncation],
) -> serde_json::Result<()> {
    let topics = refused.iter().map(|refused| RefusedJson {
        topic: &refused.topic,
        error: refused.code.name(),
        reason_code: refused.reason.map(Reason::code),
        message: refused.failure.to_string(),
    });
    let of_refused = refused.iter().flat_map(|refused| &refused.ranges);
    let truncations: Vec<_> = truncations.iter().chain(of_refused).map(TruncationJson::from).collect();
    if !refused.is_empty() {
        answer.insert("refused".to_owned(), serde_json::to_value(topics.collect::<Vec<_>>())?);
    }
    if !refused.is_empty() || !truncations.is_empty() {
        answer.insert("truncations".to_owned(), serde_json::to_value(truncations)?);
    }
    Ok(())
}

/// The reason code before a sentence.
fn reason_in(message: Option<&str>) -> Option<Reason> {
    message.and_then(|message| Reason::from_code(message.split_once(": ")?.0))
}

/// True for reasons that no trying again ends.
pub(super) fn is_precondition(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::LocalRecords | Reason::TopicIdConflict | Reason::MirrorLoop | Reason::SourceClusterChanged
    )
}

/// True for errors that say that a mirror or topic is not in the state that is needed, or not there.
fn is_about_state(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UNKNOWN_CLUSTER_MIRROR
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::CLUSTER_MIRROR_NOT_EMPTY
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::INVALID_PARTITIONS
            | ErrorCode::TOPIC_ALREADY_IN_CLUSTER_MIRROR
            | ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR
            | ErrorCode::MIRROR_TOPIC_ALREADY_PAUSED
            | ErrorCode::MIRROR_TOPIC_NOT_PAUSED
            | ErrorCode::MIRROR_TOPIC_BEING_STOPPED
            | ErrorCode::MIRROR_TOPIC_NOT_STOPPED
            | ErrorCode::INVALID_CLUSTER_MIRROR_STATE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_that_a_refusal_is_about_are_listed() {
        let range = |partition| range(partition, (10, 15), Some(5));
        let said = |count: i32| of_topics(&[refused((0..count).map(range))]).unwrap_err();
        let sentence = "orders: LOCAL_RECORDS: so it is (INVALID_CLUSTER_MIRROR_STATE)";
        assert_eq!(said(1), Failure::Precondition(sentence.to_owned()), "it names the one there is");
        let listed = "\n  partition 0: offsets 10 to 14\n  partition 1: offsets 10 to 14";
        assert_eq!(said(2), Failure::Precondition(format!("{sentence}{listed}")));
        assert!(said(250).to_string().ends_with("and 150 more partitions"));
    }

    #[test]
    fn json_names_what_was_refused_and_every_range() {
        let json = |refused: &[Refused]| {
            let mut answer = Map::new();
            add_json(&mut answer, refused, &[]).unwrap();
            Value::Object(answer)
        };
        assert_eq!(json(&[]), serde_json::json!({}), "nothing was");
        let ranges = [range(0, (10, 15), Some(5)), range(3, (7, 9), None)];
        let expected = serde_json::json!({
            "refused": [{
                "topic": "orders",
                "error": "INVALID_CLUSTER_MIRROR_STATE",
                "reasonCode": "LOCAL_RECORDS",
                "message": "LOCAL_RECORDS: so it is (INVALID_CLUSTER_MIRROR_STATE)",
            }],
            "truncations": [
                { "topic": "orders", "partition": 0, "from": 10, "to": 15, "records": 5 },
                { "topic": "orders", "partition": 3, "from": 7, "to": 9 },
            ],
        });
        assert_eq!(json(&[refused(ranges)]), expected);
    }

    #[test]
    fn json_has_what_would_be_dropped_of_what_is_not_refused_too() {
        let mut answer = Map::new();
        add_json(&mut answer, &[], &[range(0, (10, 15), Some(5))]).unwrap();
        let dropped = serde_json::json!({
            "truncations": [{ "topic": "orders", "partition": 0, "from": 10, "to": 15, "records": 5 }],
        });
        assert_eq!(Value::Object(answer), dropped);
    }

    fn range(partition: i32, range: (i64, i64), records: Option<i64>) -> Truncation {
        let topic = "orders".to_owned();
        Truncation { topic, partition, range: Some(range), records, ..Truncation::default() }
    }

    #[test]
    fn a_wait_that_goes_well_ends_as_what_was_refused_says() {
        let refusal = || Err(Failure::Precondition("x: it is full".to_owned()));
        let timed_out = || Err(Failure::Failed("not in time".to_owned()));
        assert_eq!(after(Ok(()), refusal()), refusal());
        assert_eq!(after(timed_out(), refusal()), timed_out());
        assert_eq!((after(Ok(()), Ok(())), after(timed_out(), Ok(()))), (Ok(()), timed_out()));
    }

    #[test]
    fn a_topic_that_is_not_refused_is_none_of_them() {
        assert_eq!(Refused::of("orders", 0, Some("LOCAL_RECORDS: a note"), []), None);
    }

    fn refused(ranges: impl IntoIterator<Item = Truncation>) -> Refused {
        let code = ErrorCode::INVALID_CLUSTER_MIRROR_STATE.0;
        Refused::of("orders", code, Some("LOCAL_RECORDS: so it is"), ranges).expect("it is one")
    }

    #[test]
    fn what_asking_again_does_not_change_is_a_precondition() {
        let exit_code =
            |code: ErrorCode, message: Option<&str>| check(code.0, message).unwrap_err().exit_code();
        let no_mirror = Some("there is no mirror ghost");
        assert_eq!(exit_code(ErrorCode::UNKNOWN_CLUSTER_MIRROR, no_mirror), 3);
        assert_eq!(exit_code(ErrorCode::MIRROR_TOPIC_NOT_STOPPED, None), 3);
        for code in ["LOCAL_RECORDS", "TOPIC_ID_CONFLICT", "MIRROR_LOOP", "SOURCE_CLUSTER_CHANGED"] {
            let said = format!("{code}: so it is");
            assert_eq!(exit_code(ErrorCode::INVALID_REQUEST, Some(&said)), 3, "{code}");
        }
        for said in
            [None, Some("SOURCE_UNREACHABLE: nobody listens"), Some("LOCAL_RECORDS"), Some("what: ever")]
        {
            assert_eq!(exit_code(ErrorCode::INVALID_REQUEST, said), 1, "{said:?}");
        }
        assert_eq!(check(0, Some("LOCAL_RECORDS: a note")), Ok(()));
    }
}
