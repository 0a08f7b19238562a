//! Ends of mirrored logs, on real files.

use std::sync::Arc;

use proptest::prelude::*;
use tarn_image::mirrors::Truncation;
use tarn_log::{Descriptors, FirstBatch, FlushPolicy, Log, LogConfig, LogDir, Opening};
use tarn_mirror::local_cluster::{
    Gate, GateOrder, KnownState, MirrorAppend, MirrorAppended, MirrorGeneration,
};
use tarn_mirror::state::MirrorState;
use tarn_record::builder::{BatchBuilder, Record};
use tarn_record::validate::{ClientBatch, ProduceRules, client_batch};
use tarn_record::{Compression, PartitionIndex, Sequence, TimestampType, TopicId, TopicIdPartition};
use tarn_wire::{Cursor, ErrorCode};
use tempfile::TempDir;

use super::*;
use crate::envelope::Acks;
use crate::replica::{Binding, Leadership, ProduceError};
use crate::rules::TopicRules;
use crate::watched_disk::WatchedDisk;

#[test]
fn every_open_transaction_is_aborted_in_the_order_in_which_they_began_and_then_the_log_is_reset() {
    let mut world = World::new();
    world.mirror(&[sent(9, 2, 0), commit(9, 2, 5), sent(9, 2, 1), sent(4, 0, 0), sent(9, 2, 2), plain(7, 0)]);
    let ended = world.end().expect("nothing is in the way");
    let first = [aborted(9, 2, 2), aborted(4, 0, 3)];
    assert_eq!(
        ended,
        LogEnded { reset_offset: Offset(8), aborted_count: 2, aborted: first.into(), log_end: Offset(9) }
    );
    let end = world.batches_from(6);
    let of_end = |batch: &ValidBatch| (batch.header().producer_id.0, batch.header().producer_epoch.0);
    assert_eq!(end.iter().map(of_end).collect::<Vec<_>>(), [(9, 2), (4, 0), (-1, -1)]);
    assert!(end.iter().all(|batch| batch.header().leader_epoch == HERE && batch.header().is_control()));
    let records: Vec<_> = end.iter().map(|batch| ControlRecord::parse(batch).expect("it is one")).collect();
    let kinds: Vec<_> = records.iter().map(|record| record.control_type).collect();
    assert_eq!(kinds, [ControlType::Abort, ControlType::Abort, ControlType::MirrorPidReset]);
    let coordinators: Vec<_> = records.iter().filter_map(|record| record.coordinator_epoch).collect();
    assert_eq!(coordinators, [5, 0], "the last that is known of the producer, or 0");
    assert_eq!(source_of(&records[2]), Some("source".to_owned()));
    let replica = &world.replica;
    assert_eq!((replica.high_watermark(), replica.last_stable_offset()), (Offset(9), Offset(9)));
    assert_eq!(replica.log().latest_epoch(), HERE);
}

#[test]
fn an_empty_log_is_ended_by_the_reset_alone_and_a_source_without_an_id_is_not_named() {
    let mut world = World::new();
    world.order.source_cluster_id = None;
    let ended = world.end().expect("nothing is in the way");
    assert_eq!((ended.reset_offset, ended.aborted_count, ended.log_end), (Offset(0), 0, Offset(1)));
    let reset = ControlRecord::parse(&world.batches_from(0)[0]).expect("it is one");
    assert_eq!(
        (&reset.value[..], source_of(&reset)),
        (&[0, 0, 0, 0][..], None),
        "version, no string, no tags"
    );
}

