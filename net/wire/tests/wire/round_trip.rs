//! What is written is read back as it was, and the size was known before.

use std::fmt::Debug;

use bytes::Bytes;
use tarn_wire::messages::*;
use tarn_wire::{
    Cursor, Message, MetadataRecord, PartsWriter, Records, decode_key, decode_value, encode_key, encode_value,
};

use crate::maker::{Instance, case, every_message};

const SEEDS: u64 = 24;

/// `message` in `version`, as one piece.
pub(crate) fn encoded<M: Message>(message: &M, version: i16) -> Bytes {
    let mut writer = PartsWriter::default();
    message.encode(&mut writer, version).unwrap_or_else(|error| panic!("{} v{version}: {error}", M::NAME));
    let mut all = Records::default();
    writer.into_parts().into_iter().for_each(|part| all.push(part));
    all.to_bytes().expect("no instance has a part in a file")
}

fn comes_back<M: Message + Instance + Debug + PartialEq>() {
    for version in M::MIN_VERSION..=M::MAX_VERSION {
        for seed in 0..SEEDS {
            let message: M = case(seed, version);
            let bytes = encoded(&message, version);
            let at = format!("{} v{version} seed {seed}", M::NAME);
            assert_eq!(message.encoded_size(version), Ok(bytes.len()), "{at}");

            let mut cursor = Cursor::new(bytes);
            let back = M::decode(&mut cursor, version).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(cursor.remaining(), 0, "{at}");
            assert_eq!(back, message, "{at}");
        }
    }
}

#[test]
fn every_message_comes_back_in_every_version() {
    macro_rules! check {
        ($message:ident) => {
            comes_back::<$message>();
        };
    }
    every_message!(check);
}

#[test]
fn every_default_can_be_written_in_the_latest_version() {
    macro_rules! check {
        ($message:ident) => {
            assert!($message::default().encoded_size($message::MAX_VERSION).is_ok(), "{}", $message::NAME);
        };
    }
    every_message!(check);
}

#[test]
fn versions_outside_the_schema_are_refused_both_ways() {
    macro_rules! check {
        ($message:ident) => {
            for version in [$message::MIN_VERSION - 1, $message::MAX_VERSION + 1, i16::MIN, i16::MAX] {
                assert!($message::default().encoded_size(version).is_err(), "{}", $message::NAME);
                assert!($message::decode(&mut Cursor::new(Bytes::new()), version).is_err());
            }
        };
    }
    every_message!(check);
}

#[test]
fn metadata_records_come_back_out_of_their_frame() {
    fn check<M: Message + Instance + Into<MetadataRecord>>() {
        for version in M::MIN_VERSION..=M::MAX_VERSION {
            for seed in 0..SEEDS {
                let record: MetadataRecord = case::<M>(seed, version).into();
                let value = record.encode(version).unwrap();
                assert_eq!(value[0], 1, "the framing's version");
                assert_eq!(i16::from(value[1]), record.api_key());
                assert_eq!(i16::from(value[2]), version);
                assert_eq!(MetadataRecord::decode(value).as_ref(), Ok(&record));
            }
        }
    }
    check::<RegisterBrokerRecord>();
    check::<TopicRecord>();
    check::<PartitionRecord>();
    check::<PartitionChangeRecord>();
    check::<ConfigRecord>();
    check::<FeatureLevelRecord>();
    check::<BrokerRegistrationChangeRecord>();
    check::<ProducerIdsRecord>();
    check::<NoOpRecord>();
    check::<ClientQuotaRecord>();
    check::<UserScramCredentialRecord>();
}

#[test]
fn coordinator_records_come_back_with_their_type_and_version() {
    macro_rules! check {
        ($key:ident, $value:ident) => {
            for seed in 0..SEEDS {
                let key: $key = case(seed, 0);
                let bytes = encode_key(&key).unwrap();
                assert_eq!(decode_key::<$key>(bytes).as_ref(), Ok(&key));
                for version in $value::MIN_VERSION..=$value::MAX_VERSION {
                    let value: $value = case(seed, version);
                    let bytes = encode_value(&value, version).unwrap();
                    assert_eq!(bytes[..2], version.to_be_bytes());
                    assert_eq!(decode_value::<$value>(bytes).as_ref(), Ok(&value));
                }
            }
        };
    }
    check!(OffsetCommitKey, OffsetCommitValue);
    check!(GroupMetadataKey, GroupMetadataValue);
    check!(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue);
    check!(TransactionLogKey, TransactionLogValue);
    check!(MirrorPositionKey, MirrorPositionValue);
    check!(MirrorPartitionStateKey, MirrorPartitionStateValue);
    check!(MirrorFailoverReportKey, MirrorFailoverReportValue);
    check!(MirrorManagedKey, MirrorManagedValue);
    check!(MirrorGroupReportKey, MirrorGroupReportValue);
}
