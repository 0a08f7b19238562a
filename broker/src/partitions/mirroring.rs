//! What mirrors append, and truncations that they ask for.

use tarn_mirror::local_cluster::{LocalError, MirrorAppend, MirrorAppended};
use tarn_record::{Offset, Timestamp, TopicIdPartition};
use tarn_wire::ErrorCode;
use tracing::info;

use super::{Partitions, answer};
use crate::replica::Replica;

impl Partitions {
    /// Appends what a mirror fetched; `absence` says why a partition is not here.
    pub fn append_mirrored(
        &mut self,
        append: &MirrorAppend,
        now: Timestamp,
        absence: impl Fn(TopicIdPartition) -> LocalError,
    ) -> MirrorAppended {
        let Some(replica) = self.replicas.get_mut(&append.partition) else {
            return match absence(append.partition) {
                LocalError::Storage { reason, .. } => MirrorAppended::Storage(reason),
                LocalError::NotLeader(_)
                | LocalError::Unanswered { .. }
                | LocalError::NotEnded { .. }
                | LocalError::NotTruncated { .. }
                | LocalError::Export { .. } => MirrorAppended::NotLeader,
            };
        };
        let before = (replica.high_watermark(), replica.log().start());
        let held_records = before.1 < replica.log().end();
        let appended = replica.append_mirrored(append, now);
        if held_records && replica.log().start() == replica.log().end() {
            tell_emptied(replica, before.1);
        }
        self.removals.extend(replica.take_removals());
        let has_news = before != (replica.high_watermark(), replica.log().start());
        self.note_appended(append.partition, now);
        if has_news {
            self.news_of(append.partition);
        }
        appended
    }

    /// The first of these of whose logs a truncation has dropped a part, and failed.
    pub(crate) fn half_cut(
        &self,
        partitions: impl IntoIterator<Item = TopicIdPartition>,
    ) -> Option<TopicIdPartition> {
        let is_half_cut = |partition: &TopicIdPartition| {
            self.replicas.get(partition).is_some_and(|it| it.log().is_half_cut())
        };
        partitions.into_iter().find(is_half_cut)
    }

    /// The log of a partition was cut: those who read it are told, and what waits for records that may be gone
    /// is not confirmed any more, whatever is appended in their place.
    pub fn was_truncated(&mut self, partition: TopicIdPartition) {
        self.collect_removals(partition);
        self.news_of(partition);
        answer(self.waiting.fail(partition, ErrorCode::NOT_LEADER_OR_FOLLOWER));
    }
}

/// Says that the source has removed all that was here.
fn tell_emptied(replica: &Replica, from: Offset) {
    let (topic, partition, to) = (replica.topic(), replica.partition().partition, replica.log().start());
    info!(%topic, %partition, %from, %to, "the source has removed all that was mirrored, and so has this cluster");
}
