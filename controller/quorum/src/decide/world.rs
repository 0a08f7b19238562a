//! A controller's world for tests: an image, decisions applied as if committed at once.

use tarn_image::config::server::ServerConfig;
use tarn_image::features;
use tarn_image::mirrors::{Binding, Wanted};
use tarn_image::{MetadataDelta, MetadataImage, ResourceType};
use tarn_record::{BrokerId, Offset, TopicId};
use tarn_wire::messages::broker_registration_request::Listener;
use tarn_wire::messages::create_cluster_mirror_request::MirrorConfig;
use tarn_wire::messages::create_partitions_request::CreatePartitionsTopic;
use tarn_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use tarn_wire::messages::create_topics_request::CreatableTopic;
use tarn_wire::messages::create_topics_response::CreatableTopicResult;
use tarn_wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::*;
use tarn_wire::{ErrorCode, MetadataRecord};
use uuid::Uuid;

use super::partitions::Grower;
use super::*;

/// The id of the cluster in tests.
pub(crate) const CLUSTER: &str = "cluster-a";

pub(crate) struct World {
    pub(crate) image: MetadataImage,
    pub(crate) next_offset: Offset,
    config: ServerConfig,
    drawn: u128,
}

impl World {
    /// Brokers 1 to `count`, all active.
    pub(crate) fn with_brokers(count: i32) -> World {
        let text = "process.roles=broker,controller\nnode.id=1\nlog.dirs=/unused\n\
            controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
            listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n";
        let (config, _) = ServerConfig::parse(text).expect("the test's file is good");
        let mut world =
            World { image: MetadataImage::default(), next_offset: Offset(100), config, drawn: 1000 };
        for id in 1..=count {
            world.register(id, Uuid::from_u128(id.unsigned_abs().into()));
            world.heartbeat(id, false);
        }
        world
    }

    /// One broker, and topics with one partition each.
    pub(crate) fn with_topics(names: &[&str]) -> World {
        let mut world = World::with_brokers(1);
        for name in names {
            world.create_with(name, 1, 1);
        }
        world
    }

    pub(crate) fn apply<R>(&mut self, decision: Decision<R>) -> R {
        for record in decision.batches.iter().flatten() {
            self.image
                .apply(record, &mut MetadataDelta::default())
                .expect("a decision's records fit the image");
            self.next_offset = self.next_offset.plus(1);
        }
        decision.response
    }

    fn decide<R>(
        &mut self,
        decide: impl FnOnce(&MetadataImage, &mut Context<'_>) -> Decision<R>,
    ) -> Decision<R> {
        let drawn = &mut self.drawn;
        let mut new_id = || {
            *drawn += 1;
            TopicId(Uuid::from_u128(*drawn))
        };
        let mut context = Context {
            next_offset: self.next_offset,
            cluster_id: CLUSTER,
            config: &self.config,
            new_id: &mut new_id,
        };
        decide(&self.image, &mut context)
    }

    pub(crate) fn create_topics(&mut self, request: &CreateTopicsRequest) -> CreateTopicsResponse {
        let decision = self.decide(|image, context| create_topics::create_topics(image, request, context));
        self.apply(decision)
    }

    pub(crate) fn create(&mut self, topic: CreatableTopic) -> CreatableTopicResult {
        let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
        self.create_topics(&request).topics.remove(0)
    }

    pub(crate) fn create_with(&mut self, name: &str, num_partitions: i32, replication_factor: i16) {
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions,
            replication_factor,
            ..CreatableTopic::default()
        };
        assert_eq!(self.create(topic).error_code, 0);
    }

    pub(crate) fn delete(&mut self, request: &DeleteTopicsRequest) -> DeleteTopicsResponse {
        let decision = self.decide(|image, context| delete_topics::delete_topics(image, request, context));
        self.apply(decision)
    }

    pub(crate) fn grow(
        &mut self,
        topic: CreatePartitionsTopic,
        grower: Grower,
    ) -> CreatePartitionsTopicResult {
        let request = CreatePartitionsRequest { topics: vec![topic], ..CreatePartitionsRequest::default() };
        let decision = partitions::create_partitions(&self.image, &request, grower);
        self.apply(decision).results.remove(0)
    }

    pub(crate) fn alter(
        &mut self,
        kind: i8,
        name: &str,
        configs: &[(&str, i8, Option<&str>)],
    ) -> Result<(), ApiError> {
        let configs = configs
            .iter()
            .map(|(name, operation, value)| AlterableConfig {
                name: (*name).into(),
                config_operation: *operation,
                value: value.map(Into::into),
            })
            .collect();
        let resource = AlterConfigsResource { resource_type: kind, resource_name: name.into(), configs };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        let decision = alter_configs::alter_configs(&self.image, &request);
        let result = self.apply(decision).responses.remove(0);
        as_result(result.error_code, result.error_message)
    }

