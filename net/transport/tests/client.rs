//! The client against our own server, against brokers of other ages, and against what is no broker.

#![allow(clippy::unwrap_used)]

mod world;

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use tarn_runtime::{CoreSpec, Queue, spawn, spawn_core};
use tarn_transport::{CallLimits, Client, ClientError, ClientOptions, ConnectionLimits, Endpoint};
use tarn_wire::messages::{
    ApiVersionsResponse, FetchRequest, MetadataRequest, ProduceRequest, VoteRequest, metadata_request,
};
use tarn_wire::{ApiKey, Request, encode_response};
use world::*;

#[test]
fn a_call_is_answered_in_the_highest_version_that_both_know() {
    let world = World::start(ConnectionLimits::default());
    on_a_core(world.address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options("metadata")).await.unwrap();
        assert_eq!(client.version_for::<MetadataRequest>(), Ok(13));
        assert_eq!(client.version_up_to::<MetadataRequest>(4), Ok(4));
        let none = client.version_up_to::<MetadataRequest>(-1);
        assert!(matches!(none, Err(ClientError::UnsupportedVersion { ours: (0, -1), .. })), "{none:?}");
        assert_eq!(client.versions().finalized_level("metadata.version"), Some(33));
        let answered = client.call(&metadata(3)).await.unwrap();
        assert_eq!((answered.cluster_id.as_deref(), answered.controller_id), (Some("tests"), 3));
        let older = client.call_at(&metadata(2), 4).await.unwrap();
        assert_eq!(older.controller_id, 2);
        let refused = client.call(&VoteRequest::default()).await.unwrap_err();
        assert!(matches!(refused, ClientError::UnsupportedVersion { theirs: None, .. }), "{refused}");
        assert!(!client.is_closed(), "a request that was never sent closes nothing");
    });
    assert_eq!(world.state.software.lock().unwrap().as_deref(), Some("tarn"));
}

#[test]
fn calls_overlap_and_each_gets_its_own_answer() {
    let world = World::start(ConnectionLimits::default());
    on_a_core(world.address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options("metadata")).await.unwrap();
        let calls: Vec<_> = (0..100)
            .map(|count| {
                let client = client.clone();
                spawn(Queue::Network, async move { client.call(&metadata(count)).await })
            })
            .collect();
        for (count, call) in calls.into_iter().enumerate() {
            assert_eq!(usize::try_from(call.await.unwrap().controller_id), Ok(count));
        }
    });
}

#[test]
fn a_call_that_is_dropped_leaves_the_connection_usable() {
    let world = World::start(ConnectionLimits::default());
    let gate = world.state.gate.clone();
    on_a_core(world.address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options(GATED)).await.unwrap();
        let request = FetchRequest::default();
        let dropped = Box::pin(client.call(&request));
        assert!(futures_lite::future::poll_once(dropped).await.is_none());
        gate.raise();
        // The answer to the dropped call comes first and is passed over; this one is text and no response.
        let next = client.call(&metadata(1)).await.unwrap_err();
        assert!(matches!(next, ClientError::Malformed { .. }), "{next}");
    });
    assert_eq!(world.state.calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_call_that_is_not_answered_in_time_closes_the_connection() {
    let world = World::start(ConnectionLimits::default());
    on_a_core(world.address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options(PARKED)).await.unwrap();
        let limits = CallLimits { timeout: Duration::from_millis(50), ..client.limits() };
        let (other, version) = (client.clone(), 13);
        let waiting = spawn(Queue::Network, async move { other.call(&metadata(1)).await });
        let late = client.call_within(&metadata(1), version, limits).await.unwrap_err();
        assert_eq!(late, ClientError::TimedOut { api: ApiKey::METADATA, after: limits.timeout });
        assert!(client.is_closed());
        assert_eq!(waiting.await.unwrap_err(), late, "whoever else waits is told why");
        assert_eq!(client.call(&metadata(1)).await.unwrap_err(), late);
    });
    eventually("the server drops what it parked", || world.state.parked.load(Ordering::SeqCst) == 0);
}

