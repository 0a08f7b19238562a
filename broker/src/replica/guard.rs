//! Whether a client may write to a partition that a mirror feeds (mirroring.md §1).
//!
//! A mirrored partition takes client writes only while its topic's desired state is stopping or stopped
//! and the partition itself is STOPPED. What is not yet known is never taken for writable, nor is what was known
//! under an older version of the binding: a start since may have ended it, though nobody could say so here.

use tarn_image::DesiredState;
use tarn_image::mirrors::ReadOnly;
use tarn_mirror::local_cluster::{KnownState, MirrorGeneration};
use tarn_mirror::state::MirrorState;
use tarn_record::Offset;
use tarn_wire::ErrorCode;
use thiserror::Error;

/// How a partition is bound to a mirror, as its owning core sees it.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The binding in the metadata.
    pub desired: tarn_image::Binding,
    /// What the coordinator knows of this partition.
    pub known: KnownState,
    /// The gate: open under this generation, or closed.
    pub gate: Option<MirrorGeneration>,
    /// How far consumers could read at the source when it last answered.
    pub source_high_watermark: Offset,
}

/// Why a client's write is refused. The message says what would make the partition writable.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WriteRefused {
    /// It is mirrored.
    #[error(transparent)]
    ReadOnly(#[from] ReadOnly),
    /// It may be writable, but the coordinator has not said so yet.
    #[error("whether mirror {mirror} has stopped for this partition is not known yet")]
    NotKnownYet {
        /// The mirror.
        mirror: String,
    },
}

impl WriteRefused {
    /// The error code of the protocol: one that clients do not retry for what is refused for good.
    pub fn code(&self) -> ErrorCode {
        match self {
            WriteRefused::ReadOnly(_) => ErrorCode::POLICY_VIOLATION,
            WriteRefused::NotKnownYet { .. } => ErrorCode::NOT_ENOUGH_REPLICAS,
        }
    }
}

impl Binding {
    /// A partition that has just been bound: closed, and nothing known of it.
    pub fn new(desired: tarn_image::Binding) -> Binding {
        Binding { desired, known: KnownState::Unknown, gate: None, source_high_watermark: Offset(0) }
    }

    /// True while the mirror rules the partition's log: its retention, its epochs, its watermarks.
    pub fn rules_the_log(&self) -> bool {
        let is_stopped = matches!(self.known, KnownState::Known { state: MirrorState::Stopped, .. });
        self.desired.desired != DesiredState::Stopped && !is_stopped
    }

    /// Whether a client may append to `topic`.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check_write(&self, topic: &str) -> Result<(), WriteRefused> {
        let refused = |state| WriteRefused::ReadOnly(self.desired.refusal(topic, state));
        let not_known = || WriteRefused::NotKnownYet { mirror: self.desired.mirror.to_string() };
        match (self.desired.desired, self.known) {
            (DesiredState::Stopped, _) => Ok(()),
            (DesiredState::Stopping, KnownState::Known { state: MirrorState::Stopped, version }) => {
                if version == self.desired.version { Ok(()) } else { Err(not_known()) }
            }
            (DesiredState::Stopping, KnownState::Unknown) => Err(not_known()),
            (_, KnownState::Known { state, .. }) => Err(refused(state.name())),
            (_, KnownState::Unknown | KnownState::None) => Err(refused("not known yet")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stopped_before_it_was_started_again_is_not_writable_by_the_next_stop_alone() {
        let mut binding = Binding::new(desired("stopping", 5));
        binding.known = known(MirrorState::Stopped, 5);
        assert_eq!(binding.check_write("t"), Ok(()));
        // It is started, the coordinator writes LOG_ALIGNMENT, its answer gets lost, and it is stopped again.
        binding.desired = desired("mirroring", 7);
        assert!(matches!(binding.check_write("t"), Err(WriteRefused::ReadOnly(_))));
        binding.desired = desired("stopping", 9);
        assert!(matches!(binding.check_write("t"), Err(WriteRefused::NotKnownYet { .. })));
        // Whoever asked the coordinator may not know of the second stop yet.
        binding.known = known(MirrorState::Stopped, 5);
        assert!(matches!(binding.check_write("t"), Err(WriteRefused::NotKnownYet { .. })));
        binding.known = known(MirrorState::LogAlignment, 7);
        assert!(matches!(binding.check_write("t"), Err(WriteRefused::ReadOnly(_))));
        binding.known = known(MirrorState::Stopped, 9);
        assert_eq!(binding.check_write("t"), Ok(()));
    }

    #[test]
    fn a_stop_that_is_completed_stays_writable() {
        let mut binding = Binding::new(desired("stopping", 5));
        binding.known = known(MirrorState::Stopped, 5);
        binding.desired = desired("stopped", 5);
        assert_eq!(binding.check_write("t"), Ok(()));
    }

    fn known(state: MirrorState, version: i64) -> KnownState {
        KnownState::Known { state, version }
    }

    fn desired(state: &str, version: i64) -> tarn_image::Binding {
        let wanted: tarn_image::mirrors::Wanted = format!("{state}:{version}").parse().expect("it is one");
        let (desired, truncation) = (wanted.state, wanted.truncation);
        tarn_image::Binding { mirror: "m".into(), desired, version, truncation }
    }
}
