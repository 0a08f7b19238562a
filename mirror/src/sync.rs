//! What follows the source beside the records: which topics there are, and how many partitions they have.

pub mod discovery;
pub mod topics;
