//! The controller's log with its snapshots, as files and as records, and the log of the mirrors' states.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tarn_image::config::server::{MetadataLogConfig, ServerConfig};
use tarn_log::{Descriptors, Disk, LogDir};
use tarn_mirror::coordinator::{MirrorCoordinator, StateRequest, StateWrite};
use tarn_mirror::state::MirrorState;
use tarn_quorum::load::load;
use tarn_quorum::metadata_log::{MetadataBatch, MetadataLog, Opened};
use tarn_quorum::snapshot::{self, SnapshotId};
use tarn_record::{Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::messages::write_mirror_states_request::WriteMirrorStatePartition;
use tarn_wire::messages::*;
use tarn_wire::{MetadataRecord, decode_key, encode_key, encode_value};

use super::batches::NOW;
use super::files::ID;
use crate::archive::{self, Files};
use crate::checksums;
use crate::engine::{Says, Steps, Target};
use crate::maker::case;
use crate::paper_disk::PaperDisk;

const DIR: &str = "/data/__cluster_metadata-0";

/// Records become entries of persistent maps, whose smallest node is some hundred bytes.
const MEMORY_PER_BYTE: usize = 400;
const MEMORY_BASE: usize = 64 * 1024;

/// Pieces in which a log is read, and an lz4 window.
const LOG_MEMORY_BASE: usize = 20 << 20;

pub(crate) fn all() -> Vec<Target> {
    vec![snapshot_target(), log_target(), replay_target(), mirror_state_target()]
}

/// What a cluster with a topic, a mirror and their settings has in its log.
fn records() -> Vec<MetadataRecord> {
    let broker = RegisterBrokerRecord {
        broker_id: 1,
        broker_epoch: 3,
        end_points: vec![register_broker_record::BrokerEndpoint {
            name: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9092,
            ..Default::default()
        }],
        ..Default::default()
    };
    let level = FeatureLevelRecord { name: "metadata.version".into(), feature_level: 29 };
    let partition = PartitionRecord {
        topic_id: ID.0,
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch: 2,
        partition_epoch: 3,
        ..Default::default()
    };
    let change =
        PartitionChangeRecord { topic_id: ID.0, isr: Some(vec![1]), leader: 1, ..Default::default() };
    let config = |kind, resource: &str, name: &str, value: &str| ConfigRecord {
        resource_type: kind,
        resource_name: resource.into(),
        name: name.into(),
        value: Some(value.into()),
    };
    vec![
        level.into(),
        broker.into(),
        UnfenceBrokerRecord { id: 1, epoch: 3 }.into(),
        TopicRecord { name: "orders".into(), topic_id: ID.0 }.into(),
        partition.into(),
        change.into(),
        config(2, "orders", "retention.ms", "1000").into(),
        config(64, "m", "bootstrap.servers", "localhost:9092").into(),
        config(2, "orders", "mirror.name", "m").into(),
        config(2, "orders", "mirror.desired.state", "mirroring:3").into(),
        ProducerIdsRecord { broker_id: 1, broker_epoch: 3, next_producer_id: 2000 }.into(),
        BeginTransactionRecord { name: Some("t".into()) }.into(),
        NoOpRecord::default().into(),
        EndTransactionRecord::default().into(),
    ]
}

fn id() -> SnapshotId {
    SnapshotId { end_offset: Offset(15), epoch: Epoch(2) }
}

fn snapshot_target() -> Target {
    let decode = |input: Bytes, _: &mut Steps| {
        let (paper, dir) = (PaperDisk::default(), Path::new("/d"));
        paper.put(&dir.join(id().to_string()), input.to_vec());
        let disk: Arc<dyn Disk> = Arc::new(paper);
        let kept = snapshot::kept(&disk, dir).expect("this disk never fails");
        let says = Says::good(kept.iter().filter(|kept| kept.last_timestamp.is_some()).count());
        match snapshot::newest(&disk, dir) {
            Ok(newest) => {
                let loaded = load(newest, &[]);
                if let Ok(loaded) = &loaded {
                    black_box(loaded.image.to_records());
                }
                says.and(Says::result(&loaded, |loaded| loaded.to_write.len()))
            }
            Err(error) => says.and(Says::shown(&error)),
        }
    };
    let contents = |records: &[MetadataRecord]| snapshot::contents(id(), records, None, NOW, NOW);
    let seeds = [contents(&[]), contents(&records())].map(|bytes| bytes.expect("they fit"));
    Target::new("metadata.snapshot", decode)
        .seeds(seeds)
        .repair(checksums::batches)
        .memory(MEMORY_PER_BYTE, LOG_MEMORY_BASE)
        .inputs(5000)
}

fn limits() -> MetadataLogConfig {
    let least = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
                 controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\nlog.dirs=/data\n";
    let (config, _) = ServerConfig::parse(least).expect("it is what a node needs");
    MetadataLogConfig { segment_bytes: 1 << 20, ..config.metadata_log }
}

fn log_dir(disk: PaperDisk) -> Arc<LogDir> {
    LogDir::open(Arc::new(disk), "/data", Descriptors::new(10)).expect("this disk never fails")
}

fn log_target() -> Target {
    let limits = limits();
    let seeds = [archive::pack(&whole(&limits))];
    let decode = move |input: Bytes, _: &mut Steps| {
        let disk = PaperDisk::default();
        for (name, content) in archive::unpack(&input) {
            disk.put(&PathBuf::from(DIR).join(name), content);
        }
        match MetadataLog::open(&log_dir(disk), None, &limits, NOW) {
            Ok(Opened { mut log, snapshot, batches }) => {
                let replayed = batches.len();
                let loaded = load(snapshot, &batches);
                black_box(log.shorten(NOW).is_ok());
                if let Ok(loaded) = &loaded {
                    black_box(log.append(&loaded.to_write, Epoch(i32::MAX), NOW).is_ok());
                }
                Says::good(replayed).and(Says::result(&loaded, |loaded| loaded.to_write.len()))
            }
            Err(error) => Says::shown(&error.to_string()),
        }
    };
    Target::new("metadata.log", decode)
        .seeds(seeds)
        .changed_by(archive::change)
        .words(&[b".checkpoint", b".log", b"-", b"99999999999999999999", b"9999999999"])
        .memory(MEMORY_PER_BYTE, LOG_MEMORY_BASE)
        .inputs(2500)
}

/// A log with its first snapshot, another one, and batches behind it.
fn whole(limits: &MetadataLogConfig) -> Files {
    let disk = PaperDisk::default();
    let opened = MetadataLog::open(&log_dir(disk.clone()), None, limits, NOW).expect("this disk never fails");
    let mut log = opened.log;
    log.append_leader_change(1, Epoch(2), NOW).expect("it fits");
    log.append(&records(), Epoch(2), NOW).expect("it fits");
    log.write_snapshot(SnapshotId { end_offset: log.end(), epoch: Epoch(2) }, &records(), NOW)
        .expect("it fits");
    log.append(&records()[6..8], Epoch(3), NOW).expect("it fits");
    if let Some(job) = log.flush_job() {
        let flushed = job.run().expect("this disk never fails");
        log.flushed(flushed).expect("it is of this log");
    }
    let files = disk.files().into_iter();
    let of_log = files.filter_map(|(path, content)| {
        let name = path.strip_prefix(DIR).ok()?.to_string_lossy().into_owned();
        Some((name, content))
    });
    of_log.collect()
}

/// Pieces of an input, each behind its length; `None` for the length that says so.
fn pieces(mut input: Bytes) -> impl Iterator<Item = Option<Bytes>> {
    std::iter::from_fn(move || {
        let length = input.try_get_u16().ok()?;
        if length == u16::MAX {
            return Some(None);
        }
        let length = usize::from(length).min(input.len());
        Some(Some(input.split_to(length)))
    })
}

fn joined<'a>(pieces: impl IntoIterator<Item = Option<&'a Bytes>>) -> Vec<u8> {
    let mut joined = Vec::new();
    for piece in pieces {
        match piece {
            Some(bytes) => {
                joined.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
                joined.extend_from_slice(bytes);
            }
            None => joined.extend_from_slice(&u16::MAX.to_be_bytes()),
        }
    }
    joined
}

