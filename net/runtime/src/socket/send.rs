//! Sending bytes, lists of bytes, and ranges of files.
//!
//! Each is tried at once; the task waits only while the socket's send buffer is full. A cancelled send
//! may have sent a part: the connection is then of no further use.

use super::readiness::{Attempt, attempt, writable};
use super::{Socket, WriteHalf};
use crate::{limits, queues};
use rustix::fs::sendfile;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// What follows a write: it tells the kernel when to form packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More follows at once; what does not fill a packet may wait for it, 200 ms at most.
    More,
    /// Nothing follows now: everything goes out.
    Push,
}

impl WriteHalf {
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The connection's.
    pub async fn write_all(&mut self, mut bytes: &[u8], then: Then) -> io::Result<()> {
        while !bytes.is_empty() {
            queues::yield_if_needed().await;
            match attempt(|| send(&self.fd, bytes, flags(then)))? {
                Attempt::Done(sent) => bytes = &bytes[sent..],
                Attempt::WouldBlock => writable(self.fd.as_fd()).await?,
            }
        }
        self.uncork(then)
    }

    /// Sends all the slices, in order. They are advanced as they are sent.
    ///
    /// # Errors
    /// The connection's.
    pub async fn write_vectored(&mut self, mut slices: &mut [IoSlice<'_>], then: Then) -> io::Result<()> {
        // Empty ones at the front would make a write of nothing.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            queues::yield_if_needed().await;
            let few = &slices[..slices.len().min(limits::IO_SLICES_MAX)];
            let then_here = if few.len() < slices.len() { Then::More } else { then };
            let sent =
                attempt(|| sendmsg(&self.fd, few, &mut SendAncillaryBuffer::default(), flags(then_here)))?;
            match sent {
                Attempt::Done(sent) => IoSlice::advance_slices(&mut slices, sent),
                Attempt::WouldBlock => writable(self.fd.as_fd()).await?,
            }
        }
        self.uncork(then)
    }

    /// Sends `length` bytes of `file` from `position` on, without copying them through this process, in
    /// chunks of at most 1 MiB between which other tasks run. Blocks the core where the range is not in
    /// the page cache: ask [`super::resident`] first. `Push` where nothing follows.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends first: it was truncated under the reader, and the connection
    /// must be closed. And the connection's own.
    pub async fn send_file(
        &mut self,
        file: impl AsFd,
        position: u64,
        length: u64,
        then: Then,
    ) -> io::Result<u64> {
        self.cork(then)?;
        let mut at = position;
        let end = position.saturating_add(length);
        while at < end {
            let count = chunk(end - at);
            match attempt(|| sendfile(&self.fd, &file, Some(&mut at), count))? {
                Attempt::Done(0) => return Err(shrunk(position, length, at)),
                Attempt::Done(_) => queues::yield_if_needed().await,
                Attempt::WouldBlock => writable(self.fd.as_fd()).await?,
            }
        }
        self.uncork(then)?;
        Ok(length)
    }

    /// `sendfile` has no flag for it, so what follows a file range is announced on the socket.
    fn cork(&mut self, then: Then) -> io::Result<()> {
        if then == Then::More && !self.corked {
            SockRef::from(&*self.fd).set_tcp_cork(true)?;
            self.corked = true;
        }
        Ok(())
    }

    fn uncork(&mut self, then: Then) -> io::Result<()> {
        if then == Then::Push && self.corked {
            SockRef::from(&*self.fd).set_tcp_cork(false)?;
            self.corked = false;
        }
        Ok(())
    }
}

impl Socket {
    /// See [`WriteHalf::write_all`].
    ///
    /// # Errors
    /// The connection's.
    pub async fn write_all(&mut self, bytes: &[u8], then: Then) -> io::Result<()> {
        self.write.write_all(bytes, then).await
    }

