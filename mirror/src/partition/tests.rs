//! Lives of partitions, step by step.

use super::*;
use crate::alignment::GoOn;
use crate::backoff::Backoff;
use crate::common_point::CommonPoint;
use crate::divergence::{Alignment, Divergence};
use crate::local_cluster::{Export, LogEnded, LogEnds, LogTruncated, Suffix};
use crate::truncation::Ground;
use proptest::prelude::*;

pub(super) const POLICY: RetryPolicy =
    RetryPolicy { backoff: Backoff { initial_ms: 100, max_ms: 1000 }, attempts_max: 3 };

#[test]
fn a_new_partition_goes_through_alignment_to_fetching_and_persists_twice() {
    let mut partition = Partition::new(bound());
    let mut written = Vec::new();
    let steps = run(&mut partition, &mut written);
    assert_eq!(
        steps,
        [
            "CloseGate",
            "ReadState",
            "WriteState",
            "SourceMetadata",
            "Compare",
            "RaiseEpoch",
            "Wait",
            "WriteState",
            "OpenGate",
            "Fetch"
        ]
    );
    assert_eq!(written, [MirrorState::LogAlignment, MirrorState::Mirroring]);
    assert_eq!(partition.state(), MirrorState::Mirroring);
    assert_eq!(partition.want(0), Want::Nothing);
}

#[test]
fn nothing_is_asked_before_the_owning_core_lets_no_client_write() {
    let mut partition = Partition::new(bound());
    assert_eq!(partition.want(0), Want::CloseGate);
    partition.failed(Reason::DestinationNoLeader, "not yet".into(), 0, 0.5, &POLICY);
    assert!(matches!(partition.want(0), Want::Wait(_)));
    assert_eq!(partition.state(), MirrorState::LogAlignment, "that is no failure");
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::ReadState);
    partition.state_read(persisted(MirrorState::Stopped));
    partition.rebound(Bound { version: 2, ..bound() });
    assert_eq!(partition.want(0), Want::CloseGate, "a binding that is new may have let them write until now");
}

#[test]
fn a_restart_compares_histories_again_and_writes_nothing() {
    let mut partition = partition();
    partition.state_read(persisted(MirrorState::Mirroring));
    assert_eq!(partition.state(), MirrorState::LogAlignment, "it is not fetched yet");
    partition.rebound(Bound { leader_epoch: Epoch(99), ..partition.bound() });
    let mut written = Vec::new();
    assert_eq!(run(&mut partition, &mut written), ["SourceMetadata", "Compare", "OpenGate", "Fetch"]);
    assert_eq!(written, []);
}

#[test]
fn waiting_for_the_source_or_the_coordinator_never_shows_failed() {
    let mut partition = partition();
    for _ in 0..100 {
        partition.failed(Reason::CoordinatorUnavailable, "loading".into(), 0, 0.5, &POLICY);
        assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::LogAlignment, 0));
    }
    assert!(matches!(partition.want(0), Want::Wait(until) if until <= 2400));
    partition.state_read(persisted(MirrorState::Mirroring));
    partition.failed(Reason::SourceUnreachable, "gone".into(), 0, 0.5, &POLICY);
    assert_eq!(partition.state(), MirrorState::LogAlignment);
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::SourceUnreachable));
}

#[test]
fn a_failure_is_tried_again_until_its_attempts_are_used_up_and_is_then_persisted() {
    let mut partition = fetched();
    let mut now = 1000;
    for (attempt, wait) in [(1, 100), (2, 200), (3, 400)] {
        partition.left_lane();
        partition.gate_closed();
        partition.failed(Reason::SourceError, "odd".into(), now, 0.5, &POLICY);
        assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::Failed, attempt));
        assert_eq!(partition.want(now), Want::Wait(now + wait));
        now += wait;
        // Being fetched again alone proves nothing.
        run_at(&mut partition, &mut Vec::new(), now);
        assert!(partition.is_in_lane());
        assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::Failed, attempt));
        assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::SourceError));
    }
    partition.left_lane();
    partition.gate_closed();
    partition.failed(Reason::SourceError, "odd".into(), 1000, 0.5, &POLICY);
    assert_eq!(
        (partition.want(1000), partition.retry_attempt()),
        (Want::WriteState(MirrorState::Failed), -1)
    );
    partition.failed(Reason::CoordinatorUnavailable, "loading".into(), 1000, 0.5, &POLICY);
    assert!(matches!(partition.want(1000), Want::Wait(_)));
    assert_eq!(
        (partition.want(9000), partition.retry_attempt()),
        (Want::WriteState(MirrorState::Failed), -1)
    );
    partition.state_written(MirrorState::Failed, 9, 1);
    assert_eq!(partition.want(u64::MAX), Want::Nothing);
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::SourceError));
}

