//! The sockets that a node listens on, and what its connections may take.

use std::time::{Duration, Instant};

use tarn_image::config::server::{Listener, ServerConfig};
use tarn_transport::{Acceptor, ConnectionLimits, ListenerSpec};

use super::error::StartError;
use crate::limits;

pub(super) fn connection_limits(config: &ServerConfig) -> ConnectionLimits {
    let network = &config.network;
    let count = |limit: i32| usize::try_from(limit).unwrap_or(usize::MAX);
    ConnectionLimits {
        max_request_bytes: count(network.request_max_bytes),
        idle_timeout: Duration::from_millis(u64::try_from(network.idle_ms).unwrap_or(u64::MAX)),
        max_connections: count(network.max_connections),
        max_per_ip: count(network.max_connections_per_ip),
        ..ConnectionLimits::default()
    }
}

pub(super) fn bind(config: &ServerConfig, connections: &ConnectionLimits) -> Result<Acceptor, StartError> {
    let failed = |listener: &Listener, cause| StartError::Listener { listener: listener.to_string(), cause };
    let mut specs = Vec::new();
    for listener in &config.listeners {
        let mut spec = ListenerSpec::new(&listener.name, &listener.host, listener.port)
            .map_err(|cause| failed(listener, cause))?;
        spec.backlog = config.network.backlog;
        specs.push(spec);
    }
    // The kernel lets go of a killed node's sockets only after its rings are torn down, which takes a while.
    let deadline = Instant::now() + limits::PORT_WAIT;
    loop {
        match Acceptor::bind(&specs, connections) {
            Ok(acceptor) => return Ok(acceptor),
            Err(cause) if cause.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(limits::PORT_RETRY_PAUSE);
            }
            Err(cause) => return Err(StartError::Machine(cause)),
        }
    }
}
