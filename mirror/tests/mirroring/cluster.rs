//! The destination as mirroring sees it, in memory: metadata, a coordinator, logs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tarn_image::{MetadataDelta, MetadataImage};
use tarn_mirror::alignment::EpochEnd;
use tarn_mirror::coordinator::{
    MirrorCoordinator, STATE_TOPIC, StateRequest, StateResponse, StateWrite, StopReport, WriteRefused,
    coordinator_partition, home_partition,
};
use tarn_mirror::local_cluster::*;
use tarn_mirror::manager::ManagerHandle;
use tarn_mirror::state::MirrorState;
use tarn_record::{
    BatchHeader, BrokerId, Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition, ValidBatch,
};
use tarn_wire::messages::write_mirror_states_request::WriteMirrorStatePartition;
use tarn_wire::messages::*;
use tarn_wire::metadata::MetadataRecord;
use tarn_wire::{
    ApiKey, Cursor, Message, Request, Response, decode_request_header, decode_response_header,
    encode_request, encode_response,
};

pub(crate) use super::log::Log;

const US: BrokerId = BrokerId(7);
/// The partitions of the state topic.
pub(crate) const COORDINATORS: i32 = 3;

#[derive(Clone)]
pub(crate) struct Cluster {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) image: Arc<MetadataImage>,
    coordinator: MirrorCoordinator,
    manager: Option<ManagerHandle>,
    pub(crate) logs: BTreeMap<TopicIdPartition, Log>,
    /// Every state that was written.
    pub(crate) written: Vec<(TopicIdPartition, MirrorState, Option<String>)>,
    /// The coordinator of this partition of the state topic never answers.
    pub(crate) stuck_coordinator: Option<PartitionIndex>,
    /// How often the controller was asked to begin with topics; it does not answer where it is stuck.
    pub(crate) starts_asked: usize,
    pub(crate) stuck_controller: bool,
    /// The controller has decided a stop of everything that this broker's metadata do not show yet.
    pub(crate) has_nothing_to_discover: bool,
    /// The configurations that topics were begun with.
    pub(crate) begun_with: BTreeMap<String, Vec<(String, String)>>,
    /// Lanes die: those that there are, and each new one before it has done anything.
    pub(crate) lanes_die: bool,
    /// How many have died so.
    pub(crate) lanes_died: usize,
    /// No batch can be written, as on a full disk.
    pub(crate) disk_is_full: bool,
    /// The batches that were refused for that.
    pub(crate) refused: usize,
    /// The states that their partitions showed meanwhile.
    pub(crate) shown_when_refused: Vec<MirrorState>,
    /// How often each thing was asked, for however many partitions.
    pub(crate) asked: BTreeMap<&'static str, usize>,
    /// Every last mirror position that was written.
    pub(crate) positions: Vec<(TopicIdPartition, LastPosition)>,
    /// What owning cores were told last.
    pub(crate) told: BTreeMap<TopicIdPartition, KnownState>,
    /// Ends of logs are copied as long as the disk takes, which is for ever.
    pub(crate) copies_for_ever: bool,
    /// Records are counted as long as there are any, which is for ever.
    pub(crate) counts_for_ever: bool,
    /// Every order to count records.
    pub(crate) count_orders: Vec<CountOrder>,
    /// The logs of this topic cannot be read.
    pub(crate) cannot_read: Option<TopicId>,
    /// Owning cores truncate logs and never say so.
    pub(crate) truncates_in_silence: bool,
    /// What is noted of exports cannot be read.
    pub(crate) notes_are_unreadable: bool,
    /// Owning cores cut no log.
    pub(crate) truncates_nothing: bool,
    /// Replicas of this cluster lack the last record of every log.
    pub(crate) lacks_replicas: bool,
    /// Owning cores end no log.
    pub(crate) ends_nothing: bool,
    /// The controller completes no stop.
    pub(crate) completes_nothing: bool,
    /// So many answers of coordinators to writes are lost.
    pub(crate) loses_answers: usize,
    /// Topics are compacted here.
    pub(crate) compacted: bool,
    /// What is to be dropped cannot be exported.
    pub(crate) exports_nothing: bool,
    /// Every order to cut a log that was carried out, with what was dropped and exported.
    pub(crate) truncations: Vec<(TruncateOrder, Vec<ValidBatch>)>,
    /// How many orders were refused for want of an export.
    pub(crate) exports_failed: usize,
}