#[test]
fn a_full_disk_is_never_given_up() {
    let mut partition = fetched();
    let mut now = 1000;
    for attempt in 1..100 {
        partition.left_lane();
        partition.gate_closed();
        partition.failed(Reason::DestinationStorage, "disk".into(), now, 0.5, &POLICY);
        assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::Failed, attempt));
        let Want::Wait(until) = partition.want(now) else { panic!("{:?}", partition.want(now)) };
        now = until;
        run_at(&mut partition, &mut Vec::new(), now);
    }
    partition.left_lane();
    partition.gate_closed();
    partition.failed(Reason::SourceError, "odd".into(), now, 0.5, &POLICY);
    assert_eq!(partition.retry_attempt(), 100, "nor has it used up what other failures have");
    run_at(&mut partition, &mut Vec::new(), now + 1_000_000);
    partition.goes_on();
    assert_eq!((partition.state(), partition.trouble()), (MirrorState::Mirroring, None));
}

#[test]
fn waits_grow_until_something_is_appended_although_it_is_fetched_in_between() {
    let mut partition = fetched();
    let mut now = 1000;
    for wait in [20, 40, 80, 160] {
        partition.left_lane();
        partition.gate_closed();
        partition.failed(Reason::DestinationNoLeader, "closed".into(), now, 0.5, &POLICY);
        assert_eq!(partition.want(now), Want::Wait(now + wait));
        now += wait;
        run_at(&mut partition, &mut Vec::new(), now);
        assert!(partition.is_in_lane());
    }
    partition.goes_on();
    partition.left_lane();
    partition.gate_closed();
    partition.failed(Reason::DestinationNoLeader, "closed".into(), now, 0.5, &POLICY);
    assert_eq!(partition.want(now), Want::Wait(now + 20));
}

#[test]
fn who_left_a_lane_through_a_fault_is_not_said_to_mirror_before_something_is_appended() {
    let mut partition = fetched();
    let mut now = 1000;
    for _ in 0..3 {
        partition.left_lane();
        partition.doubt();
        partition.failed(Reason::DestinationNoLeader, "closed".into(), now, 0.5, &POLICY);
        now += 1000;
        run_at(&mut partition, &mut Vec::new(), now);
        assert!(partition.is_in_lane());
        assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::LogAlignment, 0));
    }
    partition.goes_on();
    assert_eq!(partition.state(), MirrorState::Mirroring);
    // Its link was away, which is no fault of the partition.
    partition.left_lane();
    run_at(&mut partition, &mut Vec::new(), now);
    assert_eq!(partition.state(), MirrorState::Mirroring);
}

#[test]
fn a_failure_is_not_over_because_the_next_step_had_to_wait_and_went_well() {
    let mut partition = fetched();
    partition.left_lane();
    partition.failed(Reason::DestinationStorage, "disk".into(), 0, 0.5, &POLICY);
    partition.gate_closed();
    partition.failed(Reason::SourceUnreachable, "gone".into(), 1000, 0.5, &POLICY);
    assert_eq!(partition.state(), MirrorState::Failed);
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::SourceUnreachable));
    run_at(&mut partition, &mut Vec::new(), 2000);
    assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::Failed, 1));
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::DestinationStorage));
    partition.goes_on();
    assert_eq!((partition.state(), partition.trouble()), (MirrorState::Mirroring, None));
}

#[test]
fn only_what_would_go_on_waits_for_the_source() {
    let mut partition = fetched();
    assert!(!partition.waits_for_source());
    partition.source_lost();
    partition.left_lane();
    assert!(partition.waits_for_source());
    partition.failed(Reason::SourceClusterChanged, "it is north".into(), 0, 0.5, &POLICY);
    assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::LogAlignment, 0));
    partition.rebound(Bound { desired: DesiredState::Paused, version: 2, ..partition.bound() });
    assert!(!partition.waits_for_source());
    partition.rebound(Bound { desired: DesiredState::Mirroring, version: 3, ..partition.bound() });
    partition.failed(Reason::CorruptBatch, "damaged".into(), 0, 0.5, &POLICY);
    assert!(!partition.waits_for_source());
}