#[test]
fn a_log_is_not_ended_before_its_time_nor_by_another_order() {
    type Change = fn(&mut World);
    let refusals: [(&str, Change); 9] = [
        ("its gate is open", |world| world.set_gate(Gate::Open)),
        ("its binding is none", |world| world.bind(None)),
        ("its binding is mirroring at version 7", |world| {
            world.bind(Some((DesiredState::Mirroring, VERSION)))
        }),
        ("its binding is stopped at version 7", |world| world.bind(Some((DesiredState::Stopped, VERSION)))),
        ("its binding is stopping at version 8", |world| {
            world.bind(Some((DesiredState::Stopping, VERSION + 1)))
        }),
        ("clients may write to it", |world| {
            world
                .replica
                .set_known_state(KnownState::Known { state: MirrorState::Stopped, version: VERSION });
        }),
        ("leader epoch 9 is not above 9", |world| world.order.position.epoch = HERE),
        ("leader epoch 9 is not above 8 at the last mirror position, or below 11", |world| {
            world.replica.log.begin_epoch(Epoch(11)).expect("it is newer");
            world.order.position.epoch = Epoch(8);
        }),
        ("the log ends at offset 2, below 3", |world| world.order.position.offset = Offset(3)),
    ];
    for (expected, change) in refusals {
        let mut world = World::new();
        world.mirror(&[sent(4, 0, 0), plain(7, 0)]);
        change(&mut world);
        let refused = world.end().expect_err(expected).to_string();
        assert!(refused.starts_with(expected), "{refused}");
        assert_eq!(world.replica.log().end(), Offset(2), "nothing was appended");
    }
}

#[test]
fn whatever_stands_behind_the_position_and_is_no_end_of_it_is_left_alone() {
    let own = |batch: fn(Offset) -> ValidBatch| batch(Offset(2));
    let strangers: [(&str, ValidBatch); 6] = [
        ("records", in_epoch(HERE, plain(7, 1)(Offset(2)))),
        ("a commit", in_epoch(HERE, commit(4, 0, 0)(Offset(2)))),
        ("a marker of the source's", in_epoch(SOURCE, abort(4, 0)(Offset(2)))),
        ("a reset of the source's", in_epoch(SOURCE, own(reset_at))),
        (
            "another control record",
            own(|at| {
                ValidBatch::parse(control_batch(ControlType::LeaderChange, b"", at, HERE, NOW))
                    .expect("it is a batch")
            }),
        ),
        (
            "a control record of a kind to come",
            own(|at| {
                let mut batch = BatchBuilder::new(at, Compression::None).leader_epoch(HERE).control();
                batch.add(&Record { key: Some(&[0, 0, 0, 99]), timestamp: NOW, ..Record::default() });
                ValidBatch::parse(batch.build()).expect("it is a batch")
            }),
        ),
    ];
    for (what, stranger) in strangers {
        let mut world = World::new();
        world.mirror(&[sent(4, 0, 0), plain(7, 0)]);
        let at = stranger.header().leader_epoch;
        world.replica.log.append_as_is(&[stranger], NOW).expect("it follows");
        world.order.position.offset = Offset(2);
        let refused = world.end().expect_err(what).to_string();
        assert!(
            refused.contains("at offset 2") && refused.contains(&format!("epoch {at}")),
            "{what}: {refused}"
        );
        assert_eq!(world.replica.log().end(), Offset(3), "{what}");
    }
}

#[test]
fn a_log_of_which_nothing_was_mirrored_is_left_to_its_clients_with_what_is_known_of_their_producers() {
    let mut world = World::new();
    world.replica.log.append_as_is(&[in_epoch(HERE, idempotent(7, 0)(Offset(0)))], NOW).expect("it follows");
    world.order.position = LastPosition::NOTHING;
    for _ in 0..2 {
        let ended = world.end().expect("there is nothing to end");
        assert_eq!((ended.reset_offset, ended.aborted_count, ended.log_end), (Offset::NONE, 0, Offset(1)));
        assert!(world.replica.has_durable_end(&ended) || world.replica.log().flushed_to() < Offset(1));
    }
    assert_eq!(world.replica.log().end(), Offset(1), "nothing was appended");
    world.replica.set_known_state(KnownState::Known { state: MirrorState::Stopped, version: VERSION });
    assert_eq!(world.produce(7, 0), Ok(Offset(0)), "what is sent again is told as what is there");
}

#[test]
fn a_log_that_an_earlier_stop_has_ended_is_not_ended_again_behind_what_clients_wrote() {
    let mut world = World::new();
    world.mirror(&[sent(4, 0, 0), plain(7, 0)]);
    let ended = world.end().expect("nothing is in the way");
    world.replica.set_known_state(KnownState::Known { state: MirrorState::Stopped, version: VERSION });
    assert_eq!(world.produce(9, 0), Ok(ended.log_end));
    world.bind(Some((DesiredState::Stopping, VERSION + 1)));
    world.order.version = VERSION + 1;
    let again = world.end().expect("it is ended");
    assert_eq!(again, LogEnded { log_end: ended.log_end.plus(1), ..ended });
}

