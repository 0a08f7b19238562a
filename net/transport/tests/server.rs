//! The server side over real sockets: what clients may do to it, and what it owes them.

#![allow(clippy::unwrap_used)]

mod world;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_transport::{AdmissionLimits, ConnectionLimits, MemoryBudget};
use tarn_wire::messages::{ApiVersionsRequest, ApiVersionsResponse};
use tarn_wire::{ApiKey, Cursor, ErrorCode, Message, Part, Str, encode_request};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use world::*;

#[test]
fn whoever_sends_nonsense_again_and_again_does_not_fill_the_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Said).unwrap());
    let world = World::start(ConnectionLimits::default());
    let mut peers = BTreeSet::new();
    for _ in 0..50 {
        let mut peer = world.connect();
        peers.insert(peer.stream.local_addr().unwrap().to_string());
        peer.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        peer.assert_closed();
    }
    eventually("all are counted", || world.metrics.connections_closed_malformed.get() == 50);
    eventually("all have ended", || world.metrics.sum(|one| one.connections_closed.get()) == 50);
    let said = PEERS_TOLD_OF.lock().unwrap().iter().filter(|peer| peers.contains(*peer)).count();
    assert_eq!(said, tarn_transport::limits::REMARKS_MAX as usize, "and so many are told");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    let commands = [ECHO, GATED, ECHO, NOTHING, GATED, ECHO];
    let mut requests = Vec::new();
    for (command, correlation_id) in commands.iter().zip(0..) {
        requests.extend(request(command, correlation_id, &[]));
    }
    peer.stream.write_all(&requests).unwrap();
    assert_eq!(peer.receive(), (0, ECHO.to_owned()));
    eventually("all requests are seen", || world.state.calls.load(Ordering::SeqCst) == commands.len());
    world.state.gate.raise();
    let answers: Vec<(i32, String)> = (0..4).map(|_| peer.receive()).collect();
    let expected = [(1, GATED), (2, ECHO), (4, GATED), (5, ECHO)].map(|(id, text)| (id, text.to_owned()));
    assert_eq!(answers, expected, "the one that wants no answer gets none");
}

#[test]
fn no_more_requests_are_taken_than_the_pipeline_holds() {
    let world = World::start(ConnectionLimits { pipeline_depth: 2, ..ConnectionLimits::default() });
    let mut peer = world.connect();
    for correlation_id in 0..5 {
        peer.send(GATED, correlation_id);
    }
    eventually("two are taken", || world.state.calls.load(Ordering::SeqCst) == 2);
    world.assert_serves();
    assert_eq!(world.state.calls.load(Ordering::SeqCst), 3, "the two and the one of another connection");
    world.state.gate.raise();
    let answered: Vec<i32> = (0..5).map(|_| peer.receive().0).collect();
    assert_eq!(answered, [0, 1, 2, 3, 4]);
}

#[test]
fn a_client_that_does_not_read_blocks_nobody_and_is_closed() {
    let limits = ConnectionLimits { idle_timeout: Duration::from_millis(300), ..ConnectionLimits::default() };
    let world = World::start(limits);
    let answer_bytes = 64 << 20;
    *world.state.parts.lock().unwrap() = vec![Part::Bytes(Bytes::from(vec![1; answer_bytes]))];
    let mut lazy = world.connect();
    lazy.send(PARTS, 1);
    eventually("it is being answered", || world.metrics.sum(|one| one.bytes_sent.get()) > 0);
    world.assert_serves();
    eventually("the one that reads nothing is closed", || world.metrics.connections_closed_idle.get() >= 1);
    assert!(lazy.assert_closed() < answer_bytes);
}

