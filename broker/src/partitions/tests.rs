//! Partitions on real logs, without a core around them.

use std::sync::Arc;

use futures_lite::future::{block_on, poll_once};
use tarn_image::DesiredState;
use tarn_image::mirrors::Truncation;
use tarn_log::producers::MarkerRule;
use tarn_log::{Ages, Descriptors, FlushJob, FlushPolicy, Log, LogConfig, LogDir, RealDisk};
use tarn_mirror::local_cluster::{Gate, GateOrder, KnownState, LocalError, MirrorAppend, MirrorAppended};
use tarn_mirror::state::MirrorState;
use tarn_record::builder::{BatchBuilder, EndTransaction, Outcome, Record, end_transaction_marker};
use tarn_record::validate::{ClientBatch, ProduceRules, client_batch};
use tarn_record::{
    Compression, Epoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp,
    TimestampType, TopicId,
};
use tarn_runtime::channel::{Reply, reply};
use tempfile::TempDir;

use super::*;
use crate::envelope::{Acks, AppendRequest, FetchRead, Marker, MarkerRequest, Produced};
use crate::interest::{InterestId, Scope, Wanted};
use crate::lookups::{ends, set_gates, set_known_states};
use crate::replica::{Binding, DeleteUpTo, Isolation, Leadership, Retained};
use crate::rules::TopicRules;

#[test]
fn acks_all_needs_the_minimum_of_replicas_in_sync_and_appends_nothing_without() {
    let mut world = World::new(Rules { min_in_sync: 2, flush: FlushPolicy::None });
    world.lead(0, Leadership { epoch: Epoch(1), replicas: 3, in_sync: 1 });
    let refused = world.produce(0, Acks::All);
    assert_eq!(refused.map(|produced| produced.error), Some(ErrorCode::NOT_ENOUGH_REPLICAS));
    assert_eq!(world.replica(0).log().end(), Offset(0));
    world.lead(1, Leadership { epoch: Epoch(1), replicas: 1, in_sync: 1 });
    let taken = world.produce(1, Acks::All);
    assert_eq!(taken.map(|produced| produced.error), Some(ErrorCode::NONE), "there is but one replica");
}

#[test]
fn what_comes_behind_a_batch_that_found_no_log_is_taken_after_it() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
    let produce = |world: &mut World, sequence| {
        let batch = BatchBuilder::new(Offset(0), Compression::None);
        let batch = batch.producer(ProducerId(7), ProducerEpoch(0), Sequence(sequence));
        let produced =
            at_once(&mut world.send_batch(0, record_in(batch), Acks::Leader)).expect("it is answered");
        (produced.error, produced.base_offset.0)
    };
    let turned_away = (ErrorCode::NOT_LEADER_OR_FOLLOWER, -1);
    assert_eq!(produce(&mut world, 3), turned_away);
    world.lead(0, ALONE);
    assert_eq!(
        produce(&mut world, 4),
        turned_away,
        "a producer of which nothing is known may begin anywhere"
    );
    assert_eq!(world.replica(0).log().end(), Offset(0));
    assert_eq!(
        [3, 4, 5].map(|sequence| produce(&mut world, sequence)),
        [0, 1, 2].map(|at| (ErrorCode::NONE, at))
    );
}

#[test]
fn below_the_minimum_in_sync_nothing_new_is_seen_until_replicas_are_back() {
    let mut world = World::new(Rules { min_in_sync: 2, flush: FlushPolicy::None });
    let alone = Leadership { epoch: Epoch(1), replicas: 3, in_sync: 1 };
    world.lead(0, alone);
    let taken = world.produce(0, Acks::Leader);
    assert_eq!(taken.map(|produced| produced.error), Some(ErrorCode::NONE));
    assert_eq!((world.replica(0).log().end(), world.replica(0).high_watermark()), (Offset(1), Offset(0)));
    let (partition, rules) = (world.partition(0), world.rules.clone());
    let replica = world.partitions.get_mut(partition).expect("it is led");
    replica.on_metadata(Leadership { in_sync: 2, ..alone }, rules, None);
    assert_eq!(world.replica(0).high_watermark(), Offset(1));
}

