//! What one core's connections count, by listener. Each core has an instance of its own; a scrape sums them up.
//!
//! Counters only ever rise; what is open is the difference of two of them.

use tarn_metrics::{Column, Counter, Exposition, metrics};

use crate::listener::ListenerName;

metrics! {
    /// Connections that are open, by listener and the core that serves them.
    CONNECTION_COUNT: Gauge Number "kafka_server_socket_server_metrics_connection_count" ["listener", "networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Connections that a core took over.
    CONNECTIONS_CREATED: Counter Number
        "kafka_server_socket_server_metrics_connection_creation_total" ["listener", "networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Connections that ended, for whatever reason.
    CONNECTIONS_CLOSED: Counter Number
        "kafka_server_socket_server_metrics_connection_close_total" ["listener", "networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Requests that were read, ApiVersions included.
    REQUESTS: Counter Number "kafka_server_socket_server_metrics_request_total" ["listener", "networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Bytes of requests.
    BYTES_RECEIVED: Counter Bytes "kafka_server_socket_server_metrics_incoming_byte_total" ["listener", "networkProcessor"],
        jmx "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";
    /// Bytes of responses.
    BYTES_SENT: Counter Bytes "kafka_server_socket_server_metrics_outgoing_byte_total" ["listener", "networkProcessor"],
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
#[derive(Debug)]
pub struct TransportMetrics {
    /// One for each listener, and one for connections of no listener that is known.
    listeners: Box<[ListenerMetrics]>,
    /// Connections that were closed because nothing moved for too long.
    pub connections_closed_idle: Counter,
    /// Those of them that were closed because of what the peer sent.
    pub connections_closed_malformed: Counter,
    /// Those of them whose service panicked.
    pub connections_panicked: Counter,
    /// Bytes of responses that went from a file to a socket without a copy.
    pub bytes_sent_from_files: Counter,
    /// Bytes of responses that were not in the page cache and were read on the blocking pool.
    pub bytes_read_cold: Counter,
}

/// The counters of one core's connections by one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    name: Option<ListenerName>,
    /// Connections that this core took over.
    pub connections_opened: Counter,
    /// Connections that ended, for whatever reason.
    pub connections_closed: Counter,
    /// Requests read, ApiVersions included.
    pub requests: Counter,
    /// Bytes of requests.
    pub bytes_received: Counter,
    /// Bytes of responses.
    pub bytes_sent: Counter,
}

/// Which of the listeners of a [`TransportMetrics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerNumber(usize);

impl ListenerNumber {
    /// Of connections by no listener that is known.
    pub const NONE: ListenerNumber = ListenerNumber(usize::MAX);
}

impl Default for TransportMetrics {
    fn default() -> TransportMetrics {
        TransportMetrics::of_listeners([])
    }
}

impl TransportMetrics {
    /// Of connections by these listeners.
    pub fn of_listeners(names: impl IntoIterator<Item = ListenerName>) -> TransportMetrics {
        let names = names.into_iter().map(Some).chain([None]);
        TransportMetrics {
            listeners: names.map(|name| ListenerMetrics { name, ..Default::default() }).collect(),
            connections_closed_idle: Counter::default(),
            connections_closed_malformed: Counter::default(),
            connections_panicked: Counter::default(),
            bytes_sent_from_files: Counter::default(),
            bytes_read_cold: Counter::default(),
        }
    }

    /// The number of a listener: to be asked once for a connection.
    pub fn number_of(&self, name: &ListenerName) -> ListenerNumber {
        let found = self.listeners.iter().position(|listener| listener.name.as_ref() == Some(name));
        found.map_or(ListenerNumber::NONE, ListenerNumber)
    }

    /// The counters of one listener.
    pub fn of(&self, ListenerNumber(number): ListenerNumber) -> &ListenerMetrics {
        &self.listeners[number.min(self.listeners.len() - 1)]
    }

    /// All of them together.
    pub fn sum(&self, of: impl Fn(&ListenerMetrics) -> u64) -> u64 {
        self.listeners.iter().map(of).sum()
    }

    /// The connections that are open now.
    pub fn connections_open(&self) -> u64 {
        self.sum(ListenerMetrics::connections_open)
    }
}

impl ListenerMetrics {
    /// The connections that are open now.
    pub fn connections_open(&self) -> u64 {
        let closed = self.connections_closed.get();
        self.connections_opened.get().saturating_sub(closed)
    }

    /// False where there is nothing to tell: no connection has come by no listener.
    fn is_told(&self) -> bool {
        self.name.is_some() || self.connections_opened.get() > 0
    }
}

/// Writes what the cores have counted, which are in the order of their numbers.
pub fn expose<'a>(cores: impl Iterator<Item = &'a TransportMetrics> + Clone, page: &mut Exposition) {
    let by_listener: [Column<ListenerMetrics>; 6] = [
        (CONNECTION_COUNT, ListenerMetrics::connections_open),
        (CONNECTIONS_CREATED, |core| core.connections_opened.get()),
        (CONNECTIONS_CLOSED, |core| core.connections_closed.get()),
        (REQUESTS, |core| core.requests.get()),
        (BYTES_RECEIVED, |core| core.bytes_received.get()),
        (BYTES_SENT, |core| core.bytes_sent.get()),
    ];
    for (metric, value) in by_listener {
        let mut family = page.family(metric);
        for (number, core) in cores.clone().enumerate() {
            for listener in core.listeners.iter().filter(|listener| listener.is_told()) {
                let name = listener.name.as_ref().map_or("", ListenerName::as_str);
                family.series(&[name, &number.to_string()], value(listener));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_told_by_listener_and_core() {
        let cores =
            [(); 2].map(|()| TransportMetrics::of_listeners(["CONTROLLER".into(), "PLAINTEXT".into()]));
        for (core, listener, opened, closed) in
            [(0, "PLAINTEXT", 3, 1), (1, "PLAINTEXT", 2, 0), (1, "CONTROLLER", 1, 0)]
        {
            let counters = cores[core].of(cores[core].number_of(&listener.into()));
            counters.connections_opened.add(opened);
            counters.connections_closed.add(closed);
        }
        assert_eq!(cores.iter().map(TransportMetrics::connections_open).sum::<u64>(), 5);
        assert_eq!(
            told(&cores),
            [
                "listener=\"CONTROLLER\",networkProcessor=\"0\"} 0",
                "listener=\"PLAINTEXT\",networkProcessor=\"0\"} 2",
                "listener=\"CONTROLLER\",networkProcessor=\"1\"} 1",
                "listener=\"PLAINTEXT\",networkProcessor=\"1\"} 2",
            ]
        );
    }

    #[test]
    fn a_connection_by_no_listener_that_is_known_is_told_without_one() {
        let core = TransportMetrics::of_listeners(["PLAINTEXT".into()]);
        core.of(core.number_of(&"OTHER".into())).connections_opened.add(1);
        assert_eq!(
            told(&[core]),
            ["listener=\"PLAINTEXT\",networkProcessor=\"0\"} 0", "networkProcessor=\"0\"} 1"]
        );
    }

    /// The series of open connections.
    fn told(cores: &[TransportMetrics]) -> Vec<String> {
        let mut page = Exposition::default();
        expose(cores.iter(), &mut page);
        let text = page.finish();
        let series =
            text.lines().filter_map(|line| line.strip_prefix(CONNECTION_COUNT.name)?.strip_prefix('{'));
        series.map(str::to_owned).collect()
    }
}
