//! What a lane does with an answer: take what is whole, append it, and correct the plan.

use std::sync::Arc;
use std::time::Duration;

use tarn_record::{Offset, TopicIdPartition};
use tarn_runtime::yield_if_needed;
use tarn_wire::ErrorCode;
use tarn_wire::messages::FetchResponse;

use super::{Lane, LaneReport, Leaving};
use crate::backoff::Backoff;
use crate::fetch::budget::size_of;
use crate::fetch::intake::{self, Fault};
use crate::fetch::plan::{News, Received, What};
use crate::gaps::Gap;
use crate::limits;
use crate::local_cluster::{LocalCluster, MirrorAppend, MirrorAppended};

/// What one response gives to append.
#[derive(Debug, Default)]
pub(super) struct TakenResponse {
    appends: Vec<MirrorAppend>,
    /// Beside each append.
    places: Vec<Place>,
    /// Of batches.
    pub(super) bytes: usize,
}

/// Where an append stands in its partition.
#[derive(Debug)]
struct Place {
    partition: TopicIdPartition,
    serial: u64,
    next: Offset,
    gaps: Vec<Gap>,
    /// Once this is appended, the partition is well: it holds something new, or all that the source has.
    ends_failure: bool,
}

impl<C: LocalCluster> Lane<C> {
    /// The broker has answered: it is alive, whatever it says.
    pub(super) fn answered(&mut self, response: &FetchResponse, asked_at_ms: u64) {
        let now_ms = self.now_ms();
        // Held back by its quota, a source leaves every partition out: that says nothing of them.
        let throttled_ms = u64::try_from(response.throttle_time_ms).unwrap_or(0);
        let is_held_back = throttled_ms > 0 && response.responses.is_empty();
        let code = ErrorCode(response.error_code);
        if !is_held_back && code == ErrorCode::NONE {
            self.spec.progress.alive();
            self.response_bytes.answered(size_of(response));
        }
        self.spec.metrics.fetches.add(1);
        self.spec.metrics.fetch_ms.add(now_ms.saturating_sub(asked_at_ms));
        // A session that is lost once begins anew; what answers nothing else does not serve its partitions.
        let is_refused = code != ErrorCode::NONE && (!is_about_sessions(code) || self.sessions_lost > 0);
        if is_refused {
            self.link.refused(now_ms, code);
            self.show_link();
        } else if self.link.answered() {
            self.show_link();
        }
        if throttled_ms > 0 {
            let most = limits::THROTTLE_MAX.as_millis() as u64;
            self.not_before_ms = now_ms + throttled_ms.min(most);
        }
        if throttled_ms >= limits::THROTTLE_SHOWN_MS {
            self.link.held_back(now_ms, throttled_ms);
            self.show_link();
        }
    }

    /// Hands the answer to the plan.
    pub(super) fn receive(&mut self, response: FetchResponse) -> Received {
        let received = self.plan.receive(response);
        match &received {
            Received::News(_) => self.sessions_lost = 0,
            Received::SessionLost(code) => {
                self.sessions_lost = self.sessions_lost.saturating_add(1);
                if !is_about_sessions(*code) {
                    self.hold(self.spec.config.fetch_backoff);
                } else if let Some(again @ 1..) = self.sessions_lost.checked_sub(1) {
                    // A session that is lost may begin anew at once; one that never holds must not be a loop.
                    let backoff = Backoff::new(limits::RECONNECT_MS);
                    self.hold(Duration::from_millis(backoff.wait_ms(again, fastrand::f64())));
                }
            }
        }
        received
    }

    /// Checks what came and moves the plan on; yields between partitions.
    pub(super) async fn take(&mut self, news: Vec<News>) -> TakenResponse {
        let mut taken = TakenResponse::default();
        for News { partition, serial, generation, asked, compacted, what } in news {
            match what {
                What::Records { records, high_watermark, log_start } => {
                    let whole = intake::take(records, asked, self.spec.batch_max_bytes);
                    let (now_ms, next) = (self.now_ms(), whole.next);
                    // A source looks at its high watermark, and then reads: what it sends may be newer.
                    let source_high_watermark = high_watermark.max(next);
                    self.spec.progress.partitions().entry(partition).or_default().answered(
                        now_ms,
                        source_high_watermark,
                        asked,
                    );
                    if !whole.batches.is_empty() {
                        self.plan.advance(partition, serial, next, whole.last_epoch);
                        taken.count(&self.spec.metrics, &whole.batches);
                    }
                    let gaps = if compacted { Vec::new() } else { whole.gaps };
                    // A response that was full without it says nothing of how it goes on here.
                    let ends_failure =
                        next > asked || (whole.fault.is_none() && source_high_watermark <= asked);
                    taken.places.push(Place { partition, serial, next, gaps, ends_failure });
                    taken.appends.push(MirrorAppend {
                        partition,
                        generation,
                        batches: whole.batches,
                        source_log_start: log_start.max(Offset(0)),
                        source_high_watermark,
                    });
                    if let Some(fault) = whole.fault {
                        self.met(fault, partition, serial, next);
                    }
                    yield_if_needed().await;
                }
                What::Diverged => {
                    let why = format!("the source's log has diverged from ours before offset {asked}");
                    self.leave(partition, serial, Leaving::Diverged(why));
                }
                What::Error(code, hint) => {
                    let why = match code {
                        ErrorCode::NOT_LEADER_OR_FOLLOWER
                        | ErrorCode::LEADER_NOT_AVAILABLE
                        | ErrorCode::FENCED_LEADER_EPOCH
                        | ErrorCode::UNKNOWN_LEADER_EPOCH
                        | ErrorCode::OFFSET_NOT_AVAILABLE
                        | ErrorCode::KAFKA_STORAGE_ERROR => Leaving::Moved(hint, code),
                        ErrorCode::OFFSET_OUT_OF_RANGE => {
                            Leaving::Diverged(format!("the source has no offset {asked}"))
                        }
                        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                        | ErrorCode::UNKNOWN_TOPIC_ID
                        | ErrorCode::INCONSISTENT_TOPIC_ID => Leaving::Unknown(code),
                        code => Leaving::Refused(code),
                    };
                    self.leave(partition, serial, why);
                }
            }
        }
        taken
    }

