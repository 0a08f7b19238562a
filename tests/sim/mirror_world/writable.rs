//! Never writable while mirroring: looked at after each event, whether or not a client writes just then.

use tarn_image::DesiredState;
use tarn_mirror::state::MirrorState;

use super::MirrorWorld;
use super::controller::TOPIC;
use super::mirrors::Mirror;
use crate::simulation::Violation;

impl MirrorWorld {
    /// Where clients may write, the stop that is wanted, or was, is written down for good: at its version, by the mirror
    /// that the owning core knows of.
    pub(super) fn check_writable(&mut self) -> Result<(), Violation> {
        let Some(binding) = self.core.replica.binding() else { return Ok(()) };
        if binding.check_write(TOPIC).is_err() {
            return Ok(());
        }
        let (desired, version) = (binding.desired.desired, binding.desired.version);
        let mirror = Mirror::named(&binding.desired.mirror);
        if self.states.has_forgotten(mirror, version) {
            // It was deleted, once it had stopped.
            return Ok(());
        }
        let durable = self.states.durable(mirror);
        let is_wanted = matches!(desired, DesiredState::Stopping | DesiredState::Stopped);
        let has_stopped = durable.state == Some(MirrorState::Stopped) && durable.state_version == version;
        if is_wanted && has_stopped {
            return Ok(());
        }
        let found = (durable.state, durable.state_version);
        let text = format!("clients may write: {desired:?} {version} is wanted, {found:?} is written");
        Err(Violation::new("writable", text))
    }
}
