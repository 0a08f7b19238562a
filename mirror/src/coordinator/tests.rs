//! A coordinator as its leaders and its log see it.

use super::*;
use crate::limits;
use proptest::prelude::*;
use tarn_wire::messages::write_mirror_states_request::{AbortedTransaction, MirrorStopReport};

#[test]
fn the_hash_is_that_of_java() {
    assert_eq!(hash_to_partition("", 50), PartitionIndex(0));
    assert_eq!(hash_to_partition("a-to-b", 50), PartitionIndex(1_472_817_284 % 50));
    assert_eq!(hash_to_partition("polygenelubricants", 50), PartitionIndex(0), "its hash is i32::MIN");
}

#[test]
fn a_deposed_leader_changes_nothing() {
    let mut coordinator = MirrorCoordinator::default();
    write(&mut coordinator, with(MirrorState::LogAlignment, 5, 0)).expect("it is the first");
    let refused = write(&mut coordinator, with(MirrorState::Mirroring, 4, 1));
    assert_eq!(refused, Err(WriteRefused::FencedLeader { given: Epoch(4), current: Epoch(5) }));
    assert_eq!(read(&coordinator).and_then(|state| state.state), Some(MirrorState::LogAlignment));
}

#[test]
fn a_topic_that_was_deleted_and_is_mirrored_again_is_no_deposed_leader() {
    let mut coordinator = MirrorCoordinator::default();
    let mut log = records(&mut coordinator, stopping(7, (4, 100), (120, 5000)));
    let before = read(&coordinator).expect("it was written");
    assert!(before.leader_epoch > Epoch(0) && before.position.is_some());
    let anew = |state_version| WriteMirrorStatePartition {
        state_version,
        ..with(MirrorState::LogAlignment, 0, before.state_epoch)
    };
    let refused = write(&mut coordinator, anew(7));
    assert_eq!(refused, Err(WriteRefused::FencedLeader { given: Epoch(0), current: before.leader_epoch }));
    log.extend(records(&mut coordinator, anew(8)));
    let after = read(&coordinator).expect("it was written");
    assert_eq!((after.state, after.leader_epoch), (Some(MirrorState::LogAlignment), Epoch(0)));
    assert_eq!(after.position, None, "it is of a log that is gone");
    assert_eq!(after.state_epoch, before.state_epoch + 1, "who read before is still fenced");
    write(&mut coordinator, anew(8)).expect_err("its state epoch was used");
    let mut again = MirrorCoordinator::default();
    for (key, value) in &log {
        assert_eq!(again.replay(key, value.as_ref()), Ok(()));
    }
    assert_eq!(read(&again), Some(after));
}

#[test]
fn of_two_writers_with_one_state_epoch_only_the_first_is_taken() {
    let mut coordinator = MirrorCoordinator::default();
    assert_eq!(write(&mut coordinator, with(MirrorState::LogAlignment, 5, 0)), Ok(1));
    assert_eq!(write(&mut coordinator, with(MirrorState::Mirroring, 5, 1)), Ok(2));
    let refused = write(&mut coordinator, with(MirrorState::Failed, 5, 1));
    assert_eq!(refused, Err(WriteRefused::FencedState { given: 1, current: 2 }));
}

#[test]
fn a_state_epoch_that_was_never_written_here_is_of_a_mirror_that_was_deleted() {
    let mut coordinator = MirrorCoordinator::default();
    let refused = write(&mut coordinator, with(MirrorState::Stopping, 5, 3));
    assert_eq!(refused, Err(WriteRefused::FencedState { given: 3, current: 0 }));
    assert_eq!(write(&mut coordinator, with(MirrorState::LogAlignment, 5, 0)), Ok(1));
    let refused = write(&mut coordinator, with(MirrorState::Stopped, 5, 3));
    assert_eq!(refused, Err(WriteRefused::FencedState { given: 3, current: 1 }));
}