/// A coordinator that has lost what it knew of a mirrored partition says that nothing was mirrored.
#[test]
fn a_log_whose_state_was_lost_is_left_without_open_transactions_and_nothing_else_is_changed() {
    let mut world = World::new();
    world.mirror(&[sent(4, 0, 0), plain(7, 0), sent(5, 2, 0)]);
    world.order.position = LastPosition::NOTHING;
    assert_eq!(world.replica.last_stable_offset(), Offset(0), "who reads what is committed waits here");
    let ended = world.end().expect("nothing is in the way");
    let both = vec![aborted(4, 0, 0), aborted(5, 2, 2)];
    let expected =
        LogEnded { reset_offset: Offset::NONE, aborted_count: 2, aborted: both, log_end: Offset(5) };
    assert_eq!(ended, expected);
    world.flush();
    assert_eq!(world.replica.last_stable_offset(), Offset(5));
    let again = world.end().expect("it is ended");
    assert_eq!((again.reset_offset, again.aborted_count, again.log_end), (Offset::NONE, 0, Offset(5)));
    world.replica.set_known_state(KnownState::Known { state: MirrorState::Stopped, version: VERSION });
    assert_eq!(world.produce(7, 0), Ok(Offset(1)), "what is sent again is told as what is there");
}

/// While it was bound again the marker of its coordinator was dropped.
#[test]
fn what_a_client_has_begun_between_two_stops_is_aborted_by_the_second() {
    let mut world = World::new();
    world.mirror(&[plain(7, 0)]);
    let ended = world.end().expect("nothing is in the way");
    world.replica.set_known_state(KnownState::Known { state: MirrorState::Stopped, version: VERSION });
    let begun = of_client(&sent(9, 0, 0)(Offset(0)));
    world.replica.append(&begun, Acks::Leader, NOW).expect("it is writable");
    world.bind(Some((DesiredState::Stopping, VERSION + 1)));
    world.order.version = VERSION + 1;
    let again = world.end().expect("nothing is in the way");
    assert_eq!((again.reset_offset, again.log_end), (ended.reset_offset, ended.log_end.plus(2)));
    assert_eq!(again.aborted, [aborted(9, 0, ended.log_end.0)]);
    world.flush();
    assert_eq!(world.replica.last_stable_offset(), again.log_end);
}

#[test]
fn a_batch_that_spans_the_position_is_no_end() {
    let mut world = World::new();
    world.mirror(&[plain(7, 0)]);
    let mut spanning = BatchBuilder::new(Offset(1), Compression::None).leader_epoch(HERE);
    for _ in 0..3 {
        spanning.add(&Record { timestamp: NOW, ..Record::default() });
    }
    let spanning = ValidBatch::parse(spanning.build()).expect("it is a batch");
    world.replica.log.append_as_is(&[spanning], NOW).expect("it follows");
    world.order.position.offset = Offset(2);
    assert!(world.end().expect_err("it is not").to_string().contains("at offset 1"));
}

#[test]
fn what_was_looked_at_before_the_log_changed_counts_no_more() {
    let mut world = World::new();
    world.mirror(&[sent(4, 0, 0)]);
    let early = world.look();
    let ended = world.end().expect("nothing is in the way");
    let late = world.replica.end_log(&world.order, &early, Together::Few, NOW);
    assert!(matches!(late, Err(NotEnded::Changed)), "{late:?}");
    assert_eq!(world.end().expect("it is ended"), ended, "and no second reset is there");
    assert_eq!(world.replica.log().end(), ended.log_end);
    // Nor before it was closed and opened again, whatever its files say.
    let early = world.look();
    world.restart(true);
    let late = world.replica.end_log(&world.order, &early, Together::Few, NOW);
    assert!(matches!(late, Err(NotEnded::Changed)), "{late:?}");
}

