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
//! * the cache never holds more sessions than its limit, nor sessions with more partitions than theirs; a
//!   session is evicted only after two minutes unused, or two minutes after it began for one that is to name more
//!   partitions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tarn_record::TopicIdPartition;
use tarn_runtime::CoreId;
use tarn_runtime::channel::Flag;
use tarn_wire::ErrorCode;

use crate::interest::{InterestId, Wanted};
use crate::named::{NamedPartitions, TopicNaming};

/// The request of a client that wants no session, or wants its session closed.
pub const FINAL_EPOCH: i32 = -1;
/// The request of a client that wants a new session.
pub const INITIAL_EPOCH: i32 = 0;
/// How long a session must have been unused before another may take its place, and how long it must have been there
/// before a larger one may.
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
    /// What the owning cores are still to be told.
    pub untold: Changes,
    /// The last response was as full as it may be: it suffices to ask one core after the other.
    pub is_behind: bool,
    turn: Turn,
    created_ms: u64,
    last_used_ms: u64,
    /// The partitions that the cache counts for it.
    counted: usize,
}

/// Which core is asked alone.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    core: Option<CoreId>,
    /// The partitions that it is still to give records of; not known before its first answer.
    left: Option<usize>,
}

/// What the cores that own a session's partitions are to be told of it: what is forgotten first.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// What is wanted of partitions, in the order in which it was said.
    pub upserts: Vec<(TopicIdPartition, Wanted)>,
    /// What is not wanted any more.
    pub forgets: Vec<TopicIdPartition>,
    /// What was found and did not fit the response.
    pub requeue: Vec<TopicIdPartition>,
}

/// What a cache holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions.
    pub sessions: usize,
    /// Partitions of all sessions together.
    pub partitions: usize,
}

/// The sessions of the connections of one core.
#[derive(Debug)]
pub struct Sessions {
    core: CoreId,
    limits: SessionLimits,
    partitions: usize,
    next_serial: u32,
    sessions: HashMap<i32, Session>,
    by_use: BTreeSet<(u64, i32)>,
    in_hand: BTreeSet<i32>,
}

impl Changes {
    /// Takes partitions out that are not wanted any more, though it was said before that they are.
    pub fn forget(&mut self, forgotten: &HashSet<TopicIdPartition>) {
        if !forgotten.is_empty() {
            self.upserts.retain(|(partition, _)| !forgotten.contains(partition));
            self.forgets.extend(forgotten);
        }
    }

    /// Adds what was taken out to be told, and was not.
    fn put_back(&mut self, untold: Changes) {
        self.upserts.extend(untold.upserts);
        self.forgets.extend(untold.forgets);
        self.requeue.extend(untold.requeue);
    }
}

impl Session {
    /// What each owning core is to be told; it is told once.
    pub fn take_changes(&mut self, owner: impl Fn(TopicIdPartition) -> CoreId) -> BTreeMap<CoreId, Changes> {
        let mut changes: BTreeMap<CoreId, Changes> = BTreeMap::new();
        let Changes { upserts, forgets, requeue } = std::mem::take(&mut self.untold);
        for (partition, wanted) in upserts {
            changes.entry(owner(partition)).or_default().upserts.push((partition, wanted));
        }
        for partition in forgets {
            changes.entry(owner(partition)).or_default().forgets.push(partition);
        }
        for partition in requeue {
            changes.entry(owner(partition)).or_default().requeue.push(partition);
        }
        changes
    }

    /// These cores are told with a later request.
    pub fn tell_later(&mut self, changes: BTreeMap<CoreId, Changes>) {
        changes.into_values().for_each(|changes| self.untold.put_back(changes));
    }

    /// Whose turn it is to be asked alone. A turn lasts for as many partitions as the core had records of when it began:
    /// so a partition is served no more often for being the only one of its core.
    pub fn turn_of(&mut self, owners: &BTreeSet<CoreId>) -> Option<CoreId> {
        let Turn { core, left } = self.turn;
        if left.is_none_or(|left| left == 0) || core.is_none_or(|core| !owners.contains(&core)) {
            let after = core.and_then(|last| owners.iter().find(|owner| **owner > last));
            self.turn = Turn { core: after.or(owners.first()).copied(), left: None };
        }
        self.turn.core
    }

    /// The core whose turn it is has given records of so many partitions, and has news of so many.
    pub fn took_turn(&mut self, served: usize, waiting: usize) {
        // Those that have more are among the waiting again.
        let left = self.turn.left.unwrap_or(waiting.max(served));
        self.turn.left = if served == 0 { None } else { Some(left.saturating_sub(served)) };
    }

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
            untold: Changes::default(),
            is_behind: false,
            turn: Turn::default(),
            created_ms: 0,
            last_used_ms: 0,
            counted: 0,
        }
    }
}

