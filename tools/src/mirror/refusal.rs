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
