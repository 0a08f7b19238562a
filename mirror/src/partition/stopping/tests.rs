//! Stops, step by step, from every state, and as another process finds them.

use super::*;
use crate::backoff::Backoff;
use crate::coordinator::{
    MirrorCoordinator, PartitionState, StateRequest, StateResponse, StateWrite, StopReport,
};
use crate::known::SourceKnown;
use crate::local_cluster::MirrorGeneration;
use crate::partition::truncating::Histories;
use crate::partition::{Aligned, Bound, RetryPolicy};
use crate::reasons::{REASONS, Reason};
use crate::source::metadata::SourceLeader;
use MirrorState::*;
use tarn_image::mirrors::Truncation;
use tarn_record::{BrokerId, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::messages::write_mirror_states_request::{MirrorStopReport, WriteMirrorStatePartition};

const POLICY: RetryPolicy =
    RetryPolicy { backoff: Backoff { initial_ms: 100, max_ms: 1000 }, attempts_max: 3 };
/// The version of the stop; what came before it was of version 1.
const STOP: i64 = 2;
/// What a stop does that finds nothing done.
const STEPS: [&str; 6] =
    ["CloseGate", "ReadState", "Flush", "WriteState(Stopping)", "EndLog", "WriteState(Stopped)"];

#[test]
fn what_is_fetched_leaves_its_lane_first() {
    let mut world = World::new();
    let mut partition = world.fetched();
    world.stop(&mut partition);
    assert_eq!(partition.state(), Stopping);
    assert_eq!(
        world.run(&mut partition),
        ["LeaveLane", "CloseGate", "Flush", "WriteState(Stopping)", "EndLog", "WriteState(Stopped)"]
    );
    world.assert_stopped(&partition);
}

#[test]
fn a_stop_comes_from_every_state() {
    let states = [LogAlignment, EpochFencing, UleRecovery, Mirroring, Pausing, Paused, Failed];
    for before in [None].into_iter().chain(states.map(Some)) {
        let mut world = World::unbegun();
        if !before.is_some_and(MirrorState::means_mirrored) {
            // The mirror has not brought anything then.
            world.mirrored_end = 0;
        }
        world.persist(before, 1);
        let mut partition = world.stopping();
        assert_eq!(world.run(&mut partition), STEPS, "{before:?}");
        world.assert_stopped(&partition);
    }
}

#[test]
fn what_came_since_an_earlier_stop_is_not_counted_as_mirrored_by_the_next() {
    for (state, done) in
        [LogAlignment, Failed].into_iter().flat_map(|state| (0..7).map(move |done| (state, done)))
    {
        let mut world = World::new();
        world.run_to_stopped();
        // The topic is begun again without consent, and its partition fails for what clients wrote.
        world.written_here = 7;
        world.persist(Some(LogAlignment), 3);
        world.persist(Some(state), 3);
        (world.bound.version, world.bound.leader_epoch) = (4, Epoch(51));
        let mut first = world.stopping();
        (0..done).for_each(|_| drop(world.step(&mut first)));
        let mut second = world.stopping();
        world.run(&mut second);
        assert_eq!(world.positions, [at(5, 100), at(5, 100)], "{state} {done}");
        world.assert_stopped(&second);
    }
}

#[test]
fn a_position_that_speaks_of_another_log_is_none() {
    let mut world = World::new();
    world.run_to_stopped();
    // Another mirror has filled the log anew, and this one begins again and is stopped before it is aligned.
    world.persist(Some(LogAlignment), 3);
    (world.bound.version, world.bound.leader_epoch) = (4, Epoch(51));
    let mut partition = world.stopping();
    (0..2).for_each(|_| drop(world.step(&mut partition)));
    partition.position_is_void();
    world.step(&mut partition);
    assert_eq!(partition.position(), Some(LastPosition::NOTHING));
    assert_eq!(partition.want(0), Want::WriteState(Stopping));
}

#[test]
fn a_log_of_which_nothing_was_mirrored_is_stopped_as_such() {
    for state in [None, Some(LogAlignment), Some(Failed)] {
        let mut world = World::unbegun();
        (world.mirrored_end, world.written_here) = (0, 30);
        world.persist(state, 1);
        let mut partition = world.stopping();
        assert_eq!(world.run(&mut partition), STEPS, "{state:?}");
        assert_eq!(world.positions, [LastPosition::NOTHING], "{state:?}");
        let report = world.reports().remove(0);
        assert_eq!((report.mirrored_offset, report.reset_offset), (Offset(0), Offset::NONE), "{state:?}");
        assert!(partition.has_stopped());
    }
}

#[test]
fn a_stop_comes_from_every_trouble_and_takes_none_of_it_over() {
    for reason in REASONS {
        for attempts in [1, 9] {
            let mut world = World::new();
            let mut partition = world.fetched();
            partition.left_lane();
            for _ in 0..attempts {
                partition.failed(*reason, "why".into(), 0, 0.5, &POLICY);
            }
            world.stop(&mut partition);
            let shown = (partition.state(), partition.trouble(), partition.retry_attempt());
            assert_eq!(shown, (Stopping, None, 0), "{reason}");
            assert_eq!(world.run(&mut partition)[..2], ["CloseGate", "Flush"], "{reason}");
            world.assert_stopped(&partition);
        }
    }
}

#[test]
fn a_failure_that_was_written_down_is_not_what_a_stop_waits_for() {
    let mut world = World::new();
    world.persist(Some(Failed), 1);
    let mut partition = world.stopping();
    world.step(&mut partition);
    world.step(&mut partition);
    assert_eq!((partition.state(), partition.trouble(), partition.retry_attempt()), (Stopping, None, 0));
}

#[test]
fn a_stop_does_not_wait_for_a_source_that_was_asked_and_may_never_answer() {
    for is_apart in [false, true] {
        let mut world = World::new();
        let mirroring = Bound { desired: DesiredState::Mirroring, version: 1, ..world.bound };
        let mut partition = Partition::new(mirroring);
        world.step(&mut partition);
        world.step(&mut partition);
        partition.source_seen(Some(leader(5)));
        if is_apart {
            partition.apart("it ends there before".into());
        }
        let asked = partition.want(0);
        let expected = if is_apart { Want::Search(leader(5)) } else { Want::Compare(leader(5)) };
        assert_eq!(asked, expected);
        partition.begin(asked);
        assert_eq!(partition.notice().is_some(), is_apart, "it says what it waits for");
        assert!(!partition.gives_up_step(), "the answer is wanted");
        world.stop(&mut partition);
        assert_eq!(partition.want(0), Want::Nothing, "it is busy");
        assert!(partition.gives_up_step());
        assert_eq!(partition.notice(), None);
        world.run(&mut partition);
        world.assert_stopped(&partition);
    }
    // What is under way here is waited for.
    let world = World::new();
    let mut partition = world.stopping();
    partition.begin(Want::CloseGate);
    assert!(!partition.gives_up_step());
}

#[test]
fn the_epoch_is_raised_above_the_logs_and_the_sources_before_the_log_is_ended() {
    // Ours, the newest in the log, the source's, and above which ours is raised.
    for (ours, in_log, at_source, above) in [
        (6, 5, None, None),
        (5, 5, None, Some(5)),
        (0, -1, None, None),
        (9, 5, Some(8), None),
        (9, 5, Some(9), Some(9)),
        (9, 5, Some(30), Some(30)),
        (9, 5, Some(i32::MAX), None),
    ] {
        let mut world = World::new();
        (world.bound.leader_epoch, world.log_epoch) = (Epoch(ours), in_log);
        let mut partition = world.stopping();
        partition.source_seen(at_source.map(leader));
        let steps = world.run(&mut partition);
        let raised = above.map(|above: i32| format!("RaiseEpoch(Epoch({above}))"));
        let before_end = &steps[4..steps.len() - 2];
        assert_eq!(before_end, raised.as_slice(), "{ours} {in_log} {at_source:?}");
        world.assert_stopped(&partition);
    }
}

#[test]
fn a_raised_epoch_that_the_metadata_do_not_show_is_said_and_asked_for_again() {
    let mut world = World::new();
    (world.bound.leader_epoch, world.log_epoch) = (Epoch(5), 5);
    let mut partition = world.stopping();
    (0..4).for_each(|_| drop(world.step(&mut partition)));
    assert_eq!(partition.want(0), Want::RaiseEpoch(Epoch(5)));
    partition.raise_asked(Epoch(5), 0);
    assert_eq!(partition.want(0), Want::Wait(limits::EPOCH_SHOWN_WITHIN_MS));
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::EpochBehind));
    assert_eq!(partition.want(limits::EPOCH_SHOWN_WITHIN_MS), Want::RaiseEpoch(Epoch(5)));
}