impl Cluster {
    /// A cluster with one mirror of what `include` matches at the source on `port`.
    pub(crate) fn new(port: u16, include: &str) -> Cluster {
        let cluster = Cluster { state: Arc::default() };
        let state_topic = TopicId::random();
        let mirror_config = |name: &str, value: &str| config(64, "m", name, value);
        cluster.apply(vec![
            TopicRecord { name: STATE_TOPIC.into(), topic_id: state_topic.0 }.into(),
            led_here(state_topic, 0, 0),
            led_here(state_topic, 1, 0),
            led_here(state_topic, 2, 0),
            mirror_config("bootstrap.servers", &format!("127.0.0.1:{port}")),
            mirror_config("topics.include", include),
            mirror_config("fetch.wait.max.ms", "100"),
        ]);
        cluster
    }

    /// Sets a key of the mirror.
    pub(crate) fn configure(&self, key: &str, value: &str) {
        self.apply(vec![config(64, "m", key, value)]);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds it")
    }

    /// Tells this manager of the metadata from now on.
    pub(crate) fn attach(&self, manager: &ManagerHandle) {
        let mut state = self.state();
        manager.metadata_changed(state.image.clone(), &MetadataDelta::default());
        state.manager = Some(manager.clone());
    }

    /// Binds a topic that is here already, with one partition that holds these batches.
    pub(crate) fn bind(&self, topic: &str, id: TopicId, batches: Vec<ValidBatch>) {
        let partition = TopicIdPartition { topic_id: id, partition: PartitionIndex(0) };
        self.state().logs.insert(partition, Log { batches, ..Log::default() });
        self.bind_as(topic, id, 1, "mirroring:1");
    }

    /// Binds a topic that is here already, of which so many partitions are led here.
    pub(crate) fn bind_as(&self, topic: &str, id: TopicId, partitions: i32, wanted: &str) {
        let mut records = vec![TopicRecord { name: topic.into(), topic_id: id.0 }.into()];
        records.extend((0..partitions).map(|partition| led_here(id, partition, 0)));
        records.push(config(2, topic, "mirror.name", "m"));
        records.push(config(2, topic, "mirror.desired.state", wanted));
        self.apply(records);
    }

    /// The operator wants this of a topic.
    pub(crate) fn want(&self, topic: &str, wanted: &str) {
        self.apply(vec![config(2, topic, "mirror.desired.state", wanted)]);
    }

    /// What the metadata say that is wanted.
    pub(crate) fn wanted(&self, topic: &str) -> String {
        let state = self.state();
        let binding = state.image.bindings().of(topic).expect("it is bound");
        format!("{}:{}", binding.desired, binding.version)
    }

    /// Another broker leads a partition and has brought it to this state.
    pub(crate) fn lead_elsewhere(&self, partition: TopicIdPartition, state: MirrorState, version: i64) {
        self.apply(vec![led_by(BrokerId(8), partition.topic_id, partition.partition.0, 0)]);
        self.persist(partition, state, version);
    }

    /// This broker does from now on what is done once for the mirror.
    pub(crate) fn move_home(&self, broker: BrokerId) {
        let topic = self.state().image.topics().id_of(STATE_TOPIC).expect("it exists");
        self.apply(vec![led_by(broker, topic, home_partition("m", COORDINATORS).0, 0)]);
    }

    /// Another broker has brought a partition to this state.
    pub(crate) fn persist(&self, partition: TopicIdPartition, state: MirrorState, version: i64) {
        let write = WriteMirrorStatePartition {
            state: state.to_byte(),
            state_version: version,
            ..WriteMirrorStatePartition::default()
        };
        let write = (partition, StateWrite { topic: "it".into(), state: write });
        self.state().coordinator.handle(StateRequest::Write("m".into(), vec![write]));
    }

    /// The reports of stops, by partition.
    pub(crate) fn reports(&self) -> BTreeMap<TopicIdPartition, StopReport> {
        match self.state().coordinator.handle(StateRequest::Reports("m".into())).0 {
            StateResponse::Reports(reports) => reports.into_iter().collect(),
            other => panic!("reports are answered as such, not {other:?}"),
        }
    }

