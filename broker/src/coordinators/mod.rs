//! Coordinators: state machines whose state is a compacted internal topic.

pub(crate) mod forgetting;
pub mod mirror;
pub mod mirror_states;
pub mod runtime;