#[test]
fn more_transactions_than_one_write_takes_are_aborted_and_the_first_of_them_named() {
    let mut world = World::new();
    let count = 2 * MARKERS_PER_APPEND as i64;
    world.mirror(&(0..count).map(|id| sent(id, 0, 0)).collect::<Vec<_>>());
    let position = world.order.position.offset;
    let before = world.disk.log_writes();
    let ended = world.end().expect("nothing is in the way");
    assert_eq!(world.disk.log_writes() - before, 3, "two of markers, and the reset");
    assert_eq!((ended.aborted_count, ended.log_end), (count as u32, position.plus(count + 1)));
    let first: Vec<_> = (0..ABORTED_IN_REPORT as i64).map(|id| aborted(id, 0, id)).collect();
    assert_eq!(ended.aborted, first);
}

#[test]
fn a_full_disk_is_said_and_what_was_appended_before_is_gone_on_from() {
    let mut world = World::new();
    let count = MARKERS_PER_APPEND as i64 + 50;
    world.mirror(&(0..count).map(|id| sent(id, 0, 0)).collect::<Vec<_>>());
    let position = world.order.position.offset;
    world.disk.has_room_for(1);
    let full = world.end().expect_err("there is room for one write").of(&world.order);
    assert!(matches!(full, LocalError::Storage { .. }), "{full}");
    assert_eq!(world.replica.log().end(), position.plus(MARKERS_PER_APPEND as i64));
    world.disk.has_room_for(i64::MAX);
    let ended = world.end().expect("there is room");
    assert_eq!((ended.aborted_count, ended.log_end), (count as u32, position.plus(count + 1)));
    assert_eq!(ended.aborted[0], aborted(0, 0, 0));
}

#[test]
fn what_is_told_late_of_an_earlier_stop_changes_nothing() {
    let mut world = World::new();
    world.end().expect("nothing is in the way");
    let stopped = |version| KnownState::Known { state: MirrorState::Stopped, version };
    world.replica.set_known_state(stopped(VERSION));
    assert!(world.produce(1, 0).is_ok());
    // Started again and stopped again, and what was written in between is not told yet.
    world.bind(Some((DesiredState::Stopping, VERSION + 2)));
    world.replica.set_known_state(stopped(VERSION));
    assert_eq!(world.produce(1, 1), Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    let aligning = KnownState::Known { state: MirrorState::LogAlignment, version: VERSION + 1 };
    world.replica.set_known_state(aligning);
    world.replica.set_known_state(stopped(VERSION));
    assert_eq!(world.produce(1, 1), Err(ErrorCode::POLICY_VIOLATION));
    world.replica.set_known_state(stopped(VERSION + 2));
    assert!(world.produce(1, 1).is_ok());
}

#[test]
fn clients_write_after_the_end_once_it_is_known_and_only_what_tarn_took_is_known_of_them() {
    let mut world = World::new();
    world.mirror(&[idempotent(7, 40), sent(4, 0, 12)]);
    let ended = world.end().expect("nothing is in the way");
    let before = world.produce(7, 41);
    assert_eq!(before, Err(ErrorCode::POLICY_VIOLATION), "until the mirror's state says STOPPED");
    world.replica.set_known_state(KnownState::Known { state: MirrorState::Stopped, version: VERSION });
    assert_eq!(world.produce(1, 0), Ok(ended.log_end), "a fresh one begins at 0");
    assert_eq!(
        world.produce(7, 41),
        Ok(ended.log_end.plus(1)),
        "one from the source goes on with its sequence"
    );
    assert_eq!(world.produce(7, 41), Ok(ended.log_end.plus(1)), "it is recognised");
    assert_eq!(world.produce(7, 43), Err(ErrorCode(45)), "one is missing");
    assert_eq!(world.produce(4, 99), Ok(ended.log_end.plus(2)), "its transaction is forgotten");
    assert_eq!(world.replica.log().end(), ended.log_end.plus(3));
    let epochs: Vec<_> =
        world.batches_from(ended.log_end.0).iter().map(|b| b.header().leader_epoch).collect();
    assert_eq!(epochs, [HERE; 3]);
    assert!(world.replica.waits_for_flush(), "as its topic says");
    assert_eq!(world.replica.high_watermark(), ended.log_end, "what is not flushed yet is not seen");
}

#[test]
fn what_a_client_waits_for_is_not_confirmed_by_mirroring_the_topic_again() {
    let mut world = World::new();
    let ended = world.end().expect("nothing is in the way");
    world.flush();
    let state = |state, version| KnownState::Known { state, version };
    world.replica.set_known_state(state(MirrorState::Stopped, VERSION));
    let produced = world.produce(1, 0).expect("it is writable");
    assert_eq!(produced, ended.log_end);
    world.bind(Some((DesiredState::Mirroring, VERSION + 1)));
    world.replica.set_known_state(state(MirrorState::LogAlignment, VERSION + 1));
    assert_eq!(world.replica.high_watermark(), produced, "a power failure may still take it");
    assert!(world.replica.waits_for_flush(), "or nobody would ever flush it");
    world.flush();
    assert_eq!(world.replica.high_watermark(), produced.plus(1));
    assert!(!world.replica.waits_for_flush(), "from now on the source has what is appended");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However far an earlier try came, and whether the process or the machine died after it, the log and
    /// the answer are those of a try that nothing interrupted.
    #[test]
    fn an_end_that_was_interrupted_is_gone_on_from(
        open in 0usize..130,
        done in 0usize..140,
        restart in prop_oneof![Just(None), Just(Some(true)), Just(Some(false))],
        segment_bytes in prop_oneof![Just(400u32), Just(1 << 20)],
    ) {
        let mirrored: Vec<_> = (0..open as i64).map(|id| sent(id + 3, 0, 0)).collect();
        let mut whole = World::with(segment_bytes);
        whole.mirror(&mirrored);
        let expected = whole.end().expect("nothing is in the way");
        let end = whole.batches_from(open as i64);

        let mut world = World::with(segment_bytes);
        world.mirror(&mirrored);
        let done = &end[..done.min(end.len())];
        world.replica.log.append_own(done, Together::Few, NOW).expect("it follows");
        if let Some(clean) = restart {
            world.restart(clean);
        }
        prop_assert_eq!(&world.end().expect("it is gone on from"), &expected);
        prop_assert_eq!(&world.end().expect("it is ended"), &expected);
        prop_assert_eq!(world.batches_from(0), whole.batches_from(0));
        prop_assert!(world.replica.log().producers().is_empty());
    }
}

/// A partition whose mirror has left it: bound as stopping, its gate closed, its epoch raised.
struct World {
    replica: Replica,
    order: EndOrder,
    dir: Arc<LogDir>,
    disk: WatchedDisk,
    rules: Arc<TopicRules>,
    _files: TempDir,
}

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);
const VERSION: i64 = 7;
const SOURCE: Epoch = Epoch(3);
const HERE: Epoch = Epoch(9);
pub(crate) const ALONE: Leadership = Leadership { epoch: HERE, replicas: 1, in_sync: 1 };
const GENERATION: MirrorGeneration = MirrorGeneration(1);

