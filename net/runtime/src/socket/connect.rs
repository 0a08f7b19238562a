//! Connecting to a host by name.

use super::readiness::writable;
use super::{Socket, inet};
use crate::blocking::blocking_lookup;
use crate::timer;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Connects to `host`, a name or an address, trying each of its addresses in the resolver's order. The
/// lookup happens beside the core. `limit` is for all of it; of what is left, each address gets an
/// equal share.
///
/// # Errors
/// `TimedOut`, or the failure of the last address, naming host, port and address.
pub async fn connect(host: &str, port: u16, limit: Duration) -> io::Result<Socket> {
    let deadline = timer::now() + limit;
    let addresses = timer::timeout(limit, resolve(host, port)).await.map_err(|elapsed| {
        io::Error::new(io::ErrorKind::TimedOut, format!("{host} was not resolved: {elapsed}"))
    })??;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(timer::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let attempt = timer::timeout(share, connect_to(*address)).await;
        match attempt.map_err(io::Error::from).and_then(|connected| connected) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = about(host, *address, &error),
        }
    }
    Err(failure)
}

async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let looked_up = blocking_lookup(move || (name.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    looked_up
        .await?
        .map_err(|error| io::Error::new(error.kind(), format!("{host} was not resolved: {error}")))
}

async fn connect_to(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {
            writable(socket.as_fd()).await?;
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
        }
        Err(error) => return Err(error),
    }
    refuse_self(&socket)?;
    Ok(Socket::from_fd(OwnedFd::from(socket)))
}

/// A connection to a free port of this very host may meet itself: TCP's simultaneous open.
fn refuse_self(socket: &socket2::Socket) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match inet(socket.local_addr()?)? == inet(socket.peer_addr()?)? {
        true => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
        false => Ok(()),
    }
}

fn about(host: &str, address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot connect to {host} at {address}: {error}"))
}
