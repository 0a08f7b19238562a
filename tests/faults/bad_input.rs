//! Bytes that no client would send: each gets a clear error or a closed connection, and nobody else
//! notices.

use std::fs;
use std::thread;
use std::time::Duration;

use tarn_record::{BatchBuilder, Compression, Offset, Record};
use tarn_tests::raw::{RawClient, produce_request};
use tarn_tests::tarn::{Tarn, TarnOptions};
use tarn_wire::Cursor;
use tarn_wire::message::Message;
use tarn_wire::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataRequest};

const CLOSED: Duration = Duration::from_secs(20);
const UNSUPPORTED_VERSION: i16 = 35;

/// Tarn, and a connection that was there before the fault and must be well after it.
struct Served {
    tarn: Tarn,
    bystander: RawClient,
}

impl Served {
    fn start() -> Served {
        let tarn = Tarn::start(&TarnOptions::default());
        let bystander = RawClient::connect(&tarn.bootstrap());
        Served { tarn, bystander }
    }

    fn connect(&self) -> RawClient {
        RawClient::connect(&self.tarn.bootstrap())
    }

    /// Sends `bytes` on a connection of its own, which must be closed without an answer.
    fn is_closed_by(&mut self, what: &str, bytes: &[u8]) {
        let mut client = self.connect();
        // The server may close while we are still sending.
        let _ = client.send(bytes);
        let answer = client.read_to_close(CLOSED).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(answer.is_empty(), "{what} was answered with {} bytes", answer.len());
        self.serves_others(what);
    }

    fn serves_others(&mut self, after: &str) {
        assert!(self.tarn.is_running(), "tarn died of {after}");
        let request = MetadataRequest { topics: None, ..Default::default() };
        let response = self.bystander.try_call(9, &request);
        let response = response.unwrap_or_else(|error| panic!("after {after}: {error}"));
        assert_eq!(response.brokers.len(), 1, "after {after}");
    }
}

/// A frame with a request header of version 1 (no tagged fields) and a body.
fn frame(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(api_key.to_be_bytes());
    header.extend(version.to_be_bytes());
    header.extend(7_i32.to_be_bytes());
    header.extend([0, 4]);
    header.extend(b"test");
    sized(&[&header[..], body].concat())
}

/// The same with a header of version 2.
fn flexible_frame(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    frame(api_key, version, &[&[0][..], body].concat())
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let size = i32::try_from(bytes.len()).expect("a test's frame is small");
    [&size.to_be_bytes()[..], bytes].concat()
}

#[test]
fn garbage_and_impossible_sizes_close_the_connection() {
    let mut served = Served::start();
    served.is_closed_by("an HTTP request", b"GET / HTTP/1.1\r\nHost: tarn\r\n\r\n");
    served.is_closed_by("a TLS hello", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0]);
    served.is_closed_by("a frame of 2 GB", &i32::MAX.to_be_bytes());
    served.is_closed_by("a frame of a negative size", &(-1_i32).to_be_bytes());
    served.is_closed_by("a frame of the least size", &i32::MIN.to_be_bytes());
    served.is_closed_by("a frame one byte over the limit", &(104_857_601_i32).to_be_bytes());
    served.is_closed_by("an empty frame", &0_i32.to_be_bytes());
    served.is_closed_by("a frame too short for a header", &sized(&[0, 18, 0]));
}

#[test]
fn a_request_cut_short_harms_nobody() {
    let mut served = Served::start();
    let mut client = served.connect();
    let whole = client.encoded(9, &MetadataRequest { topics: None, ..Default::default() });
    for cut in 0..whole.len() {
        let mut client = served.connect();
        client.send(&whole[..cut]).unwrap();
        client.end_sending().unwrap();
        let answer = client.read_to_close(CLOSED).unwrap();
        assert!(answer.is_empty(), "{cut} of {} bytes were answered", whole.len());
    }
    served.serves_others("requests cut short");
    // A peer that says no more keeps its own connection waiting, and no other.
    let mut silent = served.connect();
    silent.send(&whole[..whole.len() - 1]).unwrap();
    served.serves_others("half a request");
    silent.send(&whole[whole.len() - 1..]).unwrap();
    assert!(silent.receive().unwrap().is_some(), "the last byte completes it");
}

#[test]
fn unknown_apis_and_versions_close_the_connection() {
    let mut served = Served::start();
    for (what, api_key, version) in [
        ("an unknown API", 9_999, 0),
        ("a negative API", -1, 0),
        ("a removed API", 4, 0),
        ("an API of controllers only", 52, 0),
        ("a Metadata version to come", 3, 99),
        ("a negative Metadata version", 3, -1),
        ("a Fetch version long gone", 1, 0),
        ("a Produce version long gone, though it is advertised", 0, 0),
    ] {
        served.is_closed_by(what, &frame(api_key, version, &[0; 16]));
    }
}

