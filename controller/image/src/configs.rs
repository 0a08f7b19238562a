//! What was set dynamically, for topics, brokers, mirrors and the like: resource to key to value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use tarn_wire::messages::ConfigRecord;
use tarn_wire::metadata::MetadataRecord;

/// The kind of thing that a configuration belongs to, with the numbers of the protocol. A kind that Tarn
/// does not know is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceType(pub i8);

impl ResourceType {
    /// A topic.
    pub const TOPIC: ResourceType = ResourceType(2);
    /// A broker; the empty name stands for all brokers.
    pub const BROKER: ResourceType = ResourceType(4);
    /// A broker's loggers.
    pub const BROKER_LOGGER: ResourceType = ResourceType(8);
    /// A subscription for client metrics.
    pub const CLIENT_METRICS: ResourceType = ResourceType(16);
    /// A group.
    pub const GROUP: ResourceType = ResourceType(32);
    /// A cluster mirror (KIP-1279).
    pub const CLUSTER_MIRROR: ResourceType = ResourceType(64);
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ResourceType::TOPIC => f.write_str("TOPIC"),
            ResourceType::BROKER => f.write_str("BROKER"),
            ResourceType::BROKER_LOGGER => f.write_str("BROKER_LOGGER"),
            ResourceType::CLIENT_METRICS => f.write_str("CLIENT_METRICS"),
            ResourceType::GROUP => f.write_str("GROUP"),
            ResourceType::CLUSTER_MIRROR => f.write_str("CLUSTER_MIRROR"),
            ResourceType(other) => write!(f, "type {other}"),
        }
    }
}

/// A thing that has a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// Its kind.
    pub kind: ResourceType,
    /// Its name.
    pub name: Arc<str>,
}

impl ConfigResource {
    /// The topic called `name`.
    pub fn topic(name: &str) -> ConfigResource {
        ConfigResource { kind: ResourceType::TOPIC, name: Arc::from(name) }
    }

    /// The mirror called `name`.
    pub fn mirror(name: &str) -> ConfigResource {
        ConfigResource { kind: ResourceType::CLUSTER_MIRROR, name: Arc::from(name) }
    }

    /// The broker whose id is `name`, or all brokers where it is empty.
    pub fn broker(name: &str) -> ConfigResource {
        ConfigResource { kind: ResourceType::BROKER, name: Arc::from(name) }
    }
}

/// The keys set for one resource.
pub type ConfigMap = BTreeMap<Arc<str>, Arc<str>>;

/// Every dynamic configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configs {
    by_resource: OrdMap<ConfigResource, Arc<ConfigMap>>,
}

impl Configs {
    /// What is set for a resource; nothing where it has no key.
    pub fn of(&self, resource: &ConfigResource) -> &ConfigMap {
        static EMPTY: ConfigMap = ConfigMap::new();
        self.by_resource.get(resource).map_or(&EMPTY, |map| map)
    }

    /// What is set for the topic called `name`.
    pub fn topic(&self, name: &str) -> &ConfigMap {
        self.of(&ConfigResource::topic(name))
    }

    /// One value.
    pub fn value(&self, resource: &ConfigResource, key: &str) -> Option<&str> {
        self.of(resource).get(key).map(|value| &**value)
    }

    /// The resources of a kind that have keys, in the order of their names.
    pub fn resources(&self, kind: ResourceType) -> impl Iterator<Item = (&ConfigResource, &ConfigMap)> {
        let first = ConfigResource { kind, name: Arc::from("") };
        self.by_resource
            .range(first..)
            .take_while(move |(resource, _)| resource.kind == kind)
            .map(|(resource, map)| (resource, &**map))
    }

    pub(crate) fn put(&mut self, record: &ConfigRecord) -> ConfigResource {
        let resource = ConfigResource {
            kind: ResourceType(record.resource_type),
            name: Arc::from(&*record.resource_name),
        };
        match &record.value {
            Some(value) => {
                let map = self.by_resource.entry(resource.clone()).or_default();
                Arc::make_mut(map).insert(Arc::from(&*record.name), Arc::from(&**value));
            }
            None => self.remove_key(&resource, &record.name),
        }
        resource
    }

    pub(crate) fn remove(&mut self, resource: &ConfigResource) -> Option<Arc<ConfigMap>> {
        self.by_resource.remove(resource)
    }

    fn remove_key(&mut self, resource: &ConfigResource, key: &str) {
        let Some(map) = self.by_resource.get_mut(resource) else { return };
        Arc::make_mut(map).remove(key);
        if map.is_empty() {
            self.by_resource.remove(resource);
        }
    }

    pub(crate) fn to_records(&self, records: &mut Vec<MetadataRecord>) {
        for (resource, map) in &self.by_resource {
            records.extend(map.iter().map(|(key, value)| {
                ConfigRecord {
                    resource_type: resource.kind.0,
                    resource_name: (&*resource.name).into(),
                    name: (&**key).into(),
                    value: Some((&**value).into()),
                }
                .into()
            }));
        }
    }
}
