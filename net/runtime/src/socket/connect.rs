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
use std::time::{Duration, Instant};

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
    connect_any(host, &addresses, deadline).await
}

/// The addresses of `host`, a name or an address. The lookup happens beside the core.
///
/// # Errors
/// Where it has none, or nobody says.
pub async fn lookup(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok(resolve(host, 0).await?.iter().map(SocketAddr::ip).collect())
}

async fn connect_any(host: &str, addresses: &[SocketAddr], deadline: Instant) -> io::Result<Socket> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::socket::Listener;

    const LONG: Duration = Duration::from_secs(10);

    fn here() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    /// A port that was free a moment ago, and so refuses.
    fn closed_port() -> SocketAddr {
        Listener::bind(here(), 1).unwrap().local_addr().unwrap()
    }

    #[test]
    fn a_name_and_an_address_lead_to_the_same_listener() {
        run_on_core(|| async {
            let listener = Listener::bind(here(), 8).unwrap();
            let port = listener.local_addr().unwrap().port();
            for host in ["localhost", "127.0.0.1"] {
                let socket = connect(host, port, LONG).await.unwrap();
                assert_eq!(listener.accept().await.unwrap().1, socket.local_addr().unwrap());
            }
        });
    }

    #[test]
    fn an_address_that_refuses_is_followed_by_the_next() {
        run_on_core(|| async {
            let listener = Listener::bind(here(), 8).unwrap();
            let addresses = [closed_port(), listener.local_addr().unwrap()];
            let socket = connect_any("somewhere", &addresses, timer::now() + LONG).await.unwrap();
            assert_eq!(socket.peer_addr().unwrap(), addresses[1]);
        });
    }

    #[test]
    fn a_refusal_names_host_and_address() {
        run_on_core(|| async {
            let closed = closed_port();
            let refused = connect("127.0.0.1", closed.port(), LONG).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let text = refused.to_string();
            assert!(text.starts_with(&format!("cannot connect to 127.0.0.1 at {closed}")), "{text}");
        });
    }

    #[test]
    fn a_host_that_does_not_answer_is_given_up_in_time() {
        run_on_core(|| async {
            // A listener whose queue is full answers no more handshakes.
            let silent = Listener::bind(here(), 0).unwrap();
            let address = silent.local_addr().unwrap();
            let limit = Duration::from_millis(100);
            let mut waiting = Vec::new();
            let given_up = loop {
                assert!(waiting.len() < 20, "a queue of none has taken 20 connections");
                match connect("127.0.0.1", address.port(), limit).await {
                    Ok(socket) => waiting.push(socket),
                    Err(error) => break error,
                }
            };
            assert_eq!(given_up.kind(), io::ErrorKind::TimedOut, "{given_up}");
        });
    }

    #[test]
    fn a_name_that_does_not_exist_is_an_error_that_names_it() {
        run_on_core(|| async {
            let failed = connect("no-such-host.invalid", 9092, Duration::from_secs(3)).await.unwrap_err();
            assert!(failed.to_string().contains("no-such-host.invalid was not resolved"), "{failed}");
        });
    }
}
