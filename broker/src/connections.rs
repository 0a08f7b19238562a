//! What `server.properties` says of connections, as the transport takes it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tarn_image::config::server::{Listener, ServerConfig};
use tarn_transport::{ConnectionLimits, ListenerSpec, MemoryBudget};

use crate::limits;

/// What the connections of the node may use.
pub(crate) fn connection_limits(config: &ServerConfig) -> ConnectionLimits {
    let network = &config.network;
    let count = |limit: i32| usize::try_from(limit).unwrap_or(usize::MAX);
    ConnectionLimits {
        max_request_bytes: count(network.request_max_bytes),
        idle_timeout: Duration::from_millis(u64::try_from(network.idle_ms).unwrap_or(u64::MAX)),
        max_connections: count(network.max_connections),
        max_per_ip: count(network.max_connections_per_ip),
        stop_grace: limits::STOP_GRACE,
        ..ConnectionLimits::default()
    }
}

/// A listener with its backlog and the buffers of what it accepts. Looks the host up.
///
/// # Errors
/// Where the host has no address.
pub(crate) fn listener_spec(config: &ServerConfig, listener: &Listener) -> io::Result<ListenerSpec> {
    let network = &config.network;
    let mut spec = ListenerSpec::new(&listener.name, &listener.host, listener.port)?;
    spec.backlog = network.backlog;
    spec.receive_buffer = network.receive_buffer_bytes;
    spec.send_buffer = network.send_buffer_bytes;
    Ok(spec)
}

/// The memory for the inbound frames of a node of so many cores.
pub(crate) fn inbound_budget(config: &ServerConfig, cores: usize) -> Arc<MemoryBudget> {
    let configured = config.network.queued_max_request_bytes;
    MemoryBudget::new(configured.unwrap_or_else(|| limits::inbound_bytes(cores)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_that_are_configured_are_those_of_sockets_and_budget() {
        let set = config(
            "socket.receive.buffer.bytes=65536\nsocket.send.buffer.bytes=131072\nqueued.max.request.bytes=1000000\n",
        );
        let spec = listener_spec(&set, &set.listeners[0]).expect("it is an address");
        assert_eq!((spec.receive_buffer, spec.send_buffer), (Some(65536), Some(131_072)));
        assert_eq!(inbound_budget(&set, 4).limit(), 1_000_000);
    }

    #[test]
    fn what_is_not_configured_is_left_to_the_kernel_and_to_the_number_of_cores() {
        let unset = config("");
        let spec = listener_spec(&unset, &unset.listeners[0]).expect("it is an address");
        assert_eq!((spec.receive_buffer, spec.send_buffer), (None, None));
        assert_eq!(inbound_budget(&unset, 4).limit(), limits::inbound_bytes(4));
    }

    fn config(more: &str) -> ServerConfig {
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\nlog.dirs=/data\n\
             controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n{more}"
        );
        ServerConfig::parse(&text).expect("the test's file is good").0
    }
}
