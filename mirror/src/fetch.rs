//! Fetching from the source: what to ask for, the connections that ask, and the memory they may use.

pub mod budget;
pub mod intake;
pub mod lane;
pub mod plan;
pub mod progress;
