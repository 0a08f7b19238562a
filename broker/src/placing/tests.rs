//! Deletions on a core of the test's own, beside a node that runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_image::Provenance;
use tarn_log::Descriptors;
use tarn_quorum::ImageUpdate;
use tarn_record::{BatchBuilder, Compression, Epoch, PartitionIndex, Record, ValidBatch};
use tarn_runtime::channel::Flag;
use tarn_runtime::{Queue, blocking_long, sleep, spawn, yield_now};
use tarn_wire::MetadataRecord;
use tarn_wire::messages::{ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord};
use uuid::Uuid;

use super::*;
use crate::interest::{InterestId, Scope};
use crate::lone_core;
use crate::published::Published;
use crate::replica::ending::tests::{ALONE, rules};

const NAME: &str = "made.again";
const OLD: TopicIdPartition = partition(7);
const NEW: TopicIdPartition = partition(8);

#[test]
fn a_log_that_is_being_recovered_is_deleted_when_that_has_ended_and_nobody_waits_for_it() {
    lone_core::run(|world| async move {
        let (core, published) = (world.core, Arc::new(Published::default()));
        let path = left_by_a_crash(&core, NAME, OLD);
        let go_on = Flag::default();
        let held = go_on.clone();
        // Logs are recovered in this lane.
        spawn(Queue::Background, blocking_long(move || held.raised_blocking())).detach();
        let mut image = MetadataImage::default();
        change_to(&mut image, 1, &made(NAME, OLD));
        core.begin(Arc::new(image.clone())).await;
        spawn(Queue::Network, core.clone().follow(published.clone())).detach();
        while !core.unopened().under_way().contains(&OLD) {
            yield_now().await;
        }
        let mut records = vec![RemoveTopicRecord { topic_id: OLD.topic_id.0 }.into()];
        records.extend(made(NAME, NEW));
        let delta = change_to(&mut image, 2, &records);
        published.publish(ImageUpdate { image: Arc::new(image), delta: Arc::new(delta) });
        core.image_at(Offset(2)).await;
        assert!(core.unopened().under_way().contains(&OLD));
        assert!(path.exists(), "who reads it cuts its files");
        assert!(core.unopened().contains(NEW), "the next topic of the name has its turn after that");
        go_on.raise();
        while core.partitions().get(NEW).is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(core.partitions().get(NEW).map(|replica| replica.log().topic_id()), Some(NEW.topic_id));
        assert!(core.partitions().get(OLD).is_none() && !core.unopened().contains(OLD));
    });
}

/// The core of the older topic is late: it has not heard of its deletion, and had not come to recover its log.
#[test]
fn the_next_topic_of_a_name_does_not_wait_for_the_recovery_of_the_older_one_and_keeps_its_place() {
    lone_core::run(|world| async move {
        let (core, mut image) = (world.core, MetadataImage::default());
        let path = left_by_a_crash(&core, NAME, OLD);
        change_to(&mut image, 1, &made(NAME, NEW));
        core.begin(Arc::new(image)).await;
        assert!(core.partitions().get(NEW).is_some(), "{:?}", core.unopened());
        let old = path.with_file_name(format!("{NAME}-0.{:032x}-delete", OLD.topic_id.0.as_u128()));
        assert!(old.exists() && path.exists(), "it was deleted in order: nobody has to look at it");
        let log_dirs = core.node().log_dirs();
        assert!(log_dirs.take_deleted(NAME, OLD).is_none());
        log_dirs.forget(NAME, OLD.partition, OLD.topic_id);
        let entry = core.partitions().get(NEW).map(CheckpointEntry::of).expect("it is there");
        assert_eq!(log_dirs.keep_starts(&[entry]), [Ok(())]);
    });
}

