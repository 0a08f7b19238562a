//! A node: how its parts are put together, started and stopped.
//!
//! Start-up order: directories, controller, registration, cores with their logs, and only then
//! connections. A stop goes the other way round, and a directory counts as cleanly shut down only when
//! every log in it was closed, or found as it was closed, and the checkpoints were written. A start that is
//! refused ends what it has begun in the same order.

mod checkpoints;
mod cores;
mod directories;
mod error;
mod known_dirs;
mod listening;
mod registration;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use tarn_image::config::server::ServerConfig;
use tarn_log::checkpoints::CleanShutdown;
use tarn_log::{Descriptors, LogDir};
use tarn_mirror::manager::{Manager, ManagerHandle};
use tarn_quorum::Running;
use tarn_record::Offset;
use tarn_runtime::channel::{Flag, Sender, reply};
use tarn_runtime::{CoreHandle, machine, probe};
use tarn_transport::{Acceptor, ConnectionLimits};
use tracing::{info, warn};

pub use error::StartError;

use self::cores::{Plan, Started};
use crate::admin::{AdminThread, Watched};
use crate::cleaning::Cleaners;
use crate::connections::{ConnectionRules, connection_limits, inbound_budget};
use crate::envelope::{CheckpointEntry, Envelope};
use crate::flushing::BackgroundFlusher;
use crate::layout::Layout;
use crate::log_dirs::LogDirs;
use crate::loggers::Loggers;
use crate::metrics::CoreMetrics;
use crate::node::{Node, Shown};
use crate::published::Published;

/// A node that runs.
pub struct Broker {
    node: Arc<Node>,
    controller: Running,
    peers: Vec<Sender<Envelope>>,
    cores: Vec<CoreHandle<()>>,
    addresses: Vec<(String, SocketAddr)>,
    manager: ManagerHandle,
    admin: Option<AdminThread>,
    flusher: JoinHandle<()>,
    cleaners: Cleaners,
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
        Broker::start_logging(config, Arc::default())
    }

    /// The same in a process whose log is ruled by these loggers.
    ///
    /// # Errors
    /// Why it does not start. Nothing runs then.
    pub fn start_logging(config: ServerConfig, loggers: Arc<Loggers>) -> Result<Broker, StartError> {
        probe::check()?;
        let config = Arc::new(config);
        let mut dirs = Vec::new();
        let prepared =
            prepare(&config, &mut dirs).inspect_err(|_| directories::leave_as_found(&dirs, None))?;
        let Prepared { cluster_id, layout, limits, acceptor, addresses, .. } = prepared;
        let Prepared { manager, manager_handle, published, registration, controller, .. } = prepared;
        let Prepared { admin, descriptors, missing, .. } = prepared;
        let registered = registration::register(&config, &dirs, &controller.handle, &addresses, &cluster_id);
        let ready = registered.and_then(|broker_epoch| {
            let log_dirs = LogDirs::new(dirs.clone(), config.log_dirs.len() - missing.len())
                .map_err(|(dir, cause)| StartError::LogDir { dir, cause })?;
            let log_dirs = log_dirs.without(missing);
            let flusher = BackgroundFlusher::start().map_err(StartError::Machine)?;
            Ok((broker_epoch, log_dirs, flusher))
        });
        let (broker_epoch, log_dirs, (flusher, flusher_thread)) = match ready {
            Ok(ready) => ready,
            Err(refused) => {
                // Its log is closed before anything is said of the directory that it is in.
                let end = end_controller(controller);
                directories::leave_as_found(&dirs, Some((&config.metadata_log_dir, end)));
                return Err(refused);
            }
        };
        let image = registration::wait_until_registered(&config, registration);
        directories::put_strays_aside(&log_dirs, &image);
        let log_dirs = known_dirs::look_for_gone(log_dirs, &config.metadata_log_dir, &image, config.node_id);
        let (log_dirs, controlling) = (Arc::new(log_dirs), controller.handle.clone());
        let listeners: Vec<_> = config.listeners.iter().map(|one| one.name.as_str().into()).collect();
        let shown = Shown { metrics: CoreMetrics::of_cores(layout.cores.len(), &listeners), loggers };
        let node = Node::new(config, cluster_id, log_dirs, controlling, flusher, shown);
        node.set_mirrors(manager_handle.clone());
        node.set_connection_rules(ConnectionRules::new(acceptor.admission().clone()));
        let plan = Plan {
            budget: inbound_budget(node.config(), layout.cores.len()),
            node: Arc::new(node),
            limits,
            stop: Flag::default(),
            end: Flag::default(),
        };
        let mut started = Started::default();
        let is_started = cores::start_cores(&plan, &layout, &published, acceptor, manager, &mut started);
        let Plan { node, budget, stop, end, .. } = plan;
        if let (Some(admin), Ok(())) = (&admin, &is_started) {
            let (node, peers) = (node.clone(), started.peers.clone());
            admin.watch(Watched { node, peers, inbound: budget, descriptors });
        }
        let owners = layout.placement.cores().iter();
        let owners = owners.filter_map(|core| started.peers.get(usize::from(core.0))).cloned().collect();
        let cleaners = Cleaners::new(node.cleaner().clone(), node.log_dirs().clone(), owners);
        let broker = Broker {
            node,
            controller,
            peers: started.peers,
            cores: started.cores,
            addresses,
            manager: manager_handle,
            admin,
            flusher: flusher_thread,
            cleaners,
            broker_epoch,
            stop,
            end,
        };
        let is_started = is_started.and_then(|()| broker.cleaners.start().map_err(StartError::Machine));
        if let Err(refused) = is_started {
            broker.stop();
            return Err(refused);
        }
        let (node, cores) = (&broker.node, broker.cores.len());
        info!(node = node.broker_id().0, cluster = node.cluster_id(), cores, "started");
        Ok(broker)
    }

    /// The listeners and the addresses that they are bound to.
    pub fn addresses(&self) -> &[(String, SocketAddr)] {
        &self.addresses
    }

    /// Where metrics and health checks are served, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminThread::address)
    }

    /// What its cores share, for cores of a test's own.
    #[cfg(test)]
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Stops the node in order. Call it on a plain thread.
    pub fn stop(self) {
        self.admin.iter().for_each(AdminThread::stopping);
        self.manager.stop();
        self.stop.raise();
        self.cleaners.stop();
        let entries = close_logs(&self.peers);
        let written = self.node.log_dirs().write_last_checkpoints(&entries);
        let metadata_end = end_controller(self.controller);
        if let Err(error) = written {
            warn!(%error, "checkpoints not written; the next start checks the logs of their directory");
        }
        mark_clean(&self.node, self.broker_epoch, metadata_end);
        self.end.raise();
        self.cores.into_iter().for_each(CoreHandle::join);
        self.node.flusher().stop();
        if self.flusher.join().is_err() {
            warn!("the background flusher had ended before");
        }
        info!("stopped");
    }
}

