//! Tests against real Apache Kafka: as source, as tool, as client, and as the reader of our files. Run
//! them with `tests/run.sh`, which gets Kafka and builds `tarn`.

mod kit_itself;
