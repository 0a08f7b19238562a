//! Responses out of files: every byte as it is in the file, or the connection is closed.

#![allow(clippy::unwrap_used)]

mod world;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{Advice, fadvise};
use tarn_transport::ConnectionLimits;
use tarn_wire::{FilePart, FileRange, Part};
use world::*;

/// A file of a test, gone with it.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    current: AtomicBool,
}

impl Segment {
    /// A file of `len` bytes, no two neighbouring pages alike.
    fn create(name: &str, len: usize) -> (Arc<Segment>, Vec<u8>) {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect();
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        (Arc::new(Segment { path, current: AtomicBool::new(true) }), bytes)
    }

    fn part(self: &Arc<Self>, position: u64, len: u32) -> Part {
        Part::File(FilePart { range: Arc::clone(self) as Arc<dyn FileRange>, position, len })
    }
}

impl FileRange for Segment {
    fn open(&self) -> io::Result<Arc<File>> {
        File::open(&self.path).map(Arc::new)
    }

    fn is_current(&self) -> bool {
        self.current.load(Ordering::SeqCst)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}

#[test]
fn parts_of_every_size_arrive_byte_for_byte() {
    let world = World::start(ConnectionLimits::default());
    let (segment, bytes) = Segment::create("sizes", 6 << 20);
    let mut parts = Vec::new();
    let mut expected = Vec::new();
    let lengths = [1, 100, 4_095, 8_191, 8_192, 8_193, 1, 100_000, 70_000, (1 << 20) + 1, 3 << 20, 5];
    for (number, len) in (0u64..).zip(lengths) {
        let position = number * 1_234;
        parts.push(segment.part(position, len));
        expected.extend_from_slice(&bytes[position as usize..][..len as usize]);
        let between = vec![number as u8; [0, 10, 5_000, 300_000][number as usize % 4]];
        expected.extend_from_slice(&between);
        parts.push(Part::Bytes(Bytes::from(between)));
    }
    *world.state.parts.lock().unwrap() = parts;
    let mut peer = world.connect();
    for correlation_id in 0..3 {
        peer.send(PARTS, correlation_id);
        peer.send(ECHO, correlation_id + 100);
        let (answered, body) = peer.receive_bytes();
        assert!(body == expected, "{} bytes are not the {} expected", body.len(), expected.len());
        assert_eq!(answered, correlation_id);
        assert_eq!(peer.receive(), (correlation_id + 100, ECHO.to_owned()));
    }
    assert!(world.metrics.bytes_sent_from_files.get() > 0);
}

#[test]
fn a_response_that_ends_with_a_file_is_not_held_back() {
    let world = World::start(ConnectionLimits::default());
    let (segment, bytes) = Segment::create("last", 100_000);
    let mut peer = world.connect();
    for len in [500, 8_192, 100_000] {
        *world.state.parts.lock().unwrap() = vec![segment.part(0, len)];
        let begun = std::time::Instant::now();
        for correlation_id in 0..50 {
            peer.send(PARTS, correlation_id);
            assert_eq!(peer.receive_bytes(), (correlation_id, bytes[..len as usize].to_vec()));
        }
        // The kernel would hold a packet that is not full back for 200 ms each time.
        assert!(begun.elapsed().as_secs() < 8, "{len} bytes took {:?}", begun.elapsed());
    }
}

#[test]
fn what_is_not_in_the_page_cache_is_read_beside_the_core() {
    let world = World::start(ConnectionLimits::default());
    let (segment, bytes) = Segment::create("cold", 2 << 20);
    let file = File::open(&segment.path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let was_cold = !tarn_runtime::socket::resident(&file, 0, 2 << 20);
    *world.state.parts.lock().unwrap() = vec![segment.part(0, 5_000), segment.part(5_000, (2 << 20) - 5_000)];
    let mut peer = world.connect();
    peer.send(PARTS, 1);
    let (_, body) = peer.receive_bytes();
    assert!(body == bytes);
    assert_eq!(world.metrics.bytes_read_cold.get() > 0, was_cold, "a file system in memory is never cold");
}

#[test]
fn a_range_that_is_no_longer_current_closes_the_connection() {
    let world = World::start(ConnectionLimits::default());
    let (segment, _) = Segment::create("stale", 100_000);
    segment.current.store(false, Ordering::SeqCst);
    for len in [100, 100_000] {
        *world.state.parts.lock().unwrap() = vec![segment.part(0, len)];
        let mut peer = world.connect();
        peer.send(PARTS, 1);
        assert!(peer.assert_closed() <= 8, "the header at most");
    }
    world.assert_serves();
}

#[test]
fn a_file_that_was_truncated_under_the_sender_closes_the_connection() {
    let world = World::start(ConnectionLimits::default());
    let (segment, _) = Segment::create("short", 100_000);
    OpenOptions::new().write(true).open(&segment.path).unwrap().set_len(50_000).unwrap();
    for (position, len) in [(49_000, 2_000), (0, 100_000), (60_000, 10_000)] {
        *world.state.parts.lock().unwrap() = vec![segment.part(position, len)];
        let mut peer = world.connect();
        peer.send(PARTS, 1);
        assert!(peer.assert_closed() <= 8 + 50_000, "{len} bytes at {position}");
    }
    world.assert_serves();
}

#[test]
fn a_truncation_half_way_stops_the_sender() {
    let world = World::start(ConnectionLimits::default());
    let len = 32 << 20;
    let (segment, _) = Segment::create("halfway", len as usize);
    *world.state.parts.lock().unwrap() = vec![segment.part(0, len)];
    let mut peer = world.connect();
    peer.send(PARTS, 1);
    eventually("it is being sent", || world.metrics.bytes_sent_from_files.get() > 0);
    // The receiver reads nothing yet, so that the sender is still in the middle of it.
    segment.current.store(false, Ordering::SeqCst);
    assert!(peer.assert_closed() < len as usize);
}

#[test]
fn a_file_that_cannot_be_opened_closes_the_connection() {
    let world = World::start(ConnectionLimits::default());
    let (segment, _) = Segment::create("moved", 100);
    let elsewhere = segment.path.with_extension("moved");
    std::fs::rename(&segment.path, &elsewhere).unwrap();
    *world.state.parts.lock().unwrap() = vec![segment.part(0, 100)];
    let mut peer = world.connect();
    peer.send(PARTS, 1);
    assert!(peer.assert_closed() <= 8);
    std::fs::rename(&elsewhere, &segment.path).unwrap();
    assert_eq!(File::open(&segment.path).unwrap().read_at(&mut [0; 200], 0).unwrap(), 100);
}
