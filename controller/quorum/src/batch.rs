//! Metadata records in record batches, as Kafka's metadata log and its snapshots hold them.
//!
//! A data record has no key; its value is the framed metadata record. Control records carry the quorum's
//! own words: who leads, who votes, where a snapshot begins and ends.

use bytes::Bytes;
use tarn_record::builder::{BatchBuilder, Record};
use tarn_record::{Compression, ControlRecord, ControlType, Epoch, Offset, Timestamp, ValidBatch};
use tarn_wire::messages::leader_change_message::Voter as GrantingVoter;
use tarn_wire::messages::voters_record::{Endpoint, KRaftVersionFeature, Voter};
use tarn_wire::messages::{KRaftVersionRecord, LeaderChangeMessage, VotersRecord};
use tarn_wire::{EncodeError, Message, MetadataRecord, Part, PartsWriter};
use thiserror::Error;
use uuid::Uuid;

/// The largest batch that is read back, decompressed.
const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The newest record formats of dynamic quorums (KIP-853).
const KRAFT_VERSION_MAX: i16 = 1;

/// A batch that does not hold metadata.
#[derive(Debug, Error)]
#[error("the batch at offset {offset} holds no metadata: {detail}")]
pub struct NotMetadata {
    /// Its first offset.
    pub offset: Offset,
    /// What is wrong.
    pub detail: String,
}

/// The voter of a dynamic quorum, as the log names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterName {
    /// Its `node.id`.
    pub id: i32,
    /// The id of its metadata log directory.
    pub directory_id: Uuid,
    /// Its controller listeners: name, host, port.
    pub endpoints: Vec<(String, String, u16)>,
}

/// A batch of metadata records at `base_offset`.
///
/// # Errors
/// A record that its version cannot hold.
pub fn data(
    records: &[MetadataRecord],
    base_offset: Offset,
    epoch: Epoch,
    now: Timestamp,
) -> Result<Bytes, EncodeError> {
    let mut batch = BatchBuilder::new(base_offset, Compression::None).leader_epoch(epoch).timestamp(now);
    for record in records {
        let value = record.encode(record.latest_version())?;
        batch.add(&Record { key: None, value: Some(&value), headers: &[], timestamp: now });
    }
    Ok(batch.build())
}

/// A batch of control records at `base_offset`.
pub fn control(records: &[(ControlType, Bytes)], base_offset: Offset, epoch: Epoch, now: Timestamp) -> Bytes {
    let batch = BatchBuilder::new(base_offset, Compression::None);
    let mut batch = batch.leader_epoch(epoch).timestamp(now).control();
    for (kind, value) in records {
        batch.add(&Record { key: Some(&kind.key()), value: Some(value), headers: &[], timestamp: now });
    }
    batch.build()
}

/// The first records of an epoch: its LeaderChange, and in the first of a dynamic quorum also who votes.
///
/// # Errors
/// A name that is too long for the log.
pub fn leader_change(
    leader: i32,
    voters: Option<&VoterName>,
) -> Result<Vec<(ControlType, Bytes)>, EncodeError> {
    let voter = GrantingVoter { voter_id: leader, ..Default::default() };
    let change = LeaderChangeMessage {
        version: 0,
        leader_id: leader,
        voters: vec![voter.clone()],
        granting_voters: vec![voter],
    };
    let mut records = vec![(ControlType::LeaderChange, encoded(&change, 0)?)];
    if let Some(voter) = voters {
        records.extend(dynamic_quorum(voter)?);
    }
    Ok(records)
}

