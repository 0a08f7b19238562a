//! A link that a test can slow down, cut and mend: a relay of TCP connections on 127.0.0.1.
//!
//! A node in front of which it stands advertises the relay's port on a listener of its own
//! (`NodeOptions::relay_port`), so that a client which began there stays there.

use crate::ports::{free_port, local};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 16 * 1024;

/// A relay that runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Bytes per second from the server to its clients, all connections together.
    rate: AtomicU64,
    cut: AtomicBool,
    ended: AtomicBool,
    target: Mutex<Option<String>>,
    open: Mutex<Vec<TcpStream>>,
    /// When the next byte may pass.
    next: Mutex<Instant>,
    listener: Option<Arc<dyn Listener>>,
    connections: AtomicU64,
}

/// Hears what passes, before it is passed on.
pub trait Listener: Send + Sync + std::fmt::Debug {
    /// Bytes of a client.
    fn asked(&self, connection: u64, bytes: &[u8]);
    /// Bytes of the server.
    fn answered(&self, connection: u64, bytes: &[u8]);
}

impl Relay {
    /// Begins to listen. Connections are refused until `connect_to` names a target.
    ///
    /// # Panics
    /// Where the port cannot be bound.
    pub fn start() -> Relay {
        Relay::heard_by(None)
    }

    /// `start`, with somebody who hears everything.
    ///
    /// # Panics
    /// Where the port cannot be bound.
    pub fn heard_by(listener: Option<Arc<dyn Listener>>) -> Relay {
        let port = free_port();
        let socket = TcpListener::bind(("127.0.0.1", port)).expect("the port was free");
        let shared = Arc::new(Shared {
            rate: AtomicU64::new(u64::MAX),
            cut: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            target: Mutex::new(None),
            open: Mutex::new(Vec::new()),
            next: Mutex::new(Instant::now()),
            listener,
            connections: AtomicU64::new(0),
        });
        let accepting = shared.clone();
        thread::spawn(move || accept(&socket, &accepting));
        Relay { port, shared }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn address(&self) -> String {
        local(self.port)
    }

    /// Where new connections lead.
    pub fn connect_to(&self, target: &str) {
        *self.shared.target.lock().expect("no holder panics") = Some(target.to_string());
    }

    /// Limits what comes from the target, in bytes per second.
    pub fn slow_to(&self, bytes_per_second: u64) {
        self.shared.rate.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Ends every connection, and new ones as soon as they are made.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::SeqCst);
        self.shared.close_all();
    }

    /// Lets new connections through again.
    pub fn mend(&self) {
        self.shared.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.close_all();
        // Wakes the accepting thread; it may have ended already.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn close_all(&self) {
        for stream in self.open.lock().expect("no holder panics").drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until `bytes` more may pass.
    fn pace(&self, bytes: usize) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == u64::MAX {
            return;
        }
        let until = {
            let mut next = self.next.lock().expect("no holder panics");
            let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
            *next = (*next).max(Instant::now()) + cost;
            *next
        };
        sleep(until.saturating_duration_since(Instant::now()));
    }
}

fn accept(socket: &TcpListener, shared: &Arc<Shared>) {
    for client in socket.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let target = shared.target.lock().expect("no holder panics").clone();
        let (Ok(client), Some(target)) = (client, target) else { continue };
        if shared.cut.load(Ordering::SeqCst) {
            continue;
        }
        let Ok(server) = TcpStream::connect(target) else { continue };
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor is left");
        shared.open.lock().expect("no holder panics").extend([clone(&client), clone(&server)]);
        let (up, down) = ((clone(&client), clone(&server)), (server, client));
        let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
        let (asking, answering) = (shared.clone(), shared.clone());
        thread::spawn(move || {
            pump(up.0, up.1, |bytes| {
                asking.listener.iter().for_each(|listener| listener.asked(connection, bytes));
            });
        });
        thread::spawn(move || {
            pump(down.0, down.1, |bytes| {
                answering.pace(bytes.len());
                answering.listener.iter().for_each(|listener| listener.answered(connection, bytes));
            });
        });
    }
}

/// Copies until either side ends; then both end.
fn pump(mut from: TcpStream, mut to: TcpStream, before: impl Fn(&[u8])) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        before(&chunk[..count]);
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo_server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                thread::spawn(move || pump(stream.try_clone().unwrap(), stream, |_| ()));
            }
        });
        address
    }

    #[test]
    fn bytes_pass_until_the_link_is_cut_and_again_when_it_is_mended() {
        let relay = Relay::start();
        relay.connect_to(&echo_server());
        let ask = || -> std::io::Result<[u8; 4]> {
            let mut stream = TcpStream::connect(relay.address())?;
            stream.write_all(b"ping")?;
            let mut answer = [0; 4];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        assert_eq!(&ask().unwrap(), b"ping");
        relay.cut();
        assert!(ask().is_err());
        relay.mend();
        assert_eq!(&ask().unwrap(), b"ping");
    }

    #[test]
    fn a_slow_link_takes_its_time() {
        let relay = Relay::start();
        relay.connect_to(&echo_server());
        relay.slow_to(100_000);
        let mut stream = TcpStream::connect(relay.address()).unwrap();
        let begun = Instant::now();
        stream.write_all(&[7; 20_000]).unwrap();
        stream.read_exact(&mut vec![0; 20_000]).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    }
}
