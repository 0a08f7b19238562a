//! How much of the metadata is kept: Kafka's rules for old snapshots and the log below them.
//!
//! A snapshot stands in for the log below its end, so the oldest snapshot and that part of the log go
//! together, as soon as a newer snapshot is there: when log and snapshots are too large, or the oldest
//! snapshot is too old. The newest snapshot and the log after it always stay.

use tarn_image::config::server::MetadataLogConfig;
use tarn_record::Timestamp;

use crate::snapshot::SnapshotId;

/// A snapshot that is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptSnapshot {
    /// What it contains.
    pub id: SnapshotId,
    /// The size of its file.
    pub bytes: u64,
    /// When the last record it contains was written; `None` where the file does not say.
    pub last_timestamp: Option<Timestamp>,
}

/// The snapshot up to which everything older is to go next, where something is; `snapshots` from the
/// oldest to the newest.
pub fn next_to_keep(
    snapshots: &[KeptSnapshot],
    log_bytes: u64,
    limits: &MetadataLogConfig,
    now: Timestamp,
) -> Option<SnapshotId> {
    let [oldest, next, ..] = snapshots else { return None };
    let bytes = log_bytes + snapshots.iter().map(|snapshot| snapshot.bytes).sum::<u64>();
    let is_too_large = u64::try_from(limits.max_retention_bytes).is_ok_and(|limit| bytes > limit);
    let is_too_old = limits.max_retention_ms >= 0
        && oldest.last_timestamp.is_some_and(|last| now.0 - last.0 > limits.max_retention_ms);
    (is_too_large || is_too_old).then_some(next.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{Epoch, Offset};

    #[test]
    fn the_oldest_goes_while_all_together_are_too_large() {
        let three = [snapshot(10, 0), snapshot(20, 0), snapshot(30, 0)];
        assert_eq!(next_to_keep(&three, 700, &limits(1000, -1), Timestamp(0)), None, "just the limit");
        assert_eq!(next_to_keep(&three, 701, &limits(1000, -1), Timestamp(0)), Some(three[1].id));
        assert_eq!(next_to_keep(&three[1..], 900, &limits(1000, -1), Timestamp(0)), Some(three[2].id));
    }

    #[test]
    fn the_oldest_goes_when_what_it_ends_with_is_too_old() {
        let two = [snapshot(10, 1000), snapshot(20, 2000)];
        assert_eq!(next_to_keep(&two, 0, &limits(-1, 500), Timestamp(1500)), None);
        assert_eq!(next_to_keep(&two, 0, &limits(-1, 500), Timestamp(1501)), Some(two[1].id));
    }

    #[test]
    fn the_newest_snapshot_stays_whatever_the_limits_say() {
        assert_eq!(next_to_keep(&[snapshot(10, 0)], 5000, &limits(1, 1), Timestamp(5000)), None);
        assert_eq!(next_to_keep(&[], 5000, &limits(1, 1), Timestamp(5000)), None);
    }

    #[test]
    fn negative_limits_are_none() {
        let two = [snapshot(10, 0), snapshot(20, 0)];
        assert_eq!(next_to_keep(&two, u64::MAX / 2, &limits(-1, -1), Timestamp(i64::MAX)), None);
    }

    /// A snapshot of 100 bytes.
    fn snapshot(end_offset: i64, last_timestamp: i64) -> KeptSnapshot {
        let id = SnapshotId { end_offset: Offset(end_offset), epoch: Epoch(1) };
        KeptSnapshot { id, bytes: 100, last_timestamp: Some(Timestamp(last_timestamp)) }
    }

    fn limits(max_retention_bytes: i64, max_retention_ms: i64) -> MetadataLogConfig {
        MetadataLogConfig {
            segment_bytes: 1000,
            segment_ms: 1000,
            max_record_bytes_between_snapshots: 1000,
            max_snapshot_interval_ms: 0,
            max_idle_interval_ms: 0,
            max_retention_bytes,
            max_retention_ms,
        }
    }
}
