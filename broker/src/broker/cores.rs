//! The cores of a node: what each gets, and its life from its logs to its last connection.

use std::rc::Rc;
use std::sync::Arc;

use tarn_mirror::manager::{CoreTask, Manager};
use tarn_runtime::channel::{Flag, Receiver, Sender, mailbox};
use tarn_runtime::{CoreHandle, CoreId, CoreSpec, Queue, spawn, spawn_core};
use tarn_transport::{Accepted, Acceptor, ConnectionLimits, MemoryBudget, Server};

use super::checkpoints::write_checkpoints;
use super::error::StartError;
use crate::core::Core;
use crate::dispatch::BrokerService;
use crate::envelope::Envelope;
use crate::layout::Layout;
use crate::limits;
use crate::mirror_host::{FetchCores, MirrorHost, run_tasks};
use crate::node::Node;
use crate::published::Published;
use crate::removing::remove_leftovers;

/// What every core of a node gets.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) node: Arc<Node>,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) limits: ConnectionLimits,
    pub(super) stop: Flag,
    pub(super) end: Flag,
}

/// What one core gets besides.
struct CoreParts {
    id: CoreId,
    mailbox: Receiver<Envelope>,
    sockets: Receiver<Accepted>,
    tasks: Receiver<CoreTask<MirrorHost>>,
    published: Arc<Published>,
    manager: Option<(Manager, FetchCores)>,
    begun: Sender<()>,
}

/// The cores that run, and the mailboxes of all.
#[derive(Default)]
pub(super) struct Started {
    pub(super) peers: Vec<Sender<Envelope>>,
    pub(super) cores: Vec<CoreHandle<()>>,
}

/// Starts the cores into `started`. With an error those that are in it run and are to be stopped.
pub(super) fn start_cores(
    plan: &Plan,
    layout: &Layout,
    published: &[Arc<Published>],
    acceptor: Acceptor,
    manager: Manager,
    started: &mut Started,
) -> Result<(), StartError> {
    let count = layout.cores.len();
    let (peers, mut inboxes) = mailboxes(count, limits::MAILBOX_ENVELOPES);
    started.peers.clone_from(&peers);
    let (dealt, mut sockets) = mailboxes(count, tarn_transport::limits::DEALT_SOCKETS_MAX);
    let (task_senders, mut tasks) = mailboxes(count, limits::MIRROR_TASKS);
    let fetchers = layout.fetch_cores.iter().map(|core| task_senders[usize::from(core.0)].clone()).collect();
    let mut manager = Some((manager, FetchCores::new(fetchers)));
    let (begun, mut beginnings) = mailbox(count);
    for (index, cpu) in layout.cores.iter().enumerate() {
        let id = CoreId(index as u16);
        let parts = CoreParts {
            id,
            mailbox: inboxes.remove(0),
            sockets: sockets.remove(0),
            tasks: tasks.remove(0),
            published: published[index].clone(),
            manager: if layout.fetch_cores.first() == Some(&id) { manager.take() } else { None },
            begun: begun.clone(),
        };
        let (plan, peers, placement) = (plan.clone(), peers.clone(), layout.placement.clone());
        let spec = CoreSpec { cpu: *cpu, name: format!("core-{index}") };
        let run = move || async move {
            let core = Core::new(parts.id, plan.node.clone(), peers, placement);
            run_core(core, plan, parts).await;
        };
        started.cores.push(spawn_core(spec, run).map_err(StartError::Machine)?);
    }
    for _ in 0..count {
        beginnings.recv_blocking();
    }
    let stop = plan.stop.clone();
    let accept: CoreTask<MirrorHost> =
        Box::new(move |_| Box::pin(async move { acceptor.run(dealt, stop).await }));
    if task_senders[0].send_blocking(accept).is_err() {
        return Err(StartError::Machine(std::io::Error::other("the first core ended at its start")));
    }
    Ok(())
}

fn mailboxes<M: Send>(count: usize, capacity: usize) -> (Vec<Sender<M>>, Vec<Receiver<M>>) {
    (0..count).map(|_| mailbox(capacity)).unzip()
}

/// The life of one core: its logs, its tasks, its connections, until the node ends.
async fn run_core(core: Rc<Core>, plan: Plan, parts: CoreParts) {
    let CoreParts { id, mailbox, sockets, tasks, published, manager, begun } = parts;
    if let Some(update) = published.next().await.pop() {
        core.begin(update.image).await;
    }
    let _ = begun.send(()).await;
    core.start(mailbox);
    spawn(Queue::Network, core.clone().follow(published)).detach();
    spawn(Queue::Network, run_tasks(core.clone(), tasks)).detach();
    if id == CoreId(0) {
        spawn(Queue::Background, remove_leftovers(core.clone())).detach();
        spawn(Queue::Background, write_checkpoints(core.clone(), plan.stop.clone())).detach();
    }
    if let Some((manager, cores)) = manager {
        spawn(Queue::Mirror, manager.run(MirrorHost::new(core.clone()), cores)).detach();
    }
    let service = Rc::new(BrokerService::new(core.clone()));
    let metrics = core.metrics().transport.clone();
    let server = Server::new(service, plan.limits, plan.budget, metrics);
    server.run(sockets, plan.stop).await;
    plan.end.raised().await;
}
