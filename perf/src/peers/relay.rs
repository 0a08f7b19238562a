//! Counts what a source says: a listener between it and its mirror that passes bytes on, both ways.
//!
//! The source advertises the relay's address, so that nothing goes past it. The measure itself asks the source
//! directly, which is not counted.
//!
//! Each connection has two threads, which end when either side closes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::failure::{Doing, Result};

const BUFFER_BYTES: usize = 256 << 10;

/// A relay that passes on until it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The source, once it is known.
    target: Mutex<Option<String>>,
    /// Bytes that came from it.
    said: AtomicU64,
    is_over: AtomicBool,
}

impl Relay {
    /// Listens at a port of its own.
    pub(crate) fn start() -> Result<Relay> {
        let bind = || -> io::Result<(TcpListener, String)> {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?.to_string();
            Ok((listener, address))
        };
        let (listener, address) = bind().doing(|| "listening for a mirror".to_owned())?;
        let shared = Arc::new(Shared::default());
        let accepting = {
            let shared = shared.clone();
            Some(thread::spawn(move || accept(&listener, &shared)))
        };
        Ok(Relay { address, shared, accepting })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Who gets what comes in.
    pub(crate) fn point_at(&self, source: &str) {
        if let Ok(mut target) = self.shared.target.lock() {
            *target = Some(source.to_owned());
        }
    }

    /// The bytes that the source has said so far.
    pub(crate) fn said_bytes(&self) -> u64 {
        self.shared.said.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; an error means that it has ended.
        let _ = TcpStream::connect(&self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for accepted in listener.incoming() {
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        let target = shared.target.lock().ok().and_then(|target| target.clone());
        // A mirror that cannot be connected is hung up on, and tries again.
        if let (Ok(mirror), Some(target)) = (accepted, target) {
            let _ = connect(mirror, &target, shared);
        }
    }
}

fn connect(mirror: TcpStream, target: &str, shared: &Arc<Shared>) -> io::Result<()> {
    let source = TcpStream::connect(target)?;
    for stream in [&mirror, &source] {
        stream.set_nodelay(true)?;
    }
    let (asks, answers) = ((mirror.try_clone()?, source.try_clone()?), (source, mirror));
    thread::spawn(move || pass_on(asks.0, asks.1, None));
    let shared = shared.clone();
    thread::spawn(move || pass_on(answers.0, answers.1, Some(&shared.said)));
    Ok(())
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, count: Option<&AtomicU64>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(read) = from.read(&mut buffer)
        && read > 0
        && to.write_all(&buffer[..read]).is_ok()
    {
        if let Some(count) = count {
            count.fetch_add(read as u64, Ordering::Relaxed);
        }
    }
    // Errors mean that they are closed.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_source_says_is_passed_on_and_counted() {
        let source = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start().unwrap();
        relay.point_at(&source.local_addr().unwrap().to_string());
        let mut mirror = TcpStream::connect(relay.address()).unwrap();
        mirror.write_all(b"ask").unwrap();
        let (mut accepted, _) = source.accept().unwrap();
        let mut asked = [0; 3];
        accepted.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"ask");
        accepted.write_all(b"answer").unwrap();
        drop(accepted);
        let mut answered = Vec::new();
        mirror.read_to_end(&mut answered).unwrap();
        assert_eq!((&answered[..], relay.said_bytes()), (&b"answer"[..], 6));
    }
}