#[test]
fn a_mirror_is_told_whether_a_log_is_not_open_or_led_by_another_broker() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
    let append = |partition| MirrorAppend {
        partition,
        generation: MirrorGeneration(1),
        batches: Vec::new(),
        source_log_start: Offset(0),
        source_high_watermark: Offset(0),
    };
    let (unopened, elsewhere) = (world.partition(0), world.partition(1));
    let absence = |partition| match partition == unopened {
        true => LocalError::Storage { partition, reason: "it is not open".to_owned() },
        false => LocalError::NotLeader(partition),
    };
    let appends = [append(unopened), append(elsewhere)];
    let appended = appends.map(|append| world.partitions.append_mirrored(&append, Timestamp(0), absence));
    assert_eq!(appended, [MirrorAppended::Storage("it is not open".to_owned()), MirrorAppended::NotLeader]);
}

#[test]
fn a_promise_waits_for_its_own_flush_and_for_no_other() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::Group });
    (0..2).for_each(|partition| world.lead(partition, ALONE));
    world.produce(0, Acks::Leader);
    let slow = world.partitions.flush_job_of(world.partition(0)).expect("there is something to flush");
    let mut first = world.send(0, Acks::All);
    let mut second = world.send(1, Acks::All);
    let jobs = world.partitions.flush_jobs();
    let flushed: Vec<_> = jobs.iter().map(|(partition, _)| *partition).collect();
    assert_eq!(flushed, [world.partition(1)], "the other log is being flushed already");
    world.run(jobs);
    assert_eq!(at_once(&mut second).map(|produced| produced.error), Some(ErrorCode::NONE));
    assert_eq!(at_once(&mut first), None);
    world.run(vec![(world.partition(0), slow)]);
    assert_eq!(at_once(&mut first), None, "that flush began before it");
    let jobs = world.partitions.flush_jobs();
    world.run(jobs);
    assert_eq!(at_once(&mut first).map(|produced| produced.error), Some(ErrorCode::NONE));
}

#[test]
fn the_leaders_own_acknowledgement_waits_for_the_disk_where_each_append_is_flushed() {
    for (policy, waits) in [(FlushPolicy::Each, true), (FlushPolicy::Group, false)] {
        let mut world = World::new(Rules { min_in_sync: 1, flush: policy });
        world.lead(0, ALONE);
        let mut answer = world.send(0, Acks::Leader);
        let at_first = at_once(&mut answer);
        assert_eq!(at_first.is_none(), waits, "{policy:?}");
        let jobs = world.partitions.flush_jobs();
        world.run(jobs);
        let answered = at_first.or_else(|| at_once(&mut answer));
        assert_eq!(answered.map(|produced| produced.error), Some(ErrorCode::NONE));
        assert!(world.produce(0, Acks::None).is_none_or(|produced| produced.error == ErrorCode::NONE));
    }
}

#[test]
fn a_topic_is_flushed_after_so_many_records_though_nobody_waits() {
    let mut world = World::flushed_after(3, i64::MAX);
    world.lead(0, ALONE);
    for (wanted, records) in [(false, 1), (false, 2), (true, 3)] {
        assert_eq!(world.produce(0, Acks::All).map(|produced| produced.error), Some(ErrorCode::NONE));
        assert_eq!(world.partitions.wants_flush(), wanted, "{records}");
    }
    let jobs = world.partitions.flush_jobs();
    world.run(jobs);
    assert_eq!(world.replica(0).log().flushed_to(), Offset(3));
    world.produce(0, Acks::All);
    assert!(!world.partitions.wants_flush(), "it is counted anew");
}

