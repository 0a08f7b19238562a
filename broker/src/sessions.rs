//! The connection core's half of fetch sessions (KIP-227): identity, epoch, and which topics and
//! partitions a session names (`named`).
//!
//! What each partition wants and has been told lives with the core that owns it (`interest`). A session
//! belongs to the core of the connection that made it. Its id carries that core's number, so another
//! core can tell at once that the session is not its own.
//!
//! Invariants:
//! * an id is positive and not in use when it is given out;
//! * a session's epoch goes 1, 2, …, `i32::MAX`, 1, …: a request with any other is refused;
//! * the cache never holds more than its limit; a session is evicted only after two minutes unused.

use std::collections::{BTreeSet, HashMap};

use tarn_record::TopicIdPartition;
use tarn_runtime::CoreId;
use tarn_runtime::channel::Flag;
use tarn_wire::ErrorCode;

use crate::interest::InterestId;
use crate::named::{NamedPartitions, TopicNaming};

/// The request of a client that wants no session, or wants its session closed.
pub const FINAL_EPOCH: i32 = -1;
/// The request of a client that wants a new session.
pub const INITIAL_EPOCH: i32 = 0;
/// How long a session must have been unused before another may take its place.
pub const EVICTION_MS: u64 = 120_000;

const CORE_BITS: u32 = 10;
const SERIAL_BITS: u32 = 31 - CORE_BITS;

/// One fetch session of a client. While a request is served it is out of the cache, in the request's
/// hands; a request without a session has one of its own that never enters the cache.
#[derive(Debug)]
pub struct Session {
    /// The session's id; 0 for the one of a request without a session.
    pub id: i32,
    /// The epoch that the next request must carry.
    pub next_epoch: i32,
    /// How topics are named.
    pub naming: TopicNaming,
    /// Every partition that the session names.
    pub named: NamedPartitions,
    /// What the session's half on the owning cores is called.
    pub interest: InterestId,
    /// The cores that own one of its partitions.
    pub cores: BTreeSet<CoreId>,
    /// Wakes the session where it waits.
    pub wake: Flag,
    /// What was found and did not fit the last response.
    pub requeue: Vec<TopicIdPartition>,
    last_used_ms: u64,
}

/// The sessions of the connections of one core.
#[derive(Debug)]
pub struct Sessions {
    core: CoreId,
    limit: usize,
    next_serial: u32,
    sessions: HashMap<i32, Session>,
    by_use: BTreeSet<(u64, i32)>,
    in_hand: BTreeSet<i32>,
}

impl Session {
    /// The session of a request that wants none.
    pub fn of_one_request(interest: InterestId, naming: TopicNaming, named: NamedPartitions) -> Session {
        Session {
            id: 0,
            next_epoch: 1,
            naming,
            named,
            interest,
            cores: BTreeSet::new(),
            wake: Flag::default(),
            requeue: Vec::new(),
            last_used_ms: 0,
        }
    }
}

impl Sessions {
    /// Room for `limit` sessions of the connections of `core`.
    pub fn new(core: CoreId, limit: usize) -> Sessions {
        let next_serial = fastrand::u32(..) & ((1 << SERIAL_BITS) - 1);
        let (sessions, by_use, in_hand) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        Sessions { core, limit, next_serial, sessions, by_use, in_hand }
    }

