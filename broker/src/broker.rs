//! A node: how its parts are put together, started and stopped.
//!
//! Start-up order: directories, controller, registration, cores with their logs, and only then
//! connections. A stop goes the other way round, and a directory counts as cleanly shut down only when
//! every log in it was closed and the checkpoints were written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tarn_image::config::server::ServerConfig;
use tarn_image::features::SUPPORTED;
use tarn_image::{MetadataImage, config::server::Listener};
use tarn_log::log_dir::LogDirError;
use tarn_log::{Descriptors, LogDir, RealDisk};
use tarn_mirror::manager::{CoreTask, Manager, ManagerHandle};
use tarn_quorum::{ControllerError, ControllerHandle, ControllerOptions, Running};
use tarn_runtime::channel::{Flag, Receiver, Sender, mailbox, reply};
use tarn_runtime::probe::{self, ProbeError};
use tarn_runtime::{CoreHandle, CoreId, CoreSpec, Queue, blocking, machine, sleep, spawn, spawn_core};
use tarn_transport::{
    Accepted, Acceptor, ConnectionLimits, InboundBudget, ListenerSpec, Server, TransportMetrics,
};
use tarn_wire::ErrorCode;
use tarn_wire::messages::broker_registration_request::{Feature, Listener as RegisteredListener};
use tarn_wire::messages::{BrokerHeartbeatRequest, BrokerRegistrationRequest};
use thiserror::Error;
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::core::Core;
use crate::dispatch::BrokerService;
use crate::envelope::{CheckpointEntry, Envelope};
use crate::flushing::BackgroundFlusher;
use crate::layout::Layout;
use crate::limits;
use crate::log_dirs::LogDirs;
use crate::mirror_host::{FetchCores, MirrorHost, run_tasks};
use crate::node::Node;
use crate::published::Published;

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The kernel refuses io_uring.
    #[error(transparent)]
    NoIoUring(#[from] ProbeError),
    /// A log directory was never formatted.
    #[error("log directory {} is not formatted", dir.display())]
    NotFormatted {
        /// The directory.
        dir: PathBuf,
    },
    /// A log directory belongs to somebody else.
    #[error("log directory {} belongs to {theirs}, not to {ours}", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        theirs: String,
        /// Who we are.
        ours: String,
    },
    /// A log directory cannot be used.
    #[error("log directory {}: {cause}", dir.display())]
    LogDir {
        /// The directory.
        dir: PathBuf,
        /// Why.
        cause: LogDirError,
    },
    /// The controller.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The controller does not take this broker.
    #[error("the controller refused to register this broker: {0}")]
    NotRegistered(String),
    /// A listener.
    #[error("listener {listener}: {cause}")]
    Listener {
        /// The listener as it is configured.
        listener: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The machine.
    #[error("{0}")]
    Machine(std::io::Error),
}

/// A node that runs.
pub struct Broker {
    node: Arc<Node>,
    controller: Running,
    peers: Vec<Sender<Envelope>>,
    cores: Vec<CoreHandle<()>>,
    addresses: Vec<(String, SocketAddr)>,
    manager: ManagerHandle,
    flusher: JoinHandle<()>,
    broker_epoch: i64,
    stop: Flag,
    end: Flag,
}