#[test]
fn api_versions_of_a_version_to_come_is_answered_in_version_0() {
    let mut served = Served::start();
    let mut client = served.connect();
    client.send(&flexible_frame(18, 99, b"\x05java\x044.9\x00")).unwrap();
    let answer = client.receive().unwrap().expect("it is answered");
    let mut cursor = Cursor::new(answer);
    assert_eq!(cursor.get_i32().unwrap(), 7, "the correlation id");
    let response = ApiVersionsResponse::decode(&mut cursor, 0).unwrap();
    assert_eq!(response.error_code, UNSUPPORTED_VERSION);
    let own = response.api_keys.iter().find(|api| api.api_key == 18).expect("it names itself");
    assert!(own.max_version >= 4, "{own:?}");
    // The same connection may now ask in a version that is served.
    let request = ApiVersionsRequest {
        client_software_name: "tests".into(),
        client_software_version: "1".into(),
        ..Default::default()
    };
    assert_eq!(client.call(own.max_version, &request).error_code, 0);
    served.serves_others("ApiVersions v99");
}

#[test]
fn counts_and_lengths_beyond_the_frame_allocate_nothing() {
    let mut served = Served::start();
    let before = resident_bytes(&served.tarn);
    let huge = i32::MAX.to_be_bytes();
    let varint_huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
    for (what, bytes) in [
        ("2³¹ topics of Metadata v4", frame(3, 4, &huge)),
        ("2³² topics of Metadata v9", flexible_frame(3, 9, &varint_huge)),
        ("2³¹ topics of CreateTopics v2", frame(19, 2, &huge)),
        ("a topic name of 32,767 bytes", frame(3, 4, &[0, 0, 0, 1, 0x7f, 0xff])),
        ("a number that never ends", flexible_frame(3, 9, &[0xff; 32])),
        ("2³² tagged fields", frame(3, 9, &varint_huge)),
        ("2³¹ topics of Produce v3", frame(0, 3, &[&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], &huge].concat())),
        ("2³¹ topics of Fetch v4", frame(1, 4, &[&[0xff; 4][..], &[0; 13], &huge].concat())),
    ] {
        for _ in 0..20 {
            served.is_closed_by(what, &bytes);
        }
    }
    let grown = resident_bytes(&served.tarn).saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "{grown} bytes more than before");
}

#[test]
fn batches_that_become_large_are_looked_into_one_after_the_other() {
    const RECORD_BYTES: usize = 48 << 20;
    let mut served = Served::start();
    served.tarn.create_topic("t", 1);
    let mut batch = BatchBuilder::new(Offset(0), Compression::Gzip);
    batch.add(&Record { value: Some(&vec![0; RECORD_BYTES]), ..Record::default() });
    let batch = batch.build();
    assert!(batch.len() < RECORD_BYTES / 500, "{}", batch.len());
    let request = produce_request("t", batch);
    let clients: Vec<_> = (0..8).map(|_| served.connect()).collect();
    let threads = clients.into_iter().map(|mut client| {
        let request = request.clone();
        thread::spawn(move || client.call(11, &request))
    });
    for thread in threads.collect::<Vec<_>>() {
        let answered = thread.join().expect("it is answered");
        assert_eq!(answered.responses[0].partition_responses[0].error_code, 0);
    }
    // It grows while it is decompressed: twice its size, not sixteen times.
    let most = status_bytes(&served.tarn, "VmHWM:");
    assert!(most < 4 * RECORD_BYTES as u64, "{most} bytes");
    served.serves_others("batches that become large");
}

#[test]
fn random_bodies_of_every_api_are_survived() {
    let mut served = Served::start();
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(42);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..2_000 {
        let api_key = random.i16(-1..=95);
        let version = random.i16(0..=14);
        let mut body = vec![0; random.usize(0..300)];
        random.fill(&mut body);
        // Small numbers get further than random ones.
        body.iter_mut().for_each(|byte| *byte = if random.bool() { *byte % 3 } else { *byte });
        let mut client = served.connect();
        let _ = client.send(&flexible_frame(api_key, version, &body));
        let _ = client.end_sending();
        let ended = client.read_to_close(CLOSED);
        assert!(ended.is_ok(), "SEED={seed}, round {round}: key {api_key} v{version}: {ended:?}");
    }
    served.serves_others("random bodies");
}

fn resident_bytes(tarn: &Tarn) -> u64 {
    status_bytes(tarn, "VmRSS:")
}

/// What the kernel says of its memory.
fn status_bytes(tarn: &Tarn, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", tarn.id())).expect("tarn runs");
    let line = status.lines().find(|line| line.starts_with(what)).expect("the kernel says it");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("it is a number");
    kib * 1024
}