/// What makes a quorum dynamic: its version and its voters.
///
/// # Errors
/// A name that is too long for the log.
pub fn dynamic_quorum(voter: &VoterName) -> Result<Vec<(ControlType, Bytes)>, EncodeError> {
    let version = KRaftVersionRecord { version: 0, kraft_version: KRAFT_VERSION_MAX };
    let endpoints = voter.endpoints.iter().map(|(name, host, port)| Endpoint {
        name: name.as_str().into(),
        host: host.as_str().into(),
        port: *port,
    });
    let voters = VotersRecord {
        version: 0,
        voters: vec![Voter {
            voter_id: voter.id,
            voter_directory_id: voter.directory_id,
            endpoints: endpoints.collect(),
            kraft_version_feature: KRaftVersionFeature {
                min_supported_version: 0,
                max_supported_version: KRAFT_VERSION_MAX,
            },
        }],
    };
    Ok(vec![
        (ControlType::KRaftVersion, encoded(&version, 0)?),
        (ControlType::KRaftVoters, encoded(&voters, 0)?),
    ])
}

/// A message as the value of a control record.
///
/// # Errors
/// A field that the version cannot hold.
pub fn encoded<M: Message>(message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut writer = PartsWriter::with_capacity(message.encoded_size(version)?);
    message.encode(&mut writer, version)?;
    let parts = writer.into_parts().into_iter();
    // A control record holds no records of others, so nothing of it is in a file.
    let bytes = parts.filter_map(|part| match part {
        Part::Bytes(bytes) => Some(bytes),
        Part::File(_) => None,
    });
    Ok(bytes.flatten().collect())
}

/// The metadata records of a batch; none of a control batch.
///
/// # Errors
/// A record that cannot be read.
pub fn records_of(batch: &ValidBatch) -> Result<Vec<MetadataRecord>, NotMetadata> {
    let offset = batch.header().base_offset;
    let fail = |detail: String| NotMetadata { offset, detail };
    if batch.header().is_control() {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    let mut reader = batch.reader(BATCH_BYTES_MAX).map_err(|error| fail(error.to_string()))?;
    while let Some(record) = reader.next() {
        let record = record.map_err(|error| fail(error.to_string()))?;
        let value = record.value.ok_or_else(|| fail("a record without a value".to_owned()))?;
        let value = Bytes::copy_from_slice(value);
        records.push(MetadataRecord::decode(value).map_err(|error| fail(error.to_string()))?);
    }
    Ok(records)
}

/// The first control record of a batch, where it is one.
pub fn control_of(batch: &ValidBatch) -> Option<ControlType> {
    ControlRecord::parse(batch).map(|record| record.control_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_wire::messages::{FeatureLevelRecord, NoOpRecord};

    #[test]
    fn records_read_back_as_they_were_written() {
        let feature = FeatureLevelRecord { name: "metadata.version".into(), feature_level: 33 };
        let records = vec![MetadataRecord::from(feature), MetadataRecord::from(NoOpRecord::default())];
        let batch = data(&records, Offset(5), Epoch(2), Timestamp(7)).expect("they fit");
        let batch = ValidBatch::parse(batch).expect("it is a batch");
        assert_eq!((batch.header().base_offset, batch.header().last_offset()), (Offset(5), Offset(6)));
        assert_eq!(batch.header().leader_epoch, Epoch(2));
        assert_eq!(records_of(&batch).expect("they are metadata"), records);
    }

    #[test]
    fn the_leader_change_has_the_bytes_that_kafka_writes() {
        let records = leader_change(1, None).expect("it fits");
        assert_eq!(records.len(), 1);
        assert_eq!(&records[0].1[..], [0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0]);
        let batch = ValidBatch::parse(control(&records, Offset(0), Epoch(1), Timestamp(1)));
        let batch = batch.expect("it is a batch");
        assert_eq!(control_of(&batch), Some(ControlType::LeaderChange));
        assert_eq!(records_of(&batch).expect("a control batch has none"), []);
    }

    #[test]
    fn a_batch_of_something_else_is_an_error() {
        let mut builder = BatchBuilder::new(Offset(9), Compression::None);
        builder.add(&Record { value: Some(b"no metadata"), ..Record::default() });
        let batch = ValidBatch::parse(builder.build()).expect("it is a batch");
        assert!(records_of(&batch).is_err());
    }
}