/// The log may say any number.
#[test]
fn after_the_highest_state_epoch_comes_0() {
    let mut coordinator = MirrorCoordinator::default();
    let (name, partition) = ("m", partition());
    let key = MirrorPartitionStateKey {
        mirror_name: name.into(),
        topic_id: partition.topic_id.0,
        partition: partition.partition.0,
    };
    let value = MirrorPartitionStateValue {
        state: MirrorState::Mirroring.to_byte(),
        state_epoch: i32::MAX,
        ..MirrorPartitionStateValue::default()
    };
    let (key, value) = (encode_key(&key).expect("it fits"), encode_value(&value, 0).expect("it fits"));
    assert_eq!(coordinator.replay(&key, Some(&value)), Ok(()));
    assert_eq!(write(&mut coordinator, with(MirrorState::Pausing, 5, i32::MAX)), Ok(0));
    let refused = write(&mut coordinator, with(MirrorState::Paused, 5, i32::MAX));
    assert_eq!(refused, Err(WriteRefused::FencedState { given: i32::MAX, current: 0 }));
}

#[test]
fn a_failure_remembers_the_state_before_it() {
    let mut coordinator = MirrorCoordinator::default();
    write(&mut coordinator, with(MirrorState::LogAlignment, 5, -1)).expect("it is the first");
    write(&mut coordinator, with(MirrorState::Mirroring, 5, -1)).expect("it is in order");
    for _ in 0..2 {
        write(&mut coordinator, with(MirrorState::Failed, 5, -1)).expect("it is in order");
        let state = read(&coordinator).expect("it was written");
        assert_eq!(state.previous_state, Some(MirrorState::Mirroring));
    }
}

#[test]
fn a_byte_that_is_no_state_is_refused() {
    let mut coordinator = MirrorCoordinator::default();
    let odd = WriteMirrorStatePartition { state: 77, ..Default::default() };
    assert_eq!(write(&mut coordinator, odd), Err(WriteRefused::NotAState(77)));
    assert_eq!(read(&coordinator), None);
}

#[test]
fn a_position_is_kept_within_a_stop_unless_a_lower_one_is_written() {
    let mut coordinator = MirrorCoordinator::default();
    let position = |coordinator: &MirrorCoordinator| {
        let position = read(coordinator).and_then(|state| state.position).expect("it was written");
        (position.epoch.0, position.offset.0, position.version, position.source_offset.0)
    };
    write(&mut coordinator, stopping(7, (4, 100), (120, 5000))).expect("it is the first");
    assert_eq!(position(&coordinator), (4, 100, 7, 120));
    write(&mut coordinator, stopping(7, (5, 101), (-1, -1))).expect("it is in order");
    assert_eq!(position(&coordinator), (4, 100, 7, 120), "what comes after it is of the ending");
    write(&mut coordinator, stopping(7, (3, 90), (-1, -1))).expect("it is in order");
    assert_eq!(position(&coordinator), (3, 90, 7, 120), "the source had what it had");
    write(&mut coordinator, stopping(7, (4, 100), (-1, -1))).expect("it is in order");
    assert_eq!(position(&coordinator), (3, 90, 7, 120));
    write(&mut coordinator, stopping(8, (6, 200), (-1, -1))).expect("it is in order");
    assert_eq!(position(&coordinator), (6, 200, 8, -1), "another stop has one of its own");
}

#[test]
fn a_stop_that_another_process_ends_reports_the_lag_that_was_known_when_its_position_was_written() {
    let mut coordinator = MirrorCoordinator::default();
    let begun = WriteMirrorStatePartition { source_lag_ms: 77, ..stopping(7, (4, 100), (120, 5000)) };
    let log = records(&mut coordinator, begun);
    let mut again = MirrorCoordinator::default();
    for (key, value) in &log {
        assert_eq!(again.replay(key, value.as_ref()), Ok(()));
    }
    // It goes on from what is written, and asks no source.
    write(&mut again, stopping(7, (4, 100), (-1, -1))).expect("it is in order");
    let mut ended = stopped(7, 103);
    ended.report.as_mut().expect("it has one").lag_ms = -1;
    write(&mut again, ended).expect("it is in order");
    let report = reports(&mut again, "m").remove(0).1;
    assert_eq!((report.source_known_at_ms, report.lag_ms), (5000, 77));
}

