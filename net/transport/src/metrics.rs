//! What one core's connections count. Each core has an instance of its own; a scrape sums them up.
//!
//! Counters only ever rise; what is open is the difference of two of them.

use tarn_metrics::{Column, Counter, Exposition, metrics};

metrics! {
    /// Connections that are open, by the core that serves them.
    CONNECTION_COUNT: Gauge Number "kafka_server_socket_server_metrics_connection_count" ["networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Connections that a core took over.
    CONNECTIONS_CREATED: Counter Number
        "kafka_server_socket_server_metrics_connection_creation_total" ["networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Connections that ended, for whatever reason.
    CONNECTIONS_CLOSED: Counter Number
        "kafka_server_socket_server_metrics_connection_close_total" ["networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Requests that were read, ApiVersions included.
    REQUESTS: Counter Number "kafka_server_socket_server_metrics_request_total" ["networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Bytes of requests.
    BYTES_RECEIVED: Counter Bytes "kafka_server_socket_server_metrics_incoming_byte_total" ["networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Bytes of responses.
    BYTES_SENT: Counter Bytes "kafka_server_socket_server_metrics_outgoing_byte_total" ["networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Connections that were closed because nothing moved for too long.
    CLOSED_IDLE: Counter Number "tarn_connections_closed_idle_total" [];
    /// Connections that were closed because of what the client sent.
    CLOSED_MALFORMED: Counter Number "tarn_connections_closed_malformed_total" [];
    /// Connections that were closed because serving them panicked.
    PANICKED: Counter Number "tarn_connections_panicked_total" [];
    /// Bytes of responses that went from a file to a socket without a copy.
    BYTES_FROM_FILES: Counter Bytes "tarn_bytes_sent_from_files_total" [];
    /// Bytes of responses that had to be read from the disk first.
    BYTES_COLD: Counter Bytes "tarn_bytes_read_cold_total" [];
}

/// The counters of one core.
#[derive(Debug, Default)]
pub struct TransportMetrics {
    /// Connections that this core took over.
    pub connections_opened: Counter,
    /// Connections that ended, for whatever reason.
    pub connections_closed: Counter,
    /// Those of them that were closed because nothing moved for too long.
    pub connections_closed_idle: Counter,
    /// Those of them that were closed because of what the peer sent.
    pub connections_closed_malformed: Counter,
    /// Those of them whose service panicked.
    pub connections_panicked: Counter,
    /// Requests read, ApiVersions included.
    pub requests: Counter,
    /// Bytes of requests.
    pub bytes_received: Counter,
    /// Bytes of responses.
    pub bytes_sent: Counter,
    /// Bytes of responses that went from a file to a socket without a copy.
    pub bytes_sent_from_files: Counter,
    /// Bytes of responses that were not in the page cache and were read on the blocking pool.
    pub bytes_read_cold: Counter,
}

impl TransportMetrics {
    /// The connections that are open now.
    pub fn connections_open(&self) -> u64 {
        let closed = self.connections_closed.get();
        self.connections_opened.get().saturating_sub(closed)
    }
}

/// Writes what the cores have counted, which are in the order of their numbers.
pub fn expose<'a>(cores: impl Iterator<Item = &'a TransportMetrics> + Clone, page: &mut Exposition) {
    let by_core: [Column<TransportMetrics>; 6] = [
        (CONNECTION_COUNT, TransportMetrics::connections_open),
        (CONNECTIONS_CREATED, |core| core.connections_opened.get()),
        (CONNECTIONS_CLOSED, |core| core.connections_closed.get()),
        (REQUESTS, |core| core.requests.get()),
        (BYTES_RECEIVED, |core| core.bytes_received.get()),
        (BYTES_SENT, |core| core.bytes_sent.get()),
    ];
    for (metric, value) in by_core {
        let mut family = page.family(metric);
        for (number, core) in cores.clone().enumerate() {
            family.series(&[&number.to_string()], value(core));
        }
    }
    let of_all: [Column<TransportMetrics>; 5] = [
        (CLOSED_IDLE, |core| core.connections_closed_idle.get()),
        (CLOSED_MALFORMED, |core| core.connections_closed_malformed.get()),
        (PANICKED, |core| core.connections_panicked.get()),
        (BYTES_FROM_FILES, |core| core.bytes_sent_from_files.get()),
        (BYTES_COLD, |core| core.bytes_read_cold.get()),
    ];
    for (metric, count) in of_all {
        page.single(metric, cores.clone().map(count).sum::<u64>());
    }
}