impl Broker {
    /// Starts a node; it accepts connections when this returns. Call it on a plain thread.
    ///
    /// # Errors
    /// Why it does not start. Nothing runs then.
    pub fn start(config: ServerConfig) -> Result<Broker, StartError> {
        probe::check()?;
        let config = Arc::new(config);
        let files = machine::raise_nofile().map_err(StartError::Machine)?;
        let descriptors = Descriptors::new(descriptors_for_segments(files));
        let (dirs, cluster_id) = open_dirs(&config, &descriptors)?;
        let layout = Layout::of(&config, &machine::available_cpus().map_err(StartError::Machine)?);
        let limits = connection_limits(&config);
        let acceptor = bind(&config, &limits)?;
        let addresses = acceptor.addresses().map_err(StartError::Machine)?;
        let addresses: Vec<(String, SocketAddr)> =
            addresses.into_iter().map(|(name, address)| (name.to_string(), address)).collect();

        let (manager, manager_handle) = Manager::new(&config.mirror);
        let published: Vec<Arc<Published>> = layout.cores.iter().map(|_| Arc::default()).collect();
        let registration = Arc::new(Published::default());
        let controller = start_controller(&config, &dirs, &published, &registration, &manager_handle)?;
        let broker_epoch = register(&config, &dirs, &controller.handle, &addresses, &cluster_id)?;

        let log_dirs = LogDirs::new(dirs).map_err(|(dir, cause)| StartError::LogDir { dir, cause })?;
        let image = wait_until_registered(&config, registration);
        if let Err(error) = log_dirs.give_up_deleted(|id| image.topics().by_id(id).is_some()) {
            warn!(%error, "directories of deleted topics stay");
        }
        remove_leftovers(&log_dirs);
        let (flusher, flusher_thread) = BackgroundFlusher::start().map_err(StartError::Machine)?;
        let node = Node::new(config, cluster_id, Arc::new(log_dirs), controller.handle.clone(), flusher);
        node.set_mirrors(manager_handle.clone());
        let plan = Plan {
            node: Arc::new(node),
            budget: InboundBudget::new(limits::inbound_bytes(layout.cores.len())),
            limits,
            stop: Flag::default(),
            end: Flag::default(),
        };
        let (peers, cores) = start_cores(&plan, &layout, &published, acceptor, manager)?;
        let Plan { node, stop, end, .. } = plan;
        info!(node = node.broker_id().0, cluster = node.cluster_id(), cores = cores.len(), "started");
        Ok(Broker {
            node,
            controller,
            peers,
            cores,
            addresses,
            manager: manager_handle,
            flusher: flusher_thread,
            broker_epoch,
            stop,
            end,
        })
    }

    /// The listeners and the addresses that they are bound to.
    pub fn addresses(&self) -> &[(String, SocketAddr)] {
        &self.addresses
    }

    /// Stops the node in order. Call it on a plain thread.
    pub fn stop(self) {
        self.manager.stop();
        self.stop.raise();
        let entries = close_logs(&self.peers);
        let written = self.node.log_dirs().write_last_checkpoints(&entries);
        self.controller.handle.stop();
        self.controller.core.join();
        match written {
            Ok(()) => mark_clean(&self.node, self.broker_epoch),
            Err(error) => warn!(%error, "checkpoints not written; the next start checks the logs"),
        }
        self.end.raise();
        self.cores.into_iter().for_each(CoreHandle::join);
        self.node.flusher().stop();
        if self.flusher.join().is_err() {
            warn!("the background flusher had ended before");
        }
        info!("stopped");
    }
}

fn mark_clean(node: &Node, broker_epoch: i64) {
    for dir in node.log_dirs().dirs() {
        if let Err(error) = dir.mark_clean(broker_epoch) {
            warn!(dir = %dir.path().display(), %error, "not marked as cleanly shut down");
        }
    }
}

/// The share of the process's files that segments may have; the rest is for connections and the system.
fn descriptors_for_segments(files: u64) -> usize {
    usize::try_from(files.saturating_sub(512) / 2).unwrap_or(usize::MAX).max(64)
}

fn open_dirs(
    config: &ServerConfig,
    descriptors: &Arc<Descriptors>,
) -> Result<(Vec<Arc<LogDir>>, String), StartError> {
    let mut dirs = Vec::new();
    let mut cluster: Option<String> = None;
    let mut paths = config.log_dirs.clone();
    if !paths.contains(&config.metadata_log_dir) {
        paths.push(config.metadata_log_dir.clone());
    }
    for path in paths {
        if !path.join(tarn_log::meta_properties::MetaProperties::FILE_NAME).exists() {
            return Err(StartError::NotFormatted { dir: path });
        }
        let dir = LogDir::open(Arc::new(RealDisk), &path, descriptors.clone())
            .map_err(|cause| StartError::LogDir { dir: path.clone(), cause })?;
        let Some(properties) = dir.properties() else { return Err(StartError::NotFormatted { dir: path }) };
        let ours = cluster.get_or_insert_with(|| properties.cluster_id.clone());
        if *ours != properties.cluster_id || properties.node_id != config.node_id {
            return Err(StartError::NotOurs {
                dir: path,
                theirs: format!("node {} of cluster {}", properties.node_id, properties.cluster_id),
                ours: format!("node {} of cluster {ours}", config.node_id),
            });
        }
        dirs.push(dir);
    }
    Ok((dirs, cluster.unwrap_or_default()))
}

fn connection_limits(config: &ServerConfig) -> ConnectionLimits {
    let network = &config.network;
    let count = |limit: i32| usize::try_from(limit).unwrap_or(usize::MAX);
    ConnectionLimits {
        max_request_bytes: count(network.request_max_bytes),
        idle_timeout: Duration::from_millis(u64::try_from(network.idle_ms).unwrap_or(u64::MAX)),
        max_connections: count(network.max_connections),
        max_per_ip: count(network.max_connections_per_ip),
        ..ConnectionLimits::default()
    }
}

