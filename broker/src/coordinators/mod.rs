//! Coordinators: state machines whose state is a compacted internal topic.

pub mod mirror;
pub mod runtime;
