//! What the coordinators keep of a mirror goes after the mirror: states, positions and reports.
//!
//! A mirror is deleted by one batch of the metadata log; its records in `__mirror_state` get their tombstones
//! later, by whoever owns them. Meanwhile a mirror of the same name may be made, perhaps of another source,
//! and must neither find what is left of the old one nor lose what it writes itself. The rule:
//!
//! * Metadata up to offset O that do not have the mirror prove that each binding up to version O is over.
//!   Forgetting always names such an O, and takes no record of a newer binding, however late it comes.
//! * A mirror is made only after every coordinator has forgotten what there was of its name. Who deletes one
//!   waits for the same.
//! * A core forgets only once its own metadata are at O, and takes no write about a binding that its metadata
//!   have seen end. So nothing that was under way brings back what was forgotten.
//! * Each owner forgets as soon as it hears of a deletion. One that could not, because the node went down or
//!   the disk was full, does so when it loads the partition again.

use std::rc::Rc;

use tarn_image::MetadataImage;
use tarn_image::mirrors::STATE_TOPIC;
use tarn_mirror::coordinator::{MirrorCoordinator, StateRequest, StateResponse};
use tarn_quorum::ImageUpdate;
use tarn_record::{PartitionIndex, TopicIdPartition};
use tarn_runtime::{Queue, spawn};
use tarn_wire::ErrorCode;
use tracing::warn;

use super::mirror_states::{answered, ask};
use crate::core::Core;

/// A mirror that the metadata do not have any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    mirror: String,
    /// All of its bindings are of this version or older.
    version: i64,
}

impl Gone {
    /// What `image` says of a mirror called `name`; `None` where there is one.
    pub(crate) fn of(image: &MetadataImage, name: &str) -> Option<Gone> {
        let version = image.provenance().offset.0;
        image.mirror(name).is_none().then(|| Gone { mirror: name.to_owned(), version })
    }
}

/// Has all coordinators forget a mirror, and waits until they have.
///
/// # Errors
/// Why one does not answer; the others may have forgotten.
pub(crate) async fn everywhere(core: &Rc<Core>, gone: &Gone) -> Result<(), ErrorCode> {
    forget(core, gone, coordinators(core)).await
}

/// Has the coordinators of this core forget the mirrors that an update of the metadata ends.
pub(crate) fn on_metadata(core: &Rc<Core>, update: &ImageUpdate) {
    let changed = update.delta.mirrors_changed();
    let gone: Vec<Gone> = changed.filter_map(|name| Gone::of(&update.image, name)).collect();
    if gone.is_empty() {
        return;
    }
    let mut own = coordinators(core);
    own.retain(|partition| core.partitions().get(*partition).is_some());
    in_background(core, gone, own);
}

/// Has a coordinator forget what it holds, once loaded, of mirrors that have ended meanwhile.
pub(super) fn on_loaded(core: &Rc<Core>, partition: TopicIdPartition, loaded: &MirrorCoordinator) {
    let image = core.image();
    let gone: Vec<Gone> = loaded.mirrors().into_iter().filter_map(|name| Gone::of(&image, name)).collect();
    in_background(core, gone, vec![partition]);
}

/// True for a write about a binding of which `image` has seen the end: the mirror or its topic is gone, or the
/// binding is a newer one. A binding that is newer than the image is not judged.
pub(super) fn is_over(
    image: &MetadataImage,
    mirror: &str,
    partition: TopicIdPartition,
    version: i64,
) -> bool {
    if version < 0 || version > image.provenance().offset.0 {
        return false;
    }
    let topic = image.topics().by_id(partition.topic_id);
    match topic.and_then(|topic| image.bindings().of(&topic.name)) {
        Some(binding) => *binding.mirror != *mirror || binding.version > version,
        None => true,
    }
}

fn coordinators(core: &Rc<Core>) -> Vec<TopicIdPartition> {
    let view = core.view();
    let Some(topic) = view.topic_by_name(STATE_TOPIC) else { return Vec::new() };
    let at = |partition: &PartitionIndex| TopicIdPartition { topic_id: topic.id, partition: *partition };
    topic.partitions.keys().map(at).collect()
}

