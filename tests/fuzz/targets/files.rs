//! The small files of a log directory, each alone; `partition` and `directory` have them together.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tarn_log::checkpoints::{CleanShutdown, OffsetCheckpoint, PartitionMetadata};
use tarn_log::known_dirs::KnownDirs;
use tarn_log::meta_properties::{DirectoryId, MetaProperties};
use tarn_log::producers::ProducerStates;
use tarn_log::segment::txn_index::TxnIndex;
use tarn_log::{AbortedTransaction, Disk, EpochHistory, ReadFrom};
use tarn_quorum::quorum_state::{self, QuorumState};
use tarn_record::{BrokerId, Epoch, Offset, PartitionIndex, ProducerId, Timestamp, TopicId, ValidBatch};

use super::batches::{idempotent, marker};
use crate::checksums;
use crate::engine::{Says, Steps, Target};
use crate::paper_disk::PaperDisk;

/// What text is made of, besides numbers.
const TEXT: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b"=",
    b"#",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\\u00",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xef\xbb",
    b"\xfe\xff",
    "é".as_bytes(),
    "\u{2028}".as_bytes(),
    b"version",
    b"0",
    b"-0",
    b"+1",
    b"1e9",
    b"NaN",
    b"{",
    b"}",
    b"[[[[[[[[",
    b"\"",
    b"null",
    b"true",
];

pub(crate) const ID: TopicId = TopicId(uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));

pub(crate) fn all() -> Vec<Target> {
    vec![
        offset_checkpoint(),
        leader_epochs(),
        partition_metadata(),
        clean_shutdown(),
        meta_properties(),
        known_dirs(),
        quorum_state(),
        producer_snapshot(),
        txn_index(),
    ]
}

fn text(name: &str, decode: impl Fn(Bytes, &mut Steps) -> Says + 'static) -> Target {
    Target::new(name, decode).words(TEXT)
}

/// Also what the cleaner keeps.
fn offset_checkpoint() -> Target {
    let rows = [("orders", 0, 17), ("orders", 1, 0), ("a.topic_with-all", 12, i64::MAX)];
    let rows = rows.map(|(topic, partition, offset)| (topic, PartitionIndex(partition), Offset(offset)));
    let seeds = [OffsetCheckpoint::write(rows), OffsetCheckpoint::write([]), b"0\n1\nt 0 0".to_vec()];
    text("file.offset-checkpoint", |input, _| Says::result(&OffsetCheckpoint::read(&input), Vec::len))
        .seeds(seeds)
        // A row of seven bytes, `t 0 0\n`, is 48 in memory, and its name; the list doubles.
        .memory(40, 4096)
}

fn leader_epochs() -> Target {
    text("file.leader-epochs", |input, _| {
        let read = EpochHistory::from_checkpoint(&input);
        if let Ok(history) = &read {
            for end in [Offset(0), Offset(50), Offset(i64::MAX)] {
                let mut cut = history.clone();
                black_box((cut.end_of(Epoch(3), end), cut.end_of(Epoch(i32::MAX), end), cut.at(end)));
                cut.truncate_to(end);
                cut.advance_log_start(Offset(20));
                black_box(cut.begin(Epoch(i32::MAX), end).is_ok());
            }
            let again = EpochHistory::from_checkpoint(&history.to_checkpoint());
            assert_eq!(again.as_ref(), Ok(history), "what was written is read");
        }
        Says::result(&read, |history| history.starts().len())
    })
    .seeds([&b"0\n0\n"[..], b"0\n1\n0 0\n", b"0\n3\n0 0\n3 10\n5 40\n"])
    .memory(32, 4096)
}

fn partition_metadata() -> Target {
    text("file.partition-metadata", |input, _| Says::result(&PartitionMetadata::read(&input), |_| 1))
        .seeds([PartitionMetadata { topic_id: ID }.write()])
}

fn clean_shutdown() -> Target {
    let seeds =
        [None, Some(Offset(99))].map(|metadata_end| CleanShutdown { broker_epoch: 7, metadata_end }.write());
    text("file.clean-shutdown", |input, _| Says::result(&CleanShutdown::read(&input), |_| 1))
        .seeds(seeds)
        // JSON is read into a tree: a list of zeros has 32 bytes for each two, while it doubles.
        .memory(64, 4096)
}

fn known_dirs() -> Target {
    let dirs =
        [(DirectoryId(ID.0), "/a path".into()), (DirectoryId(uuid::Uuid::from_u128(1 << 90)), "é\"".into())];
    let seeds = [KnownDirs::default(), KnownDirs(dirs.into())].map(|known| known.write());
    text("file.known-directories", |input, _| Says::result(&KnownDirs::read(&input), |known| known.0.len()))
        .seeds(seeds)
        // As above.
        .memory(64, 4096)
}

fn meta_properties() -> Target {
    let properties = MetaProperties {
        cluster_id: "a cluster: é=#!".to_owned(),
        node_id: BrokerId(1),
        directory_id: Some(DirectoryId(ID.0)),
    };
    let seeds = [properties.write(), b"#\n#Tue\nversion=0\nbroker.id=1\ncluster.id=x".to_vec()];
    text("file.meta-properties", |input, _| Says::result(&MetaProperties::read(&input), |_| 1))
        .seeds(seeds)
        // Each line is a pair of strings in a map.
        .memory(100, 64 * 1024)
}