#[test]
fn what_is_appended_forgets_failed_attempts() {
    let mut partition = fetched();
    partition.left_lane();
    partition.failed(Reason::DestinationStorage, "disk".into(), 0, 0.5, &POLICY);
    partition.gate_closed();
    partition.compared(&go_on(), None);
    partition.joined_lane();
    partition.goes_on();
    assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::Mirroring, 0));
}

#[test]
fn a_failed_partition_waits_for_a_new_version_of_the_binding() {
    let mut partition = partition();
    partition.state_read(Persisted { reason: Some(Reason::CorruptBatch), ..persisted(MirrorState::Failed) });
    assert_eq!((partition.want(0), partition.state()), (Want::Nothing, MirrorState::Failed));
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::CorruptBatch));
    partition.rebound(Bound { version: 2, ..partition.bound() });
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::WriteState(MirrorState::LogAlignment));
    assert_eq!(partition.state(), MirrorState::LogAlignment);
}

#[test]
fn a_new_leader_at_the_source_takes_the_partition_out_of_its_lane_and_compares_again() {
    let mut partition = fetched();
    partition.source_seen(Some(leader(2, 6)));
    assert_eq!(partition.want(0), Want::LeaveLane);
    partition.left_lane();
    assert_eq!(partition.want(0), Want::CloseGate);
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::Compare(leader(2, 6)));
}

#[test]
fn old_news_of_the_source_change_nothing() {
    let mut partition = fetched();
    partition.source_seen(Some(leader(9, 4)));
    partition.source_seen(None);
    partition.source_seen(Some(SourceLeader { broker: BrokerId::NONE, epoch: Epoch(7) }));
    assert_eq!((partition.want(0), partition.source()), (Want::Nothing, Some(leader(1, 5))));
}

#[test]
fn a_log_that_has_diverged_fails_for_good() {
    let mut partition = partition();
    partition.state_read(persisted(MirrorState::Mirroring));
    partition.source_seen(Some(leader(1, 5)));
    partition.compared(&diverged(), None);
    assert_eq!(
        (partition.want(0), partition.state()),
        (Want::WriteState(MirrorState::Failed), MirrorState::Failed)
    );
}

#[test]
fn a_source_that_says_twice_that_histories_have_parted_is_wrong_where_nothing_is_found() {
    let mut partition = fetched();
    assert!(!partition.said_diverged(), "comparing them comes first");
    assert!(partition.said_diverged());
    partition.goes_on();
    assert!(!partition.said_diverged(), "what was appended since has ended it");
}

#[test]
fn a_pause_or_a_stop_that_has_begun_ends_before_it_is_mirrored_again() {
    let paused = Want::WriteState(MirrorState::Paused);
    for (state, want) in [(MirrorState::Pausing, paused), (MirrorState::Stopping, Want::Nothing)] {
        let mut partition = partition();
        partition.state_read(persisted(state));
        partition.source_seen(Some(leader(1, 5)));
        partition.compared(&go_on(), None);
        partition.rebound(Bound { leader_epoch: Epoch(99), ..partition.bound() });
        assert_eq!((partition.want(0), partition.state()), (want, state));
        partition.compared(&diverged(), None);
        assert_eq!(partition.want(0), Want::WriteState(MirrorState::Failed));
    }
}

#[test]
fn a_log_that_its_mirror_has_not_filled_is_nobodys_until_mirroring_is_written() {
    let mut partition = partition();
    assert_eq!(partition.content(), Content::Local);
    for (state, previous, content) in [
        (None, None, Content::Local),
        (Some(MirrorState::LogAlignment), None, Content::Local),
        (Some(MirrorState::Mirroring), None, Content::Mirrored),
        (Some(MirrorState::Paused), None, Content::Mirrored),
        (Some(MirrorState::Stopping), None, Content::Local),
        (Some(MirrorState::Stopped), None, Content::Local),
        (Some(MirrorState::Failed), Some(MirrorState::Mirroring), Content::Mirrored),
        (Some(MirrorState::Failed), Some(MirrorState::LogAlignment), Content::Local),
        (Some(MirrorState::Failed), None, Content::Local),
    ] {
        partition.state_read(Persisted { state, previous, version: 1, ..Persisted::default() });
        assert_eq!(partition.content(), content, "{state:?} after {previous:?}");
    }
}

