//! Cuts of logs on a core of the test's own, beside a node that runs.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use futures_lite::future::poll_once;
use tarn_image::DesiredState;
use tarn_log::limits::EXPORT_RESERVE_BYTES;
use tarn_log::{FlushPolicy, Log, LogConfig, LogDir, Opening};
use tarn_mirror::alignment::EpochEnd;
use tarn_mirror::local_cluster::{CountOrder, KnownState, LogEnds, NotedExport, Suffix};
use tarn_mirror::state::MirrorState;
use tarn_record::{BatchHeader, Epoch, Offset, PartitionIndex, ValidBatch};
use tarn_runtime::channel::{Flag, Reply, reply};
use tarn_runtime::yield_now;
use tarn_wire::ErrorCode;

use super::*;
use crate::envelope::{Acks, AppendRequest, Envelope, FetchRead, Produced};
use crate::interest::{FetchedPartition, InterestId, Scope, Wanted};
use crate::lone_core::{self, LoneCore};
use crate::replica::ending::tests::{NOW, commit, idempotent, of_client, rules, sent};
use crate::replica::truncating::tests::{bind, divergent};
use crate::replica::{Isolation, Replica};
use crate::rules::TopicRules;
use crate::watched_disk::WatchedDisk;

#[test]
fn what_is_cut_off_is_kept_in_files_and_stays_cut_off() {
    on_a_core(|mut world| async move {
        let orders: Vec<TruncateOrder> = (0..5).map(|number| world.lead(number, &local())).collect();
        let before: Vec<Vec<u8>> = (0..5).map(|number| world.bytes_of(number)).collect();
        let cut = world.cut(&orders).await;
        for ((number, cut), before) in (0..).zip(cut).zip(&before) {
            let cut = cut.expect("nothing is in the way");
            let export = cut.export.expect("there was something to keep");
            assert_eq!((cut.log_end, export.from, export.to), (Offset(1), Offset(1), Offset(5)));
            assert_eq!(export.records, 3, "the commit is no record of an application");
            let kept = world.bytes_of(number);
            let file = format!("{}/{:020}.log", export.path, 1);
            let exported = fs::read(file).expect("it is there");
            assert_eq!(exported.len() as u64, export.bytes);
            assert_eq!([kept, exported].concat(), *before, "to the byte");
            let partitions = world.core.partitions();
            let log = partitions.get(orders[number as usize].partition).expect("it is led").log();
            assert_eq!((log.flushed_to(), log.end()), (Offset(1), Offset(1)));
        }
        // The process dies here.
        for order in &orders {
            drop(world.core.partitions().remove(order.partition, ErrorCode::NOT_LEADER_OR_FOLLOWER));
            let log = world.open(order.partition.partition);
            assert_eq!((log.end(), log.producers().len()), (Offset(1), 1));
        }
    });
}

#[test]
fn every_order_gets_its_own_answer() {
    on_a_core(|mut world| async move {
        let mut orders: Vec<TruncateOrder> = (0..3).map(|number| world.lead(number, &local())).collect();
        orders[0].version += 1;
        let absent = TopicIdPartition { partition: PartitionIndex(99), ..orders[0].partition };
        orders.insert(1, TruncateOrder { partition: absent, ..orders[0] });
        let cut = world.cut(&orders).await;
        assert!(
            matches!(&cut[0], Err(LocalError::NotTruncated { partition, .. }) if *partition == orders[0].partition)
        );
        assert_eq!(cut[1], Err(LocalError::NotLeader(absent)));
        assert!(cut[2..].iter().all(Result::is_ok), "{cut:?}");
        let again = world.cut(&orders[2..3]).await;
        assert!(
            matches!(&again[0], Err(LocalError::NotTruncated { .. })),
            "it ends elsewhere now: {again:?}"
        );
    });
}

#[test]
fn where_exports_cannot_be_written_nothing_is_cut() {
    on_a_core(|mut world| async move {
        let orders: Vec<TruncateOrder> = (0..2).map(|number| world.lead(number, &local())).collect();
        fs::write(world.exports(), b"no directory").expect("it can be written");
        for cut in world.cut(&orders).await {
            assert!(matches!(&cut, Err(LocalError::Export { .. })), "{cut:?}");
        }
        fs::remove_file(world.exports()).expect("it is there");
        // What the cut itself and the node's own logs need is not for copies.
        for bytes in [100, EXPORT_RESERVE_BYTES] {
            world.disk.says_it_has(bytes);
            let (room, kept) =
                (format!("room for {bytes}"), format!("beside {EXPORT_RESERVE_BYTES} that are kept"));
            for cut in world.cut(&orders).await {
                let Err(LocalError::Export { reason, .. }) = &cut else { panic!("{cut:?}") };
                assert!(reason.contains(&room) && reason.contains(&kept), "{reason}");
            }
        }
        assert!(orders.iter().all(|order| world.end_of(order.partition) == Offset(5)));
        world.disk.says_it_has(u64::MAX);
        assert!(world.cut(&orders).await.iter().all(Result::is_ok));
    });
}

