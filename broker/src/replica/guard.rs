//! Whether a client may write to a partition that a mirror feeds (mirroring.md §1).
//!
//! A mirrored partition takes client writes only while its topic's desired state is stopping or stopped
//! and the partition itself is STOPPED. What is not yet known is never taken for writable.

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
        self.desired.desired != DesiredState::Stopped && self.known != KnownState::Known(MirrorState::Stopped)
    }

    /// Whether a client may append to `topic`.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check_write(&self, topic: &str) -> Result<(), WriteRefused> {
        let refused = |state| WriteRefused::ReadOnly(self.desired.refusal(topic, state));
        match (self.desired.desired, self.known) {
            (DesiredState::Stopped, _)
            | (DesiredState::Stopping, KnownState::Known(MirrorState::Stopped)) => Ok(()),
            (DesiredState::Stopping, KnownState::Unknown) => {
                Err(WriteRefused::NotKnownYet { mirror: self.desired.mirror.to_string() })
            }
            (_, KnownState::Known(state)) => Err(refused(state.name())),
            (_, KnownState::Unknown | KnownState::None) => Err(refused("not known yet")),
        }
    }
}