#[test]
fn local_records_fail_for_good_and_a_new_version_aligns_again() {
    let mut partition = partition();
    partition.state_read(persisted(MirrorState::LogAlignment));
    partition.source_seen(Some(leader(1, 5)));
    partition.compared(&Alignment::LocalRecords(divergence(5)), Some(100));
    assert_eq!(partition.want(0), Want::WriteState(MirrorState::Failed));
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::LocalRecords));
    partition.state_written(MirrorState::Failed, 4, 1);
    assert_eq!(partition.want(u64::MAX), Want::Nothing);
    partition.rebound(Bound { version: 2, ..partition.bound() });
    partition.gate_closed();
    assert_eq!(partition.want(0), Want::WriteState(MirrorState::LogAlignment));
}

#[test]
fn what_was_mirrored_before_it_failed_goes_on_where_it_was() {
    let mut partition = fetched();
    partition.left_lane();
    partition.gate_closed();
    partition.compared(&diverged(), None);
    partition.state_written(MirrorState::Failed, 4, 1);
    partition.rebound(Bound { version: 2, ..partition.bound() });
    let mut written = Vec::new();
    assert_eq!(
        run(&mut partition, &mut written),
        ["CloseGate", "Compare", "WriteState", "OpenGate", "Fetch"]
    );
    assert_eq!(written, [MirrorState::Mirroring]);
}

#[test]
fn what_is_missing_is_said_beside_the_state_until_the_binding_is_another() {
    let mut partition = fetched();
    assert_eq!(partition.notice(), None);
    assert_eq!(partition.missed(Gap { first: Offset(5), next: Offset(9) }), 4);
    assert_eq!((partition.state(), partition.trouble()), (MirrorState::Mirroring, None));
    assert_eq!(partition.notice().map(|(reason, _)| reason), Some(Reason::SourceGap));
    partition.goes_on();
    assert!(partition.notice().is_some());
    partition.rebound(Bound { version: 2, ..partition.bound() });
    assert_eq!(partition.notice(), None);
}

#[test]
fn a_batch_of_a_higher_epoch_raises_ours_before_it_is_fetched_again() {
    let mut partition = fetched();
    partition.left_lane();
    partition.fell_behind(Epoch(200));
    partition.gate_closed();
    partition.compared(&go_on(), None);
    assert_eq!(partition.want(0), Want::RaiseEpoch(Epoch(210)));
    partition.raise_asked(Epoch(210), 0);
    assert_eq!((partition.want(0), partition.state()), (Want::Wait(5000), MirrorState::EpochFencing));
    assert_eq!(partition.want(5000), Want::RaiseEpoch(Epoch(210)), "it is asked again");
    partition.rebound(Bound { leader_epoch: Epoch(211), ..partition.bound() });
    assert_eq!(partition.want(0), Want::OpenGate);
}

#[test]
fn a_near_epoch_is_raised_while_fetching_goes_on() {
    let mut partition = fetched();
    partition.rebound(Bound { leader_epoch: Epoch(7), ..partition.bound() });
    assert_eq!(partition.want(0), Want::RaiseEpoch(Epoch(15)));
    assert_eq!(partition.state(), MirrorState::Mirroring);
    partition.rebound(Bound { leader_epoch: Epoch(8), ..partition.bound() });
    assert_eq!(partition.want(0), Want::Nothing);
}

#[test]
fn a_pause_leaves_the_lane_closes_the_gate_and_is_written_down() {
    let mut partition = fetched();
    partition.rebound(Bound { desired: DesiredState::Paused, version: 2, ..partition.bound() });
    assert_eq!(partition.state(), MirrorState::Pausing);
    let mut written = Vec::new();
    assert_eq!(run(&mut partition, &mut written), ["LeaveLane", "CloseGate", "WriteState", "WriteState"]);
    assert_eq!(written, [MirrorState::Pausing, MirrorState::Paused]);
    assert_eq!((partition.want(0), partition.state()), (Want::Nothing, MirrorState::Paused));
}