fn bind(config: &ServerConfig, connections: &ConnectionLimits) -> Result<Acceptor, StartError> {
    let failed = |listener: &Listener, cause| StartError::Listener { listener: listener.to_string(), cause };
    let mut specs = Vec::new();
    for listener in &config.listeners {
        let mut spec = ListenerSpec::new(&listener.name, &listener.host, listener.port)
            .map_err(|cause| failed(listener, cause))?;
        spec.backlog = config.network.backlog;
        specs.push(spec);
    }
    // The kernel lets go of a killed node's sockets only after its rings are torn down, which takes a while.
    let deadline = Instant::now() + limits::PORT_WAIT;
    loop {
        match Acceptor::bind(&specs, connections) {
            Ok(acceptor) => return Ok(acceptor),
            Err(cause) if cause.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(limits::PORT_RETRY_PAUSE);
            }
            Err(cause) => return Err(StartError::Machine(cause)),
        }
    }
}

fn start_controller(
    config: &Arc<ServerConfig>,
    dirs: &[Arc<LogDir>],
    published: &[Arc<Published>],
    registration: &Arc<Published>,
    manager: &ManagerHandle,
) -> Result<Running, StartError> {
    let log_dir = dirs.iter().find(|dir| dir.path() == config.metadata_log_dir);
    let log_dir = log_dir.ok_or_else(|| StartError::NotFormatted { dir: config.metadata_log_dir.clone() })?;
    let (published, manager) = (published.to_vec(), manager.clone());
    let registration = Arc::downgrade(registration);
    let options = ControllerOptions {
        config: config.clone(),
        log_dir: log_dir.clone(),
        publisher: Box::new(move |update| {
            // The cores first: what the manager then tells them is of partitions that they know.
            published.iter().for_each(|core| core.publish(update.clone()));
            manager.metadata_changed(update.image.clone(), &update.delta);
            if let Some(waiting) = registration.upgrade() {
                waiting.publish(update);
            }
        }),
    };
    Ok(tarn_quorum::server::start(options)?)
}

/// Registers this broker and has it unfenced; its epoch.
fn register(
    config: &ServerConfig,
    dirs: &[Arc<LogDir>],
    controller: &ControllerHandle,
    addresses: &[(String, SocketAddr)],
    cluster_id: &str,
) -> Result<i64, StartError> {
    let bound = |listener: &Listener| {
        let address = addresses.iter().find(|(name, _)| *name == listener.name);
        address.map_or(listener.port, |(_, address)| address.port())
    };
    let listeners = config.advertised_broker_listeners().map(|listener| RegisteredListener {
        name: listener.name.as_str().into(),
        host: listener.host.as_str().into(),
        port: if listener.port == 0 { bound(listener) } else { listener.port },
        security_protocol: 0,
    });
    let directories = dirs.iter().filter_map(|dir| dir.properties()?.directory_id).map(|id| id.0);
    let request = BrokerRegistrationRequest {
        broker_id: config.node_id.0,
        cluster_id: cluster_id.into(),
        incarnation_id: Uuid::new_v4(),
        listeners: listeners.collect(),
        features: SUPPORTED
            .iter()
            .map(|feature| Feature {
                name: feature.name.into(),
                min_supported_version: feature.min,
                max_supported_version: feature.max,
            })
            .collect(),
        rack: config.rack.as_deref().map(Into::into),
        log_dirs: directories.collect(),
        ..Default::default()
    };
    let refused = |code: i16| StartError::NotRegistered(ErrorCode(code).name().to_owned());
    let no_controller = |error: tarn_quorum::NotController| StartError::NotRegistered(error.to_string());
    futures_lite::future::block_on(async {
        let registered = controller.register_broker(request).await.map_err(no_controller)?;
        if registered.response.error_code != ErrorCode::NONE.0 {
            return Err(refused(registered.response.error_code));
        }
        let broker_epoch = registered.response.broker_epoch;
        let heartbeat = BrokerHeartbeatRequest {
            broker_id: config.node_id.0,
            broker_epoch,
            current_metadata_offset: registered.offset.0,
            want_fence: false,
            want_shut_down: false,
            ..Default::default()
        };
        let unfenced = controller.heartbeat(heartbeat).await.map_err(no_controller)?;
        match unfenced.response.error_code {
            code if code == ErrorCode::NONE.0 => Ok(broker_epoch),
            code => Err(refused(code)),
        }
    })
}

