//! A socket as the poll-based traits of `futures`, for libraries that want them, as TLS does.

use super::Socket;
use super::readiness::{Attempt, attempt};
use crate::executor::{Interest, Waiting};
use futures_lite::{AsyncRead, AsyncWrite};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A socket bound to the core it was made on.
#[derive(Debug)]
pub struct Stream {
    // Dropped before the descriptor: a wait ends before its descriptor is closed.
    reading: Waiting,
    writing: Waiting,
    fd: Arc<OwnedFd>,
}

impl Socket {
    /// Binds the socket to this core.
    pub fn into_stream(self) -> Stream {
        Stream { reading: Waiting::default(), writing: Waiting::default(), fd: self.read.fd }
    }
}

impl Stream {
    fn poll_attempt<T>(
        &mut self,
        context: &mut Context<'_>,
        direction: Direction,
        mut call: impl FnMut(&OwnedFd) -> Result<T, Errno>,
    ) -> Poll<io::Result<T>> {
        let Stream { reading, writing, fd } = self;
        loop {
            match attempt(|| call(fd))? {
                Attempt::Done(value) => return Poll::Ready(Ok(value)),
                Attempt::WouldBlock => match direction {
                    Direction::Read => ready!(reading.poll(fd.as_raw_fd(), Interest::Read, context))?,
                    Direction::Write => ready!(writing.poll(fd.as_raw_fd(), Interest::Write, context))?,
                },
            }
        }
    }
}

enum Direction {
    Read,
    Write,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_attempt(context, Direction::Read, |fd| Ok(recv(fd, &mut *buffer, RecvFlags::empty())?.1))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_attempt(context, Direction::Write, |fd| send(fd, bytes, SendFlags::NOSIGNAL))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.fd).shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use crate::core::tests::run_on_core;
    use crate::socket::tests::{pair, pattern};
    use crate::{Queue, spawn};
    use futures_lite::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn bytes_go_through_the_traits_both_ways() {
        const BYTES: usize = 3 << 20;
        run_on_core(|| async {
            let (near, far) = pair().await;
            let (mut near, mut far) = (near.into_stream(), far.into_stream());
            let sending = spawn(Queue::Network, async move {
                near.write_all(&pattern(BYTES)).await.unwrap();
                near.close().await.unwrap();
                let mut answer = Vec::new();
                near.read_to_end(&mut answer).await.unwrap();
                answer
            });
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.unwrap();
            assert!(got == pattern(BYTES), "what came is not what was sent");
            far.write_all(b"thanks").await.unwrap();
            drop(far);
            assert_eq!(sending.await, b"thanks");
        });
    }
}
