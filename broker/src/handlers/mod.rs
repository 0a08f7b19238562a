//! One file for each API or family of APIs: decode, ask the core that decides, encode. A rule found here
//! is in the wrong room.

pub mod admin;
pub mod config_resources;
pub mod configs;
pub mod coordinators;
pub mod delete_records;
pub mod fetch;
pub mod log_dirs;
mod loggers;
pub mod metadata;
pub mod mirrors;
pub mod offsets;
pub mod produce;
pub mod producer_ids;
pub mod producers;
pub mod txn_markers;
