//! What the world appends: batches whose stored bytes are known beforehand.

use bytes::Bytes;
use tarn_record::builder::{EndTransaction, Outcome, end_transaction_marker};
use tarn_record::{
    BatchBuilder, ClientBatch, Compression, ControlType, Epoch, Offset, ProduceRules, ProducerEpoch,
    ProducerId, Record, Sequence, Timestamp, TimestampType, ValidBatch, client_batch, control_batch,
};

use super::doubts::Doubt;

/// A batch of the history: where it is, its bytes, and what they mean.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) base: i64,
    pub(crate) last: i64,
    pub(crate) epoch: i32,
    pub(crate) bytes: Bytes,
    pub(crate) meaning: Meaning,
    /// Of each record, in ms.
    pub(crate) timestamps: Vec<i64>,
    pub(crate) doubt: Doubt,
}

/// What a batch says about producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Records(Sent),
    Marker {
        id: i64,
        epoch: i16,
        aborted: bool,
    },
    /// MIRROR_PID_RESET.
    Reset,
}

/// What a producer put into a batch's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// −1 for a producer that is not idempotent.
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) first_sequence: i32,
    pub(crate) records: i32,
    pub(crate) transactional: bool,
}

impl Sent {
    pub(crate) fn last_sequence(&self) -> i32 {
        ((i64::from(self.first_sequence) + i64::from(self.records) - 1) % (1 << 31)) as i32
    }
}

/// Where and when a batch is appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) base: i64,
    pub(crate) epoch: i32,
    pub(crate) now_ms: i64,
}

/// A batch of records as a client sends it, and as the log must store it.
pub(crate) struct Prepared {
    pub(crate) client: ClientBatch,
    pub(crate) stored: Stored,
}

/// A batch of records with random content.
pub(crate) fn records(rng: &mut fastrand::Rng, sent: Sent, place: Place, kind: TimestampType) -> Prepared {
    let timestamps: Vec<i64> = (0..sent.records).map(|_| place.now_ms + rng.i64(-20..20)).collect();
    let mut value = vec![0; rng.usize(0..120)];
    rng.fill(&mut value);
    let build = |base: i64, epoch: i32, kind| {
        let mut builder = BatchBuilder::new(Offset(base), Compression::None)
            .leader_epoch(Epoch(epoch))
            .producer(ProducerId(sent.id), ProducerEpoch(sent.epoch), Sequence(sent.first_sequence));
        if sent.transactional {
            builder = builder.transactional();
        }
        if kind == TimestampType::LogAppendTime {
            builder = builder.log_append_time(Timestamp(place.now_ms));
        }
        for &timestamp in &timestamps {
            let timestamp = Timestamp(timestamp);
            builder.add(&Record { value: Some(&value), timestamp, ..Record::default() });
        }
        builder.build()
    };
    let sent_bytes = build(0, -1, TimestampType::CreateTime);
    let stored_bytes = build(place.base, place.epoch, kind);
    let stored_timestamps = match kind {
        TimestampType::CreateTime => timestamps,
        TimestampType::LogAppendTime => vec![place.now_ms; timestamps.len()],
    };
    let stored = stored(stored_bytes, place, Meaning::Records(sent), stored_timestamps);
    let client =
        client_batch(sent_bytes, &RULES, Timestamp(place.now_ms)).expect("the world sends good batches");
    Prepared { client, stored }
}

/// The end of a producer's transaction.
pub(crate) fn marker(id: i64, epoch: i16, aborted: bool, place: Place) -> Stored {
    let end = EndTransaction {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        outcome: if aborted { Outcome::Abort } else { Outcome::Commit },
        coordinator_epoch: 3,
    };
    let bytes = end_transaction_marker(&end, Offset(place.base), Epoch(place.epoch), Timestamp(place.now_ms));
    stored(bytes, place, Meaning::Marker { id, epoch, aborted }, vec![place.now_ms])
}

/// The record that makes all producer state void.
pub(crate) fn reset(place: Place) -> Stored {
    let (base, epoch) = (Offset(place.base), Epoch(place.epoch));
    let bytes = control_batch(ControlType::MirrorPidReset, &[0, 0], base, epoch, Timestamp(place.now_ms));
    stored(bytes, place, Meaning::Reset, vec![place.now_ms])
}

fn stored(bytes: Bytes, place: Place, meaning: Meaning, timestamps: Vec<i64>) -> Stored {
    let last = place.base + timestamps.len() as i64 - 1;
    let doubt = Doubt::default();
    Stored { base: place.base, last, epoch: place.epoch, bytes, meaning, timestamps, doubt }
}

impl Stored {
    /// The batch as another leader's follower or a mirror receives it.
    pub(crate) fn valid(&self) -> ValidBatch {
        ValidBatch::parse(self.bytes.clone()).expect("the world builds good batches")
    }
}

const RULES: ProduceRules = ProduceRules {
    max_batch_bytes: 1 << 20,
    segment_bytes: i32::MAX as usize,
    compacted: false,
    timestamp_type: TimestampType::CreateTime,
    before_max_ms: i64::MAX,
    after_max_ms: i64::MAX,
    zstd_allowed: true,
    decompressed_limit: 1 << 20,
    record_max: usize::MAX,
    recompress: None,
};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A batch of one record in a producer's transaction.
    pub(crate) fn in_transaction(id: i64, base: i64) -> Stored {
        let sent = Sent { id, epoch: 0, first_sequence: base as i32, records: 1, transactional: true };
        records(&mut fastrand::Rng::with_seed(0), sent, at(base), TimestampType::CreateTime).stored
    }

    /// The marker that aborts it.
    pub(crate) fn abort(id: i64, base: i64) -> Stored {
        marker(id, 0, true, at(base))
    }

    fn at(base: i64) -> Place {
        Place { base, epoch: 0, now_ms: 0 }
    }
}
