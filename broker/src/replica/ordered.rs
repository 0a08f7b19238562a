//! Whether a mirror may have the end of a log changed: what an order to end it and an order to cut it both need.
//!
//! Invariant: an order is carried out under the version of the binding that it follows from and no other, and only
//! while neither the mirror nor clients append.

use tarn_image::{Binding as Desired, DesiredState};
use thiserror::Error;

use super::Replica;

/// Why an order is not carried out, or not yet.
#[derive(Debug, Error)]
pub enum NotOrdered {
    /// The topic is not bound as the order says.
    #[error("its binding is {}, and the order is of version {asked}", shown(found.as_ref()))]
    Binding {
        /// The version of the order.
        asked: i64,
        /// What this core knows.
        found: Option<Desired>,
    },
    /// Its mirror may still append.
    #[error("its gate is open")]
    GateOpen,
    /// Clients may write, so that nothing tells their records from what was ordered for.
    #[error("clients may write to it")]
    Writable,
}

fn shown(binding: Option<&Desired>) -> String {
    match binding {
        Some(binding) => format!("{} at version {}", binding.desired, binding.version),
        None => "none".to_owned(),
    }
}

impl Replica {
    /// Checks that the topic is bound at this version of an order, in a state in which it may be given, and that nobody
    /// appends.
    ///
    /// # Errors
    /// Why it is not carried out.
    pub(super) fn check_ordered(
        &self,
        version: i64,
        may_be_given: impl Fn(DesiredState) -> bool,
    ) -> Result<(), NotOrdered> {
        let is_ordered = |desired: &Desired| desired.version == version && may_be_given(desired.desired);
        let Some(binding) = self.binding.as_ref().filter(|binding| is_ordered(&binding.desired)) else {
            let found = self.binding.as_ref().map(|binding| binding.desired.clone());
            return Err(NotOrdered::Binding { asked: version, found });
        };
        if binding.gate.is_some() {
            return Err(NotOrdered::GateOpen);
        }
        if binding.check_write(&self.topic).is_ok() {
            return Err(NotOrdered::Writable);
        }
        Ok(())
    }
}