#[test]
fn a_state_without_a_position_leaves_the_one_of_the_last_stop() {
    let mut coordinator = MirrorCoordinator::default();
    write(&mut coordinator, stopping(7, (4, 100), (120, 5000))).expect("it is the first");
    let before = read(&coordinator).and_then(|state| state.position);
    for state in [MirrorState::Stopped, MirrorState::LogAlignment, MirrorState::Mirroring] {
        let next = WriteMirrorStatePartition { state_version: 9, ..with(state, 5, -1) };
        write(&mut coordinator, next).expect("it is in order");
        assert_eq!(read(&coordinator).and_then(|state| state.position), before, "{state}");
    }
}

#[test]
fn stopped_and_its_report_are_one_batch_and_are_read_again() {
    let mut coordinator = MirrorCoordinator::default();
    let mut log = records(&mut coordinator, stopping(7, (4, 100), (120, 5000)));
    assert_eq!(reports(&mut coordinator, "m"), []);
    // The source's end is that which was known with the position.
    let stopped = WriteMirrorStatePartition { source_offset_last_known: 999, ..stopped(7, 103) };
    let batch = records(&mut coordinator, stopped);
    assert_eq!(batch.len(), 2, "the state and the report");
    let (of, report) = reports(&mut coordinator, "m").remove(0);
    assert_eq!((of, report.topic.as_str(), report.version), (partition(), "t", 7));
    assert_eq!((report.source_offset, report.source_known_at_ms), (Offset(120), 5000));
    assert_eq!((report.stopped_at_ms, report.mirrored_offset, report.lag_ms), (9000, Offset(100), 40));
    assert_eq!((report.aborted_count, report.reset_offset), (2, Offset(103)));
    assert_eq!(report.aborted.len(), 1);
    assert_eq!((report.export_broker_id, report.export_file.as_deref()), (-1, None));
    assert_eq!(reports(&mut coordinator, "other"), []);
    log.extend(batch);
    let mut again = MirrorCoordinator::default();
    for (key, value) in &log {
        assert_eq!(again.replay(key, value.as_ref()), Ok(()));
    }
    assert_eq!(reports(&mut again, "m"), [(partition(), report)]);
    let (key, _) = log.pop().expect("the report is the last");
    assert_eq!(again.replay(&key, None), Ok(()));
    assert_eq!(reports(&mut again, "m"), [], "the mirror was deleted");
}

#[test]
fn a_stop_that_leaves_the_log_where_the_last_one_did_knows_what_that_knew() {
    for (position, source, known) in [
        ((4, 100), (-1, -1), (120, 5000)),
        ((4, 100), (130, 6000), (130, 6000)),
        ((4, 110), (-1, -1), (-1, -1)),
    ] {
        let mut coordinator = MirrorCoordinator::default();
        write(&mut coordinator, stopping(7, (4, 100), (120, 5000))).expect("it is the first");
        write(&mut coordinator, stopped(7, 103)).expect("it is in order");
        let next = WriteMirrorStatePartition { state_version: 8, ..with(MirrorState::LogAlignment, 5, -1) };
        write(&mut coordinator, next).expect("it is begun again");
        write(&mut coordinator, stopping(9, position, source)).expect("it is in order");
        let position = read(&coordinator).and_then(|state| state.position).expect("it was written");
        assert_eq!((position.source_offset.0, position.source_known_at_ms), known);
    }
}

#[test]
fn a_report_is_written_once_for_each_stop() {
    let mut coordinator = MirrorCoordinator::default();
    write(&mut coordinator, stopping(7, (4, 100), (120, 5000))).expect("it is the first");
    write(&mut coordinator, stopped(7, 103)).expect("it is in order");
    assert_eq!(records(&mut coordinator, stopped(7, 999)).len(), 1, "the state alone");
    assert_eq!(reports(&mut coordinator, "m")[0].1.reset_offset, Offset(103));
    write(&mut coordinator, stopped(8, 999)).expect("it is in order");
    let (_, report) = reports(&mut coordinator, "m").remove(0);
    assert_eq!((report.version, report.reset_offset), (8, Offset(999)));
    assert_eq!(report.source_offset, Offset(-1), "the position is of another stop");
}

