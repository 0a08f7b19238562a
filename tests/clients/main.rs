//! Clients that are not Java's, against Tarn. Run with `tests/run.sh`.

mod failed_over;
mod librdkafka;