    /// Writes a binding as a mirror's commands do.
    pub(crate) fn bind(&mut self, topic: &str, mirror: &str, state: &str) {
        let record = |name: &str, value: &str| -> MetadataRecord {
            ConfigRecord {
                resource_type: ResourceType::TOPIC.0,
                resource_name: topic.into(),
                name: name.into(),
                value: Some(value.into()),
            }
            .into()
        };
        let records = vec![record("mirror.name", mirror), record("mirror.desired.state", state)];
        self.apply(Decision::of(records, ()));
    }

    pub(crate) fn registration(&self, id: i32, incarnation_id: Uuid) -> BrokerRegistrationRequest {
        BrokerRegistrationRequest {
            broker_id: id,
            cluster_id: CLUSTER.into(),
            incarnation_id,
            listeners: vec![Listener {
                name: "PLAINTEXT".into(),
                host: "h".into(),
                port: 9092,
                security_protocol: 0,
            }],
            features: features::to_register(),
            rack: None,
            log_dirs: vec![Uuid::from_u128(1000 + u128::from(id.unsigned_abs()))],
            ..BrokerRegistrationRequest::default()
        }
    }

    pub(crate) fn decide_registration(
        &mut self,
        request: &BrokerRegistrationRequest,
    ) -> BrokerRegistrationResponse {
        let decision = self.decide(|image, context| brokers::register(image, request, context));
        self.apply(decision)
    }

    pub(crate) fn register(&mut self, id: i32, incarnation: Uuid) -> BrokerRegistrationResponse {
        let request = self.registration(id, incarnation);
        self.decide_registration(&request)
    }

    pub(crate) fn heartbeat(&mut self, id: i32, want_shut_down: bool) -> BrokerHeartbeatResponse {
        let request = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: self.epoch_of(id),
            current_metadata_offset: self.next_offset.0,
            want_shut_down,
            ..BrokerHeartbeatRequest::default()
        };
        let decision = self.decide(|image, context| brokers::heartbeat(image, &request, context));
        self.apply(decision)
    }

    pub(crate) fn epoch_of(&self, id: i32) -> i64 {
        self.image.registrations().broker(BrokerId(id)).expect("it is registered").epoch
    }

    fn mirror_decision(
        &mut self,
        name: &str,
        configs: &[(&str, &str)],
    ) -> Decision<CreateClusterMirrorResponse> {
        let configs = configs
            .iter()
            .map(|(name, value)| MirrorConfig { name: (*name).into(), value: Some((*value).into()) })
            .collect();
        let request = CreateClusterMirrorRequest { mirror_name: name.into(), configs, validate_only: false };
        self.decide(|image, context| mirrors::create_mirror(image, &request, context))
    }

    pub(crate) fn mirror_batches(
        &mut self,
        name: &str,
        configs: &[(&str, &str)],
    ) -> Vec<Vec<MetadataRecord>> {
        self.mirror_decision(name, configs).batches
    }

    pub(crate) fn create_mirror(&mut self, name: &str, configs: &[(&str, &str)]) -> Result<(), ApiError> {
        let decision = self.mirror_decision(name, configs);
        let response = self.apply(decision);
        as_result(response.error_code, response.error_message)
    }

    pub(crate) fn start(&mut self, mirror: &str, topics: Vec<StartMirrorTopic>) -> StartMirrorTopicsResponse {
        let request = StartMirrorTopicsRequest {
            mirror_name: mirror.into(),
            topics,
            ..StartMirrorTopicsRequest::default()
        };
        self.start_with(&request)
    }

    pub(crate) fn start_with(&mut self, request: &StartMirrorTopicsRequest) -> StartMirrorTopicsResponse {
        self.decided(|image, context| mirror_topics::start(image, request, context))
    }

    /// Decides and applies.
    pub(crate) fn decided<R>(
        &mut self,
        decide: impl FnOnce(&MetadataImage, &mut Context<'_>) -> Decision<R>,
    ) -> R {
        let decision = self.decide(decide);
        self.apply(decision)
    }

    /// The binding of a topic as its mirror and its `mirror.desired.state`.
    pub(crate) fn bound(&self, topic: &str) -> Option<(String, String)> {
        let binding = self.image.bindings().of(topic)?;
        let Binding { mirror, desired, version, truncation } = binding.clone();
        Some((mirror.to_string(), Wanted { state: desired, version, truncation }.to_string()))
    }

    /// What is set for a mirror.
    pub(crate) fn mirror_config(&self, mirror: &str, key: &str) -> Option<String> {
        self.image.mirror(mirror)?.configs.get(key).map(|value| value.to_string())
    }
}

fn as_result(code: i16, message: Option<tarn_wire::Str>) -> Result<(), ApiError> {
    match ErrorCode(code) {
        ErrorCode::NONE => Ok(()),
        code => Err(ApiError { code, message: message.map(|message| message.to_string()) }),
    }
}
