//! Waiting until a socket can be read or written, on whichever core asks.

use glommio::io::PollableFd;
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// Waits until `fd` is readable, or at its end, or broken.
pub(crate) async fn readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(PollableFd::new(fd)?.readable().await?)
}

/// Waits until `fd` is writable, or broken.
pub(crate) async fn writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(PollableFd::new(fd)?.writable().await?)
}

/// What a system call on a non-blocking socket came to.
pub(crate) enum Attempt<T> {
    /// It was done.
    Done(T),
    /// It would have blocked.
    WouldBlock,
}

/// Makes one attempt, again where a signal interrupts it.
pub(crate) fn attempt<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<Attempt<T>> {
    loop {
        match call() {
            Ok(value) => return Ok(Attempt::Done(value)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Attempt::WouldBlock),
            Err(error) => return Err(error.into()),
        }
    }
}