#[test]
fn a_pause_keeps_every_state_but_mirroring_and_shows_that_nothing_is_done() {
    for state in
        [None, Some(MirrorState::LogAlignment), Some(MirrorState::Stopped), Some(MirrorState::Failed)]
    {
        let mut partition = partition();
        partition.rebound(Bound { desired: DesiredState::Paused, version: 2, ..partition.bound() });
        partition.gate_closed();
        let reason = Some(Reason::CorruptBatch);
        partition.state_read(Persisted { state, reason, version: 1, ..Persisted::default() });
        assert_eq!(partition.want(u64::MAX), Want::Nothing, "{state:?}");
        let is_failed = state == Some(MirrorState::Failed);
        let shown = if is_failed { MirrorState::Failed } else { MirrorState::Paused };
        assert_eq!(partition.state(), shown, "{state:?}");
        let said = partition.trouble().map(|(_, said)| said);
        assert_eq!(said.is_some_and(|said| said.contains("resume it first")), is_failed);
        // What it waits for once it is resumed is the source, not an operator.
        partition.rebound(Bound { desired: DesiredState::Mirroring, version: 3, ..partition.bound() });
        assert_ne!(partition.state(), MirrorState::Paused);
    }
}

#[test]
fn a_paused_partition_is_not_failed_by_its_source_and_waits_for_its_own_cluster() {
    let mut partition = fetched();
    partition.rebound(Bound { desired: DesiredState::Paused, version: 2, ..partition.bound() });
    partition.left_lane();
    for reason in [Reason::SourceTopicRecreated, Reason::SourceUnreachable, Reason::CorruptBatch] {
        partition.failed(reason, "odd".into(), 0, 0.5, &POLICY);
        assert_eq!((partition.want(0), partition.trouble()), (Want::CloseGate, None), "{reason}");
    }
    partition.gate_closed();
    for _ in 0..100 {
        partition.failed(Reason::CoordinatorUnavailable, "loading".into(), 0, 0.5, &POLICY);
        assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::Pausing, 0));
    }
    assert_eq!(partition.trouble().map(|(reason, _)| reason), Some(Reason::CoordinatorUnavailable));
    run_at(&mut partition, &mut Vec::new(), 10_000);
    assert_eq!((partition.state(), partition.trouble()), (MirrorState::Paused, None));
}

#[test]
fn a_resumed_partition_compares_histories_before_its_gate_opens() {
    for state in [MirrorState::Paused, MirrorState::Pausing] {
        let mut partition = partition();
        partition.rebound(Bound { version: 3, leader_epoch: Epoch(99), ..partition.bound() });
        partition.gate_closed();
        partition.state_read(persisted(state));
        let mut written = Vec::new();
        let steps = run(&mut partition, &mut written);
        assert_eq!(steps[steps.len() - 4..], ["Compare", "WriteState", "OpenGate", "Fetch"]);
        let paused_first = [MirrorState::Paused, MirrorState::Mirroring];
        assert_eq!(written, paused_first[usize::from(state == MirrorState::Paused)..]);
        assert_eq!(partition.state(), MirrorState::Mirroring);
    }
}

#[test]
fn what_is_fetched_compares_histories_again_when_its_topic_is_recovered() {
    let mut partition = fetched();
    partition.rebound(Bound { version: 2, ..partition.bound() });
    let mut written = Vec::new();
    assert_eq!(run(&mut partition, &mut written), ["LeaveLane", "CloseGate", "Compare", "OpenGate", "Fetch"]);
    assert_eq!(written, []);
}

#[test]
fn an_order_to_the_gate_that_a_stop_overtakes_leaves_it_to_be_closed() {
    for step in ["OpenGate", "CloseGate"] {
        let mut partition = Partition::new(Bound { leader_epoch: Epoch(99), ..bound() });
        let mut want = partition.want(0);
        for _ in 0..10 {
            if format!("{want:?}") == step {
                break;
            }
            do_step(&mut partition, want, 0);
            want = partition.want(0);
        }
        assert_eq!(format!("{want:?}"), step);
        partition.begin(want);
        partition.rebound(Bound { desired: DesiredState::Stopping, version: 2, ..partition.bound() });
        partition.end();
        do_step(&mut partition, want, 0);
        let steps = run(&mut partition, &mut Vec::new());
        let (first, last) = (steps.first().map(String::as_str), steps.last().map(String::as_str));
        assert_eq!((first, last), (Some("CloseGate"), Some("WriteState")), "{step}: {steps:?}");
        assert_eq!(partition.state(), MirrorState::Stopped, "{step}");
    }
}

