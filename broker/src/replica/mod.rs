//! One partition's replica and what waits on it.

mod guard;
mod leader;
mod leadership;
pub mod waiting;

pub use guard::{Binding, WriteRefused};
pub use leader::{Isolation, ProduceError, Replica};
pub use leadership::Leadership;
