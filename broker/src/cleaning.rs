//! Compaction as a node runs it: which log is compacted next, by whom, and what its core has to do with it.
//!
//! Threads of their own read and write (`cleaners`, `round`); they come last where CPUs are busy, share one rate
//! (`throttle`) and one memory for keys. A core knows its compacted logs (`ledger`), proposes those that need it most
//! (`candidates`), and puts what a thread has written in its place (`owner`). Of a log one round is under way at most,
//! and none while it is about to be cut, closed or deleted: those wait for its end, which is soon.
//!
//! Where compaction of a log goes on is noted in the cleaner's checkpoint file once what a round did is on the disk.

mod candidates;
mod cleaners;
mod ledger;
mod numbers;
mod owner;
mod round;
mod shared;
mod throttle;

pub use candidates::{Candidate, Candidates};
pub use cleaners::Cleaners;
pub use ledger::Ledger;
pub use numbers::{CleanerNumbers, LastRound, Uncleanable};
pub use owner::{Begun, CleanCall, Ended, Swap};
pub(crate) use owner::{answer, configure, ended, follow, forget, opened, pause, was_truncated};
pub use round::Outcome;
pub use shared::Shared;

#[cfg(test)]
mod tests;
