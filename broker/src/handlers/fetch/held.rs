//! A fetch session in a request's hands: what the request changes in it, and where it goes afterwards.
//!
//! However the request ends, answered or dropped with its connection, a session of the cache goes back to
//! it and one of the request's own is closed on every core.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use tarn_record::{PartitionIndex, TopicIdPartition};
use tarn_runtime::CoreId;
use tarn_wire::ErrorCode;

use crate::core::Core;
use crate::interest::Scope;
use crate::named::{Lookup, NamedPartitions, TopicKey, TopicNaming};
use crate::sessions::{Changes, Session};

/// See the module.
pub(super) struct HeldSession {
    core: Rc<Core>,
    session: Option<Session>,
    scope: Scope,
}

impl HeldSession {
    /// A new session of the cache for so many partitions; one of the request's own where the cache is full.
    pub(super) fn create(core: &Rc<Core>, naming: TopicNaming, partitions: usize) -> HeldSession {
        let named = NamedPartitions::new(core.topic_changes().next());
        let (interest, now_ms) = (core.next_interest(), core.clock_ms());
        let made = core.sessions().create(interest, naming, named, partitions, now_ms);
        match made {
            Some((session, evicted)) => {
                evicted.into_iter().for_each(|session| core.close_interest_of(&session));
                HeldSession::new(core, session, Scope::All)
            }
            None => HeldSession::alone(core, naming),
        }
    }

    /// The session of a request that wants none.
    pub(super) fn alone(core: &Rc<Core>, naming: TopicNaming) -> HeldSession {
        let named = NamedPartitions::new(core.topic_changes().next());
        HeldSession::new(core, Session::of_one_request(core.next_interest(), naming, named), Scope::All)
    }

    /// The session of an incremental request.
    ///
    /// # Errors
    /// Those of [`crate::sessions::Sessions::take`].
    pub(super) fn take(
        core: &Rc<Core>,
        id: i32,
        epoch: i32,
        naming: TopicNaming,
    ) -> Result<HeldSession, ErrorCode> {
        let session = core.sessions().take(id, epoch, naming)?;
        Ok(HeldSession::new(core, session, Scope::News))
    }

    fn new(core: &Rc<Core>, session: Session, scope: Scope) -> HeldSession {
        HeldSession { core: core.clone(), session: Some(session), scope }
    }

    /// What is to be answered: every partition, or what has news.
    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    pub(super) fn session(&self) -> &Session {
        self.session.as_ref().expect("only finish and drop take it, and they are the end")
    }

    pub(super) fn session_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("only finish and drop take it, and they are the end")
    }

    /// Makes room for the partitions that a request names.
    pub(super) fn reserve_exact(&mut self, partitions: usize) {
        if self.scope == Scope::All {
            self.session_mut().named.reserve_exact(partitions);
        }
    }

    /// A partition that the request names.
    pub(super) fn want(&mut self, key: &TopicKey, index: PartitionIndex, lookup: Lookup) {
        let session = self.session_mut();
        let gone = session.named.want(key, index, lookup);
        if let Some(gone) = gone {
            session.untold.forget(&HashSet::from([gone]));
        }
        session.untold.upserts.extend(lookup.found.map(|partition| (partition, lookup.wanted)));
    }

    /// The partitions that the request forgets. What looking up again has found for one of their names is not
    /// wanted any more either: an owning core forgets first.
    pub(super) fn forget(&mut self, names: impl IntoIterator<Item = (TopicKey, PartitionIndex)>) {
        let session = self.session_mut();
        let forgotten: HashSet<TopicIdPartition> =
            names.into_iter().filter_map(|(key, index)| session.named.forget(&key, index)).collect();
        session.untold.forget(&forgotten);
    }

    /// Looks up again what names stand for, where their topics have changed since the last request: before
    /// the request's own names are taken in, and before those that it forgets are.
    pub(super) fn look_up_again(&mut self) {
        let core = self.core.clone();
        let view = core.view();
        let session = self.session_mut();
        let moved = session.named.look_up_again(&core.topic_changes(), |key, index| view.find(key, index));
        session.untold.forget(&moved.gone.into_iter().collect());
        session.untold.upserts.extend(moved.come);
    }

    /// Where the sessions of the core would hold too many partitions with what the request added, the session
    /// ends with the request: the client is told session id 0 and names its partitions each time.
    pub(super) fn fit_into_cache(&mut self) {
        let (core, session) = (self.core.clone(), self.session_mut());
        if session.id == 0 {
            return;
        }
        session.named.compact();
        let evicted = core.sessions().fit(session, core.clock_ms());
        evicted.iter().for_each(|evicted| core.close_interest_of(evicted));
    }

    /// What each owning core has to be told; it is told once.
    pub(super) fn take_changes(&mut self) -> BTreeMap<CoreId, Changes> {
        let core = self.core.clone();
        self.session_mut().take_changes(|partition| core.owner(partition))
    }

    /// The session of one request, of which no core keeps anything yet, is to be read once before that; but not where it
    /// names a partition more than once, which would be read as often.
    pub(super) fn may_be_read_once(&self) -> bool {
        let session = self.session();
        let names_each_once = session.untold.upserts.len() <= session.named.len();
        session.id == 0 && session.cores.is_empty() && names_each_once
    }

    /// The request is answered.
    pub(super) fn finish(mut self) {
        self.put_away();
    }

    fn put_away(&mut self) {
        let Some(session) = self.session.take() else { return };
        if session.id == 0 {
            self.core.close_interest_of(&session);
        } else if session.named.is_empty() {
            self.core.sessions().ended(&session);
            self.core.close_interest_of(&session);
        } else {
            self.core.sessions().give_back(session, self.core.clock_ms());
        }
    }
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        self.put_away();
    }
}
