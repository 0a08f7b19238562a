//! Measurements of Tarn: what `perf/run.sh` needs and no other program gives.

mod measure;
mod peers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::peers::copy_loop::CopyLoop;

/// Measurements of Tarn.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    run: Run,
}

#[derive(Subcommand)]
enum Run {
    /// Copy a topic as fast as one thread can: fetch, check CRCs, write. Prints one line of JSON.
    Loop {
        /// The source broker, which leads every partition.
        #[arg(long, value_name = "HOST:PORT")]
        source: String,
        /// The topic.
        #[arg(long)]
        topic: String,
        /// How many partitions it has.
        #[arg(long)]
        partitions: i32,
        /// The largest response to ask for, in bytes.
        #[arg(long, default_value_t = 2 * 1024 * 1024)]
        response_bytes: i32,
        /// Where to write the copies.
        #[arg(long)]
        into: PathBuf,
    },
    /// Print the CPU seconds that a running process has used.
    Cpu {
        /// The process id.
        process: String,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().run) {
        Ok(line) => {
            let mut out = std::io::stdout();
            if std::io::Write::write_all(&mut out, format!("{line}\n").as_bytes()).is_err() {
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tarn-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(run: Run) -> Result<String, String> {
    match run {
        Run::Loop { source, topic, partitions, response_bytes, into } => {
            let copy = CopyLoop { source, topic, partitions, response_bytes };
            let copied = copy.run(&into).map_err(|error| error.to_string())?;
            Ok(json!({
                "records": copied.records,
                "bytes": copied.bytes,
                "seconds": copied.seconds,
                "cpu_seconds": copied.cpu_seconds,
            })
            .to_string())
        }
        Run::Cpu { process } => measure::cpu_seconds_of(&process)
            .map(|seconds| format!("{seconds}"))
            .ok_or_else(|| format!("there is no process {process}")),
    }
}