/// Records alone, whatever their order.
fn replay_target() -> Target {
    let encoded = |record: MetadataRecord| record.encode(record.latest_version()).expect("it fits");
    let usual: Vec<Bytes> = records().into_iter().map(encoded).collect();
    let mut seeds = vec![joined(usual.iter().map(Some))];
    macro_rules! others {
        ($($record:ident)*) => {$(
            let made = (0..3).map(|seed| encoded(case::<$record>(seed, $record::MAX_VERSION).into()));
            let made: Vec<Bytes> = made.collect();
            seeds.push(joined(usual.iter().chain(&made).map(Some)));
        )*};
    }
    use tarn_wire::Message;
    others!(
        TopicRecord PartitionRecord PartitionChangeRecord RemoveTopicRecord ConfigRecord RegisterBrokerRecord
        UnregisterBrokerRecord FenceBrokerRecord BrokerRegistrationChangeRecord FeatureLevelRecord ProducerIdsRecord
        AbortTransactionRecord ClearElrRecord RegisterControllerRecord
    );
    let decode = |input: Bytes, _: &mut Steps| {
        let records: Vec<MetadataRecord> =
            pieces(input).flatten().filter_map(|piece| MetadataRecord::decode(piece).ok()).collect();
        let read = records.len();
        let (last_offset, epoch) = (Offset(i64::MAX - 1), Epoch(3));
        let loaded = load(None, &[MetadataBatch { last_offset, epoch, timestamp: NOW, records }]);
        if let Ok(loaded) = &loaded {
            black_box(loaded.image.to_records());
        }
        Says::good(read).and(Says::result(&loaded, |loaded| loaded.to_write.len()))
    };
    Target::new("metadata.replay", decode).seeds(seeds).memory(MEMORY_PER_BYTE, MEMORY_BASE).inputs(8000)
}

