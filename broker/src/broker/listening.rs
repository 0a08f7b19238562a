//! The sockets that a node listens on.

use std::io;
use std::net::TcpListener;
use std::time::Instant;

use tarn_image::config::server::{Listener, ServerConfig};
use tarn_transport::{Acceptor, ConnectionLimits};

use super::error::StartError;
use crate::{connections, limits};

pub(super) fn bind(config: &ServerConfig, connections: &ConnectionLimits) -> Result<Acceptor, StartError> {
    let failed = |listener: &Listener, cause| StartError::Listener { listener: listener.to_string(), cause };
    let spec =
        |listener| connections::listener_spec(config, listener).map_err(|cause| failed(listener, cause));
    let specs = config.listeners.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
    while_taken(|| Acceptor::bind(&specs, connections)).map_err(StartError::Machine)
}

/// The socket of metrics and health checks, where one is asked for.
pub(super) fn bind_admin(config: &ServerConfig) -> Result<Option<TcpListener>, StartError> {
    let Some((host, port)) = &config.admin.listener else { return Ok(None) };
    let everywhere = if host.is_empty() { "0.0.0.0" } else { host };
    match while_taken(|| TcpListener::bind((everywhere, *port))) {
        Ok(listener) => Ok(Some(listener)),
        Err(cause) => {
            let address = config.properties.get("tarn.admin.listener").cloned().unwrap_or_default();
            Err(StartError::AdminListener { address, cause })
        }
    }
}

/// Binds a port; one that is taken is tried again for a while: the kernel lets go of a killed node's sockets only after
/// its rings are torn down.
fn while_taken<S>(bind: impl Fn() -> io::Result<S>) -> io::Result<S> {
    let deadline = Instant::now() + limits::PORT_WAIT;
    loop {
        match bind() {
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(limits::PORT_RETRY_PAUSE);
            }
            bound => return bound,
        }
    }
}