#[test]
fn what_is_not_kafka_closes_its_own_connection_only() {
    let world = World::start(ConnectionLimits::default());
    let mut honest = world.connect();
    let unknown = header(ApiKey(999), 0, "x", 1, &[]);
    let unsupported = header(ApiKey::METADATA, 99, "x", 1, &[]);
    let not_here = header(ApiKey::VOTE, 0, "x", 1, &[]);
    let negative = (-1i32).to_be_bytes().to_vec();
    let two_gigabytes = i32::MAX.to_be_bytes().to_vec();
    let no_header = vec![0, 0, 0, 3, 1, 2, 3];
    let empty = vec![0; 4];
    let text = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec();
    let garbage = [unknown, unsupported, not_here, negative, two_gigabytes, no_header, empty, text];
    for (number, garbage) in garbage.iter().enumerate() {
        let mut peer = world.connect();
        peer.stream.write_all(garbage).unwrap();
        assert_eq!(peer.assert_closed(), 0, "garbage {number} gets no answer");
        eventually("it is counted", || world.metrics.connections_closed_malformed.get() == number as u64 + 1);
    }
    honest.send(ECHO, 5);
    assert_eq!(honest.receive(), (5, ECHO.to_owned()));
    assert_eq!(world.budget.in_use(), 0);
}

#[test]
fn answers_due_still_leave_before_garbage_closes_the_connection() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    let mut bytes = request(GATED, 1, &[]);
    bytes.extend([0xff; 8]);
    peer.stream.write_all(&bytes).unwrap();
    eventually("it is taken", || world.state.calls.load(Ordering::SeqCst) == 1);
    world.state.gate.raise();
    assert_eq!(peer.receive(), (1, GATED.to_owned()));
    assert_eq!(peer.assert_closed(), 0);
}

#[test]
fn a_large_announcement_holds_no_more_than_what_arrives() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    let mut frame = request(ECHO, 1, &vec![0; 100 << 10]);
    frame[..4].copy_from_slice(&(90i32 << 20).to_be_bytes());
    peer.stream.write_all(&frame).unwrap();
    eventually("all of it is read", || world.budget.in_use() > 100 << 10);
    assert!(world.budget.in_use() <= 256 << 10, "{} bytes for 100 KiB", world.budget.in_use());
    drop(peer);
    eventually("it is given back", || world.budget.in_use() == 0);
    eventually("the connection is gone", || world.metrics.connections_open() == 0);
}

#[test]
fn requests_of_every_size_arrive_whole() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    let sizes = [0, 1, 4_000, 16_300, 16_384, 16_500, 65_536, 65_537, 300_000, 5_000_000, 10];
    let mut sender = peer.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        for (correlation_id, size) in (0..).zip(sizes) {
            sender.write_all(&request(ECHO, correlation_id, &vec![0xaa; size])).unwrap();
        }
    });
    for correlation_id in 0..sizes.len() {
        assert_eq!(peer.receive(), (i32::try_from(correlation_id).unwrap(), ECHO.to_owned()));
    }
    sending.join().unwrap();
    assert_eq!(world.budget.in_use(), 0);
}

#[test]
fn requests_may_arrive_in_any_pieces() {
    let world = World::start(ConnectionLimits::default());
    let mut requests = Vec::new();
    for (correlation_id, size) in (0..).zip([0, 30, 200]) {
        requests.extend(request(ECHO, correlation_id, &vec![0; size]));
    }
    for piece in [1, 3, 7, 23, 100] {
        let mut peer = world.connect();
        for bytes in requests.chunks(piece) {
            peer.stream.write_all(bytes).unwrap();
        }
        let answered: Vec<i32> = (0..3).map(|_| peer.receive().0).collect();
        assert_eq!(answered, [0, 1, 2], "pieces of {piece}");
    }
}

#[test]
fn a_request_that_stops_half_way_is_given_up() {
    let limits = ConnectionLimits { idle_timeout: Duration::from_millis(200), ..ConnectionLimits::default() };
    let world = World::start(limits);
    let mut peer = world.connect();
    let frame = request(ECHO, 1, &[0; 1000]);
    peer.stream.write_all(&frame[..500]).unwrap();
    assert_eq!(peer.assert_closed(), 0);
    eventually("it is given back", || world.budget.in_use() == 0);
    eventually("it is counted", || world.metrics.connections_closed_idle.get() == 1);
}

