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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::mailbox;
    use crate::core::tests::{child, core_of, is_child, run_on_core};
    use crate::socket::{Then, connect};
    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    fn here() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    /// W7: an executor's listener would share the port without a word.
    #[test]
    fn a_port_that_is_taken_is_an_error() {
        let first = Listener::bind(here(), 8).unwrap();
        let taken = Listener::bind(first.local_addr().unwrap(), 8).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_port_is_free_again_while_its_old_connections_linger() {
        let address = run_on_core(|| async {
            let listener = Listener::bind(here(), 8).unwrap();
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).unwrap();
            let (server, _) = listener.accept().await.unwrap();
            // The side that closes first lingers in TIME_WAIT.
            drop(server);
            drop(client);
            address
        });
        assert_eq!(Listener::bind(address, 8).unwrap().local_addr().unwrap(), address);
    }

    #[test]
    fn accepted_sockets_do_not_block_are_not_inherited_and_send_at_once() {
        run_on_core(|| async {
            let listener = Listener::bind(here(), 8).unwrap();
            listener.set_buffers(Some(32 << 10), None).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
            assert!(fcntl_getfd(&socket).unwrap().contains(FdFlags::CLOEXEC));
            assert!(fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
            assert!(SockRef::from(&socket).tcp_nodelay().unwrap());
            assert_eq!(SockRef::from(&socket).recv_buffer_size().unwrap(), 64 << 10);
        });
    }

    #[test]
    fn a_socket_accepted_on_one_core_is_served_on_another() {
        let (sockets, mut inbox) = mailbox::<Socket>(8);
        let listener = Listener::bind(here(), 8).unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = core_of(None, move || async move {
            sockets.send(listener.accept().await.unwrap().0).await.unwrap();
        });
        let serving = core_of(None, || async move {
            let mut socket = inbox.recv().await.unwrap();
            let mut buffer = [0; 4];
            let received = socket.read(&mut buffer).await.unwrap();
            socket.write_all(&buffer[..received], Then::Push).await.unwrap();
        });
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"ping").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"ping");
        accepting.join();
        serving.join();
    }

    /// W8: an executor's accepted socket would leak its descriptor.
    #[test]
    fn a_socket_that_no_core_takes_is_closed() {
        let (sockets, inbox) = mailbox::<Socket>(8);
        let listener = Listener::bind(here(), 8).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        run_on_core(|| async move {
            sockets.send(listener.accept().await.unwrap().0).await.unwrap();
            drop(inbox);
        });
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "the peer sees the end");
    }

    #[test]
    fn accepting_goes_on_after_descriptors_ran_out() {
        if is_child("short of descriptors") {
            return run_on_core(|| async {
                let listener = Listener::bind(here(), 64).unwrap();
                let address = listener.local_addr().unwrap();
                let mut clients: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
                let lowest_free = rustix::io::dup(&listener.fd).unwrap();
                let in_use = std::os::fd::AsRawFd::as_raw_fd(&lowest_free) as u64;
                drop(lowest_free);
                let maximum = getrlimit(Resource::Nofile).maximum;
                setrlimit(Resource::Nofile, Rlimit { current: Some(in_use + 4), maximum }).unwrap();
                let mut accepted = Vec::new();
                let limit = Duration::from_millis(300);
                while let Ok(connection) = timer::timeout(limit, listener.accept()).await {
                    accepted.push(connection.unwrap());
                }
                assert_eq!(accepted.len(), 4);
                assert!((1..=7).contains(&listener.refusals()), "{} refusals", listener.refusals());
                clients.truncate(6);
                for _ in 0..4 {
                    accepted.push(listener.accept().await.unwrap());
                    accepted.remove(0);
                }
            });
        }
        let test = "socket::listener::tests::accepting_goes_on_after_descriptors_ran_out";
        let ended = child(test, "short of descriptors");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    #[test]
    fn an_accept_that_is_given_up_has_taken_no_connection() {
        run_on_core(|| async {
            let listener = Listener::bind(here(), 8).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(timer::timeout(Duration::from_millis(2), listener.accept()).await.is_err());
            let client = connect("127.0.0.1", port, Duration::from_secs(10)).await.unwrap();
            let (_, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        });
    }
}
