//! Who leads when a broker goes or comes back.

use tarn_image::config::table;
use tarn_image::effective::{self, BrokerView, StaticConfigs};
use tarn_image::{MetadataImage, PartitionRegistration, TopicImage};
use tarn_record::{BrokerId, PartitionIndex};
use tarn_wire::MetadataRecord;
use tarn_wire::messages::PartitionChangeRecord;

/// While a leader recovers from an unclean election.
const RECOVERING: i8 = 1;

/// The changes when `broker` may no longer lead: another replica in sync takes over, or none. The last
/// replica in sync stays in sync.
pub fn on_fenced(image: &MetadataImage, broker: BrokerId) -> Vec<MetadataRecord> {
    partitions(image)
        .filter(|(.., partition)| partition.leader == broker || partition.isr.contains(&broker))
        .filter_map(|(topic, index, partition)| {
            let mut isr: Vec<BrokerId> = partition.isr.iter().copied().filter(|id| *id != broker).collect();
            if isr.is_empty() {
                isr = partition.isr.to_vec();
            }
            let may_lead = |id: &BrokerId| *id != broker && image.registrations().is_active(*id);
            let successor =
                || first_of(partition, |id| isr.contains(id) && may_lead(id)).unwrap_or(BrokerId::NONE);
            let mut change = unchanged(topic, index);
            if isr.as_slice() != partition.isr.as_slice() {
                change.isr = Some(isr.iter().map(|id| id.0).collect());
            }
            if partition.leader == broker {
                change.leader = successor().0;
            }
            (change != unchanged(topic, index)).then(|| change.into())
        })
        .collect()
}

/// The changes when `broker` may lead again: partitions that nobody leads are led by a replica in sync, by
/// one that is eligible though not in sync, or, where the topic allows it, by any.
pub fn on_unfenced(image: &MetadataImage, broker: BrokerId, file: &StaticConfigs) -> Vec<MetadataRecord> {
    let may_lead = |id: &BrokerId| *id == broker || image.registrations().is_active(*id);
    partitions(image)
        .filter(|(.., partition)| partition.leader == BrokerId::NONE && partition.is_replica(broker))
        .filter_map(|(topic, index, partition)| {
            let mut change = unchanged(topic, index);
            if let Some(leader) = first_of(partition, |id| partition.isr.contains(id) && may_lead(id)) {
                change.leader = leader.0;
            } else if let Some(leader) = first_of(partition, |id| partition.elr.contains(id) && may_lead(id))
            {
                // Kafka's controllers let the last replica leave the ISR and remember it here (KIP-966).
                change.leader = leader.0;
                change.isr = Some(vec![leader.0]);
                change.eligible_leader_replicas =
                    Some(partition.elr.iter().filter(|id| **id != leader).map(|id| id.0).collect());
                change.last_known_elr = Some(Vec::new());
            } else if allows_unclean(image, topic, broker, file) {
                change.leader = broker.0;
                change.isr = Some(vec![broker.0]);
                change.leader_recovery_state = RECOVERING;
            } else {
                return None;
            }
            Some(change.into())
        })
        .collect()
}

fn partitions(
    image: &MetadataImage,
) -> impl Iterator<Item = (&TopicImage, PartitionIndex, &PartitionRegistration)> {
    image.topics().iter().flat_map(|topic| {
        topic.partitions.iter().map(move |(index, partition)| (&**topic, *index, &**partition))
    })
}

fn first_of(partition: &PartitionRegistration, wanted: impl Fn(&BrokerId) -> bool) -> Option<BrokerId> {
    partition.replicas.iter().copied().find(|id| wanted(id))
}

fn unchanged(topic: &TopicImage, index: PartitionIndex) -> PartitionChangeRecord {
    PartitionChangeRecord { partition_id: index.0, topic_id: topic.id.0, ..PartitionChangeRecord::default() }
}

fn allows_unclean(image: &MetadataImage, topic: &TopicImage, broker: BrokerId, file: &StaticConfigs) -> bool {
    let Some(key) = table::topic_key("unclean.leader.election.enable") else { return false };
    let node = broker.to_string();
    let view = BrokerView::new(image.configs(), &node, file);
    effective::topic_value(key, image.configs().topic(&topic.name), &view).as_deref() == Some("true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_record::Epoch;
    use uuid::Uuid;

    #[test]
    fn another_replica_in_sync_takes_over() {
        let mut world = World::with_brokers(2);
        world.create_with("t", 1, 2);
        let led_by = |world: &World| {
            let topic = world.image.topics().by_name("t").unwrap();
            let partition = &topic.partitions[&PartitionIndex(0)];
            (partition.leader, partition.isr.to_vec(), partition.leader_epoch)
        };
        let (first, _, _) = led_by(&world);
        let other = BrokerId(3 - first.0);
        world.register(first.0, Uuid::from_u128(77));
        assert_eq!(led_by(&world), (other, vec![other], Epoch(1)));
        world.heartbeat(first.0, false);
        assert_eq!(led_by(&world), (other, vec![other], Epoch(1)), "it comes back as a follower out of sync");
    }

    #[test]
    fn a_replica_that_kafka_calls_eligible_leads_again() {
        let mut world = World::with_topics(&["t"]);
        let id = world.image.topics().id_of("t").unwrap();
        let left = PartitionChangeRecord {
            partition_id: 0,
            topic_id: id.0,
            isr: Some(vec![]),
            leader: -1,
            eligible_leader_replicas: Some(vec![1]),
            last_known_elr: Some(vec![1]),
            ..PartitionChangeRecord::default()
        };
        world.apply(crate::decide::Decision::of(vec![left.into()], ()));
        world.register(1, Uuid::from_u128(70));
        world.heartbeat(1, false);
        let partition = world.image.topics().partition(id, PartitionIndex(0)).unwrap();
        assert_eq!((partition.leader, partition.isr.as_slice()), (BrokerId(1), [BrokerId(1)].as_slice()));
        assert!(partition.elr.is_empty() && partition.last_known_elr.is_empty());
    }

    #[test]
    fn only_where_the_topic_allows_it_a_replica_out_of_sync_leads() {
        for (allowed, expected) in [("false", BrokerId::NONE), ("true", BrokerId(2))] {
            let mut world = World::with_brokers(2);
            world.create_with("t", 1, 2);
            world.alter(2, "t", &[("unclean.leader.election.enable", 0, Some(allowed))]).unwrap();
            world.register(2, Uuid::from_u128(71));
            world.register(1, Uuid::from_u128(72));
            world.heartbeat(2, false);
            let topic = world.image.topics().by_name("t").unwrap();
            assert_eq!(topic.partitions[&PartitionIndex(0)].leader, expected, "allowed: {allowed}");
        }
    }
}
