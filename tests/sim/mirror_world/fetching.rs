//! What a source answers to Fetch: incremental sessions that it may lose (KIP-227), where histories part (KIP-595), who
//! leads now (KIP-951), and batches that are damaged on the way.

use bytes::{Bytes, BytesMut};
use tarn_record::Epoch;
use tarn_wire::ErrorCode;
use tarn_wire::messages::fetch_request::FetchPartition;
use tarn_wire::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use tarn_wire::messages::{FetchRequest, FetchResponse};

use super::MirrorWorld;
use super::controller::{PARTITION, TOPIC};
use super::happenings::Event;
use super::source::{Shown, Source, There};
use crate::simulation::Schedule;

/// The most batches of one answer.
const BATCHES_MAX: usize = 3;

/// What a source understands of Fetch, and the session that it keeps.
#[derive(Debug)]
pub(super) struct Fetching {
    /// It keeps sessions.
    keeps_sessions: bool,
    /// It compares the epoch of the last record that was fetched.
    pub(super) compares_epochs: bool,
    /// It says who leads.
    says_leader: bool,
    /// Of a hundred answers.
    damages: u32,
    session: Option<Session>,
    sessions: i32,
    /// How often an answer of a session left the partition out.
    nothing_new: u64,
}

#[derive(Clone, Debug)]
struct Session {
    id: i32,
    epoch: i32,
    asked: Option<FetchPartition>,
    /// What was told last: where the log starts, and its high watermark.
    told: Option<(i64, i64)>,
}

/// An answer, and the batches in it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) response: FetchResponse,
    pub(super) batches: Vec<There>,
}

impl Answered {
    /// True where the source does not hold it back to wait for news.
    pub(super) fn is_urgent(&self) -> bool {
        let is_urgent = |data: &PartitionData| {
            data.error_code != ErrorCode::NONE.0 || data.diverging_epoch.end_offset >= 0
        };
        let mut answered = self.response.responses.iter().flat_map(|topic| &topic.partitions);
        !self.batches.is_empty() || self.response.error_code != ErrorCode::NONE.0 || answered.any(is_urgent)
    }
}

impl Fetching {
    pub(super) fn new(rng: &mut fastrand::Rng) -> Fetching {
        Fetching {
            keeps_sessions: rng.u8(..4) > 0,
            compares_epochs: rng.bool(),
            says_leader: rng.bool(),
            damages: if rng.u8(..4) == 0 { rng.u32(1..5) } else { 0 },
            session: None,
            sessions: 0,
            nothing_new: 0,
        }
    }

    /// The broker has another memory.
    pub(super) fn loses_session(&mut self) {
        self.session = None;
    }

    /// Nothing is damaged any more.
    pub(super) fn mends(&mut self) {
        self.damages = 0;
    }

    /// The session of a request as it is now; `None` where it is not known.
    fn session_of(&mut self, request: &FetchRequest) -> Option<Session> {
        let named = request.topics.first().and_then(|topic| topic.partitions.first());
        let mut session = match (request.session_epoch, self.session.take()) {
            (0, _) => {
                self.sessions += 1;
                Session { id: self.sessions, epoch: 0, asked: None, told: None }
            }
            (epoch, Some(known)) if (known.id, known.epoch + 1) == (request.session_id, epoch) => {
                Session { epoch, ..known }
            }
            _ => return None,
        };
        if !request.forgotten_topics_data.is_empty() {
            (session.asked, session.told) = (None, None);
        }
        if let Some(named) = named {
            session.asked = Some(named.clone());
        }
        Some(session)
    }
}

impl MirrorWorld {
    /// Counts what the sources did.
    pub(super) fn count_lies(&self, schedule: &mut Schedule<Event>) {
        for source in [&self.source, &self.other_source] {
            schedule.tally_many("lies of the source", source.lied);
            schedule.tally_many("fetch that finds nothing new", source.fetching.nothing_new);
        }
    }
}

