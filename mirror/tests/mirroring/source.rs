//! A source cluster of one broker, in memory, behind a real socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tarn_record::{BatchBuilder, Compression, Epoch, Offset, Record, TopicId};
use tarn_runtime::channel::{Flag, mailbox};
use tarn_runtime::{CoreHandle, CoreSpec, Queue, now, sleep, spawn, spawn_core};
use tarn_transport::{
    Acceptor, Answer, ApiRange, ApiRanges, ApiVersionsData, ConnectionLimits, InboundRequest, ListenerName,
    ListenerSpec, MemoryBudget, Outcome, Server, Service, TransportMetrics,
};
use tarn_wire::messages::*;
use tarn_wire::{ApiKey, ErrorCode, Message, Request, encode_response};

/// The state that tests change while the broker serves.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) cluster_id: String,
    pub(crate) port: u16,
    /// Where its metadata say that its broker is, where that is not where it serves.
    pub(crate) advertises: Option<u16>,
    pub(crate) topics: BTreeMap<String, Topic>,
    /// The offsets that sessions fetched from, in the order of the requests.
    pub(crate) fetched_from: Vec<i64>,
    /// Those that were fetched again, to compare batches.
    pub(crate) compared_at: Vec<i64>,
    /// How often its metadata were asked for.
    pub(crate) metadata_asked: usize,
    /// What it mirrors itself: the cluster, and the topic.
    pub(crate) mirrors: Vec<(String, String)>,
    /// Its brokers compact every topic by default.
    pub(crate) compacted: bool,
    /// Says of every partition that its history diverges from the fetcher's.
    pub(crate) says_diverged: bool,
    /// Answers every fetch with this error of its session.
    pub(crate) refuses_sessions: Option<ErrorCode>,
    /// Holds fetches of sessions back by a quota for so many milliseconds each: no partition is in their answers.
    pub(crate) throttle_ms: i32,
    /// How often it was held back so.
    pub(crate) throttled: usize,
    /// Answers nothing at all for as long.
    pub(crate) is_silent: bool,
    /// Damages the next answer that has records.
    pub(crate) damage_next: bool,
    /// Sends nothing to who compares batches below this offset, as a source that does not get at them in time.
    pub(crate) sends_nothing_below: i64,
    /// By how much the high watermarks it says are older than the records beside them.
    pub(crate) says_ends_late_by: i64,
}

pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) partitions: Vec<Log>,
}

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) batches: Vec<(i64, i64, Bytes)>,
    pub(crate) epochs: Vec<(i32, i64)>,
    pub(crate) start: i64,
}

impl Log {
    pub(crate) fn end(&self) -> i64 {
        self.batches.last().map_or(self.start, |(_, next, _)| *next)
    }

    fn leader_epoch(&self) -> i32 {
        self.epochs.last().map_or(0, |(epoch, _)| *epoch)
    }

    pub(crate) fn lead_in(&mut self, epoch: i32) {
        self.epochs.push((epoch, self.end()));
    }

    pub(crate) fn produce(&mut self, records: usize) {
        let (base, epoch) = (self.end(), self.leader_epoch());
        let mut batch = BatchBuilder::new(Offset(base), Compression::None).leader_epoch(Epoch(epoch));
        for index in 0..records {
            let value = format!("record {}", base + index as i64);
            batch.add(&Record { value: Some(value.as_bytes()), ..Record::default() });
        }
        self.batches.push((base, base + records as i64, batch.build()));
    }

    /// Writes what no log has had in its place.
    pub(crate) fn produce_another(&mut self, records: usize) {
        self.produce(records);
        self.rewrite_newest();
    }

    /// The batches that a fetch gets: whole ones that fit, but for a first one of the response (KIP-74).
    fn read(&self, asked: &fetch_request::FetchPartition, room: &mut Room) -> Vec<u8> {
        let from = self.batches.partition_point(|(_, next, _)| *next <= asked.fetch_offset);
        let mut of_partition = asked.partition_max_bytes as usize;
        let mut records = Vec::new();
        for (.., batch) in self.batches[from..].iter().take(3) {
            let fits = batch.len() <= of_partition.min(room.bytes);
            if !fits && !room.is_untouched {
                break;
            }
            room.is_untouched = false;
            room.bytes = room.bytes.saturating_sub(batch.len());
            of_partition = of_partition.saturating_sub(batch.len());
            records.extend_from_slice(batch);
        }
        records
    }

    /// Writes a batch of about so many bytes.
    pub(crate) fn produce_large(&mut self, bytes: usize) {
        let (base, epoch) = (self.end(), self.leader_epoch());
        let mut batch = BatchBuilder::new(Offset(base), Compression::None).leader_epoch(Epoch(epoch));
        batch.add(&Record { value: Some(&vec![7; bytes]), ..Record::default() });
        self.batches.push((base, base + 1, batch.build()));
    }

