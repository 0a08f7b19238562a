//! What handlers read of the metadata: topics by either name, leaders, endpoints.

use std::sync::Arc;

use tarn_image::{Binding, BrokerRegistration, MetadataImage, TopicImage};
use tarn_record::{BrokerId, Epoch, PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::ErrorCode;

use crate::named::TopicKey;

/// One image of the metadata, as one broker reads it.
#[derive(Clone, Debug)]
pub struct MetadataView {
    image: Arc<MetadataImage>,
}

/// Where a broker is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: BrokerId,
    /// The host it advertises.
    pub host: String,
    /// The port it advertises.
    pub port: u16,
    /// Its rack.
    pub rack: Option<String>,
    /// True while it is registered and not serving.
    pub fenced: bool,
}

impl MetadataView {
    /// A view on `image`.
    pub fn new(image: Arc<MetadataImage>) -> MetadataView {
        MetadataView { image }
    }

    /// The image.
    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.image
    }

    /// A topic by its name.
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.image.topics().by_name(name)
    }

    /// A topic by its id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.image.topics().by_id(id)
    }

    /// A topic as a fetch names it.
    pub fn topic(&self, key: &TopicKey) -> Option<&Arc<TopicImage>> {
        match key {
            TopicKey::Name(name) => self.topic_by_name(name),
            TopicKey::Id(id) => self.topic_by_id(*id),
        }
    }

    /// Every topic, in the order of their names.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.image.topics().iter()
    }

    /// Those from the name `first` on.
    pub fn topics_from(&self, first: &str) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.image.topics().iter_from(first)
    }

    /// The partition that a name stands for.
    pub fn find(&self, key: &TopicKey, index: PartitionIndex) -> Option<TopicIdPartition> {
        let topic = self.topic(key)?;
        let partition = TopicIdPartition { topic_id: topic.id, partition: index };
        topic.partitions.contains_key(&index).then_some(partition)
    }

    /// The partition's leader and its epoch; the leader may be `BrokerId::NONE`.
    pub fn leader(&self, partition: TopicIdPartition) -> Option<(BrokerId, Epoch)> {
        let found = self.image.topics().partition(partition.topic_id, partition.partition)?;
        Some((found.leader, found.leader_epoch))
    }

    /// Checks that `broker` leads the partition.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER.
    pub fn check_leader(&self, broker: BrokerId, partition: TopicIdPartition) -> Result<(), ErrorCode> {
        match self.leader(partition) {
            None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            Some((leader, _)) if leader != broker => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Some(_) => Ok(()),
        }
    }

    /// The partition of that name, where `broker` leads it.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER.
    pub fn led_by(&self, broker: BrokerId, topic: &str, index: i32) -> Result<TopicIdPartition, ErrorCode> {
        let topic_id = self.topic_by_name(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?.id;
        let partition = TopicIdPartition { topic_id, partition: PartitionIndex(index) };
        self.check_leader(broker, partition)?;
        Ok(partition)
    }

    /// How a topic is bound to a mirror.
    pub fn binding(&self, topic: &str) -> Option<Binding> {
        self.image.bindings().of(topic).cloned()
    }

    /// Where a broker is reached by clients of `listener`; by its first one where none is named.
    pub fn endpoint(&self, broker: BrokerId, listener: Option<&str>) -> Option<Node> {
        node_of(self.image.registrations().broker(broker)?, listener)
    }

    /// Every broker that clients of `listener` can reach, fenced ones included.
    pub fn nodes(&self, listener: &str) -> Vec<Node> {
        let brokers = self.image.registrations().brokers();
        brokers.filter_map(|broker| node_of(broker, Some(listener))).collect()
    }

    /// Every controller that clients of `listener` can reach.
    pub fn controllers(&self, listener: &str) -> Vec<Node> {
        let controllers = self.image.registrations().controllers();
        let reachable = controllers.filter_map(|controller| {
            let endpoint = controller.endpoints.iter().find(|endpoint| endpoint.listener == listener)?;
            let (host, port) = (endpoint.host.clone(), endpoint.port);
            Some(Node { id: controller.id, host, port, rack: None, fenced: false })
        });
        reachable.collect()
    }
}

fn node_of(broker: &BrokerRegistration, listener: Option<&str>) -> Option<Node> {
    let endpoint = match listener {
        Some(listener) => broker.endpoint(listener)?,
        None => broker.endpoints.first()?,
    };
    Some(Node {
        id: broker.id,
        host: endpoint.host.clone(),
        port: endpoint.port,
        rack: broker.rack.clone(),
        fenced: !broker.is_active(),
    })
}
