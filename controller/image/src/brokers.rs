//! The nodes that are registered: brokers and controllers.
//!
//! A broker's epoch is the offset of its registration in the metadata log; a change that names another
//! epoch is meant for an earlier life of that broker and is refused.

use std::sync::Arc;

use imbl::OrdMap;
use tarn_record::ids::BrokerId;
use tarn_wire::messages::register_broker_record::{BrokerEndpoint, BrokerFeature};
use tarn_wire::messages::register_controller_record::{ControllerEndpoint, ControllerFeature};
use tarn_wire::messages::{BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord};
use tarn_wire::metadata::MetadataRecord;
use uuid::Uuid;

use crate::image::ReplayError;

/// Every registered broker and controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registrations {
    brokers: OrdMap<BrokerId, Arc<BrokerRegistration>>,
    controllers: OrdMap<BrokerId, Arc<ControllerRegistration>>,
}

/// A broker as it registered, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerRegistration {
    /// Its node id.
    pub id: BrokerId,
    /// The offset of its registration.
    pub epoch: i64,
    /// Drawn by the broker at each start.
    pub incarnation: Uuid,
    /// Where it listens.
    pub endpoints: Vec<Endpoint>,
    /// The features it supports, with their lowest and highest level.
    pub features: Vec<(String, i16, i16)>,
    /// Its rack.
    pub rack: Option<String>,
    /// True while it may not lead.
    pub fenced: bool,
    /// True while it hands its leaderships over.
    pub in_controlled_shutdown: bool,
    /// The ids of its log directories.
    pub log_dirs: Vec<Uuid>,
    /// Those that take no new replicas, if it knows of that at all.
    pub cordoned_log_dirs: Option<Vec<Uuid>>,
}

/// A controller as it registered.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerRegistration {
    /// Its node id.
    pub id: BrokerId,
    /// Drawn by the controller at each start.
    pub incarnation: Uuid,
    /// Where it listens.
    pub endpoints: Vec<Endpoint>,
    /// The features it supports, with their lowest and highest level.
    pub features: Vec<(String, i16, i16)>,
}

/// One address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name.
    pub listener: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Kafka's number of the security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

impl Registrations {
    /// The broker with this id, fenced or not.
    pub fn broker(&self, id: BrokerId) -> Option<&Arc<BrokerRegistration>> {
        self.brokers.get(&id)
    }

    /// All brokers in the order of their ids.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<BrokerRegistration>> {
        self.brokers.values()
    }

    /// How many brokers are registered.
    pub fn broker_count(&self) -> usize {
        self.brokers.len()
    }

    /// True where `id` is registered and may lead.
    pub fn is_active(&self, id: BrokerId) -> bool {
        self.broker(id).is_some_and(|broker| broker.is_active())
    }

    /// All controllers in the order of their ids.
    pub fn controllers(&self) -> impl Iterator<Item = &Arc<ControllerRegistration>> {
        self.controllers.values()
    }

    pub(crate) fn register(&mut self, record: &RegisterBrokerRecord) -> BrokerId {
        let broker = BrokerRegistration::from_record(record);
        let id = broker.id;
        self.brokers.insert(id, Arc::new(broker));
        id
    }

    pub(crate) fn unregister(&mut self, id: BrokerId, epoch: i64) -> Result<(), ReplayError> {
        self.current(id, epoch)?;
        self.brokers.remove(&id);
        Ok(())
    }

    pub(crate) fn fence(&mut self, id: BrokerId, epoch: i64) -> Result<(), ReplayError> {
        self.current(id, epoch)?.fenced = true;
        Ok(())
    }

    pub(crate) fn unfence(&mut self, id: BrokerId, epoch: i64) -> Result<(), ReplayError> {
        self.current(id, epoch)?.fenced = false;
        Ok(())
    }

    pub(crate) fn change(&mut self, record: &BrokerRegistrationChangeRecord) -> Result<(), ReplayError> {
        let broker = self.current(BrokerId(record.broker_id), record.broker_epoch)?;
        match record.fenced {
            0 => {}
            fenced => broker.fenced = fenced > 0,
        }
        if record.in_controlled_shutdown != 0 {
            broker.in_controlled_shutdown = true;
        }
        if !record.log_dirs.is_empty() {
            broker.log_dirs = record.log_dirs.clone();
        }
        if let Some(cordoned) = &record.cordoned_log_dirs {
            broker.cordoned_log_dirs = Some(cordoned.clone());
        }
        Ok(())
    }

    pub(crate) fn register_controller(&mut self, record: &RegisterControllerRecord) {
        let controller = ControllerRegistration::from_record(record);
        self.controllers.insert(controller.id, Arc::new(controller));
    }

    pub(crate) fn unregister_controller(&mut self, id: BrokerId) {
        self.controllers.remove(&id);
    }

    fn current(&mut self, id: BrokerId, epoch: i64) -> Result<&mut BrokerRegistration, ReplayError> {
        let broker = self.brokers.get_mut(&id).ok_or(ReplayError::UnknownBroker { id })?;
        if broker.epoch != epoch {
            return Err(ReplayError::BrokerEpoch { id, epoch, current: broker.epoch });
        }
        Ok(Arc::make_mut(broker))
    }

    pub(crate) fn to_records(&self, records: &mut Vec<MetadataRecord>) {
        records.extend(self.brokers.values().map(|broker| broker.to_record().into()));
        records.extend(self.controllers.values().map(|controller| controller.to_record().into()));
    }
}