#[test]
fn another_process_goes_on_after_each_step_and_repeats_nothing_that_counts() {
    for epoch in [50, 5] {
        for done in 0..10 {
            let mut world = World::new();
            (world.bound.leader_epoch, world.log_epoch) = (Epoch(epoch), 5);
            let mut first = world.stopping();
            (0..done).for_each(|_| drop(world.step(&mut first)));
            let (positions, is_over) = (world.positions.clone(), first.has_stopped());
            let mut second = world.stopping();
            let steps = world.run(&mut second);
            world.assert_stopped(&second);
            assert!(positions.is_empty() || world.positions == positions, "it was written before");
            assert!(!is_over || steps == ["CloseGate", "ReadState"], "{steps:?}");
        }
    }
}

#[test]
fn a_lost_answer_to_any_step_changes_nothing() {
    for lost in 0..8 {
        let mut world = World::new();
        (world.bound.leader_epoch, world.log_epoch) = (Epoch(5), 5);
        let mut partition = world.stopping();
        (0..lost).for_each(|_| drop(world.step(&mut partition)));
        world.loses_answer = true;
        world.step(&mut partition);
        world.loses_answer = false;
        world.run(&mut partition);
        world.assert_stopped(&partition);
    }
}

#[test]
fn what_fails_here_is_said_and_tried_again_without_end() {
    let of_this_cluster = [
        Reason::DestinationStorage,
        Reason::DestinationUnderMinIsr,
        Reason::DestinationNoLeader,
        Reason::CoordinatorUnavailable,
        Reason::ControllerUnavailable,
    ];
    for done in 0..6 {
        let mut world = World::new();
        let mut partition = world.stopping();
        (0..done).for_each(|_| drop(world.step(&mut partition)));
        let next = partition.want(world.now_ms);
        for reason in REASONS {
            for _ in 0..100 {
                partition.failed(*reason, "why".into(), world.now_ms, 0.5, &POLICY);
                assert_eq!((partition.state(), partition.retry_attempt()), (Stopping, 0), "{reason}");
            }
            let said = of_this_cluster.contains(reason).then_some(*reason);
            assert_eq!(partition.trouble().map(|(reason, _)| reason), said);
            match partition.want(world.now_ms) {
                Want::Wait(until_ms) => {
                    assert!(said.is_some() && until_ms <= world.now_ms + 2_400);
                    world.now_ms = until_ms;
                }
                other => assert!(said.is_none() && other == next, "{other:?}"),
            }
            assert_eq!(partition.want(world.now_ms), next, "{reason}");
            partition.went_well();
        }
        world.run(&mut partition);
        world.assert_stopped(&partition);
    }
}

