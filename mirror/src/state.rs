//! The states of a mirrored partition, which may follow which, and what to do next.
//!
//! Two levels (mirroring.md §2): the *desired* state of a topic is in the metadata log, the *actual*
//! state of each partition is kept by its coordinator in `__mirror_state`. The partition's leader brings
//! the actual state towards the desired one, and checks here that a step is legal.
//!
//! Invariants:
//! * a desired stop wins over everything, FAILED included;
//! * MIRRORING is reached only through LOG_ALIGNMENT, EPOCH_FENCING, ULE_RECOVERY, PAUSED or a retry;
//! * a state read from a record or a message is one of these, or an error.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The actual state of a mirrored partition. The numbers are those of KIP-1279.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum MirrorState {
    /// Finding the offset up to which the local log and the source's are the same.
    LogAlignment = 0,
    /// Raising the leader epoch here above the source's.
    EpochFencing = 1,
    /// Waiting for all replicas after the source has lost records to an unclean election.
    UleRecovery = 2,
    /// Fetching from the source.
    Mirroring = 3,
    /// Ending the fetch, to pause.
    Pausing = 4,
    /// Neither fetching nor writable.
    Paused = 5,
    /// Becoming writable.
    Stopping = 6,
    /// Writable.
    Stopped = 7,
    /// Waiting for a retry, or for an operator.
    Failed = 8,
}

/// Every state, in the order of its number.
pub const STATES: [MirrorState; 9] = [
    MirrorState::LogAlignment,
    MirrorState::EpochFencing,
    MirrorState::UleRecovery,
    MirrorState::Mirroring,
    MirrorState::Pausing,
    MirrorState::Paused,
    MirrorState::Stopping,
    MirrorState::Stopped,
    MirrorState::Failed,
];

/// A byte or a word that is no state.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not a mirror partition state")]
pub struct NotAState(pub String);

impl MirrorState {
    /// The state with this number.
    ///
    /// # Errors
    /// Where no state has it.
    pub fn from_byte(byte: i8) -> Result<MirrorState, NotAState> {
        STATES.into_iter().find(|state| state.to_byte() == byte).ok_or_else(|| NotAState(byte.to_string()))
    }

    /// The state's number in records and messages.
    pub fn to_byte(self) -> i8 {
        self as i8
    }

    /// The state's name, as `describe` prints it.
    pub fn name(self) -> &'static str {
        match self {
            MirrorState::LogAlignment => "LOG_ALIGNMENT",
            MirrorState::EpochFencing => "EPOCH_FENCING",
            MirrorState::UleRecovery => "ULE_RECOVERY",
            MirrorState::Mirroring => "MIRRORING",
            MirrorState::Pausing => "PAUSING",
            MirrorState::Paused => "PAUSED",
            MirrorState::Stopping => "STOPPING",
            MirrorState::Stopped => "STOPPED",
            MirrorState::Failed => "FAILED",
        }
    }

    /// True where a partition in this state holds only what its mirror has brought: from the end of its
    /// alignment until it begins to become writable.
    pub fn means_mirrored(self) -> bool {
        use MirrorState::*;
        match self {
            EpochFencing | UleRecovery | Mirroring | Pausing | Paused => true,
            LogAlignment | Stopping | Stopped | Failed => false,
        }
    }

    /// True where a partition in state `from` may enter this one. `None` is a partition that has no
    /// state yet. Entering a state again is always legal.
    pub fn may_follow(self, from: Option<MirrorState>) -> bool {
        use MirrorState::*;
        let Some(from) = from else { return matches!(self, LogAlignment | Stopping | Failed) };
        if from == self {
            return true;
        }
        match self {
            LogAlignment => matches!(from, Stopped | Failed),
            EpochFencing | UleRecovery | Pausing => from == Mirroring,
            Mirroring => matches!(from, LogAlignment | EpochFencing | UleRecovery | Paused | Failed),
            Paused => from == Pausing,
            Stopping => from != Stopped,
            Stopped => from == Stopping,
            Failed => true,
        }
    }
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MirrorState {
    type Err = NotAState;

    fn from_str(name: &str) -> Result<MirrorState, NotAState> {
        STATES.into_iter().find(|state| state.name() == name).ok_or_else(|| NotAState(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MirrorState::*;

    #[test]
    fn the_numbers_are_those_of_the_proposal() {
        let numbers: Vec<i8> = STATES.iter().map(|state| state.to_byte()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        for state in STATES {
            assert_eq!(MirrorState::from_byte(state.to_byte()), Ok(state));
            assert_eq!(state.name().parse(), Ok(state));
        }
        assert_eq!(MirrorState::from_byte(9), Err(NotAState("9".into())));
        assert_eq!(MirrorState::from_byte(-1), Err(NotAState("-1".into())));
    }

    #[test]
    fn the_legal_transitions_are_those_of_the_proposal() {
        let legal: Vec<(MirrorState, Vec<MirrorState>)> = STATES
            .into_iter()
            .map(|to| {
                (to, STATES.into_iter().filter(|from| *from != to && to.may_follow(Some(*from))).collect())
            })
            .collect();
        let all_but_failed = STATES[..8].to_vec();
        let expected = [
            (LogAlignment, vec![Stopped, Failed]),
            (EpochFencing, vec![Mirroring]),
            (UleRecovery, vec![Mirroring]),
            (Mirroring, vec![LogAlignment, EpochFencing, UleRecovery, Paused, Failed]),
            (Pausing, vec![Mirroring]),
            (Paused, vec![Pausing]),
            (Stopping, vec![LogAlignment, EpochFencing, UleRecovery, Mirroring, Pausing, Paused, Failed]),
            (Stopped, vec![Stopping]),
            (Failed, all_but_failed),
        ];
        assert_eq!(legal, expected);
    }

    #[test]
    fn a_partition_without_a_state_begins_with_alignment_or_is_stopped_before_it_has_begun() {
        for state in STATES {
            let begins = matches!(state, LogAlignment | Stopping | Failed);
            assert_eq!(state.may_follow(None), begins, "{state}");
        }
    }
}
