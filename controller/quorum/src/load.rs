//! From a metadata log to the image it adds up to.
//!
//! The checkpoint at offset 0 that formatting wrote is not a snapshot of the log: it holds what the first
//! leader writes into the log (KIP-1170). Transactions of metadata records (KIP-868), which Kafka writes,
//! count when they end and not at all when they are aborted or left open.

use tarn_image::features::{METADATA_VERSION_LATEST, METADATA_VERSION_OLDEST};
use tarn_image::{MetadataDelta, MetadataImage, Provenance, ReplayError};
use tarn_record::{Offset, Timestamp};
use tarn_wire::MetadataRecord;
use tarn_wire::messages::{AbortTransactionRecord, FeatureLevelRecord};
use thiserror::Error;

use crate::metadata_log::MetadataBatch;
use crate::snapshot::SnapshotId;

/// What a log held.
#[derive(Debug)]
pub struct Loaded {
    /// The image.
    pub image: MetadataImage,
    /// Everything in it, as a change from nothing.
    pub delta: MetadataDelta,
    /// What a new leader has to write before anything else.
    pub to_write: Vec<MetadataRecord>,
}

/// Why a log cannot be served.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A record that contradicts those before it, or that is not known.
    #[error("the metadata log cannot be replayed at offset {offset}: {error}")]
    Replay {
        /// The last offset of its batch.
        offset: Offset,
        /// What is wrong.
        error: ReplayError,
    },
    /// Formats that this version does not write.
    #[error(
        "the metadata log has metadata.version {level}; this version of Tarn serves {METADATA_VERSION_OLDEST} to \
         {METADATA_VERSION_LATEST}"
    )]
    MetadataVersion {
        /// The finalized level.
        level: i16,
    },
}

/// Replays a snapshot and the batches after it.
///
/// # Errors
/// Where a record cannot be replayed, or its formats are not served.
pub fn load(
    snapshot: Option<(SnapshotId, Vec<MetadataRecord>)>,
    batches: &[MetadataBatch],
) -> Result<Loaded, LoadError> {
    let mut loading = Loading::default();
    let mut bootstrap = Vec::new();
    match snapshot {
        Some((id, records)) if id.end_offset == Offset(0) => bootstrap = records,
        Some((id, records)) => loading.snapshot(id, &records)?,
        None => {}
    }
    for batch in batches {
        loading.batch(batch)?;
    }
    loading.finish(bootstrap)
}

#[derive(Default)]
struct Loading {
    image: MetadataImage,
    delta: MetadataDelta,
    before_transaction: Option<(MetadataImage, MetadataDelta)>,
    any_record: bool,
}

impl Loading {
    fn snapshot(&mut self, id: SnapshotId, records: &[MetadataRecord]) -> Result<(), LoadError> {
        let last = Offset(id.end_offset.0 - 1);
        for record in records {
            self.apply(record, last)?;
        }
        self.image.set_provenance(Provenance { offset: last, epoch: id.epoch, timestamp: Timestamp::NONE });
        Ok(())
    }

    fn batch(&mut self, batch: &MetadataBatch) -> Result<(), LoadError> {
        for record in &batch.records {
            match record {
                MetadataRecord::BeginTransaction(_) => {
                    self.before_transaction = Some((self.image.clone(), self.delta.clone()));
                    self.any_record = true;
                }
                MetadataRecord::EndTransaction(_) => self.before_transaction = None,
                MetadataRecord::AbortTransaction(_) => self.roll_back(),
                record => self.apply(record, batch.last_offset)?,
            }
        }
        let (offset, epoch, timestamp) = (batch.last_offset, batch.epoch, batch.timestamp);
        self.image.set_provenance(Provenance { offset, epoch, timestamp });
        Ok(())
    }

    fn apply(&mut self, record: &MetadataRecord, offset: Offset) -> Result<(), LoadError> {
        self.any_record = true;
        self.image.apply(record, &mut self.delta).map_err(|error| LoadError::Replay { offset, error })
    }

