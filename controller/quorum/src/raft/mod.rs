//! KRaft without its sockets, files and clock: what a voter does next (KIP-595).
//!
//! [`Node::step`] takes one input and returns what the driver has to do, in order. The quorum has one
//! voter for now, so there is nobody to ask; the states, the persisted vote and the rule for the high
//! watermark are those of more.

mod node;

pub use node::{Input, Node, Output, Role};
