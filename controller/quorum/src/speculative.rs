//! The metadata as decisions see it: committed plus what is on its way.
//!
//! A decision that did not see the one before it could give the same topic name or the same producer ids
//! away twice. So decisions are made on the image ahead, and only committed batches reach anybody else.
//!
//! Invariants:
//! * the image ahead is the committed one with the pending batches applied, in order;
//! * batches are committed in the order in which they were written, and an answer never leaves before the
//!   batches that it rests on.

use std::collections::VecDeque;
use std::sync::Arc;

use tarn_image::{MetadataDelta, MetadataImage, Provenance, ReplayError};
use tarn_record::Offset;
use tarn_wire::MetadataRecord;

/// A batch that was written and is not committed yet, and the answers that wait for it.
#[derive(Debug)]
struct Pending<W> {
    image: MetadataImage,
    delta: MetadataDelta,
    answers: Vec<W>,
}

/// A batch that is committed.
#[derive(Debug)]
pub struct Committed<W> {
    /// The metadata with it.
    pub image: Arc<MetadataImage>,
    /// What it changed.
    pub delta: Arc<MetadataDelta>,
    /// The answers that may leave now.
    pub answers: Vec<W>,
}

/// See the module. `W` is an answer that waits.
#[derive(Debug)]
pub struct Speculative<W> {
    committed: Arc<MetadataImage>,
    pending: VecDeque<Pending<W>>,
}

impl<W> Speculative<W> {
    /// What was loaded from the disk: it is committed, and published, with the first record of this
    /// leader's epoch.
    pub fn loaded(image: MetadataImage, delta: MetadataDelta) -> Speculative<W> {
        let first = Pending { image, delta, answers: Vec::new() };
        Speculative { committed: Arc::default(), pending: VecDeque::from([first]) }
    }

    /// What decisions see.
    pub fn ahead(&self) -> &MetadataImage {
        self.pending.back().map_or(&self.committed, |newest| &newest.image)
    }

    /// What everybody else sees.
    pub fn committed(&self) -> &Arc<MetadataImage> {
        &self.committed
    }

    /// What batches would make of the image ahead, one after the other; nothing is changed.
    ///
    /// # Errors
    /// Records that contradict the image.
    pub fn try_apply(
        &self,
        batches: &[Vec<MetadataRecord>],
    ) -> Result<Vec<(MetadataImage, MetadataDelta)>, ReplayError> {
        let mut image = self.ahead().clone();
        let mut images = Vec::with_capacity(batches.len());
        for records in batches {
            let mut delta = MetadataDelta::default();
            for record in records {
                image.apply(record, &mut delta)?;
            }
            images.push((image.clone(), delta));
        }
        Ok(images)
    }

    /// A batch was written: what `try_apply` made of it, and where its last record is.
    pub fn push(&mut self, mut image: MetadataImage, delta: MetadataDelta, provenance: Provenance) {
        image.set_provenance(provenance);
        self.pending.push_back(Pending { image, delta, answers: Vec::new() });
    }

    /// Keeps an answer until all that is pending now is committed; gives it back where nothing is.
    pub fn wait(&mut self, answer: W) -> Option<W> {
        match self.pending.back_mut() {
            Some(newest) => {
                newest.answers.push(answer);
                None
            }
            None => Some(answer),
        }
    }

    /// Everything below `high_watermark` is committed.
    pub fn commit(&mut self, high_watermark: Offset) -> Vec<Committed<W>> {
        let mut committed = Vec::new();
        while let Some(next) = self.pending.front()
            && next.image.provenance().offset < high_watermark
            && let Some(Pending { image, delta, answers }) = self.pending.pop_front()
        {
            self.committed = Arc::new(image);
            committed.push(Committed { image: self.committed.clone(), delta: Arc::new(delta), answers });
        }
        committed
    }

    /// This node leads no longer: what is pending is somebody else's to decide. Dropped answers tell
    /// those who wait.
    pub fn drop_pending(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{Epoch, Timestamp, TopicId};
    use tarn_wire::messages::{RemoveTopicRecord, TopicRecord};

    #[test]
    fn a_decision_sees_what_is_on_its_way_and_nobody_else_does() {
        let mut metadata = empty();
        write(&mut metadata, topic("a"), 3);
        assert!(metadata.ahead().topics().by_name("a").is_some());
        assert!(metadata.committed().topics().by_name("a").is_none());
        assert!(metadata.commit(Offset(3)).is_empty(), "the record at offset 3 is not below 3");
        assert_eq!(metadata.commit(Offset(4)).len(), 1);
        assert!(metadata.committed().topics().by_name("a").is_some());
    }

    #[test]
    fn an_answer_waits_for_everything_that_it_rests_on() {
        let mut metadata = empty();
        assert_eq!(metadata.wait("at once"), Some("at once"));
        write(&mut metadata, topic("a"), 3);
        write(&mut metadata, topic("b"), 4);
        assert_eq!(metadata.wait("later"), None);
        assert_eq!(answers(metadata.commit(Offset(4))), [""; 0]);
        assert_eq!(answers(metadata.commit(Offset(5))), ["later"]);
    }

    #[test]
    fn a_batch_that_contradicts_the_image_is_found_before_it_is_written() {
        let metadata = empty();
        let unknown = RemoveTopicRecord { topic_id: TopicId::random().0 };
        assert!(metadata.try_apply(&[vec![unknown.into()]]).is_err());
    }

    fn empty() -> Speculative<&'static str> {
        let mut metadata = Speculative::loaded(MetadataImage::default(), MetadataDelta::default());
        metadata.commit(Offset(1));
        metadata
    }

    fn write(metadata: &mut Speculative<&'static str>, record: MetadataRecord, offset: i64) {
        let mut applied = metadata.try_apply(&[vec![record]]).expect("it fits the image");
        let (image, delta) = applied.remove(0);
        metadata.push(
            image,
            delta,
            Provenance { offset: Offset(offset), epoch: Epoch(1), timestamp: Timestamp(0) },
        );
    }

    fn answers(committed: Vec<Committed<&'static str>>) -> Vec<&'static str> {
        committed.into_iter().flat_map(|batch| batch.answers).collect()
    }

    fn topic(name: &str) -> MetadataRecord {
        TopicRecord { name: name.into(), topic_id: TopicId::random().0 }.into()
    }
}
