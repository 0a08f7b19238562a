//! The kit of the tests that need other programs: real Apache Kafka nodes, `tarn` itself, Kafka's
//! tools, kcat, and a raw client that shows the bytes.
//!
//! Everything listens on 127.0.0.1, on ports that were free; keeps its files in a temporary directory
//! that is removed; and is ended by its process id when its value is dropped, or by the kernel when the
//! test process ends in any other way. A failing test prints the last lines of each program it ran.
//!
//! The functions of this crate panic where something is not as it must be: their callers are tests.

pub mod cluster;
pub mod compare;
pub mod dataset;
pub mod dump;
pub mod exports;
pub mod golden;
pub mod kafka;
pub mod kit_files;
pub mod lines;
pub mod old_dataset;
pub mod old_kafka;
pub mod overheard;
pub mod ports;
pub mod process;
pub mod raw;
pub mod relay;
pub mod report;
pub mod tarn;
mod tool_server;
pub mod tools;
pub mod waiting;
