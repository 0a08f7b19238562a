//! The admin thread: HTTP for Prometheus and health checks, beside the cores (`tarn.admin.listener`).
//!
//! `GET /metrics` is a scrape, `GET /healthz` says that the process lives, `GET /readyz` whether it serves. It is a
//! plain thread that waits for all its sockets at once, so that whoever is silent or slow keeps nobody waiting; another
//! makes the answers to scrapes, and asks the cores by envelopes, which do not wait for it.
//!
//! Invariants:
//! * no more connections than `ADMIN_CONNECTIONS`, each with a bounded request and until a deadline;
//! * a scrape takes `SCRAPE_WAIT` at most, whatever the cores do, and no other question waits for it;
//! * no more than `ADMIN_SCRAPES` of the connections wait for one;
//! * the thread has ended when its handle is dropped.

mod exchange;
pub mod head;
mod page;
mod process;
mod rooms;
mod scrape;
mod scraper;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use self::exchange::{Exchange, Reply, Turn, Waits};
use self::head::{Question, Status};
pub(crate) use self::scrape::Watched;
use self::scrape::{Scrape, Unanswered};
use self::scraper::Scraper;
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
        let (shared, mut scrape): (Arc<Shared>, _) = (Arc::default(), Scrape::default());
        let make = {
            let shared = shared.clone();
            move || shared.scraped(&mut scrape)
        };
        AdminThread::start_making(listener, shared, make)
    }

    /// The same with answers to scrapes that are made so.
    fn start_making(
        listener: TcpListener,
        shared: Arc<Shared>,
        make: impl FnMut() -> Reply + Send + 'static,
    ) -> io::Result<AdminThread> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let scraper = Scraper::start(make)?;
        let desk = Desk { listener, woken, shared: shared.clone(), scraper, open: Vec::new() };
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
    scraper: Scraper,
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
    fn wait(&mut self) -> io::Result<Woken> {
        let now = Instant::now();
        let deadline = self.open.iter().map(Exchange::deadline).min();
        let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(now)));
        let mut ready = vec![
            PollFd::new(&self.woken, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(self.scraper.woken(), PollFlags::IN),
        ];
        let others = ready.len();
        ready.extend(self.open.iter().map(|one| {
            let waits = match one.waits() {
                Waits::ToRead => PollFlags::IN,
                Waits::ToWrite => PollFlags::OUT,
                Waits::ForItsAnswer => PollFlags::empty(),
            };
            PollFd::new(one.stream(), waits)
        }));
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Woken::BySockets { accepts: false }),
            Err(error) => return Err(error.into()),
        }
        let is_broken = |one: &PollFd<'_>| one.revents().intersects(PollFlags::ERR | PollFlags::HUP);
        let broken: Vec<bool> = ready[others..].iter().map(is_broken).collect();
        let (by_handle, accepts) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        for (one, is_broken) in self.open.iter_mut().zip(broken) {
            if is_broken && one.waits() == Waits::ForItsAnswer {
                one.broken();
            }
        }
        Ok(if by_handle { Woken::ByHandle } else { Woken::BySockets { accepts } })
    }

    /// Takes some of what waits to be accepted. Where there are too many, the oldest goes that is silent or has its
    /// answer, for whoever was accepted before was also read; else the oldest that is slow to take it.
    fn accept(&mut self) {
        for _ in 0..limits::ADMIN_ACCEPTED_AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.open.len() >= limits::ADMIN_CONNECTIONS {
                        let idle = self.open.iter().position(Exchange::is_idle);
                        let slow = || self.open.iter().position(|one| one.turn().is_none());
                        // Some do not wait for a scrape.
                        self.open.remove(idle.or_else(slow).unwrap_or(0));
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
        let Desk { open, scraper, shared, .. } = self;
        if let Some(made) = scraper.take() {
            let waiting = open.iter_mut().filter(|one| one.turn() == Some(Turn::Begun));
            waiting.for_each(|one| one.answer(made.clone()));
        }
        let mut waiting = open.iter().filter(|one| one.turn().is_some()).count();
        open.retain_mut(|one| {
            match one.read() {
                Some(Question::Metrics) if waiting < limits::ADMIN_SCRAPES => {
                    waiting += 1;
                    one.wait();
                }
                Some(question) => one.answer(shared.answer(&question)),
                None => {}
            }
            one.write();
            !one.has_ended(Instant::now())
        });
        if !scraper.is_busy() && open.iter().any(|one| one.turn().is_some()) {
            open.iter_mut().for_each(Exchange::begin);
            scraper.begin();
        }
    }
}

