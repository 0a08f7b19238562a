//! What fetch sessions want and memory does not have: where it is in the log is looked up beside the core.
//!
//! A partition whose lookup has to wait for the disk is left out of the answer, and is news for its session when
//! the lookup has ended; by then memory has what it needs. So one that is cold holds up nobody: neither the core nor
//! the other partitions of its session. Owned by the core of the partitions.
//!
//! Invariants:
//! * a session has one lookup of a partition under way at most that is for the offset that it wants now; what becomes of one
//!   for another offset is nobody's answer;
//! * what a lookup says of files that the log has no more is not told;
//! * of a session that is closed, or has forgotten the partition, nothing is kept.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use tarn_log::{LogFiles, ReadOrder, ReadSearch};
use tarn_record::{Offset, TopicIdPartition};
use tarn_runtime::{DiskId, Queue, blocking_read, now, spawn};
use tracing::debug;

use crate::core::Core;
use crate::interest::InterestId;
use crate::limits::LOOKUPS_OF_CHANGED_MAX;
use crate::replica::Replica;

/// Lookups of one partition for one session, each of which ended well and left memory without what it had found, after
/// which the core waits for the disk itself: a file system may never say what it has.
const LOOKUPS_IN_VAIN_MAX: u32 = 2;

/// Who asks once: no session waits for its lookups, and what they bring to memory is found by whoever asks next.
pub const NOBODY: InterestId = InterestId(u64::MAX);

/// Where reads of a replica's log wait.
pub(crate) fn disk_of(replica: &Replica) -> DiskId {
    DiskId(replica.log().dir_number())
}

/// Tells the lookups of a core apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupNumber(u64);

/// A lookup for a session, to be run beside the core.
#[derive(Debug)]
pub struct ColdRead {
    asked: Asked,
    disk: DiskId,
    search: ReadSearch,
}

/// Whose a lookup is.
#[derive(Debug)]
pub struct Asked {
    /// Who asks.
    pub session: InterestId,
    /// For what.
    pub partition: TopicIdPartition,
    /// Which of its lookups.
    pub lookup: LookupNumber,
    /// In which files.
    pub files: LogFiles,
}

impl ColdRead {
    /// Of the log as it is now.
    pub fn new(session: InterestId, lookup: LookupNumber, replica: &Replica, order: &ReadOrder) -> ColdRead {
        let (partition, log) = (replica.partition(), replica.log());
        let asked = Asked { session, partition, lookup, files: log.files() };
        ColdRead { asked, disk: disk_of(replica), search: log.read_search(order) }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct ColdReads {
    by_session: HashMap<InterestId, HashMap<TopicIdPartition, State>>,
    lookups: u64,
}

/// What is to be done for a partition that is cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// To look it up; it counts as under way.
    LookUp(LookupNumber),
    /// Nothing: that is under way.
    Wait,
    /// To tell that it cannot be read.
    Fail,
    /// To wait for the disk.
    Read,
}

/// How a lookup has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedUp {
    /// Memory has it.
    Found,
    /// The disk refused.
    Failed,
    /// However it ended, the log has other files by now.
    Changed,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// What is wanted.
    offset: Offset,
    lookup: LookupNumber,
    /// Those that were in vain, and those that met a change of the log.
    in_vain: u32,
    changed: u32,
    /// How the last of them ended, if it has.
    ended: Option<LookedUp>,
}

impl State {
    /// What is to be done once no lookup is under way.
    fn next(&self) -> Attempt {
        match self.ended {
            None => Attempt::Wait,
            Some(LookedUp::Failed) => Attempt::Fail,
            Some(LookedUp::Changed) if self.changed >= LOOKUPS_OF_CHANGED_MAX => Attempt::Fail,
            Some(LookedUp::Found) if self.in_vain >= LOOKUPS_IN_VAIN_MAX => Attempt::Read,
            Some(LookedUp::Found | LookedUp::Changed) => Attempt::LookUp(self.lookup),
        }
    }
}