#[test]
fn stopped_counts_for_a_new_stop_where_no_alignment_has_begun_since() {
    let mut world = World::new();
    world.run_to_stopped();
    let before = (world.positions.clone(), world.reports());
    world.bound.version = 7;
    let mut partition = world.stopping();
    assert_eq!(partition.state(), Stopping);
    assert_eq!(world.run(&mut partition), ["CloseGate", "ReadState", "WriteState(Stopped)"]);
    assert!(partition.has_stopped());
    assert_eq!((world.positions.clone(), world.reports()), before, "they are of the stop that there was");
    // Once alignment has begun it is another stop, with a report of its own.
    world.persist(Some(LogAlignment), 8);
    world.bound.version = 9;
    let mut partition = world.stopping();
    assert_eq!(world.run(&mut partition), STEPS);
    assert_eq!(world.positions, [at(5, 100), at(5, 100)]);
    assert_eq!(world.reports()[0].version, 9);
}

#[test]
fn a_log_that_has_lost_what_the_position_claims_lowers_it() {
    let mut world = World::new();
    let mut partition = world.stopping();
    (0..4).for_each(|_| drop(world.step(&mut partition)));
    assert_eq!(world.positions, [at(5, 100)]);
    (world.mirrored_end, world.log_epoch) = (80, 4);
    let mut partition = world.stopping();
    assert_eq!(world.run(&mut partition), STEPS);
    assert_eq!(world.positions, [at(5, 100), at(4, 80)]);
    assert_eq!(world.reports()[0].mirrored_offset, Offset(80));
    world.assert_stopped(&partition);
}