#[test]
fn a_write_that_says_nothing_leaves_nothing() {
    let mut coordinator = MirrorCoordinator::default();
    let nothing = WriteMirrorStatePartition {
        state: -1,
        last_mirror_offset: -1,
        leader_epoch: 0,
        state_epoch: 0,
        state_version: 0,
        ..WriteMirrorStatePartition::default()
    };
    assert_eq!(records(&mut coordinator, nothing), []);
    assert_eq!(coordinator, MirrorCoordinator::default());
}

#[test]
fn a_report_names_no_more_transactions_than_it_may() {
    let mut coordinator = MirrorCoordinator::default();
    let mut many = stopped(7, 103);
    let report = many.report.as_mut().expect("it has one");
    report.aborted_transactions = vec![AbortedTransaction::default(); limits::ABORTED_IN_REPORT + 1];
    write(&mut coordinator, many).expect("it is in order");
    assert_eq!(reports(&mut coordinator, "m")[0].1.aborted.len(), limits::ABORTED_IN_REPORT);
}

proptest! {
    /// A coordinator that replays the log of another answers like it.
    #[test]
    fn the_log_makes_the_same_coordinator_again(writes in prop::collection::vec(any_write(), 0..40)) {
        let (mut first, mut log) = (MirrorCoordinator::default(), Vec::new());
        for (index, write) in writes {
            let named = TopicIdPartition { partition: PartitionIndex(index), ..partition() };
            let (_, records) = first.handle(StateRequest::Write("m".into(), vec![(named, of_topic(write))]));
            log.extend(records);
        }
        let mut second = MirrorCoordinator::default();
        for (key, value) in &log {
            prop_assert_eq!(second.replay(key, value.as_ref()), Ok(()));
        }
        prop_assert_eq!(first, second);
    }

    /// No bytes make a coordinator panic.
    #[test]
    fn foreign_records_are_errors(key: Vec<u8>, value: Option<Vec<u8>>) {
        let _ = MirrorCoordinator::default().replay(&key.into(), value.map(Bytes::from).as_ref());
    }
}

fn any_write() -> impl Strategy<Value = (i32, WriteMirrorStatePartition)> {
    let epochs = (-1..5i32, -1..6i32, -1..4i64);
    (0..3i32, -1..9i8, epochs, -1..50i64, any::<bool>(), any::<bool>()).prop_map(
        |(
            index,
            state,
            (leader_epoch, state_epoch, state_version),
            last_mirror_offset,
            non_retryable,
            ends,
        )| {
            let write = WriteMirrorStatePartition {
                state,
                leader_epoch,
                state_epoch,
                state_version,
                last_mirror_offset,
                non_retryable,
                report: ends.then(|| report(last_mirror_offset)),
                ..Default::default()
            };
            (index, write)
        },
    )
}

#[test]
fn what_was_exported_is_named_by_the_report_that_there_is_and_by_the_next() {
    let mut coordinator = MirrorCoordinator::default();
    let mut named = |given| {
        write(&mut coordinator, given).expect("it is taken");
        let report = reports(&mut coordinator, "m").pop().expect("there is one").1;
        let kept = report.export_file.as_deref().map(|path| (report.export_broker_id, path.to_owned()));
        (report.version, report.mirrored_offset.0, report.reset_offset.0, kept)
    };
    let kept = |path: &str| Some((4, path.to_owned()));
    // A partition that was never stopped has a report of no stop, which the first one replaces.
    assert_eq!(named(exported(2, "/e/1")), (2, -1, -1, kept("/e/1")));
    assert_eq!(named(stopped(3, 103)), (3, 100, 103, kept("/e/1")));
    assert_eq!(
        named(exported(5, "/e/2")),
        (3, 100, 103, kept("/e/2")),
        "all else is as the stop has found it"
    );
    // A cut that a stop overtakes is named before the stop is over.
    assert_eq!(named(exported(7, "/e/3")), (3, 100, 103, kept("/e/3")));
    assert_eq!(named(stopped(7, 207)), (7, 100, 207, kept("/e/3")));
    assert_eq!(named(stopped(7, 300)), (7, 100, 207, kept("/e/3")), "the first is the report of a stop");
    let mut given = stopped(9, 209);
    given.report.as_mut().expect("it has one").export_file = Some("/e/4".into());
    given.report.as_mut().expect("it has one").export_broker_id = 4;
    assert_eq!(named(given), (9, 100, 209, kept("/e/4")));
    assert_eq!(named(exported(11, "/e/4")), (9, 100, 209, kept("/e/4")));
    assert_eq!(
        records(&mut coordinator, exported(11, "/e/4")).len(),
        1,
        "what is known is not written again"
    );
}