    pub(crate) fn partition(&self, topic: &str, partition: i32) -> Option<TopicIdPartition> {
        let topic_id = self.state().image.topics().id_of(topic)?;
        Some(TopicIdPartition { topic_id, partition: PartitionIndex(partition) })
    }

    pub(crate) fn leader_epoch(&self, partition: TopicIdPartition) -> i32 {
        let state = self.state();
        let found = state.image.topics().partition(partition.topic_id, partition.partition);
        found.map_or(-1, |registration| registration.leader_epoch.0)
    }

    pub(crate) fn apply(&self, records: Vec<MetadataRecord>) {
        let mut state = self.state();
        let (mut image, mut delta) = (MetadataImage::clone(&state.image), MetadataDelta::default());
        for record in &records {
            image.apply(record, &mut delta).expect("the records fit the image");
        }
        state.image = Arc::new(image);
        if let Some(manager) = &state.manager {
            manager.metadata_changed(state.image.clone(), &delta);
        }
    }

    /// Whether a request asks the coordinator that is stuck for anything.
    fn is_stuck(&self, request: &ReadMirrorStatesRequest) -> bool {
        let stuck = self.state().stuck_coordinator;
        let mirror = &request.mirror_name;
        request.topics.iter().any(|topic| {
            let places = topic.partitions.iter().map(|one| place(topic.topic_id, one.partition_index));
            places
                .map(|place| coordinator_partition(mirror, place, COORDINATORS))
                .any(|one| Some(one) == stuck)
        })
    }

    fn read_states(&self, request: ReadMirrorStatesRequest) -> ReadMirrorStatesResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let named =
                topic.partitions.iter().map(|one| place(topic.topic_id, one.partition_index)).collect();
            let asked = StateRequest::Read(request.mirror_name.to_string(), named);
            let StateResponse::Read(states) = self.state().coordinator.handle(asked).0 else { continue };
            let partition = |(partition, known): (TopicIdPartition, Option<_>)| {
                let known: tarn_mirror::coordinator::PartitionState = known.unwrap_or_default();
                read_mirror_states_response::MirrorStatePartitionResult {
                    partition_index: partition.partition.0,
                    state: known.state.map_or(-1, MirrorState::to_byte),
                    state_epoch: known.state_epoch,
                    state_version: known.state_version,
                    last_mirror_epoch: known.position.map_or(-1, |position| position.epoch.0),
                    last_mirror_offset: known.position.map_or(-1, |position| position.offset.0),
                    previous_state: known.previous_state.map_or(-1, MirrorState::to_byte),
                    error_message: known.error_message.clone(),
                    reason_code: known.reason_code.clone(),
                    ..Default::default()
                }
            };
            topics.push(read_mirror_states_response::MirrorStateTopicResult {
                topic_name: topic.topic_name,
                topic_id: topic.topic_id,
                partitions: states.into_iter().map(partition).collect(),
            });
        }
        ReadMirrorStatesResponse { topics, ..Default::default() }
    }

    fn write_states(&self, request: WriteMirrorStatesRequest) -> WriteMirrorStatesResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let mut state = self.state();
            for write in &topic.partitions {
                let written = MirrorState::from_byte(write.state).expect("it is one");
                let reason = write.reason_code.as_ref().map(|code| code.to_string());
                let partition = place(topic.topic_id, write.partition_index);
                state.written.push((partition, written, reason));
                if write.last_mirror_offset >= 0 {
                    let (epoch, offset) = (Epoch(write.last_mirror_epoch), Offset(write.last_mirror_offset));
                    state.positions.push((partition, LastPosition { epoch, offset }));
                }
            }
            let writes = topic.partitions.into_iter().map(|write| {
                let partition = place(topic.topic_id, write.partition_index);
                (partition, StateWrite { topic: topic.topic_name.clone(), state: write })
            });
            let named = writes.collect();
            let asked = StateRequest::Write(request.mirror_name.to_string(), named);
            let StateResponse::Written(results) = state.coordinator.handle(asked).0 else { continue };
            let partition = |(partition, result): (TopicIdPartition, Result<i32, WriteRefused>)| {
                write_mirror_states_response::WriteMirrorStatePartitionResult {
                    partition_index: partition.partition.0,
                    state_epoch: *result.as_ref().unwrap_or(&-1),
                    error_code: result.err().map_or(0, |refused| refused.code().0),
                    ..Default::default()
                }
            };
            topics.push(write_mirror_states_response::WriteMirrorStateTopicResult {
                topic_name: topic.topic_name,
                topic_id: topic.topic_id,
                partitions: results.into_iter().map(partition).collect(),
            });
        }
        WriteMirrorStatesResponse { topics, ..Default::default() }
    }

    /// True for an answer that is lost.
    fn is_lost(&self) -> bool {
        let mut state = self.state();
        let is_lost = state.loses_answers > 0;
        state.loses_answers -= usize::from(is_lost);
        is_lost
    }

    fn count(&self, what: &'static str) {
        *self.state().asked.entry(what).or_default() += 1;
    }

    fn append_one(&self, append: MirrorAppend) -> MirrorAppended {
        let leader_epoch = Epoch(self.leader_epoch(append.partition));
        let mut state = self.state();
        let disk_is_full = state.disk_is_full && !append.batches.is_empty();
        if disk_is_full {
            state.refused += 1;
            let manager = state.manager.as_ref().expect("somebody appends");
            let standing = manager.offsets("m", &[append.partition]).remove(0).expect("it is mirrored");
            state.shown_when_refused.push(standing.state);
        }
        let log = state.logs.entry(append.partition).or_default();
        if log.gate != Some(append.generation.0) {
            return MirrorAppended::StaleGeneration;
        }
        if let Some(batch) = append.batches.iter().find(|batch| batch.header().leader_epoch > leader_epoch) {
            return MirrorAppended::EpochBehind { batch_epoch: batch.header().leader_epoch, leader_epoch };
        }
        if disk_is_full {
            return MirrorAppended::Storage("no space left".into());
        }
        for batch in append.batches {
            if batch.header().base_offset.0 < log.end() {
                return MirrorAppended::NotNext { log_end: Offset(log.end()), reason: "it overlaps".into() };
            }
            log.batches.push(batch);
        }
        let log_end = Offset(log.end());
        MirrorAppended::Appended { log_end, high_watermark: log_end }
    }
}