#[test]
fn an_ending_that_is_refused_looks_at_gate_and_log_again() {
    let mut world = World::new();
    let mut partition = world.stopping();
    (0..4).for_each(|_| drop(world.step(&mut partition)));
    assert_eq!(partition.want(0), Want::EndLog);
    let known = SourceKnown { high_watermark: Offset(120), answered_at_ms: 7, lag_ms: 3 };
    partition.stopping_written(at(5, 100), Some(known), partition.state_epoch(), partition.bound().version);
    partition.end_refused();
    assert_eq!(partition.known_at_stop(), Some(known), "it belongs to the position, which stays");
    partition.failed(Reason::DestinationNoLeader, "the log ends below the position".into(), 0, 0.5, &POLICY);
    (world.mirrored_end, world.log_epoch) = (80, 4);
    assert_eq!(
        world.run(&mut partition),
        ["CloseGate", "Flush", "WriteState(Stopping)", "EndLog", "WriteState(Stopped)"]
    );
    assert_eq!(world.positions, [at(5, 100), at(4, 80)]);
    world.assert_stopped(&partition);
}

#[test]
fn a_partition_that_may_have_been_led_elsewhere_is_flushed_again() {
    let mut world = World::new();
    let mut partition = world.stopping();
    (0..4).for_each(|_| drop(world.step(&mut partition)));
    assert_eq!(partition.want(0), Want::EndLog);
    world.bound.leader_epoch = Epoch(60);
    partition.rebound(world.bound);
    assert_eq!(partition.want(0), Want::Flush);
    world.run(&mut partition);
    world.assert_stopped(&partition);
}

#[test]
fn a_raised_epoch_that_the_metadata_show_before_the_answer_costs_no_second_flush() {
    let mut world = World::new();
    (world.bound.leader_epoch, world.log_epoch) = (Epoch(5), 5);
    let mut partition = world.stopping();
    (0..4).for_each(|_| drop(world.step(&mut partition)));
    let above = Epoch(5);
    assert_eq!(partition.want(0), Want::RaiseEpoch(above));
    partition.begin(Want::RaiseEpoch(above));
    world.bound.leader_epoch = Epoch(6);
    partition.rebound(world.bound);
    partition.end();
    partition.raise_asked(above, 0);
    assert_eq!(world.run(&mut partition), ["EndLog", "WriteState(Stopped)"]);
    world.assert_stopped(&partition);
}