#[test]
fn dropping_the_last_clone_closes_the_connection() {
    let world = World::start(ConnectionLimits::default());
    on_a_core(world.address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options("metadata")).await.unwrap();
        let clone = client.clone();
        drop(client);
        assert!(clone.call(&metadata(1)).await.is_ok());
    });
    eventually("the server has none left", || world.metrics.connections_open() == 0);
    assert_eq!(world.metrics.sum(|one| one.connections_opened.get()), 1);
}

#[test]
fn a_server_that_stops_fails_the_calls_that_wait() {
    let mut world = World::start(ConnectionLimits::default());
    let state = std::sync::Arc::clone(&world.state);
    let address = world.address;
    let calling = std::thread::spawn(move || {
        on_a_core(address, |endpoint| async move {
            let client = Client::connect(&endpoint, &options(PARKED)).await.unwrap();
            let error = client.call(&metadata(1)).await.unwrap_err();
            assert!(matches!(error, ClientError::Closed { .. }), "{error}");
            assert!(client.is_closed());
        });
    });
    eventually("it waits", || state.parked.load(Ordering::SeqCst) == 1);
    world.stop();
    calling.join().unwrap();
}

#[test]
fn a_response_beyond_the_limit_is_not_read() {
    let world = World::start(ConnectionLimits::default());
    on_a_core(world.address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options("fetch")).await.unwrap();
        let error = client.call_with_limit(&fetch(1 << 20), 100_000).await.unwrap_err();
        assert!(matches!(error, ClientError::TooLarge { limit: 100_000, .. }), "{error}");
        assert!(client.is_closed());
    });
}

#[test]
fn large_responses_use_the_same_memory_again() {
    let world = World::start(ConnectionLimits::default());
    on_a_core(world.address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options("fetch")).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..6 {
            let records = records(&client, 2 << 20).await;
            assert!(records.len() == 2 << 20 && records.iter().all(|byte| *byte == 7));
            seen.push(records.as_ptr());
        }
        let first = records(&client, 2 << 20).await;
        let second = records(&client, 2 << 20).await;
        assert_ne!(first.as_ptr(), second.as_ptr(), "what is still in use is left alone");
        assert!(seen[1..].iter().all(|at| *at == seen[1]), "{seen:?}");
    });
}

#[test]
fn brokers_that_do_not_know_our_version_are_asked_again_in_theirs() {
    // Since Kafka 2.4 the refusal names the versions; before, it names none, and version 0 is left.
    for (offered, then) in [(Some(3), 3), (None, 0)] {
        let address = listen(move |mut stream| {
            assert_eq!(read_request(&mut stream), Some((ApiKey::API_VERSIONS, 5, 0)));
            let mut refusal = vec![0, 0, 0, 0, 0, 35];
            refusal.put_i32(i32::from(offered.is_some()));
            if let Some(max) = offered {
                [18, 0, max].iter().for_each(|number| refusal.put_i16(*number));
            }
            write_frame(&mut stream, &refusal);
            assert_eq!(read_request(&mut stream), Some((ApiKey::API_VERSIONS, then, 1)));
            let ranges = [(3, 0, 8), (0, 0, 7)];
            let api_keys = ranges.map(|(api_key, min_version, max_version)| {
                tarn_wire::messages::api_versions_response::ApiVersion { api_key, min_version, max_version }
            });
            let response = ApiVersionsResponse { api_keys: api_keys.to_vec(), ..Default::default() };
            let frame = encode_response(1, then, &response).unwrap();
            stream.write_all(&frame.to_bytes().unwrap()).unwrap();
            assert_eq!(read_request(&mut stream), None);
        });
        on_a_core(address, |endpoint| async move {
            let client = Client::connect(&endpoint, &options("old")).await.unwrap();
            assert_eq!(client.version_for::<MetadataRequest>(), Ok(8));
            assert_eq!(client.version_for::<ProduceRequest>(), Ok(7));
            assert_eq!(client.versions().finalized_features_epoch(), None);
        });
    }
}

