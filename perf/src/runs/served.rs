//! What a server did for clients, and what that cost it. MB are 10^6 and GB 10^9 bytes of batches, as they are sent
//! and stored.

use std::io;

use crate::clients::Done;
use crate::failure::{Doing, Result};
use crate::measure::cpu::{Cost, Processes, memory_peak_bytes};
use crate::measure::quantity::Quantity;
use crate::peers::server::Server;

/// What one server did once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// For whom.
    pub(crate) done: Done,
    /// What it cost.
    pub(crate) cost: Cost,
    memory_peak_bytes: f64,
}

/// What is told of each.
pub(crate) const QUANTITIES: [Quantity<Served>; 5] = [
    Quantity::new("mb_per_second", "MB/s", 0, Served::mb_per_second),
    Quantity::new("cpu_seconds_per_gb", "server CPU-s/GB", 2, Served::cpu_per_gb),
    Quantity::new("requests_per_cpu_second", "requests per server CPU-s", 0, Served::requests_per_cpu_second),
    Quantity::new("memory_peak_mb", "memory MB", 0, |served| served.memory_peak_bytes / 1e6),
    Quantity::new("others_cores", "others' cores", 2, |served| served.cost.others_cores),
];

impl Served {
    #[cfg(test)]
    pub(crate) fn new(done: Done, cost: Cost) -> Served {
        Served { done, cost, memory_peak_bytes: 1e6 }
    }

    /// Runs the clients' work, and counts what it costs the server.
    pub(crate) fn of(server: &Server, work: impl FnOnce() -> io::Result<Done>) -> Result<Served> {
        Served::and(server, || Ok((work()?, ()))).map(|(served, ())| served)
    }

    /// The same, and what else the work tells.
    pub(crate) fn and<T>(
        server: &Server,
        work: impl FnOnce() -> io::Result<(Done, T)>,
    ) -> Result<(Served, T)> {
        let running = Processes::of_server(server.id).start();
        let worked = work();
        let cost = running.stop();
        let (done, told) = worked.doing(|| format!("putting a load on {}", server.address))?;
        let memory_peak_bytes = memory_peak_bytes(&server.id.to_string()) as f64;
        Ok((Served { done, cost, memory_peak_bytes }, told))
    }

    pub(crate) fn mb_per_second(&self) -> f64 {
        self.done.bytes as f64 / 1e6 / self.cost.seconds
    }

    pub(crate) fn cpu_per_gb(&self) -> f64 {
        self.cost.cpu_seconds / (self.done.bytes as f64 / 1e9)
    }

    pub(crate) fn requests_per_cpu_second(&self) -> f64 {
        self.done.requests as f64 / self.cost.cpu_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told_by_the_second_and_by_the_cpu_second() {
        let cost = Cost { seconds: 2.0, cpu_seconds: 4.0, source_cpu_seconds: 0.0, others_cores: 0.0 };
        let done = Done { bytes: 2_000_000_000, requests: 100 };
        let served = Served::new(done, cost);
        let told = QUANTITIES.map(|quantity| (quantity.of)(&served));
        assert_eq!(told, [1000.0, 2.0, 25.0, 1.0, 0.0]);
    }
}