/// A node that has written nothing yet but what its controller wrote when it opened its log.
struct Prepared {
    cluster_id: String,
    layout: Layout,
    limits: ConnectionLimits,
    acceptor: Acceptor,
    addresses: Vec<(String, SocketAddr)>,
    manager: Manager,
    manager_handle: ManagerHandle,
    published: Vec<Arc<Published>>,
    registration: Arc<Published>,
    controller: Running,
    admin: Option<AdminThread>,
    descriptors: Arc<Descriptors>,
    missing: Vec<PathBuf>,
}

/// Counts the CPUs, takes the directories, then the ports, and starts the controller.
fn prepare(config: &Arc<ServerConfig>, dirs: &mut Vec<Arc<LogDir>>) -> Result<Prepared, StartError> {
    if !(config.roles.broker && config.roles.controller) {
        return Err(StartError::OneRole);
    }
    let files = machine::raise_nofile().map_err(StartError::Machine)?;
    let descriptors = Descriptors::new(directories::descriptors_for_segments(files));
    let layout = Layout::of(config, &machine::available_cpus().map_err(StartError::Machine)?)?;
    directories::refuse_exports_among_logs(config)?;
    let directories::Opened { cluster_id, missing } = directories::open_dirs(config, &descriptors, dirs)?;
    directories::refuse_lost_metadata(config, dirs)?;
    let limits = connection_limits(config);
    let acceptor = listening::bind(config, &limits)?;
    let admin = listening::bind_admin(config)?.map(AdminThread::start).transpose();
    let admin = admin.map_err(StartError::Machine)?;
    let addresses = acceptor.addresses().map_err(StartError::Machine)?;
    let addresses: Vec<(String, SocketAddr)> =
        addresses.into_iter().map(|(name, address)| (name.to_string(), address)).collect();
    let (manager, manager_handle) = Manager::new(&config.mirror);
    let published: Vec<Arc<Published>> = layout.cores.iter().map(|_| Arc::default()).collect();
    let registration = Arc::new(Published::default());
    let controller =
        registration::start_controller(config, dirs, &published, &registration, &manager_handle)?;
    Ok(Prepared {
        cluster_id,
        layout,
        limits,
        acceptor,
        addresses,
        manager,
        manager_handle,
        published,
        registration,
        controller,
        admin,
        descriptors,
        missing,
    })
}

/// Closes the metadata log; where it ends.
fn end_controller(controller: Running) -> Offset {
    controller.handle.stop();
    controller.core.join()
}

fn mark_clean(node: &Node, broker_epoch: i64, metadata_end: Offset) {
    let in_order = node.log_dirs().closed_in_order();
    for dir in node.log_dirs().dirs() {
        if !in_order.iter().any(|one| Arc::ptr_eq(one, dir)) {
            warn!(dir = %dir.path().display(), "not closed in order; the next start checks it");
            continue;
        }
        let holds_metadata = dir.path() == node.config().metadata_log_dir;
        let metadata_end = holds_metadata.then_some(metadata_end);
        if let Err(error) = dir.mark_clean(CleanShutdown { broker_epoch, metadata_end }) {
            warn!(dir = %dir.path().display(), %error, "not marked as cleanly shut down");
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
