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

mod board;
mod changes;
mod compare;
mod lanes;
mod mirror;
mod refresh;
mod work;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_lite::future;
use tarn_image::config::server::MirrorNodeConfig;
use tarn_image::{MetadataDelta, MetadataImage};
use tarn_record::{TopicId, TopicIdPartition};
use tarn_runtime::sleep;

pub use board::{Standing, TaskStanding};

use crate::backoff::Backoff;
use crate::fetch::budget::FetchBudget;
use crate::fetch::lane::LaneReport;
use crate::fetch::progress::Clock;
use crate::local_cluster::LocalCluster;
use crate::metrics::MirrorMetrics;
use crate::partition::RetryPolicy;
use crate::post::Post;
use crate::source::SourceError;
use board::Board;
use changes::Changes;
use mirror::Mirror;
use refresh::{Looked, Synced};
use work::{Outcome, Work};

/// How long a stop waits for lanes to end.
const STOP_WITHIN_MS: u64 = 5_000;
/// The longest the task sleeps without a reason.
const LOOK_AGAIN_MS: u64 = 10_000;

/// A future that stays on its core.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What the host runs on a core, with that core's own view of the cluster.
pub type CoreTask<C> = Box<dyn FnOnce(C) -> LocalFuture + Send>;

/// The cores that lanes run on.
pub trait MirrorCores<C>: 'static {
    /// How many there are, at least 1.
    fn count(&self) -> usize;

    /// Starts a task on a core, numbered from 0. Never waits; a task that cannot be started is dropped.
    fn spawn(&self, core: usize, task: CoreTask<C>);
}

/// What the node's configuration says about mirroring.
#[derive(Clone, Copy, Debug)]
struct NodeLimits {
    fetchers: u64,
    refresh_ms: u64,
    retry: RetryPolicy,
    batch_max_bytes: usize,
}

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
}

struct Shared {
    clock: Clock,
    events: Post<Event>,
    changes: Changes,
    board: Board,
    metrics: Arc<MirrorMetrics>,
    stopping: AtomicBool,
}

/// What happens.
enum Event {
    /// Work on partitions has ended.
    Worked { mirror: Life, work: Work, outcomes: Vec<(TopicIdPartition, u64, Outcome)> },
    /// The source has told of its metadata, or why not.
    Refreshed { mirror: Life, result: Result<Looked, SourceError> },
    /// What follows the source beside the records has been brought up to date, or why not.
    Synced { mirror: Life, synced: Synced },
    /// A lane reports.
    Lane { mirror: Life, lane: u64, report: LaneReport },
}

/// One life of a mirror: another begins when its connection settings change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Life {
    mirror: Arc<str>,
    number: u64,
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
        let handle = ManagerHandle { shared: shared.clone() };
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

/// A manager at work.
struct Running<C: LocalCluster, M: MirrorCores<C>> {
    cluster: C,
    cores: Rc<M>,
    shared: Arc<Shared>,
    limits: NodeLimits,
    budget: Arc<FetchBudget>,
    image: Arc<MetadataImage>,
    mirrors: BTreeMap<Arc<str>, Mirror>,
    /// Which mirror holds the partitions of a topic.
    homes: BTreeMap<TopicId, Arc<str>>,
    /// Numbers lives, lanes and assignments.
    next_number: u64,
}

impl<C: LocalCluster, M: MirrorCores<C>> Running<C, M> {
    async fn run(&mut self) {
        let mut stop_by_ms = None;
        loop {
            // Letters are taken first: that lowers their flag, which changed metadata raises too.
            let events = self.shared.events.take();
            self.take_changes();
            for event in events {
                self.happened(event);
            }
            let now_ms = self.shared.clock.now_ms();
            if self.shared.stopping.load(Ordering::SeqCst) {
                let by_ms = *stop_by_ms.get_or_insert_with(|| {
                    self.mirrors.values_mut().for_each(Mirror::stop_lanes);
                    now_ms + STOP_WITHIN_MS
                });
                if now_ms >= by_ms || self.mirrors.values().all(Mirror::has_no_lanes) {
                    return;
                }
                self.wait(100).await;
                continue;
            }
            let next_ms = self.work(now_ms);
            self.wait(next_ms.saturating_sub(now_ms).clamp(1, LOOK_AGAIN_MS)).await;
        }
    }

    async fn wait(&self, ms: u64) {
        future::or(self.shared.events.arrived(), sleep(Duration::from_millis(ms))).await;
    }

    fn happened(&mut self, event: Event) {
        let now_ms = self.shared.clock.now_ms();
        let (Event::Worked { mirror: life, .. }
        | Event::Refreshed { mirror: life, .. }
        | Event::Synced { mirror: life, .. }
        | Event::Lane { mirror: life, .. }) = &event;
        let Some(mirror) = self.mirrors.get_mut(&life.mirror).filter(|mirror| mirror.life == *life) else {
            return;
        };
        let mut context =
            mirror::Context { shared: &self.shared, image: &self.image, retry: &self.limits.retry, now_ms };
        match event {
            Event::Worked { work, outcomes, .. } => mirror.worked(work, outcomes, &mut context),
            Event::Refreshed { result, .. } => mirror.refreshed(result, &self.cluster, &mut context),
            Event::Synced { synced, .. } => mirror.synced(synced, &mut context),
            Event::Lane { lane, report, .. } => mirror.lane_reports(lane, report, &mut context),
        }
    }

    /// Begins whatever can be begun, and says when to look again.
    fn work(&mut self, now_ms: u64) -> u64 {
        let mut next_ms = now_ms + LOOK_AGAIN_MS;
        for mirror in self.mirrors.values_mut() {
            let mut context = mirror::Context {
                shared: &self.shared,
                image: &self.image,
                retry: &self.limits.retry,
                now_ms,
            };
            mirror.times_up(&mut context);
            let crew = lanes::Crew { cores: &self.cores, budget: &self.budget, limits: &self.limits };
            mirror.assign(&crew, &mut self.next_number, &mut context);
            mirror.begin_work(&self.cluster, &self.limits, &self.budget, &context);
            mirror.begin_refresh(&self.cluster, &self.limits, &context);
            next_ms = next_ms.min(mirror.look_again_ms(&context));
        }
        next_ms
    }
}
