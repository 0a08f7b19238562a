//! Changed metadata, gathered until the manager looks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tarn_image::{MetadataDelta, MetadataImage};
use tarn_record::TopicId;

/// What has changed since the manager last looked.
#[derive(Debug, Default)]
pub(super) struct Changes {
    noted: Mutex<Noted>,
}

/// What was noted.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) image: Option<Arc<MetadataImage>>,
    pub(super) topics: BTreeSet<TopicId>,
    pub(super) mirrors: BTreeSet<Arc<str>>,
    /// False until the manager has seen a first image as a whole.
    has_begun: bool,
    pub(super) everything: bool,
}

impl Changes {
    /// Notes what a batch of records changed.
    pub(super) fn note(&self, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !noted.has_begun {
            noted.has_begun = true;
            noted.everything = true;
        }
        let bound = delta.bindings_changed.iter().filter_map(|name| image.topics().id_of(name));
        noted.topics.extend(bound);
        noted.topics.extend(delta.partitions_changed.iter().map(|(topic, _)| *topic));
        noted.topics.extend(delta.topics_deleted.keys());
        noted.mirrors.extend(delta.mirrors_changed().cloned());
        noted.image = Some(image);
    }

    /// Takes all of it.
    pub(super) fn take(&self) -> Noted {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let has_begun = noted.has_begun;
        let taken = std::mem::take(&mut *noted);
        noted.has_begun = has_begun;
        taken
    }
}
