//! What is searched: one file for each kind of decoder.

pub(crate) mod batches;
pub(crate) mod broken;
pub(crate) mod codecs;
pub(crate) mod directory;
pub(crate) mod files;
pub(crate) mod messages;
pub(crate) mod metadata;
pub(crate) mod partition;
pub(crate) mod texts;