#[test]
fn an_idle_connection_is_closed_but_not_one_that_waits_for_its_answer() {
    let limits = ConnectionLimits { idle_timeout: Duration::from_millis(200), ..ConnectionLimits::default() };
    let world = World::start(limits);
    let mut waiting = world.connect();
    waiting.send(GATED, 1);
    eventually("it is taken", || world.state.calls.load(Ordering::SeqCst) == 1);
    let mut idle = world.connect();
    assert_eq!(idle.assert_closed(), 0);
    world.state.gate.raise();
    assert_eq!(waiting.receive(), (1, GATED.to_owned()));
    assert_eq!(waiting.assert_closed(), 0, "now it is idle too");
}

#[test]
fn what_is_parked_goes_with_its_connection() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    for correlation_id in 0..3 {
        peer.send(PARKED, correlation_id);
    }
    eventually("all are parked", || world.state.parked.load(Ordering::SeqCst) == 3);
    assert!(world.budget.in_use() > 0);
    drop(peer);
    eventually("all are dropped", || world.state.parked.load(Ordering::SeqCst) == 0);
    eventually("so is what they held", || world.budget.in_use() == 0);
}

#[test]
fn a_client_that_only_ends_its_own_side_still_gets_what_is_ready() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    peer.send(ECHO, 1);
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.receive(), (1, ECHO.to_owned()));
    assert_eq!(peer.assert_closed(), 0);
}

#[test]
fn a_panic_closes_its_own_connection_only() {
    let world = World::start(ConnectionLimits::default());
    let mut honest = world.connect();
    for (command, count) in [(PANIC_IN_CALL, 1), (PANIC_IN_ANSWER, 2)] {
        let mut peer = world.connect();
        peer.send(command, 1);
        assert_eq!(peer.assert_closed(), 0);
        eventually("it is counted", || world.metrics.connections_panicked.get() == count);
    }
    honest.send(ECHO, 5);
    assert_eq!(honest.receive(), (5, ECHO.to_owned()));
}

#[test]
fn a_service_can_give_a_connection_up_after_earlier_answers() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    let mut bytes = request(ECHO, 1, &[]);
    bytes.extend(request(CLOSE, 2, &[]));
    bytes.extend(request(ECHO, 3, &[]));
    peer.stream.write_all(&bytes).unwrap();
    assert_eq!(peer.receive(), (1, ECHO.to_owned()));
    assert_eq!(peer.assert_closed(), 0);
}

#[test]
fn an_exhausted_budget_stops_reading_until_a_request_is_handled() {
    let world = World::with_budget(ConnectionLimits::default(), MemoryBudget::new(100_000));
    let mut greedy = world.connect();
    greedy.stream.write_all(&request(HOLDING, 1, &vec![0; 100_000])).unwrap();
    eventually("it holds the budget", || world.state.calls.load(Ordering::SeqCst) == 1);
    let mut next = world.connect();
    next.send(ECHO, 2);
    eventually("the next waits", || world.budget.waiting() == 1);
    assert_eq!(world.state.calls.load(Ordering::SeqCst), 1);
    world.state.gate.raise();
    assert_eq!(greedy.receive(), (1, HOLDING.to_owned()));
    assert_eq!(next.receive(), (2, ECHO.to_owned()));
    assert_eq!((world.budget.in_use(), world.budget.waiting()), (0, 0));
}

