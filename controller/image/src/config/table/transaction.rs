//! Transactions and producer ids.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// Longest wait before adding partitions to a transaction is tried again on the broker.
    "add.partitions.to.txn.retry.backoff.max.ms": Int = "100", AtLeast(0), ReadOnly;
    /// First wait before adding partitions to a transaction is tried again on the broker.
    "add.partitions.to.txn.retry.backoff.ms": Int = "20", AtLeast(1), ReadOnly;
    /// Silence after which a partition forgets a producer.
    "producer.id.expiration.ms": Int = "86400000", AtLeast(1), ClusterWide;
    /// How often timed-out transactions are looked for.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": Int = "10000", AtLeast(1), ReadOnly;
    /// Largest transaction timeout that a producer may ask for.
    "transaction.max.timeout.ms": Int = "900000", AtLeast(1), ReadOnly;
    /// Whether a partition checks that a transaction really contains it.
    "transaction.partition.verification.enable": Boolean = "true", Any, ClusterWide;
    /// How often expired transactional ids are removed.
    "transaction.remove.expired.transaction.cleanup.interval.ms": Int = "3600000", AtLeast(1), ReadOnly;
    /// Bytes read at once when transaction state is loaded.
    "transaction.state.log.load.buffer.size": Int = "5242880", AtLeast(1), ReadOnly;
    /// Least in-sync replicas of `__transaction_state`.
    "transaction.state.log.min.isr": Int = "2", AtLeast(1), ReadOnly;
    /// Partitions of `__transaction_state`.
    "transaction.state.log.num.partitions": Int = "50", AtLeast(1), ReadOnly;
    /// Replicas of `__transaction_state`.
    "transaction.state.log.replication.factor": Short = "3", AtLeast(1), ReadOnly;
    /// Largest segment of `__transaction_state`.
    "transaction.state.log.segment.bytes": Int = "104857600", AtLeast(1), ReadOnly;
    /// Whether producers may prepare transactions for an outside coordinator.
    "transaction.two.phase.commit.enable": Boolean = "false", Any, ReadOnly;
    /// Silence after which a transactional id is forgotten.
    "transactional.id.expiration.ms": Int = "604800000", AtLeast(1), ReadOnly;
};
