//! A controller on a real directory: formatted, asked, stopped, started again.

mod nearly_full;
mod said;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tarn_image::config::server::ServerConfig;
use tarn_image::features::SUPPORTED;
use tarn_image::{DesiredState, MetadataImage};
use tarn_log::{Descriptors, Disk, LogDir, RealDisk};
use tarn_quorum::decide::partitions::Grower;
use tarn_quorum::format::{self, FormatOptions, Formatted, Quorum};
use tarn_quorum::{ControllerHandle, ControllerOptions, ImageUpdate, Undecided, server};
use tarn_record::{BrokerId, PartitionIndex, Timestamp};
use tarn_runtime as rt;
use tarn_transport::limits::REMARKS_MAX;
use tarn_wire::ErrorCode;
use tarn_wire::messages::broker_registration_request::Feature;
use tarn_wire::messages::create_cluster_mirror_request::MirrorConfig;
use tarn_wire::messages::create_partitions_request::CreatePartitionsTopic;
use tarn_wire::messages::create_topics_request::CreatableTopic;
use tarn_wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::*;
use uuid::Uuid;

use nearly_full::NearlyFull;

const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// Everything that was published.
type Published = Arc<Mutex<Vec<ImageUpdate>>>;

#[test]
fn what_was_answered_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(dir.path(), "");
    make_ready(&config);
    let image = run(&config, |ask, published| async move {
        let epoch = register(&ask).await;
        create(&ask, "orders", 3).await;
        let topics = [CreatePartitionsTopic { name: "orders".into(), count: 5, assignments: None }];
        let request = CreatePartitionsRequest { topics: topics.to_vec(), ..Default::default() };
        let grown = ask.create_partitions(request, Grower::Client).await.expect("it leads");
        assert_eq!(grown.response.results[0].error_code, 0);
        let request = AllocateProducerIdsRequest { broker_id: 1, broker_epoch: epoch };
        let first = ask.allocate_producer_ids(request.clone()).await.expect("it leads").response;
        let second = ask.allocate_producer_ids(request).await.expect("it leads").response;
        assert_eq!(first.producer_id_start, format::first_producer_id(CLUSTER));
        assert_eq!(second.producer_id_start, first.producer_id_start + 1000);
        mirror(&ask).await;
        let newest = published.lock().expect("no test panicked").last().expect("something").image.clone();
        assert!(newest.provenance().offset >= grown.offset, "an answer leaves after its image is published");
        newest
    });
    assert_eq!(image.topics().by_name("orders").map(|topic| topic.partitions.len()), Some(5));

    let again = run(&config, |ask, published| async move {
        register(&ask).await;
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
    let (before, after) =
        (image.topics().by_name("orders").unwrap(), again.topics().by_name("orders").unwrap());
    assert_eq!((before.id, before.partitions.len()), (after.id, after.partitions.len()));
    let led = &after.partitions[&PartitionIndex(0)];
    assert_eq!((led.leader, led.leader_epoch.0), (BrokerId(1), 2), "down and up again");
    let binding = again.bindings().of("mirrored").expect("it is bound");
    assert_eq!((&*binding.mirror, binding.desired), ("east", DesiredState::Mirroring));
    assert_eq!(again.features().level("mirror.version"), 1);
    assert_eq!(again.topics().by_name("__mirror_state").map(|topic| topic.partitions.len()), Some(50));
}

#[test]
fn a_snapshot_and_the_log_after_it_are_the_same_as_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(
        dir.path(),
        "metadata.log.max.record.bytes.between.snapshots=2000\nmetadata.max.retention.bytes=1\n",
    );
    make_ready(&config);
    run(&config, |ask, published| async move {
        register(&ask).await;
        for name in forty_names() {
            create(&ask, &name, 1).await;
        }
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
    let files = std::fs::read_dir(dir.path().join("__cluster_metadata-0")).expect("the log's directory");
    let snapshots = files
        .map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".checkpoint"))
        .collect::<Vec<_>>();
    assert_eq!(snapshots.len(), 1, "the newest stays: {snapshots:?}");
    let again = run(&config, |ask, published| async move {
        register(&ask).await;
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
    assert!(forty_names().all(|name| again.topics().by_name(&name).is_some()));
    assert_eq!(again.features().metadata_version(), 33);
}

#[test]
fn the_quorum_is_described_with_its_leader_among_the_voters() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(dir.path(), "");
    make_ready(&config);
    run(&config, |ask, published| async move {
        let answer = ask.describe_quorum(DescribeQuorumRequest::default()).await.expect("it leads").response;
        let partition = &answer.topics[0].partitions[0];
        assert_eq!((partition.leader_id, partition.leader_epoch), (1, 1));
        assert_eq!(partition.current_voters.len(), 1);
        assert!(partition.high_watermark > 0 && partition.current_voters[0].last_fetch_timestamp > 0);
        assert_eq!(answer.nodes[0].listeners[0].port, 9093);
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
}

#[test]
fn the_first_image_comes_with_everything_in_its_delta() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(dir.path(), "");
    make_ready(&config);
    run(&config, |ask, published| async move {
        register(&ask).await;
        create(&ask, "t", 2).await;
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
    run(&config, |ask, published| async move {
        ask.describe_quorum(DescribeQuorumRequest::default()).await.expect("it leads");
        let first = published.lock().expect("no test panicked").first().expect("something").clone();
        assert_eq!(first.delta.topics_created.len(), 1);
        assert_eq!(first.delta.partitions_changed.len(), 2);
        first.image
    });
}

#[test]
fn a_decision_of_several_batches_is_written_whole_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(dir.path(), "");
    make_ready(&config);
    let filling = NearlyFull::new();
    let disk = filling.disk();
    run_on(disk, &config, |ask, published| async move {
        register(&ask).await;
        filling.leave(100);
        let refused = ask.create_mirror(mirror_request()).await.map(|answered| answered.response);
        assert_eq!(refused, Err(Undecided::NoRoom), "the feature and the mirror are two batches");
        filling.leave(u64::MAX);
        create(&ask, "t", 1).await;
        let newest = published.lock().expect("no test panicked").last().expect("something").image.clone();
        assert_eq!(newest.features().level("mirror.version"), 0, "its first batch was not written either");
        mirror(&ask).await;
        newest
    });
}

#[test]
fn a_full_disk_is_tried_again_after_a_while_and_not_without_pause() {
    const IDLE_MS: u64 = 100;
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(dir.path(), &format!("metadata.max.idle.interval.ms={IDLE_MS}\n"));
    make_ready(&config);
    let filling = NearlyFull::new();
    let disk = filling.disk();
    run_on(disk, &config, |ask, published| async move {
        register(&ask).await;
        let begun = rt::now();
        filling.leave(0);
        while filling.refused() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not tried again");
            rt::sleep(Duration::from_millis(1)).await;
        }
        let (refused, waited) = (filling.refused(), begun.elapsed());
        // The second try comes just before or just after two pauses, and makes several writes: a segment that a
        // write has torn is closed, and another begun.
        let at_most = 3 * (waited.as_millis() as u64 / IDLE_MS + 1);
        assert!(refused <= at_most, "{refused} writes in {waited:?}");
        filling.leave(u64::MAX);
        create(&ask, "t", 1).await;
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
}

#[test]
fn a_snapshot_that_finds_no_room_is_put_off_and_ends_nothing() {
    const OVERDUE: Duration = Duration::from_millis(300);
    let dir = tempfile::tempdir().expect("a directory");
    let interval = format!(
        "metadata.log.max.snapshot.interval.ms={}\nmetadata.max.idle.interval.ms=0\n",
        OVERDUE.as_millis()
    );
    let config = config(dir.path(), &interval);
    make_ready(&config);
    let filling = NearlyFull::new();
    let disk = filling.disk();
    said::listen();
    let at = dir.path().to_owned();
    run_on(disk, &config, move |ask, published| async move {
        let put_off = || said::how_often("no snapshot of the metadata", &at);
        register(&ask).await;
        let mut names = forty_names();
        while put_off() == 0 {
            filling.leave(u64::MAX);
            let name = names.next().expect("one of so many is not in a snapshot yet when the disk is full");
            create(&ask, &name, 1).await;
            // The log would find room, and keeps it.
            filling.leave(100_000);
            let full = rt::now();
            while put_off() == 0 && full.elapsed() < 4 * OVERDUE {
                rt::sleep(Duration::from_millis(1)).await;
            }
        }
        create(&ask, "what-the-log-has-room-for", 1).await;
        rt::sleep(2 * OVERDUE).await;
        assert_eq!(put_off(), 1, "it is not tried without pause");
        ask.describe_quorum(DescribeQuorumRequest::default()).await.expect("it answers what needs no room");
        filling.leave(u64::MAX);
        create(&ask, "t", 1).await;
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
}

#[test]
fn a_file_that_could_not_be_written_whole_takes_no_room_of_a_full_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let room = NearlyFull::new();
    let disk = room.disk();
    let path = dir.path().join("quorum-state");
    disk.write_atomically(&path, b"old").expect("there is room");
    room.leave(0);
    disk.write_atomically(&path, b"new").expect_err("there is none");
    let left = std::fs::read_dir(dir.path()).expect("it is there").count();
    assert_eq!((left, disk.read_all(&path).expect("it is there")), (1, b"old".to_vec()));
}

#[test]
fn a_disk_that_stays_full_does_not_fill_the_log_with_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(dir.path(), "metadata.max.idle.interval.ms=5\n");
    make_ready(&config);
    let filling = NearlyFull::new();
    let disk = filling.disk();
    said::listen();
    let tries = 5 * u64::from(REMARKS_MAX);
    run_on(disk, &config, move |ask, published| async move {
        register(&ask).await;
        filling.leave(0);
        let begun = rt::now();
        while filling.refused() < tries {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not tried again");
            rt::sleep(Duration::from_millis(1)).await;
        }
        filling.leave(u64::MAX);
        create(&ask, "t", 1).await;
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
    let lines = said::how_often("there is no room for the metadata log", dir.path());
    assert!(0 < lines && lines <= REMARKS_MAX as usize, "{lines} of {tries}");
}

#[test]
fn what_fits_no_record_is_refused_and_ends_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(dir.path(), "");
    make_ready(&config);
    run(&config, |ask, published| async move {
        register(&ask).await;
        let rack = Some("x".repeat(40_000).as_str().into());
        let request = BrokerRegistrationRequest {
            broker_id: 1,
            cluster_id: CLUSTER.into(),
            rack,
            ..Default::default()
        };
        let refused = ask.register_broker(request).await.expect("it leads").response;
        assert_eq!(refused.error_code, ErrorCode::INVALID_REQUEST.0);
        // What no decision looks for is at least not written.
        let resource = AlterConfigsResource {
            resource_type: 4,
            configs: vec![AlterableConfig {
                name: "x".repeat(40_000).as_str().into(),
                value: Some("1".into()),
                ..Default::default()
            }],
            ..Default::default()
        };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
        assert!(ask.alter_configs(request).await.is_err());
        create(&ask, "t", 1).await;
        published.lock().expect("no test panicked").last().expect("something").image.clone()
    });
}

fn forty_names() -> impl Iterator<Item = String> {
    (0..40).map(|number| format!("topic-{number}"))
}

fn config(dir: &Path, more: &str) -> Arc<ServerConfig> {
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\nlog.dirs={}\n\
         controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n{more}",
        dir.display()
    );
    Arc::new(ServerConfig::parse(&text).expect("the test's file is good").0)
}

fn make_ready(config: &ServerConfig) {
    let options = FormatOptions {
        cluster_id: CLUSTER,
        config,
        quorum: Quorum::Standalone,
        formatted: Formatted::Refuse,
    };
    let disk: Arc<dyn tarn_log::Disk> = Arc::new(RealDisk);
    format::format(&disk, &options, Timestamp(1_700_000_000_000)).expect("the directory is new");
}

/// Runs a controller on the directory while `questions` are asked, and stops it.
fn run<F>(
    config: &Arc<ServerConfig>,
    questions: impl FnOnce(ControllerHandle, Published) -> F + Send + 'static,
) -> Arc<MetadataImage>
where
    F: Future<Output = Arc<MetadataImage>> + 'static,
{
    run_on(Arc::new(RealDisk), config, questions)
}

fn run_on<F>(
    disk: Arc<dyn Disk>,
    config: &Arc<ServerConfig>,
    questions: impl FnOnce(ControllerHandle, Published) -> F + Send + 'static,
) -> Arc<MetadataImage>
where
    F: Future<Output = Arc<MetadataImage>> + 'static,
{
    let log_dir = LogDir::open(disk, &config.log_dirs[0], Descriptors::new(100)).expect("it opens");
    let published = Published::default();
    let publisher = {
        let published = published.clone();
        Box::new(move |update| published.lock().expect("no test panicked").push(update))
    };
    let options = ControllerOptions { config: config.clone(), log_dir, publisher };
    let running = server::start(options).expect("it starts");
    let handle = running.handle.clone();
    let asking = rt::spawn_core(rt::CoreSpec { cpu: None, name: "asking".into() }, move || {
        questions(handle, published)
    })
    .expect("a thread");
    let image = asking.join();
    running.handle.stop();
    running.core.join();
    image
}

async fn register(ask: &ControllerHandle) -> i64 {
    let features = SUPPORTED.iter().map(|feature| Feature {
        name: feature.name.into(),
        min_supported_version: feature.min,
        max_supported_version: feature.max,
    });
    let request = BrokerRegistrationRequest {
        broker_id: 1,
        cluster_id: CLUSTER.into(),
        incarnation_id: Uuid::new_v4(),
        features: features.collect(),
        log_dirs: vec![Uuid::from_u128(500)],
        ..Default::default()
    };
    let registered = ask.register_broker(request).await.expect("it leads");
    assert_eq!(registered.response.error_code, 0);
    let request = BrokerHeartbeatRequest {
        broker_id: 1,
        broker_epoch: registered.response.broker_epoch,
        current_metadata_offset: registered.offset.0,
        ..Default::default()
    };
    let beat = ask.heartbeat(request).await.expect("it leads").response;
    assert_eq!((beat.error_code, beat.is_fenced), (0, false));
    registered.response.broker_epoch
}

async fn create(ask: &ControllerHandle, name: &str, num_partitions: i32) {
    let topic =
        CreatableTopic { name: name.into(), num_partitions, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let created = ask.create_topics(request).await.expect("it leads").response;
    assert_eq!(created.topics[0].error_code, 0, "{:?}", created.topics[0].error_message);
}

fn mirror_request() -> CreateClusterMirrorRequest {
    let configs = [("bootstrap.servers", "127.0.0.1:1"), ("source.cluster.id", "source")];
    let configs = configs.map(|(name, value)| MirrorConfig { name: name.into(), value: Some(value.into()) });
    CreateClusterMirrorRequest { mirror_name: "east".into(), configs: configs.into(), validate_only: false }
}

async fn mirror(ask: &ControllerHandle) {
    assert_eq!(ask.create_mirror(mirror_request()).await.expect("it leads").response.error_code, 0);
    let topic = StartMirrorTopic {
        topic_id: Uuid::from_u128(77),
        topic_name: "mirrored".into(),
        num_partitions: 2,
        ..Default::default()
    };
    let request =
        StartMirrorTopicsRequest { mirror_name: "east".into(), topics: vec![topic], ..Default::default() };
    assert_eq!(ask.start_mirror_topics(request).await.expect("it leads").response.topics[0].error_code, 0);
}
