//! What the decisions about a mirror's topics share: finding the mirror, telling what the caller had not seen
//! yet, and writing bindings.
//!
//! A binding's version is the offset of the batch that wrote it, so versions of all topics compare: a caller
//! that saw none above V learns of anything newer.

use tarn_image::mirrors::{MIRROR_DESIRED_STATE, MIRROR_NAME, MirrorImage, Wanted};
use tarn_image::{MetadataImage, ResourceType};
use tarn_wire::messages::ConfigRecord;
use tarn_wire::{ErrorCode, MetadataRecord};

use super::ApiError;
use super::create_topics::config_record;

/// The mirror called `name`.
///
/// # Errors
/// UNKNOWN_CLUSTER_MIRROR where there is none.
pub(super) fn mirror<'a>(image: &'a MetadataImage, name: &str) -> Result<MirrorImage<'a>, ApiError> {
    image.mirror(name).ok_or_else(|| {
        let why = format!("Cluster mirror '{name}' does not exist.");
        ApiError::new(ErrorCode::UNKNOWN_CLUSTER_MIRROR, why)
    })
}

/// Refuses where a binding of one of `topics` is newer than `seen`, what the caller decided on. Below 0 the
/// caller decides on any.
///
/// # Errors
/// INVALID_CLUSTER_MIRROR_STATE, naming the first such topic.
pub(super) fn check_version<'a>(
    image: &MetadataImage,
    seen: i64,
    topics: impl IntoIterator<Item = &'a str>,
) -> Result<(), ApiError> {
    if seen < 0 {
        return Ok(());
    }
    let newer = topics.into_iter().find_map(|topic| {
        let binding = image.bindings().of(topic)?;
        (binding.version > seen).then_some((topic, binding.version))
    });
    match newer {
        None => Ok(()),
        Some((topic, version)) => Err(ApiError::new(
            ErrorCode::INVALID_CLUSTER_MIRROR_STATE,
            format!(
                "The state of topic '{topic}' has changed since: it is version {version}, not {seen} or older."
            ),
        )),
    }
}

/// The records that bind a topic: both halves, whatever is there.
pub(super) fn bound(topic: &str, mirror: &str, wanted: &Wanted) -> [MetadataRecord; 2] {
    [
        config_record(topic, MIRROR_NAME, Some(mirror)),
        config_record(topic, MIRROR_DESIRED_STATE, Some(&wanted.to_string())),
    ]
}

/// The records that make a topic one without a mirror.
pub(super) fn unbound(topic: &str) -> [MetadataRecord; 2] {
    [config_record(topic, MIRROR_NAME, None), config_record(topic, MIRROR_DESIRED_STATE, None)]
}

/// The record that sets or removes a mirror's own config.
pub(super) fn mirror_record(mirror: &str, key: &str, value: Option<&str>) -> MetadataRecord {
    ConfigRecord {
        resource_type: ResourceType::CLUSTER_MIRROR.0,
        resource_name: mirror.into(),
        name: key.into(),
        value: value.map(Into::into),
    }
    .into()
}