impl LocalCluster for Cluster {
    fn broker_id(&self) -> BrokerId {
        US
    }

    fn cluster_id(&self) -> String {
        "destination".to_owned()
    }

    fn image(&self) -> Arc<MetadataImage> {
        self.state().image.clone()
    }

    async fn call<R>(&self, request: R) -> Result<R::Response, LocalError>
    where
        R: Request + 'static,
        R::Response: 'static,
    {
        let version = R::MAX_VERSION;
        let frame = encode_request(0, "", version, &request).expect("it can be written");
        let mut cursor = Cursor::new(frame.to_bytes().expect("it is in memory").slice(4..));
        decode_request_header(&mut cursor).expect("it has a header");
        let cursor = &mut cursor;
        self.count(R::NAME);
        let answer = match ApiKey(R::KEY) {
            ApiKey::READ_MIRROR_STATES if self.is_stuck(&read(&mut cursor.clone(), version)) => {
                return std::future::pending().await;
            }
            ApiKey::START_MIRROR_TOPICS if self.starting_is_stuck() => return std::future::pending().await,
            ApiKey::READ_MIRROR_STATES => answered(&self.read_states(read(cursor, version)), version),
            ApiKey::WRITE_MIRROR_STATES => {
                let answer = answered(&self.write_states(read(cursor, version)), version);
                if self.is_lost() {
                    return Err(LocalError::Unanswered { api: R::NAME, reason: "it is lost".into() });
                }
                answer
            }
            ApiKey::COMPLETE_MIRROR_STOP => answered(&self.complete(read(cursor, version)), version),
            ApiKey::BUMP_LEADER_EPOCHS => answered(&self.raise(read(cursor, version)), version),
            ApiKey::START_MIRROR_TOPICS => answered(&self.start(read(cursor, version)), version),
            ApiKey::CREATE_PARTITIONS => answered(&self.grow(read(cursor, version)), version),
            _ => return Err(LocalError::Unanswered { api: R::NAME, reason: "the test has none".into() }),
        };
        let mut answer = Cursor::new(answer);
        decode_response_header::<R::Response>(&mut answer, version).expect("it has a header");
        Ok(R::Response::decode(&mut answer, version).expect("it was just written"))
    }