    /// A batch is damaged, or of an old format. What came before it is appended all the same.
    fn met(&mut self, fault: Fault, partition: TopicIdPartition, serial: u64, at: Offset) {
        match fault {
            Fault::TooLarge(why) => self.leave(partition, serial, Leaving::TooLarge(why)),
            Fault::UnsupportedFormat(why) => self.leave(partition, serial, Leaving::UnsupportedFormat(why)),
            Fault::Damaged(why) if self.damaged.insert(partition, at) == Some(at) => {
                self.leave(partition, serial, Leaving::Corrupt(why));
            }
            Fault::Damaged(why) => {
                tracing::warn!(source = %self.spec.endpoint, %partition, offset = at.0, %why, "damaged batch");
                self.spec.metrics.dropped.add(1);
                self.plan.again(partition, serial, at);
            }
        }
    }

    /// Appends what was taken and corrects the plan by what became of it.
    pub(super) async fn append(&mut self, taken: TakenResponse) {
        if taken.appends.is_empty() {
            return;
        }
        let results = self.cluster.append(taken.appends).await;
        let progress = Arc::clone(&self.spec.progress);
        let (mut failed, mut missed, mut well) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut partitions = progress.partitions();
            for (place, result) in taken.places.into_iter().zip(results) {
                match result {
                    MirrorAppended::Appended { log_end, high_watermark } => {
                        if let Some(partition) = partitions.get_mut(&place.partition) {
                            partition.appended(log_end.max(place.next), high_watermark);
                        }
                        self.out_of_step.remove(&place.partition);
                        if place.ends_failure && self.unproven.remove(&place.partition) {
                            well.push((place.partition, place.serial));
                        }
                        missed.extend(place.gaps.into_iter().map(|gap| (place.partition, place.serial, gap)));
                    }
                    other => failed.push((place, other)),
                }
            }
        }
        for (place, result) in failed {
            self.not_appended(&place, result);
        }
        if !well.is_empty() {
            (self.spec.report)(LaneReport::GoesOn(well));
        }
        if !missed.is_empty() {
            (self.spec.report)(LaneReport::Missed(missed));
        }
    }

    fn not_appended(&mut self, place: &Place, result: MirrorAppended) {
        let &Place { partition, serial, .. } = place;
        self.spec.metrics.dropped.add(1);
        let why = match result {
            MirrorAppended::Appended { .. } => return,
            MirrorAppended::StaleGeneration => Leaving::StaleGeneration,
            MirrorAppended::EpochBehind { batch_epoch, .. } => Leaving::EpochBehind(batch_epoch),
            MirrorAppended::Storage(why) => Leaving::Storage(why),
            MirrorAppended::NotLeader => Leaving::NotLeaderHere,
            MirrorAppended::NotNext { log_end, reason } => {
                if self.out_of_step.insert(partition, log_end) != Some(log_end) {
                    self.plan.again(partition, serial, log_end);
                    return;
                }
                Leaving::OutOfStep(reason)
            }
        };
        self.leave(partition, serial, why);
    }
}

impl TakenResponse {
    fn count(&mut self, metrics: &crate::metrics::MirrorMetrics, batches: &[tarn_record::ValidBatch]) {
        let bytes: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
        let records: i64 = batches.iter().map(|batch| i64::from(batch.header().record_count.max(0))).sum();
        self.bytes += bytes;
        metrics.bytes.add(bytes as u64);
        metrics.batches.add(batches.len() as u64);
        metrics.records.add(records.unsigned_abs());
    }
}

/// Errors that only say that a session must begin anew.
fn is_about_sessions(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NONE
            | ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
    )
}