#[test]
fn a_failure_ends_with_the_version_that_recovers_it() {
    let mut partition = fetched();
    partition.left_lane();
    partition.gate_closed();
    partition.failed(Reason::CorruptBatch, "odd".into(), 0, 0.5, &POLICY);
    assert_eq!((partition.state(), partition.retry_attempt()), (MirrorState::Failed, -1));
    partition.rebound(Bound { version: 2, ..partition.bound() });
    assert_eq!((partition.trouble(), partition.retry_attempt()), (None, 0));
    assert_eq!(run(&mut partition, &mut Vec::new()), ["CloseGate", "Compare", "OpenGate", "Fetch"]);
}

#[derive(Clone, Debug)]
enum Fact {
    Desired(DesiredState),
    Version(i64),
    OurEpoch(i32),
    Read(Option<MirrorState>),
    Source(Option<(i32, i32)>),
    Lost,
    Failed(usize),
    Left,
    LeftThroughAFault,
    GoesOn,
    Behind(i32),
    /// The next comparison finds that so many records are here alone.
    Parts(u64),
    Step,
    Time(u64),
}

proptest! {
    /// Whatever happens in whatever order: it is fetched only under an open gate, after a comparison and
    /// with MIRRORING persisted, and no longer once its source is lost; MIRRORING is shown only then, and after a
    /// fault only once something was appended; every state that is written may follow the one before; a log is cut only
    /// behind a closed gate and while it is to be mirrored; and a stop asks nothing of the source, ends a log only behind
    /// its position, and never fails.
    #[test]
    fn it_is_fetched_only_when_all_is_in_order(facts in prop::collection::vec(any_fact(), 0..200)) {
        let mut partition = partition();
        let (mut now, mut is_at_fault) = (0, false);
        for fact in facts {
            match fact {
                Fact::Desired(desired) => {
                    // Every verb writes a new version.
                    let version = partition.bound().version + 1;
                    partition.rebound(Bound { desired, version, truncation: Truncation::Refused, ..partition.bound() });
                }
                Fact::Version(more) => {
                    let version = partition.bound().version + more;
                    let truncation = match more {
                        0 => partition.bound().truncation,
                        _ if version % 2 == 0 => Truncation::Allowed,
                        _ => Truncation::Refused,
                    };
                    partition.rebound(Bound { version, truncation, ..partition.bound() });
                }
                Fact::OurEpoch(more) => {
                    let leader_epoch = Epoch(partition.bound().leader_epoch.0 + more);
                    partition.rebound(Bound { leader_epoch, ..partition.bound() });
                }
                Fact::Read(state) => {
                    if partition.want(now) == Want::ReadState {
                        partition.state_read(Persisted { state, version: 1, ..Persisted::default() });
                    }
                }
                Fact::Source(seen) => partition.source_seen(seen.map(|(broker, epoch)| leader(broker, epoch))),
                Fact::Lost => partition.source_lost(),
                Fact::Left if partition.is_in_lane() => partition.left_lane(),
                Fact::LeftThroughAFault if partition.is_in_lane() => {
                    partition.left_lane();
                    partition.doubt();
                    is_at_fault = true;
                }
                Fact::GoesOn if partition.is_in_lane() => {
                    partition.goes_on();
                    is_at_fault = false;
                }
                Fact::Left | Fact::LeftThroughAFault | Fact::GoesOn => {}
                Fact::Failed(index) => {
                    let reason = crate::reasons::REASONS[index % crate::reasons::REASONS.len()];
                    partition.failed(reason, "why".into(), now, 0.5, &POLICY);
                }
                Fact::Parts(records) => {
                    match partition.want(now) {
                        Want::Compare(_) => partition.apart("it ends there before".into()),
                        Want::Search(_) => {
                            partition.compared(&Alignment::Diverged(divergence(records)), Some(2));
                        }
                        _ => {}
                    }
                }
                Fact::Behind(epoch) => partition.fell_behind(Epoch(epoch)),
                Fact::Time(more) => now += more,
                Fact::Step => {
                    let want = partition.want(now);
                    if let Want::Fetch(..) = want {
                        prop_assert!(matches!(partition.gate, GateNow::Open(_)));
                        prop_assert!(matches!(partition.histories, Histories::Same(_)));
                        let persisted = partition.persisted.as_ref().and_then(|persisted| persisted.state);
                        prop_assert_eq!(persisted, Some(MirrorState::Mirroring));
                        prop_assert_eq!(partition.bound().desired, DesiredState::Mirroring);
                    }
                    if let Want::Truncate(plan) = want {
                        prop_assert_eq!(partition.gate, GateNow::Closed);
                        prop_assert_eq!(partition.bound().desired, DesiredState::Mirroring);
                        let is_allowed = partition.bound().truncation == Truncation::Allowed;
                        prop_assert!(is_allowed || plan.ground == Ground::Configured);
                    }
                    if let Want::WriteState(next) = want {
                        let before = partition.persisted.as_ref().and_then(|persisted| persisted.state);
                        prop_assert!(next.may_follow(before), "{} after {:?}", next, before);
                    }
                    if partition.bound().desired == DesiredState::Stopping {
                        let asks_source = matches!(want, Want::SourceMetadata | Want::Compare(_) | Want::Search(_));
                        prop_assert!(!asks_source && !matches!(want, Want::OpenGate | Want::Fetch(..)));
                    }
                    if want == Want::EndLog {
                        let persisted = partition.persisted.as_ref();
                        let (state, position) = persisted.map(|one| (one.state, one.position)).unzip();
                        prop_assert_eq!(state, Some(Some(MirrorState::Stopping)));
                        prop_assert_eq!(position.flatten(), partition.position());
                        prop_assert!(position.flatten().is_some_and(|at| at.epoch < partition.bound().leader_epoch));
                        prop_assert_eq!(partition.gate, GateNow::Closed);
                    }
                    do_step(&mut partition, want, now);
                }
            }
            let shows_mirroring = partition.state() == MirrorState::Mirroring;
            if shows_mirroring {
                prop_assert!(partition.is_in_lane() && !is_at_fault);
            }
            if partition.bound().desired == DesiredState::Stopping {
                let shown = partition.state();
                prop_assert!(matches!(shown, MirrorState::Stopping | MirrorState::Stopped), "{}", shown);
            }
            if partition.is_in_lane() && partition.source().is_none() {
                prop_assert_eq!(partition.want(now), Want::LeaveLane);
            }
        }
    }
}

