//! Waiting until a socket can be read or written, on whichever core asks.
//!
//! A wait registers one waker with the executor, however often it is polled: the executor would keep one
//! more for each poll until the socket is ready, and a connection that waits for its next request beside
//! something busy is polled without end.

use glommio::io::{PollState, PollableFd};
use rustix::io::Errno;
use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Waits until `fd` is readable, or at its end, or broken.
pub(crate) async fn readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let fd = PollableFd::new(fd)?;
    let mut registration = Registration::default();
    poll_fn(|context| registration.poll(context, |context, state| fd.poll_readable(context, state))).await
}

/// Waits until `fd` is writable, or broken.
pub(crate) async fn writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let fd = PollableFd::new(fd)?;
    let mut registration = Registration::default();
    poll_fn(|context| registration.poll(context, |context, state| fd.poll_writable(context, state))).await
}

/// One direction of one descriptor. Dropped before its descriptor is closed.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    state: PollState,
    relay: Option<Arc<Relay>>,
}

/// What the executor wakes: hands it on to whoever polled last.
#[derive(Debug)]
struct Relay {
    woken: AtomicBool,
    task: Mutex<Waker>,
}

impl Registration {
    /// Polls with `poll`, but not again while what it registered is still waiting.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>, &mut PollState) -> Poll<glommio::Result<(), ()>>,
    ) -> Poll<io::Result<()>> {
        if let Some(relay) = &self.relay
            && !relay.woken.load(Ordering::SeqCst)
        {
            relay.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(context.waker());
            return Poll::Pending;
        }
        let relay =
            Arc::new(Relay { woken: AtomicBool::new(false), task: Mutex::new(context.waker().clone()) });
        let waker = Waker::from(Arc::clone(&relay));
        let polled = poll(&mut Context::from_waker(&waker), &mut self.state);
        self.relay = polled.is_pending().then_some(relay);
        polled.map(|ready| Ok(ready?))
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Relay>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Relay>) {
        self.woken.store(true, Ordering::SeqCst);
        self.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
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
    use std::os::fd::AsFd;
    use std::pin::pin;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.store(true, Ordering::SeqCst);
        }
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