    async fn append(&self, appends: Vec<MirrorAppend>) -> Vec<MirrorAppended> {
        appends.into_iter().map(|append| self.append_one(append)).collect()
    }

    async fn ends(&self, partitions: Vec<TopicIdPartition>) -> Vec<Result<LogEnds, LocalError>> {
        let ends = |partition| {
            let leader_epoch = Epoch(self.leader_epoch(partition));
            let mut state = self.state();
            let log = state.logs.entry(partition).or_default();
            let latest_epoch = log.latest_epoch();
            let log_end = Offset(log.end());
            let log_start = Offset(log.start);
            Ok(LogEnds {
                log_start,
                log_end,
                high_watermark: log_end,
                latest_epoch,
                leader_epoch,
                compacted: state.compacted,
            })
        };
        partitions.into_iter().map(ends).collect()
    }

    async fn newest_batches(
        &self,
        partitions: Vec<TopicIdPartition>,
    ) -> Vec<Result<Option<BatchHeader>, LocalError>> {
        let state = self.state();
        let newest = |partition| state.logs.get(partition)?.newest();
        partitions.iter().map(|partition| Ok(newest(partition))).collect()
    }

    async fn batches_below(
        &self,
        places: Vec<(TopicIdPartition, Offset)>,
    ) -> Vec<Result<Option<BatchHeader>, LocalError>> {
        self.count("batches");
        let state = self.state();
        let below = |(partition, offset)| match state.logs.get(&partition).map(|log| log.below(offset)) {
            None => Ok(None),
            Some(found) => found.map_err(|reason| LocalError::Storage { partition, reason }),
        };
        places.into_iter().map(below).collect()
    }

    async fn noted_exports(
        &self,
        partitions: Vec<TopicIdPartition>,
    ) -> Vec<Result<Option<NotedExport>, LocalError>> {
        self.count("noted");
        let state = self.state();
        let noted = |partition: TopicIdPartition| match state.notes_are_unreadable {
            true => Err(LocalError::Storage { partition, reason: "mirror-export: not a file".into() }),
            false => Ok(state.logs.get(&partition).and_then(|log| log.noted_export())),
        };
        partitions.into_iter().map(noted).collect()
    }

    async fn epoch_ends(&self, epochs: Vec<(TopicIdPartition, Epoch)>) -> Vec<Result<EpochEnd, LocalError>> {
        let state = self.state();
        epochs.into_iter().map(|(partition, epoch)| Ok(state.logs[&partition].epoch_end(epoch))).collect()
    }

    async fn suffixes(&self, orders: Vec<CountOrder>) -> Vec<Result<Suffix, LocalError>> {
        self.count("count");
        if self.state().counts_for_ever {
            return std::future::pending().await;
        }
        let mut state = self.state();
        state.count_orders.extend(&orders);
        let count = |CountOrder { partition, from, records_max }| match state.cannot_read {
            Some(topic) if topic == partition.topic_id => {
                Err(LocalError::Storage { partition, reason: "its disk is damaged".into() })
            }
            _ => Ok(state.logs[&partition].suffix(from, records_max)),
        };
        orders.into_iter().map(count).collect()
    }

    async fn endings(
        &self,
        positions: Vec<(TopicIdPartition, LastPosition)>,
    ) -> Vec<Result<Option<Ending>, LocalError>> {
        let state = self.state();
        let ending =
            |(partition, position): (TopicIdPartition, _)| Ok(state.logs[&partition].ending(position));
        positions.into_iter().map(ending).collect()
    }