    fn roll_back(&mut self) {
        if let Some((image, delta)) = self.before_transaction.take() {
            let here = self.image.provenance();
            (self.image, self.delta) = (image, delta);
            self.image.set_provenance(here);
        }
    }

    fn finish(mut self, bootstrap: Vec<MetadataRecord>) -> Result<Loaded, LoadError> {
        let mut to_write = Vec::new();
        if self.before_transaction.is_some() {
            self.roll_back();
            let reason = Some("the controller that began it did not end it".into());
            to_write.push(AbortTransactionRecord { reason }.into());
        }
        if !self.any_record {
            to_write.extend(bootstrap);
        }
        let level = self.image.features().metadata_version();
        let told = |record: &MetadataRecord| matches!(record, MetadataRecord::FeatureLevel(_));
        match level {
            0 if !to_write.iter().any(told) => {
                let latest = FeatureLevelRecord {
                    name: tarn_image::features::METADATA_VERSION.into(),
                    feature_level: METADATA_VERSION_LATEST,
                };
                to_write.insert(0, latest.into());
            }
            0 | METADATA_VERSION_OLDEST..=METADATA_VERSION_LATEST => {}
            level => return Err(LoadError::MetadataVersion { level }),
        }
        Ok(Loaded { image: self.image, delta: self.delta, to_write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::Epoch;
    use tarn_wire::messages::{BeginTransactionRecord, EndTransactionRecord, TopicRecord};
    use uuid::Uuid;

    #[test]
    fn what_formatting_wrote_is_for_the_first_leader_to_write() {
        let bootstrap = || Some((SnapshotId { end_offset: Offset(0), epoch: Epoch(0) }, vec![level(33)]));
        let first = load(bootstrap(), &[]).unwrap();
        assert_eq!(first.to_write, [level(33)]);
        assert_eq!(first.image, MetadataImage::default());
        let later = load(bootstrap(), &[batch(3, vec![level(30)])]).unwrap();
        assert_eq!((later.to_write.len(), later.image.features().metadata_version()), (0, 30));
        assert_eq!(later.image.provenance().offset, Offset(3));
    }

    #[test]
    fn a_transaction_counts_when_it_has_ended() {
        let begin = || BeginTransactionRecord::default().into();
        let ended = load(
            None,
            &[batch(2, vec![level(33), begin(), topic("a")]), batch(3, vec![EndTransactionRecord {}.into()])],
        );
        assert!(ended.unwrap().image.topics().id_of("a").is_some());
        let aborted =
            vec![level(33), begin(), topic("a"), AbortTransactionRecord::default().into(), topic("a")];
        assert!(load(None, &[batch(5, aborted)]).unwrap().image.topics().id_of("a").is_some());
        let open = load(None, &[batch(2, vec![level(33), begin(), topic("a")])]).unwrap();
        assert!(open.image.topics().id_of("a").is_none());
        assert!(matches!(open.to_write.as_slice(), [MetadataRecord::AbortTransaction(_)]));
        assert_eq!(open.image.provenance().offset, Offset(2));
    }

    #[test]
    fn formats_that_are_not_served_are_refused() {
        let error = load(None, &[batch(1, vec![level(34)])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the metadata log has metadata.version 34; this version of Tarn serves 22 to 33"
        );
        let error = load(None, &[batch(1, vec![topic("a"), topic("a")])]).unwrap_err();
        assert!(error.to_string().starts_with("the metadata log cannot be replayed at offset 1: topic a"));
    }

    fn level(feature_level: i16) -> MetadataRecord {
        FeatureLevelRecord { name: "metadata.version".into(), feature_level }.into()
    }

    fn topic(name: &str) -> MetadataRecord {
        TopicRecord { name: name.into(), topic_id: Uuid::from_u128(7) }.into()
    }

    fn batch(last: i64, records: Vec<MetadataRecord>) -> MetadataBatch {
        MetadataBatch { last_offset: Offset(last), epoch: Epoch(1), timestamp: Timestamp(1), records }
    }
}
