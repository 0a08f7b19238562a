//! Compaction: a log that keeps the newest record of each key.
//!
//! A round reads what was appended since the last one and notes where each key is newest (`offset_map`); then
//! it writes every segment up to there anew, several small ones as one (`grouping`), without the records that
//! a later one of their key replaces (`filter`) and without those of aborted transactions (`transactions`).
//! What each new segment replaces is exchanged for it at once (KIP-87 and Kafka's documentation of log
//! compaction; KIP-534 for tombstones).
//!
//! `filter`, `transactions` and `grouping` have no files: they take a batch and say what becomes of it. `dirtiness`
//! says how far a round may go, `job` and `output` write the new segments on a cleaner's thread, and `swap` puts them
//! in their places, on the log's core.

mod dirtiness;
mod filter;
mod grouping;
mod job;
mod offset_map;
mod output;
mod swap;
mod transactions;

#[cfg(test)]
mod model;

pub use dirtiness::{CleanBound, CleanRules, Dirtiness, SegmentTimestamps, Spent, Watch};
pub use job::{CleanError, Cleaning, Round};
pub use offset_map::OffsetMap;
pub use output::Cleaned;
pub(crate) use swap::SwappedOut;
pub use swap::{SwapError, Swapped};
