//! Tests over every message and version at once.
//!
//! The build script writes, beside the messages, how to fill each struct with random values that a version
//! can carry (`instances.rs`). From these the modules below take their cases. A failing case names message,
//! version and seed.

mod agreement;
mod debug_tree;
mod errors;
mod fixtures;
mod hostile;
#[allow(clippy::field_reassign_with_default, reason = "which fields a version has is known only then")]
mod maker;
mod metering;
mod round_trip;
