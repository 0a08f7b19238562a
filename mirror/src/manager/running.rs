//! A manager at work: one task that takes what has happened, brings its mirrors up to date, and begins whatever
//! can be begun.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_lite::future;
use tarn_image::MetadataImage;
use tarn_record::{TopicId, TopicIdPartition};
use tarn_runtime::sleep;

use super::assigning::Crew;
use super::changes::Noted;
use super::cores::MirrorCores;
use super::mirror::{Context, Mirror};
use super::shared::{Event, Life, NodeLimits, Shared};
use crate::fetch::budget::FetchBudget;
use crate::limits;
use crate::local_cluster::LocalCluster;
use crate::partition::Bound;

/// How long a stop waits for lanes to end.
const STOP_WITHIN_MS: u64 = 5_000;
/// The longest the task sleeps without a reason.
const LOOK_AGAIN_MS: u64 = 10_000;

/// A manager at work.
pub(super) struct Running<C: LocalCluster, M: MirrorCores<C>> {
    pub(super) cluster: C,
    pub(super) cores: Rc<M>,
    pub(super) shared: Arc<Shared>,
    pub(super) limits: NodeLimits,
    pub(super) budget: Arc<FetchBudget>,
    pub(super) image: Arc<MetadataImage>,
    pub(super) mirrors: BTreeMap<Arc<str>, Mirror>,
    /// Which mirror holds the partitions of a topic.
    pub(super) homes: BTreeMap<TopicId, Arc<str>>,
    /// Numbers lives, lanes and assignments.
    pub(super) next_number: u64,
}

impl<C: LocalCluster, M: MirrorCores<C>> Running<C, M> {
    /// Runs until the handle says stop, and until all lanes have ended.
    pub(super) async fn run(&mut self) {
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
        | Event::Completed { mirror: life, .. }
        | Event::Lane { mirror: life, .. }) = &event;
        let Some(mirror) = self.mirrors.get_mut(&life.mirror).filter(|mirror| mirror.life == *life) else {
            return;
        };
        let mut context =
            Context { shared: &self.shared, image: &self.image, retry: &self.limits.retry, now_ms };
        match event {
            Event::Worked { work, outcomes, .. } => mirror.worked(work, outcomes, &mut context),
            Event::Refreshed { result, .. } => mirror.refreshed(result, &self.cluster, &mut context),
            Event::Synced { synced, .. } => mirror.synced(synced, &mut context),
            Event::Completed { results, .. } => mirror.completed(results, &mut context),
            Event::Lane { lane, report, .. } => mirror.lane_reports(lane, report, &mut context),
        }
    }

    /// Begins whatever can be begun, and says when to look again.
    fn work(&mut self, now_ms: u64) -> u64 {
        let mut next_ms = now_ms + LOOK_AGAIN_MS;
        for mirror in self.mirrors.values_mut() {
            let mut context =
                Context { shared: &self.shared, image: &self.image, retry: &self.limits.retry, now_ms };
            mirror.times_up(&mut context);
            let crew = Crew { cores: &self.cores, budget: &self.budget, limits: &self.limits };
            mirror.assign(&crew, &mut self.next_number, &mut context);
            mirror.begin_work(&self.cluster, &self.limits, &self.budget, &context);
            mirror.begin_completing(&self.cluster, &context);
            mirror.news.say(now_ms, &mirror.life.mirror, mirror.partitions.len());
            mirror.begin_refresh(&self.cluster, &self.limits, &context);
            next_ms = next_ms.min(mirror.look_again_ms(&context));
        }
        next_ms
    }

    /// Looks at what has changed in the metadata.
    fn take_changes(&mut self) {
        let Noted { image, topics, mirrors, everything, .. } = self.shared.changes.take();
        let Some(image) = image else { return };
        self.image = image.clone();
        let (mut topics, mut mirrors) = (topics, mirrors);
        if everything {
            mirrors.extend(image.mirrors().map(|mirror| Arc::from(mirror.name)));
            topics.extend(image.bindings().iter().filter_map(|(name, _)| image.topics().id_of(name)));
        }
        for name in mirrors {
            if self.mirror_changed(&name) {
                topics.extend(
                    image.bindings().topics_of(&name).filter_map(|topic| image.topics().id_of(topic)),
                );
            }
        }
        for topic in topics {
            self.topic_changed(topic);
        }
    }

    /// A mirror is new, changed or gone. True where its topics must be looked at again.
    fn mirror_changed(&mut self, name: &Arc<str>) -> bool {
        let image = self.image.clone();
        let Some(wanted) = image.mirror(name) else {
            if self.mirrors.contains_key(name) {
                tracing::info!(mirror = %name, "a mirror has been deleted");
            }
            self.drop_mirror(name);
            return false;
        };
        if let Some(known) = self.mirrors.get_mut(name)
            && known.reconfigure(wanted.configs)
        {
            return false;
        }
        self.drop_mirror(name);
        self.next_number += 1;
        let life = Life { mirror: name.clone(), number: self.next_number };
        let own_cluster_id = self.cluster.cluster_id();
        let mirror = match Mirror::new(life.clone(), wanted.configs, own_cluster_id.clone(), &self.shared) {
            Ok(mirror) => {
                mirror.say_filters("a mirror begins");
                self.shared.board.begin(name, limits::silent_after(&mirror.config));
                mirror
            }
            Err(error) => {
                tracing::error!(mirror = %name, %error, "the mirror's configuration cannot be used");
                self.shared.board.cannot_begin(name, &error.to_string());
                Mirror::unusable(life, wanted.configs, own_cluster_id, &self.shared)
            }
        };
        self.mirrors.insert(name.clone(), mirror);
        true
    }

    fn drop_mirror(&mut self, name: &Arc<str>) {
        self.shared.board.end(name);
        let Some(mut mirror) = self.mirrors.remove(name) else { return };
        mirror.stop_lanes();
        mirror.close_gates(&self.cluster);
        self.homes.retain(|_, home| home != name);
    }

    /// A topic is new, changed or gone: which of its partitions are mirrored here, and by which mirror?
    fn topic_changed(&mut self, id: TopicId) {
        let image = self.image.clone();
        let topic = image.topics().by_id(id);
        let binding =
            topic.and_then(|topic| image.bindings().of(&topic.name)).filter(|found| found.is_active());
        let before = self.homes.get(&id).cloned();
        let now = binding.map(|binding| binding.mirror.clone());
        if let Some(old) = before.filter(|old| now.as_ref() != Some(old)) {
            self.homes.remove(&id);
            if let Some(mirror) = self.mirrors.get_mut(&old) {
                mirror.unbind_topic(id, &self.cluster, &self.shared.board);
            }
        }
        let (Some(topic), Some(binding)) = (topic, binding) else { return };
        let Some(mirror) = self.mirrors.get_mut(&binding.mirror) else { return };
        self.homes.insert(id, binding.mirror.clone());
        mirror.completing.bound(id, binding);
        let mut context = Context {
            shared: &self.shared,
            image: &image,
            retry: &self.limits.retry,
            now_ms: self.shared.clock.now_ms(),
        };
        let us = self.cluster.broker_id();
        for (&partition, registration) in &topic.partitions {
            let partition = TopicIdPartition { topic_id: id, partition };
            if registration.leader == us {
                let bound = Bound {
                    desired: binding.desired,
                    version: binding.version,
                    leader_epoch: registration.leader_epoch,
                    truncation: binding.truncation,
                };
                self.next_number += 1;
                mirror.bind(partition, &topic.name, bound, self.next_number, &mut context);
            } else {
                mirror.unbind(partition, &self.cluster, &self.shared.board);
            }
        }
    }
}