fn in_background(core: &Rc<Core>, gone: Vec<Gone>, coordinators: Vec<TopicIdPartition>) {
    if gone.is_empty() || coordinators.is_empty() {
        return;
    }
    let core = core.clone();
    spawn(Queue::Background, async move {
        for gone in gone {
            if let Err(error) = forget(&core, &gone, coordinators.clone()).await {
                let mirror = gone.mirror;
                warn!(mirror, %error, "what is kept of a deleted mirror stays until its coordinator is loaded again");
            }
        }
    })
    .detach();
}

async fn forget(
    core: &Rc<Core>,
    gone: &Gone,
    mut coordinators: Vec<TopicIdPartition>,
) -> Result<(), ErrorCode> {
    while !coordinators.is_empty() {
        let mut asked = Vec::with_capacity(coordinators.len());
        for coordinator in coordinators {
            let request = StateRequest::Forget(gone.mirror.clone(), gone.version);
            asked.push((coordinator, ask(core, coordinator, request).await));
        }
        coordinators = Vec::new();
        for (coordinator, answer) in asked {
            match answered(answer).await? {
                StateResponse::Forgotten(0) => {}
                StateResponse::Forgotten(_) => coordinators.push(coordinator),
                _ => return Err(ErrorCode::UNKNOWN_SERVER_ERROR),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_image::{MetadataDelta, Provenance};
    use tarn_record::{Epoch, Offset, Timestamp, TopicId};
    use tarn_wire::MetadataRecord;
    use tarn_wire::messages::{ConfigRecord, TopicRecord};
    use uuid::Uuid;

    const TOPIC: TopicId = TopicId(Uuid::from_u128(7));

    #[test]
    fn a_write_about_a_binding_that_has_ended_is_over() {
        let over = |bound: &[(&str, &str)], version| is_over(&image(20, bound), "m", at(TOPIC), version);
        let now = [("mirror.name", "m"), ("mirror.desired.state", "mirroring:9")];
        assert!(!over(&now, 9), "it is the binding there is");
        assert!(over(&now, 8), "there is a newer one");
        assert!(over(&[], 9), "the topic is in no mirror any more");
        assert!(over(&[("mirror.name", "n"), now[1]], 9), "it is in another");
        assert!(
            is_over(&image(20, &now), "m", at(TopicId(Uuid::from_u128(8))), 9),
            "it is no topic any more"
        );
        assert!(!over(&[], 21), "these metadata have not seen it yet");
        assert!(!over(&now, -1), "it names no binding");
    }

    #[test]
    fn a_mirror_is_gone_with_all_bindings_that_the_metadata_have_seen() {
        let image = image(20, &[]);
        assert_eq!(Gone::of(&image, "nosuch"), Some(Gone { mirror: "nosuch".to_owned(), version: 20 }));
        assert_eq!(Gone::of(&image, "m"), None);
    }

    /// Metadata up to an offset: mirror `m`, and a topic with these configs.
    fn image(offset: i64, configs: &[(&str, &str)]) -> MetadataImage {
        let config = |kind: i8, resource: &str, key: &str, value: &str| -> MetadataRecord {
            ConfigRecord {
                resource_type: kind,
                resource_name: resource.into(),
                name: key.into(),
                value: Some(value.into()),
            }
            .into()
        };
        let mut records = vec![
            TopicRecord { name: "t".into(), topic_id: TOPIC.0 }.into(),
            config(64, "m", "bootstrap.servers", "a:9092"),
        ];
        records.extend(configs.iter().map(|(key, value)| config(2, "t", key, value)));
        let mut image = MetadataImage::default();
        for record in &records {
            image.apply(record, &mut MetadataDelta::default()).expect("the records fit each other");
        }
        let timestamp = Timestamp(0);
        image.set_provenance(Provenance { offset: Offset(offset), epoch: Epoch(0), timestamp });
        image
    }

    fn at(topic_id: TopicId) -> TopicIdPartition {
        TopicIdPartition { topic_id, partition: PartitionIndex(0) }
    }
}
