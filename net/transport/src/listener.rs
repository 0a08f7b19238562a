//! Listening, and dealing what is accepted to the cores.
//!
//! One core accepts for all: its listeners own their ports alone, and the cores get connections in turn,
//! through their mailboxes. Owned by the accepting core.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;

use tarn_runtime::channel::{Flag, Refused, Sender};
use tarn_runtime::socket::{Listener, Socket};
use tarn_runtime::{Queue, Task, now, spawn};

use crate::admission::{Admission, Seat};
use crate::limits::{self, ConnectionLimits};
use crate::remarks::{Reason, Remarks};

/// The name of a listener, such as `PLAINTEXT`. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerName(Arc<str>);

/// A listener to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Its name.
    pub name: ListenerName,
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// How many connections may wait to be accepted.
    pub backlog: i32,
    /// The receive buffer of accepted sockets (`socket.receive.buffer.bytes`); `None` leaves it to the
    /// kernel.
    pub receive_buffer: Option<usize>,
    /// The send buffer of accepted sockets (`socket.send.buffer.bytes`).
    pub send_buffer: Option<usize>,
}

/// An accepted socket on its way to its core.
#[derive(Debug)]
pub struct Accepted {
    pub(crate) socket: Socket,
    pub(crate) listener: ListenerName,
    pub(crate) peer: SocketAddr,
    pub(crate) seat: Seat,
}

/// The listeners of a node. Can be bound on any thread before the cores start.
#[derive(Debug)]
pub struct Acceptor {
    listeners: Vec<(ListenerName, Listener)>,
    admission: Arc<Admission>,
}

/// Whose turn it is.
struct Deal {
    cores: Vec<Sender<Accepted>>,
    next: Cell<usize>,
}

impl ListenerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ListenerName {
    fn from(name: &str) -> ListenerName {
        ListenerName(Arc::from(name))
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ListenerSpec {
    /// A listener at `host`, a name or an address of this machine, or all of its addresses where it is
    /// empty. Looks the name up, so not to be called on a core.
    ///
    /// # Errors
    /// When the name has no address.
    pub fn new(name: &str, host: &str, port: u16) -> io::Result<ListenerSpec> {
        let about = |error: io::Error| {
            io::Error::new(error.kind(), format!("listener {name}: {host} was not resolved: {error}"))
        };
        let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        let address = match bare {
            "" => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
            bare => (bare, port)
                .to_socket_addrs()
                .map_err(about)?
                .next()
                .ok_or_else(|| about(io::Error::from(io::ErrorKind::NotFound)))?,
        };
        Ok(ListenerSpec::at(name, address))
    }

    /// A listener at `address`, with default buffers.
    pub fn at(name: &str, address: SocketAddr) -> ListenerSpec {
        let backlog = limits::LISTEN_BACKLOG;
        ListenerSpec { name: name.into(), address, backlog, receive_buffer: None, send_buffer: None }
    }
}

impl Acceptor {
    /// Opens all listeners; from now on clients can connect, and wait.
    ///
    /// # Errors
    /// Which listener cannot be opened, and why.
    pub fn bind(specs: &[ListenerSpec], limits: &ConnectionLimits) -> io::Result<Acceptor> {
        let listeners = specs.iter().map(open).collect::<io::Result<Vec<_>>>()?;
        Ok(Acceptor { admission: Admission::new(limits.admission.clone(), listeners.len()), listeners })
    }

    /// Who may connect, which may change while it runs.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Where each listener listens, with the port that it got.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn addresses(&self) -> io::Result<Vec<(ListenerName, SocketAddr)>> {
        self.listeners.iter().map(|(name, listener)| Ok((name.clone(), listener.local_addr()?))).collect()
    }

    /// Accepts until `stop` is raised, dealing the sockets to `cores` in turn. The listeners are closed
    /// when it returns.
    pub async fn run(self, cores: Vec<Sender<Accepted>>, stop: Flag) {
        let deal = Rc::new(Deal { cores, next: Cell::new(0) });
        let tasks: Vec<Task<()>> = self
            .listeners
            .into_iter()
            .enumerate()
            .map(|(number, (name, listener))| {
                let (admission, deal) = (Arc::clone(&self.admission), Rc::clone(&deal));
                spawn(Queue::Network, accept(number, name, listener, admission, deal))
            })
            .collect();
        stop.raised().await;
        for task in tasks {
            task.cancel().await;
        }
    }
}

fn open(spec: &ListenerSpec) -> io::Result<(ListenerName, Listener)> {
    let all = spec.address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let bound = Listener::bind(spec.address, spec.backlog).or_else(|error| {
        // A machine without IPv6 still has all its IPv4 addresses.
        let without_v6 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), spec.address.port());
        match error.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
            _ if all => Listener::bind(without_v6, spec.backlog),
            _ => Err(error),
        }
    });
    let opened = bound.and_then(|listener| {
        listener.set_buffers(spec.receive_buffer, spec.send_buffer)?;
        Ok((spec.name.clone(), listener))
    });
    opened.map_err(|error| {
        let ListenerSpec { name, address, .. } = spec;
        io::Error::new(error.kind(), format!("listener {name} cannot listen on {address}: {error}"))
    })
}

async fn accept(
    number: usize,
    name: ListenerName,
    listener: Listener,
    admission: Arc<Admission>,
    deal: Rc<Deal>,
) {
    let mut remarks = Remarks::default();
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::error!(listener = %name, "no more connections are accepted: {error}");
                return;
            }
        };
        // Behind it the others wait in the backlog. The limits may have changed while nobody came.
        admission.room(number).await;
        match admission.take(peer.ip()) {
            Some(seat) => deal.to_next(Accepted { socket, listener: name.clone(), peer, seat }).await,
            None => {
                if let Some(remark) = remarks.may_say(Reason::Refused, now()) {
                    tracing::info!(listener = %name, %peer, "connection refused: its address has too many{remark}");
                }
            }
        }
    }
}

impl Deal {
    /// Gives a socket to the next core that has room, or waits for the one whose turn it is.
    async fn to_next(&self, mut accepted: Accepted) {
        let turn = self.next.get();
        self.next.set(turn.wrapping_add(1));
        let count = self.cores.len();
        for at in 0..count {
            match self.cores[(turn + at) % count].try_send(accepted) {
                Ok(()) => return,
                Err(Refused::Full(back) | Refused::Closed(back)) => accepted = back,
            }
        }
        if count > 0 {
            // A core that is gone takes no more connections; the socket ends with the error.
            self.cores[turn % count].send(accepted).await.ok();
        }
    }
}