#[test]
fn a_cut_that_cannot_be_flushed_is_a_cut_and_says_where_the_rest_is_kept() {
    on_a_core(|mut world| async move {
        let mut unflushed = 0;
        for (number, syncs) in (0..8).enumerate() {
            let order = world.lead(number as i32, &local());
            world.disk.syncs_only(syncs);
            let cut = world.cut(&[order]).await.remove(0);
            world.disk.syncs_only(i64::MAX);
            let end = world.end_of(order.partition);
            match cut {
                Ok(LogTruncated { log_end, export: Some(export), unflushed: why }) => {
                    assert_eq!((end, log_end, export.records), (Offset(1), Offset(1), 3));
                    assert!(fs::exists(&*export.path).is_ok_and(|is_there| is_there));
                    unflushed += i32::from(why.is_some());
                }
                other => {
                    assert!(other.is_err() && end == Offset(5), "{syncs}: {other:?} and {end}");
                    assert_eq!(unflushed, 0, "that needs fewer syncs");
                }
            }
        }
        assert!(unflushed > 0, "what a flush syncs comes last");
    });
}

#[test]
fn a_core_serves_its_other_partitions_while_it_copies() {
    on_a_core(|mut world| async move {
        let (order, other) = (world.lead(0, &local()), world.lead(1, &local()));
        let go_on = Flag::default();
        world.disk.hold_until(go_on.clone());
        let mut answer = world.order(&[order]);
        for _ in 0..100 {
            yield_now().await;
            let (slot, ends) = reply();
            world.core.handle(Envelope::Ends(vec![other.partition], slot));
            let ends: Vec<Result<LogEnds, LocalError>> = ends.await.expect("it is answered");
            assert_eq!(ends[0].as_ref().map(|ends| ends.log_end), Ok(Offset(5)));
            assert!(poll_once(&mut answer).await.is_none());
            assert_eq!(world.end_of(order.partition), Offset(5), "nothing goes before it is copied");
        }
        go_on.raise();
        assert!(answer.await.expect("it is answered")[0].is_ok());
    });
}

