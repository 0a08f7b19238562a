//! `tarn`: the server, and the commands that make, fill, read and mirror topics.
//!
//! Every command ends with 0 done, 1 failed or 2 used wrongly; those of `tarn mirror` also with 3, where a
//! precondition is not met. What went wrong is said on standard error, in lines that begin with `tarn: `.

mod admin;
mod compare;
mod connect;
mod consume;
mod failure;
mod fetch;
mod format;
mod generate;
mod logging;
mod mirror;
mod partitioner;
mod produce;
mod progress;
mod ready;
mod server;
mod topics;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// A log server that speaks Kafka's protocol, and the destination of cluster mirroring (KIP-1279).
#[derive(Debug, Parser)]
#[command(name = "tarn", version, max_term_width = 110, after_help = EXIT_CODES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes, of every command: 0 done, 1 failed, 2 used wrongly: an unknown option, a \
                          value that cannot be, a configuration file that is refused. Those of `tarn mirror` also \
                          with 3: something else must be done first. What went wrong stands at the end of \
                          standard error, in lines that begin with `tarn: `.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    Server(server::Arguments),
    /// Make the log directories of a node ready for its first start
    Format(format::Arguments),
    /// Print a new id for a cluster
    RandomUuid,
    /// Mirror topics of another cluster, and see how that goes
    Mirror(mirror::Arguments),
    /// Create and list topics
    Topics(topics::Arguments),
    /// Write records: lines of standard input, or generated ones
    Produce(produce::Arguments),
    /// Read records and print them
    Consume(consume::Arguments),
    /// Compare topics of two clusters, byte by byte
    #[command(hide = true)]
    Compare(compare::Arguments),
    /// Wait until a cluster answers
    #[command(hide = true)]
    AwaitReady(ready::Arguments),
    /// The command line of KIP-1279
    #[command(hide = true, name = mirror::KAFKA_NAME)]
    KafkaClusterMirrors(mirror::KafkaArguments),
}

fn main() -> ExitCode {
    let ended = match CommandLine::parse().command {
        Command::Server(arguments) => server::run(&arguments),
        Command::Format(arguments) => format::run(&arguments),
        Command::RandomUuid => format::print_random_uuid(),
        Command::Mirror(arguments) => mirror::run(arguments),
        Command::Topics(arguments) => topics::run(arguments),
        Command::Produce(arguments) => produce::run(arguments),
        Command::Consume(arguments) => consume::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::AwaitReady(arguments) => ready::run(arguments),
        Command::KafkaClusterMirrors(arguments) => mirror::run_as_kafka_does(arguments),
    };
    match ended {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.told());
            ExitCode::from(failure.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
