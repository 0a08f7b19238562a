//! Configuration: every key there is, what its values may be, and the file that a server starts from.

pub mod mirror;
mod nearest;
pub mod server;
pub mod table;
pub mod topic;
pub mod value;