/// The states of mirrored partitions, replayed and then asked for.
fn mirror_state_target() -> Target {
    let mut written: Vec<(Bytes, Option<Bytes>)> = Vec::new();
    macro_rules! write {
        ($($key:ident $value:ident)*) => {$(
            for seed in 0..3 {
                let key = $key { mirror_name: "m".into(), ..case(seed, 0) };
                let value: $value = case(seed, 0);
                let key = encode_key(&key).expect("it fits");
                written.push((key.clone(), encode_value(&value, 0).ok()));
                if seed == 2 {
                    written.push((key, None));
                }
            }
        )*};
    }
    write!(
        MirrorPositionKey MirrorPositionValue
        MirrorPartitionStateKey MirrorPartitionStateValue
        MirrorFailoverReportKey MirrorFailoverReportValue
        MirrorManagedKey MirrorManagedValue
        MirrorGroupReportKey MirrorGroupReportValue
    );
    let seed = joined(written.iter().flat_map(|(key, value)| [Some(key), value.as_ref()]));
    let next_state = || StateWrite {
        topic: "orders".into(),
        state: WriteMirrorStatePartition {
            state: MirrorState::Stopped.to_byte(),
            leader_epoch: -1,
            state_epoch: -1,
            state_version: -1,
            last_mirror_offset: 17,
            ..Default::default()
        },
    };
    let decode = move |input: Bytes, _: &mut Steps| {
        let mut machine = MirrorCoordinator::default();
        let (mut pieces, mut says) = (pieces(input), Says::good(0));
        let mut partitions = Vec::new();
        while let Some(key) = pieces.next() {
            let (key, value) = (key.unwrap_or_default(), pieces.next().flatten());
            says = says.and(Says::result(&machine.replay(&key, value.as_ref()), |()| 1));
            if let Ok(key) = decode_key::<MirrorPartitionStateKey>(key) {
                let topic_id = TopicId(key.topic_id);
                partitions.push(TopicIdPartition { topic_id, partition: PartitionIndex(key.partition) });
            }
        }
        let write = |partition: &TopicIdPartition| (*partition, next_state());
        for request in [
            StateRequest::Read("m".to_owned(), partitions.clone()),
            StateRequest::Write("m".to_owned(), partitions.iter().map(write).collect()),
            StateRequest::Reports("m".to_owned()),
            StateRequest::Forget("m".to_owned(), i64::MAX),
        ] {
            black_box(machine.handle(request));
        }
        says
    };
    Target::new("metadata.mirror-state", decode)
        .seeds([seed])
        .memory(MEMORY_PER_BYTE, MEMORY_BASE)
        .inputs(8000)
}