/// Waits for the metadata in which this broker is active; nobody collects what is published after it.
fn wait_until_registered(config: &ServerConfig, published: Arc<Published>) -> Arc<MetadataImage> {
    loop {
        if let Some(update) = published.next_blocking().pop()
            && update.image.registrations().is_active(config.node_id)
        {
            return update.image;
        }
    }
}

/// Directories of deleted partitions that the last run did not get to remove.
fn remove_leftovers(log_dirs: &LogDirs) {
    match log_dirs.leftovers() {
        Ok(leftovers) => {
            for (dir, path) in leftovers {
                if let Err(error) = dir.remove(&path) {
                    warn!(path = %path.display(), %error, "a deleted partition's directory stays");
                }
            }
        }
        Err(error) => warn!(%error, "deleted partitions' directories not looked for"),
    }
}

/// What every core of a node gets.
#[derive(Clone)]
struct Plan {
    node: Arc<Node>,
    budget: Arc<InboundBudget>,
    limits: ConnectionLimits,
    stop: Flag,
    end: Flag,
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

type Started = (Vec<Sender<Envelope>>, Vec<CoreHandle<()>>);

fn start_cores(
    plan: &Plan,
    layout: &Layout,
    published: &[Arc<Published>],
    acceptor: Acceptor,
    manager: Manager,
) -> Result<Started, StartError> {
    let count = layout.cores.len();
    let (peers, mut mailboxes) = mailboxes(count, limits::MAILBOX_ENVELOPES);
    let (dealt, mut sockets) = mailboxes_of(count, tarn_transport::limits::DEALT_SOCKETS_MAX);
    let (task_senders, mut tasks) = mailboxes_of(count, limits::MIRROR_TASKS);
    let fetchers = layout.fetch_cores.iter().map(|core| task_senders[usize::from(core.0)].clone()).collect();
    let mut manager = Some((manager, FetchCores::new(fetchers)));
    let (begun, mut beginnings) = mailbox(count);
    let mut handles = Vec::with_capacity(count);
    for (index, cpu) in layout.cores.iter().enumerate() {
        let id = CoreId(index as u16);
        let parts = CoreParts {
            id,
            mailbox: mailboxes.remove(0),
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
        handles.push(spawn_core(spec, run).map_err(StartError::Machine)?);
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
    Ok((peers, handles))
}

fn mailboxes(count: usize, capacity: usize) -> (Vec<Sender<Envelope>>, Vec<Receiver<Envelope>>) {
    mailboxes_of(count, capacity)
}

fn mailboxes_of<M: Send>(count: usize, capacity: usize) -> (Vec<Sender<M>>, Vec<Receiver<M>>) {
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
        spawn(Queue::Background, write_checkpoints(core.clone(), plan.stop.clone())).detach();
    }
    if let Some((manager, cores)) = manager {
        spawn(Queue::Mirror, manager.run(MirrorHost::new(core.clone()), cores)).detach();
    }
    let service = Rc::new(BrokerService::new(core.clone()));
    let metrics = Arc::new(TransportMetrics::default());
    let server = Server::new(service, plan.limits, plan.budget, metrics);
    server.run(sockets, plan.stop).await;
    plan.end.raised().await;
}

/// Writes the checkpoint files of the node every few seconds.
async fn write_checkpoints(core: Rc<Core>, stop: Flag) {
    while !stop.is_raised() {
        sleep(Duration::from_millis(limits::CHECKPOINT_INTERVAL_MS)).await;
        let mut entries = Vec::new();
        for owner in core.partition_cores().to_vec() {
            let (slot, answer) = reply();
            core.deliver(owner, Envelope::Checkpoint(slot)).await;
            entries.extend(answer.await.unwrap_or_default());
        }
        if stop.is_raised() {
            return;
        }
        let log_dirs = core.node().log_dirs().clone();
        match blocking(move || log_dirs.write_checkpoints(&entries)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(%error, "checkpoints not written"),
            Err(error) => error!(%error, "checkpoints not written"),
        }
    }
}

/// Closes every log; the offsets for the last checkpoints.
fn close_logs(peers: &[Sender<Envelope>]) -> Vec<CheckpointEntry> {
    let mut closing = Vec::new();
    for peer in peers {
        let (slot, answer) = reply();
        if peer.send_blocking(Envelope::Close(slot)).is_ok() {
            closing.push(answer);
        }
    }
    let closed = closing.into_iter().map(|answer| futures_lite::future::block_on(answer).unwrap_or_default());
    closed.flatten().collect()
}