/// The rules of a topic with one replica and segments of so many bytes, however old what is in them.
pub(crate) fn rules(segment_bytes: u32) -> Arc<TopicRules> {
    let (flush, segment_ms) = (FlushPolicy::Group, i64::MAX);
    let log = LogConfig { flush, segment_bytes, segment_ms, ..LogConfig::default() };
    Arc::new(TopicRules {
        log: Arc::new(log),
        max_message_bytes: 1_000_000,
        max_decompressed_bytes: 1_000_000,
        min_in_sync: 1,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        ..TopicRules::default()
    })
}

/// A new partition in `dir` that is bound as stopping and was filled with `batches`, and the order to end it.
pub(crate) fn stopping(
    dir: &Arc<LogDir>,
    partition: i32,
    rules: &Arc<TopicRules>,
    batches: &[Box<dyn Fn(Offset) -> ValidBatch>],
) -> (Replica, EndOrder) {
    let partition = TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) };
    let config = rules.log.clone();
    let log = Log::create(dir, "t", partition.partition, partition.topic_id, config, NOW).expect("it is new");
    let mut replica = Replica::new(partition, "t".into(), log, ALONE, Offset(0), rules.clone());
    bind(&mut replica, rules, Some((DesiredState::Stopping, VERSION)));
    let position = mirror(&mut replica, batches);
    let source_cluster_id = Some("source".into());
    (replica, EndOrder { partition, version: VERSION, position, source_cluster_id })
}

