//! All metadata of the cluster at one offset of the metadata log.
//!
//! Readers hold it as `Arc<MetadataImage>` and never change it; the controller clones it (persistent maps,
//! so a clone copies nothing) and applies the records of one batch. `to_records` is the snapshot: applied to
//! an empty image it gives the same one.

use tarn_record::ids::{BrokerId, Epoch, Offset, PartitionIndex, Timestamp, TopicId};
use tarn_wire::messages::ProducerIdsRecord;
use tarn_wire::metadata::MetadataRecord;
use thiserror::Error;

use crate::brokers::Registrations;
use crate::carried::Carried;
use crate::configs::{ConfigResource, Configs, ResourceType};
use crate::delta::MetadataDelta;
use crate::features::Features;
use crate::mirrors::{self, Bindings, MIRROR_DESIRED_STATE, MIRROR_NAME, MirrorImage};
use crate::topics::Topics;

/// Where in the metadata log an image stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The offset of the last record it contains; -1 for the empty image.
    pub offset: Offset,
    /// That record's epoch.
    pub epoch: Epoch,
    /// The time of the batch that it came in.
    pub timestamp: Timestamp,
}

impl Default for Provenance {
    fn default() -> Provenance {
        Provenance { offset: Offset::NONE, epoch: Epoch::NONE, timestamp: Timestamp::NONE }
    }
}

/// The metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataImage {
    provenance: Provenance,
    features: Features,
    registrations: Registrations,
    topics: Topics,
    configs: Configs,
    bindings: Bindings,
    next_producer_id: Option<ProducerIds>,
    carried: Carried,
}

/// The newest block of producer ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIds {
    /// The broker that got it.
    pub broker: BrokerId,
    /// That broker's epoch.
    pub broker_epoch: i64,
    /// The first id that is still free.
    pub next: i64,
}

/// A record that contradicts the image. Whoever meets one has a log that is not Kafka's or a bug.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    /// A second topic of a name or id.
    #[error("topic {name} with id {id} exists")]
    TopicExists {
        /// The name.
        name: String,
        /// The id.
        id: TopicId,
    },
    /// A change to a topic that there is not.
    #[error("there is no topic with id {id}")]
    UnknownTopicId {
        /// The id.
        id: TopicId,
    },
    /// A change to a partition that there is not.
    #[error("topic {id} has no partition {partition}")]
    UnknownPartition {
        /// The topic.
        id: TopicId,
        /// The partition.
        partition: PartitionIndex,
    },
    /// A change to a broker that there is not.
    #[error("broker {id} is not registered")]
    UnknownBroker {
        /// The broker.
        id: BrokerId,
    },
    /// A change to an earlier life of a broker.
    #[error("broker {id} is registered with epoch {current}, not {epoch}")]
    BrokerEpoch {
        /// The broker.
        id: BrokerId,
        /// The epoch in the record.
        epoch: i64,
        /// The epoch registered.
        current: i64,
    },
    /// A record of a kind that is not known.
    #[error("metadata records of kind {api_key} version {version} are not known")]
    UnknownRecord {
        /// The kind.
        api_key: i16,
        /// Its version.
        version: i16,
    },
}

impl MetadataImage {
    /// Where it stands in the log.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// Says where it stands, after the records up to there were applied.
    pub fn set_provenance(&mut self, provenance: Provenance) {
        self.provenance = provenance;
    }

    /// The finalized features.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Brokers and controllers.
    pub fn registrations(&self) -> &Registrations {
        &self.registrations
    }