fn quorum_state() -> Target {
    let kafkas = br#"{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}"#;
    let ours = br#"{"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}"#;
    text("file.quorum-state", |input, _| {
        let paper = PaperDisk::default();
        paper.put(&Path::new("/d").join(quorum_state::FILE_NAME), input.to_vec());
        let disk: Arc<dyn Disk> = Arc::new(paper);
        let read = QuorumState::load(&disk, Path::new("/d"));
        if let Ok(state) = &read {
            black_box(QuorumState::resume(*state, Epoch(i32::MAX)).is_ok());
        }
        Says::result(&read, |_| 1)
    })
    .seeds([&kafkas[..], ours])
    .memory(70, 8192)
}

fn producer_snapshot() -> Target {
    Target::new("file.producer-snapshot", |input, _| {
        let read = ProducerStates::load(&input);
        if let Ok(states) = &read {
            let again = ProducerStates::load(&states.snapshot()).expect("what was written is read");
            assert_eq!(again.len(), states.len());
            use_producers(again);
        }
        Says::result(&read, ProducerStates::len)
    })
    .seeds(producer_snapshots())
    .repair(checksums::producer_snapshot)
    // An entry of 46 bytes is a state, a place in a map, and one in the order of the transactions; then a copy.
    .memory(40, 4096)
}

/// What a log does with producers that it found in a file.
fn use_producers(mut states: ProducerStates) {
    black_box((states.first_unstable(), states.open_transactions().count(), states.iter().count()));
    for batch in [idempotent(100, 0, 3), idempotent(103, 3, 1), marker(104)] {
        let batch = ValidBatch::parse(batch).expect("it was just built");
        let control = tarn_record::ControlRecord::parse(&batch);
        black_box(states.update(batch.header(), control.as_ref()));
    }
    states.on_high_watermark(Offset(i64::MAX));
    states.expire(Timestamp(i64::MAX), 1);
}

pub(crate) fn producer_snapshots() -> Vec<Vec<u8>> {
    let mut states = ProducerStates::default();
    let mut snapshots = vec![states.snapshot()];
    for batch in [idempotent(0, 0, 3), idempotent(3, 3, 1), marker(4), idempotent(5, 4, 2)] {
        let batch = ValidBatch::parse(batch).expect("it was just built");
        let control = tarn_record::ControlRecord::parse(&batch);
        black_box(states.update(batch.header(), control.as_ref()));
        snapshots.push(states.snapshot());
    }
    // Several producers: the entries of one, with other ids.
    let one = snapshots[2][10..].to_vec();
    let mut many = snapshots[2][..10].to_vec();
    for id in 0..20u8 {
        many.extend_from_slice(&one);
        let at = many.len() - 46;
        many[at + 7] = id;
        // No two transactions begin at one offset.
        many[at + 38..at + 46].fill(0xff);
    }
    many[6..10].copy_from_slice(&20i32.to_be_bytes());
    let crc = crc32c::crc32c(&many[6..]);
    many[2..6].copy_from_slice(&crc.to_be_bytes());
    snapshots.push(many);
    snapshots
}

fn txn_index() -> Target {
    Target::new("file.txn-index", |input, steps| {
        let path = PathBuf::from("/d/0.txnindex");
        let paper = PaperDisk::default();
        paper.put(&path, input.to_vec());
        let opened = TxnIndex::open(Arc::new(paper), path);
        let Ok(Some(mut index)) = opened else { return Says::result(&opened, |_| 1) };
        let mut says = Says::result(&index.sanity_check(&(Offset(0)..Offset(i64::MAX))), |()| 1);
        for (from, upper) in [(0, i64::MAX), (5, 40), (i64::MAX, i64::MAX), (-1, 0)] {
            steps.take();
            let found = index.collect(Offset(from), Offset(upper), ReadFrom::Disk);
            says = says.and(Says::result(&found, |found| found.transactions.len()));
        }
        for end in [i64::MAX, 12, 0] {
            says = says.and(Says::result(&index.truncate_to(Offset(end)), |()| 1));
        }
        says
    })
    .seeds(txn_indexes())
    // The file itself, and what is found in it, twice while the list grows.
    .memory(8, 16 * 1024)
}

pub(crate) fn txn_indexes() -> Vec<Vec<u8>> {
    [1, 3, 300].map(index_of).to_vec()
}

fn index_of(entries: i64) -> Vec<u8> {
    let (paper, path) = (PaperDisk::default(), PathBuf::from("/d/0.txnindex"));
    let mut index = TxnIndex::new(Arc::new(paper.clone()), path);
    let aborted: Vec<_> = (0..entries)
        .map(|n| AbortedTransaction {
            producer_id: ProducerId(4000 + n % 3),
            first_offset: Offset(10 * n),
            last_offset: Offset(10 * n + 6),
            last_stable_offset: Offset(10 * n + 2),
        })
        .collect();
    index.append(&aborted).expect("this disk never fails");
    paper.files().pop().expect("it was just written").1
}