fn bind(replica: &mut Replica, rules: &Arc<TopicRules>, desired: Option<(DesiredState, i64)>) {
    let binding = desired.map(|(desired, version)| {
        let truncation = Truncation::Refused;
        Binding::new(tarn_image::Binding { mirror: "m".into(), desired, version, truncation })
    });
    replica.on_metadata(ALONE, rules.clone(), binding);
    replica.set_known_state(KnownState::Known { state: MirrorState::Stopping, version: VERSION });
}

fn set_gate(replica: &mut Replica, gate: Gate) {
    let order = GateOrder { partition: replica.partition(), gate, version: VERSION };
    assert!(replica.set_gate(&order, GENERATION));
}

/// Appends what the source has, and leaves the partition; its last mirror position.
fn mirror(replica: &mut Replica, batches: &[Box<dyn Fn(Offset) -> ValidBatch>]) -> LastPosition {
    set_gate(replica, Gate::Open);
    let offsets = replica.log().end().0..;
    let batches = batches.iter().zip(offsets).map(|(batch, offset)| in_epoch(SOURCE, batch(Offset(offset))));
    let append = MirrorAppend {
        partition: replica.partition(),
        generation: GENERATION,
        batches: batches.collect(),
        source_log_start: Offset(0),
        source_high_watermark: Offset(0),
    };
    let appended = replica.append_mirrored(&append, NOW);
    assert!(matches!(appended, MirrorAppended::Appended { .. }), "{appended:?}");
    set_gate(replica, Gate::Closed);
    LastPosition { epoch: replica.log().latest_epoch(), offset: replica.log().end() }
}

impl World {
    fn new() -> World {
        World::with(1 << 20)
    }

    fn with(segment_bytes: u32) -> World {
        let (files, disk) = (tempfile::tempdir().expect("a directory"), WatchedDisk::default());
        let dir = LogDir::open(disk.disk(), files.path(), Descriptors::new(100)).expect("it is new");
        let rules = rules(segment_bytes);
        let (replica, order) = stopping(&dir, 0, &rules, &[]);
        World { replica, order, dir, disk, rules, _files: files }
    }

    fn bind(&mut self, desired: Option<(DesiredState, i64)>) {
        bind(&mut self.replica, &self.rules, desired);
    }

    fn set_gate(&mut self, gate: Gate) {
        set_gate(&mut self.replica, gate);
    }

    /// Appends what the source has, and leaves the partition.
    fn mirror(&mut self, batches: &[Box<dyn Fn(Offset) -> ValidBatch>]) {
        self.order.position = mirror(&mut self.replica, batches);
    }

    fn look(&self) -> Behind {
        self.replica.look_behind(&self.order).expect("it may be ended").run().expect("it can be read")
    }

    fn end(&mut self) -> Result<LogEnded, NotEnded> {
        let behind = self.replica.look_behind(&self.order)?.run()?;
        self.replica.end_log(&self.order, &behind, Together::Few, NOW)
    }

    fn flush(&mut self) {
        let job = self.replica.flush_job().expect("there is something to flush");
        let flushed = job.run().expect("the disk works");
        self.replica.flushed(Ok(flushed)).expect("it is this log's");
    }

    /// The process ends, in order or not, and another opens the log.
    fn restart(&mut self, clean: bool) {
        if clean {
            Replica::close_all(std::slice::from_mut(&mut self.replica)).expect("the disk works");
        }
        let opening = Opening { clean, recovery_point: Offset(0), log_start: Offset(0) };
        let config = self.rules.log.clone();
        let opened = Log::open(&self.dir, "t", PartitionIndex(0), config, opening, NOW);
        let (partition, log) = (self.order.partition, opened.expect("its files are right").0);
        self.replica = Replica::new(partition, "t".into(), log, ALONE, Offset(0), self.rules.clone());
        self.bind(Some((DesiredState::Stopping, VERSION)));
    }

    /// Sends one record of an idempotent producer; its offset.
    fn produce(&mut self, id: i64, sequence: i32) -> Result<Offset, ErrorCode> {
        let batch = idempotent(id, sequence)(Offset(0));
        match self.replica.append(&of_client(&batch), Acks::Leader, NOW) {
            Ok(appended) => Ok(appended.duplicate_of.map_or(appended.first, |(first, _)| first)),
            Err(ProduceError::Refused(why)) => Err(why.code()),
            Err(ProduceError::NotEnoughReplicas { .. }) => Err(ErrorCode::NOT_ENOUGH_REPLICAS),
            Err(ProduceError::Append(why)) => Err(ErrorCode(why.code())),
        }
    }