#[test]
fn a_request_that_trickles_gives_way_to_those_that_wait_for_what_it_holds() {
    let limits = ConnectionLimits { idle_timeout: Duration::from_millis(500), ..ConnectionLimits::default() };
    let world = World::with_budget(limits, MemoryBudget::new(10_000));
    let mut slow = world.connect();
    slow.stream.write_all(&16_000i32.to_be_bytes()).unwrap();
    slow.stream.write_all(&[0; 12_000]).unwrap();
    eventually("it holds the budget", || world.budget.in_use() > 10_000);
    let mut next = world.connect();
    next.send(ECHO, 5);
    eventually("the next waits", || world.budget.waiting() == 1);
    next.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while next.stream.peek(&mut [0]).is_err() {
        assert!(Instant::now() < deadline, "a byte now and then holds the memory");
        // The server may have closed it by now.
        let _ = slow.stream.write_all(&[0]);
    }
    next.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(next.receive(), (5, ECHO.to_owned()));
    eventually("it is given back", || world.budget.in_use() == 0);
}

#[test]
fn a_client_that_leaves_while_it_waits_for_the_budget_leaves_no_trace() {
    let world = World::with_budget(ConnectionLimits::default(), MemoryBudget::new(1_000));
    let mut greedy = world.connect();
    greedy.stream.write_all(&request(HOLDING, 1, &vec![0; 10_000])).unwrap();
    eventually("it holds the budget", || world.state.calls.load(Ordering::SeqCst) == 1);
    let mut impatient = world.connect();
    impatient.send(ECHO, 2);
    eventually("the next waits", || world.budget.waiting() == 1);
    drop(impatient);
    world.state.gate.raise();
    assert_eq!(greedy.receive(), (1, HOLDING.to_owned()));
    eventually("only one is left", || world.metrics.connections_open() == 1);
    assert_eq!((world.budget.in_use(), world.budget.waiting()), (0, 0));
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let world = World::start(ConnectionLimits::default());
    let mut peer = world.connect();
    // A header of version 2: an empty section of tagged fields follows the client id.
    peer.stream.write_all(&header(ApiKey::API_VERSIONS, 99, "future", 1, &[0, 1, 2, 3])).unwrap();
    let refused = api_versions(&mut peer, 1, 0);
    assert_eq!(refused.error_code, ErrorCode::UNSUPPORTED_VERSION.0);
    let offered = &refused.api_keys[0];
    assert_eq!((offered.api_key, offered.min_version, offered.max_version), (18, 0, 5));
    // And the client asks again on the same connection.
    let request = ApiVersionsRequest {
        client_software_name: Str::from_static("future"),
        client_software_version: Str::from_static("9.9"),
        ..ApiVersionsRequest::default()
    };
    let frame = encode_request(2, "future", 5, &request).unwrap();
    peer.stream.write_all(&frame.to_bytes().unwrap()).unwrap();
    let answered = api_versions(&mut peer, 2, 5);
    assert_eq!((answered.error_code, answered.api_keys.len()), (0, 3));
    assert_eq!(answered.finalized_features_epoch, 5);
    peer.send(ECHO, 3);
    assert_eq!(peer.receive(), (3, ECHO.to_owned()));
    assert_eq!(world.state.software.lock().unwrap().as_deref(), Some("future"));
}

#[test]
fn an_address_with_too_many_connections_gets_no_more() {
    let world = World::start(admitting(AdmissionLimits { max_per_ip: 1, ..AdmissionLimits::default() }));
    let mut first = world.connect();
    first.send(ECHO, 1);
    assert_eq!(first.receive(), (1, ECHO.to_owned()));
    assert_eq!(world.connect().assert_closed(), 0);
    drop(first);
    eventually("the seat is free", || world.metrics.connections_open() == 0);
    world.assert_serves();
}

#[test]
fn a_full_node_lets_the_next_connection_wait() {
    let world = World::start(admitting(AdmissionLimits { max: 1, ..AdmissionLimits::default() }));
    let mut first = world.connect();
    first.send(ECHO, 1);
    assert_eq!(first.receive(), (1, ECHO.to_owned()));
    let mut second = world.connect();
    second.send(ECHO, 2);
    first.send(ECHO, 3);
    assert_eq!(first.receive(), (3, ECHO.to_owned()));
    assert_eq!(world.metrics.sum(|one| one.connections_opened.get()), 1);
    drop(first);
    assert_eq!(second.receive(), (2, ECHO.to_owned()));
}

