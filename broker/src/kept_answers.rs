//! Answers that many clients get alike, kept encoded for as long as the metadata is what they were made of.
//!
//! Where a source has failed over, every client asks for the same at once.
//!
//! Invariant: an answer is given only to who sees the very image that it was made of. It does not keep that image, and goes
//! with the next answer once nobody sees the image any more.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tarn_image::MetadataImage;
use tarn_wire::frame::Frame;

use crate::limits;
use crate::metrics::ErrorCounts;

/// The answers to one question, by image, listener and version.
#[derive(Default)]
pub struct KeptAnswers {
    kept: Mutex<Vec<Kept>>,
}

/// One answer.
#[derive(Clone)]
pub struct KeptAnswer {
    /// As it is sent, to some other request.
    pub frame: Frame,
    /// The errors in it, which count each time that it is sent.
    pub errors: Arc<ErrorCounts>,
}

struct Kept {
    image: Weak<MetadataImage>,
    listener: String,
    version: i16,
    answer: KeptAnswer,
}

impl KeptAnswers {
    /// The answer that was made of this very image.
    pub fn find(&self, image: &Arc<MetadataImage>, listener: &str, version: i16) -> Option<KeptAnswer> {
        let kept = self.lock();
        let is_it = |kept: &&Kept| kept.is_of(image) && kept.is_for(listener, version);
        kept.iter().find(is_it).map(|kept| kept.answer.clone())
    }

    /// Keeps an answer.
    pub fn keep(&self, image: &Arc<MetadataImage>, listener: &str, version: i16, answer: KeptAnswer) {
        let mut kept = self.lock();
        let is_same = |kept: &Kept| kept.is_of(image) && kept.is_for(listener, version);
        kept.retain(|kept| kept.image.strong_count() > 0 && !is_same(kept));
        kept.truncate(limits::ANSWERS_KEPT - 1);
        let (image, listener) = (Arc::downgrade(image), listener.to_owned());
        kept.insert(0, Kept { image, listener, version, answer });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn is_of(&self, image: &Arc<MetadataImage>) -> bool {
        // As long as this is kept no other image is at its place.
        ptr::eq(self.image.as_ptr(), Arc::as_ptr(image))
    }

    fn is_for(&self, listener: &str, version: i16) -> bool {
        (&*self.listener, self.version) == (listener, version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_its_image_listener_and_version_and_few_are() {
        let (answers, image) = (KeptAnswers::default(), Arc::new(MetadataImage::default()));
        let frame = |len| KeptAnswer {
            frame: Frame { parts: Vec::new(), len },
            errors: Arc::new(ErrorCounts::default()),
        };
        answers.keep(&image, "PLAINTEXT", 12, frame(1));
        answers.keep(&image, "PLAINTEXT", 12, frame(2));
        answers.keep(&image, "SSL", 12, frame(3));
        let found = |image: &Arc<_>, listener, version| {
            answers.find(image, listener, version).map(|answer| answer.frame.len)
        };
        assert_eq!((found(&image, "PLAINTEXT", 12), found(&image, "SSL", 12)), (Some(2), Some(3)));
        assert_eq!(found(&image, "SSL", 11), None);
        let later = Arc::new(MetadataImage::default());
        assert_eq!(found(&later, "SSL", 12), None);
        answers.keep(&later, "SSL", 12, frame(4));
        assert_eq!(
            (found(&image, "SSL", 12), found(&later, "SSL", 12)),
            (Some(3), Some(4)),
            "some see the old one"
        );
        drop(image);
        answers.keep(&later, "SSL", 13, frame(5));
        assert_eq!(answers.lock().len(), 2, "nobody sees the old one any more");
        (0..10).for_each(|version| answers.keep(&later, "SSL", version, frame(5)));
        assert_eq!(answers.lock().len(), limits::ANSWERS_KEPT);
    }
}
