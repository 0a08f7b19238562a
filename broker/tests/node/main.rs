//! A node in this process, on a real directory, asked over real sockets.

mod asked_for;
mod compacting;
mod configs;
mod deleting;
mod internal;
mod loggers;
mod many_partitions;
mod metrics;
mod mirror_forgotten;
mod mirror_verbs;
mod mirrored;
mod parked;
mod reading;
mod reopening;
mod running;
mod sessions;
mod small_files;
mod stopping;