    /// How many sessions there are, those in a request's hands included.
    pub fn len(&self) -> usize {
        self.sessions.len() + self.in_hand.len()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a session, unless the cache is full of sessions in use. The session that had to go for it,
    /// if any, comes with it: its interest is to be closed.
    pub fn create(
        &mut self,
        interest: InterestId,
        naming: TopicNaming,
        named: NamedPartitions,
        now_ms: u64,
    ) -> Option<(Session, Option<Session>)> {
        let evicted = if self.len() >= self.limit { Some(self.evict(now_ms)?) } else { None };
        let id = self.unused_id();
        self.in_hand.insert(id);
        Some((Session { id, ..Session::of_one_request(interest, naming, named) }, evicted))
    }

    /// The session of an incremental request, its epoch moved on: no second request can have it before it
    /// is given back.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, and FETCH_SESSION_TOPIC_ID_ERROR where
    /// the session names topics the other way.
    pub fn take(&mut self, id: i32, epoch: i32, naming: TopicNaming) -> Result<Session, ErrorCode> {
        let session = self.sessions.get(&id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next_epoch != epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.naming != naming {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        let mut session = self.remove(id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        session.next_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        self.in_hand.insert(id);
        Ok(session)
    }

    /// Gives a session back after a request.
    pub fn give_back(&mut self, session: Session, now_ms: u64) {
        self.in_hand.remove(&session.id);
        self.by_use.insert((now_ms, session.id));
        self.sessions.insert(session.id, Session { last_used_ms: now_ms, ..session });
    }

    /// A session that was taken ends with its request.
    pub fn ended(&mut self, id: i32) {
        self.in_hand.remove(&id);
    }

    /// Takes a session out for good; its interest is to be closed.
    pub fn remove(&mut self, id: i32) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.by_use.remove(&(session.last_used_ms, id));
        Some(session)
    }

    fn evict(&mut self, now_ms: u64) -> Option<Session> {
        let (last_used_ms, id) = *self.by_use.first()?;
        if now_ms.saturating_sub(last_used_ms) < EVICTION_MS { None } else { self.remove(id) }
    }

    fn unused_id(&mut self) -> i32 {
        loop {
            self.next_serial = (self.next_serial + 1) & ((1 << SERIAL_BITS) - 1);
            let core = u32::from(self.core.0) & ((1 << CORE_BITS) - 1);
            let id = (core << SERIAL_BITS | self.next_serial) as i32;
            if id != 0 && !self.sessions.contains_key(&id) && !self.in_hand.contains(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_ID: TopicNaming = TopicNaming::ById;

    #[test]
    fn a_session_is_taken_one_epoch_at_a_time() {
        let mut sessions = Sessions::new(CoreId(3), 10);
        let id = create(&mut sessions, 0);
        assert!(id > 0);
        assert_eq!(serve(&mut sessions, id, 1), Ok(2));
        assert_eq!(serve(&mut sessions, id, 1), Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
        assert_eq!(serve(&mut sessions, id, 2), Ok(3));
        assert_eq!(serve(&mut sessions, id + 1, 3), Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    }

    #[test]
    fn a_session_in_a_requests_hands_cannot_be_taken_again() {
        let mut sessions = Sessions::new(CoreId(0), 1);
        let id = create(&mut sessions, 0);
        let session = sessions.take(id, 1, BY_ID).expect("it is there");
        assert_eq!(sessions.take(id, 2, BY_ID).err(), Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
        assert!(
            sessions.create(InterestId(0), BY_ID, NamedPartitions::new(0), EVICTION_MS * 2).is_none(),
            "it counts, and is in use"
        );
        sessions.give_back(session, 0);
        assert_eq!(serve(&mut sessions, id, 2), Ok(3));
    }

    #[test]
    fn the_epoch_after_the_largest_is_one() {
        let mut sessions = Sessions::new(CoreId(0), 10);
        let id = create(&mut sessions, 0);
        let mut session = sessions.take(id, 1, BY_ID).expect("it is there");
        session.next_epoch = i32::MAX;
        sessions.give_back(session, 0);
        assert_eq!(serve(&mut sessions, id, i32::MAX), Ok(1));
    }

    #[test]
    fn ids_and_names_do_not_mix_in_a_session() {
        let mut sessions = Sessions::new(CoreId(0), 10);
        let id = create(&mut sessions, 0);
        assert_eq!(
            sessions.take(id, 1, TopicNaming::ByName).err(),
            Some(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR)
        );
    }

    #[test]
    fn a_full_cache_gives_up_the_session_that_was_unused_longest() {
        let mut sessions = Sessions::new(CoreId(0), 2);
        let (old, young) = (create(&mut sessions, 0), create(&mut sessions, 1000));
        assert!(
            sessions.create(InterestId(0), BY_ID, NamedPartitions::new(0), EVICTION_MS - 1).is_none(),
            "both are in use"
        );
        let (_, evicted) = sessions
            .create(InterestId(0), BY_ID, NamedPartitions::new(0), EVICTION_MS)
            .expect("one is unused");
        assert_eq!(evicted.map(|session| session.id), Some(old));
        assert_eq!(serve(&mut sessions, young, 1), Ok(2));
    }

    #[test]
    fn sessions_of_different_cores_have_different_ids() {
        let ids = |core| {
            let mut sessions = Sessions::new(CoreId(core), 100);
            (0..100).map(|_| create(&mut sessions, 0)).collect::<BTreeSet<_>>()
        };
        assert!(ids(0).is_disjoint(&ids(1)));
    }

    fn create(sessions: &mut Sessions, now_ms: u64) -> i32 {
        let (session, _) =
            sessions.create(InterestId(0), BY_ID, NamedPartitions::new(0), now_ms).expect("there is room");
        let id = session.id;
        sessions.give_back(session, now_ms);
        id
    }

    fn serve(sessions: &mut Sessions, id: i32, epoch: i32) -> Result<i32, ErrorCode> {
        let session = sessions.take(id, epoch, BY_ID)?;
        let next = session.next_epoch;
        sessions.give_back(session, 0);
        Ok(next)
    }
}