impl ColdReads {
    /// True where no session has met anything cold.
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// Memory does not have what a session wants.
    pub fn attempt(&mut self, session: InterestId, partition: TopicIdPartition, offset: Offset) -> Attempt {
        let lookup = LookupNumber(self.lookups);
        let new = State { offset, lookup, in_vain: 0, changed: 0, ended: Some(LookedUp::Found) };
        let known = self.by_session.entry(session).or_default();
        let state = known.entry(partition).or_insert(new);
        // Nobody in particular wants no offset in particular.
        if state.offset != offset && session != NOBODY {
            *state = new;
        }
        match state.next() {
            Attempt::LookUp(_) => {
                self.lookups += 1;
                (state.lookup, state.ended) = (lookup, None);
                Attempt::LookUp(lookup)
            }
            Attempt::Wait => Attempt::Wait,
            told => {
                self.forget(session, partition);
                told
            }
        }
    }

    /// True where what a session wants of a partition is being looked up.
    pub fn is_under_way(&self, session: InterestId, partition: TopicIdPartition, offset: Offset) -> bool {
        let known = self.by_session.get(&session).and_then(|known| known.get(&partition));
        known.is_some_and(|state| state.ended.is_none() && state.offset == offset)
    }

    /// A lookup has ended.
    pub fn ended(&mut self, asked: &Asked, how: LookedUp) {
        if asked.session == NOBODY {
            return self.forget(asked.session, asked.partition);
        }
        let known = self.by_session.get_mut(&asked.session);
        let state = known.and_then(|known| known.get_mut(&asked.partition));
        let Some(state) = state.filter(|state| state.lookup == asked.lookup) else { return };
        state.ended = Some(how);
        match how {
            LookedUp::Found => state.in_vain += 1,
            LookedUp::Changed => state.changed += 1,
            LookedUp::Failed => {}
        }
    }

    /// How many lookups are under way for a session.
    pub fn under_way(&self, session: InterestId) -> usize {
        let known = self.by_session.get(&session);
        known.map_or(0, |known| known.values().filter(|state| state.ended.is_none()).count())
    }

    /// A session was told what it wanted of a partition, or wants it no more.
    pub fn forget(&mut self, session: InterestId, partition: TopicIdPartition) {
        let Some(known) = self.by_session.get_mut(&session) else { return };
        known.remove(&partition);
        if known.is_empty() {
            self.by_session.remove(&session);
        }
    }

    /// A session has ended.
    pub fn close(&mut self, session: InterestId) {
        self.by_session.remove(&session);
    }
}

/// Looks up beside the core, those of one disk one after the other, and tells the session of each.
pub(crate) fn look_up(core: &Rc<Core>, reads: Vec<ColdRead>) {
    core.metrics().cold_lookups.begun.add(reads.len() as u64);
    let mut by_disk: BTreeMap<DiskId, Vec<ColdRead>> = BTreeMap::new();
    reads.into_iter().for_each(|read| by_disk.entry(read.disk).or_default().push(read));
    for reads in by_disk.into_values() {
        let core = core.clone();
        spawn(Queue::Network, async move {
            for ColdRead { asked, disk, search } in reads {
                let began = now();
                let how = look_up_one(asked.partition, disk, search).await;
                core.metrics().cold_lookups.ended.note(began.elapsed());
                core.partitions().looked_up(&asked, how);
            }
        })
        .detach();
    }
}

async fn look_up_one(partition: TopicIdPartition, disk: DiskId, search: ReadSearch) -> LookedUp {
    match blocking_read(disk, move || search.run().map(drop)).await {
        Ok(Ok(())) => LookedUp::Found,
        Ok(Err(error)) => {
            // Nothing to worry about where the log has changed meanwhile; else who asks again is told.
            debug!(%partition, %error, "a lookup for a fetch failed");
            LookedUp::Failed
        }
        Err(_) => LookedUp::Failed,
    }
}

#[cfg(test)]
mod tests;
