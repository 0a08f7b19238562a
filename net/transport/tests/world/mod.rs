//! A node for tests: one core with a server and an acceptor, and a service that does what the client id of
//! a request tells it to. Clients are plain blocking sockets.

#![allow(dead_code)]

use std::future::pending;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use tarn_runtime::channel::{Flag, mailbox};
use tarn_runtime::{CoreHandle, CoreSpec, Queue, spawn, spawn_core};
use tarn_transport::{
    Acceptor, Answer, ApiRange, ApiRanges, ApiVersionsData, ConnectionLimits, FeatureLevels, InboundRequest,
    ListenerName, ListenerSpec, MemoryBudget, Outcome, Server, Service, TransportMetrics,
};
use tarn_wire::messages::{FetchRequest, FetchResponse, MetadataRequest, MetadataResponse, fetch_response};
use tarn_wire::{ApiKey, Frame, Message, Part, Records, Request, Str, encode_response};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What the service is told to do, by the client id of a request.
pub(crate) const ECHO: &str = "echo";
/// Answers when the gate opens.
pub(crate) const GATED: &str = "gated";
/// Answers never.
pub(crate) const PARKED: &str = "parked";
/// Answers when the gate opens, and keeps its share of the budget until then.
pub(crate) const HOLDING: &str = "holding";
/// Answers with `State::parts`.
pub(crate) const PARTS: &str = "parts";
/// Answers nothing.
pub(crate) const NOTHING: &str = "nothing";
/// Gives the connection up.
pub(crate) const CLOSE: &str = "close";
/// Panics in the half that is done in order.
pub(crate) const PANIC_IN_CALL: &str = "panic-in-call";
/// Panics in the other half.
pub(crate) const PANIC_IN_ANSWER: &str = "panic-in-answer";

/// What a test and the service share.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) gate: Flag,
    pub(crate) calls: AtomicUsize,
    pub(crate) parked: AtomicUsize,
    pub(crate) parts: Mutex<Vec<Part>>,
    pub(crate) software: Mutex<Option<String>>,
}

pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<State>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) metrics: Arc<TransportMetrics>,
    stop: Flag,
    core: Option<CoreHandle<()>>,
}

impl World {
    pub(crate) fn start(limits: ConnectionLimits) -> World {
        World::with_budget(limits, MemoryBudget::unlimited())
    }

    pub(crate) fn with_budget(limits: ConnectionLimits, budget: Arc<MemoryBudget>) -> World {
        let spec = ListenerSpec::new("PLAINTEXT", "127.0.0.1", 0).unwrap();
        let acceptor = Acceptor::bind(&[spec], &limits).unwrap();
        let address = acceptor.addresses().unwrap()[0].1;
        let (state, metrics, stop) = (Arc::new(State::default()), Arc::default(), Flag::new());
        let shared = (Arc::clone(&state), Arc::clone(&budget), Arc::clone(&metrics), stop.clone());
        let core = spawn_core(CoreSpec { cpu: None, name: "served".to_owned() }, move || async move {
            let (state, budget, metrics, stop) = shared;
            let (sender, receiver) = mailbox(16);
            let accepting = spawn(Queue::Network, acceptor.run(vec![sender], stop.clone()));
            let server = Server::new(Rc::new(Commanded { state }), limits, budget, metrics);
            server.run(receiver, stop).await;
            accepting.await;
            assert_eq!(server.connections(), 0);
        });
        World { address, state, budget, metrics, stop, core: Some(core.unwrap()) }
    }

    pub(crate) fn connect(&self) -> Peer {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream }
    }

    /// Has the node stop, and does not wait for it.
    pub(crate) fn begin_stop(&self) {
        self.stop.raise();
    }

    /// Stops the node and waits for it.
    pub(crate) fn stop(&mut self) {
        self.stop.raise();
        self.state.gate.raise();
        if let Some(core) = self.core.take() {
            core.join();
        }
    }

    /// That the node still serves whoever connects.
    pub(crate) fn assert_serves(&self) {
        let mut peer = self.connect();
        peer.send(ECHO, 77);
        assert_eq!(peer.receive(), (77, ECHO.to_owned()));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A client that speaks in bytes.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
}

impl Peer {
    pub(crate) fn send(&mut self, command: &str, correlation_id: i32) {
        self.stream.write_all(&request(command, correlation_id, &[])).unwrap();
    }

    /// A response: its correlation id and the rest as text.
    pub(crate) fn receive(&mut self) -> (i32, String) {
        let (correlation_id, body) = self.receive_bytes();
        (correlation_id, String::from_utf8(body).unwrap())
    }

    pub(crate) fn receive_bytes(&mut self) -> (i32, Vec<u8>) {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).unwrap();
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        self.stream.read_exact(&mut frame).unwrap();
        let body = frame.split_off(4);
        (i32::from_be_bytes(frame.try_into().unwrap()), body)
    }

    /// That the node closes the connection, and how many bytes come before.
    pub(crate) fn assert_closed(&mut self) -> usize {
        let mut buffer = [0; 65536];
        let mut received = 0;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return received,
                Ok(count) => received += count,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return received,
                Err(error) => panic!("the connection was not closed: {error}"),
            }
        }
    }
}