    /// Writes the newest batch again with other records, as a source that was restored from a backup.
    pub(crate) fn rewrite_newest(&mut self) {
        let (base, next, _) = self.batches.pop().expect("it has one");
        let mut batch =
            BatchBuilder::new(Offset(base), Compression::None).leader_epoch(Epoch(self.leader_epoch()));
        for _ in base..next {
            let value = format!("another record, in epoch {}", self.leader_epoch());
            batch.add(&Record { value: Some(value.as_bytes()), ..Record::default() });
        }
        self.batches.push((base, next, batch.build()));
    }

    fn end_of(&self, asked: i32) -> (i32, i64) {
        if asked > self.leader_epoch() {
            return (-1, -1);
        }
        let after = self.epochs.partition_point(|(epoch, _)| *epoch <= asked);
        let epoch = after.checked_sub(1).map_or(asked, |found| self.epochs[found].0);
        (epoch, self.epochs.get(after).map_or(self.end(), |(_, start)| *start))
    }
}

/// What a response may still hold.
struct Room {
    bytes: usize,
    is_untouched: bool,
}

#[derive(Clone)]
pub(crate) struct Source {
    state: Arc<Mutex<State>>,
}

pub(crate) struct Serving {
    core: Option<CoreHandle<()>>,
    stop: Flag,
}