#[test]
fn what_is_no_broker_is_told_apart() {
    let http = listen(|mut stream| {
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let tls = listen(|mut stream| {
        read_request(&mut stream);
        stream.write_all(&[0x15, 3, 3, 0, 2, 2, 70]).unwrap();
    });
    let other_id = listen(|mut stream| {
        read_request(&mut stream);
        write_frame(&mut stream, &[0, 0, 0, 99, 0, 0, 0, 0]);
    });
    let nonsense = listen(|mut stream| {
        read_request(&mut stream);
        write_frame(&mut stream, &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
    });
    let tiny = listen(|mut stream| {
        read_request(&mut stream);
        write_frame(&mut stream, &[1]);
    });
    for (address, said) in [(http, "HTTP"), (tls, "TLS"), (other_id, "99"), (nonsense, ""), (tiny, "1 bytes")]
    {
        let error = refused(address);
        assert!(matches!(&error, ClientError::NotKafka { detail, .. } if detail.contains(said)), "{error}");
    }
    let closing = refused(listen(drop));
    assert!(matches!(closing, ClientError::Closed { .. }), "{closing}");
    let silent = refused(listen(|mut stream| while read_request(&mut stream).is_some() {}));
    assert!(matches!(silent, ClientError::TimedOut { api: ApiKey::API_VERSIONS, .. }), "{silent}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(matches!(refused(nobody), ClientError::Unreachable { .. }));
}

#[test]
fn an_answer_that_nobody_asked_for_closes_the_connection() {
    let address = listen(|mut stream| {
        read_request(&mut stream);
        let frame = encode_response(0, 5, &ApiVersionsResponse::default()).unwrap().to_bytes().unwrap();
        stream.write_all(&[&frame[..], &frame[..]].concat()).unwrap();
        assert_eq!(read_request(&mut stream), None);
    });
    on_a_core(address, |endpoint| async move {
        let client = Client::connect(&endpoint, &options("x")).await.unwrap();
        while !client.is_closed() {
            tarn_runtime::yield_now().await;
        }
        let error = client.call_at(&metadata(0), 1).await.unwrap_err();
        assert!(matches!(error, ClientError::Malformed { .. }), "{error}");
    });
}

/// Runs a test on a core of its own.
fn on_a_core<Test, Running>(address: SocketAddr, test: Test)
where
    Test: FnOnce(Endpoint) -> Running + Send + 'static,
    Running: Future<Output = ()> + 'static,
{
    let endpoint = Endpoint { host: address.ip().to_string(), port: address.port() };
    let spec = CoreSpec { cpu: None, name: "calling".to_owned() };
    // A failed assertion ends the test process with the panic's message: a core is never lost silently.
    spawn_core(spec, move || test(endpoint)).unwrap().join();
}

fn refused(address: SocketAddr) -> ClientError {
    let (sender, receiver) = std::sync::mpsc::channel();
    on_a_core(address, move |endpoint| async move {
        let options = ClientOptions { connect_timeout: Duration::from_millis(300), ..options("x") };
        sender.send(Client::connect(&endpoint, &options).await.err()).unwrap();
    });
    receiver.recv().unwrap().expect("it is no broker")
}

/// A listener whose one connection is served by a thread.
fn listen(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || serve(listener.accept().unwrap().0));
    address
}

/// The API, version and correlation id of the next request.
fn read_request(stream: &mut TcpStream) -> Option<(ApiKey, i16, i32)> {
    let mut size = [0; 4];
    stream.read_exact(&mut size).ok()?;
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
    stream.read_exact(&mut frame).unwrap();
    let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
    Some((ApiKey(number(0)), number(2), i32::from_be_bytes(frame[4..8].try_into().unwrap())))
}

fn write_frame(stream: &mut TcpStream, frame: &[u8]) {
    stream.write_all(&i32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(frame).unwrap();
}

fn options(client_id: &str) -> ClientOptions {
    ClientOptions { client_id: client_id.to_owned(), ..ClientOptions::default() }
}

/// A request for so many topics.
fn metadata(topics: usize) -> MetadataRequest {
    let topic = metadata_request::MetadataRequestTopic { name: Some("t".into()), ..Default::default() };
    MetadataRequest { topics: Some(vec![topic; topics]), ..MetadataRequest::default() }
}

fn fetch(max_bytes: i32) -> FetchRequest {
    FetchRequest { max_bytes, ..FetchRequest::default() }
}

async fn records(client: &Client, bytes: i32) -> Bytes {
    assert_eq!(FetchRequest::KEY, ApiKey::FETCH.0);
    let response = client.call(&fetch(bytes)).await.unwrap();
    let records = response.responses[0].partitions[0].records.clone().unwrap();
    records.to_bytes().unwrap()
}