fn any_fact() -> impl Strategy<Value = Fact> {
    let desired = prop_oneof![4 => Just(DesiredState::Mirroring), 1 => Just(DesiredState::Paused), 1 => Just(DesiredState::Stopping)];
    let state = prop::option::of((0..9i8).prop_map(|byte| MirrorState::from_byte(byte).expect("it is one")));
    prop_oneof![
        1 => desired.prop_map(Fact::Desired),
        1 => (0..2i64).prop_map(Fact::Version),
        2 => (0..30i32).prop_map(Fact::OurEpoch),
        2 => state.prop_map(Fact::Read),
        3 => prop::option::of((-1..3i32, -1..20i32)).prop_map(Fact::Source),
        1 => Just(Fact::Lost),
        1 => Just(Fact::Left),
        1 => Just(Fact::LeftThroughAFault),
        2 => Just(Fact::GoesOn),
        1 => (0..30usize).prop_map(Fact::Failed),
        1 => (0..30i32).prop_map(Fact::Behind),
        2 => (0..5u64).prop_map(Fact::Parts),
        20 => Just(Fact::Step),
        3 => (0..3000u64).prop_map(Fact::Time),
    ]
}

/// Does what a partition wants until it wants nothing more, and names the steps.
pub(super) fn run(partition: &mut Partition, written: &mut Vec<MirrorState>) -> Vec<String> {
    run_at(partition, written, 0)
}

