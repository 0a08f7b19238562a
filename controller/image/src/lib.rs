//! The cluster's metadata as one value, and what can be read from it.

pub mod config;
