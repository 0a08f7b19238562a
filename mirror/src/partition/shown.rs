//! What is shown of a partition: its state as it is lived here, why it is not well, and which retry it is in.

use std::sync::Arc;

use tarn_image::DesiredState;

use super::Partition;
use crate::reasons::Reason;
use crate::state::MirrorState;

impl Partition {
    /// The state to show: MIRRORING only where it is fetched, and not where that has not helped yet; PAUSED where nothing
    /// is done before it is resumed, whatever is written down; STOPPING from when a stop is wanted until it is done.
    pub fn state(&self) -> MirrorState {
        match self.bound.desired {
            DesiredState::Stopping if self.has_stopped() => return MirrorState::Stopped,
            DesiredState::Stopping => return MirrorState::Stopping,
            DesiredState::Mirroring | DesiredState::Paused | DesiredState::Stopped => {}
        }
        if self.terminal.is_some() || self.failure.is_some() {
            return MirrorState::Failed;
        }
        let is_to_mirror = self.bound.desired == DesiredState::Mirroring;
        let Some(persisted) = &self.persisted else { return MirrorState::LogAlignment };
        let waits_for_epoch = is_to_mirror && self.raising.is_some() && !self.is_written_off(persisted);
        match persisted.state {
            Some(MirrorState::Mirroring | MirrorState::Pausing) if !is_to_mirror => MirrorState::Pausing,
            Some(MirrorState::Failed) if !is_to_mirror => MirrorState::Failed,
            _ if self.bound.desired == DesiredState::Paused => MirrorState::Paused,
            Some(MirrorState::Mirroring) if self.in_lane && !self.doubted => MirrorState::Mirroring,
            Some(MirrorState::Mirroring) if self.is_to_be_truncated() => MirrorState::UleRecovery,
            _ if waits_for_epoch => MirrorState::EpochFencing,
            None | Some(MirrorState::Mirroring | MirrorState::Paused) => MirrorState::LogAlignment,
            Some(MirrorState::Failed) if self.is_older(persisted) => MirrorState::LogAlignment,
            Some(state) => state,
        }
    }

    /// The reason and message to show.
    pub fn trouble(&self) -> Option<(Reason, Arc<str>)> {
        if let Some(terminal) = &self.terminal {
            return Some(terminal.clone());
        }
        // What failed may be over by now; what holds up the next try is not.
        if let Some(trouble) = self.held.as_ref().or(self.failure.as_ref()) {
            return Some((trouble.reason, trouble.message.clone()));
        }
        if self.bound.desired == DesiredState::Stopping {
            // Whatever was wrong before the stop, it waits for nothing of that.
            let above = self.raising?.above;
            let message = format!("the leader epoch is being raised above {above}");
            return Some((Reason::EpochBehind, message.into()));
        }
        let failed =
            self.persisted.as_ref().filter(|persisted| persisted.state == Some(MirrorState::Failed))?;
        let message = failed.message.clone().unwrap_or_default();
        match self.bound.desired {
            DesiredState::Paused => {
                Some((failed.reason?, format!("{message}; the topic is paused: resume it first").into()))
            }
            // Another command has come since, and it is tried again.
            DesiredState::Mirroring if self.is_older(failed) => None,
            _ => Some((failed.reason?, message)),
        }
    }

    /// What is to be shown where nothing is wrong now: what is searched for, or else what was missed and what was cut.
    pub fn notice(&self) -> Option<(Reason, Arc<str>)> {
        let is_to_mirror = self.bound.desired == DesiredState::Mirroring;
        if let Some(searched) = self.search_notice().filter(|_| is_to_mirror) {
            return Some(searched);
        }
        match (self.gaps.said(), self.truncations.notice()) {
            (None, cut) => cut.cloned(),
            (Some(missed), None) => Some((Reason::SourceGap, missed.into())),
            (Some(missed), Some((_, cut))) => Some((Reason::SourceGap, format!("{missed}; {cut}").into())),
        }
    }

    /// Which retry it is in; 0 for none, −1 where it is not tried again.
    pub fn retry_attempt(&self) -> i16 {
        match self.state() {
            _ if self.terminal.is_some() => -1,
            _ if self.failure.is_some() => i16::try_from(self.attempts).unwrap_or(i16::MAX),
            MirrorState::Failed => -1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bound, Persisted};
    use super::*;
    use tarn_image::mirrors::Truncation;
    use tarn_record::Epoch;

    #[test]
    fn why_it_failed_is_not_said_any_more_once_it_is_tried_again() {
        let shown = |desired, version| {
            let truncation = Truncation::Refused;
            let bound = Bound { desired, version, leader_epoch: Epoch(1), truncation };
            let mut partition = Partition::new(bound);
            partition.state_read(Persisted {
                state: Some(MirrorState::Failed),
                version: 4,
                reason: Some(Reason::SourceTruncated),
                message: Some("it has lost some".into()),
                ..Persisted::default()
            });
            (partition.state(), partition.trouble().map(|(reason, _)| reason))
        };
        let truncated = Some(Reason::SourceTruncated);
        assert_eq!(shown(DesiredState::Mirroring, 4), (MirrorState::Failed, truncated));
        assert_eq!(shown(DesiredState::Mirroring, 5), (MirrorState::LogAlignment, None));
        assert_eq!(shown(DesiredState::Paused, 5), (MirrorState::Failed, truncated), "nothing is tried");
    }
}
