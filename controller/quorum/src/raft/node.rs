//! One voter of the quorum.
//!
//! Invariants:
//! * an epoch is persisted before anything is appended or said in it;
//! * the first record of a leader's epoch is its LeaderChange;
//! * the high watermark moves only over records of the leader's own epoch, never back, and never past
//!   what is on the disk of a majority.

use tarn_record::{BrokerId, Epoch, Offset};

use crate::quorum_state::QuorumState;

/// What a voter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It knows of no leader and has not voted.
    Unattached,
    /// It stands for election.
    Candidate,
    /// It leads; its epoch begins at this offset.
    Leader {
        /// Where its LeaderChange is.
        epoch_start: Offset,
    },
    /// It has given the leadership up.
    Resigned,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The node has started, or its election timeout is up.
    ElectionTimeout,
    /// What `PersistQuorumState` asked for is on the disk.
    QuorumStatePersisted,
    /// The log ends here now.
    Appended(Offset),
    /// Everything below is on the disk.
    Flushed(Offset),
    /// The node is about to stop.
    Resign,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write the quorum state and answer with `QuorumStatePersisted`.
    PersistQuorumState(QuorumState),
    /// Append the LeaderChange of this epoch, and flush it.
    AppendLeaderChange(Epoch),
    /// Flush the log.
    Flush,
    /// Everything below is committed.
    Commit(Offset),
    /// This node leads and all of its log is committed: requests may be decided.
    Lead(Epoch),
    /// This node leads no longer: what is not committed is dropped.
    StepDown,
}

/// See the module.
#[derive(Debug)]
pub struct Node {
    id: BrokerId,
    state: QuorumState,
    role: Role,
    log_end: Offset,
    flushed: Offset,
    high_watermark: Offset,
    leads: bool,
}

impl Node {
    /// The only voter of a quorum, `id`, with what its disk says: its quorum state, and a log that ends at
    /// `log_end` and is on the disk up to there.
    pub fn new(id: BrokerId, state: QuorumState, log_end: Offset) -> Node {
        Node {
            id,
            state,
            role: Role::Unattached,
            log_end,
            flushed: log_end,
            high_watermark: Offset(0),
            leads: false,
        }
    }

    /// What this node is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The newest epoch that this node has seen.
    pub fn epoch(&self) -> Epoch {
        self.state.epoch
    }

    /// Everything below is committed.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Takes one input; what is to be done, in order.
    pub fn step(&mut self, input: Input) -> Vec<Output> {
        match input {
            Input::ElectionTimeout => self.stand_for_election(),
            Input::QuorumStatePersisted => self.persisted(),
            Input::Appended(log_end) => {
                assert!(log_end >= self.log_end, "the log of a leader never shrinks");
                self.log_end = log_end;
                vec![Output::Flush]
            }
            Input::Flushed(flushed) => {
                self.flushed = self.flushed.max(flushed);
                self.advance()
            }
            Input::Resign => self.resign(),
        }
    }

    fn stand_for_election(&mut self) -> Vec<Output> {
        if !matches!(self.role, Role::Unattached | Role::Resigned) {
            return Vec::new();
        }
        self.role = Role::Candidate;
        self.state =
            QuorumState { leader: BrokerId::NONE, epoch: Epoch(self.state.epoch.0 + 1), voted: self.id };
        vec![Output::PersistQuorumState(self.state)]
    }

    /// The own vote is on the disk: of one voter it is the majority.
    fn persisted(&mut self) -> Vec<Output> {
        if self.role != Role::Candidate {
            return Vec::new();
        }
        self.role = Role::Leader { epoch_start: self.log_end };
        self.state = QuorumState { leader: self.id, voted: BrokerId::NONE, ..self.state };
        vec![Output::PersistQuorumState(self.state), Output::AppendLeaderChange(self.state.epoch)]
    }

