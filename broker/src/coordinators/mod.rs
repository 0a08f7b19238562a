//! Coordinators: state machines whose state is a compacted internal topic.

pub mod mirror;
pub mod mirror_states;
pub mod runtime;