    /// Topics and partitions.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Dynamic configurations.
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// Which topics belong to mirrors.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// The mirror called `name`.
    pub fn mirror(&self, name: &str) -> Option<MirrorImage<'_>> {
        mirrors::mirror(&self.configs, name)
    }

    /// All mirrors in the order of their names.
    pub fn mirrors(&self) -> impl Iterator<Item = MirrorImage<'_>> {
        mirrors::mirrors(&self.configs)
    }

    /// The newest block of producer ids, if any was handed out.
    pub fn producer_ids(&self) -> Option<ProducerIds> {
        self.next_producer_id
    }

    /// Applies one record and notes in `delta` what it changed.
    ///
    /// # Errors
    /// A record that contradicts the image; the image may then be used no more.
    pub fn apply(&mut self, record: &MetadataRecord, delta: &mut MetadataDelta) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::Topic(record) => {
                let (id, name) = self.topics.add(record)?;
                delta.topics_created.insert(id, name);
            }
            MetadataRecord::Partition(record) => {
                self.topics.put_partition(record)?;
                delta.partitions_changed.insert((TopicId(record.topic_id), PartitionIndex(record.partition_id)));
            }
            MetadataRecord::PartitionChange(record) => {
                self.topics.change_partition(record)?;
                delta.partitions_changed.insert((TopicId(record.topic_id), PartitionIndex(record.partition_id)));
            }
            MetadataRecord::RemoveTopic(record) => self.remove_topic(TopicId(record.topic_id), delta)?,
            MetadataRecord::ClearElr(record) => {
                delta.partitions_changed.extend(self.topics.clear_elr(&record.topic_name));
            }
            MetadataRecord::Config(record) => {
                let resource = self.configs.put(record);
                self.config_changed(resource, Some(&record.name), delta);
            }
            MetadataRecord::FeatureLevel(record) => {
                self.features.put(record);
                delta.features_changed = true;
            }
            MetadataRecord::ProducerIds(record) => {
                self.next_producer_id = Some(ProducerIds {
                    broker: BrokerId(record.broker_id),
                    broker_epoch: record.broker_epoch,
                    next: record.next_producer_id,
                });
                delta.producer_ids_changed = true;
            }
            MetadataRecord::RegisterBroker(_)
            | MetadataRecord::UnregisterBroker(_)
            | MetadataRecord::FenceBroker(_)
            | MetadataRecord::UnfenceBroker(_)
            | MetadataRecord::BrokerRegistrationChange(_) => self.apply_to_broker(record, delta)?,
            MetadataRecord::RegisterController(record) => {
                self.registrations.register_controller(record);
                delta.controllers_changed = true;
            }
            MetadataRecord::UnregisterController(record) => {
                self.registrations.unregister_controller(BrokerId(record.controller_id));
                delta.controllers_changed = true;
            }
            MetadataRecord::NoOp(_)
            | MetadataRecord::ZkMigrationState(_)
            | MetadataRecord::BeginTransaction(_)
            | MetadataRecord::EndTransaction(_)
            | MetadataRecord::AbortTransaction(_) => {}
            MetadataRecord::Unknown { api_key, version, .. } => {
                return Err(ReplayError::UnknownRecord { api_key: *api_key, version: *version });
            }
            MetadataRecord::ClientQuota(_)
            | MetadataRecord::AccessControlEntry(_)
            | MetadataRecord::RemoveAccessControlEntry(_)
            | MetadataRecord::UserScramCredential(_)
            | MetadataRecord::RemoveUserScramCredential(_)
            | MetadataRecord::DelegationToken(_)
            | MetadataRecord::RemoveDelegationToken(_) => {
                delta.carried_changed |= self.carried.apply(record);
            }
        }
        Ok(())
    }

    /// The records that make this image out of an empty one, in the order of Kafka's snapshots.
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        self.features.to_records(&mut records);
        self.registrations.to_records(&mut records);
        self.topics.to_records(&mut records);
        self.configs.to_records(&mut records);
        records.extend(self.carried.quotas().cloned());
        records.extend(self.next_producer_id.map(|block| {
            ProducerIdsRecord {
                broker_id: block.broker.0,
                broker_epoch: block.broker_epoch,
                next_producer_id: block.next,
            }
            .into()
        }));
        records.extend(self.carried.after_producer_ids().cloned());
        records
    }

    fn remove_topic(&mut self, id: TopicId, delta: &mut MetadataDelta) -> Result<(), ReplayError> {
        let topic = self.topics.remove(id)?;
        delta.topic_deleted(id, topic.name.clone());
        let resource = ConfigResource::topic(&topic.name);
        if self.configs.remove(&resource).is_some() {
            self.config_changed(resource, None, delta);
        }
        Ok(())
    }

    /// Notes a changed config; `key` is `None` where all keys of the resource went.
    fn config_changed(&mut self, resource: ConfigResource, key: Option<&str>, delta: &mut MetadataDelta) {
        let binds = key.is_none_or(|key| key == MIRROR_NAME || key == MIRROR_DESIRED_STATE);
        if binds && resource.kind == ResourceType::TOPIC {
            let before = self.bindings.of(&resource.name).cloned();
            self.bindings.refresh(&resource.name, &self.configs);
            if self.bindings.of(&resource.name) != before.as_ref() {
                delta.bindings_changed.insert(resource.name.clone());
            }
        }
        delta.configs_changed.insert(resource);
    }

    fn apply_to_broker(&mut self, record: &MetadataRecord, delta: &mut MetadataDelta) -> Result<(), ReplayError> {
        let id = match record {
            MetadataRecord::RegisterBroker(record) => self.registrations.register(record),
            MetadataRecord::UnregisterBroker(record) => {
                self.registrations.unregister(BrokerId(record.broker_id), record.broker_epoch)?;
                BrokerId(record.broker_id)
            }
            MetadataRecord::FenceBroker(record) => {
                self.registrations.set_fenced(BrokerId(record.id), record.epoch, true)?;
                BrokerId(record.id)
            }
            MetadataRecord::UnfenceBroker(record) => {
                self.registrations.set_fenced(BrokerId(record.id), record.epoch, false)?;
                BrokerId(record.id)
            }
            MetadataRecord::BrokerRegistrationChange(record) => {
                self.registrations.change(record)?;
                BrokerId(record.broker_id)
            }
            _ => return Ok(()),
        };
        delta.brokers_changed.insert(id);
        Ok(())
    }
}
