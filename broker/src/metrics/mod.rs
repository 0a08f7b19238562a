//! What a node tells of itself in numbers: the instruments of its cores, and what a core tells when it is asked.
//!
//! Names are those that the JMX exporter's example configuration makes of Apache Kafka's metrics, so that dashboards
//! made for it work; what Kafka has not begins with `tarn_`. `described` lists them, `admin::page` writes them.

mod described;
mod errors;
mod measured;
mod requests;
mod traffic;

use std::sync::Arc;

use tarn_metrics::{Counter, Metric, Timer};
use tarn_transport::{ListenerName, TransportMetrics};

pub(crate) use described::*;
pub use errors::{ErrorCounts, Errors};
pub(crate) use measured::measure;
pub use measured::{CoreMeasured, Measure, MeasuredLog};
pub use requests::{OfApi, Requests, WAITING};
pub use traffic::{TopicTraffic, Traffic};

/// The instruments of one core, which it alone writes. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreMetrics {
    /// Its connections.
    pub transport: Arc<TransportMetrics>,
    /// The requests that it serves.
    pub requests: Requests,
    /// Its flushes that somebody waits for, and those of the background thread on its behalf.
    pub flushes: Timer,
    /// What fetches wanted and memory did not have.
    pub cold_lookups: ColdLookups,
}

/// Lookups beside a core.
#[derive(Debug, Default)]
pub struct ColdLookups {
    /// Those that wait for a lane, or are in one, or have ended.
    pub begun: Counter,
    /// How long each of those took that have ended, waiting for a lane included.
    pub ended: Timer,
}

impl CoreMetrics {
    /// Those of so many cores, which serve these listeners.
    pub fn of_cores(cores: usize, listeners: &[ListenerName]) -> Vec<Arc<CoreMetrics>> {
        let transport = || Arc::new(TransportMetrics::of_listeners(listeners.iter().cloned()));
        (0..cores)
            .map(|_| Arc::new(CoreMetrics { transport: transport(), ..CoreMetrics::default() }))
            .collect()
    }
}

/// The tables of every crate that tells something, for the reference page.
pub fn tables() -> [&'static [&'static Metric]; 3] {
    [described::METRICS, tarn_transport::metrics::METRICS, tarn_mirror::metrics::METRICS]
}
