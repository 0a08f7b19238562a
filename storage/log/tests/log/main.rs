//! A partition's log on a real disk: what it takes, gives back, drops and finds again.

#![allow(clippy::unwrap_used)]

mod appending;
mod compacting;
mod damaged;
mod ending;
mod exporting;
mod flushing;
mod idle_producers;
mod model;
mod reading;
mod recovering;
mod retaining;
mod swapping;
mod truncating;
mod watched_disk;
mod world;