#[test]
fn a_partition_that_is_no_longer_to_be_cut_when_it_is_copied_is_not_and_its_copy_goes() {
    type Change = fn(&World, &TruncateOrder);
    let changes: [(bool, Change); 2] = [
        (true, |world, order| {
            drop(world.core.partitions().remove(order.partition, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }),
        (false, |world, order| {
            let mut partitions = world.core.partitions();
            let replica = partitions.get_mut(order.partition).expect("it is led");
            bind(replica, &world.rules, Some((DesiredState::Stopping, order.version + 1)));
        }),
    ];
    for (goes, change) in changes {
        on_a_core(move |mut world| async move {
            let order = world.lead(0, &local());
            let go_on = Flag::default();
            world.disk.hold_until(go_on.clone());
            let answer = world.order(&[order]);
            while !world.exports().join("t-0").exists() {
                yield_now().await;
            }
            change(&world, &order);
            go_on.raise();
            let answer = answer.await.expect("it is answered").remove(0);
            match answer {
                Err(LocalError::NotLeader(_)) => assert!(goes),
                Err(LocalError::NotTruncated { .. }) => {
                    assert!(!goes);
                    assert_eq!(world.end_of(order.partition), Offset(5));
                }
                other => panic!("{other:?}"),
            }
            let copies = fs::read_dir(world.exports().join("t-0")).expect("it was made").count();
            assert_eq!(copies, 0);
        });
    }
}

#[test]
fn a_copy_is_given_up_once_its_log_is_not_to_be_cut_any_more() {
    on_a_core(|mut world| async move {
        let order = world.lead(0, &local());
        let go_on = Flag::default();
        world.disk.hold_until(go_on.clone());
        let answer = world.order(&[order]);
        while !world.exports().join("t-0").exists() {
            yield_now().await;
        }
        let before = world.disk.log_writes();
        {
            let mut partitions = world.core.partitions();
            let replica = partitions.get_mut(order.partition).expect("it is led");
            bind(replica, &world.rules, Some((DesiredState::Stopping, order.version + 1)));
        }
        // It looks so often; nothing else tells when it has.
        sleep(limits::COPY_LOOK_INTERVAL * 3).await;
        go_on.raise();
        let cut = answer.await.expect("it is answered").remove(0);
        assert!(matches!(&cut, Err(LocalError::NotTruncated { .. })), "{cut:?}");
        assert_eq!(world.disk.log_writes(), before, "not a byte was copied");
        assert_eq!(fs::read_dir(world.exports().join("t-0")).expect("it was made").count(), 0);
        assert_eq!(world.end_of(order.partition), Offset(5));
    });
}

#[test]
fn a_node_that_stops_does_not_wait_for_a_copy() {
    on_a_core(|mut world| async move {
        let order = world.lead(0, &local());
        let go_on = Flag::default();
        world.disk.hold_until(go_on.clone());
        let answer = world.order(&[order]);
        while !world.exports().join("t-0").exists() {
            yield_now().await;
        }
        let (slot, closed) = reply();
        world.core.handle(Envelope::Close(slot));
        while !world.core.partitions().is_closed() {
            yield_now().await;
        }
        go_on.raise();
        let cut = answer.await.expect("it is answered").remove(0);
        assert!(
            matches!(&cut, Err(LocalError::Export { reason, .. }) if reason.contains("given up")),
            "{cut:?}"
        );
        assert_eq!(closed.await.expect("it is answered").len(), 1);
        assert_eq!(fs::read_dir(world.exports().join("t-0")).expect("it was made").count(), 0);
    });
}

#[test]
fn who_waits_at_the_end_of_a_log_is_told_when_it_is_cut_off() {
    on_a_core(|mut world| async move {
        let order = world.lead(0, &local());
        // As long as it is in flight no other flush confirms anything.
        let flush = world.core.partitions().flush_job_of(order.partition).expect("nothing is flushed yet");
        let mut produced = world.produce_before_it_is_mirrored_again(&order);
        let (wake, order) = (Flag::default(), TruncateOrder { log_end: Offset(6), ..order });
        let fetched = world.fetch(&order, &wake, Scope::All).await;
        assert_eq!(fetched[0].error, ErrorCode::NONE);
        world.fetch(&order, &wake, Scope::News).await;
        world.core.partitions().arm(SESSION, &wake);
        assert!(!wake.is_raised() && poll_once(&mut produced).await.is_none());
        let cut = world.order(&[order]);
        let produced = produced.await.expect("it is answered");
        assert_eq!(produced[0].error, ErrorCode::NOT_LEADER_OR_FOLLOWER, "its record is gone");
        assert!(wake.is_raised());
        let fetched = world.fetch(&order, &wake, Scope::News).await;
        assert_eq!(fetched[0].error, ErrorCode::OFFSET_OUT_OF_RANGE);
        world.core.partitions().flushed(order.partition, flush.run()).expect("the disk works");
        world.core.flush_ended().notify_all();
        let cut = cut.await.expect("it is answered").remove(0).expect("nothing is in the way");
        assert_eq!(cut.export.map(|export| export.to), Some(Offset(6)));
        assert_eq!(world.end_of(order.partition), Offset(1));
    });
}

#[test]
fn a_log_is_looked_up_from_behind() {
    on_a_core(|mut world| async move {
        let partition = world.lead(0, &local()).partition;
        let absent = TopicIdPartition { partition: PartitionIndex(99), ..partition };
        let places = [(partition, Offset(4)), (absent, Offset(4)), (partition, Offset(0))];
        let (slot, found) = reply();
        world.core.handle(Envelope::BatchesBelow(places.to_vec(), slot));
        let found: Vec<Result<Option<BatchHeader>, LocalError>> = found.await.expect("it is answered");
        let base = |found: &Result<Option<BatchHeader>, LocalError>| {
            found.clone().map(|found| found.map(|header| header.base_offset))
        };
        let not_here = LocalError::NotLeader(absent);
        assert_eq!(
            found.iter().map(base).collect::<Vec<_>>(),
            [Ok(Some(Offset(3))), Err(not_here.clone()), Ok(None)]
        );
        let (slot, counted) = reply();
        let count = |(partition, from)| CountOrder { partition, from, records_max: 5 };
        let mut orders = places.map(count).to_vec();
        orders.push(CountOrder { records_max: 2, ..orders[2] });
        world.core.handle(Envelope::Suffixes(orders.clone(), slot));
        let suffix = |records, control_records, has_more| Ok(Suffix { records, control_records, has_more });
        let expected = [suffix(1, 0, false), Err(not_here.clone()), suffix(4, 1, false), suffix(2, 0, true)];
        assert_eq!(counted.await.expect("it is answered"), expected);
        world.core.closing().raise();
        let (slot, counted) = reply();
        world.core.handle(Envelope::Suffixes(orders[2..3].to_vec(), slot));
        assert_eq!(counted.await.expect("it is answered"), [suffix(0, 0, true)], "the core closes");
        let asked = [(partition, 7), (absent, 7), (partition, 4), (partition, 5)];
        let asked = asked.map(|(partition, epoch)| (partition, Epoch(epoch)));
        let (slot, ends) = reply();
        world.core.handle(Envelope::LocalEpochEnds(asked.to_vec(), slot));
        let end = |epoch, end| Ok(EpochEnd { epoch: Epoch(epoch), end: Offset(end) });
        assert_eq!(ends.await.expect("it is answered"), [end(-1, -1), Err(not_here), end(4, 0), end(5, 5)]);
    });
}

#[test]
fn what_was_exported_is_noted_beside_the_log_that_was_truncated_and_no_other() {
    on_a_core(|mut world| async move {
        let orders: Vec<TruncateOrder> = (0..3).map(|number| world.lead(number, &local())).collect();
        let cut = world.cut(&orders[..1]).await.remove(0).expect("nothing is in the way");
        // Of the second the copy is made and discarded.
        let go_on = Flag::default();
        world.disk.hold_until(go_on.clone());
        let answer = world.order(&orders[1..2]);
        while !world.exports().join("t-1").exists() {
            yield_now().await;
        }
        let partition = orders[1].partition;
        bind(
            world.core.partitions().get_mut(partition).expect("it is led"),
            &world.rules,
            Some((DesiredState::Stopping, 99)),
        );
        go_on.raise();
        assert!(answer.await.expect("it is answered").remove(0).is_err());
        let noted = |export: &Export| NotedExport { version: orders[0].version, export: export.clone() };
        let expected = [Ok(cut.export.as_ref().map(noted)), Ok(None), Ok(None)];
        assert_eq!(world.noted(&orders).await, expected);
        // The process dies here.
        world.core.partitions().remove(orders[0].partition, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        let log = world.open(orders[0].partition.partition);
        let note = log.noted_export().run().expect("it can be read").expect("it was truncated");
        assert_eq!((note.version, note.from, note.to), (orders[0].version, Offset(1), Offset(5)));
        assert_eq!(Some(note.path.display().to_string()), cut.export.map(|export| export.path.to_string()));
    });
}

#[test]
fn a_batch_that_is_not_what_was_written_is_no_answer_to_who_compares() {
    on_a_core(|mut world| async move {
        let partition = world.lead(0, &local()).partition;
        let newest = async |world: &World| {
            let (slot, found) = reply();
            world.core.handle(Envelope::NewestBatches(vec![partition], slot));
            found.await.expect("it is answered").remove(0)
        };
        let read = async |world: &World| {
            let (slot, found) = reply();
            world.core.handle(Envelope::BatchesBelow(vec![(partition, Offset(5))], slot));
            found.await.expect("it is answered").remove(0)
        };
        assert_eq!(read(&world).await, newest(&world).await);
        let file = world.dir.path().join("t-0").join(format!("{:020}.log", 0));
        let mut bytes = world.bytes_of(0);
        *bytes.last_mut().expect("it is filled") ^= 1;
        fs::write(file, bytes).expect("there is room");
        assert!(newest(&world).await.is_ok(), "its header is right");
        let said = read(&world).await.expect_err("its bytes are not").to_string();
        assert!(said.contains("is damaged at byte"), "{said}");
    });
}

const SESSION: InterestId = InterestId(1);

type Batches = Vec<Box<dyn Fn(Offset) -> ValidBatch>>;

/// A record of the source's, and four offsets that only this cluster has.
fn local() -> Batches {
    vec![idempotent(7, 0), idempotent(8, 0), sent(4, 0, 0), commit(4, 0, 0), idempotent(8, 1)]
}

/// A core that leads what a test gives it.
struct World {
    core: Rc<Core>,
    disk: WatchedDisk,
    dir: Arc<LogDir>,
    rules: Arc<TopicRules>,
}

impl World {
    /// Leads a partition with these batches; the order to cut off all but the first.
    fn lead(&mut self, partition: i32, batches: &Batches) -> TruncateOrder {
        let (replica, order) = divergent(&self.dir, partition, &self.rules, batches);
        self.core.partitions().insert(replica);
        order
    }

    fn order(&self, orders: &[TruncateOrder]) -> Reply<Vec<Result<LogTruncated, LocalError>>> {
        let (slot, answer) = reply();
        self.core.handle(Envelope::TruncateLogs(orders.to_vec(), slot));
        answer
    }

    async fn cut(&self, orders: &[TruncateOrder]) -> Vec<Result<LogTruncated, LocalError>> {
        self.order(orders).await.expect("it is answered")
    }

    async fn noted(&self, orders: &[TruncateOrder]) -> Vec<Result<Option<NotedExport>, LocalError>> {
        let (slot, noted) = reply();
        let partitions = orders.iter().map(|order| order.partition).collect();
        self.core.handle(Envelope::NotedExports(partitions, slot));
        noted.await.expect("it is answered")
    }

    fn exports(&self) -> PathBuf {
        self.core.node().exports().path().to_owned()
    }

    fn end_of(&self, partition: TopicIdPartition) -> Offset {
        self.core.partitions().get(partition).expect("it is led").log().end()
    }

    fn bytes_of(&self, partition: i32) -> Vec<u8> {
        let file = self.dir.path().join(format!("t-{partition}")).join(format!("{:020}.log", 0));
        fs::read(file).expect("it is there")
    }

    /// Opens a log as after a crash.
    fn open(&self, partition: PartitionIndex) -> Log {
        let opening = Opening { clean: false, recovery_point: Offset(5), log_start: Offset(0) };
        let config: Arc<LogConfig> = self.rules.log.clone();
        Log::open(&self.dir, "t", partition, config, opening, NOW).expect("its files are right").0
    }

    /// While the topic was a promoted one, a client has sent a record; it is not on the disk yet.
    fn produce_before_it_is_mirrored_again(&self, order: &TruncateOrder) -> Reply<Vec<Produced>> {
        assert_eq!(self.rules.log.flush, FlushPolicy::Group);
        let rebind = |replica: &mut Replica, desired, version| {
            bind(replica, &self.rules, Some((desired, version)));
            replica.set_known_state(KnownState::Known { state: MirrorState::Stopped, version });
        };
        let mut partitions = self.core.partitions();
        rebind(
            partitions.get_mut(order.partition).expect("it is led"),
            DesiredState::Stopped,
            order.version - 1,
        );
        let (slot, answer) = reply();
        let batch = of_client(&idempotent(9, 0)(Offset(0)));
        let (items, deadline_ms) = (vec![(order.partition, batch)], u64::MAX);
        let request = AppendRequest { items, acks: Acks::All, deadline_ms, reply: slot };
        partitions.append(request, NOW, |_| ErrorCode::NOT_LEADER_OR_FOLLOWER);
        rebind(
            partitions.get_mut(order.partition).expect("it is led"),
            DesiredState::Mirroring,
            order.version,
        );
        answer
    }

    /// What a session is told that has read the log to its end.
    async fn fetch(&self, order: &TruncateOrder, wake: &Flag, scope: Scope) -> Vec<FetchedPartition> {
        let wanted = Wanted {
            fetch_offset: Offset(5),
            max_bytes: 1000,
            current_leader_epoch: Epoch::NONE,
            last_fetched_epoch: Epoch::NONE,
        };
        let (slot, answer) = reply();
        let read = FetchRead {
            interest: SESSION,
            wake: wake.clone(),
            upserts: if scope == Scope::All { vec![(order.partition, wanted)] } else { Vec::new() },
            forgets: Vec::new(),
            requeue: Vec::new(),
            scope,
            max_bytes: 1000,
            isolation: Isolation::ReadUncommitted,
            reply: slot,
        };
        self.core.handle(Envelope::Fetch(read));
        answer.await.expect("it is answered").partitions
    }
}

/// Runs `test` on a core of its own.
fn on_a_core<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F + Send + 'static) {
    lone_core::run(|LoneCore { core, disk, dir }| test(World { core, disk, dir, rules: rules(1 << 20) }));
}
