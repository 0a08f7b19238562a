//! Changed metadata, gathered until the manager looks; and what they mean for its mirrors.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tarn_image::{MetadataDelta, MetadataImage};
use tarn_record::{TopicId, TopicIdPartition};

use super::mirror::{Context, Mirror};
use super::{Life, MirrorCores, Running};
use crate::local_cluster::LocalCluster;
use crate::partition::Bound;

/// What has changed since the manager last looked.
#[derive(Debug, Default)]
pub(super) struct Changes {
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    image: Option<Arc<MetadataImage>>,
    topics: BTreeSet<TopicId>,
    mirrors: BTreeSet<Arc<str>>,
    /// False until the manager has seen a first image as a whole.
    has_begun: bool,
    everything: bool,
}

impl Changes {
    /// Notes what a batch of records changed.
    pub(super) fn note(&self, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !noted.has_begun {
            noted.has_begun = true;
            noted.everything = true;
        }
        let bound = delta.bindings_changed.iter().filter_map(|name| image.topics().id_of(name));
        noted.topics.extend(bound);
        noted.topics.extend(delta.partitions_changed.iter().map(|(topic, _)| *topic));
        noted.topics.extend(delta.topics_deleted.keys());
        noted.mirrors.extend(delta.mirrors_changed().cloned());
        noted.image = Some(image);
    }

    fn take(&self) -> Noted {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let has_begun = noted.has_begun;
        let taken = std::mem::take(&mut *noted);
        noted.has_begun = has_begun;
        taken
    }
}

impl<C: LocalCluster, M: MirrorCores<C>> Running<C, M> {
    /// Looks at what has changed in the metadata.
    pub(super) fn take_changes(&mut self) {
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
        match Mirror::new(life, wanted.configs, own_cluster_id, self.shared.clock.now_ms()) {
            Ok(mirror) => {
                self.shared.board.begin(name);
                self.mirrors.insert(name.clone(), mirror);
                true
            }
            Err(error) => {
                tracing::error!(mirror = %name, %error, "the mirror's configuration cannot be used");
                false
            }
        }
    }

    fn drop_mirror(&mut self, name: &Arc<str>) {
        let Some(mut mirror) = self.mirrors.remove(name) else { return };
        mirror.stop_lanes();
        mirror.close_gates(&self.cluster);
        self.homes.retain(|_, home| home != name);
        self.shared.board.end(name);
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
                };
                self.next_number += 1;
                mirror.bind(partition, &topic.name, bound, self.next_number, &mut context);
            } else {
                mirror.unbind(partition, &self.cluster, &self.shared.board);
            }
        }
    }
}
