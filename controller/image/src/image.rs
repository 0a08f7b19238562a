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
    /// A change of a partition whose epochs are the highest there are, which no cluster comes to.
    #[error("topic {id} partition {partition} has epoch {epoch}, after which there is none")]
    NoNextEpoch {
        /// The topic.
        id: TopicId,
        /// The partition.
        partition: PartitionIndex,
        /// Its leader epoch or partition epoch.
        epoch: i32,
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
                delta
                    .partitions_changed
                    .insert((TopicId(record.topic_id), PartitionIndex(record.partition_id)));
            }
            MetadataRecord::PartitionChange(record) => {
                self.topics.change_partition(record)?;
                delta
                    .partitions_changed
                    .insert((TopicId(record.topic_id), PartitionIndex(record.partition_id)));
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

    fn apply_to_broker(
        &mut self,
        record: &MetadataRecord,
        delta: &mut MetadataDelta,
    ) -> Result<(), ReplayError> {
        let id = match record {
            MetadataRecord::RegisterBroker(record) => self.registrations.register(record),
            MetadataRecord::UnregisterBroker(record) => {
                self.registrations.unregister(BrokerId(record.broker_id), record.broker_epoch)?;
                BrokerId(record.broker_id)
            }
            MetadataRecord::FenceBroker(record) => {
                self.registrations.fence(BrokerId(record.id), record.epoch)?;
                BrokerId(record.id)
            }
            MetadataRecord::UnfenceBroker(record) => {
                self.registrations.unfence(BrokerId(record.id), record.epoch)?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tarn_wire::messages::*;
    use uuid::Uuid;

    use super::*;
    use crate::mirrors::DesiredState;

    #[test]
    fn a_deleted_topic_takes_its_configs_and_binding_along() {
        let mut image = MetadataImage::default();
        let id = Uuid::from_u128(7);
        let mut delta = MetadataDelta::default();
        for record in [
            TopicRecord { name: "t".into(), topic_id: id }.into(),
            config(2, "t", "mirror.name", Some("m")),
            config(2, "t", "mirror.desired.state", Some("mirroring:4")),
        ] {
            image.apply(&record, &mut delta).unwrap();
        }
        assert_eq!(
            image.bindings().of("t").map(|binding| (binding.desired, binding.version)),
            Some((DesiredState::Mirroring, 4))
        );
        assert_eq!(image.bindings().topics_of("m").map(|name| &**name).collect::<Vec<_>>(), ["t"]);
        assert!(delta.bindings_changed.contains("t"));

        let mut delta = MetadataDelta::default();
        image.apply(&RemoveTopicRecord { topic_id: id }.into(), &mut delta).unwrap();
        assert_eq!(image, MetadataImage::default());
        assert_eq!(delta.topics_deleted.get(&TopicId(id)).map(|name| &**name), Some("t"));
        assert!(delta.bindings_changed.contains("t"));
    }

    #[test]
    fn a_topic_made_and_deleted_in_one_batch_is_no_change_of_topics() {
        let mut image = MetadataImage::default();
        let mut delta = MetadataDelta::default();
        let id = Uuid::from_u128(7);
        image.apply(&TopicRecord { name: "t".into(), topic_id: id }.into(), &mut delta).unwrap();
        image.apply(&partition(id, 0), &mut delta).unwrap();
        image.apply(&RemoveTopicRecord { topic_id: id }.into(), &mut delta).unwrap();
        assert!(delta.is_empty());
    }

    #[test]
    fn a_change_for_an_earlier_life_of_a_broker_is_refused() {
        let mut image = MetadataImage::default();
        let mut delta = MetadataDelta::default();
        image.apply(&broker(1, 10), &mut delta).unwrap();
        let late = BrokerRegistrationChangeRecord {
            broker_id: 1,
            broker_epoch: 9,
            fenced: -1,
            ..Default::default()
        };
        assert_eq!(
            image.apply(&late.into(), &mut delta),
            Err(ReplayError::BrokerEpoch { id: BrokerId(1), epoch: 9, current: 10 })
        );
    }

    proptest! {
        /// A snapshot says all there is to say.
        #[test]
        fn a_snapshot_gives_the_image_it_was_taken_of(records in prop::collection::vec(any_record(), 0..60)) {
            let mut image = MetadataImage::default();
            for record in &records {
                let mut copy = image.clone();
                if copy.apply(record, &mut MetadataDelta::default()).is_ok() {
                    image = copy;
                }
            }
            let mut again = MetadataImage::default();
            for record in image.to_records() {
                let bytes = record.encode(record.latest_version()).expect("a snapshot's records can be written");
                let read = MetadataRecord::decode(bytes).expect("and read");
                again.apply(&read, &mut MetadataDelta::default()).expect("and applied");
            }
            prop_assert_eq!(again, image);
        }

        /// A delta names every partition that differs.
        #[test]
        fn a_delta_names_what_differs(records in prop::collection::vec(any_record(), 0..60), cut in 0usize..60) {
            let mut image = MetadataImage::default();
            let mut before = image.clone();
            let mut delta = MetadataDelta::default();
            for (at, record) in records.iter().enumerate() {
                if at == cut {
                    before = image.clone();
                    delta = MetadataDelta::default();
                }
                let (mut copy, mut noted) = (image.clone(), delta.clone());
                if copy.apply(record, &mut noted).is_ok() {
                    (image, delta) = (copy, noted);
                }
            }
            for topic in image.topics().iter() {
                for (index, partition) in &topic.partitions {
                    let same = before.topics().partition(topic.id, *index) == Some(partition);
                    prop_assert!(same || delta.partitions_changed.contains(&(topic.id, *index)));
                }
                let name: &Arc<str> = &topic.name;
                let same = before.bindings().of(name) == image.bindings().of(name);
                prop_assert!(same || delta.bindings_changed.contains(name));
            }
            for topic in before.topics().iter().filter(|topic| image.topics().by_id(topic.id).is_none()) {
                prop_assert!(delta.topics_deleted.contains_key(&topic.id));
            }
        }
    }

    fn any_record() -> impl Strategy<Value = MetadataRecord> {
        let id = (1u128..5).prop_map(Uuid::from_u128);
        let index = 0i32..3;
        prop_oneof![
            ("[ab]", id.clone()).prop_map(|(name, topic_id)| TopicRecord {
                name: name.as_str().into(),
                topic_id
            }
            .into()),
            (id.clone(), index.clone()).prop_map(|(id, index)| partition(id, index)),
            (id.clone(), index, -2i32..3, prop::option::of(prop::collection::vec(1i32..4, 1..3))).prop_map(
                |(topic_id, partition_id, leader, isr)| {
                    PartitionChangeRecord { topic_id, partition_id, leader, isr, ..Default::default() }.into()
                }
            ),
            id.prop_map(|topic_id| RemoveTopicRecord { topic_id }.into()),
            (prop::sample::select(vec![2i8, 4, 64]), "[ab]", prop::option::of("[a-z]{1,3}"))
                .prop_map(|(kind, name, value)| config(kind, &name, "k", value.as_deref())),
            ("[ab]", prop::sample::select(vec![Some("m"), Some("n"), None]))
                .prop_map(|(topic, mirror)| config(2, &topic, "mirror.name", mirror)),
            ("[ab]", prop::sample::select(vec![Some("mirroring:1"), Some("stopped:2"), Some("odd"), None]))
                .prop_map(|(topic, state)| config(2, &topic, "mirror.desired.state", state)),
            (1i32..3, 0i64..3).prop_map(|(id, epoch)| broker(id, epoch)),
            (1i32..3, 0i64..3, -1i8..2).prop_map(|(broker_id, broker_epoch, fenced)| {
                BrokerRegistrationChangeRecord { broker_id, broker_epoch, fenced, ..Default::default() }
                    .into()
            }),
            ("[fg]", 0i16..3).prop_map(|(name, feature_level)| FeatureLevelRecord {
                name: name.as_str().into(),
                feature_level
            }
            .into()),
            (0i64..9).prop_map(|next_producer_id| ProducerIdsRecord {
                next_producer_id,
                ..Default::default()
            }
            .into()),
            (1u128..4).prop_map(|id| AccessControlEntryRecord {
                id: Uuid::from_u128(id),
                ..Default::default()
            }
            .into()),
            (1u128..4).prop_map(|id| RemoveAccessControlEntryRecord { id: Uuid::from_u128(id) }.into()),
            any::<bool>().prop_map(|remove| ClientQuotaRecord {
                key: "q".into(),
                remove,
                ..Default::default()
            }
            .into()),
        ]
    }

    fn partition(topic_id: Uuid, partition_id: i32) -> MetadataRecord {
        PartitionRecord {
            topic_id,
            partition_id,
            replicas: vec![1, 2],
            isr: vec![1, 2],
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![Uuid::from_u128(100), Uuid::from_u128(101)],
            ..PartitionRecord::default()
        }
        .into()
    }

    fn broker(broker_id: i32, broker_epoch: i64) -> MetadataRecord {
        RegisterBrokerRecord { broker_id, broker_epoch, rack: None, ..RegisterBrokerRecord::default() }.into()
    }

    fn config(resource_type: i8, resource_name: &str, name: &str, value: Option<&str>) -> MetadataRecord {
        ConfigRecord {
            resource_type,
            resource_name: resource_name.into(),
            name: name.into(),
            value: value.map(Into::into),
        }
        .into()
    }
}
