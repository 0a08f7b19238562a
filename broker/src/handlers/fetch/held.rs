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
use crate::interest::Wanted;
use crate::sessions::{Lookup, Session, TopicKey};

/// What is to be told to one owning core with the next read.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) upserts: Vec<(TopicIdPartition, Wanted)>,
    pub(super) forgets: Vec<TopicIdPartition>,
    pub(super) requeue: Vec<TopicIdPartition>,
}

/// See the module.
pub(super) struct HeldSession {
    core: Rc<Core>,
    session: Option<Session>,
    full: bool,
    upserts: Vec<(TopicIdPartition, Wanted)>,
    forgets: Vec<TopicIdPartition>,
}

impl HeldSession {
    /// A new session of the cache; one of the request's own where the cache is full.
    pub(super) fn create(core: &Rc<Core>, by_id: bool) -> HeldSession {
        let made = core.sessions().create(core.next_interest(), by_id, core.clock_ms());
        match made {
            Some((session, evicted)) => {
                evicted.into_iter().for_each(|session| core.close_interest_of(&session));
                HeldSession::new(core, session, true)
            }
            None => HeldSession::alone(core, by_id),
        }
    }

    /// The session of a request that wants none.
    pub(super) fn alone(core: &Rc<Core>, by_id: bool) -> HeldSession {
        HeldSession::new(core, Session::of_one_request(core.next_interest(), by_id), true)
    }

    /// The session of an incremental request.
    ///
    /// # Errors
    /// Those of [`crate::sessions::Sessions::take`].
    pub(super) fn take(core: &Rc<Core>, id: i32, epoch: i32, by_id: bool) -> Result<HeldSession, ErrorCode> {
        let session = core.sessions().take(id, epoch, by_id)?;
        Ok(HeldSession::new(core, session, false))
    }

    fn new(core: &Rc<Core>, session: Session, full: bool) -> HeldSession {
        let (upserts, forgets) = (Vec::new(), Vec::new());
        HeldSession { core: core.clone(), session: Some(session), full, upserts, forgets }
    }

    /// True where every partition is to be answered.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn session(&self) -> &Session {
        self.session.as_ref().expect("only finish and drop take it, and they are the end")
    }

    pub(super) fn session_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("only finish and drop take it, and they are the end")
    }

    /// A partition that the request names.
    pub(super) fn want(&mut self, named: (TopicKey, PartitionIndex), lookup: Lookup) {
        let before = self.session_mut().partitions.insert(named, lookup).and_then(|before| before.found);
        if before != lookup.found {
            self.forgets.extend(before);
        }
        self.upserts.extend(lookup.found.map(|partition| (partition, lookup.wanted)));
    }

    /// A partition that the request forgets.
    pub(super) fn forget(&mut self, named: &(TopicKey, PartitionIndex)) {
        let forgotten = self.session_mut().partitions.remove(named);
        self.forgets.extend(forgotten.and_then(|lookup| lookup.found));
    }

    /// Looks up again what a name stands for: topics are made, deleted and made again.
    pub(super) fn look_up_again(&mut self) {
        if self.full {
            return;
        }
        let core = self.core.clone();
        let (mut upserts, mut forgets) = (Vec::new(), Vec::new());
        for ((key, index), lookup) in &mut self.session_mut().partitions {
            let view = core.view();
            let found =
                view.topic(key).map(|topic| TopicIdPartition { topic_id: topic.id, partition: *index });
            let found = found.filter(|partition| view.exists(*partition));
            if found != lookup.found {
                forgets.extend(lookup.found);
                upserts.extend(found.map(|partition| (partition, lookup.wanted)));
                lookup.found = found;
            }
        }
        self.upserts.extend(upserts);
        self.forgets.extend(forgets);
    }

    /// What each owning core has to be told; it is told once.
    pub(super) fn take_changes(&mut self) -> BTreeMap<CoreId, Changes> {
        let mut changes: BTreeMap<CoreId, Changes> = BTreeMap::new();
        let requeue = std::mem::take(&mut self.session_mut().requeue);
        for (partition, wanted) in std::mem::take(&mut self.upserts) {
            changes.entry(self.core.owner(partition)).or_default().upserts.push((partition, wanted));
        }
        for partition in std::mem::take(&mut self.forgets) {
            changes.entry(self.core.owner(partition)).or_default().forgets.push(partition);
        }
        for partition in requeue {
            changes.entry(self.core.owner(partition)).or_default().requeue.push(partition);
        }
        changes
    }

    /// The partitions whose names stand for nothing.
    pub(super) fn missing(&self) -> HashSet<(TopicKey, PartitionIndex)> {
        let partitions = self.session().partitions.iter();
        partitions.filter(|(_, lookup)| lookup.found.is_none()).map(|(named, _)| named.clone()).collect()
    }

    /// The request is answered.
    pub(super) fn finish(mut self) {
        self.put_away();
    }

    fn put_away(&mut self) {
        let Some(session) = self.session.take() else { return };
        if session.id == 0 {
            self.core.close_interest_of(&session);
        } else if session.partitions.is_empty() {
            self.core.sessions().ended(session.id);
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
