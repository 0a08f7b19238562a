//! Faults: bytes that are no Kafka, sources that are none, disks that are full or fail, SIGKILL. Run with `tests/run.sh`.

mod bad_input;
mod bad_mirror;
mod failed_dir;
mod full_disk;
mod killed;
mod told;
