//! What a node tells of itself in numbers: how each metric is described, the instruments that count, and the text
//! that Prometheus reads.
//!
//! A crate that counts has a table of descriptions ([`metrics!`]), from which the page in `docs/` is written, and
//! instruments, one set for each core: the data path of a core writes to no memory that another writes to. Whoever is
//! asked adds them up and writes an [`Exposition`].
//!
//! The crate `prometheus-client` does not serve: it ends the name of every counter in `_total` and has no summaries,
//! so that it cannot write `kafka_network_requestmetrics_totaltimems{quantile="0.99"}` and its `_count`, which
//! dashboards made for Apache Kafka ask for; and its descriptions come to be when something is counted, too late for a
//! page. What is left is the format, which is small. Distributions are kept by the crate `histogram`.

mod description;
mod exposition;
mod instruments;
mod recent;

pub use description::{Kind, Metric, Unit};
pub use exposition::{Column, Exposition, Family, Summary, Value};
pub use instruments::{Counter, Durations, Timer};
pub use recent::Recent;