    async fn truncate_logs(&self, orders: Vec<TruncateOrder>) -> Vec<Result<LogTruncated, LocalError>> {
        self.count("truncate");
        if self.state().copies_for_ever {
            return std::future::pending().await;
        }
        let cut = |order: TruncateOrder| {
            let mut state = self.state();
            let partition = order.partition;
            if state.exports_nothing && order.export_from.is_some() {
                state.exports_failed += 1;
                return Err(LocalError::Export { partition, reason: "it cannot be written".into() });
            }
            if state.truncates_nothing {
                return Err(LocalError::NotTruncated { partition, reason: "it has changed".into() });
            }
            let log = state.logs.get_mut(&partition).expect("it is led here");
            let (done, dropped) =
                log.truncate(&order).map_err(|reason| LocalError::NotTruncated { partition, reason })?;
            let unflushed = state.disk_is_full.then(|| full_disk(partition).to_string().into());
            state.truncations.push((order, dropped));
            Ok(LogTruncated { unflushed, ..done })
        };
        let answers = orders.into_iter().map(cut).collect();
        if self.state().truncates_in_silence {
            return std::future::pending().await;
        }
        answers
    }

    async fn set_gates(&self, gates: Vec<GateOrder>) -> Vec<Result<MirrorGeneration, LocalError>> {
        self.count("gates");
        let mut state = self.state();
        let set = |GateOrder { partition, gate, .. }| {
            let log = state.logs.entry(partition).or_default();
            log.generations += 1;
            log.gate = (gate == Gate::Open).then_some(log.generations);
            Ok(MirrorGeneration(log.generations))
        };
        gates.into_iter().map(set).collect()
    }

    async fn flush(&self, partitions: Vec<TopicIdPartition>) -> Vec<Result<LogEnds, LocalError>> {
        self.count("flush");
        let disk_is_full = self.state().disk_is_full;
        let committed = |ends: LogEnds| match self.state().lacks_replicas {
            true => LogEnds { high_watermark: ends.log_end.plus(-1), ..ends },
            false => ends,
        };
        let ends = partitions.iter().zip(self.ends(partitions.clone()).await);
        ends.map(|(one, ends)| if disk_is_full { Err(full_disk(*one)) } else { ends.map(committed) })
            .collect()
    }

    async fn end_logs(&self, orders: Vec<EndOrder>) -> Vec<Result<LogEnded, LocalError>> {
        self.count("end");
        let end = |order: EndOrder| {
            let leader_epoch = self.leader_epoch(order.partition);
            let mut state = self.state();
            let (ends_nothing, disk_is_full) = (state.ends_nothing, state.disk_is_full);
            let log = state.logs.entry(order.partition).or_default();
            if disk_is_full {
                return Err(full_disk(order.partition));
            }
            let ended = match ends_nothing {
                true => Err("it is told not to".to_owned()),
                false => log.end_for_mirror(&order, leader_epoch),
            };
            ended.map_err(|reason| LocalError::NotEnded { partition: order.partition, reason })
        };
        orders.into_iter().map(end).collect()
    }

    async fn set_states(&self, states: Vec<(TopicIdPartition, KnownState)>) {
        self.state().told.extend(states);
    }
}

fn full_disk(partition: TopicIdPartition) -> LocalError {
    LocalError::Storage { partition, reason: "no space left".into() }
}

fn read<M: Message>(cursor: &mut Cursor, version: i16) -> M {
    M::decode(cursor, version).expect("it was just written")
}

fn answered<R: Response>(response: &R, version: i16) -> bytes::Bytes {
    let frame = encode_response(0, version, response).expect("it can be written");
    frame.to_bytes().expect("it is in memory").slice(4..)
}

fn place(topic_id: uuid::Uuid, partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId(topic_id), partition: PartitionIndex(partition) }
}

pub(crate) fn led_here(topic: TopicId, partition: i32, leader_epoch: i32) -> MetadataRecord {
    led_by(US, topic, partition, leader_epoch)
}

fn led_by(leader: BrokerId, topic: TopicId, partition: i32, leader_epoch: i32) -> MetadataRecord {
    PartitionRecord {
        topic_id: topic.0,
        partition_id: partition,
        replicas: vec![leader.0],
        isr: vec![leader.0],
        leader: leader.0,
        leader_epoch,
        ..PartitionRecord::default()
    }
    .into()
}

pub(crate) fn config(kind: i8, resource: &str, name: &str, value: &str) -> MetadataRecord {
    ConfigRecord {
        resource_type: kind,
        resource_name: resource.into(),
        name: name.into(),
        value: Some(value.into()),
    }
    .into()
}
