//! Sockets: listen, connect, receive, send, and send files.
//!
//! A socket is non-blocking and belongs to nobody in particular: every operation tries its system call
//! at once and waits for readiness, on the core it runs on, only where the kernel says that it would
//! block. So sockets may be handed to another core at any time between operations, nothing is leaked
//! when one is dropped on the way, and a cancelled operation has lost no byte it received.

mod connect;
mod listener;
mod readiness;
mod receive;
mod residency;
mod send;
mod stream;

pub use connect::{connect, lookup};
pub use listener::Listener;
pub use residency::{readahead, resident};
pub use send::Then;
pub use stream::Stream;

use socket2::SockRef;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A connected TCP socket.
#[derive(Debug)]
pub struct Socket {
    read: ReadHalf,
    write: WriteHalf,
}

/// The receiving half. One task may receive while another sends.
#[derive(Debug)]
pub struct ReadHalf {
    fd: Arc<OwnedFd>,
    /// The last attempt to receive has found the end of what was there.
    drained: bool,
    /// Fewer bytes than so many wake nobody (`SO_RCVLOWAT`).
    wakes_from: usize,
}

/// The sending half. The connection is closed when both halves are dropped.
#[derive(Debug)]
pub struct WriteHalf {
    fd: Arc<OwnedFd>,
    corked: bool,
}

impl Socket {
    /// Takes a connected, non-blocking socket.
    pub(crate) fn from_fd(fd: OwnedFd) -> Socket {
        let fd = Arc::new(fd);
        let read = ReadHalf { fd: Arc::clone(&fd), drained: false, wakes_from: 1 };
        Socket { read, write: WriteHalf { fd, corked: false } }
    }

    /// The two halves, for two tasks of one core.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// The two halves, borrowed.
    pub fn halves(&mut self) -> (&mut ReadHalf, &mut WriteHalf) {
        (&mut self.read, &mut self.write)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// When the peer is already gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(SockRef::from(self).peer_addr()?)
    }

    /// This end's address.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(SockRef::from(self).local_addr()?)
    }

    /// Sends small writes at once (on, as sockets of this module begin) or gathers them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        SockRef::from(self).set_tcp_nodelay(on)
    }

    /// Asks for a receive buffer of so many bytes; the kernel doubles and caps it
    /// (`socket.receive.buffer.bytes`). Ends the kernel's own tuning of it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_recv_buffer_size(bytes)
    }

    /// Asks for a send buffer of so many bytes; the kernel doubles and caps it
    /// (`socket.send.buffer.bytes`). Ends the kernel's own tuning of it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_send_buffer_size(bytes)
    }

    /// Ends one direction or both. Tasks that wait in it wake.
    ///
    /// # Errors
    /// When the peer is already gone.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        SockRef::from(self).shutdown(how)
    }
}

impl ReadHalf {
    /// Ends one direction or both, from the receiving side.
    ///
    /// # Errors
    /// When the peer is already gone.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        SockRef::from(&*self.fd).shutdown(how)
    }
}

impl WriteHalf {
    /// Ends one direction or both: `Write` tells the peer that no more comes, `Both` also wakes the
    /// task that receives.
    ///
    /// # Errors
    /// When the peer is already gone.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        SockRef::from(&*self.fd).shutdown(how)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.fd.as_fd()
    }
}

fn inet(address: socket2::SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| io::Error::other("the address is neither IPv4 nor IPv6"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::{Queue, spawn};
    use std::time::Duration;

    /// Two ends of one connection, on the core that asks.
    pub(crate) async fn pair() -> (Socket, Socket) {
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap();
        let port = listener.local_addr().unwrap().port();
        let near = connect("127.0.0.1", port, Duration::from_secs(10)).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Bytes that do not repeat where a chunk ends.
    pub(crate) fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n % 251) as u8 ^ (n >> 12) as u8).collect()
    }

    #[test]
    fn one_task_receives_while_another_sends() {
        const BYTES: usize = 3 << 20;
        run_on_core(|| async {
            let (near, far) = pair().await;
            let ends = [near, far].map(|socket| {
                let (mut read, mut write) = socket.split();
                let sending =
                    spawn(Queue::Network, async move { write.write_all(&pattern(BYTES), Then::Push).await });
                let receiving = spawn(Queue::Network, async move {
                    let mut buffer = bytes::BytesMut::new();
                    read.read_exact_into(&mut buffer, BYTES).await.map(|()| buffer)
                });
                (sending, receiving)
            });
            for (sending, receiving) in ends {
                sending.await.unwrap();
                assert!(receiving.await.unwrap() == pattern(BYTES), "what came is not what was sent");
            }
        });
    }

    #[test]
    fn shutting_down_wakes_the_task_that_receives() {
        run_on_core(|| async {
            let (near, _far) = pair().await;
            let (mut read, write) = near.split();
            let receiving = spawn(Queue::Network, async move { read.read(&mut [0; 8]).await });
            crate::yield_now().await;
            write.shutdown(Shutdown::Both).unwrap();
            assert_eq!(receiving.await.unwrap(), 0);
        });
    }

    #[test]
    fn a_socket_dropped_while_a_task_waits_on_it_is_closed() {
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            let receiving = spawn(Queue::Network, async move { near.read(&mut [0; 8]).await });
            crate::sleep(Duration::from_millis(1)).await;
            drop(receiving);
            assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        });
    }

    #[test]
    fn buffer_sizes_can_be_asked_for() {
        run_on_core(|| async {
            let (near, _far) = pair().await;
            near.set_receive_buffer(32 << 10).unwrap();
            near.set_send_buffer(48 << 10).unwrap();
            let socket = SockRef::from(&near);
            assert_eq!(socket.recv_buffer_size().unwrap(), 64 << 10, "the kernel doubles");
            assert_eq!(socket.send_buffer_size().unwrap(), 96 << 10);
            assert!(socket.tcp_nodelay().unwrap());
            near.set_nodelay(false).unwrap();
            assert!(!socket.tcp_nodelay().unwrap());
        });
    }
}
