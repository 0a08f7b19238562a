//! The node, and a client that does one thing at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_broker::Broker;
use tarn_image::config::server::ServerConfig;
use tarn_log::checkpoints::CleanShutdown;
use tarn_log::{Descriptors, LogDir, RealDisk};
use tarn_quorum::format::{self, FormatOptions, Formatted, Quorum};
use tarn_quorum::metadata_log::MetadataLog;
use tarn_record::builder::{BatchBuilder, Record};
use tarn_record::{Compression, Offset, Timestamp};
use tarn_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tarn_wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::messages::produce_response::PartitionProduceResponse;
use tarn_wire::messages::*;
use tarn_wire::{
    Cursor, ErrorCode, Message, MetadataRecord, Records, Request, decode_response_header, encode_request,
};
use tempfile::TempDir;

/// How long an answer may take on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A node that runs.
pub(crate) struct Running {
    broker: Option<Broker>,
    address: SocketAddr,
    files: Option<TempDir>,
}

impl Running {
    /// A node on a new directory, with these lines in its `server.properties`.
    pub(crate) fn new(more: &str) -> Running {
        Running::of_cluster("MkU3OEVBNTcwNTJENDM2Qg", more)
    }

    /// The same, of the cluster with this id.
    pub(crate) fn of_cluster(cluster_id: &str, more: &str) -> Running {
        let files = tempfile::tempdir().expect("a directory");
        let config = config(files.path(), more);
        let options = FormatOptions {
            cluster_id,
            config: &config,
            quorum: Quorum::Standalone,
            formatted: Formatted::Refuse,
        };
        let disk: Arc<dyn tarn_log::Disk> = Arc::new(RealDisk);
        format::format(&disk, &options, NOW).expect("the directory is new");
        Running::on(config, files)
    }

    /// A node on a copy of the directory that another left: the lock of that one goes with this process.
    pub(crate) fn again(left: &Path) -> Running {
        Running::again_with(left, "")
    }

    /// The same with these lines in its `server.properties`.
    pub(crate) fn again_with(left: &Path, more: &str) -> Running {
        let files = tempfile::tempdir().expect("a directory");
        copy(left, files.path());
        Running::on(config(files.path(), more), files)
    }

    /// A node on a copy of the directory that another left, with more records in its metadata.
    pub(crate) fn again_knowing(left: &Path, records: &[MetadataRecord]) -> Running {
        let files = tempfile::tempdir().expect("a directory");
        copy(left, files.path());
        if !records.is_empty() {
            write_metadata(files.path(), records);
        }
        Running::on(config(files.path(), ""), files)
    }

    /// A node on this directory, or why it does not start.
    pub(crate) fn try_on(files: TempDir) -> Result<Running, String> {
        let broker = Broker::start(config(files.path(), "")).map_err(|error| error.to_string())?;
        Ok(Running::started(broker, files))
    }

    fn on(config: ServerConfig, files: TempDir) -> Running {
        Running::started(Broker::start(config).expect("it starts"), files)
    }

    fn started(broker: Broker, files: TempDir) -> Running {
        let listener = broker.addresses().iter().find(|(name, _)| name == "PLAINTEXT");
        let address = listener.expect("it is configured").1;
        Running { broker: Some(broker), address, files: Some(files) }
    }

    /// Stops the node; its directory.
    pub(crate) fn stop(mut self) -> TempDir {
        self.broker.take().into_iter().for_each(Broker::stop);
        self.files.take().expect("it is taken here only")
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics and health checks are.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.broker.as_ref().and_then(Broker::admin_address).expect("it is configured")
    }

    /// A connection of its own.
    pub(crate) fn client(&self) -> Client {
        self.client_called("test")
    }

    /// A connection of a client that calls itself so.
    pub(crate) fn client_called(&self, id: &str) -> Client {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client { stream, id: id.to_owned(), correlation_id: 0, answered: 0 }
    }

    /// Where a partition's log is.
    pub(crate) fn log(&self, topic: &str, partition: i32) -> PathBuf {
        self.files.as_ref().expect("it runs").path().join(format!("{topic}-{partition}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.broker.take().into_iter().for_each(Broker::stop);
    }
}

/// Puts records into the metadata of a node that does not run.
pub(crate) fn write_metadata(files: &Path, records: &[MetadataRecord]) {
    let dir = LogDir::open(Arc::new(RealDisk), files, Descriptors::new(100)).expect("nobody has it");
    let config = config(files, "");
    let mut log = MetadataLog::open(&dir, None, &config.metadata_log, NOW).expect("it is whole").log;
    log.append(records, log.latest_epoch(), NOW).expect("there is room");
    log.close().expect("there is room");
    let mark = CleanShutdown { broker_epoch: 1, metadata_end: Some(log.end()) };
    dir.mark_clean(mark).expect("there is room");
}

/// Copies all that is in a directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("it is a directory") {
        let entry = entry.expect("it can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            std::fs::create_dir(&to).expect("there is room");
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("there is room");
        }
    }
}

/// Why a node with these lines in its `server.properties` does not start.
pub(crate) fn refusal(more: &str) -> String {
    let files = tempfile::tempdir().expect("a directory");
    match Broker::start(config(files.path(), more)) {
        Ok(_) => panic!("it was not to start"),
        Err(error) => error.to_string(),
    }
}

/// The same, where its directory is formatted.
pub(crate) fn refusal_on_formatted(more: &str) -> String {
    // The lock of a directory goes with this process.
    let (formatted, files) = (Running::new("").stop(), tempfile::tempdir().expect("a directory"));
    copy(formatted.path(), files.path());
    match Broker::start(config(files.path(), more)) {
        Ok(_) => panic!("it was not to start"),
        Err(error) => error.to_string(),
    }
}

