//! A scrape: asks the cores, waits for them, and looks up the rest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tarn_image::{DesiredState, MetadataImage};
use tarn_log::Descriptors;
use tarn_metrics::{Durations, Recent, Timer};
use tarn_mirror::metrics::{Each, MeasuredMirror};
use tarn_record::TopicIdPartition;
use tarn_runtime::channel::Sender;
use tarn_transport::MemoryBudget;
use tarn_wire::ApiKey;
use thiserror::Error;

use super::page;
use super::rooms::Rooms;
use crate::envelope::Envelope;
use crate::limits;
use crate::metrics::{CoreMeasured, Measure, OfApi, WAITING};
use crate::node::Node;

/// What there is to be told of a node.
pub(crate) struct Watched {
    /// What its cores share.
    pub(crate) node: Arc<Node>,
    /// Their mailboxes.
    pub(crate) peers: Vec<Sender<Envelope>>,
    /// Their memory for inbound frames.
    pub(crate) inbound: Arc<MemoryBudget>,
    /// Their budget of open segments.
    pub(crate) descriptors: Arc<Descriptors>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("cores", &self.peers.len()).finish_non_exhaustive()
    }
}

/// Some cores did not answer in time: they are busy beyond measure, or the node stops.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{answered} of {cores} cores have answered")]
pub(super) struct Unanswered {
    answered: usize,
    cores: usize,
}

/// What scrapes need of earlier ones.
pub(super) struct Scrape {
    began: Instant,
    recent: Recent<Timings>,
    rooms: Rooms,
}

/// Everything that is timed.
#[derive(Clone, Default)]
pub(super) struct Timings {
    /// Requests, in the order of `dispatch::SERVED`.
    pub(super) requests: Vec<(ApiKey, RequestTimings)>,
    /// Flushes.
    pub(super) flushes: Durations,
    /// Lookups beside the cores.
    pub(super) cold_lookups: Durations,
}

/// How long requests of one API took.
#[derive(Clone, Default)]
pub(super) struct RequestTimings {
    pub(super) total: Durations,
    /// Of those that wait for something to happen: work, and waiting.
    pub(super) split: Option<(Durations, Durations)>,
}

/// One scrape's answers.
pub(super) struct Scraped<'a> {
    pub(super) watched: &'a Watched,
    pub(super) image: Arc<MetadataImage>,
    pub(super) cores: Vec<CoreMeasured>,
    pub(super) mirrors: Vec<MeasuredMirror>,
    pub(super) timings: Timings,
    /// The same, some minutes ago.
    pub(super) earlier: Timings,
    /// Whether partitions have series of their own.
    pub(super) each: Each,
    /// The free bytes of each log directory that has answered.
    pub(super) free: BTreeMap<PathBuf, u64>,
}

impl Default for Scrape {
    fn default() -> Scrape {
        Scrape { began: Instant::now(), recent: Recent::default(), rooms: Rooms::default() }
    }
}

impl Scrape {
    /// The answer to a scrape.
    pub(super) fn page(&mut self, watched: &Watched) -> Result<String, Unanswered> {
        let partitions_max = watched.node.config().admin.partitions_max;
        let cores = measure_cores(&watched.peers, partitions_max)?;
        let newest = cores.iter().map(|core| &core.image).max_by_key(|image| image.provenance().offset);
        let image = newest.cloned().unwrap_or_default();
        let replicas: usize = cores.iter().map(|core| core.replicas).sum();
        let each = if replicas <= partitions_max { Each::Told } else { Each::NotTold };
        let timings = Timings::of(&watched.node);
        let now = self.began.elapsed();
        let earlier = self.recent.baseline(now);
        self.recent.keep(now, &timings);
        let mirrors = measure_mirrors(&watched.node, &image, each);
        let dirs = watched.node.log_dirs().dirs().iter().cloned();
        let free = self.rooms.of(dirs.map(|dir| (dir.path().to_owned(), move || dir.available_bytes().ok())));
        Ok(page::write(&Scraped { watched, image, cores, mirrors, timings, earlier, each, free }))
    }
}

impl Timings {
    fn of(node: &Node) -> Timings {
        let cores = node.metrics();
        let keys = cores.iter().take(1).flat_map(|core| core.requests.iter().map(|api| api.key));
        let of_key = |key| {
            let apis = || cores.iter().flat_map(|core| core.requests.iter()).filter(|api| api.key == key);
            let all = |timer: fn(&OfApi) -> &Timer| Durations::of(apis().map(timer));
            let waits = WAITING.contains(&key);
            let split = waits.then(|| (all(|api| &api.local), all(|api| &api.remote)));
            (key, RequestTimings { total: all(|api| &api.total), split })
        };
        let flushes = Durations::of(cores.iter().map(|core| &core.flushes));
        let cold_lookups = Durations::of(cores.iter().map(|core| &core.cold_lookups.ended));
        Timings { requests: keys.map(of_key).collect(), flushes, cold_lookups }
    }
}

/// What every core tells.
fn measure_cores(peers: &[Sender<Envelope>], partitions_max: usize) -> Result<Vec<CoreMeasured>, Unanswered> {
    let (answer, answers) = mpsc::channel();
    for peer in peers {
        // A core whose mailbox is full does not answer; that is told below.
        let _ = peer.try_send(Envelope::Measure(Measure { partitions_max, answer: answer.clone() }));
    }
    drop(answer);
    let deadline = Instant::now() + limits::SCRAPE_WAIT;
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let measured: Vec<CoreMeasured> = std::iter::from_fn(|| answers.recv_timeout(left()).ok()).collect();
    match measured.len() {
        answered if answered < peers.len() => Err(Unanswered { answered, cores: peers.len() }),
        _ => Ok(measured),
    }
}

/// How the mirrors stand, a few partitions at a time: what tells it is also written to.
fn measure_mirrors(node: &Node, image: &MetadataImage, each: Each) -> Vec<MeasuredMirror> {
    let Some(manager) = node.mirrors() else { return Vec::new() };
    let measure = |name: &str| {
        let topics: Vec<_> =
            image.bindings().topics_of(name).filter_map(|topic| image.topics().by_name(topic)).collect();
        let mut measured = MeasuredMirror::new(name, topics.len(), manager.tasks(name));
        for topic in topics {
            let binding = image.bindings().of(&topic.name);
            let is_stopped = binding.is_some_and(|binding| binding.desired == DesiredState::Stopped);
            let partitions: Vec<_> = topic
                .partitions
                .iter()
                .filter(|(_, partition)| partition.leader == node.broker_id())
                .map(|(index, _)| TopicIdPartition { topic_id: topic.id, partition: *index })
                .collect();
            for some in partitions.chunks(limits::MIRROR_PARTITIONS_MEASURED_AT_ONCE) {
                for (partition, standing) in some.iter().zip(manager.offsets(name, some)) {
                    match standing {
                        Some(standing) => {
                            measured.add(&topic.name, partition.partition.0, &standing, each);
                        }
                        None if is_stopped => measured.add_stopped(),
                        None => {}
                    }
                }
            }
        }
        measured
    };
    image.mirrors().map(|mirror| measure(mirror.name)).collect()
}
