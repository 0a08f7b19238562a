//! Receiving.
//!
//! All receiving is `recv` into memory of ours, at the moment the task runs: nothing is in flight when a
//! receive is dropped, and what was received before stays in the caller's buffer.

use super::readiness::{Attempt, attempt, readable};
use super::{ReadHalf, Socket};
use crate::{limits, queues};
use bytes::{BufMut, BytesMut};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::AsFd;

impl ReadHalf {
    /// Receives what is there, at least one byte, into `buffer`. 0 where the peer has ended its stream,
    /// or the buffer is empty.
    ///
    /// # Errors
    /// The connection's.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            queues::yield_if_needed().await;
            match attempt(|| recv(&self.fd, &mut *buffer, RecvFlags::empty()))? {
                Attempt::Done((_, received)) => return Ok(received),
                Attempt::WouldBlock => readable(self.fd.as_fd()).await?,
            }
        }
    }

    /// Appends received bytes to `buffer` until at least `at_least` have come, and returns how many
    /// came, which is less only where the peer has ended its stream. Memory grows with what is really
    /// received; a connection that waits with an empty buffer holds none.
    ///
    /// # Errors
    /// The connection's. What came before is in `buffer`.
    pub async fn read_into(&mut self, buffer: &mut BytesMut, at_least: usize) -> io::Result<usize> {
        let before = buffer.len();
        while buffer.len() - before < at_least {
            if buffer.capacity() == buffer.len() {
                buffer.reserve(growth(buffer.len()));
            }
            match self.receive(buffer).await? {
                Received::Bytes => {}
                Received::End => break,
                Received::Nothing => {
                    if buffer.is_empty() {
                        *buffer = BytesMut::new();
                    }
                    readable(self.fd.as_fd()).await?;
                }
            }
        }
        Ok(buffer.len() - before)
    }

    /// Appends exactly `count` bytes to `buffer`, and takes none that follow them. For large messages
    /// whose size the caller has checked against its budget: all the room is made at once, so that few
    /// calls fill it, up to [`limits::RESERVE_AT_ONCE_BYTES_MAX`].
    ///
    /// # Errors
    /// `UnexpectedEof` where the peer ends its stream before, and the connection's own. What came is in
    /// `buffer`.
    pub async fn read_exact_into(&mut self, buffer: &mut BytesMut, count: usize) -> io::Result<()> {
        let mut missing = count;
        while missing > 0 {
            if buffer.capacity() == buffer.len() {
                let received = count - missing;
                buffer.reserve(missing.min(limits::RESERVE_AT_ONCE_BYTES_MAX.max(received)));
            }
            let before = buffer.len();
            match self.receive_at_most(buffer, missing).await? {
                Received::Bytes => missing -= buffer.len() - before,
                Received::End => return Err(cut_short(count, missing)),
                Received::Nothing => readable(self.fd.as_fd()).await?,
            }
        }
        Ok(())
    }

    async fn receive(&self, buffer: &mut BytesMut) -> io::Result<Received> {
        self.receive_at_most(buffer, usize::MAX).await
    }

    /// One attempt to receive into the room that `buffer` has.
    async fn receive_at_most(&self, buffer: &mut BytesMut, most: usize) -> io::Result<Received> {
        queues::yield_if_needed().await;
        let room = buffer.spare_capacity_mut();
        let most = room.len().min(most);
        let outcome = attempt(|| Ok(recv(&self.fd, &mut room[..most], RecvFlags::empty())?.1))?;
        let received = match outcome {
            Attempt::WouldBlock => return Ok(Received::Nothing),
            Attempt::Done(0) => return Ok(Received::End),
            Attempt::Done(received) => received,
        };
        assert!(received <= most, "the kernel fills no more than it was given");
        // SAFETY: the kernel has just written `received` bytes at the start of the room.
        unsafe { buffer.advance_mut(received) };
        Ok(Received::Bytes)
    }
}

impl Socket {
    /// See [`ReadHalf::read`].
    ///
    /// # Errors
    /// The connection's.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read.read(buffer).await
    }

    /// See [`ReadHalf::read_into`].
    ///
    /// # Errors
    /// The connection's.
    pub async fn read_into(&mut self, buffer: &mut BytesMut, at_least: usize) -> io::Result<usize> {
        self.read.read_into(buffer, at_least).await
    }

    /// See [`ReadHalf::read_exact_into`].
    ///
    /// # Errors
    /// `UnexpectedEof` where the peer ends its stream before, and the connection's own.
    pub async fn read_exact_into(&mut self, buffer: &mut BytesMut, count: usize) -> io::Result<()> {
        self.read.read_exact_into(buffer, count).await
    }
}

enum Received {
    Bytes,
    Nothing,
    End,
}

/// As much again as was received, within bounds.
fn growth(received: usize) -> usize {
    received.clamp(limits::RECEIVE_CHUNK_BYTES_MIN, limits::RECEIVE_CHUNK_BYTES_MAX)
}

fn cut_short(count: usize, missing: usize) -> io::Error {
    let text = format!("the peer ended its stream {missing} bytes short of {count}");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
