//! What a cluster refuses a mirror command: has it failed, or must something else be done first?
//!
//! A precondition is one that asking again does not change: another command, or another topic or cluster, comes
//! first. It has an error code of mirroring, or a reason code before its sentence.

use tarn_mirror::reasons::Reason;
use tarn_wire::ErrorCode;

use crate::failure::Failure;

/// Fails where the answer to a mirror request is an error.
pub(super) fn check(code: i16, message: Option<&str>) -> Result<(), Failure> {
    let said = Failure::check(code, message);
    let reason = message.and_then(|message| Reason::from_code(message.split_once(": ")?.0));
    match said {
        Err(Failure::Failed(why))
            if is_about_state(ErrorCode(code)) || reason.is_some_and(is_precondition) =>
        {
            Err(Failure::Precondition(why))
        }
        said => said,
    }
}

/// Offsets of a partition that are here and not at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) partition: i32,
    pub(super) from: i64,
    /// The offset after the last.
    pub(super) to: i64,
}

/// How many ranges are listed at most.
const RANGES_MAX: usize = 100;

/// The refusal with the ranges that it is about, one a line, where they are more than the one its sentence names.
pub(super) fn with_ranges(failure: Failure, ranges: impl ExactSizeIterator<Item = Range>) -> Failure {
    let count = ranges.len();
    if count < 2 {
        return failure;
    }
    let line = |range: Range| {
        format!("\n  partition {}: offsets {} to {}", range.partition, range.from, range.to - 1)
    };
    let mut lines: String = ranges.take(RANGES_MAX).map(line).collect();
    if count > RANGES_MAX {
        lines.push_str(&format!("\n  and {} more partitions", count - RANGES_MAX));
    }
    match failure {
        Failure::Precondition(why) => Failure::Precondition(why + &lines),
        Failure::Failed(why) => Failure::Failed(why + &lines),
        other => other,
    }
}

/// Fails where topics were refused, each with its sentence: with a precondition only where all of them wait for
/// one.
pub(super) fn of_topics(refused: &[(String, Failure)]) -> Result<(), Failure> {
    if refused.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = refused.iter().map(|(topic, failure)| format!("{topic}: {failure}")).collect();
    let is_precondition = |(_, failure): &(String, Failure)| matches!(failure, Failure::Precondition(_));
    Err(match refused.iter().all(is_precondition) {
        true => Failure::Precondition(lines.join("\n")),
        false => Failure::Failed(lines.join("\n")),
    })
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
        let refused = || Failure::Precondition("LOCAL_RECORDS: so it is".to_owned());
        let range = |partition| Range { partition, from: 10, to: 15 };
        assert_eq!(with_ranges(refused(), [range(0)].into_iter()), refused(), "its sentence names it");
        let Failure::Precondition(said) = with_ranges(refused(), [range(0), range(3)].into_iter()) else {
            panic!("it stays what it was")
        };
        let expected =
            "LOCAL_RECORDS: so it is\n  partition 0: offsets 10 to 14\n  partition 3: offsets 10 to 14";
        assert_eq!(said, expected);
        let many = (0..250).map(range).collect::<Vec<_>>();
        let said = with_ranges(refused(), many.into_iter()).to_string();
        assert!(said.ends_with("and 150 more partitions"), "{said}");
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