enum Woken {
    ByHandle,
    BySockets { accepts: bool },
}

impl Shared {
    /// The answer to a question that needs no core.
    fn answer(&self, question: &Question) -> Reply {
        match question {
            Question::Refused(status) => Reply::plain(*status, status.reason()),
            Question::Health => Reply::plain(Status::Ok, "ok"),
            Question::Readiness => match self.serving() {
                Ok(_) => Reply::plain(Status::Ok, "ok"),
                Err(why) => Reply::plain(Status::Unavailable, why),
            },
            Question::Metrics => Reply::plain(Status::Unavailable, "too many wait for a scrape"),
        }
    }

    /// The answer to a scrape.
    fn scraped(&self, scrape: &mut Scrape) -> Reply {
        let watched = match self.serving() {
            Ok(watched) => watched,
            Err(why) => return Reply::plain(Status::Unavailable, why),
        };
        match scrape.page(watched) {
            Ok(page) => Reply::metrics(page),
            Err(unanswered @ Unanswered { .. }) => {
                warn!("a scrape failed: {unanswered}");
                Reply::plain(Status::Unavailable, &unanswered.to_string())
            }
        }
    }

    /// What there is to be told of, where the node serves.
    fn serving(&self) -> Result<&Watched, &'static str> {
        match self.watched.get() {
            _ if self.stopping.load(Ordering::SeqCst) => Err("the node stops"),
            Some(watched) => Ok(watched),
            None => Err("the node starts"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;
    use std::net::TcpStream;
    use std::sync::mpsc;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn nobody_waits_for_a_scrape_but_those_who_ask_for_one_and_these_share_it() {
        let ((begun, begins), (go_on, waits)) = (mpsc::channel(), mpsc::channel::<()>());
        let mut made = 0;
        let admin = start(move || {
            begun.send(()).expect("it is waited for");
            waits.recv_timeout(PATIENCE).expect("it goes on");
            made += 1;
            Reply::metrics(format!("scrape {made}\n"))
        });
        let first = ask(&admin, "/metrics");
        begins.recv_timeout(PATIENCE).expect("it is begun");
        let later: Vec<TcpStream> = (0..limits::ADMIN_SCRAPES - 1).map(|_| ask(&admin, "/metrics")).collect();
        for _ in 0..2 * limits::ADMIN_CONNECTIONS {
            assert!(answer(ask(&admin, "/healthz")).ends_with("ok\n"));
        }
        let refused = answer(ask(&admin, "/metrics"));
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.ends_with("too many wait for a scrape\n"));
        go_on.send(()).expect("it waits");
        assert!(answer(first).ends_with("\r\n\r\nscrape 1\n"));
        begins.recv_timeout(PATIENCE).expect("the next is begun");
        go_on.send(()).expect("it waits");
        for one in later {
            assert!(answer(one).ends_with("scrape 2\n"), "it was begun after all of them had asked");
        }
    }

    #[test]
    fn a_scrape_that_panics_is_told_and_the_next_is_made() {
        let mut made = 0;
        let admin = start(move || {
            made += 1;
            assert!(made > 1, "the first");
            Reply::metrics("scrape\n".to_owned())
        });
        assert!(answer(ask(&admin, "/metrics")).ends_with("the scrape panicked\n"));
        assert!(answer(ask(&admin, "/metrics")).ends_with("\r\n\r\nscrape\n"));
    }

    #[test]
    fn whoever_leaves_before_the_scrape_is_made_is_forgotten() {
        let (go_on, waits) = mpsc::channel::<()>();
        let admin = start(move || {
            waits.recv_timeout(PATIENCE).expect("it goes on");
            Reply::metrics("scrape\n".to_owned())
        });
        for _ in 0..3 * limits::ADMIN_SCRAPES {
            let gone = ask(&admin, "/metrics");
            set_socket_linger(&gone, Some(Duration::ZERO)).expect("a socket");
            drop(gone);
            assert!(answer(ask(&admin, "/healthz")).ends_with("ok\n"));
        }
        let half_closed = ask(&admin, "/metrics");
        half_closed.shutdown(std::net::Shutdown::Write).expect("it is connected");
        (0..2).for_each(|_| go_on.send(()).expect("it waits"));
        assert!(answer(half_closed).ends_with("scrape\n"));
    }

    fn start(make: impl FnMut() -> Reply + Send + 'static) -> AdminThread {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        AdminThread::start_making(listener, Arc::default(), make).expect("there is a thread")
    }

    fn ask(admin: &AdminThread, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(admin.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").expect("it is connected");
        stream
    }

    fn answer(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }
}
