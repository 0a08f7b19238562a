//! The thread that makes the answers to scrapes, one at a time: it may wait for the cores, and whoever asks for the
//! health of the node does not wait for it.
//!
//! Invariant: whoever asks gets an answer that was begun after the question; many who ask meanwhile get the same.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tracing::warn;

use super::exchange::Reply;
use super::head::Status;

/// See the module. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Scraper {
    wanted: Option<mpsc::Sender<()>>,
    made: mpsc::Receiver<Reply>,
    /// Readable when an answer was made, and when the thread has ended.
    woken: UnixStream,
    is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Scraper {
    /// Starts the thread, which makes answers so.
    pub(super) fn start(mut make: impl FnMut() -> Reply + Send + 'static) -> io::Result<Scraper> {
        let ((wanted, orders), (done, made)) = (mpsc::channel(), mpsc::channel());
        let (mut wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let work = move || {
            for () in orders {
                // A panic is a defect; whoever asks again has another try.
                let made = catch_unwind(AssertUnwindSafe(&mut make));
                let made = made.unwrap_or_else(|_| Reply::plain(Status::Unavailable, "the scrape panicked"));
                // Where nobody is there any more, the orders end too.
                let _ = done.send(made);
                let _ = wake.write(&[1]);
            }
        };
        let thread = thread::Builder::new().name("scrapes".to_owned()).spawn(work)?;
        Ok(Scraper { wanted: Some(wanted), made, woken, is_busy: false, thread: Some(thread) })
    }

    /// What is readable when there is something to take.
    pub(super) fn woken(&self) -> &UnixStream {
        &self.woken
    }

    /// True while an answer is made.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Begins to make one.
    pub(super) fn begin(&mut self) {
        self.is_busy = self.wanted.as_ref().is_some_and(|wanted| wanted.send(()).is_ok());
    }

    /// The answer that was made, if it was.
    pub(super) fn take(&mut self) -> Option<Reply> {
        let mut bytes = [0; 16];
        while matches!((&self.woken).read(&mut bytes), Ok(1..)) {}
        let made = self.made.try_recv().ok();
        self.is_busy &= made.is_none();
        made
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.wanted = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread for scrapes had ended before");
        }
    }
}