impl Source {
    /// Answers a request that it can be reached for.
    pub(super) fn answer(&mut self, request: &FetchRequest, rng: &mut fastrand::Rng) -> Answered {
        let Some(mut session) = self.fetching.session_of(request) else {
            let error_code = ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0;
            let response = FetchResponse { error_code, ..FetchResponse::default() };
            return Answered { response, batches: Vec::new() };
        };
        let mut response = FetchResponse::default();
        let mut batches = Vec::new();
        if let Some(asked) = session.asked.clone() {
            let (data, there) = self.answer_partition(&asked, rng);
            let told = (data.log_start_offset, data.high_watermark);
            let is_news = data.error_code != ErrorCode::NONE.0
                || !there.is_empty()
                || data.diverging_epoch.end_offset >= 0;
            if is_news || session.told.replace(told) != Some(told) {
                response.responses = vec![FetchableTopicResponse {
                    topic: TOPIC.into(),
                    partitions: vec![data],
                    ..FetchableTopicResponse::default()
                }];
                batches = there;
            } else {
                self.fetching.nothing_new += 1;
            }
        }
        if self.fetching.keeps_sessions {
            response.session_id = session.id;
            self.fetching.session = Some(session);
        }
        Answered { response, batches }
    }

    fn answer_partition(
        &mut self,
        asked: &FetchPartition,
        rng: &mut fastrand::Rng,
    ) -> (PartitionData, Vec<There>) {
        let refused = |code: ErrorCode| PartitionData {
            partition_index: PARTITION.partition.0,
            error_code: code.0,
            high_watermark: -1,
            log_start_offset: -1,
            ..PartitionData::default()
        };
        if self.is_deleted || self.is_another() {
            return (refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), Vec::new());
        }
        let epoch = self.epoch();
        if asked.current_leader_epoch != epoch {
            let is_old = asked.current_leader_epoch < epoch;
            let code = if is_old { ErrorCode::FENCED_LEADER_EPOCH } else { ErrorCode::UNKNOWN_LEADER_EPOCH };
            let mut data = refused(code);
            if self.fetching.says_leader && rng.bool() {
                data.current_leader =
                    LeaderIdAndEpoch { leader_id: super::carrying_out::THERE.0, leader_epoch: epoch };
            }
            return (data, Vec::new());
        }
        if asked.last_fetched_epoch >= 0 {
            let there = self.true_end_of(Epoch(asked.last_fetched_epoch));
            if there.epoch.0 != asked.last_fetched_epoch || there.end.0 < asked.fetch_offset {
                let diverging_epoch = EpochEndOffset { epoch: there.epoch.0, end_offset: there.end.0.max(0) };
                let data = PartitionData { diverging_epoch, ..refused(ErrorCode::NONE) };
                return (data, Vec::new());
            }
        }
        let shown = self.show(rng);
        let Some(batches) = self.fetch(asked.fetch_offset, BATCHES_MAX, shown) else {
            return (refused(ErrorCode::OFFSET_OUT_OF_RANGE), Vec::new());
        };
        let Shown { start, high_watermark } = shown;
        let data = PartitionData {
            high_watermark,
            log_start_offset: start,
            records: Some(self.sent(&batches, rng).into()),
            ..refused(ErrorCode::NONE)
        };
        (data, batches)
    }

    /// The bytes on the wire.
    fn sent(&mut self, batches: &[There], rng: &mut fastrand::Rng) -> Bytes {
        let mut sent = BytesMut::new();
        batches.iter().for_each(|batch| sent.extend_from_slice(&batch.stored.bytes));
        let Fetching { damages, .. } = self.fetching;
        if damages > 0 && !sent.is_empty() && rng.u32(..100) < damages {
            let last = sent.len() - 1;
            sent[last] ^= 1 << rng.u32(..8);
        }
        sent.freeze()
    }
}
