//! What clients produce and coordinators decide, and the requests that wait until it is committed.

use tarn_record::{Offset, Timestamp, TopicIdPartition};
use tarn_runtime::channel::ReplySlot;
use tarn_wire::ErrorCode;

use super::Partitions;
use crate::envelope::{Acks, AppendRequest, MarkerRequest, Produced};
use crate::replica::waiting::Done;
use crate::replica::{ProduceError, Replica};

/// A produce request that waits for the high watermark.
#[derive(Debug)]
pub(super) struct WaitingProduce {
    produced: Vec<Produced>,
    reply: ReplySlot<Vec<Produced>>,
}

impl Partitions {
    /// Appends what clients produced, and answers or lets the request wait; `absence` says why a partition
    /// is not here.
    pub fn append(
        &mut self,
        request: AppendRequest,
        now: Timestamp,
        absence: impl Fn(TopicIdPartition) -> ErrorCode,
    ) {
        let mut produced = Vec::with_capacity(request.items.len());
        let mut open = Vec::new();
        for (partition, batch) in &request.items {
            let header = batch.batch.header();
            let Some(replica) = self.replicas.get_mut(partition) else {
                let error = absence(*partition);
                self.turned_away.note(*partition, header, error, now);
                produced.push(Produced::failed(*partition, error, None));
                continue;
            };
            if let Some(error) = self.turned_away.before(*partition, header, now) {
                produced.push(Produced::failed(*partition, error, None));
                continue;
            }
            let result = replica.append(batch, request.acks, now);
            self.traffic.produced(partition.topic_id, batch, result.as_ref());
            let outcome = Produced::from_result(replica, result.as_ref());
            if let Ok(appended) = &result {
                let required = match appended.duplicate_of {
                    Some(_) => replica.log().end(),
                    None => appended.last.plus(1),
                };
                let waits = match request.acks {
                    Acks::None => false,
                    Acks::Leader => replica.acknowledges_flushed(),
                    Acks::All => true,
                };
                if waits && replica.high_watermark() < required {
                    open.push((*partition, required));
                }
                self.note_appended(*partition, now);
            }
            produced.push(outcome);
            self.news_of(*partition);
        }
        let waiting = WaitingProduce { produced, reply: request.reply };
        self.answer_when_committed(waiting, &open, request.deadline_ms);
    }

    /// Appends the markers that end transactions, and answers when all are committed; `absence` says why a
    /// partition is not here.
    pub fn append_markers(
        &mut self,
        request: MarkerRequest,
        now: Timestamp,
        absence: impl Fn(TopicIdPartition) -> ErrorCode,
    ) {
        let mut produced = Vec::with_capacity(request.items.len());
        let mut open = Vec::new();
        for (partition, marker) in &request.items {
            let Some(replica) = self.replicas.get_mut(partition) else {
                produced.push(Produced::failed(*partition, absence(*partition), None));
                continue;
            };
            match replica.append_marker(marker, now) {
                Ok(None) => produced.push(Produced::failed(*partition, ErrorCode::NONE, None)),
                Ok(Some(appended)) => {
                    let required = appended.last.plus(1);
                    if replica.high_watermark() < required {
                        open.push((*partition, required));
                    }
                    produced.push(Produced::from_result(replica, Ok(&appended)));
                    self.note_appended(*partition, now);
                }
                Err(error) => produced.push(Produced::from_result(replica, Err(&error))),
            }
            self.news_of(*partition);
        }
        let waiting = WaitingProduce { produced, reply: request.reply };
        self.answer_when_committed(waiting, &open, request.deadline_ms);
    }

    /// Answers once the high watermarks have passed what is `open`.
    fn answer_when_committed(
        &mut self,
        waiting: WaitingProduce,
        open: &[(TopicIdPartition, Offset)],
        deadline_ms: u64,
    ) {
        if open.is_empty() {
            waiting.answer(Vec::new());
        } else if let Err(refused) = self.waiting.park(waiting, open, deadline_ms) {
            let errors =
                open.iter().map(|(partition, _)| (*partition, ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND));
            refused.answer(errors.collect());
        }
    }

    /// Answers when all that is in the partition's log now is committed.
    pub fn wait_for_commit(
        &mut self,
        partition: TopicIdPartition,
        reply: ReplySlot<Vec<Produced>>,
        deadline_ms: u64,
    ) {
        let produced = vec![Produced::failed(partition, ErrorCode::NONE, None)];
        let waiting = WaitingProduce { produced, reply };
        let Some(replica) = self.replicas.get(&partition) else { return };
        let end = replica.log().end();
        if replica.high_watermark() >= end {
            return waiting.answer(Vec::new());
        }
        if let Err(refused) = self.waiting.park(waiting, &[(partition, end)], deadline_ms) {
            refused.answer(vec![(partition, ErrorCode::NOT_ENOUGH_REPLICAS)]);
        }
    }

    /// Answers the produce requests whose time is up.
    pub fn expire(&mut self, now_ms: u64) {
        answer(self.waiting.expire(now_ms));
    }

    /// When `expire` has something to do next.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.waiting.next_deadline_ms()
    }
}

impl Produced {
    /// A batch that was not appended.
    pub fn failed(partition: TopicIdPartition, error: ErrorCode, message: Option<String>) -> Produced {
        Produced {
            partition,
            error,
            message,
            base_offset: Offset::NONE,
            log_append_time: Timestamp::NONE,
            log_start: Offset::NONE,
            leader_epoch: tarn_record::Epoch::NONE,
        }
    }

    fn from_result(replica: &Replica, result: Result<&tarn_log::Appended, &ProduceError>) -> Produced {
        let partition = replica.partition();
        let produced = match result {
            Ok(appended) => Produced {
                base_offset: appended.duplicate_of.map_or(appended.first, |(first, _)| first),
                log_append_time: appended.duplicate_of.map_or(appended.log_append_time, |(_, time)| time),
                ..Produced::failed(partition, ErrorCode::NONE, None)
            },
            Err(ProduceError::Refused(why)) => Produced::failed(partition, why.code(), Some(why.to_string())),
            Err(ProduceError::NotEnoughReplicas { in_sync, required }) => {
                let message = format!("{in_sync} replicas are in sync and {required} have to be");
                Produced::failed(partition, ErrorCode::NOT_ENOUGH_REPLICAS, Some(message))
            }
            Err(ProduceError::Append(why)) => {
                Produced::failed(partition, ErrorCode(why.code()), Some(why.to_string()))
            }
        };
        Produced { log_start: replica.log().start(), leader_epoch: replica.leader_epoch(), ..produced }
    }
}

impl WaitingProduce {
    fn answer(mut self, errors: Vec<(TopicIdPartition, ErrorCode)>) {
        for (partition, error) in errors {
            for produced in self.produced.iter_mut().filter(|produced| produced.partition == partition) {
                produced.error = error;
            }
        }
        // A client that has gone does not want its answer.
        let _ = self.reply.fill(self.produced);
    }
}

/// Answers requests that wait no more.
pub(super) fn answer(done: Vec<Done<WaitingProduce>>) {
    done.into_iter().for_each(|done| done.answer.answer(done.errors));
}
