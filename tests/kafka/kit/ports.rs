//! Free ports on 127.0.0.1.
//!
//! They are taken below the kernel's ephemeral range, so that no outgoing connection takes one between
//! the check and its use, and none is given twice in one test process. Other test processes begin
//! elsewhere, at random.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Mutex;

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 on which nothing listens.
///
/// # Panics
/// Where no port is free.
pub fn free_port() -> u16 {
    let mut given = GIVEN.lock().expect("no holder of this lock panics");
    for _ in 0..10_000 {
        let port = fastrand::u16(FIRST..=LAST);
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
    panic!("no free port between {FIRST} and {LAST}");
}

/// A port on which nothing listens, and neither on the next one.
///
/// # Panics
/// Where no two such ports are free.
pub fn free_port_pair() -> u16 {
    for _ in 0..1_000 {
        let first = free_port();
        let mut given = GIVEN.lock().expect("no holder of this lock panics");
        let next = first + 1;
        if !given.contains(&next) && TcpListener::bind(("127.0.0.1", next)).is_ok() {
            given.insert(next);
            return first;
        }
    }
    panic!("no two free ports beside each other between {FIRST} and {LAST}");
}

/// `127.0.0.1:port`.
pub fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
    }
}
