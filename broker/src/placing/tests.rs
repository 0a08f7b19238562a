//! Deletions on a core of the test's own, beside a node that runs.

use tarn_image::Provenance;
use tarn_quorum::ImageUpdate;
use tarn_record::{Epoch, PartitionIndex};
use tarn_runtime::channel::Flag;
use tarn_runtime::{Queue, blocking_long, spawn, yield_now};
use tarn_wire::MetadataRecord;
use tarn_wire::messages::{PartitionRecord, RemoveTopicRecord, TopicRecord};
use uuid::Uuid;

use super::*;
use crate::lone_core;
use crate::published::Published;

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
            sleep(limits::PLACE_LOOK_AGAIN).await;
        }
        assert_eq!(core.partitions().get(NEW).map(|replica| replica.log().topic_id()), Some(NEW.topic_id));
        assert!(core.partitions().get(OLD).is_none() && !core.unopened().contains(OLD));
    });
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