impl Source {
    pub(crate) fn new(cluster_id: &str) -> Source {
        let state = State { cluster_id: cluster_id.to_owned(), ..State::default() };
        Source { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds it")
    }

    pub(crate) fn topic(&self, name: &str, partitions: usize, epoch: i32) {
        let log = || Log { epochs: vec![(epoch, 0)], ..Log::default() };
        let topic = Topic { id: TopicId::random(), partitions: (0..partitions).map(|_| log()).collect() };
        self.state().topics.insert(name.to_owned(), topic);
    }

    /// A topic gets one more partition.
    pub(crate) fn grow(&self, topic: &str) {
        let mut state = self.state();
        let topic = state.topics.get_mut(topic).expect("it exists");
        topic.partitions.push(Log { epochs: vec![(0, 0)], ..Log::default() });
    }

    pub(crate) fn id(&self, topic: &str) -> TopicId {
        self.state().topics[topic].id
    }

    pub(crate) fn log<T>(&self, topic: &str, partition: usize, change: impl FnOnce(&mut Log) -> T) -> T {
        change(&mut self.state().topics.get_mut(topic).expect("it exists").partitions[partition])
    }

    /// Serves on the port of before, where there was one.
    pub(crate) fn serve(&self) -> Serving {
        let address: SocketAddr = ([127, 0, 0, 1], self.state().port).into();
        let limits = ConnectionLimits::default();
        let listener = ListenerSpec::at("PLAINTEXT", address);
        let acceptor = bind(&listener, &limits);
        self.state().port = acceptor.addresses().expect("it is bound")[0].1.port();
        let (stop, source) = (Flag::new(), self.clone());
        let on_core = stop.clone();
        let core = spawn_core(CoreSpec { cpu: None, name: "source".into() }, move || async move {
            let (sender, receiver) = mailbox(64);
            let metrics = Arc::new(TransportMetrics::default());
            let server = Server::new(Rc::new(source), limits, MemoryBudget::unlimited(), metrics);
            let accepting = spawn(Queue::Network, acceptor.run(vec![sender], on_core.clone()));
            server.run(receiver, on_core).await;
            accepting.cancel().await;
        });
        Serving { core: Some(core.expect("a core can be made")), stop }
    }

    async fn fetch(&self, request: FetchRequest) -> FetchResponse {
        let until = now() + Duration::from_millis(u64::from(request.max_wait_ms.unsigned_abs()));
        let asked = request.topics.iter().flat_map(|topic| &topic.partitions);
        let asked = asked.map(|partition| partition.fetch_offset);
        match request.session_epoch {
            -1 => self.state().compared_at.extend(asked),
            _ => self.state().fetched_from.extend(asked),
        }
        if let Some(code) = self.state().refuses_sessions {
            return FetchResponse { error_code: code.0, ..FetchResponse::default() };
        }
        let throttle_time_ms = self.state().throttle_ms;
        if throttle_time_ms > 0 && request.session_epoch != -1 {
            self.state().throttled += 1;
            return FetchResponse { throttle_time_ms, ..FetchResponse::default() };
        }
        loop {
            let response = self.read(&request);
            let topics = response.responses.iter().flat_map(|topic| &topic.partitions);
            let has_news = topics.clone().any(|data| {
                data.error_code != 0
                    || data.diverging_epoch.end_offset >= 0
                    || data.records.as_ref().is_some_and(|records| !records.is_empty())
            });
            if has_news || now() >= until {
                return response;
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn read(&self, request: &FetchRequest) -> FetchResponse {
        let mut state = self.state();
        let mut response = FetchResponse::default();
        let State { topics, damage_next, says_diverged, says_ends_late_by, sends_nothing_below, .. } =
            &mut *state;
        let compares = request.session_epoch == -1;
        let mut room = Room { bytes: request.max_bytes as usize, is_untouched: true };
        for asked in &request.topics {
            let topic = match asked.topic_id.is_nil() {
                true => topics.get(&*asked.topic),
                false => topics.values().find(|topic| topic.id.0 == asked.topic_id),
            };
            let mut data = |asked: &fetch_request::FetchPartition| {
                let log = topic.and_then(|topic| topic.partitions.get(asked.partition as usize));
                let mut data = fetch_response::PartitionData {
                    partition_index: asked.partition,
                    ..fetch_response::PartitionData::default()
                };
                let Some(log) = log else {
                    data.error_code = ErrorCode::UNKNOWN_TOPIC_ID.0;
                    return data;
                };
                data.high_watermark = log.end() - *says_ends_late_by;
                data.log_start_offset = log.start;
                if *says_diverged && asked.last_fetched_epoch >= 0 {
                    data.diverging_epoch =
                        fetch_response::EpochEndOffset { epoch: log.leader_epoch(), end_offset: log.end() };
                    return data;
                }
                if asked.current_leader_epoch != log.leader_epoch() {
                    data.error_code = ErrorCode::FENCED_LEADER_EPOCH.0;
                } else if !(log.start..=log.end()).contains(&asked.fetch_offset) {
                    data.error_code = ErrorCode::OFFSET_OUT_OF_RANGE.0;
                } else if !compares || asked.fetch_offset >= *sends_nothing_below {
                    let mut records = log.read(asked, &mut room);
                    if let Some(last) = records.last_mut().filter(|_| std::mem::take(damage_next)) {
                        *last ^= 1;
                    }
                    data.records = Some(Bytes::from(records).into());
                }
                data
            };
            response.responses.push(fetch_response::FetchableTopicResponse {
                topic: asked.topic.clone(),
                topic_id: asked.topic_id,
                partitions: asked.partitions.iter().map(&mut data).collect(),
            });
        }
        response
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let mut state = self.state();
        state.metadata_asked += 1;
        let topic = |name: &str| {
            let known = state.topics.get(name);
            let partition = |(index, log): (usize, &Log)| metadata_response::MetadataResponsePartition {
                partition_index: index as i32,
                leader_id: 1,
                leader_epoch: log.leader_epoch(),
                ..Default::default()
            };
            metadata_response::MetadataResponseTopic {
                error_code: known.map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0, |_| 0),
                name: Some(name.into()),
                topic_id: known.map(|topic| topic.id.0).unwrap_or_default(),
                partitions: known
                    .map(|topic| topic.partitions.iter().enumerate().map(partition).collect())
                    .unwrap_or_default(),
                ..Default::default()
            }
        };
        MetadataResponse {
            brokers: vec![metadata_response::MetadataResponseBroker {
                node_id: 1,
                host: "127.0.0.1".into(),
                port: i32::from(state.advertises.unwrap_or(state.port)),
                ..Default::default()
            }],
            cluster_id: Some(state.cluster_id.as_str().into()),
            topics: match &request.topics {
                None => state.topics.keys().map(|name| topic(name)).collect(),
                Some(named) => {
                    named.iter().filter_map(|one| one.name.as_ref()).map(|name| topic(name)).collect()
                }
            },
            ..Default::default()
        }
    }

    fn list_offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let state = self.state();
        let topics = request.topics.iter().map(|asked| {
            let partitions = asked.partitions.iter().map(|partition| {
                let topic = state.topics.get(&*asked.name);
                let log = topic.and_then(|topic| topic.partitions.get(partition.partition_index as usize));
                list_offsets_response::ListOffsetsPartitionResponse {
                    partition_index: partition.partition_index,
                    error_code: log.map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0, |_| 0),
                    offset: log
                        .map_or(-1, |log| if partition.timestamp == -2 { log.start } else { log.end() }),
                    ..Default::default()
                }
            });
            let partitions = partitions.collect();
            list_offsets_response::ListOffsetsTopicResponse { name: asked.name.clone(), partitions }
        });
        ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
    }

    fn epoch_ends(&self, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        let mut state = self.state();
        let topics = request.topics.iter().map(|asked| {
            let partitions = asked.partitions.iter().map(|partition| {
                let topic = state.topics.get_mut(&*asked.topic).expect("it exists");
                let (epoch, end) =
                    topic.partitions[partition.partition as usize].end_of(partition.leader_epoch);
                offset_for_leader_epoch_response::EpochEndOffset {
                    partition: partition.partition,
                    leader_epoch: epoch,
                    end_offset: end,
                    ..Default::default()
                }
            });
            let partitions = partitions.collect();
            offset_for_leader_epoch_response::OffsetForLeaderTopicResult {
                topic: asked.topic.clone(),
                partitions,
            }
        });
        OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
    }

    fn mirrors(&self) -> ListClusterMirrorsResponse {
        let state = self.state();
        let listed = |(cluster, topic): &(String, String)| list_cluster_mirrors_response::ListedMirror {
            mirror_name: "theirs".into(),
            source_cluster_id: cluster.as_str().into(),
            topic_count: 1,
            topic_names: Some(vec![topic.as_str().into()]),
            ..Default::default()
        };
        let mirrors = state.mirrors.iter().map(listed).collect();
        ListClusterMirrorsResponse { mirrors, ..Default::default() }
    }

    fn configs(&self, request: &DescribeConfigsRequest) -> DescribeConfigsResponse {
        let compacted = self.state().compacted;
        let entry = |name: &str, value: &str, config_source| {
            describe_configs_response::DescribeConfigsResourceResult {
                name: name.into(),
                value: Some(value.into()),
                config_source,
                ..Default::default()
            }
        };
        let results =
            request.resources.iter().map(|asked| describe_configs_response::DescribeConfigsResult {
                resource_type: asked.resource_type,
                resource_name: asked.resource_name.clone(),
                configs: vec![
                    entry("retention.ms", "77000", 1),
                    entry("min.insync.replicas", "2", 1),
                    entry("segment.bytes", "1000000", 5),
                    entry("cleanup.policy", if compacted { "compact,delete" } else { "delete" }, 5),
                ],
                ..Default::default()
            });
        DescribeConfigsResponse { results: results.collect(), ..Default::default() }
    }
}

/// Binds, once the kernel has let go of the port: it does so a moment after the core before has ended.
fn bind(listener: &ListenerSpec, limits: &ConnectionLimits) -> Acceptor {
    let began = now();
    loop {
        match Acceptor::bind(std::slice::from_ref(listener), limits) {
            Ok(acceptor) => return acceptor,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Service for Source {
    fn call(
        self: Rc<Self>,
        mut request: InboundRequest,
    ) -> futures_util::future::LocalBoxFuture<'static, Outcome> {
        Box::pin(async move {
            while self.state().is_silent {
                sleep(Duration::from_millis(2)).await;
            }
            let (key, version) = (request.header.api_key, request.header.api_version);
            let id = request.header.correlation_id;
            let body = &mut request.body;
            let frame = match key {
                ApiKey::METADATA => {
                    let asked = MetadataRequest::decode(body, version).expect("it is one");
                    encode_response(id, version, &self.metadata(&asked))
                }
                ApiKey::LIST_OFFSETS => {
                    let asked = ListOffsetsRequest::decode(body, version).expect("it is one");
                    encode_response(id, version, &self.list_offsets(&asked))
                }
                ApiKey::OFFSET_FOR_LEADER_EPOCH => {
                    let asked = OffsetForLeaderEpochRequest::decode(body, version).expect("it is one");
                    encode_response(id, version, &self.epoch_ends(&asked))
                }
                ApiKey::DESCRIBE_CONFIGS => {
                    let asked = DescribeConfigsRequest::decode(body, version).expect("it is one");
                    encode_response(id, version, &self.configs(&asked))
                }
                ApiKey::LIST_CLUSTER_MIRRORS => encode_response(id, version, &self.mirrors()),
                ApiKey::FETCH => {
                    let asked = FetchRequest::decode(body, version).expect("it is one");
                    return Outcome::Answer(Box::pin(async move {
                        let response = self.fetch(asked).await;
                        Answer::Frame(encode_response(id, version, &response).expect("it can be written"))
                    }));
                }
                other => return Outcome::Close(format!("{other} is not served")),
            };
            Outcome::ready(Answer::Frame(frame.expect("it can be written")))
        })
    }

    fn api_versions(&self, _: &ListenerName) -> ApiVersionsData {
        let range = |key: i16, min, max| ApiRange { key: ApiKey(key), min, max };
        let apis = [
            range(FetchRequest::KEY, 4, 17),
            range(MetadataRequest::KEY, 0, 12),
            range(ListOffsetsRequest::KEY, 1, 7),
            range(OffsetForLeaderEpochRequest::KEY, 2, 4),
            range(DescribeConfigsRequest::KEY, 1, 4),
            range(ListClusterMirrorsRequest::KEY, 0, 0),
        ];
        ApiVersionsData {
            apis: Rc::new(ApiRanges::new(apis)),
            supported_features: Vec::new(),
            finalized_features_epoch: -1,
            finalized_features: Vec::new(),
            cluster_id: self.state().cluster_id.as_str().into(),
            node_id: 1,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(core) = self.core.take() {
            core.join();
        }
    }
}
