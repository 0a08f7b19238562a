//! Tests against real Apache Kafka: as source, as tool, as client, and as the reader of our files. Run
//! them with `tests/run.sh`, which gets Kafka and builds `tarn`.

mod appends;
mod begun_again;
mod compaction;
mod ended_log;
mod failover;
mod interchange;
mod kit_itself;
mod mirror_bytes;
mod mirror_commands;
mod mirror_control;
mod mirror_cores;
mod mirror_existing;
mod mirror_interrupted;
mod mirror_large_batches;
mod mirror_old_sources;
mod mirror_parted;
mod mirror_three_nodes;
mod mirror_writes;
mod one_node;
mod quickstart;
mod retention;
mod shown;
mod side_by_side;
mod source_lost;
mod source_restored;
mod tools_golden;