#[test]
fn an_answer_of_before_is_not_taken_for_one_of_this_stop() {
    let mut world = World::new();
    let mut partition = world.stopping();
    (0..2).for_each(|_| drop(world.step(&mut partition)));
    assert_eq!(partition.want(0), Want::Flush);
    partition.begin(Want::Flush);
    world.bound.version = 3;
    partition.rebound(world.bound);
    partition.end();
    partition.flushed(&world.ends());
    assert_eq!((partition.want(0), partition.position()), (Want::CloseGate, None));
}

#[test]
fn a_stop_that_another_version_has_begun_keeps_its_position() {
    let mut world = World::new();
    let mut partition = world.stopping();
    (0..5).for_each(|_| drop(world.step(&mut partition)));
    assert_eq!(world.resets, 1, "the log is ended");
    world.bound.version = 7;
    let mut partition = world.stopping();
    assert_eq!(world.run(&mut partition), STEPS);
    assert_eq!(world.positions, [at(5, 100), at(5, 100)]);
    world.assert_stopped(&partition);
}

/// What outlives a process: the metadata, the coordinator, the log. One open transaction is in the log.
struct World {
    bound: Bound,
    coordinator: MirrorCoordinator,
    mirrored_end: i64,
    log_epoch: i32,
    /// What clients wrote behind the ending, or where there is none.
    written_here: i64,
    gate_is_open: bool,
    reset: Option<i64>,
    resets: usize,
    /// Every position that was written.
    positions: Vec<LastPosition>,
    /// The next step is done and its answer lost.
    loses_answer: bool,
    now_ms: u64,
}

impl World {
    /// A log with 100 records, the newest of epoch 5, led in epoch 50, which its mirror has brought; its topic is to
    /// be stopped.
    fn new() -> World {
        let mut world = World::unbegun();
        world.persist(Some(Mirroring), 1);
        world
    }

    /// The same, of which the coordinator has nothing.
    fn unbegun() -> World {
        World {
            bound: Bound {
                desired: DesiredState::Stopping,
                version: STOP,
                leader_epoch: Epoch(50),
                truncation: Truncation::Refused,
            },
            coordinator: MirrorCoordinator::default(),
            mirrored_end: 100,
            log_epoch: 5,
            written_here: 0,
            gate_is_open: true,
            reset: None,
            resets: 0,
            positions: Vec::new(),
            loses_answer: false,
            now_ms: 0,
        }
    }

    /// The partition as a process finds it that begins now.
    fn stopping(&self) -> Partition {
        Partition::new(self.bound)
    }

    /// A partition that is being fetched.
    fn fetched(&mut self) -> Partition {
        self.persist(Some(Mirroring), 1);
        let bound = Bound { desired: DesiredState::Mirroring, version: 1, ..self.bound };
        let mut partition = Partition::new(bound);
        partition.gate_closed();
        partition.state_read(self.persisted());
        partition.source_seen(Some(leader(5)));
        let aligned = Aligned { from: Offset(100), last_epoch: Epoch(5), compacted: false };
        partition.histories = Histories::Same(aligned);
        partition.gate_opened(MirrorGeneration(1));
        partition.joined_lane();
        partition
    }

    fn stop(&self, partition: &mut Partition) {
        partition.rebound(self.bound);
    }

    fn run_to_stopped(&mut self) {
        let mut partition = self.stopping();
        self.run(&mut partition);
        self.assert_stopped(&partition);
    }

    /// Does what the partition wants until it wants nothing more, and names the steps.
    fn run(&mut self, partition: &mut Partition) -> Vec<String> {
        let mut steps = Vec::new();
        for _ in 0..100 {
            let Some(step) = self.step(partition) else { return steps };
            steps.extend((!step.starts_with("Wait")).then_some(step));
        }
        panic!("it has no end: {steps:?}")
    }

