//! How many connections a node has, and from where: `max.connections` and `max.connections.per.ip`.
//!
//! Shared by all cores: the acceptor takes seats, connections give them back wherever they end.
//!
//! Invariant: the seats taken are those of the living [`Seat`]s.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarn_runtime::channel::Flag;

use crate::limits::ConnectionLimits;

/// The seats of a node.
#[derive(Debug)]
pub(crate) struct Admission {
    max: usize,
    max_per_ip: usize,
    taken: Mutex<Taken>,
    /// One for each listener, raised when a seat is given back.
    room: Vec<Flag>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// The right to be connected, until dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    taken: Option<(Arc<Admission>, IpAddr)>,
}

impl Admission {
    pub(crate) fn new(limits: &ConnectionLimits, listeners: usize) -> Arc<Admission> {
        Arc::new(Admission {
            max: limits.max_connections.max(1),
            max_per_ip: limits.max_per_ip,
            taken: Mutex::default(),
            room: (0..listeners).map(|_| Flag::new()).collect(),
        })
    }

    /// Waits, as listener number `listener`, until there is a seat to be taken.
    pub(crate) async fn room(&self, listener: usize) {
        while self.lock().total >= self.max {
            let Some(room) = self.room.get(listener) else { return };
            room.lower();
            if self.lock().total < self.max {
                return;
            }
            room.raised().await;
        }
    }

    /// A seat for a client at `ip`; `None` where its address has all it may have.
    pub(crate) fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Seat> {
        let ip = ip.to_canonical();
        let mut taken = self.lock();
        let from_here = taken.by_ip.get(&ip).copied().unwrap_or(0);
        if from_here >= self.max_per_ip {
            return None;
        }
        taken.by_ip.insert(ip, from_here + 1);
        taken.total += 1;
        Some(Seat { taken: Some((Arc::clone(self), ip)) })
    }

    fn give_back(&self, ip: IpAddr) {
        let mut taken = self.lock();
        taken.total -= 1;
        match taken.by_ip.get_mut(&ip) {
            Some(from_here) if *from_here > 1 => *from_here -= 1,
            _ => drop(taken.by_ip.remove(&ip)),
        }
        drop(taken);
        for room in &self.room {
            room.raise();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// A seat that is not counted.
    pub(crate) fn free() -> Seat {
        Seat { taken: None }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some((admission, ip)) = self.taken.take() {
            admission.give_back(ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    #[test]
    fn an_address_has_no_more_seats_than_it_may_however_it_is_written() {
        let admission = Admission::new(&ConnectionLimits { max_per_ip: 2, ..ConnectionLimits::default() }, 1);
        let (plain, mapped): (IpAddr, IpAddr) = (ip("10.0.0.1"), ip("::ffff:10.0.0.1"));
        let (first, second) = (admission.take(plain), admission.take(mapped));
        assert!(first.is_some() && second.is_some());
        assert!(admission.take(plain).is_none());
        assert!(admission.take(ip("10.0.0.2")).is_some());
        drop(first);
        assert!(admission.take(mapped).is_some());
        drop(second);
        assert!(admission.lock().by_ip.is_empty(), "an address without connections leaves no trace");
    }

    #[test]
    fn a_full_node_waits_until_a_seat_is_given_back() {
        block_on(async {
            let limits = ConnectionLimits { max_connections: 1, ..ConnectionLimits::default() };
            let admission = Admission::new(&limits, 2);
            let seat = admission.take(ip("10.0.0.1"));
            let (mut one, mut two) = (pin!(admission.room(0)), pin!(admission.room(1)));
            assert!(poll_once(one.as_mut()).await.is_none());
            assert!(poll_once(two.as_mut()).await.is_none());
            drop(seat);
            one.await;
            two.await;
        });
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