#[test]
fn a_topic_is_flushed_after_a_time_though_nobody_waits() {
    let mut world = World::flushed_after(i64::MAX, 50);
    (0..2).for_each(|partition| world.lead(partition, ALONE));
    world.produce(0, Acks::All);
    let (early, late) = (Timestamp(NOW.0 + 49), Timestamp(NOW.0 + 50));
    assert_eq!(world.partitions.background_flush_due(early, u64::MAX), []);
    assert_eq!(world.partitions.background_flush_due(early, 1), [world.partition(0)], "it is too much");
    assert_eq!(world.partitions.background_flush_due(late, u64::MAX), [world.partition(0)]);
    let job = world.partitions.flush_job_of(world.partition(0)).expect("there is something to flush");
    assert_eq!(world.partitions.background_flush_due(late, u64::MAX), []);
    world.run(vec![(world.partition(0), job)]);
    assert_eq!(world.partitions.background_flush_due(Timestamp(i64::MAX), u64::MAX), []);
    world.produce(0, Acks::All);
    assert_eq!(world.partitions.background_flush_due(late, u64::MAX), [world.partition(0)], "again");
}

#[test]
fn a_replica_that_comes_back_unflushed_is_flushed_in_the_background() {
    let mut world = World::flushed_after(i64::MAX, 50);
    world.lead(0, ALONE);
    world.produce(0, Acks::All);
    let replica = world.partitions.remove(world.partition(0), ErrorCode::NONE).expect("it is led");
    assert_eq!(world.partitions.background_flush_due(NOW, 1), [], "it is gone");
    world.partitions.insert(replica);
    assert_eq!(world.partitions.background_flush_due(NOW, 1), [world.partition(0)]);
}

#[test]
fn a_replica_may_go_while_its_log_is_flushed_and_the_flush_is_known_until_it_ends() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::Group });
    world.lead(0, ALONE);
    let mut answer = world.send(0, Acks::All);
    let jobs = world.partitions.flush_jobs();
    let gone = world.partitions.remove(world.partition(0), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert!(gone.is_some() && world.partitions.is_flushing(world.partition(0)));
    let produced = at_once(&mut answer);
    assert_eq!(produced.map(|produced| produced.error), Some(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    world.run(jobs);
    assert!(!world.partitions.is_flushing(world.partition(0)));
}

#[test]
fn closed_partitions_answer_what_waits_and_take_nothing() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::Group });
    world.lead(0, ALONE);
    let mut waiting = world.send(0, Acks::All);
    assert_eq!(world.partitions.close().len(), 1);
    for mut answer in [at_once(&mut waiting), world.produce(0, Acks::Leader)] {
        assert_eq!(answer.take().map(|produced| produced.error), Some(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    }
    assert!(world.partitions.is_closed());
}

#[test]
fn a_look_that_is_taken_once_finds_what_is_there_and_leaves_no_trace() {
    let (mut world, wake) = (World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None }), Flag::default());
    let why = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(world.fetch(&wake, Scope::Once, why), [why]);
    world.lead(0, ALONE);
    assert_eq!(world.fetch(&wake, Scope::Once, why), [ErrorCode::NONE]);
    assert!(world.replica(0).watchers().is_empty());
    assert_eq!(world.fetch(&wake, Scope::News, why), [], "the session is not known");
    world.fetch(&wake, Scope::All, why);
    assert_eq!(world.replica(0).watchers().len(), 1);
}

#[test]
fn who_waits_on_a_partition_that_goes_is_told_at_once_and_why() {
    for why in [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION] {
        let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::Group });
        world.lead(0, ALONE);
        let wake = Flag::default();
        assert_eq!(world.fetch(&wake, Scope::All, why), [ErrorCode::NONE]);
        let mut produced = world.send(0, Acks::All);
        assert_eq!(world.fetch(&wake, Scope::News, why), []);
        world.partitions.arm(SESSION, &wake);
        assert!(!wake.is_raised(), "nothing is committed yet");
        world.partitions.remove(world.partition(0), why);
        assert_eq!(at_once(&mut produced).map(|produced| produced.error), Some(why));
        assert!(wake.is_raised());
        assert_eq!(world.fetch(&wake, Scope::News, why), [why]);
    }
}