/// The configuration of a node on this directory, with more lines.
pub(crate) fn config(dir: &Path, more: &str) -> ServerConfig {
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\nlog.dirs={}\n\
         controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n{more}",
        dir.display()
    );
    ServerConfig::parse(&text).expect("the test's file is good").0
}

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    id: String,
    correlation_id: i32,
    /// The number of the newest answer: they come in order.
    answered: i32,
}

impl Client {
    /// Its socket, for what is no answer.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request and waits for its response.
    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request);
        self.receive::<R>(version)
    }

    /// Sends a request.
    pub(crate) fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation_id += 1;
        let frame = encode_request(self.correlation_id, &self.id, version, request).expect("it fits");
        self.stream.write_all(&frame.to_bytes().expect("it holds no file")).expect("it is connected");
    }

    /// Waits for the next response.
    pub(crate) fn receive<R: Request>(&mut self, version: i16) -> R::Response {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).expect("it answers");
        let mut frame = vec![0; i32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut frame).expect("it answers");
        let mut cursor = Cursor::new(Bytes::from(frame));
        self.answered += 1;
        let number = decode_response_header::<R::Response>(&mut cursor, version);
        assert_eq!(number, Ok(self.answered));
        R::Response::decode(&mut cursor, version).expect("a response")
    }

    /// The responses to requests of one kind that come until the node closes the connection.
    pub(crate) fn receive_all<R: Request>(&mut self, version: i16) -> Vec<R::Response> {
        let mut responses = Vec::new();
        // A node that closes what it has not read all of resets it.
        while let Ok(1..) = self.stream.peek(&mut [0]) {
            responses.push(self.receive::<R>(version));
        }
        responses
    }

    /// Makes a topic.
    pub(crate) fn create(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        let configs = configs.iter();
        let configs = configs
            .map(|(name, value)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) });
        let topic = CreatableTopic {
            name: topic.into(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
        let made = self.call(7, &request);
        assert_eq!(made.topics[0].error_code, 0, "{:?}", made.topics[0].error_message);
    }

    /// Deletes a topic.
    pub(crate) fn delete(&mut self, topic: &str) {
        let request =
            DeleteTopicsRequest { topic_names: vec![topic.into()], timeout_ms: 10_000, ..Default::default() };
        assert_eq!(self.call(5, &request).responses[0].error_code, 0);
    }

    /// True where a request is answered, false where the connection is closed instead.
    pub(crate) fn is_served(&mut self) -> bool {
        self.correlation_id += 1;
        let request = encode_request(self.correlation_id, &self.id, 9, &MetadataRequest::default());
        let bytes = request.expect("it fits").to_bytes().expect("it holds no file");
        let mut size = [0; 4];
        if self.stream.write_all(&bytes).is_err() || self.stream.read_exact(&mut size).is_err() {
            return false;
        }
        let mut frame = vec![0; i32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut frame).expect("it answers");
        self.answered += 1;
        true
    }

    /// Sets a config of a topic (type 2) or a broker (type 4).
    pub(crate) fn alter(&mut self, kind: i8, resource: &str, key: &str, value: &str) {
        assert_eq!(self.try_alter(kind, resource, key, value), (0, None));
    }

    /// The same, and what the node says.
    pub(crate) fn try_alter(
        &mut self,
        kind: i8,
        resource: &str,
        key: &str,
        value: &str,
    ) -> (i16, Option<String>) {
        let config = AlterableConfig { name: key.into(), config_operation: 0, value: Some(value.into()) };
        let resource = AlterConfigsResource {
            resource_type: kind,
            resource_name: resource.into(),
            configs: vec![config],
        };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        let altered = self.call(1, &request);
        let message = altered.responses[0].error_message.as_ref().map(ToString::to_string);
        (altered.responses[0].error_code, message)
    }

    /// Sends one record of so many bytes to partition 0 of a topic; again, as clients do, while the owning
    /// core has not heard of the topic.
    pub(crate) fn produce(&mut self, topic: &str, acks: i16, bytes: usize) -> PartitionProduceResponse {
        self.produced(topic, &produce(topic, acks, bytes))
    }

    /// Produces one record of so many bytes to a partition.
    pub(crate) fn produce_to(&mut self, topic: &str, partition: i32, bytes: usize) {
        let mut request = produce(topic, 1, bytes);
        request.topic_data[0].partition_data[0].index = partition;
        assert_eq!(self.produced(topic, &request).error_code, 0);
    }

    fn produced(&mut self, topic: &str, request: &ProduceRequest) -> PartitionProduceResponse {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "the core never heard of {topic}");
            let produced = self.call(9, request);
            let produced = produced.responses[0].partition_responses[0].clone();
            if !is_unheard_of(produced.error_code) {
                return produced;
            }
        }
    }
}

/// True while the owning core has not heard of a topic, or not opened its log.
pub(crate) fn is_unheard_of(error_code: i16) -> bool {
    [ErrorCode::NOT_LEADER_OR_FOLLOWER.0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0].contains(&error_code)
}

/// One record of so many bytes for partition 0 of a topic.
pub(crate) fn produce(topic: &str, acks: i16, bytes: usize) -> ProduceRequest {
    let mut batch = BatchBuilder::new(Offset(0), Compression::None).timestamp(NOW);
    batch.add(&Record { value: Some(&vec![7; bytes]), timestamp: NOW, ..Record::default() });
    let data = PartitionProduceData { index: 0, records: Some(Records::from(batch.build())) };
    let topic = TopicProduceData { name: topic.into(), partition_data: vec![data], ..Default::default() };
    ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() }
}
