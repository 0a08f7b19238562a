//! The connections of one core: takes the sockets that the acceptor deals to it and serves each in a task
//! of its own.
//!
//! Owned by the core. A connection whose service panics is closed, the others go on.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_lite::future;
use tarn_runtime::channel::{Flag, LocalNotify, Receiver};
use tarn_runtime::socket::Socket;
use tarn_runtime::{Queue, catch_panics, now, sleep, spawn};

use crate::admission::Seat;
use crate::budget::MemoryBudget;
use crate::connection::{Ended, Shared, serve};
use crate::limits::ConnectionLimits;
use crate::listener::{Accepted, ListenerName};
use crate::metrics::{ListenerNumber, TransportMetrics};
use crate::remarks::{Reason, Remark, Remarks};
use crate::service::{ConnectionId, ConnectionInfo, Service};
use crate::stopping::Stopping;

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// Serves the connections of one core.
pub struct Server<S> {
    shared: Rc<Shared<S>>,
    open: Rc<Open>,
}

/// The connections that are open.
#[derive(Default)]
struct Open {
    count: Cell<usize>,
    closed: LocalNotify,
    remarks: RefCell<Remarks<Reason>>,
}

impl<S: Service> Server<S> {
    /// A server that answers with `service`. The budget is the node's, the rest is this core's.
    pub fn new(
        service: Rc<S>,
        limits: ConnectionLimits,
        budget: Arc<MemoryBudget>,
        metrics: Arc<TransportMetrics>,
    ) -> Server<S> {
        let shared = Rc::new(Shared { service, limits, budget, metrics, stopping: Stopping::default() });
        Server { shared, open: Rc::default() }
    }

    /// Serves what comes in through `sockets` until `stop` is raised; then closes every connection, as
    /// [`Server::close_all`] does.
    pub async fn run(&self, mut sockets: Receiver<Accepted>, stop: Flag) {
        let stopped = async {
            stop.raised().await;
            None
        };
        let mut stopped = std::pin::pin!(stopped);
        while let Some(accepted) = future::or(stopped.as_mut(), sockets.recv()).await {
            self.begin(accepted);
        }
        // Where senders are gone, connections go on until they are told to end.
        stop.raised().await;
        self.close_all().await;
    }

    /// Serves one socket that came from elsewhere than an acceptor; it ends with the others.
    pub fn serve(&self, socket: Socket, listener: ListenerName, peer: SocketAddr) {
        self.begin(Accepted { socket, listener, peer, seat: Seat::free() });
    }

    /// The connections that are open now.
    pub fn connections(&self) -> usize {
        self.open.count.get()
    }

    /// Reads no more requests, and closes each connection when what was asked on it is answered, or
    /// `ConnectionLimits::stop_grace` is over. Waits until their tasks have ended.
    pub async fn close_all(&self) {
        self.shared.stopping.say();
        loop {
            let closed = self.open.closed.wait();
            if self.open.count.get() == 0 {
                return;
            }
            closed.await;
        }
    }

    fn begin(&self, accepted: Accepted) {
        if self.shared.stopping.is_said() {
            return;
        }
        let Accepted { socket, listener, peer, seat } = accepted;
        // A peer that is gone already has no address to tell.
        let Ok(local) = socket.local_addr() else { return };
        let id = ConnectionId(NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed));
        let info = Rc::new(ConnectionInfo::new(id, listener, peer, local));
        let guard = OpenGuard::new(&self.open, &self.shared.metrics, &info.listener, seat);
        let shared = Rc::clone(&self.shared);
        spawn(Queue::Network, async move {
            let stopped = async {
                shared.stopping.said().await;
                sleep(shared.limits.stop_grace).await;
                Ok(None)
            };
            // Boxed, because a future that is moved into another takes its room twice.
            let serving = Box::pin(serve(socket, Rc::clone(&info), Rc::clone(&shared)));
            let served = async { catch_panics(serving).await.map(Some) };
            match future::or(stopped, served).await {
                Ok(ended) => guard.report(&info, ended.as_ref()),
                Err(panic) => {
                    guard.metrics.connections_panicked.add(1);
                    if let Some(remark) = guard.open.may_say(Reason::Panicked) {
                        let ConnectionInfo { id, peer, .. } = &*info;
                        tracing::error!(%id, %peer, "connection closed: its service {panic}{remark}");
                    }
                }
            }
        })
        .detach();
    }
}

impl Open {
    fn may_say(&self, reason: Reason) -> Option<Remark> {
        self.remarks.borrow_mut().may_say(reason, now())
    }
}

/// Counts a connection as open while it lives, however it ends.
struct OpenGuard {
    open: Rc<Open>,
    metrics: Arc<TransportMetrics>,
    listener: ListenerNumber,
    _seat: Seat,
}

impl OpenGuard {
    fn new(
        open: &Rc<Open>,
        metrics: &Arc<TransportMetrics>,
        listener: &ListenerName,
        seat: Seat,
    ) -> OpenGuard {
        let listener = metrics.number_of(listener);
        open.count.set(open.count.get() + 1);
        metrics.of(listener).connections_opened.add(1);
        OpenGuard { open: Rc::clone(open), metrics: Arc::clone(metrics), listener, _seat: seat }
    }
}

impl OpenGuard {
    /// Counts and says how a connection ended: what its client or its service did wrong is for everybody to
    /// see, but not without limit.
    fn report(&self, info: &ConnectionInfo, ended: Option<&Ended>) {
        let ConnectionInfo { id, peer, listener, .. } = info;
        let Some(ended) = ended else {
            tracing::debug!(%id, %peer, %listener, "connection closed: the server stops, and answers are due");
            return;
        };
        let reason = match ended {
            Ended::Still(_) => {
                self.metrics.connections_closed_idle.add(1);
                None
            }
            Ended::ByClient | Ended::ByServer | Ended::Broken(_) => None,
            Ended::Malformed(_) => {
                self.metrics.connections_closed_malformed.add(1);
                Some(Reason::Malformed)
            }
            Ended::ByService(_) => Some(Reason::ByService),
            Ended::Unsent(_) => Some(Reason::Unsent),
        };
        match reason.and_then(|reason| self.open.may_say(reason)) {
            Some(remark) => tracing::info!(%id, %peer, %listener, "connection closed: {ended}{remark}"),
            None => tracing::debug!(%id, %peer, %listener, "connection closed: {ended}"),
        }
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.open.count.set(self.open.count.get() - 1);
        self.metrics.of(self.listener).connections_closed.add(1);
        self.open.closed.notify_all();
    }
}