    /// Does the next step and names it.
    fn step(&mut self, partition: &mut Partition) -> Option<String> {
        let want = partition.want(self.now_ms);
        let lost = |partition: &mut Partition, now_ms| {
            partition.failed(Reason::CoordinatorUnavailable, "lost".into(), now_ms, 0.5, &POLICY);
        };
        match want {
            Want::Nothing => return None,
            Want::Wait(until_ms) => self.now_ms = until_ms,
            Want::LeaveLane => partition.left_lane(),
            Want::CloseGate => {
                self.gate_is_open = false;
                if self.loses_answer { lost(partition, self.now_ms) } else { partition.gate_closed() }
            }
            Want::ReadState if self.loses_answer => lost(partition, self.now_ms),
            Want::ReadState => partition.state_read(self.persisted()),
            Want::Flush if self.loses_answer => lost(partition, self.now_ms),
            Want::Flush => partition.flushed(&self.ends()),
            Want::WriteState(state) => {
                let written = self.write(partition, state);
                match written {
                    _ if self.loses_answer => lost(partition, self.now_ms),
                    None => partition.state_unknown(),
                    Some(state_epoch) if state == Stopping => {
                        let position = partition.position().expect("it is written");
                        partition.stopping_written(position, None, state_epoch, self.bound.version);
                    }
                    Some(state_epoch) => partition.state_written(state, state_epoch, self.bound.version),
                }
            }
            Want::RaiseEpoch(above) => {
                self.bound.leader_epoch = self.bound.leader_epoch.max(Epoch(above.0 + 1));
                if self.loses_answer {
                    lost(partition, self.now_ms)
                } else {
                    partition.raise_asked(above, self.now_ms)
                }
                partition.rebound(self.bound);
            }
            Want::EndLog => {
                let ended = self.end_log(partition);
                if self.loses_answer { lost(partition, self.now_ms) } else { partition.log_ended(ended) }
            }
            Want::SourceMetadata
            | Want::Compare(_)
            | Want::Search(_)
            | Want::Truncate(_)
            | Want::OpenGate
            | Want::Fetch(..) => {
                panic!("a stop wants nothing of the kind: {want:?}")
            }
        }
        Some(format!("{want:?}"))
    }

    /// What the owning core checks before it ends a log, and does once.
    fn end_log(&mut self, partition: &Partition) -> LogEnded {
        let (position, known) = (partition.position().expect("it was written"), self.known());
        let written = known.position.expect("it was written before");
        assert_eq!((known.state, written.offset), (Some(Stopping), position.offset));
        assert!(!self.gate_is_open && self.bound.leader_epoch > position.epoch);
        assert_eq!(position.offset.0, self.mirrored_end, "nothing is between");
        if position == LastPosition::NOTHING && self.reset.is_none() && self.written_here > 0 {
            let (reset_offset, aborted) = (Offset::NONE, Vec::new());
            return LogEnded { reset_offset, aborted_count: 0, aborted, log_end: self.ends().log_end };
        }
        let reset = *self.reset.get_or_insert_with(|| {
            self.resets += 1;
            self.log_epoch = self.bound.leader_epoch.0;
            self.mirrored_end + 1
        });
        LogEnded {
            reset_offset: Offset(reset),
            aborted_count: 1,
            aborted: Vec::new(),
            log_end: self.ends().log_end,
        }
    }

    fn ends(&self) -> LogEnds {
        let ended = self.reset.map_or(self.mirrored_end, |reset| reset + 1);
        let log_end = Offset(ended + self.written_here);
        LogEnds {
            log_start: Offset(0),
            log_end,
            high_watermark: log_end,
            latest_epoch: Epoch(self.log_epoch),
            leader_epoch: self.bound.leader_epoch,
            compacted: false,
        }
    }

    /// The coordinator writes a state that some process has brought about.
    fn persist(&mut self, state: Option<MirrorState>, version: i64) {
        let Some(state) = state else { return };
        let write = WriteMirrorStatePartition {
            state: state.to_byte(),
            state_version: version,
            reason_code: Some(Reason::CorruptBatch.code().into()),
            ..WriteMirrorStatePartition::default()
        };
        self.ask(write).expect("it is taken");
    }

