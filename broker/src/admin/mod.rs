//! The admin thread: HTTP for Prometheus and health checks, beside the cores (`tarn.admin.listener`).
//!
//! `GET /metrics` is a scrape, `GET /healthz` says that the process lives, `GET /readyz` whether it serves. It is a
//! plain thread that waits for all its sockets at once, so that whoever is silent or slow keeps nobody waiting; cores
//! are asked by envelopes and do not wait for it.
//!
//! Invariants:
//! * no more connections than `ADMIN_CONNECTIONS`, each with a bounded request and until a deadline;
//! * an answer takes `SCRAPE_WAIT` at most, whatever the cores do;
//! * the thread has ended when its handle is dropped.

mod exchange;
pub mod head;
mod page;
mod process;
mod scrape;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use self::exchange::{Exchange, Reply, Waits};
use self::head::{Question, Status};
pub(crate) use self::scrape::Watched;
use self::scrape::{Scrape, Unanswered};
use crate::limits;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AdminThread {
    address: SocketAddr,
    shared: Arc<Shared>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told while it runs.
#[derive(Debug, Default)]
struct Shared {
    watched: OnceLock<Watched>,
    stopping: AtomicBool,
}

impl AdminThread {
    /// Starts the thread; the node is not ready yet.
    ///
    /// # Errors
    /// Where the system has no thread or no socket for it.
    pub(crate) fn start(listener: TcpListener) -> io::Result<AdminThread> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let shared: Arc<Shared> = Arc::default();
        let desk =
            Desk { listener, woken, shared: shared.clone(), scrape: Scrape::default(), open: Vec::new() };
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || desk.run())?;
        info!(%address, "metrics and health checks");
        Ok(AdminThread { address, shared, wake, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The node serves, and this is what is to be told of it.
    pub(crate) fn watch(&self, watched: Watched) {
        // A node becomes ready once.
        let _ = self.shared.watched.set(watched);
    }

    /// The node is about to stop: it is not ready any more.
    pub(crate) fn stopping(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
    }
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        self.stopping();
        let woken = self.wake.shutdown(std::net::Shutdown::Both);
        if woken.is_err() || self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("the admin thread had ended before");
        }
    }
}

/// What the thread has.
struct Desk {
    listener: TcpListener,
    woken: UnixStream,
    shared: Arc<Shared>,
    scrape: Scrape,
    /// Oldest first.
    open: Vec<Exchange>,
}

impl Desk {
    fn run(mut self) {
        loop {
            match self.wait() {
                Ok(Woken::ByHandle) => return,
                Ok(Woken::BySockets { accepts }) => {
                    if accepts {
                        self.accept();
                    }
                    self.go_on();
                }
                Err(error) => {
                    warn!(%error, "the admin thread cannot wait for its sockets");
                    thread::sleep(limits::ADMIN_PAUSE);
                }
            }
        }
    }

    /// Waits until a socket is ready or a deadline has come.
    fn wait(&self) -> io::Result<Woken> {
        let now = Instant::now();
        let deadline = self.open.iter().map(Exchange::deadline).min();
        let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(now)));
        let mut ready =
            vec![PollFd::new(&self.woken, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        ready.extend(self.open.iter().map(|one| {
            let waits = match one.waits() {
                Waits::ToRead => PollFlags::IN,
                Waits::ToWrite => PollFlags::OUT,
            };
            PollFd::new(one.stream(), waits)
        }));
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) if !ready[0].revents().is_empty() => Ok(Woken::ByHandle),
            Ok(_) => Ok(Woken::BySockets { accepts: !ready[1].revents().is_empty() }),
            Err(rustix::io::Errno::INTR) => Ok(Woken::BySockets { accepts: false }),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes some of what waits to be accepted. Where there are too many, the oldest goes: it is the one that is silent,
    /// for whoever was accepted before was also read.
    fn accept(&mut self) {
        for _ in 0..limits::ADMIN_ACCEPTED_AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.open.len() >= limits::ADMIN_CONNECTIONS {
                        self.open.remove(0);
                    }
                    self.open.push(Exchange::new(stream, Instant::now()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    warn!(%error, "no connection to the admin listener can be accepted");
                    // Descriptors may be short: the socket stays ready, and would be tried at once again.
                    thread::sleep(limits::ADMIN_PAUSE);
                    return;
                }
            }
        }
    }

    /// Reads and writes what can be, and lets go of what has ended.
    fn go_on(&mut self) {
        let Desk { open, scrape, shared, .. } = self;
        open.retain_mut(|one| {
            if let Some(question) = one.read() {
                one.answer(answer(scrape, shared, &question));
            }
            one.write();
            !one.has_ended(Instant::now())
        });
    }
}

enum Woken {
    ByHandle,
    BySockets { accepts: bool },
}

fn answer(scrape: &mut Scrape, shared: &Shared, question: &Question) -> Reply {
    let is_stopping = shared.stopping.load(Ordering::SeqCst);
    let watched = shared.watched.get().filter(|_| !is_stopping);
    match (question, watched) {
        (Question::Refused(status), _) => Reply::plain(*status, status.reason()),
        (Question::Health, _) | (Question::Readiness, Some(_)) => Reply::plain(Status::Ok, "ok"),
        (Question::Readiness | Question::Metrics, None) => {
            let why = if is_stopping { "the node stops" } else { "the node starts" };
            Reply::plain(Status::Unavailable, why)
        }
        (Question::Metrics, Some(watched)) => match scrape.page(watched) {
            Ok(page) => Reply::metrics(page),
            Err(unanswered @ Unanswered { .. }) => {
                warn!("a scrape failed: {unanswered}");
                Reply::plain(Status::Unavailable, &unanswered.to_string())
            }
        },
    }
}

/// A duration as `poll` takes it, rounded up so that a deadline has come when it returns.
fn timespec(duration: Duration) -> Timespec {
    let duration = duration + Duration::from_millis(1);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Reads and writes of a socket that may not wait.
fn would_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// What a socket brings now; `None` where it has ended or broken.
fn read_now(stream: &mut impl Read, piece: &mut [u8]) -> Option<usize> {
    match stream.read(piece) {
        Ok(0) => None,
        Ok(read) => Some(read),
        Err(error) if would_wait(&error) => Some(0),
        Err(_) => None,
    }
}

/// What a socket takes now; `None` where it has broken.
fn write_now(stream: &mut impl Write, bytes: &[u8]) -> Option<usize> {
    match stream.write(bytes) {
        Ok(written) => Some(written),
        Err(error) if would_wait(&error) => Some(0),
        Err(_) => None,
    }
}
