//! A partition's log on a real disk: what it takes, gives back, drops and finds again.

#![allow(clippy::unwrap_used)]

mod appending;
mod compacting;
mod damaged;
mod ending;
mod exporting;
mod flushing;
mod full_disk;
mod holes;
mod idle_producers;
mod model;
mod reading;
mod recovering;
mod retaining;
mod sent_again;
mod swapping;
mod truncating;
mod txn_indexes;
mod watched_disk;
mod world;