fn run_at(partition: &mut Partition, written: &mut Vec<MirrorState>, now_ms: u64) -> Vec<String> {
    let mut steps = Vec::new();
    for _ in 0..20 {
        let want = partition.want(now_ms);
        if want == Want::Nothing {
            break;
        }
        let name = format!("{want:?}");
        steps.push(name.split('(').next().unwrap_or_default().to_owned());
        if let Want::WriteState(state) = want {
            written.push(state);
        }
        do_step(partition, want, now_ms);
        if let Want::Wait(_) = want {
            let leader_epoch = Epoch(partition.bound().leader_epoch.0.max(5) + 94);
            partition.rebound(Bound { leader_epoch, ..partition.bound() });
        }
    }
    steps
}

fn do_step(partition: &mut Partition, want: Want, now_ms: u64) {
    match want {
        Want::Nothing | Want::Wait(_) => {}
        Want::ReadState => partition.state_read(Persisted::default()),
        Want::WriteState(state) => {
            let (state_epoch, version) = (partition.state_epoch() + 1, partition.bound().version);
            match (state, partition.position()) {
                (MirrorState::Stopping, Some(position)) => {
                    partition.stopping_written(position, None, state_epoch, version);
                }
                _ => partition.state_written(state, state_epoch, version),
            }
        }
        Want::SourceMetadata => partition.source_seen(Some(leader(1, 5))),
        Want::Compare(_) | Want::Search(_) => partition.compared(&go_on(), None),
        Want::Truncate(plan) => partition.truncated(&plan, &truncated(), partition.bound().version),
        Want::RaiseEpoch(above) => partition.raise_asked(above, now_ms),
        Want::CloseGate => partition.gate_closed(),
        Want::OpenGate => partition.gate_opened(MirrorGeneration(1)),
        Want::Flush => partition.flushed(&ends()),
        Want::EndLog => partition.log_ended(ended()),
        Want::Fetch(..) => partition.joined_lane(),
        Want::LeaveLane => partition.left_lane(),
    }
}

pub(super) fn bound() -> Bound {
    Bound {
        desired: DesiredState::Mirroring,
        version: 1,
        leader_epoch: Epoch(0),
        truncation: Truncation::Refused,
    }
}

/// A partition of which the owning core knows that it is mirrored.
pub(super) fn partition() -> Partition {
    let mut partition = Partition::new(bound());
    partition.gate_closed();
    partition
}

pub(super) fn fetched() -> Partition {
    let mut partition = partition();
    run(&mut partition, &mut Vec::new());
    assert!(partition.is_in_lane());
    partition
}

pub(super) fn persisted(state: MirrorState) -> Persisted {
    Persisted { state: Some(state), state_epoch: 3, version: 1, ..Persisted::default() }
}

pub(super) fn leader(broker: i32, epoch: i32) -> SourceLeader {
    SourceLeader { broker: BrokerId(broker), epoch: Epoch(epoch) }
}

pub(super) fn ends() -> LogEnds {
    LogEnds {
        log_start: Offset(0),
        log_end: Offset(9),
        high_watermark: Offset(9),
        latest_epoch: Epoch(5),
        leader_epoch: Epoch(0),
        compacted: false,
    }
}

fn ended() -> LogEnded {
    LogEnded { reset_offset: Offset(9), aborted_count: 0, aborted: Vec::new(), log_end: Offset(10) }
}

pub(super) fn go_on() -> Alignment {
    Alignment::GoOn(GoOn { from: Offset(0), last_epoch: Epoch::NONE, compacted: false, gap: None })
}

pub(super) fn diverged() -> Alignment {
    Alignment::Diverged(divergence(5))
}

/// A log of which the source has the first five offsets of ten.
pub(super) fn divergence(records: u64) -> Divergence {
    Divergence {
        why: "it ends at 5 there".into(),
        common: Some(CommonPoint { epoch: Epoch(1), offset: Offset(5) }),
        log_start: Offset(0),
        from: Offset(5),
        log_end: Offset(10),
        suffix: Suffix { records, control_records: if records == 0 { 5 } else { 0 }, has_more: false },
        mirrored_end: Offset(5),
        source_log_start: Offset(0),
        compacted: false,
    }
}

pub(super) fn truncated() -> LogTruncated {
    let export = Export {
        broker: BrokerId(1),
        path: "/exports/t-0".into(),
        from: Offset(5),
        to: Offset(10),
        records: 5,
        bytes: 99,
    };
    LogTruncated { log_end: Offset(5), export: Some(export), unflushed: None }
}