    /// See [`WriteHalf::write_vectored`].
    ///
    /// # Errors
    /// The connection's.
    pub async fn write_vectored(&mut self, slices: &mut [IoSlice<'_>], then: Then) -> io::Result<()> {
        self.write.write_vectored(slices, then).await
    }

    /// See [`WriteHalf::send_file`].
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends first, and the connection's own.
    pub async fn send_file(
        &mut self,
        file: impl AsFd,
        position: u64,
        length: u64,
        then: Then,
    ) -> io::Result<u64> {
        self.write.send_file(file, position, length, then).await
    }
}

fn flags(then: Then) -> SendFlags {
    match then {
        Then::More => SendFlags::NOSIGNAL | SendFlags::MORE,
        Then::Push => SendFlags::NOSIGNAL,
    }
}

fn chunk(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(limits::SEND_FILE_CHUNK_BYTES_MAX)
}

fn shrunk(position: u64, length: u64, at: u64) -> io::Error {
    let text = format!(
        "the file ends at {at}: it was truncated while {length} bytes from {position} on were being sent"
    );
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::socket::tests::{pair, pattern};
    use crate::{Queue, sleep, spawn, yield_now};
    use bytes::BytesMut;
    use std::cell::Cell;
    use std::fs::File;
    use std::io::Write;
    use std::rc::Rc;
    use std::time::Duration;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// What arrives at the other end of what `sending` sends.
    async fn received(far: &mut Socket, count: usize) -> BytesMut {
        let mut buffer = BytesMut::new();
        far.read_exact_into(&mut buffer, count).await.unwrap();
        buffer
    }

    #[test]
    fn header_and_file_range_arrive_in_order() {
        const BYTES: usize = 5 << 20;
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            let file = file_of(&pattern(BYTES));
            let sending = spawn(Queue::Network, async move {
                near.write_all(b"head", Then::More).await.unwrap();
                let sent = near.send_file(&file, 1000, BYTES as u64 - 2000, Then::More).await.unwrap();
                assert_eq!(sent, BYTES as u64 - 2000);
                near.send_file(&file, 0, 10, Then::More).await.unwrap();
                near.write_all(b"tail", Then::Push).await.unwrap();
                near
            });
            let expected = [b"head", &pattern(BYTES)[1000..BYTES - 1000], &pattern(10), b"tail"].concat();
            assert!(received(&mut far, expected.len()).await == expected, "what came is not what was sent");
            let near = sending.await;
            assert!(!SockRef::from(&near).tcp_cork().unwrap(), "the last write takes the cork out");
        });
    }

    #[test]
    fn a_file_that_shrank_under_the_reader_is_an_error() {
        run_on_core(|| async {
            let (mut near, _far) = pair().await;
            let file = file_of(&pattern(10_000));
            file.set_len(6_000).unwrap();
            let shrunk = near.send_file(&file, 4_000, 6_000, Then::Push).await.unwrap_err();
            assert_eq!(shrunk.kind(), io::ErrorKind::UnexpectedEof);
            assert!(shrunk.to_string().starts_with("the file ends at 6000"), "{shrunk}");
        });
    }

    #[test]
    fn a_peer_that_does_not_read_holds_up_only_the_one_who_sends_to_it() {
        const BYTES: usize = 16 << 20;
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            let file = file_of(&pattern(BYTES));
            let done = Rc::new(Cell::new(false));
            let sent = Rc::clone(&done);
            let sending = spawn(Queue::Network, async move {
                near.send_file(&file, 0, BYTES as u64, Then::Push).await.unwrap();
                sent.set(true);
            });
            sleep(Duration::from_millis(5)).await;
            yield_now().await;
            assert!(!done.get(), "16 MiB do not fit into the socket");
            assert!(received(&mut far, BYTES).await == pattern(BYTES), "what came is not what was sent");
            sending.await;
        });
    }

    #[test]
    fn any_number_of_slices_is_sent_empty_ones_among_them() {
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            let bytes = pattern(300_000);
            let expected = bytes.clone();
            let sending = spawn(Queue::Network, async move {
                let mut slices: Vec<_> = bytes.chunks(700).map(IoSlice::new).collect();
                for at in [0, 1, 130, 200] {
                    slices.insert(at, IoSlice::new(&[]));
                }
                slices.push(IoSlice::new(&[]));
                near.write_vectored(&mut slices, Then::Push).await.unwrap();
                near.write_vectored(&mut [], Then::Push).await.unwrap();
                near.write_vectored(&mut [IoSlice::new(&[])], Then::Push).await.unwrap();
            });
            assert!(received(&mut far, expected.len()).await == expected, "what came is not what was sent");
            sending.await;
        });
    }

    #[test]
    fn sending_to_one_who_is_gone_is_an_error_not_a_signal() {
        run_on_core(|| async {
            let (mut near, far) = pair().await;
            let file = file_of(&pattern(4096));
            drop(far);
            let mut failed = None;
            while failed.is_none() {
                failed = near.write_all(b"x", Then::Push).await.err();
            }
            assert!(matches!(
                failed.unwrap().kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ));
            assert!(near.send_file(&file, 0, 4096, Then::Push).await.is_err());
        });
    }
}