#[test]
fn a_gate_is_set_once_no_client_can_write_and_every_opening_has_a_generation_of_its_own() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
    world.lead(0, ALONE);
    let partition = world.partition(0);
    let not_yet = Err(LocalError::NotLeader(partition));
    let order = |gate, version| GateOrder { partition, gate, version };
    let set = |world: &mut World, order| {
        set_gates(&mut world.partitions, &[order], LocalError::NotLeader).remove(0)
    };
    assert_eq!(set(&mut world, order(Gate::Closed, 1)), not_yet, "the binding is not known");
    assert_eq!(
        set_known_states(&mut world.partitions, &[(partition, KnownState::None)], LocalError::NotLeader),
        [not_yet.map(drop)]
    );
    world.bind(0, 1);
    assert_eq!(
        world.produce(0, Acks::Leader).map(|produced| produced.error),
        Some(ErrorCode::POLICY_VIOLATION)
    );
    assert!(
        set(&mut world, order(Gate::Closed, 2)).is_err(),
        "it may have let clients write under version 1"
    );
    let first = set(&mut world, order(Gate::Open, 1)).expect("it is bound");
    let gone = world.partitions.remove(partition, ErrorCode::NOT_LEADER_OR_FOLLOWER).expect("it was led");
    world.lead_log(0, gone.into_log(), ALONE);
    world.bind(0, 1);
    assert!(set(&mut world, order(Gate::Open, 1)).expect("it is bound") > first, "also when it comes back");
}

#[test]
fn mirroring_is_told_why_a_partition_is_not_here() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
    let partition = world.partition(0);
    let absence = |partition| LocalError::Storage { partition, reason: "no room".to_owned() };
    let why = absence(partition);
    let partitions = &mut world.partitions;
    assert_eq!(ends(partitions, &[partition], absence), [Err(why.clone())]);
    let order = GateOrder { partition, gate: Gate::Open, version: 1 };
    assert_eq!(set_gates(partitions, &[order], absence), [Err(why.clone())]);
    assert_eq!(set_known_states(partitions, &[(partition, KnownState::None)], absence), [Err(why)]);
}

#[test]
fn a_transaction_that_a_crash_made_us_read_again_holds_back_no_reader_below_the_watermark() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
    world.lead(0, ALONE);
    let mut log = world.partitions.remove(world.partition(0), ErrorCode::NONE).expect("it is led").into_log();
    let (id, epoch) = (ProducerId(7), ProducerEpoch(0));
    let mut data = BatchBuilder::new(Offset(0), Compression::None)
        .timestamp(NOW)
        .producer(id, epoch, Sequence(0))
        .transactional();
    data.add(&Record { value: Some(b"value"), timestamp: NOW, ..Record::default() });
    let end = EndTransaction {
        producer_id: id,
        producer_epoch: epoch,
        coordinator_epoch: 0,
        outcome: Outcome::Commit,
    };
    let bytes = [data.build(), end_transaction_marker(&end, Offset(1), Epoch(0), NOW)].concat();
    let batches: Vec<_> =
        tarn_record::batches(bytes.into()).map(|batch| batch.expect("it is whole")).collect();
    log.append_as_is(&batches, NOW).expect("they follow each other");
    let replica = Replica::new(world.partition(0), "t".into(), log, ALONE, Offset(2), world.rules.clone());
    assert_eq!((replica.high_watermark(), replica.last_stable_offset()), (Offset(2), Offset(2)));
}

