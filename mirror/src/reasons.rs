//! Why a mirrored partition, a link or a task is not well: every reason code there is, once.
//!
//! A reason is what an operator greps for and what an alert matches, so a code never changes its
//! meaning. How it is treated is part of the table: retried, shown beside the state because it belongs to
//! the link, or left to the operator.

use std::fmt;

use tarn_wire::ErrorCode;

/// How a partition with this reason goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Tried again with backoff and jitter.
    Retried,
    /// A state of the connection to one source broker: its partitions stay MIRRORING and say so.
    OfTheLink,
    /// Waits for `recover`.
    Terminal,
    /// Said once, beside a state that goes on.
    Notice,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $code:literal $treatment:ident,)*) => {
        /// A reason code of mirroring.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        /// Every reason.
        pub const REASONS: &[Reason] = &[$(Reason::$name,)*];

        impl Reason {
            /// The code, as `describe` and the metrics show it.
            pub fn code(self) -> &'static str {
                match self { $(Reason::$name => $code,)* }
            }

            /// How a partition with this reason goes on.
            pub fn treatment(self) -> Treatment {
                match self { $(Reason::$name => Treatment::$treatment,)* }
            }

            /// The reason with this code.
            pub fn from_code(code: &str) -> Option<Reason> {
                match code { $($code => Some(Reason::$name),)* _ => None }
            }
        }
    };
}

reasons! {
    /// No connection to a source broker could be made, or it broke.
    SourceUnreachable "SOURCE_UNREACHABLE" OfTheLink,
    /// The source refused our credentials.
    SourceAuthenticationFailed "SOURCE_AUTHENTICATION_FAILED" OfTheLink,
    /// The source lacks a permission for us.
    SourceAuthorizationFailed "SOURCE_AUTHORIZATION_FAILED" Retried,
    /// The TLS handshake with the source failed.
    SourceTlsFailed "SOURCE_TLS_FAILED" OfTheLink,
    /// The source does not know a leader of the partition just now.
    SourceLeaderUnknown "SOURCE_LEADER_UNKNOWN" Retried,
    /// The source answers with an error that has no code of its own here.
    SourceError "SOURCE_ERROR" Retried,
    /// The topic is gone from the source: seen twice.
    SourceTopicDeleted "SOURCE_TOPIC_DELETED" Terminal,
    /// The source has another topic under the same name.
    SourceTopicRecreated "SOURCE_TOPIC_RECREATED" Terminal,
    /// The source no longer has records that were copied from it.
    SourceTruncated "SOURCE_TRUNCATED" Terminal,
    /// The source's addresses lead to another cluster than the mirror was made for. Tried again for as long
    /// as that lasts.
    SourceClusterChanged "SOURCE_CLUSTER_CHANGED" Retried,
    /// The source removed records before they could be copied.
    SourceGap "SOURCE_GAP" Notice,
    /// The mirror's configuration cannot be used: nothing of it is mirrored until it is changed.
    ConfigInvalid "CONFIG_INVALID" Terminal,
    /// A topic of this cluster has the source's name and another id.
    TopicIdConflict "TOPIC_ID_CONFLICT" Terminal,
    /// Where the log here and the source's part is searched for, or they are to be compared once more.
    ComparingHistories "COMPARING_HISTORIES" Notice,
    /// The local log holds records that the source does not have.
    LocalRecords "LOCAL_RECORDS" Terminal,
    /// The source mirrors this topic from this cluster.
    MirrorLoop "MIRROR_LOOP" Retried,
    /// A batch failed its checksum twice.
    CorruptBatch "CORRUPT_BATCH" Terminal,
    /// A batch is larger than the mirror takes.
    BatchTooLarge "BATCH_TOO_LARGE" Terminal,
    /// The source holds records in a format before magic 2.
    UnsupportedRecordFormat "UNSUPPORTED_RECORD_FORMAT" Terminal,
    /// The topic keeps records in tiered storage here.
    TieredStorage "TIERED_STORAGE" Terminal,
    /// This node could not write to its disk, or does not find there what was written.
    DestinationStorage "DESTINATION_STORAGE" Retried,
    /// Too few replicas are in sync here.
    DestinationUnderMinIsr "DESTINATION_UNDER_MIN_ISR" Retried,
    /// The partition has no leader here.
    DestinationNoLeader "DESTINATION_NO_LEADER" Retried,
    /// The coordinator of the partition's state does not answer.
    CoordinatorUnavailable "COORDINATOR_UNAVAILABLE" Retried,
    /// The controller does not answer.
    ControllerUnavailable "CONTROLLER_UNAVAILABLE" Retried,
    /// The source's leader epoch is above ours, which is being raised.
    EpochBehind "EPOCH_BEHIND" Retried,
    /// Fetches are held back by the source's quota, or by the mirror's own throttle.
    Throttled "THROTTLED" Notice,
}

impl Reason {
    /// True for failures that say nothing of the data and end by themselves, when the disk here has room again. They are
    /// tried again for ever: whoever makes room at last does not also look for what has given up meanwhile.
    pub fn passes_by_itself(self) -> bool {
        self == Reason::DestinationStorage
    }

    /// True for what a partition waits for without having failed.
    pub fn is_waited_for(self) -> bool {
        matches!(
            self,
            Reason::SourceLeaderUnknown
                | Reason::CoordinatorUnavailable
                | Reason::ControllerUnavailable
                | Reason::DestinationNoLeader
                | Reason::EpochBehind
                | Reason::SourceClusterChanged
        )
    }

    /// True where it is tried again for ever, whatever `mirror.failed.retry.max.attempts` says.
    pub fn is_tried_for_ever(self) -> bool {
        self.passes_by_itself() || self.is_waited_for()
    }

    /// The reason where the source answers with an error that means nothing else here.
    pub fn of_refusal(code: ErrorCode) -> Reason {
        match is_about_permission(code) {
            true => Reason::SourceAuthorizationFailed,
            false => Reason::SourceError,
        }
    }
}

/// Errors that say that the source lacks a permission for us.
pub fn is_about_permission(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
    )
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_again_and_none_is_used_twice() {
        for reason in REASONS {
            assert_eq!(Reason::from_code(reason.code()), Some(*reason));
        }
        assert_eq!(Reason::from_code("NO_SUCH_REASON"), None);
    }
}
