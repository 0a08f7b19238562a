//! The numbers that name things in Kafka, each a type of its own so that two of them cannot be mixed up.
//!
//! They carry no rule but their order. What they may hold is what the protocol's field may hold: a
//! negative value is Kafka's way to say "none" and is spelled by the constant that means it.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use derive_more::Display;
use thiserror::Error;
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Display, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
    };
}

number! {
    /// An offset in a partition's log: the number of a record, starting at 0.
    Offset(i64)
}
number! {
    /// A leader epoch: Kafka's `int32`, never negative once assigned.
    Epoch(i32)
}
number! {
    /// The number of a partition within its topic, starting at 0.
    PartitionIndex(i32)
}
number! {
    /// The `node.id` of a broker or controller.
    BrokerId(i32)
}
number! {
    /// The id that InitProducerId gave to a producer (KIP-98).
    ProducerId(i64)
}
number! {
    /// How often a producer id was handed out again; a higher epoch fences the lower.
    ProducerEpoch(i16)
}
number! {
    /// A producer's number for a record on one partition; wraps from `i32::MAX` to 0.
    Sequence(i32)
}
number! {
    /// Milliseconds since 1970-01-01 UTC.
    Timestamp(i64)
}

impl Offset {
    /// No offset: unknown, or nothing to point at.
    pub const NONE: Offset = Offset(-1);

    /// The offset `records` after this one, saturating at the largest there is.
    pub fn plus(self, records: i64) -> Offset {
        Offset(self.0.saturating_add(records))
    }
}

impl Epoch {
    /// No epoch: what a producer sends, and what is not known.
    pub const NONE: Epoch = Epoch(-1);
}

impl BrokerId {
    /// No broker, as for a partition without a leader.
    pub const NONE: BrokerId = BrokerId(-1);
}

impl ProducerId {
    /// No producer id: the batch is not idempotent.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    /// No producer epoch.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl Sequence {
    /// No sequence: the batch is not idempotent.
    pub const NONE: Sequence = Sequence(-1);

    /// The sequence `records` after this one, wrapping from `i32::MAX` to 0 as producers do.
    pub fn plus(self, records: i32) -> Sequence {
        if self.0 > i32::MAX - records {
            Sequence(records - (i32::MAX - self.0) - 1)
        } else {
            Sequence(self.0 + records)
        }
    }
}

impl Timestamp {
    /// No timestamp.
    pub const NONE: Timestamp = Timestamp(-1);
}

/// The id of a topic (KIP-516): 16 bytes, written as 22 characters of unpadded URL-safe base64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub Uuid);

/// One partition, named by its topic's id so that a topic created again under the same name is another.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[display("{topic_id}-{partition}")]
pub struct TopicIdPartition {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition within it.
    pub partition: PartitionIndex,
}

/// Text that is not a topic id.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not an id: 22 characters of URL-safe base64 are expected")]
pub struct NotAnId(pub String);

impl TopicId {
    /// No topic id, as sources before Kafka 2.8 have it.
    pub const ZERO: TopicId = TopicId(Uuid::nil());
    /// The id of `__cluster_metadata`.
    pub const METADATA: TopicId = TopicId(Uuid::from_u128(1));

    /// A new id that is not reserved and whose text does not begin with '-', which command lines take
    /// for an option.
    pub fn random() -> TopicId {
        loop {
            let id = TopicId(Uuid::new_v4());
            if !id.to_string().starts_with('-') {
                return id;
            }
        }
    }

    /// True for the id that says "none".
    pub fn is_zero(self) -> bool {
        self == TopicId::ZERO
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0.as_bytes()))
    }
}

impl FromStr for TopicId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<TopicId, NotAnId> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotAnId(text.to_owned()))?;
        Uuid::from_slice(&bytes).map(TopicId).map_err(|_| NotAnId(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_wraps_to_zero_after_the_largest() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
        assert_eq!(Sequence(7).plus(3), Sequence(10));
    }

    #[test]
    fn the_metadata_topic_has_the_id_that_kafka_prints() {
        assert_eq!(TopicId::METADATA.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ".parse(), Ok(TopicId::METADATA));
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        assert_eq!("short".parse::<TopicId>(), Err(NotAnId("short".into())));
    }

    #[test]
    fn a_random_id_reads_back_and_never_looks_like_an_option() {
        for _ in 0..1000 {
            let id = TopicId::random();
            let text = id.to_string();
            assert!(!text.starts_with('-'));
            assert_eq!(text.parse(), Ok(id));
        }
    }
}