impl Sessions {
    /// Room for the sessions of the connections of `core`.
    pub fn new(core: CoreId, limits: SessionLimits) -> Sessions {
        let next_serial = fastrand::u32(..) & ((1 << SERIAL_BITS) - 1);
        let (sessions, by_use, in_hand) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        Sessions { core, limits, partitions: 0, next_serial, sessions, by_use, in_hand }
    }

    /// How many sessions there are, those in a request's hands included.
    pub fn len(&self) -> usize {
        self.sessions.len() + self.in_hand.len()
    }

    /// How many partitions they name, as far as they are in the cache.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a session that is to name so many partitions, unless the cache is full of sessions in use. The session
    /// that had to go for it, if any, comes with it: its interest is to be closed.
    pub fn create(
        &mut self,
        interest: InterestId,
        naming: TopicNaming,
        named: NamedPartitions,
        partitions: usize,
        now_ms: u64,
    ) -> Option<(Session, Option<Session>)> {
        let evicted = if self.len() >= self.limits.sessions {
            Some(self.evict(now_ms).or_else(|| self.evict_smaller(partitions, now_ms))?)
        } else {
            None
        };
        let id = self.unused_id();
        self.in_hand.insert(id);
        let session = Session::of_one_request(interest, naming, named);
        Some((Session { id, created_ms: now_ms, ..session }, evicted))
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
        let mut session = self.take_out(id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        session.next_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        self.in_hand.insert(id);
        Ok(session)
    }

    /// Counts the partitions of a session in a request's hands as they are now. Where they exceed the limit,
    /// sessions that were unused for long go for it; they are returned, and their interests are to be closed.
    /// Where that does not suffice it is no session of the cache any more, and its id is 0.
    pub fn fit(&mut self, session: &mut Session, now_ms: u64) -> Vec<Session> {
        self.partitions -= std::mem::replace(&mut session.counted, session.named.len());
        let limit = self.limits.partitions;
        let mut evicted = Vec::new();
        while self.partitions + session.counted > limit && session.counted <= limit {
            let Some(unused) = self.evict(now_ms) else { break };
            evicted.push(unused);
        }
        if self.partitions + session.counted > limit {
            self.in_hand.remove(&session.id);
            (session.id, session.counted) = (0, 0);
        }
        self.partitions += session.counted;
        evicted
    }

    /// Gives a session back after a request.
    pub fn give_back(&mut self, session: Session, now_ms: u64) {
        self.in_hand.remove(&session.id);
        self.by_use.insert((now_ms, session.id));
        self.sessions.insert(session.id, Session { last_used_ms: now_ms, ..session });
    }

    /// A session that was taken ends with its request.
    pub fn ended(&mut self, session: &Session) {
        self.in_hand.remove(&session.id);
        self.partitions -= session.counted;
    }

    /// Takes a session out for good; its interest is to be closed.
    pub fn remove(&mut self, id: i32) -> Option<Session> {
        let session = self.take_out(id)?;
        self.partitions -= session.counted;
        Some(session)
    }

    fn take_out(&mut self, id: i32) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.by_use.remove(&(session.last_used_ms, id));
        Some(session)
    }

    fn evict(&mut self, now_ms: u64) -> Option<Session> {
        let (last_used_ms, id) = *self.by_use.first()?;
        if now_ms.saturating_sub(last_used_ms) < EVICTION_MS { None } else { self.remove(id) }
    }