#[test]
fn a_marker_is_answered_when_it_is_committed_and_tells_who_watches() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::Group });
    world.lead(0, ALONE);
    let wake = Flag::default();
    world.fetch(&wake, Scope::All, ErrorCode::NONE);
    let mut answer = world.mark(0, 0);
    assert_eq!(at_once(&mut answer), None, "it is not on the disk");
    world.fetch(&wake, Scope::News, ErrorCode::NONE);
    world.partitions.arm(SESSION, &wake);
    let jobs = world.partitions.flush_jobs();
    world.run(jobs);
    let answered = at_once(&mut answer).expect("it is committed");
    assert_eq!((answered.error, answered.base_offset), (ErrorCode::NONE, Offset(0)));
    assert!(wake.is_raised());
    let mut fenced = world.mark(0, -1);
    assert_eq!(
        at_once(&mut fenced).map(|answered| answered.error),
        Some(ErrorCode::TRANSACTION_COORDINATOR_FENCED)
    );
}

#[test]
fn a_marker_is_flushed_as_a_batch_is() {
    let mut world = World::flushed_after(1, 50);
    world.lead(0, ALONE);
    drop(world.mark(0, 0));
    assert!(world.partitions.wants_flush(), "the topic is flushed after each record");
    let late = Timestamp(NOW.0 + 50);
    assert_eq!(world.partitions.background_flush_due(late, u64::MAX), [world.partition(0)]);
}

#[test]
fn a_marker_needs_the_minimum_of_replicas_in_sync() {
    let mut world = World::new(Rules { min_in_sync: 2, flush: FlushPolicy::None });
    world.lead(0, Leadership { epoch: Epoch(1), replicas: 3, in_sync: 1 });
    let mut refused = world.mark(0, 0);
    assert_eq!(at_once(&mut refused).map(|answered| answered.error), Some(ErrorCode::NOT_ENOUGH_REPLICAS));
    assert_eq!(world.replica(0).log().end(), Offset(0));
}

#[test]
fn a_marker_for_a_mirrored_partition_is_answered_and_not_appended() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
    world.lead(0, ALONE);
    world.bind(0, 1);
    let mut answer = world.mark(0, 0);
    assert_eq!(at_once(&mut answer).map(|answered| answered.error), Some(ErrorCode::NONE));
    assert_eq!(world.replica(0).log().end(), Offset(0));
}

#[test]
fn what_a_mirror_rules_is_deleted_by_nobody_else_until_clients_may_write() {
    let mut world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
    world.lead(0, ALONE);
    let partition = world.partition(0);
    assert_eq!(world.produce(0, Acks::Leader).map(|produced| produced.error), Some(ErrorCode::NONE));
    for desired in [DesiredState::Mirroring, DesiredState::Paused, DesiredState::Stopping] {
        world.bind_as(0, desired, 1);
        for state in [MirrorState::Mirroring, MirrorState::Paused, MirrorState::Failed] {
            let known = KnownState::Known { state, version: 1 };
            set_known_states(&mut world.partitions, &[(partition, known)], LocalError::NotLeader);
            assert!(matches!(world.retain(0), Retained::Done), "{desired} {state:?}");
            let refused = world.delete_records(0, DeleteUpTo::HighWatermark);
            assert_eq!(refused, Err(ErrorCode::POLICY_VIOLATION), "{desired} {state:?}");
        }
    }
    assert_eq!(world.replica(0).log().start(), Offset(0));
    let stopped = KnownState::Known { state: MirrorState::Stopped, version: 1 };
    set_known_states(&mut world.partitions, &[(partition, stopped)], LocalError::NotLeader);
    assert!(matches!(world.retain(0), Retained::Dropped));
    assert_eq!(world.replica(0).log().start(), Offset(1));
    assert_eq!(world.delete_records(0, DeleteUpTo::Offset(Offset(0))), Ok(Offset(1)));
    assert!(!world.partitions.take_removals().is_empty());
}

