//! Waiting until a socket can be read or written, on whichever core asks.

use crate::executor::{Interest, Waiting};
use rustix::io::Errno;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Waits until `fd` is readable, or at its end, or broken.
pub(crate) async fn readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    ready(fd, Interest::Read).await
}

/// Waits until `fd` is writable, or broken.
pub(crate) async fn writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    ready(fd, Interest::Write).await
}

async fn ready(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
    let mut waiting = Waiting::default();
    poll_fn(|context| waiting.poll(fd.as_raw_fd(), interest, context)).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::socket::tests::pair;
    use crate::{executor, sleep};
    use futures_lite::future::poll_once;
    use std::future::Future;
    use std::os::fd::AsFd;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_wait_that_is_left_gives_its_place_back() {
        run_on_core(|| async {
            let before = executor::waiting();
            let (near, far) = pair().await;
            for _ in 0..100 {
                let waits = pin!(readable(near.read.fd.as_fd()));
                assert!(poll_once(waits).await.is_none());
            }
            while executor::waiting() > before {
                sleep(Duration::from_millis(1)).await;
            }
            drop(far);
            readable(near.read.fd.as_fd()).await.expect("its end can be read");
            assert_eq!(executor::waiting(), before);
        });
    }

    #[test]
    fn a_wait_that_is_polled_often_keeps_one_waker_and_wakes_the_last() {
        run_on_core(|| async {
            let (mut near, far) = pair().await;
            let mut waiting = pin!(readable(far.read.fd.as_fd()));
            let early = Arc::new(Woken::default());
            let waker = Waker::from(Arc::clone(&early));
            for _ in 0..1000 {
                assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            assert_eq!(Arc::strong_count(&early), 3, "the test's, its waker's, and one that is kept");
            let late = Arc::new(Woken::default());
            let waker = Waker::from(Arc::clone(&late));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            near.write_all(b"news", crate::socket::Then::Push).await.unwrap();
            waiting.await.unwrap();
            assert_eq!(Arc::strong_count(&early), 2);
        });
    }
}
