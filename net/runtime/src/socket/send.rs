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
            let sent = attempt(|| {
                sendmsg(&self.fd, few, &mut SendAncillaryBuffer::default(), flags(then_here))
            })?;
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