#[test]
fn nothing_is_deleted_that_is_not_committed() {
    let mut world = World::new(Rules { min_in_sync: 2, flush: FlushPolicy::None });
    world.lead(0, Leadership { epoch: Epoch(1), replicas: 3, in_sync: 1 });
    assert_eq!(world.produce(0, Acks::Leader).map(|produced| produced.error), Some(ErrorCode::NONE));
    assert!(matches!(world.retain(0), Retained::Done));
    let one = world.delete_records(0, DeleteUpTo::Offset(Offset(1)));
    assert_eq!(one, Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    assert_eq!(world.delete_records(0, DeleteUpTo::HighWatermark), Ok(Offset(0)));
}

/// The partitions of one topic.
struct World {
    partitions: Partitions,
    dir: Arc<LogDir>,
    topic: TopicId,
    rules: Arc<TopicRules>,
    _files: TempDir,
}

struct Rules {
    min_in_sync: usize,
    flush: FlushPolicy,
}

impl World {
    fn new(rules: Rules) -> World {
        let files = tempfile::tempdir().expect("a directory");
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new");
        let log = LogConfig { flush: rules.flush, ..LogConfig::default() };
        let rules = TopicRules {
            log: Arc::new(log),
            max_message_bytes: 1_000_000,
            max_decompressed_bytes: 1_000_000,
            min_in_sync: rules.min_in_sync,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: i64::MAX,
            ..TopicRules::default()
        };
        World::in_dir(files, dir, rules)
    }

    /// A topic that is flushed after so many records or so long, in ms, and not to keep a promise.
    fn flushed_after(messages: i64, ms: i64) -> World {
        let world = World::new(Rules { min_in_sync: 1, flush: FlushPolicy::None });
        let rules = TopicRules { flush_messages: messages, flush_ms: ms, ..TopicRules::clone(&world.rules) };
        World { rules: Arc::new(rules), ..world }
    }

    fn in_dir(files: TempDir, dir: Arc<LogDir>, rules: TopicRules) -> World {
        let (topic, rules, partitions) = (TopicId::random(), Arc::new(rules), Partitions::default());
        World { partitions, dir, topic, rules, _files: files }
    }

    fn partition(&self, partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: self.topic, partition: PartitionIndex(partition) }
    }

    fn lead(&mut self, partition: i32, leadership: Leadership) {
        let named = self.partition(partition);
        let config = self.rules.log.clone();
        let log = Log::create(&self.dir, "t", named.partition, self.topic, config, NOW).expect("it is new");
        self.lead_log(partition, log, leadership);
    }

    fn lead_log(&mut self, partition: i32, log: Log, leadership: Leadership) {
        let named = self.partition(partition);
        let replica = Replica::new(named, "t".into(), log, leadership, Offset(0), self.rules.clone());
        self.partitions.insert(replica);
    }

    /// The metadata binds the partition to a mirror.
    fn bind(&mut self, partition: i32, version: i64) {
        self.bind_as(partition, DesiredState::Mirroring, version);
    }

    fn bind_as(&mut self, partition: i32, desired: DesiredState, version: i64) {
        let (named, rules) = (self.partition(partition), self.rules.clone());
        let desired =
            tarn_image::Binding { mirror: "m".into(), desired, version, truncation: Truncation::Refused };
        let replica = self.partitions.get_mut(named).expect("it is led");
        replica.on_metadata(ALONE, rules, Some(Binding::new(desired)));
    }

    /// A look of retention, after the default time has passed.
    fn retain(&mut self, partition: i32) -> Retained {
        let (partition, later) = (self.partition(partition), Timestamp(NOW.0 + 8 * 24 * 3_600_000));
        let retained = self.partitions.drop_expired(partition, &Ages::default(), later);
        retained.expect("it is led").expect("the disk works")
    }

    /// Where the log starts after it.
    fn delete_records(&mut self, partition: i32, upto: DeleteUpTo) -> Result<Offset, ErrorCode> {
        let deleted = self.partitions.delete_records(self.partition(partition), upto, NOW);
        deleted.expect("it is led").map(|entry| entry.log_start).map_err(|error| error.code())
    }

    fn replica(&self, partition: i32) -> &Replica {
        self.partitions.get(self.partition(partition)).expect("it is led")
    }

    /// Sends one record; where it is to be answered.
    fn send(&mut self, partition: i32, acks: Acks) -> Reply<Vec<Produced>> {
        self.send_batch(partition, one_record(), acks)
    }

    fn send_batch(&mut self, partition: i32, batch: ClientBatch, acks: Acks) -> Reply<Vec<Produced>> {
        let (slot, answer) = reply();
        let items = vec![(self.partition(partition), batch)];
        let request = AppendRequest { items, acks, deadline_ms: 1000, reply: slot };
        self.partitions.append(request, NOW, |_| ErrorCode::NOT_LEADER_OR_FOLLOWER);
        answer
    }

    /// Ends a transaction of producer 7 as a coordinator of this epoch says.
    fn mark(&mut self, partition: i32, coordinator_epoch: i32) -> Reply<Vec<Produced>> {
        let (slot, answer) = reply();
        let end = EndTransaction {
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(0),
            coordinator_epoch,
            outcome: Outcome::Abort,
        };
        let items = vec![(self.partition(partition), Marker { end, rule: MarkerRule::SameEpoch })];
        let request = MarkerRequest { items, deadline_ms: 1000, reply: slot };
        self.partitions.append_markers(request, NOW, |_| ErrorCode::NOT_LEADER_OR_FOLLOWER);
        answer
    }

    /// Sends one record; what is answered at once.
    fn produce(&mut self, partition: i32, acks: Acks) -> Option<Produced> {
        at_once(&mut self.send(partition, acks))
    }

    /// What a session of partition 0 is told, where a partition that has gone has gone for this reason.
    fn fetch(&mut self, wake: &Flag, scope: Scope, absence: ErrorCode) -> Vec<ErrorCode> {
        let (slot, mut answer) = reply();
        let wanted = Wanted {
            fetch_offset: Offset(0),
            max_bytes: 1000,
            current_leader_epoch: Epoch::NONE,
            last_fetched_epoch: Epoch::NONE,
        };
        let read = FetchRead {
            interest: SESSION,
            wake: wake.clone(),
            upserts: if scope == Scope::News { Vec::new() } else { vec![(self.partition(0), wanted)] },
            forgets: Vec::new(),
            requeue: Vec::new(),
            scope,
            max_bytes: 1000,
            isolation: Isolation::ReadUncommitted,
            reply: slot,
        };
        self.partitions.fetch(read, |_| absence);
        let found = block_on(poll_once(&mut answer)).expect("it does not wait").expect("it is answered");
        found.partitions.iter().map(|partition| partition.error).collect()
    }

    fn run(&mut self, jobs: Vec<(TopicIdPartition, FlushJob)>) {
        for (partition, job) in jobs {
            self.partitions.flushed(partition, job.run()).expect("the disk works");
        }
    }
}

const SESSION: InterestId = InterestId(1);
const ALONE: Leadership = Leadership { epoch: Epoch(1), replicas: 1, in_sync: 1 };
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn at_once(answer: &mut Reply<Vec<Produced>>) -> Option<Produced> {
    let produced = block_on(poll_once(answer))?;
    produced.expect("every request is answered").pop()
}

fn one_record() -> ClientBatch {
    record_in(BatchBuilder::new(Offset(0), Compression::None))
}

fn record_in(batch: BatchBuilder) -> ClientBatch {
    let mut batch = batch.timestamp(NOW);
    batch.add(&Record { value: Some(b"value"), timestamp: NOW, ..Record::default() });
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
    client_batch(batch.build(), &rules, NOW).expect("it is a batch")
}