impl BrokerRegistration {
    /// True where it may lead: neither fenced nor on its way out.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Its address on `listener`.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.listener == listener)
    }

    /// The levels of `feature` that it supports.
    pub fn supports(&self, feature: &str) -> Option<(i16, i16)> {
        self.features.iter().find(|(name, ..)| name == feature).map(|(_, min, max)| (*min, *max))
    }

    /// Where a new replica goes: its only directory, or the broker's own choice.
    pub fn default_directory(&self) -> Uuid {
        match self.log_dirs.as_slice() {
            [only] => *only,
            _ => crate::topics::DIRECTORY_UNASSIGNED,
        }
    }

    /// The record that registers it as it is.
    pub fn to_record(&self) -> RegisterBrokerRecord {
        RegisterBrokerRecord {
            broker_id: self.id.0,
            is_migrating_zk_broker: false,
            incarnation_id: self.incarnation,
            broker_epoch: self.epoch,
            end_points: self
                .endpoints
                .iter()
                .map(|endpoint| BrokerEndpoint {
                    name: endpoint.listener.as_str().into(),
                    host: endpoint.host.as_str().into(),
                    port: endpoint.port,
                    security_protocol: endpoint.security_protocol,
                })
                .collect(),
            features: self
                .features
                .iter()
                .map(|(name, min, max)| BrokerFeature {
                    name: name.as_str().into(),
                    min_supported_version: *min,
                    max_supported_version: *max,
                })
                .collect(),
            rack: self.rack.as_deref().map(Into::into),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: self.log_dirs.clone(),
            cordoned_log_dirs: self.cordoned_log_dirs.clone(),
        }
    }

    fn from_record(record: &RegisterBrokerRecord) -> BrokerRegistration {
        BrokerRegistration {
            id: BrokerId(record.broker_id),
            epoch: record.broker_epoch,
            incarnation: record.incarnation_id,
            endpoints: record
                .end_points
                .iter()
                .map(|endpoint| Endpoint {
                    listener: endpoint.name.to_string(),
                    host: endpoint.host.to_string(),
                    port: endpoint.port,
                    security_protocol: endpoint.security_protocol,
                })
                .collect(),
            features: record
                .features
                .iter()
                .map(|feature| {
                    (feature.name.to_string(), feature.min_supported_version, feature.max_supported_version)
                })
                .collect(),
            rack: record.rack.as_ref().map(|rack| rack.to_string()),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            log_dirs: record.log_dirs.clone(),
            cordoned_log_dirs: record.cordoned_log_dirs.clone(),
        }
    }
}

impl ControllerRegistration {
    fn to_record(&self) -> RegisterControllerRecord {
        RegisterControllerRecord {
            controller_id: self.id.0,
            incarnation_id: self.incarnation,
            zk_migration_ready: false,
            end_points: self
                .endpoints
                .iter()
                .map(|endpoint| ControllerEndpoint {
                    name: endpoint.listener.as_str().into(),
                    host: endpoint.host.as_str().into(),
                    port: endpoint.port,
                    security_protocol: endpoint.security_protocol,
                })
                .collect(),
            features: self
                .features
                .iter()
                .map(|(name, min, max)| ControllerFeature {
                    name: name.as_str().into(),
                    min_supported_version: *min,
                    max_supported_version: *max,
                })
                .collect(),
        }
    }

    fn from_record(record: &RegisterControllerRecord) -> ControllerRegistration {
        ControllerRegistration {
            id: BrokerId(record.controller_id),
            incarnation: record.incarnation_id,
            endpoints: record
                .end_points
                .iter()
                .map(|endpoint| Endpoint {
                    listener: endpoint.name.to_string(),
                    host: endpoint.host.to_string(),
                    port: endpoint.port,
                    security_protocol: endpoint.security_protocol,
                })
                .collect(),
            features: record
                .features
                .iter()
                .map(|feature| {
                    (feature.name.to_string(), feature.min_supported_version, feature.max_supported_version)
                })
                .collect(),
        }
    }
}