    fn batches_from(&self, offset: i64) -> Vec<ValidBatch> {
        let log = self.replica.log();
        let plan =
            log.read(Offset(offset), 1 << 20, FirstBatch::MayBeLarger, log.end()).expect("it is there");
        let bytes = plan.read().expect("it can be read");
        tarn_record::batches(bytes).map(|batch| batch.expect("it is whole")).collect()
    }
}

fn aborted(id: i64, epoch: i16, first: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        first_offset: Offset(first),
    }
}

/// The source that a reset names.
fn source_of(reset: &ControlRecord) -> Option<String> {
    let mut value = Cursor::new(reset.value.clone());
    let version = value.get_i16().expect("the version stands before it");
    let record =
        <MirrorPidResetRecord as tarn_wire::Message>::decode(&mut value, version).expect("it is one");
    value.expect_end().expect("nothing follows");
    record.source_cluster_id.map(|id| id.to_string())
}

/// One record in a transaction.
pub(crate) fn sent(id: i64, epoch: i16, sequence: i32) -> Box<dyn Fn(Offset) -> ValidBatch> {
    one_record(id, epoch, sequence, true)
}

/// One record of an idempotent producer.
pub(crate) fn idempotent(id: i64, sequence: i32) -> Box<dyn Fn(Offset) -> ValidBatch> {
    one_record(id, 0, sequence, false)
}

fn plain(id: i64, sequence: i32) -> Box<dyn Fn(Offset) -> ValidBatch> {
    idempotent(id, sequence)
}

fn one_record(id: i64, epoch: i16, sequence: i32, transactional: bool) -> Box<dyn Fn(Offset) -> ValidBatch> {
    Box::new(move |offset| {
        let mut batch = BatchBuilder::new(offset, Compression::None).timestamp(NOW).producer(
            ProducerId(id),
            ProducerEpoch(epoch),
            Sequence(sequence),
        );
        if transactional {
            batch = batch.transactional();
        }
        batch.add(&Record { value: Some(b"value"), timestamp: NOW, ..Record::default() });
        ValidBatch::parse(batch.build()).expect("it is a batch")
    })
}

pub(crate) fn commit(id: i64, epoch: i16, coordinator_epoch: i32) -> Box<dyn Fn(Offset) -> ValidBatch> {
    end_of(id, epoch, coordinator_epoch, Outcome::Commit)
}

fn abort(id: i64, epoch: i16) -> Box<dyn Fn(Offset) -> ValidBatch> {
    end_of(id, epoch, 0, Outcome::Abort)
}

fn end_of(
    id: i64,
    epoch: i16,
    coordinator_epoch: i32,
    outcome: Outcome,
) -> Box<dyn Fn(Offset) -> ValidBatch> {
    let (producer_id, producer_epoch) = (ProducerId(id), ProducerEpoch(epoch));
    let end = EndTransaction { producer_id, producer_epoch, outcome, coordinator_epoch };
    Box::new(move |offset| {
        ValidBatch::parse(end_transaction_marker(&end, offset, SOURCE, NOW)).expect("it is a batch")
    })
}

fn reset_at(offset: Offset) -> ValidBatch {
    ValidBatch::parse(control_batch(ControlType::MirrorPidReset, &[0, 0, 0, 0], offset, HERE, NOW))
        .expect("it is a batch")
}

pub(crate) fn in_epoch(epoch: Epoch, batch: ValidBatch) -> ValidBatch {
    let stamp = tarn_record::Stamp::CreateTime { max_timestamp: batch.header().max_timestamp };
    batch.restamped(batch.header().base_offset, epoch, stamp).to_batch()
}

pub(crate) fn of_client(batch: &ValidBatch) -> ClientBatch {
    let rules = ProduceRules {
        max_batch_bytes: 1000,
        segment_bytes: i32::MAX as usize,
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        zstd_allowed: true,
        decompressed_limit: 1000,
        record_max: usize::MAX,
        recompress: None,
    };
    client_batch(batch.bytes().clone(), &rules, NOW).expect("it is a batch")
}
