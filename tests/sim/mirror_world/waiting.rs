//! Every state leaves, or names what it waits for: looked at after each event, once all that could begin has begun.

use tarn_image::DesiredState;
use tarn_mirror::partition::Want;
use tarn_mirror::state::MirrorState;

use super::happenings::Event;
use super::manager::now_ms;
use super::{MirrorWorld, transitions};
use crate::simulation::{Schedule, Violation, World as _};

impl MirrorWorld {
    /// Counts what an operator is shown.
    pub(super) fn note_shown(&mut self, schedule: &mut Schedule<Event>) {
        if self.is_let_go() {
            return;
        }
        let shown = self.partition.state();
        let before = std::mem::replace(&mut self.shown, shown);
        if before != shown {
            schedule.tally(transitions::shown(before, shown));
        }
    }

    pub(super) fn check_waits(&self, schedule: &Schedule<Event>) -> Result<(), Violation> {
        if self.is_let_go() {
            return Ok(());
        }
        let is_under_way = self.waits_for.is_some() || self.lane.is_some();
        if is_under_way || self.names_what_it_waits_for(self.partition.want(now_ms(schedule))) {
            return Ok(());
        }
        Err(Violation::new("waits", format!("nothing is done or waited for: {}", self.describe())))
    }

    fn names_what_it_waits_for(&self, want: Want) -> bool {
        let (desired, state) = (self.partition.bound().desired, self.partition.state());
        let has_reason = self.partition.trouble().is_some();
        match (want, desired) {
            // A look at the source's metadata is under way.
            (Want::SourceMetadata, _) => self.asks_metadata,
            (Want::Wait(_), _) => has_reason || state == MirrorState::EpochFencing,
            (Want::Nothing, DesiredState::Stopped | DesiredState::Paused) => true,
            (Want::Nothing, DesiredState::Stopping) => self.completing,
            (Want::Nothing, DesiredState::Mirroring) => state == MirrorState::Failed && has_reason,
            // Somebody has to begin it.
            _ => false,
        }
    }
}
