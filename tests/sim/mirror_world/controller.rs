//! The controller of the mirror's world: production's decisions on an image, each applied as soon as it is made. Mirrors
//! are made by records alone, without the checks of their configuration.

use tarn_image::config::server::ServerConfig;
use tarn_image::mirrors::{
    BOOTSTRAP_SERVERS, Binding, MIRROR_DESIRED_STATE, MIRROR_NAME, SOURCE_CLUSTER_ID, Truncation,
};
use tarn_image::{DesiredState, MetadataDelta, MetadataImage, ResourceType};
use tarn_mirror::partition::Bound;
use tarn_quorum::decide::delete_mirror::delete_mirror;
use tarn_quorum::decide::{Context, Decision, leader_epochs, mirror_desired, mirror_stopped, mirror_topics};
use tarn_record::{Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::messages::bump_leader_epochs_request::{BumpLeaderEpochsPartition, BumpLeaderEpochsTopic};
use tarn_wire::messages::complete_mirror_stop_request::CompletedMirrorStop;
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::{
    BumpLeaderEpochsRequest, CompleteMirrorStopRequest, ConfigRecord, DeleteClusterMirrorRequest,
    PartitionRecord, PauseMirrorTopicsRequest, RecoverMirrorTopicsRequest, RegisterBrokerRecord,
    ResumeMirrorTopicsRequest, StartMirrorTopicsRequest, StopMirrorTopicsRequest, TopicRecord,
    pause_mirror_topics_request, recover_mirror_topics_request, resume_mirror_topics_request,
    stop_mirror_topics_request,
};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::happenings::Verb;
use super::mirrors::{Cluster, Life, Metadata, Mirror};

pub(super) const TOPIC: &str = "t";
pub(super) const PARTITION: TopicIdPartition =
    TopicIdPartition { topic_id: TopicId(uuid::Uuid::from_u128(7)), partition: PartitionIndex(0) };
/// The broker that leads the partition.
const BROKER: i32 = 1;

pub(super) struct Controller {
    image: MetadataImage,
    next_offset: Offset,
    config: ServerConfig,
    /// The mirror that has the topic, or had it last.
    mirror: Mirror,
    /// The clusters that the mirrors are of.
    clusters: [Cluster; 2],
    /// At which offset each was deleted that is gone.
    gone: [Option<i64>; 2],
    lives: [Life; 2],
    lives_begun: u64,
}

impl Controller {
    /// One topic with one partition, which one of two mirrors is to fill.
    pub(super) fn new(second: Cluster) -> Controller {
        let text = "process.roles=broker,controller\nnode.id=1\nlog.dirs=/unused\n\
            controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
            listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n";
        let (config, _) = ServerConfig::parse(text).expect("the file is good");
        let set = |kind: ResourceType, of: &str, name: &str, value: &str| ConfigRecord {
            resource_type: kind.0,
            resource_name: of.into(),
            name: name.into(),
            value: Some(value.into()),
        };
        let topic_id = PARTITION.topic_id.0;
        let partition = PartitionRecord {
            partition_id: 0,
            topic_id,
            replicas: vec![BROKER],
            isr: vec![BROKER],
            leader: BROKER,
            ..PartitionRecord::default()
        };
        let records: Vec<MetadataRecord> = vec![
            RegisterBrokerRecord { broker_id: BROKER, fenced: false, ..RegisterBrokerRecord::default() }
                .into(),
            TopicRecord { name: TOPIC.into(), topic_id }.into(),
            partition.into(),
            set(ResourceType::TOPIC, TOPIC, MIRROR_NAME, Mirror::First.name()).into(),
            set(ResourceType::TOPIC, TOPIC, MIRROR_DESIRED_STATE, "mirroring:5").into(),
        ];
        let mut controller = Controller {
            image: MetadataImage::default(),
            next_offset: Offset(100),
            config,
            mirror: Mirror::First,
            clusters: [Cluster::Here; 2],
            gone: [None; 2],
            lives: [Life(0); 2],
            lives_begun: 0,
        };
        controller.make_mirror(Mirror::First, Cluster::Here);
        controller.make_mirror(Mirror::Second, second);
        controller.apply(Decision::of(records, ()));
        controller
    }

    /// There is this mirror from now on.
    pub(super) fn make_mirror(&mut self, mirror: Mirror, cluster: Cluster) {
        let set = |name: &str, value: &str| ConfigRecord {
            resource_type: ResourceType::CLUSTER_MIRROR.0,
            resource_name: mirror.name().into(),
            name: name.into(),
            value: Some(value.into()),
        };
        let records: Vec<MetadataRecord> = vec![
            set(BOOTSTRAP_SERVERS, "source:9092").into(),
            set(SOURCE_CLUSTER_ID, &cluster.id()).into(),
            // Patterns would be read at each start, which takes longer than all the rest of an event.
            set("topics.exclude", "").into(),
        ];
        self.apply(Decision::of(records, ()));
        self.clusters[mirror as usize] = cluster;
        self.gone[mirror as usize] = None;
        self.lives_begun += 1;
        self.lives[mirror as usize] = Life(self.lives_begun);
    }

    /// Which mirror of its name it is.
    pub(super) fn life(&self, mirror: Mirror) -> Life {
        self.lives[mirror as usize]
    }

    /// Up to which version all bindings of a mirror are over that is gone.
    pub(super) fn gone(&self, mirror: Mirror) -> Option<i64> {
        self.gone[mirror as usize]
    }

    /// The mirror that has the topic, or had it last.
    pub(super) fn mirror(&self) -> Mirror {
        self.mirror
    }

    /// The mirror that a command is for.
    pub(super) fn mirror_of(&self, verb: Verb) -> Mirror {
        if matches!(verb, Verb::StartOther(_)) { self.mirror.other() } else { self.mirror }
    }

    fn binding(&self) -> Option<&Binding> {
        self.image.bindings().of(TOPIC)
    }

    /// True where what was written under a binding of this version is about one that has ended.
    pub(super) fn is_over(&self, mirror: Mirror, version: i64) -> bool {
        self.binding().is_none_or(|bound| *bound.mirror != *mirror.name() || bound.version > version)
    }

    pub(super) fn metadata(&self) -> Metadata {
        let (bound, binding) = (self.bound(), self.binding().cloned());
        let of = binding.as_ref().map(|_| (self.mirror, self.clusters[self.mirror as usize]));
        Metadata { bound, binding, of }
    }

    pub(super) fn bound(&self) -> Bound {
        let partition = self.image.topics().partition(PARTITION.topic_id, PARTITION.partition);
        let leader_epoch = partition.expect("the topic stays").leader_epoch;
        match self.binding() {
            Some(&Binding { desired, version, truncation, .. }) => {
                Bound { desired, version, leader_epoch, truncation }
            }
            // Nothing is wanted of what is in no mirror.
            None => Bound {
                desired: DesiredState::Stopped,
                version: self.gone(self.mirror).unwrap_or_default(),
                leader_epoch,
                truncation: Truncation::Refused,
            },
        }
    }

    /// True where the topic is in a mirror, active or not.
    pub(super) fn is_bound(&self) -> bool {
        self.binding().is_some()
    }

    /// Carries a command of the operator out; false where it is refused.
    pub(super) fn command(&mut self, verb: Verb) -> bool {
        let mirror = self.mirror_of(verb);
        let (mirror_name, topic_name) = (mirror.name().into(), TOPIC.into());
        let (whole, one) = match verb {
            Verb::Delete => {
                let asked = DeleteClusterMirrorRequest { mirror_name, ..Default::default() };
                let answer = self.decide(|image, _| delete_mirror(image, &asked));
                if answer.error_code == ErrorCode::NONE.0 {
                    self.gone[mirror as usize] = Some(self.next_offset.0 - 1);
                }
                return answer.error_code == ErrorCode::NONE.0;
            }
            Verb::Start(truncation) | Verb::StartOther(truncation) => {
                let topic = StartMirrorTopic {
                    topic_name,
                    topic_id: PARTITION.topic_id.0,
                    num_partitions: 1,
                    ..StartMirrorTopic::default()
                };
                let topics = vec![topic];
                let allow_truncation = truncation == Truncation::Allowed;
                let asked =
                    StartMirrorTopicsRequest { mirror_name, topics, allow_truncation, ..Default::default() };
                let answer = self.decide(|image, context| mirror_topics::start(image, &asked, context));
                (answer.error_code, answer.topics.first().map(|topic| topic.error_code))
            }
            Verb::Pause => {
                let topics = vec![pause_mirror_topics_request::MirrorTopicName { topic_name }];
                let asked = PauseMirrorTopicsRequest { mirror_name, topics, ..Default::default() };
                let answer = self.decide(|image, context| mirror_desired::pause(image, &asked, context));
                (answer.error_code, answer.topics.first().map(|topic| topic.error_code))
            }
            Verb::Resume => {
                let topics = vec![resume_mirror_topics_request::MirrorTopicName { topic_name }];
                let asked = ResumeMirrorTopicsRequest { mirror_name, topics, ..Default::default() };
                let answer = self.decide(|image, context| mirror_desired::resume(image, &asked, context));
                (answer.error_code, answer.topics.first().map(|topic| topic.error_code))
            }
            Verb::Recover(truncation) => {
                let topics = vec![recover_mirror_topics_request::MirrorTopicName { topic_name }];
                let allow_truncation = truncation == Truncation::Allowed;
                let asked = RecoverMirrorTopicsRequest {
                    mirror_name,
                    topics,
                    allow_truncation,
                    ..Default::default()
                };
                let answer = self.decide(|image, context| mirror_desired::recover(image, &asked, context));
                (answer.error_code, answer.topics.first().map(|topic| topic.error_code))
            }
            Verb::Stop => {
                let topics = vec![stop_mirror_topics_request::MirrorTopicName { topic_name }];
                let asked = StopMirrorTopicsRequest { mirror_name, topics, ..Default::default() };
                let answer = self.decide(|image, context| mirror_desired::stop(image, &asked, context));
                (answer.error_code, answer.topics.first().map(|topic| topic.error_code))
            }
        };
        let is_done = whole == ErrorCode::NONE.0 && one == Some(ErrorCode::NONE.0);
        if is_done {
            self.mirror = mirror;
        }
        is_done
    }

    /// The topic has stopped at this version, somebody says.
    pub(super) fn complete(&mut self, mirror: Mirror, version: i64) -> bool {
        let topic = CompletedMirrorStop {
            topic_name: TOPIC.into(),
            topic_id: PARTITION.topic_id.0,
            state_version: version,
        };
        let asked = CompleteMirrorStopRequest { mirror_name: mirror.name().into(), topics: vec![topic] };
        let answer = self.decide(|image, _| mirror_stopped::complete(image, &asked));
        answer.topics.first().is_some_and(|topic| topic.error_code == ErrorCode::NONE.0)
    }

    pub(super) fn raise_epoch(&mut self, above: Epoch) {
        let partition = BumpLeaderEpochsPartition { partition_index: 0, min_leader_epoch: above.0 };
        let topic = BumpLeaderEpochsTopic { topic_name: TOPIC.into(), partitions: vec![partition] };
        let asked = BumpLeaderEpochsRequest { topics: vec![topic] };
        self.decide(|image, _| leader_epochs::bump(image, &asked));
    }

    fn decide<R>(&mut self, decide: impl FnOnce(&MetadataImage, &mut Context<'_>) -> Decision<R>) -> R {
        let mut new_id = || TopicId(uuid::Uuid::from_u128(8));
        let mut context = Context {
            next_offset: self.next_offset,
            cluster_id: "here",
            config: &self.config,
            new_id: &mut new_id,
        };
        let decision = decide(&self.image, &mut context);
        self.apply(decision)
    }

    fn apply<R>(&mut self, decision: Decision<R>) -> R {
        for record in decision.batches.iter().flatten() {
            let applied = self.image.apply(record, &mut MetadataDelta::default());
            applied.expect("what was decided on the image fits it");
            self.next_offset = self.next_offset.plus(1);
        }
        decision.response
    }
}
