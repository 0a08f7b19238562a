//! What a batch of records changed, so that cores need not compare whole images.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_record::ids::{BrokerId, PartitionIndex, TopicId};

use crate::configs::{ConfigResource, ResourceType};

/// The things that changed between two images; what they became is in the newer image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataDelta {
    /// Topics that are new, with their names.
    pub topics_created: BTreeMap<TopicId, Arc<str>>,
    /// Topics that are gone, with their names.
    pub topics_deleted: BTreeMap<TopicId, Arc<str>>,
    /// Partitions that are new or changed, those of new topics included; of deleted topics, none.
    pub partitions_changed: BTreeSet<(TopicId, PartitionIndex)>,
    /// Resources whose configs changed.
    pub configs_changed: BTreeSet<ConfigResource>,
    /// Topics whose place in a mirror changed.
    pub bindings_changed: BTreeSet<Arc<str>>,
    /// Brokers that registered, changed or left.
    pub brokers_changed: BTreeSet<BrokerId>,
    /// Controllers registered or left.
    pub controllers_changed: bool,
    /// A feature's level changed.
    pub features_changed: bool,
    /// Producer ids were handed out.
    pub producer_ids_changed: bool,
    /// Quotas, access control entries, credentials or tokens changed.
    pub carried_changed: bool,
}

impl MetadataDelta {
    /// True where nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == MetadataDelta::default()
    }

    /// Mirrors whose own configs changed.
    pub fn mirrors_changed(&self) -> impl Iterator<Item = &Arc<str>> {
        crate::mirrors::touched(&self.configs_changed)
    }

    /// Topics whose configs changed.
    pub fn topic_configs_changed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.configs_changed
            .iter()
            .filter(|resource| resource.kind == ResourceType::TOPIC)
            .map(|resource| &resource.name)
    }

    /// True where the configs of broker `name` changed, or the default of all brokers: what a topic does not
    /// set itself falls back to them.
    pub fn broker_configs_changed(&self, name: &str) -> bool {
        let [own, default] = [name, ""].map(ConfigResource::broker);
        self.configs_changed.contains(&own) || self.configs_changed.contains(&default)
    }

    pub(crate) fn topic_deleted(&mut self, id: TopicId, name: Arc<str>) {
        self.partitions_changed.retain(|(topic, _)| *topic != id);
        if self.topics_created.remove(&id).is_none() {
            self.topics_deleted.insert(id, name);
        }
    }
}