    fn advance(&mut self) -> Vec<Output> {
        let Role::Leader { epoch_start } = self.role else { return Vec::new() };
        let mut outputs = Vec::new();
        if self.flushed > epoch_start && self.flushed > self.high_watermark {
            assert!(self.flushed <= self.log_end, "nothing is flushed that was not appended");
            self.high_watermark = self.flushed;
            outputs.push(Output::Commit(self.high_watermark));
            if !self.leads {
                self.leads = true;
                outputs.push(Output::Lead(self.state.epoch));
            }
        }
        if self.flushed < self.log_end {
            outputs.push(Output::Flush);
        }
        outputs
    }

    fn resign(&mut self) -> Vec<Output> {
        self.role = Role::Resigned;
        if std::mem::take(&mut self.leads) { vec![Output::StepDown] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_single_voter_elects_itself_in_an_epoch_of_its_own() {
        let before = QuorumState { leader: BrokerId(1), epoch: Epoch(4), voted: BrokerId::NONE };
        let mut node = Node::new(BrokerId(1), before, Offset(10));
        let vote = QuorumState { leader: BrokerId::NONE, epoch: Epoch(5), voted: BrokerId(1) };
        assert_eq!(node.step(Input::ElectionTimeout), [Output::PersistQuorumState(vote)]);
        let leads = QuorumState { leader: BrokerId(1), epoch: Epoch(5), voted: BrokerId::NONE };
        assert_eq!(
            node.step(Input::QuorumStatePersisted),
            [Output::PersistQuorumState(leads), Output::AppendLeaderChange(Epoch(5))]
        );
        assert_eq!(node.step(Input::QuorumStatePersisted), []);
        assert_eq!(node.step(Input::Appended(Offset(11))), [Output::Flush]);
        assert_eq!(
            node.step(Input::Flushed(Offset(11))),
            [Output::Commit(Offset(11)), Output::Lead(Epoch(5))],
            "what earlier leaders wrote is committed with the first record of this epoch"
        );
    }

    #[test]
    fn records_of_older_epochs_are_not_committed_by_themselves() {
        let mut node = Node::new(BrokerId(1), QuorumState::default(), Offset(10));
        node.step(Input::ElectionTimeout);
        node.step(Input::QuorumStatePersisted);
        assert_eq!(node.step(Input::Flushed(Offset(10))), []);
        assert_eq!(node.high_watermark(), Offset(0));
    }

    #[test]
    fn a_node_that_resigned_commits_nothing() {
        let mut node = leader();
        assert_eq!(node.step(Input::Resign), [Output::StepDown]);
        node.step(Input::Appended(Offset(2)));
        assert_eq!(node.step(Input::Flushed(Offset(2))), []);
    }

    proptest! {
        /// Whatever the order of appends and flushes, nothing is committed that is not on the disk.
        #[test]
        fn nothing_is_committed_before_it_is_on_the_disk(steps in prop::collection::vec((any::<bool>(), 1i64..5), 0..60)) {
            let mut node = leader();
            let (mut end, mut flushed) = (1, 1);
            let mut committed = Offset(1);
            for (append, count) in steps {
                let outputs = if append {
                    end += count;
                    node.step(Input::Appended(Offset(end)))
                } else {
                    flushed = (flushed + count).min(end);
                    node.step(Input::Flushed(Offset(flushed)))
                };
                for output in outputs {
                    if let Output::Commit(offset) = output {
                        prop_assert!(offset > committed && offset <= Offset(flushed));
                        committed = offset;
                    }
                }
            }
            prop_assert_eq!(node.high_watermark(), Offset(flushed));
        }
    }

    fn leader() -> Node {
        let mut node = Node::new(BrokerId(1), QuorumState::default(), Offset(0));
        node.step(Input::ElectionTimeout);
        node.step(Input::QuorumStatePersisted);
        node.step(Input::Appended(Offset(1)));
        node.step(Input::Flushed(Offset(1)));
        node
    }
}
