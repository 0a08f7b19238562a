//! Which topics have changed lately, so that whoever remembers what a name stood for looks up again only
//! what may stand for something else now.
//!
//! Every change has a number. A reader keeps the number up to which it has read; one that comes back after
//! more changes than are kept has to look up everything. Owned by a core, fed with each image it takes.

use std::collections::VecDeque;
use std::sync::Arc;

use tarn_image::{MetadataDelta, MetadataImage};
use tarn_record::TopicId;

/// A topic that was made, deleted, or has other partitions than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicChange {
    /// The topic's id.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
}

/// See the module.
#[derive(Debug)]
pub struct TopicChanges {
    limit: usize,
    kept: VecDeque<TopicChange>,
    /// The number of the next change.
    next: u64,
}

impl TopicChanges {
    /// Keeps the newest `limit` changes.
    pub fn new(limit: usize) -> TopicChanges {
        TopicChanges { limit, kept: VecDeque::new(), next: 0 }
    }

    /// Takes note of what led to `image`.
    pub fn note(&mut self, image: &MetadataImage, delta: &MetadataDelta) {
        let named = delta.topics_created.iter().chain(&delta.topics_deleted);
        named.for_each(|(id, name)| self.push(*id, name));
        let mut last = None;
        for (id, _) in &delta.partitions_changed {
            // The set is in the order of the topics' ids; new topics are noted already.
            if last.replace(*id) != Some(*id)
                && !delta.topics_created.contains_key(id)
                && let Some(topic) = image.topics().by_id(*id)
            {
                self.push(*id, &topic.name);
            }
        }
    }

    /// The number up to which there is nothing to read now.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The changes from number `from` on; `None` where some of them are no longer known.
    pub fn since(&self, from: u64) -> Option<impl Iterator<Item = &TopicChange>> {
        let unread = usize::try_from(self.next.checked_sub(from)?).ok()?;
        Some(self.kept.iter().skip(self.kept.len().checked_sub(unread)?))
    }

    fn push(&mut self, id: TopicId, name: &Arc<str>) {
        if self.kept.len() == self.limit {
            self.kept.pop_front();
        }
        self.kept.push_back(TopicChange { id, name: name.clone() });
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tarn_record::PartitionIndex;

    #[test]
    fn a_reader_is_told_what_it_has_not_read() {
        let mut changes = TopicChanges::new(10);
        note(&mut changes, &["a", "b"]);
        let read = changes.next();
        assert_eq!(names(&changes, 0), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(names(&changes, read), Some(vec![]));
        note(&mut changes, &["c"]);
        assert_eq!(names(&changes, read), Some(vec!["c".to_owned()]));
    }

    #[test]
    fn a_reader_that_was_away_too_long_is_told_so() {
        let mut changes = TopicChanges::new(2);
        note(&mut changes, &["a", "b", "c"]);
        assert_eq!(names(&changes, 0), None);
        assert_eq!(names(&changes, 1), Some(vec!["b".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn a_new_topic_is_one_change_whatever_its_partitions() {
        let mut changes = TopicChanges::new(10);
        let id = TopicId::random();
        let mut delta = MetadataDelta::default();
        delta.topics_created.insert(id, "a".into());
        delta.partitions_changed.extend((0..5).map(|index| (id, PartitionIndex(index))));
        changes.note(&MetadataImage::default(), &delta);
        assert_eq!(changes.next(), 1);
    }

    fn note(changes: &mut TopicChanges, made: &[&str]) {
        for name in made {
            let topics_created = BTreeMap::from([(TopicId::random(), Arc::from(*name))]);
            let delta = MetadataDelta { topics_created, ..MetadataDelta::default() };
            changes.note(&MetadataImage::default(), &delta);
        }
    }

    fn names(changes: &TopicChanges, from: u64) -> Option<Vec<String>> {
        Some(changes.since(from)?.map(|change| change.name.to_string()).collect())
    }
}
