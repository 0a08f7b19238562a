//! How many connections a node has, from where, and how fast they come: `max.connections` and its kin.
//!
//! Shared by all cores: the acceptor takes seats, connections give them back wherever they end. The limits may change at
//! any time, and hold from then on; nobody who has a seat loses it.
//!
//! Invariant: the seats taken are those of the living [`Seat`]s.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tarn_runtime::channel::Flag;
use tarn_runtime::{now, timeout};

use crate::limits::AdmissionLimits;

/// The seats of a node.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
    /// One for each listener, raised when there may be room.
    room: Vec<Flag>,
}

#[derive(Debug, Default)]
struct State {
    limits: AdmissionLimits,
    taken: usize,
    by_ip: HashMap<IpAddr, usize>,
    pace: Pace,
}

/// How many may come now of those that come in a second: as many at once as in a second, and then one after the other.
#[derive(Debug, Default)]
struct Pace {
    /// When the next may come if none had waited; it lies at most a second back.
    next: Option<Instant>,
}

/// The right to be connected, until dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    taken: Option<(Arc<Admission>, IpAddr)>,
}

/// Whether one more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// It is so after a while.
    After(Duration),
    /// Not before a seat is given back.
    Full,
}

impl Admission {
    pub(crate) fn new(limits: AdmissionLimits, listeners: usize) -> Arc<Admission> {
        let state = Mutex::new(State { limits, ..State::default() });
        Arc::new(Admission { state, room: (0..listeners).map(|_| Flag::new()).collect() })
    }

    /// Puts other limits in force.
    pub fn configure(&self, limits: AdmissionLimits) {
        let mut state = self.lock();
        if state.limits != limits {
            state.limits = limits;
            drop(state);
            self.room.iter().for_each(Flag::raise);
        }
    }

    /// The most seats that there are.
    pub fn max(&self) -> usize {
        self.lock().limits.max.max(1)
    }

    /// Waits, as listener number `listener`, until there is a seat to be taken.
    pub(crate) async fn room(&self, listener: usize) {
        loop {
            let Some(room) = self.room.get(listener) else { return };
            room.lower();
            let found = self.lock().room(now());
            match found {
                Room::Free => return,
                // Limits that are raised meanwhile end it too.
                Room::After(pause) => drop(timeout(pause, room.raised()).await),
                Room::Full => room.raised().await,
            }
        }
    }

    /// A seat for a client at `ip`; `None` where its address has all it may have.
    pub(crate) fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Seat> {
        let ip = ip.to_canonical();
        let mut state = self.lock();
        state.came(now());
        let from_here = state.by_ip.get(&ip).copied().unwrap_or(0);
        if from_here >= state.max_of(ip) {
            return None;
        }
        state.by_ip.insert(ip, from_here + 1);
        state.taken += 1;
        Some(Seat { taken: Some((Arc::clone(self), ip)) })
    }

    fn give_back(&self, ip: IpAddr) {
        let mut state = self.lock();
        state.taken -= 1;
        match state.by_ip.get_mut(&ip) {
            Some(from_here) if *from_here > 1 => *from_here -= 1,
            _ => drop(state.by_ip.remove(&ip)),
        }
        drop(state);
        for room in &self.room {
            room.raise();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn room(&self, now: Instant) -> Room {
        if self.taken >= self.limits.max.max(1) {
            return Room::Full;
        }
        match self.limits.creations_per_second {
            None => Room::Free,
            Some(_) => self.pace.room(now),
        }
    }

    /// One has come.
    fn came(&mut self, now: Instant) {
        if let Some(rate) = self.limits.creations_per_second {
            self.pace.came(rate, now);
        }
    }

    fn max_of(&self, ip: IpAddr) -> usize {
        self.limits.max_of_ip.get(&ip).copied().unwrap_or(self.limits.max_per_ip)
    }
}

impl Pace {
    const SECOND: Duration = Duration::from_secs(1);

    fn room(&self, now: Instant) -> Room {
        match self.next.and_then(|next| next.checked_duration_since(now)) {
            Some(pause) if !pause.is_zero() => Room::After(pause),
            _ => Room::Free,
        }
    }

    fn came(&mut self, rate: u32, now: Instant) {
        let apart = Pace::SECOND / rate.max(1);
        // Whoever waited for long does not make up for more than a second.
        let earliest = now.checked_sub(Pace::SECOND - apart).unwrap_or(now);
        self.next = Some(self.next.map_or(earliest, |next| next.max(earliest)) + apart);
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
        let admission = Admission::new(AdmissionLimits { max_per_ip: 2, ..AdmissionLimits::default() }, 1);
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
    fn an_address_with_a_limit_of_its_own_has_that() {
        let max_of_ip = [(ip("10.0.0.1"), 2), (ip("10.0.0.2"), 0)].into();
        let limits = AdmissionLimits { max_per_ip: 1, max_of_ip, ..AdmissionLimits::default() };
        let admission = Admission::new(limits, 1);
        let taken = ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.3"]
            .map(|from| admission.take(ip(from)));
        assert_eq!(taken.each_ref().map(Option::is_some), [true, true, false, false, true, false]);
    }

    #[test]
    fn a_full_node_waits_until_a_seat_is_given_back() {
        block_on(async {
            let limits = AdmissionLimits { max: 1, ..AdmissionLimits::default() };
            let admission = Admission::new(limits, 2);
            let seat = admission.take(ip("10.0.0.1"));
            let (mut one, mut two) = (pin!(admission.room(0)), pin!(admission.room(1)));
            assert!(poll_once(one.as_mut()).await.is_none());
            assert!(poll_once(two.as_mut()).await.is_none());
            drop(seat);
            one.await;
            two.await;
        });
    }

    #[test]
    fn limits_that_change_hold_at_once_and_take_nobodys_seat() {
        block_on(async {
            let admission = Admission::new(AdmissionLimits { max: 1, ..AdmissionLimits::default() }, 1);
            let first = admission.take(ip("10.0.0.1"));
            let mut waits = pin!(admission.room(0));
            assert!(poll_once(waits.as_mut()).await.is_none());
            admission.configure(AdmissionLimits { max: 3, max_per_ip: 2, ..AdmissionLimits::default() });
            waits.await;
            let second = admission.take(ip("10.0.0.1"));
            assert!(second.is_some() && admission.take(ip("10.0.0.1")).is_none());
            admission.configure(AdmissionLimits { max: 1, max_per_ip: 1, ..AdmissionLimits::default() });
            assert!(poll_once(admission.room(0)).await.is_none());
            drop(first);
            assert!(poll_once(admission.room(0)).await.is_none(), "one has its seat still");
            drop(second);
            admission.room(0).await;
        });
    }

    #[test]
    fn no_more_come_in_a_second_than_may_and_at_once_no_more_than_in_one() {
        let began = Instant::now() + Duration::from_secs(100);
        let at = |ms: u64| began + Duration::from_millis(ms);
        let mut pace = Pace::default();
        let mut come = |ms: u64| {
            let mut come = 0;
            while pace.room(at(ms)) == Room::Free && come < 100 {
                pace.came(10, at(ms));
                come += 1;
            }
            (come, pace.room(at(ms)))
        };
        let after = |ms| Room::After(Duration::from_millis(ms));
        assert_eq!(come(0), (10, after(100)));
        assert_eq!(come(50), (0, after(50)));
        assert_eq!(come(100), (1, after(100)));
        assert_eq!(come(450), (3, after(50)));
        assert_eq!(come(60_000), (10, after(100)), "who waited for long has no more than a second's");
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
