//! The connection core's half of fetch sessions (KIP-227): identity, epoch, and which topics and
//! partitions a session names, in which order.
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

use tarn_record::{PartitionIndex, TopicIdPartition};
use tarn_runtime::CoreId;
use tarn_wire::{ErrorCode, Str};

use crate::interest::InterestId;

/// The request of a client that wants no session, or wants its session closed.
pub const FINAL_EPOCH: i32 = -1;
/// The request of a client that wants a new session.
pub const INITIAL_EPOCH: i32 = 0;
/// How long a session must have been unused before another may take its place.
pub const EVICTION_MS: u64 = 120_000;

const CORE_BITS: u32 = 10;
const SERIAL_BITS: u32 = 31 - CORE_BITS;

/// How a session and its requests name topics: by id from Fetch v13 on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// By the topic's name.
    Name(Str),
    /// By the topic's id.
    Id(tarn_record::TopicId),
}

/// One fetch session of a client.
#[derive(Debug)]
pub struct Session {
    /// The session's id, never 0.
    pub id: i32,
    /// The epoch that the next request must carry.
    pub next_epoch: i32,
    /// True where topics are named by id.
    pub by_id: bool,
    /// Every partition that the session names, and what the name stood for when it was last looked up;
    /// `None` where it stood for nothing.
    pub partitions: HashMap<(TopicKey, PartitionIndex), Option<TopicIdPartition>>,
    /// The session's interest on each core that owns one of its partitions.
    pub interests: HashMap<CoreId, InterestId>,
    /// The version of the metadata image with which the names were looked up.
    pub image_offset: i64,
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
}

impl Sessions {
    /// Room for `limit` sessions of the connections of `core`.
    pub fn new(core: CoreId, limit: usize) -> Sessions {
        let next_serial = fastrand::u32(..) & ((1 << SERIAL_BITS) - 1);
        Sessions { core, limit, next_serial, sessions: HashMap::new(), by_use: BTreeSet::new() }
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Makes a session, unless the cache is full of sessions in use. The session that had to go for it,
    /// if any, comes back with it: its interests are to be closed.
    pub fn create(&mut self, by_id: bool, now_ms: u64) -> Option<(i32, Option<Session>)> {
        let evicted = if self.sessions.len() >= self.limit { Some(self.evict(now_ms)?) } else { None };
        let id = self.unused_id();
        let session = Session {
            id,
            next_epoch: 1,
            by_id,
            partitions: HashMap::new(),
            interests: HashMap::new(),
            image_offset: -1,
            last_used_ms: now_ms,
        };
        self.sessions.insert(id, session);
        self.by_use.insert((now_ms, id));
        Some((id, evicted))
    }

    /// The session of an incremental request, its epoch moved on. The request is taken only once.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, and FETCH_SESSION_TOPIC_ID_ERROR where
    /// the session names topics the other way.
    pub fn advance(
        &mut self,
        id: i32,
        epoch: i32,
        by_id: bool,
        now_ms: u64,
    ) -> Result<&mut Session, ErrorCode> {
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next_epoch != epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.next_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        self.by_use.remove(&(session.last_used_ms, id));
        session.last_used_ms = now_ms;
        self.by_use.insert((now_ms, id));
        Ok(session)
    }

    /// A session by its id, without moving its epoch.
    pub fn get_mut(&mut self, id: i32) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// Takes a session out; its interests are to be closed.
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
            if id != 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_advanced_one_epoch_at_a_time() {
        let mut sessions = Sessions::new(CoreId(3), 10);
        let id = create(&mut sessions, 0);
        assert!(id > 0);
        assert_eq!(advance(&mut sessions, id, 1), Ok(2));
        assert_eq!(advance(&mut sessions, id, 1), Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
        assert_eq!(advance(&mut sessions, id, 2), Ok(3));
        assert_eq!(advance(&mut sessions, id + 1, 3), Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    }

    #[test]
    fn the_epoch_after_the_largest_is_one() {
        let mut sessions = Sessions::new(CoreId(0), 10);
        let id = create(&mut sessions, 0);
        sessions.get_mut(id).expect("it was made").next_epoch = i32::MAX;
        assert_eq!(advance(&mut sessions, id, i32::MAX), Ok(1));
    }

    #[test]
    fn ids_and_names_do_not_mix_in_a_session() {
        let mut sessions = Sessions::new(CoreId(0), 10);
        let id = create(&mut sessions, 0);
        let mixed = sessions.advance(id, 1, false, 0).map(|session| session.id);
        assert_eq!(mixed, Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR));
    }

    #[test]
    fn a_full_cache_gives_up_the_session_that_was_unused_longest() {
        let mut sessions = Sessions::new(CoreId(0), 2);
        let (old, young) = (create(&mut sessions, 0), create(&mut sessions, 1000));
        assert!(sessions.create(true, EVICTION_MS - 1).is_none(), "both are in use");
        let (_, evicted) = sessions.create(true, EVICTION_MS).expect("one is unused");
        assert_eq!(evicted.map(|session| session.id), Some(old));
        assert!(sessions.get_mut(young).is_some());
        assert_eq!(sessions.len(), 2);
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
        sessions.create(true, now_ms).expect("there is room").0
    }

    fn advance(sessions: &mut Sessions, id: i32, epoch: i32) -> Result<i32, ErrorCode> {
        sessions.advance(id, epoch, true, 0).map(|session| session.next_epoch)
    }
}