/// The bytes of a Metadata request, version 1, whose client id is a command.
pub(crate) fn request(command: &str, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    header(ApiKey::METADATA, 1, command, correlation_id, body)
}

/// The bytes of any request with a header of version 1.
pub(crate) fn header(
    key: ApiKey,
    version: i16,
    client_id: &str,
    correlation_id: i32,
    body: &[u8],
) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(i32::try_from(10 + client_id.len() + body.len()).unwrap());
    frame.put_i16(key.0);
    frame.put_i16(version);
    frame.put_i32(correlation_id);
    frame.put_i16(i16::try_from(client_id.len()).unwrap());
    frame.put_slice(client_id.as_bytes());
    frame.put_slice(body);
    frame
}

/// A service that does what it is told.
struct Commanded {
    state: Arc<State>,
}

/// Counts an answer as parked while it lives.
struct Parked(Arc<State>);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.parked.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for Commanded {
    fn call(self: Rc<Self>, request: InboundRequest) -> LocalBoxFuture<'static, Outcome> {
        Box::pin(async move {
            self.state.calls.fetch_add(1, Ordering::SeqCst);
            let software = request.connection.client_software().map(|software| software.name);
            *self.state.software.lock().unwrap() = software;
            let command = request.header.client_id.clone().unwrap_or_default();
            match &*command {
                PANIC_IN_CALL => panic!("told to"),
                CLOSE => Outcome::Close("told to".to_owned()),
                NOTHING => Outcome::ready(Answer::Nothing),
                _ => Outcome::Answer(Box::pin(self.answer(request, command))),
            }
        })
    }

    fn api_versions(&self, _: &ListenerName) -> ApiVersionsData {
        let range = |key: ApiKey, min, max| ApiRange { key, min, max };
        ApiVersionsData {
            apis: Rc::new(ApiRanges::new([
                range(ApiKey::METADATA, 0, 13),
                range(ApiKey::FETCH, 4, 18),
                range(ApiKey::API_VERSIONS, 0, 5),
            ])),
            supported_features: vec![FeatureLevels {
                name: Str::from_static("metadata.version"),
                min: 1,
                max: 33,
            }],
            finalized_features_epoch: 5,
            finalized_features: vec![FeatureLevels {
                name: Str::from_static("metadata.version"),
                min: 33,
                max: 33,
            }],
            cluster_id: Str::from_static("tests"),
            node_id: 1,
        }
    }
}

impl Commanded {
    async fn answer(self: Rc<Self>, request: InboundRequest, command: Str) -> Answer {
        let correlation_id = request.header.correlation_id;
        match &*command {
            PARKED => {
                self.state.parked.fetch_add(1, Ordering::SeqCst);
                let _parked = Parked(Arc::clone(&self.state));
                pending().await
            }
            GATED => {
                drop(request);
                self.state.gate.raised().await;
                text(correlation_id, &command)
            }
            HOLDING => {
                self.state.gate.raised().await;
                drop(request);
                text(correlation_id, &command)
            }
            PANIC_IN_ANSWER => panic!("told to"),
            PARTS => parts(correlation_id, &self.state.parts.lock().unwrap()),
            ECHO => text(correlation_id, &command),
            _ => real(request),
        }
    }
}

/// A response whose body is text.
fn text(correlation_id: i32, text: &str) -> Answer {
    parts(correlation_id, &[Part::Bytes(Bytes::copy_from_slice(text.as_bytes()))])
}

/// A response whose body is parts.
fn parts(correlation_id: i32, body: &[Part]) -> Answer {
    let len = 8 + body.iter().map(Part::len).sum::<usize>();
    let mut head = BytesMut::new();
    head.put_i32(i32::try_from(len - 4).unwrap());
    head.put_i32(correlation_id);
    let mut parts = vec![Part::Bytes(head.freeze())];
    parts.extend_from_slice(body);
    Answer::Frame(Frame { parts, len })
}

/// What a broker would answer: Metadata with our cluster id and as many brokers as topics were asked for, Fetch
/// with two megabytes.
fn real(mut request: InboundRequest) -> Answer {
    let version = request.header.api_version;
    let correlation_id = request.header.correlation_id;
    let frame = if request.header.api_key.0 == MetadataRequest::KEY {
        let asked = MetadataRequest::decode(&mut request.body, version).unwrap();
        let controller_id = i32::try_from(asked.topics.map_or(0, |topics| topics.len())).unwrap();
        let cluster_id = Some(Str::from_static("tests"));
        let response = MetadataResponse { cluster_id, controller_id, ..MetadataResponse::default() };
        encode_response(correlation_id, version, &response)
    } else {
        let asked = FetchRequest::decode(&mut request.body, version).unwrap();
        let records = vec![7; usize::try_from(asked.max_bytes).unwrap()];
        let partition = fetch_response::PartitionData {
            records: Some(Records::from(Bytes::from(records))),
            ..fetch_response::PartitionData::default()
        };
        let topic = fetch_response::FetchableTopicResponse {
            partitions: vec![partition],
            ..fetch_response::FetchableTopicResponse::default()
        };
        let response = FetchResponse { responses: vec![topic], ..FetchResponse::default() };
        encode_response(correlation_id, version, &response)
    };
    Answer::Frame(frame.unwrap())
}