#[test]
fn what_was_asked_before_a_stop_is_answered_and_nothing_after_it() {
    let limits = ConnectionLimits { stop_grace: PATIENCE, ..ConnectionLimits::default() };
    let mut world = World::start(limits);
    let (mut idle, mut peer) = (world.connect(), world.connect());
    idle.send(ECHO, 1);
    assert_eq!(idle.receive(), (1, ECHO.to_owned()));
    peer.send(GATED, 2);
    eventually("it is taken", || world.state.calls.load(Ordering::SeqCst) == 2);
    world.begin_stop();
    assert_eq!(idle.assert_closed(), 0);
    peer.send(ECHO, 3);
    world.state.gate.raise();
    assert_eq!(peer.receive(), (2, GATED.to_owned()));
    assert_eq!(peer.assert_closed(), 0);
    world.stop();
    assert_eq!(world.state.calls.load(Ordering::SeqCst), 2);
}

#[test]
fn an_answer_that_was_written_arrives_though_the_client_has_sent_more_than_is_read() {
    const ANSWER_BYTES: usize = 16 << 20;
    let mut world = World::start(ConnectionLimits { stop_grace: PATIENCE, ..ConnectionLimits::default() });
    *world.state.parts.lock().unwrap() = vec![Part::Bytes(Bytes::from(vec![7; ANSWER_BYTES]))];
    let (mut idle, mut peer) = (world.connect(), world.connect());
    idle.send(ECHO, 1);
    assert_eq!(idle.receive(), (1, ECHO.to_owned()));
    peer.send(PARTS, 2);
    eventually("it is taken", || world.state.calls.load(Ordering::SeqCst) == 2);
    world.begin_stop();
    assert_eq!(idle.assert_closed(), 0);
    // Unread, and the answer is longer than what sockets hold.
    peer.send(ECHO, 3);
    let (answered, body) = peer.receive_bytes();
    assert_eq!((answered, body.len()), (2, ANSWER_BYTES));
    assert_eq!(peer.assert_closed(), 0);
    drop(peer);
    world.stop();
    assert_eq!(world.state.calls.load(Ordering::SeqCst), 2);
}

#[test]
fn stopping_closes_every_connection() {
    let limits = ConnectionLimits { stop_grace: Duration::from_millis(1), ..ConnectionLimits::default() };
    let mut world = World::start(limits);
    let (mut idle, mut parked) = (world.connect(), world.connect());
    idle.send(ECHO, 1);
    assert_eq!(idle.receive(), (1, ECHO.to_owned()));
    parked.send(PARKED, 2);
    eventually("it is parked", || world.state.parked.load(Ordering::SeqCst) == 1);
    world.stop();
    assert_eq!((idle.assert_closed(), parked.assert_closed()), (0, 0));
    assert_eq!(world.state.parked.load(Ordering::SeqCst), 0);
    assert_eq!(world.metrics.connections_open(), 0);
}

fn api_versions(peer: &mut Peer, correlation_id: i32, version: i16) -> ApiVersionsResponse {
    let (answered, body) = peer.receive_bytes();
    assert_eq!(answered, correlation_id);
    let mut cursor = Cursor::new(Bytes::from(body));
    let response = ApiVersionsResponse::decode(&mut cursor, version).unwrap();
    assert_eq!(cursor.remaining(), 0);
    response
}

/// The peers of which a line at INFO or above was said.
static PEERS_TOLD_OF: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes note of [`PEERS_TOLD_OF`].
struct Said;

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        span::Id::from_u64(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut PeerOf);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct PeerOf;

impl Visit for PeerOf {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "peer" {
            PEERS_TOLD_OF.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

fn admitting(admission: AdmissionLimits) -> ConnectionLimits {
    ConnectionLimits { admission, ..ConnectionLimits::default() }
}
