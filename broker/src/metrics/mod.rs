//! What a node tells of itself in numbers: the instruments of its cores, and what a core tells when it is asked.
//!
//! Names are those that the JMX exporter's example configuration makes of Apache Kafka's metrics, so that dashboards
//! made for it work; what Kafka has not begins with `tarn_`. `described` lists them, `admin::page` writes them.

mod described;
mod measured;
mod requests;
mod traffic;

use std::sync::Arc;

use tarn_metrics::{Metric, Timer};
use tarn_transport::TransportMetrics;

pub(crate) use described::*;
pub(crate) use measured::measure;
pub use measured::{CoreMeasured, Measure, MeasuredLog};
pub use requests::{OfApi, Requests};
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
}

impl CoreMetrics {
    /// Those of so many cores.
    pub fn of_cores(cores: usize) -> Vec<Arc<CoreMetrics>> {
        (0..cores).map(|_| Arc::default()).collect()
    }
}

/// The tables of every crate that tells something, for the reference page.
pub fn tables() -> [&'static [&'static Metric]; 3] {
    [described::METRICS, tarn_transport::metrics::METRICS, tarn_mirror::metrics::METRICS]
}