    /// Has the coordinator write for a partition; `None` where somebody has written since it read.
    fn write(&mut self, partition: &Partition, state: MirrorState) -> Option<i32> {
        let position = partition.position();
        let write = WriteMirrorStatePartition {
            state: state.to_byte(),
            leader_epoch: self.bound.leader_epoch.0,
            state_epoch: partition.state_epoch(),
            state_version: self.bound.version,
            ..WriteMirrorStatePartition::default()
        };
        let write = match (state, position, partition.ended()) {
            (Stopping, Some(position), _) => WriteMirrorStatePartition {
                last_mirror_epoch: position.epoch.0,
                last_mirror_offset: position.offset.0,
                ..write
            },
            (Stopped, Some(position), Some(ended)) => WriteMirrorStatePartition {
                report: Some(MirrorStopReport {
                    mirrored_offset: position.offset.0,
                    reset_offset: ended.reset_offset.0,
                    ..MirrorStopReport::default()
                }),
                ..write
            },
            _ => write,
        };
        let state_epoch = self.ask(write)?;
        self.positions.extend(position.filter(|_| state == Stopping));
        Some(state_epoch)
    }

    fn ask(&mut self, state: WriteMirrorStatePartition) -> Option<i32> {
        let write = StateWrite { topic: "t".into(), state };
        match self.coordinator.handle(StateRequest::Write("m".into(), vec![(place(), write)])).0 {
            StateResponse::Written(mut results) => results.remove(0).1.ok(),
            other => panic!("a write is answered as one, not {other:?}"),
        }
    }

    fn known(&mut self) -> PartitionState {
        match self.coordinator.handle(StateRequest::Read("m".into(), vec![place()])).0 {
            StateResponse::Read(mut states) => states.remove(0).1.unwrap_or_default(),
            other => panic!("a question is answered as one, not {other:?}"),
        }
    }

    fn persisted(&mut self) -> Persisted {
        let known = self.known();
        let position = known.position;
        Persisted {
            state: known.state,
            state_epoch: known.state_epoch,
            version: known.state_version,
            reason: known.reason_code.and_then(|code| Reason::from_code(&code)),
            message: None,
            previous: known.previous_state,
            position: position
                .map(|position| LastPosition { epoch: position.epoch, offset: position.offset }),
        }
    }

    fn reports(&mut self) -> Vec<StopReport> {
        match self.coordinator.handle(StateRequest::Reports("m".into())).0 {
            StateResponse::Reports(reports) => reports.into_iter().map(|(_, report)| report).collect(),
            other => panic!("reports are answered as such, not {other:?}"),
        }
    }

    /// The log was ended once, behind the position that was written; all of it is known.
    fn assert_stopped(&mut self, partition: &Partition) {
        assert_eq!((partition.state(), partition.trouble()), (Stopped, None));
        assert!(partition.has_stopped() && partition.is_closed());
        let known = self.known();
        assert_eq!((known.state, known.state_version), (Some(Stopped), self.bound.version));
        let position = known.position.expect("it was written");
        let mirrored_end = Offset(self.mirrored_end);
        assert_eq!((self.resets, self.reset), (1, Some(self.mirrored_end + 1)));
        assert_eq!((position.offset, position.version), (mirrored_end, self.bound.version));
        let report = self.reports().remove(0);
        assert_eq!((report.version, report.mirrored_offset), (self.bound.version, mirrored_end));
        assert_eq!(report.reset_offset, mirrored_end.plus(1));
    }
}

fn leader(epoch: i32) -> SourceLeader {
    SourceLeader { broker: BrokerId(1), epoch: Epoch(epoch) }
}

fn at(epoch: i32, offset: i64) -> LastPosition {
    LastPosition { epoch: Epoch(epoch), offset: Offset(offset) }
}

fn place() -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) }
}
