//! The driver of a node's mirroring: brings every partition that this broker leads to where it should be.
//!
//! One task on the node's first mirror core. Everything that happens comes through one letter box: changed
//! metadata, reports of lanes, answers to questions. Partitions are asked what they want; what they want
//! is done for many at once, one request per kind of work at a time and mirror.
//!
//! Invariants:
//! * the task never waits for anything but its letter box and the clock;
//! * an answer is taken only by the life of the mirror and partition that asked;
//! * no timer and no task of its own for any partition.

mod assigning;
mod board;
mod changes;
mod compare;
mod completing;
mod cores;
mod ending;
mod following;
mod job;
mod lanes;
mod look;
mod mirror;
mod news;
mod policies;
mod positions;
mod refresh;
mod running;
mod search;
mod shared;
mod truncating;
mod work;
mod working;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_image::config::server::MirrorNodeConfig;
use tarn_image::{MetadataDelta, MetadataImage};
use tarn_record::TopicIdPartition;

pub use board::{Standing, TaskStanding};
pub use cores::{CoreTask, LocalFuture, MirrorCores};

use crate::backoff::Backoff;
use crate::fetch::budget::FetchBudget;
use crate::fetch::progress::Clock;
use crate::local_cluster::LocalCluster;
use crate::metrics::MirrorMetrics;
use crate::partition::RetryPolicy;
use crate::post::Post;
use board::Board;
use changes::Changes;
use running::Running;
use shared::{NodeLimits, Shared};

/// The manager, not running yet.
pub struct Manager {
    shared: Arc<Shared>,
    limits: NodeLimits,
    budget: Arc<FetchBudget>,
}

/// The way to a running manager, from any core or thread. None of its functions waits.
#[derive(Clone)]
pub struct ManagerHandle {
    shared: Arc<Shared>,
    budget: Arc<FetchBudget>,
}

impl Manager {
    /// A manager and the way to it; on any thread.
    pub fn new(config: &MirrorNodeConfig) -> (Manager, ManagerHandle) {
        let clock = Clock::start();
        let shared = Arc::new(Shared {
            clock,
            events: Post::default(),
            changes: Changes::default(),
            board: Board::new(clock),
            metrics: Arc::default(),
            stopping: AtomicBool::new(false),
        });
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        let limits = NodeLimits {
            fetchers: positive(i64::from(config.fetchers)).max(1),
            refresh_ms: positive(config.refresh_interval_ms).max(100),
            retry: RetryPolicy {
                backoff: Backoff {
                    initial_ms: positive(config.retry_initial_backoff_ms),
                    max_ms: positive(config.retry_max_backoff_ms),
                },
                attempts_max: u16::try_from(config.retry_max_attempts).unwrap_or(u16::MAX),
            },
            batch_max_bytes: usize::try_from(config.batch_max_bytes).unwrap_or(0),
        };
        let budget = FetchBudget::new(usize::try_from(config.fetch_memory_bytes).unwrap_or(0));
        let handle = ManagerHandle { shared: shared.clone(), budget: budget.clone() };
        (Manager { shared, limits, budget }, handle)
    }

    /// Runs on the node's first mirror core until the handle says stop, and until all lanes have ended.
    pub async fn run<C: LocalCluster>(self, cluster: C, cores: impl MirrorCores<C>) {
        let Manager { shared, limits, budget } = self;
        let mut running = Running {
            cluster,
            cores: Rc::new(cores),
            shared,
            limits,
            budget,
            image: Arc::default(),
            mirrors: BTreeMap::new(),
            homes: BTreeMap::new(),
            next_number: 0,
        };
        running.run().await;
    }
}

impl ManagerHandle {
    /// The metadata has changed. The first call looks at everything, whatever the delta says.
    pub fn metadata_changed(&self, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        self.shared.changes.note(image, delta);
        self.shared.events.ring();
    }

    /// How partitions of a mirror stand; `None` for those that this broker does not mirror.
    pub fn offsets(&self, mirror: &str, partitions: &[TopicIdPartition]) -> Vec<Option<Standing>> {
        self.shared.board.standings(mirror, partitions)
    }

    /// How the tasks of a mirror stand that follow the source beside the records.
    pub fn tasks(&self, mirror: &str) -> Vec<TaskStanding> {
        self.shared.board.tasks(mirror)
    }

    /// The memory that answers of sources may take, and what of it is reserved.
    pub fn fetch_memory(&self) -> (usize, usize) {
        self.budget.standing()
    }

    /// The clusters from which the source of a mirror has the topics that it mirrors.
    pub fn upstream(&self, mirror: &str) -> Vec<String> {
        self.shared.board.clusters_upstream(mirror)
    }

    /// The counters of this node.
    pub fn metrics(&self) -> &MirrorMetrics {
        &self.shared.metrics
    }

    /// Ends everything; `Manager::run` returns when it is done.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.events.ring();
    }
}