#[test]
fn a_topic_is_deleted_though_a_disk_does_not_answer_who_reads_it_and_nobody_else_waits() {
    lone_core::run(|world| async move {
        let (core, published) = (world.core.clone(), Arc::new(Published::default()));
        let (wake, answers) = (Flag::default(), Flag::default());
        let other = TopicIdPartition { partition: PartitionIndex(1), ..OLD };
        let mut image = MetadataImage::default();
        change_to(&mut image, 1, &made(NAME, OLD));
        core.begin(Arc::new(image.clone())).await;
        let path = world.dir.path().with_file_name("slow");
        let slow = LogDir::open(world.disk.disk(), &path, Descriptors::new(1)).expect("it is new");
        drop(core.partitions().remove(OLD, ErrorCode::KAFKA_STORAGE_ERROR));
        core.partitions().insert(led(&slow, OLD));
        core.partitions().insert(led(&world.dir, other));
        spawn(Queue::Network, core.clone().follow(published.clone())).detach();
        world.disk.opens_slowly("slow/made.again-0/00000000000000000000.log", answers.clone());
        let read = world.fetch((InterestId(1), &wake), &[(OLD, Offset(0))], Scope::All).await;
        assert_eq!(read.lookups, 1);
        world.disk.has_begun(1).await;
        let delta = change_to(&mut image, 2, &[RemoveTopicRecord { topic_id: OLD.topic_id.0 }.into()]);
        published.publish(ImageUpdate { image: Arc::new(image), delta: Arc::new(delta) });
        core.image_at(Offset(2)).await;
        assert!(core.partitions().get(OLD).is_none());
        let read = world.fetch((InterestId(2), &wake), &[(other, Offset(0))], Scope::All).await;
        assert!(!read.partitions[0].records.is_empty());
        let (log_dirs, name) = (core.node().log_dirs(), path.join(format!("{NAME}-0")));
        assert!(log_dirs.is_held(NAME, NEW) && name.exists(), "it has its name until that was answered");
        answers.raise();
        while log_dirs.is_held(NAME, NEW) {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(!name.exists() && names(&path).iter().any(|name| name.ends_with("-delete")));
    });
}

#[test]
fn the_files_of_a_topic_that_was_never_opened_go_after_its_own_delay() {
    lone_core::run(|world| async move {
        let (core, published) = (world.core, Arc::new(Published::default()));
        let path = left_by_a_crash(&core, NAME, OLD);
        // Its turn does not come.
        core.unopened().stop();
        let mut image = MetadataImage::default();
        let mut records = made(NAME, OLD);
        records.push(config(2, NAME, "file.delete.delay.ms", "0"));
        change_to(&mut image, 1, &records);
        core.begin(Arc::new(image.clone())).await;
        assert!(core.unopened().contains(OLD));
        spawn(Queue::Network, core.clone().follow(published.clone())).detach();
        let delta = change_to(&mut image, 2, &[RemoveTopicRecord { topic_id: OLD.topic_id.0 }.into()]);
        published.publish(ImageUpdate { image: Arc::new(image), delta: Arc::new(delta) });
        core.image_at(Offset(2)).await;
        let parent = path.parent().expect("a log directory");
        while names(parent).iter().any(|name| name.starts_with(NAME)) {
            sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn topics_are_gone_through_only_where_what_they_fall_back_to_has_changed() {
    lone_core::run(|world| async move {
        let (core, published) = (world.core, Arc::new(Published::default()));
        let mut image = MetadataImage::default();
        change_to(&mut image, 1, &made(NAME, OLD));
        core.begin(Arc::new(image.clone())).await;
        spawn(Queue::Network, core.clone().follow(published.clone())).detach();
        let topic = core.view().topic_by_id(OLD.topic_id).expect("it is there").clone();
        let mut rules = vec![core.rules(&topic)];
        let changes = [("max.connections", "10"), ("log.retention.ms", "5"), ("log.cleaner.threads", "2")];
        for (offset, (key, value)) in (2..).zip(changes) {
            let delta = change_to(&mut image, offset, &[config(4, "", key, value)]);
            published.publish(ImageUpdate { image: Arc::new(image.clone()), delta: Arc::new(delta) });
            core.image_at(Offset(offset)).await;
            rules.push(core.rules(&topic));
        }
        let are_kept: Vec<_> = rules.windows(2).map(|two| Arc::ptr_eq(&two[0], &two[1])).collect();
        assert_eq!(are_kept, [true, false, true]);
        let in_force = core.partitions().get(OLD).map(|replica| replica.rules().retention);
        assert_eq!(in_force.flatten().and_then(|retention| retention.ms), Some(5));
    });
}

fn config(kind: i8, name: &str, key: &str, value: &str) -> MetadataRecord {
    let record = ConfigRecord {
        resource_type: kind,
        resource_name: name.into(),
        name: key.into(),
        value: Some(value.into()),
    };
    record.into()
}

/// A replica on a log of some segments, none of which was read yet.
fn led(dir: &Arc<LogDir>, of: TopicIdPartition) -> Replica {
    let (rules, now) = (rules(100), Timestamp(0));
    let config = rules.log.clone();
    let mut log = Log::create(dir, NAME, of.partition, of.topic_id, config.clone(), now).expect("it is new");
    for _ in 0..3 {
        log.append_as_leader_raw(&batch(60), Epoch(0), now).expect("there is room");
    }
    let end = log.end();
    log.close().expect("the disk works");
    drop(log);
    let opening = Opening { clean: true, recovery_point: end, log_start: Offset(0) };
    let (log, _) = Log::open(dir, NAME, of.partition, config, opening, now).expect("it was closed");
    Replica::new(of, NAME.into(), log, ALONE, end, rules)
}

pub(super) fn batch(bytes: usize) -> ValidBatch {
    let mut batch = BatchBuilder::new(Offset(0), Compression::None);
    batch.add(&Record { value: Some(&vec![7; bytes]), ..Record::default() });
    ValidBatch::parse(batch.build()).expect("it was just built")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("it is there");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| name(entry.expect("it can be read"))).collect()
}

const fn partition(id: u128) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId(Uuid::from_u128(id)), partition: PartitionIndex(0) }
}

/// A log in the node's directory that is to be recovered; where it is.
pub(super) fn left_by_a_crash(core: &Rc<Core>, name: &str, of: TopicIdPartition) -> PathBuf {
    let log_dirs = core.node().log_dirs();
    let (dir, _) = log_dirs.place(name, of.partition, of.topic_id);
    let now = Timestamp(0);
    drop(Log::create(&dir, name, of.partition, of.topic_id, Arc::default(), now).expect("it is new"));
    let entry = CheckpointEntry {
        topic: name.into(),
        topic_id: of.topic_id,
        partition: of.partition,
        recovery_point: Offset(0),
        high_watermark: Offset(0),
        log_start: Offset(0),
    };
    log_dirs.closed(&entry, Closing::Begun);
    dir.path().join(format!("{name}-0"))
}

/// The records of a topic of one partition that the node leads.
pub(super) fn made(name: &str, of: TopicIdPartition) -> Vec<MetadataRecord> {
    let topic_id = of.topic_id.0;
    let partition = PartitionRecord {
        partition_id: of.partition.0,
        topic_id,
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        ..PartitionRecord::default()
    };
    vec![TopicRecord { name: name.into(), topic_id }.into(), partition.into()]
}

pub(super) fn change_to(image: &mut MetadataImage, offset: i64, records: &[MetadataRecord]) -> MetadataDelta {
    let mut delta = MetadataDelta::default();
    for record in records {
        image.apply(record, &mut delta).expect("the records fit each other");
    }
    image.set_provenance(Provenance { offset: Offset(offset), epoch: Epoch(0), timestamp: Timestamp(0) });
    delta
}
