//! Topics of the source that a mirror should begin with, by its patterns.
//!
//! Invariants:
//! * a topic that is bound to a mirror, whatever its state, is never begun again: what an operator paused
//!   or stopped stays so;
//! * a topic that exists here unbound is never taken over, only reported.
//!
//! The source is asked for a while, and all that may have changed meanwhile: the controller sees to it again.

use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_image::config::mirror::{MirrorConfig, Patterns};
use tarn_image::mirrors::is_never_mirrored;
use tarn_record::TopicId;
use tarn_wire::ErrorCode;

use crate::source::metadata::SourceMetadata;

/// What the patterns of a mirror find at the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Topics to begin with.
    pub new: Vec<Arc<str>>,
    /// Topics that exist here under the same name with another id, with that id.
    pub conflicts: Vec<(Arc<str>, TopicId)>,
}

/// True where `include` matches the name, `exclude` does not, and the topic is no internal one.
pub fn is_mirrored_by(name: &str, include: &Patterns, exclude: &Patterns) -> bool {
    !is_never_mirrored(name) && include.matches(name) && !exclude.matches(name)
}

/// Compares the source's topics with those here.
pub fn discover(source: &SourceMetadata, config: &MirrorConfig, image: &MetadataImage) -> Discovered {
    let mut discovered = Discovered::default();
    for (name, topic) in &source.topics {
        if topic.error != ErrorCode::NONE
            || topic.partitions.is_empty()
            || image.bindings().of(name).is_some()
            || !is_mirrored_by(name, &config.topics_include, &config.topics_exclude)
        {
            continue;
        }
        match image.topics().id_of(name) {
            None => discovered.new.push(name.clone()),
            Some(id) if id != topic.id => discovered.conflicts.push((name.clone(), id)),
            Some(_) => {}
        }
    }
    discovered
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tarn_image::MetadataDelta;
    use tarn_image::config::mirror::stored;
    use tarn_record::{BrokerId, Epoch, PartitionIndex};
    use tarn_wire::messages::{ConfigRecord, TopicRecord};
    use tarn_wire::metadata::MetadataRecord;
    use uuid::Uuid;

    use crate::source::metadata::{SourceLeader, TopicMetadata};

    #[test]
    fn only_topics_that_nobody_here_knows_are_new() {
        let image = image(&[
            topic("bound", 2),
            bind("bound", "mirroring:1"),
            topic("stopped", 3),
            bind("stopped", "stopped:4"),
            topic("ours", 4),
            topic("same", 5),
        ]);
        let source = source(&[("new", 1), ("bound", 2), ("stopped", 3), ("ours", 40), ("same", 5)]);
        let discovered = discover(&source, &config(".*", "none"), &image);
        assert_eq!(discovered.new, [Arc::from("new")]);
        assert_eq!(discovered.conflicts, [(Arc::from("ours"), id(4))]);
    }

    #[test]
    fn excluded_and_internal_topics_are_never_discovered() {
        let source = source(&[("a", 1), ("b", 2), ("__consumer_offsets", 3), ("ab", 4)]);
        let found = |include, exclude| discover(&source, &config(include, exclude), &image(&[])).new;
        assert_eq!(found(".*", "b|ab"), [Arc::from("a")]);
        assert_eq!(found("__.*,a", "none"), [Arc::from("a")]);
        assert!(found("", "none").is_empty(), "without patterns nothing is discovered");
    }

    fn config(include: &str, exclude: &str) -> MirrorConfig {
        let given = [
            ("bootstrap.servers", Some("a:1")),
            ("topics.include", Some(include)),
            ("topics.exclude", Some(exclude)),
        ];
        MirrorConfig::resolve(&stored(given).unwrap()).unwrap()
    }

    fn source(topics: &[(&str, u128)]) -> SourceMetadata {
        let partitions: BTreeMap<_, _> =
            [(PartitionIndex(0), SourceLeader { broker: BrokerId(1), epoch: Epoch(0) })].into();
        let topic = |(name, number): &(&str, u128)| {
            let topic =
                TopicMetadata { error: ErrorCode::NONE, id: id(*number), partitions: partitions.clone() };
            (Arc::from(*name), topic)
        };
        SourceMetadata { topics: topics.iter().map(topic).collect(), ..SourceMetadata::default() }
    }

    fn id(number: u128) -> TopicId {
        TopicId(Uuid::from_u128(number))
    }

    fn topic(name: &str, number: u128) -> Vec<MetadataRecord> {
        vec![TopicRecord { name: name.into(), topic_id: id(number).0 }.into()]
    }

    fn bind(name: &str, wanted: &str) -> Vec<MetadataRecord> {
        [("mirror.name", "m"), ("mirror.desired.state", wanted)]
            .map(|(key, value)| {
                ConfigRecord {
                    resource_type: 2,
                    resource_name: name.into(),
                    name: key.into(),
                    value: Some(value.into()),
                }
                .into()
            })
            .into()
    }

    fn image(records: &[Vec<MetadataRecord>]) -> MetadataImage {
        let mut image = MetadataImage::default();
        for record in records.iter().flatten() {
            image.apply(record, &mut MetadataDelta::default()).unwrap();
        }
        image
    }
}
