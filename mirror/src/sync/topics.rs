//! What of a mirrored topic follows its source: the number of its partitions, and the configuration it
//! begins with.

use std::sync::Arc;

use tarn_image::config::mirror::MirrorConfig;
use tarn_image::config::{table, topic};
use tarn_image::{DesiredState, MetadataImage};
use tarn_wire::ErrorCode;
use tarn_wire::messages::create_partitions_request::CreatePartitionsTopic;

use crate::source::metadata::SourceMetadata;

/// Keys that say where data lies, or what the source's own mirrors may drop, which is each cluster's own business.
const NEVER_COPIED: [&str; 4] =
    ["remote.", "local.", "mirror.unclean.leader.election.enable", "mirror.divergence.max.records"];

/// Whether a value that is set at the source is set here too: not excluded, known here, and valid.
pub fn is_copied(name: &str, value: &str, config: &MirrorConfig) -> bool {
    !config.topic_properties_exclude.matches(name)
        && !topic::is_internal(name)
        && !NEVER_COPIED.iter().any(|prefix| name.starts_with(prefix))
        && table::topic_key(name).is_some_and(|key| key.canonical(value).is_ok())
}

/// The topics of a mirror that have fewer partitions here than at the source.
pub fn growth(mirror: &str, source: &SourceMetadata, image: &MetadataImage) -> Vec<CreatePartitionsTopic> {
    let grown =
        |name: &Arc<str>| {
            let binding = image.bindings().of(name)?;
            let there = source.topics.get(name).filter(|topic| topic.error == ErrorCode::NONE)?;
            let here = image.topics().by_name(name)?;
            let is_the_same = there.id.is_zero() || there.id == here.id;
            let count = there.count();
            let grows = usize::try_from(count).is_ok_and(|count| count > here.partitions.len());
            (binding.desired == DesiredState::Mirroring && is_the_same && grows)
                .then(|| CreatePartitionsTopic { name: (&**name).into(), count, assignments: None })
        };
    image.bindings().topics_of(mirror).filter_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_image::MetadataDelta;
    use tarn_image::config::mirror::stored;
    use tarn_record::{BrokerId, Epoch, PartitionIndex, TopicId};
    use tarn_wire::messages::{ConfigRecord, PartitionRecord, TopicRecord};
    use tarn_wire::metadata::MetadataRecord;
    use uuid::Uuid;

    use crate::source::metadata::{SourceLeader, TopicMetadata};

    #[test]
    fn what_is_excluded_internal_unknown_or_invalid_is_not_copied() {
        let given = [("bootstrap.servers", Some("a:1"))];
        let config = MirrorConfig::resolve(&stored(given).unwrap()).unwrap();
        let copied = |name, value| is_copied(name, value, &config);
        assert!(copied("retention.ms", "1000") && copied("cleanup.policy", "compact"));
        assert!(!copied("min.insync.replicas", "2"), "it is excluded by default");
        assert!(!copied("mirror.name", "m") && !copied("remote.storage.enable", "true"));
        assert!(!copied("no.such.key", "1") && !copied("retention.ms", "soon"));
    }

    #[test]
    fn only_topics_that_are_mirrored_grow_and_none_shrinks() {
        let grown = |desired: &str, id: u128, there: i32| {
            let growth = growth("m", &source(id, there), &image(desired));
            growth.iter().map(|topic| (topic.name.to_string(), topic.count)).collect::<Vec<_>>()
        };
        assert_eq!(grown("mirroring:1", 7, 5), [("orders".to_owned(), 5)]);
        assert_eq!(grown("mirroring:1", 0, 5), [("orders".to_owned(), 5)], "the source has no ids");
        assert_eq!(grown("mirroring:1", 7, 1), []);
        assert_eq!(grown("mirroring:1", 8, 5), [], "it is another topic there");
        assert_eq!(grown("paused:2", 7, 5), []);
        assert_eq!(grown("stopped:3", 7, 5), []);
    }

    fn source(id: u128, count: i32) -> SourceMetadata {
        let leader = SourceLeader { broker: BrokerId(1), epoch: Epoch(0) };
        let partitions = (0..count).map(|index| (PartitionIndex(index), leader)).collect();
        let topic = TopicMetadata { error: ErrorCode::NONE, id: TopicId(Uuid::from_u128(id)), partitions };
        SourceMetadata { topics: [(Arc::from("orders"), topic)].into(), ..SourceMetadata::default() }
    }

    fn image(desired: &str) -> MetadataImage {
        let topic_id = Uuid::from_u128(7);
        let partition =
            |partition_id| PartitionRecord { topic_id, partition_id, ..PartitionRecord::default() };
        let config = |name: &str, value: &str| ConfigRecord {
            resource_type: 2,
            resource_name: "orders".into(),
            name: name.into(),
            value: Some(value.into()),
        };
        let records: Vec<MetadataRecord> = vec![
            TopicRecord { name: "orders".into(), topic_id }.into(),
            partition(0).into(),
            partition(1).into(),
            config("mirror.name", "m").into(),
            config("mirror.desired.state", desired).into(),
        ];
        let mut image = MetadataImage::default();
        for record in &records {
            image.apply(record, &mut MetadataDelta::default()).unwrap();
        }
        image
    }
}