/// MIRRORING, after a cut.
fn exported(version: i64, path: &str) -> WriteMirrorStatePartition {
    WriteMirrorStatePartition {
        state_version: version,
        report: Some(MirrorStopReport {
            stopped_at_ms: NEVER_STOPPED_MS,
            mirrored_offset: -1,
            export_broker_id: 4,
            export_file: Some(path.into()),
            ..MirrorStopReport::default()
        }),
        ..with(MirrorState::Mirroring, 5, -1)
    }
}

/// STOPPING with an epoch and an offset, and what the source had and when.
fn stopping(
    version: i64,
    (epoch, offset): (i32, i64),
    (source, known_at): (i64, i64),
) -> WriteMirrorStatePartition {
    WriteMirrorStatePartition {
        state_version: version,
        last_mirror_epoch: epoch,
        last_mirror_offset: offset,
        source_offset_last_known: source,
        source_offset_known_at_ms: known_at,
        ..with(MirrorState::Stopping, 5, -1)
    }
}

fn stopped(version: i64, reset_offset: i64) -> WriteMirrorStatePartition {
    WriteMirrorStatePartition {
        state_version: version,
        report: Some(report(reset_offset)),
        ..with(MirrorState::Stopped, 5, -1)
    }
}

fn report(reset_offset: i64) -> MirrorStopReport {
    let aborted = AbortedTransaction { producer_id: 9, producer_epoch: 1, first_offset: 60 };
    MirrorStopReport {
        stopped_at_ms: 9000,
        mirrored_offset: 100,
        lag_ms: 40,
        aborted_transaction_count: 2,
        aborted_transactions: vec![aborted],
        reset_offset,
        ..MirrorStopReport::default()
    }
}

fn with(state: MirrorState, leader_epoch: i32, state_epoch: i32) -> WriteMirrorStatePartition {
    WriteMirrorStatePartition { state: state.to_byte(), leader_epoch, state_epoch, ..Default::default() }
}

fn partition() -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) }
}

fn write(coordinator: &mut MirrorCoordinator, write: WriteMirrorStatePartition) -> Result<i32, WriteRefused> {
    match coordinator.handle(StateRequest::Write("m".into(), vec![(partition(), of_topic(write))])).0 {
        StateResponse::Written(mut results) => results.remove(0).1,
        other => panic!("a write is answered as one, not {other:?}"),
    }
}

fn records(coordinator: &mut MirrorCoordinator, write: WriteMirrorStatePartition) -> Vec<StateRecord> {
    coordinator.handle(StateRequest::Write("m".into(), vec![(partition(), of_topic(write))])).1
}

fn of_topic(state: WriteMirrorStatePartition) -> StateWrite {
    StateWrite { topic: "t".into(), state }
}

fn reports(coordinator: &mut MirrorCoordinator, mirror: &str) -> Vec<(TopicIdPartition, StopReport)> {
    match coordinator.handle(StateRequest::Reports(mirror.into())).0 {
        StateResponse::Reports(reports) => reports,
        other => panic!("reports are answered as such, not {other:?}"),
    }
}

fn read(coordinator: &MirrorCoordinator) -> Option<PartitionState> {
    coordinator.states.get(&("m".to_owned(), partition())).cloned()
}
