//! `tarn await-ready`: for scripts that have started a cluster and go on once it answers.

use std::time::{Duration, Instant};

use clap::Args;
use tarn_runtime::sleep;

use crate::admin::{Cluster, PAUSE, on_core, seconds};
use crate::connect::ConnectArguments;
use crate::failure::Failure;
use crate::progress::while_waiting;

/// What to wait for.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// The id that the cluster must have
    #[arg(long, value_name = "ID")]
    cluster_id: Option<String>,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds(), default_value_t = 30)]
    timeout: u64,
}

/// Waits until the cluster names a broker.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    on_core(move || async move {
        let deadline = Instant::now() + Duration::from_secs(arguments.timeout);
        let message = format!("waiting for {}", arguments.connect.bootstrap_server[0]);
        while_waiting(&message, answering(&arguments, deadline)).await
    })
}

async fn answering(arguments: &Arguments, deadline: Instant) -> Result<(), Failure> {
    loop {
        let why = match identity(arguments).await {
            Ok((Some(id), _)) if arguments.cluster_id.as_ref().is_some_and(|wanted| *wanted != id) => {
                return Err(Failure::Failed(format!("another cluster, {id}, answers there")));
            }
            Ok((_, brokers)) if brokers > 0 => return Ok(()),
            Ok(_) => Failure::Failed("no broker has registered with the cluster".to_owned()),
            Err(failure) => failure,
        };
        if Instant::now() >= deadline {
            return Err(why);
        }
        sleep(PAUSE).await;
    }
}

async fn identity(arguments: &Arguments) -> Result<(Option<String>, usize), Failure> {
    Cluster::connect(&arguments.connect).await?.identity().await
}
