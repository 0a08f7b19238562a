//! What fetch sessions want and memory does not have: where it is in the log is looked up beside the core.
//!
//! A partition whose lookup has to wait for the disk is left out of the answer, and is news for its session when
//! the lookup has ended; by then memory has what it needs. So one that is cold holds up nobody: neither the core nor
//! the other partitions of its session. Owned by the core of the partitions.
//!
//! Invariants:
//! * a session has one lookup of a partition under way at most;
//! * of a session that is closed, or has forgotten the partition, nothing is kept.

use std::collections::HashMap;
use std::rc::Rc;

use tarn_log::{ReadOrder, ReadSearch};
use tarn_record::TopicIdPartition;
use tarn_runtime::{Queue, blocking_read, spawn};
use tracing::debug;

use crate::core::Core;
use crate::interest::InterestId;
use crate::replica::Replica;

/// Lookups of one partition for one session, each of which ended well and left memory without what it had found, after
/// which the core waits for the disk itself: a file system may never say what it has.
const LOOKUPS_IN_VAIN_MAX: u32 = 2;

/// Who asks once: no session waits for its lookups, and what they bring to memory is found by whoever asks next.
pub const NOBODY: InterestId = InterestId(u64::MAX);

/// A lookup for a session, to be run beside the core.
#[derive(Debug)]
pub struct ColdRead {
    session: InterestId,
    partition: TopicIdPartition,
    search: ReadSearch,
}

impl ColdRead {
    /// Of the log as it is now.
    pub fn new(session: InterestId, replica: &Replica, order: &ReadOrder) -> ColdRead {
        ColdRead { session, partition: replica.partition(), search: replica.log().read_search(order) }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct ColdReads {
    by_session: HashMap<InterestId, HashMap<TopicIdPartition, State>>,
}

/// What is to be done for a partition that is cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// To look it up; it counts as under way.
    LookUp,
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
    /// The disk refused, or the log is not what it was.
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct State {
    lookups: u32,
    /// How the last of them ended, if it has.
    ended: Option<LookedUp>,
}

impl ColdReads {
    /// True where no session has met anything cold.
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// Memory does not have what a session wants.
    pub fn attempt(&mut self, session: InterestId, partition: TopicIdPartition) -> Attempt {
        let known = self.by_session.entry(session).or_default();
        let state = known.entry(partition).or_insert(State { lookups: 0, ended: Some(LookedUp::Found) });
        let attempt = match state.ended {
            None => Attempt::Wait,
            Some(LookedUp::Failed) => Attempt::Fail,
            Some(LookedUp::Found) if state.lookups >= LOOKUPS_IN_VAIN_MAX => Attempt::Read,
            Some(LookedUp::Found) => Attempt::LookUp,
        };
        match attempt {
            Attempt::Wait => {}
            Attempt::LookUp => *state = State { lookups: state.lookups + 1, ended: None },
            Attempt::Fail | Attempt::Read => self.forget(session, partition),
        }
        attempt
    }

    /// A lookup has ended.
    pub fn ended(&mut self, session: InterestId, partition: TopicIdPartition, how: LookedUp) {
        if session == NOBODY {
            return self.forget(session, partition);
        }
        let known = self.by_session.get_mut(&session).and_then(|known| known.get_mut(&partition));
        if let Some(state) = known {
            state.ended = Some(how);
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

/// Looks up beside the core, one after the other, and tells the session of each.
pub(crate) fn look_up(core: &Rc<Core>, reads: Vec<ColdRead>) {
    if reads.is_empty() {
        return;
    }
    let core = core.clone();
    spawn(Queue::Network, async move {
        for ColdRead { session, partition, search } in reads {
            let found = blocking_read(move || search.run().map(drop)).await;
            let how = match found {
                Ok(Ok(())) => LookedUp::Found,
                Ok(Err(error)) => {
                    // Nothing to worry about where the log was cut meanwhile; else who asks again is told.
                    debug!(%partition, %error, "a lookup for a fetch failed");
                    LookedUp::Failed
                }
                Err(_) => LookedUp::Failed,
            };
            core.partitions().looked_up(session, partition, how);
        }
    })
    .detach();
}

#[cfg(test)]
mod tests;
