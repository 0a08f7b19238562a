//! The sockets that a node listens on.

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
