//! One partition's replica and what waits on it.

mod compacting;
mod deleting;
pub(crate) mod ending;
mod flushing;
mod guard;
mod leader;
mod leadership;
mod ordered;
pub(crate) mod truncating;
pub mod waiting;

pub use deleting::{DeleteUpTo, NotDeleted, Retained};
pub use ending::{Behind, LookBehind, NotEnded};
pub use guard::{Binding, WriteRefused};
pub use leader::{Isolation, ProduceError, Reading, Replica};
pub use leadership::Leadership;
pub use ordered::NotOrdered;
pub use truncating::{NotTruncated, ReadyToTruncate, TruncationWork};