    /// The smallest session goes that is not new and names fewer partitions: naming them each time would cost less.
    fn evict_smaller(&mut self, partitions: usize, now_ms: u64) -> Option<Session> {
        let is_new = |session: &Session| now_ms.saturating_sub(session.created_ms) <= EVICTION_MS;
        let old = self.sessions.values().filter(|session| !is_new(session));
        let smallest = old.min_by_key(|session| (session.named.len(), session.id))?;
        let (id, named) = (smallest.id, smallest.named.len());
        if named < partitions { self.remove(id) } else { None }
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
    use crate::named::{Lookup, TopicKey};
    use tarn_record::{Epoch, Offset, PartitionIndex, TopicId};

    const BY_ID: TopicNaming = TopicNaming::ById;

    #[test]
    fn every_core_has_its_turn_before_one_has_it_again() {
        let mut session = a_session();
        let turns = |session: &mut Session, owners: &[u16]| {
            let owners = owners.iter().map(|core| CoreId(*core)).collect();
            let turn = session.turn_of(&owners).map(|core| core.0);
            session.took_turn(1, 0);
            turn
        };
        let all = [1, 3, 5];
        assert_eq!([(); 4].map(|()| turns(&mut session, &all)), [Some(1), Some(3), Some(5), Some(1)]);
        assert_eq!(turns(&mut session, &[0, 5]), Some(5), "whoever is next of those that are left");
        assert_eq!(turns(&mut session, &[]), None);
    }

    #[test]
    fn a_turn_lasts_for_as_many_partitions_as_had_records_when_it_began() {
        let mut session = a_session();
        let owners = [1, 3].map(CoreId).into_iter().collect();
        let mut turn = |served, waiting| {
            let core = session.turn_of(&owners).map(|core| core.0);
            session.took_turn(served, waiting);
            core
        };
        // Whoever was served is news again at once.
        let of_three = [turn(1, 3), turn(1, 3), turn(1, 3)];
        let of_one = turn(1, 1);
        assert_eq!((of_three, of_one, turn(2, 3)), ([Some(1); 3], Some(3), Some(1)));
        assert_eq!((turn(0, 1), turn(1, 0)), (Some(1), Some(3)), "a core without records has no turn");
    }

    #[test]
    fn what_a_core_was_not_told_in_its_turn_it_is_told_later_but_for_what_was_forgotten_since() {
        let mut session = a_session();
        let of = |partition| TopicIdPartition {
            topic_id: TopicId(uuid::Uuid::from_u128(7)),
            partition: PartitionIndex(partition),
        };
        let owner = |partition: TopicIdPartition| CoreId(partition.partition.0 as u16 % 2);
        session.untold.upserts = (0..4).map(|partition| (of(partition), wanted())).collect();
        session.untold.requeue = vec![of(1)];
        let mut changes = session.take_changes(owner);
        assert!(session.untold.upserts.is_empty(), "it is told once");
        let told: Vec<_> = changes.remove(&CoreId(0)).unwrap().upserts.into_iter().map(|one| one.0).collect();
        assert_eq!(told, [of(0), of(2)]);
        session.tell_later(changes);
        session.untold.forget(&HashSet::from([of(1)]));
        let mut changes = session.take_changes(owner);
        let Changes { upserts, forgets, requeue } = changes.remove(&CoreId(1)).unwrap();
        let upserts: Vec<_> = upserts.into_iter().map(|one| one.0).collect();
        assert_eq!((upserts, forgets, requeue), (vec![of(3)], vec![of(1)], vec![of(1)]));
        assert!(changes.is_empty());
    }

    fn a_session() -> Session {
        Session::of_one_request(InterestId(1), BY_ID, NamedPartitions::new(0))
    }

    #[test]
    fn a_session_is_taken_one_epoch_at_a_time() {
        let mut sessions = sessions(3, 10);
        let id = create(&mut sessions, 0);
        assert!(id > 0);
        assert_eq!(serve(&mut sessions, id, 1), Ok(2));
        assert_eq!(serve(&mut sessions, id, 1), Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
        assert_eq!(serve(&mut sessions, id, 2), Ok(3));
        assert_eq!(serve(&mut sessions, id + 1, 3), Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    }

    #[test]
    fn a_session_in_a_requests_hands_cannot_be_taken_again() {
        let mut sessions = sessions(0, 1);
        let id = create(&mut sessions, 0);
        let session = sessions.take(id, 1, BY_ID).expect("it is there");
        assert_eq!(sessions.take(id, 2, BY_ID).err(), Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
        assert!(
            sessions.create(InterestId(0), BY_ID, NamedPartitions::new(0), 1, EVICTION_MS * 2).is_none(),
            "it counts, and is in use"
        );
        sessions.give_back(session, 0);
        assert_eq!(serve(&mut sessions, id, 2), Ok(3));
    }

    #[test]
    fn the_epoch_after_the_largest_is_one() {
        let mut sessions = sessions(0, 10);
        let id = create(&mut sessions, 0);
        let mut session = sessions.take(id, 1, BY_ID).expect("it is there");
        session.next_epoch = i32::MAX;
        sessions.give_back(session, 0);
        assert_eq!(serve(&mut sessions, id, i32::MAX), Ok(1));
    }

    #[test]
    fn ids_and_names_do_not_mix_in_a_session() {
        let mut sessions = sessions(0, 10);
        let id = create(&mut sessions, 0);
        assert_eq!(
            sessions.take(id, 1, TopicNaming::ByName).err(),
            Some(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR)
        );
    }

    #[test]
    fn a_full_cache_gives_up_the_session_that_was_unused_longest() {
        let mut sessions = sessions(0, 2);
        let (old, young) = (create(&mut sessions, 0), create(&mut sessions, 1000));
        assert!(
            sessions.create(InterestId(0), BY_ID, NamedPartitions::new(0), 1, EVICTION_MS - 1).is_none(),
            "both are in use"
        );
        let (_, evicted) = sessions
            .create(InterestId(0), BY_ID, NamedPartitions::new(0), 1, EVICTION_MS)
            .expect("one is unused");
        assert_eq!(evicted.map(|session| session.id), Some(old));
        assert_eq!(serve(&mut sessions, young, 1), Ok(2));
    }

    #[test]
    fn a_larger_session_takes_the_place_of_a_smaller_one_that_is_not_new() {
        let mut sessions = sessions(0, 2);
        let (small, large) = (create(&mut sessions, 0), create(&mut sessions, 0));
        grow(&mut sessions, small, 10, EVICTION_MS);
        grow(&mut sessions, large, 20, EVICTION_MS);
        let mut place = |partitions, now_ms| {
            let named = NamedPartitions::new(0);
            let created = sessions.create(InterestId(0), BY_ID, named, partitions, now_ms);
            created.map(|(session, evicted)| {
                sessions.give_back(session, now_ms);
                evicted.map(|evicted| evicted.id)
            })
        };
        assert_eq!(place(15, EVICTION_MS), None, "both are new, and both are used");
        assert_eq!(place(10, EVICTION_MS + 1), None, "neither is smaller");
        assert_eq!(place(11, EVICTION_MS + 1), Some(Some(small)));
        assert_eq!(place(11, EVICTION_MS + 2), None, "the other two are larger, or new");
    }

    #[test]
    fn sessions_of_different_cores_have_different_ids() {
        let ids = |core| {
            let mut sessions = sessions(core, 100);
            (0..100).map(|_| create(&mut sessions, 0)).collect::<BTreeSet<_>>()
        };
        assert!(ids(0).is_disjoint(&ids(1)));
    }

    #[test]
    fn beyond_the_partitions_that_all_may_have_a_session_ends_where_none_is_unused() {
        let mut sessions = sessions(0, 10);
        let (old, young) = (create(&mut sessions, 0), create(&mut sessions, 1000));
        assert_eq!(grow(&mut sessions, old, 60, 0), (old, vec![]));
        assert_eq!(grow(&mut sessions, young, 40, 1000), (young, vec![]), "just what there is room for");
        assert_eq!(
            grow(&mut sessions, young, 41, 2000),
            (0, vec![]),
            "one too many, and the other is in use"
        );
        assert_eq!((sessions.partitions, sessions.len()), (60, 1));
        let new = create(&mut sessions, EVICTION_MS);
        assert_eq!(
            grow(&mut sessions, new, 101, EVICTION_MS),
            (0, vec![]),
            "nobody goes for one that never fits"
        );
        let new = create(&mut sessions, EVICTION_MS);
        assert_eq!(grow(&mut sessions, new, 50, EVICTION_MS), (new, vec![old]));
        assert_eq!((sessions.partitions, sessions.len()), (50, 1));
        assert_eq!(
            grow(&mut sessions, new, 7, EVICTION_MS),
            (new, vec![]),
            "what is forgotten counts no more"
        );
        assert_eq!(sessions.partitions, 7);
        sessions.remove(new);
        assert_eq!(sessions.partitions, 0);
    }

    #[test]
    fn a_session_that_ends_with_its_request_counts_no_more() {
        let mut sessions = sessions(0, 10);
        let id = create(&mut sessions, 0);
        grow(&mut sessions, id, 10, 0);
        let session = sessions.take(id, 2, BY_ID).expect("it is there");
        assert_eq!(sessions.partitions, 10, "it counts in a request's hands too");
        sessions.ended(&session);
        assert_eq!((sessions.partitions, sessions.len()), (0, 0));
    }

    fn wanted() -> Wanted {
        Wanted {
            fetch_offset: Offset(0),
            max_bytes: 1,
            current_leader_epoch: Epoch::NONE,
            last_fetched_epoch: Epoch::NONE,
        }
    }

    /// A request after which a session names so many partitions: its id then, and who had to go for it.
    fn grow(sessions: &mut Sessions, id: i32, partitions: i32, now_ms: u64) -> (i32, Vec<i32>) {
        let epoch = sessions.sessions[&id].next_epoch;
        let mut session = sessions.take(id, epoch, BY_ID).expect("it is there");
        session.named = NamedPartitions::new(0);
        for index in (0..partitions).map(PartitionIndex) {
            let lookup = Lookup { found: None, wanted: wanted() };
            session.named.want(&TopicKey::Id(TopicId::METADATA), index, lookup);
        }
        let evicted = sessions.fit(&mut session, now_ms).iter().map(|evicted| evicted.id).collect();
        let id = session.id;
        if id != 0 {
            sessions.give_back(session, now_ms);
        }
        (id, evicted)
    }

    fn sessions(core: u16, limit: usize) -> Sessions {
        Sessions::new(CoreId(core), SessionLimits { sessions: limit, partitions: 100 })
    }

    fn create(sessions: &mut Sessions, now_ms: u64) -> i32 {
        let (session, _) =
            sessions.create(InterestId(0), BY_ID, NamedPartitions::new(0), 1, now_ms).expect("there is room");
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
