//! Faults: bytes that are no Kafka, sources that are none. Run with `tests/run.sh`.

mod bad_input;
mod bad_mirror;
