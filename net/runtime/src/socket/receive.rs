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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

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
            self.wait_if_drained(1).await?;
            queues::yield_if_needed().await;
            let outcome = attempt(|| Ok(recv(&self.fd, &mut *buffer, RecvFlags::empty())?.1))?;
            if let Some(received) = self.note(&outcome, buffer.len()) {
                return Ok(received);
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
            if self.drained && buffer.is_empty() {
                *buffer = BytesMut::new();
            }
            self.wait_if_drained(1).await?;
            if buffer.capacity() == buffer.len() {
                buffer.reserve(growth(buffer.len()));
            }
            if self.receive(buffer, usize::MAX).await? == Some(0) {
                break;
            }
        }
        Ok(buffer.len() - before)
    }

    /// Appends exactly `count` bytes to `buffer`, and takes none that follow them. For large messages
    /// whose size the caller has checked against its budget: all the room is made at once, so that few
    /// calls fill it, up to [`limits::RESERVE_AT_ONCE_BYTES_MAX`], and few bytes wake nobody.
    ///
    /// # Errors
    /// `UnexpectedEof` where the peer ends its stream before, and the connection's own. What came is in
    /// `buffer`.
    pub async fn read_exact_into(&mut self, buffer: &mut BytesMut, count: usize) -> io::Result<()> {
        let mut missing = count;
        while missing > 0 {
            self.wait_if_drained(missing).await?;
            if buffer.capacity() == buffer.len() {
                let received = count - missing;
                buffer.reserve(missing.min(limits::RESERVE_AT_ONCE_BYTES_MAX.max(received)));
            }
            match self.receive(buffer, missing).await? {
                Some(0) => return Err(cut_short(count, missing)),
                Some(received) => missing -= received,
                None => {}
            }
        }
        Ok(())
    }

    /// One attempt to receive into the room that `buffer` has, of which at most `most` bytes are used.
    /// `None` where nothing is there.
    async fn receive(&mut self, buffer: &mut BytesMut, most: usize) -> io::Result<Option<usize>> {
        queues::yield_if_needed().await;
        let room = buffer.spare_capacity_mut();
        let most = room.len().min(most);
        let outcome = attempt(|| Ok(recv(&self.fd, &mut room[..most], RecvFlags::empty())?.1))?;
        let received = self.note(&outcome, most);
        if let Some(received) = received {
            assert!(received <= most, "the kernel fills no more than it was given");
            // SAFETY: the kernel has just written `received` bytes at the start of the room.
            unsafe { buffer.advance_mut(received) };
        }
        Ok(received)
    }

    /// Waits for readiness where the last attempt has found the end of what was there: another one
    /// would most likely be in vain. Where many bytes are missing a few are not waited for one by one.
    async fn wait_if_drained(&mut self, missing: usize) -> io::Result<()> {
        if self.drained {
            self.wake_from(missing)?;
            readable(self.fd.as_fd()).await?;
            self.drained = false;
        }
        Ok(())
    }

    /// Has the kernel wake this half once a good part of what is missing is there, or the stream has ended.
    /// It caps the number by the receive buffer.
    fn wake_from(&mut self, missing: usize) -> io::Result<()> {
        let bytes = match missing {
            ..limits::WAKE_FROM_BYTES_MIN => 1,
            _ => missing.min(limits::WAKE_FROM_BYTES_MAX),
        };
        let is_as_good = (self.wakes_from > 1) == (bytes > 1) && self.wakes_from <= missing;
        if is_as_good {
            return Ok(());
        }
        set_receive_low_watermark(self.fd.as_fd(), bytes)?;
        self.wakes_from = bytes;
        Ok(())
    }

    /// What an attempt with room for `room` bytes received, and whether that was all there was.
    fn note(&mut self, outcome: &Attempt<usize>, room: usize) -> Option<usize> {
        match *outcome {
            Attempt::Done(received) => {
                self.drained = received < room;
                Some(received)
            }
            Attempt::WouldBlock => {
                self.drained = true;
                None
            }
        }
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

fn set_receive_low_watermark(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).map_err(io::Error::other)?;
    let size = size_of_val(&value) as libc::socklen_t;
    let pointer = (&raw const value).cast();
    // SAFETY: the descriptor is live, and the kernel reads the `size` bytes of `value` during the call.
    let done =
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, pointer, size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As much again as was received, within bounds.
fn growth(received: usize) -> usize {
    received.clamp(limits::RECEIVE_CHUNK_BYTES_MIN, limits::RECEIVE_CHUNK_BYTES_MAX)
}

fn cut_short(count: usize, missing: usize) -> io::Error {
    let text = format!("the peer ended its stream {missing} bytes short of {count}");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::socket::Then;
    use crate::socket::tests::{pair, pattern};
    use crate::{Queue, sleep, spawn, timeout};
    use std::time::Duration;

    #[test]
    fn read_into_appends_and_tells_the_end_by_its_count() {
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            near.write_all(b"hello ", Then::Push).await.unwrap();
            let mut buffer = BytesMut::from("> ");
            assert_eq!(far.read_into(&mut buffer, 6).await.unwrap(), 6);
            near.write_all(b"world", Then::Push).await.unwrap();
            drop(near);
            assert_eq!(far.read_into(&mut buffer, 100).await.unwrap(), 5);
            assert_eq!(&buffer[..], b"> hello world");
            assert_eq!(far.read_into(&mut buffer, 1).await.unwrap(), 0);
        });
    }

    #[test]
    fn a_connection_that_waits_with_an_empty_buffer_holds_no_memory() {
        run_on_core(|| async {
            let (_near, mut far) = pair().await;
            let mut buffer = BytesMut::with_capacity(64 << 10);
            let waited = timeout(Duration::from_millis(2), far.read_into(&mut buffer, 1)).await;
            assert!(waited.is_err());
            assert_eq!(buffer.capacity(), 0);
        });
    }

    #[test]
    fn memory_grows_with_what_is_received_not_with_what_is_announced() {
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            near.write_all(&pattern(1000), Then::Push).await.unwrap();
            let mut buffer = BytesMut::new();
            let announced = 100 << 20;
            assert!(timeout(Duration::from_millis(5), far.read_into(&mut buffer, announced)).await.is_err());
            assert_eq!(buffer, pattern(1000));
            assert!(buffer.capacity() < 64 << 10, "{}", buffer.capacity());
            let exactly = far.read_exact_into(&mut buffer, announced);
            assert!(timeout(Duration::from_millis(5), exactly).await.is_err());
            assert!(buffer.capacity() <= 2 * limits::RESERVE_AT_ONCE_BYTES_MAX, "{}", buffer.capacity());
        });
    }

    #[test]
    fn giving_up_a_read_loses_no_byte() {
        const BYTES: usize = 200_000;
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            let sending = spawn(Queue::Network, async move {
                for piece in pattern(BYTES).chunks(5_000) {
                    near.write_all(piece, Then::Push).await.unwrap();
                    sleep(Duration::from_micros(100)).await;
                }
            });
            let mut buffer = BytesMut::new();
            while buffer.len() < BYTES {
                let missing = BYTES - buffer.len();
                timeout(Duration::from_micros(300), far.read_into(&mut buffer, missing)).await.ok();
            }
            sending.await;
            assert!(buffer == pattern(BYTES), "what came is not what was sent");
        });
    }

    #[test]
    fn read_exact_into_takes_nothing_that_follows() {
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            near.write_all(b"frame onenext", Then::Push).await.unwrap();
            let mut buffer = BytesMut::new();
            far.read_exact_into(&mut buffer, 9).await.unwrap();
            assert_eq!(&buffer[..], b"frame one");
            let mut rest = [0; 16];
            assert_eq!(far.read(&mut rest).await.unwrap(), 4);
            assert_eq!(&rest[..4], b"next");
        });
    }

    #[test]
    fn a_message_beyond_what_is_reserved_at_once_arrives_whole() {
        const BYTES: usize = 2 * limits::RESERVE_AT_ONCE_BYTES_MAX + 12_345;
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            let sending =
                spawn(Queue::Network, async move { near.write_all(&pattern(BYTES), Then::Push).await });
            let mut buffer = BytesMut::new();
            far.read_exact_into(&mut buffer, BYTES).await.unwrap();
            sending.await.unwrap();
            assert!(buffer == pattern(BYTES), "what came is not what was sent");
        });
    }

    #[test]
    fn whoever_misses_much_is_not_woken_by_little_and_whoever_misses_little_is() {
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            far.read.drained = true;
            let mut buffer = BytesMut::new();
            let receiving = async { far.read_exact_into(&mut buffer, 1 << 20).await.unwrap() };
            let sending = async {
                for _ in 0..20 {
                    near.write_all(&pattern(1000), Then::Push).await.unwrap();
                    sleep(Duration::from_micros(500)).await;
                }
            };
            futures_lite::future::or(receiving, sending).await;
            assert!(buffer.is_empty(), "{} bytes were fetched one by one", buffer.len());
            let mut little = vec![0; 30_000];
            let mut received = 0;
            while received < 20_000 {
                received += timeout(Duration::from_secs(10), far.read(&mut little)).await.unwrap().unwrap();
            }
            near.write_all(b"!", Then::Push).await.unwrap();
            let woken = timeout(Duration::from_secs(10), far.read(&mut little)).await;
            assert_eq!(woken.unwrap().unwrap(), 1);
        });
    }

    #[test]
    fn a_stream_that_ends_too_early_says_how_much_is_missing() {
        run_on_core(|| async {
            let (mut near, mut far) = pair().await;
            near.write_all(b"half", Then::Push).await.unwrap();
            drop(near);
            let mut buffer = BytesMut::new();
            let cut = far.read_exact_into(&mut buffer, 10).await.unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(cut.to_string(), "the peer ended its stream 6 bytes short of 10");
            assert_eq!(&buffer[..], b"half");
        });
    }

    #[test]
    fn a_peer_that_never_stops_sending_does_not_keep_others_from_running() {
        run_on_core(|| async {
            let (near, mut far) = pair().await;
            let flooding = std::thread::spawn(move || {
                let socket = socket2::SockRef::from(&near);
                socket.set_nonblocking(false).unwrap();
                let bytes = vec![0; 1 << 20];
                while std::io::Write::write(&mut &*socket, &bytes).is_ok() {}
            });
            let draining = spawn(Queue::Network, async move {
                let mut buffer = vec![0; 4096];
                while far.read(&mut buffer).await.unwrap() > 0 {}
            });
            sleep(Duration::from_millis(5)).await;
            draining.cancel().await;
            crate::blocking(move || flooding.join().unwrap()).await.unwrap();
        });
    }
}
