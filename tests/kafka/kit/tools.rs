//! Programs that clients run: Kafka's Java tools, the programs in `tests/kafka/java`, kcat, and clients in
//! other languages.

use crate::kit_files::{class_path, kit_dir, kit_file, source_root};
use crate::process::{Finished, guarded, run};
use crate::tool_server::run_tool;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// Kafka's package of tools.
const TOOLS: &str = "org.apache.kafka.tools.";

/// A Java virtual machine with a short start: one collector thread, one compiler, a class archive.
/// `archive` is `server` or `tools`; without the archive, or where it is of another JVM, it starts slowly.
pub fn java(archive: &str, heap: &str) -> Command {
    let mut command = guarded("java");
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    command.arg(format!("-Xmx{heap}"));
    let classes = kit_dir().join(format!("k440/current/{archive}.jsa"));
    if classes.exists() {
        command.arg(format!("-XX:SharedArchiveFile={}", classes.display()));
    }
    let logging = source_root().join(format!("tests/kafka/log4j2-{archive}.properties"));
    command.arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
    command.arg("-cp").arg(class_path());
    command
}

/// Runs one of Kafka's tools, by its class within `org.apache.kafka.tools`: `TopicCommand`,
/// `consumer.ConsoleConsumer`.
///
/// # Panics
/// Where it does not end in 90 seconds.
pub fn tool(class: &str, arguments: &[&str]) -> Finished {
    tool_with_input(class, arguments, None)
}

/// `tool`, with standard input.
///
/// # Panics
/// Where it does not end in 90 seconds.
pub fn tool_with_input(class: &str, arguments: &[&str], input: Option<&[u8]>) -> Finished {
    run_tool(&format!("{TOOLS}{class}"), arguments, input, LIMIT)
}

/// Runs a Java class of the class path, in a process of its own.
///
/// # Panics
/// Where it does not end within `limit`.
pub fn java_program(class: &str, arguments: &[&str], input: Option<&[u8]>, limit: Duration) -> Finished {
    let mut command = java("tools", "512m");
    command.arg(class).args(arguments);
    run(class, command, input, limit)
}

/// Runs kcat (librdkafka 2.0).
///
/// # Panics
/// Where it is not installed or does not end in 90 seconds.
pub fn kcat(arguments: &[&str], input: Option<&[u8]>) -> Finished {
    let mut command = guarded("kcat");
    command.args(arguments);
    run("kcat", command, input, LIMIT)
}

/// Runs a Python program of `tests/clients`, which has confluent-kafka (a recent librdkafka) and kafka-python.
///
/// # Panics
/// Where it does not end in 90 seconds.
pub fn python(program: &str, arguments: &[&str]) -> Finished {
    let mut command = python_program(program);
    command.args(arguments);
    run(program, command, None, LIMIT)
}

/// The command that runs a Python program of `tests/clients`.
pub fn python_program(program: &str) -> Command {
    let mut command = guarded(kit_file("venv/bin/python"));
    command.arg(source_root().join("tests/clients").join(program));
    command
}

/// Runs `tests/clients/franz-go`.
///
/// # Panics
/// Where it does not end in 90 seconds.
pub fn franz_go(arguments: &[&str]) -> Finished {
    let mut command = guarded(kit_file("franz-go/read_back"));
    command.args(arguments);
    run("franz-go", command, None, LIMIT)
}
