//! A listening socket.
//!
//! Built by hand, because the executor's own shares its port with any process of the same user without
//! a word (W7) and leaks descriptors that are dropped on their way to another core (W8). It can be bound
//! on any thread and then moved to the core that accepts.

use super::readiness::{Attempt, attempt, readable};
use super::{Socket, inet};
use crate::{limits, queues, timer};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Type};
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// A socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    refusals: Cell<u64>,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one. `backlog` connections may wait to be accepted,
    /// as far as `net.core.somaxconn` allows.
    ///
    /// # Errors
    /// `AddrInUse` where anybody listens there, and whatever else the kernel refuses.
    pub fn bind(address: SocketAddr, backlog: i32) -> io::Result<Listener> {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        // Accepted sockets inherit it.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok(Listener { fd: socket.into(), refusals: Cell::new(0) })
    }

    /// Where it listens, with the port that was taken.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(SockRef::from(&self.fd).local_addr()?)
    }

    /// Asks for the buffer sizes of the sockets that will be accepted; `None` leaves one to the kernel.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_buffers(&self, receive: Option<usize>, send: Option<usize>) -> io::Result<()> {
        let socket = SockRef::from(&self.fd);
        receive.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes))?;
        send.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes))
    }

    /// How often the process or the kernel had no descriptor or memory for another connection.
    pub fn refusals(&self) -> u64 {
        self.refusals.get()
    }

    /// The next connection. Those that broke before they were accepted are passed over; where
    /// descriptors have run out, it waits and tries again. Cancelled, it has taken nothing.
    ///
    /// # Errors
    /// Only where the listening socket itself is broken.
    pub async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        loop {
            queues::yield_if_needed().await;
            match self.try_accept() {
                Ok(Attempt::Done(accepted)) => return Ok(accepted),
                Ok(Attempt::WouldBlock) => readable(self.fd.as_fd()).await?,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.refusals.set(self.refusals.get() + 1);
                        timer::sleep(limits::ACCEPT_BACKOFF).await;
                    }
                    Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP) | None => {
                        return Err(error);
                    }
                    // Errors of the connection, not of the listener: accept(2) passes them on.
                    Some(_) => {}
                },
            }
        }
    }

    fn try_accept(&self) -> io::Result<Attempt<(Socket, SocketAddr)>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Attempt::Done((fd, peer)) = attempt(|| acceptfrom_with(&self.fd, flags))? else {
            return Ok(Attempt::WouldBlock);
        };
        let peer = peer.and_then(|address| SocketAddr::try_from(address).ok());
        let peer = peer.ok_or_else(|| io::Error::from(Errno::CONNABORTED))?;
        Ok(Attempt::Done((Socket::from_fd(fd), peer)))
    }
}
