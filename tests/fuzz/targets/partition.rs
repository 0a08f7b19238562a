//! A partition's whole directory, of which a file or two are not what they were: the log is opened, after a clean stop
//! and after a crash, and used. What the files say may be refused, and bytes may be lost; nothing else.
//!
//! Segments, the three indexes, snapshots, leader epochs, `truncation-checkpoint`, `mirror-export`, what compaction
//! leaves, and files with strange names are read here as they are when a node starts.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tarn_log::{
    Aborted, CleanBound, CleanRules, Descriptors, FirstBatch, Log, LogConfig, LogDir, LogError, OffsetMap,
    Opening, Read, ReadFrom, ReadOrder, Spent,
};
use tarn_record::{Compression, Offset, PartitionIndex, Timestamp, ValidBatch, batches};

use super::batches::{NOW, batch, idempotent, marker};
use super::files::{ID, producer_snapshots};
use crate::archive::{self, Files};
use crate::engine::{Says, Steps, Target};
use crate::paper_disk::PaperDisk;

const TOPIC: &str = "orders";
const DIR: &str = "/data/orders-0";

/// Segments are read in pieces of up to 1 MiB, and lz4 has a window; what is written comes on the disk in memory.
const MEMORY_BASE: usize = 24 << 20;

/// Every file is on the disk in memory, is read as a whole now and then, and what is in it in structs.
const MEMORY_PER_BYTE: usize = 100;

const WORDS: &[&[u8]] = &[
    b"\n",
    b"0\n",
    b"\0",
    b"0 0\n",
    b".deleted",
    b".cleaned",
    b".swap",
    b".log",
    b".snapshot",
    b".unbroken",
];

pub(crate) fn all() -> Vec<Target> {
    let target = |name: &str, clean| {
        Target::new(name, move |input, steps| opened(input, clean, steps))
            .seeds(seeds())
            .changed_by(archive::change)
            .words(WORDS)
            .memory(MEMORY_PER_BYTE, MEMORY_BASE)
            .steps(4, 10_000)
            .inputs(2500)
    };
    vec![target("partition.after-a-crash", false), target("partition.after-a-clean-stop", true)]
}

fn opened(input: Bytes, clean: bool, steps: &mut Steps) -> Says {
    let (disk, dir) = (PaperDisk::default(), PathBuf::from(DIR));
    for (name, content) in archive::unpack(&input) {
        disk.put(&dir.join(name), content);
    }
    let log_dir = LogDir::open(Arc::new(disk), "/data", Descriptors::new(10));
    let log_dir = log_dir.expect("there is nothing in it that can be wrong");
    let mut says = Says::good(0);
    // The checkpoints lie beside the partitions, and may say anything.
    for (recovery_point, log_start) in [(0, 0), (20, 10), (i64::MAX, i64::MAX)] {
        let opening = Opening { clean, recovery_point: Offset(recovery_point), log_start: Offset(log_start) };
        let partition = PartitionIndex(0);
        black_box(Log::first_damage(&log_dir, TOPIC, partition, opening.recovery_point).is_ok());
        let opened = Log::open(&log_dir, TOPIC, partition, config(), opening, NOW);
        says = says.and(match opened {
            Ok((mut log, report)) => Says::shown(&report).and(used(&mut log, steps)),
            Err(error) => refused(&error),
        });
    }
    says
}

/// What an error says, but for the file.
fn refused(error: &LogError) -> Says {
    Says::shown(&error.to_string())
}

fn used(log: &mut Log, steps: &mut Steps) -> Says {
    let (start, end) = (log.start(), log.end());
    assert!(start <= end && start >= Offset(0), "a log from {start} to {end}");
    let middle = Offset(start.0 + (end.0 - start.0) / 2);
    let mut says = Says::good((end.0 - start.0) as usize);
    for (from, upper) in [(start, end), (middle, end), (start, middle), (Offset(end.0 - 1), end)] {
        steps.take();
        let first_batch = FirstBatch::MayBeLarger;
        let order = ReadOrder { from, max_bytes: 4000, first_batch, upper, aborted: Aborted::Named };
        // What of it is refused in memory is refused from the disk.
        let in_memory = log.read_from(&order, ReadFrom::Memory).is_ok();
        let Ok(Read { plan, aborted }) = log.read_from(&order, ReadFrom::Disk) else {
            assert!(!in_memory, "{order:?}");
            continue;
        };
        let read = plan.read();
        says = says.and(Says::good(read.map_or(0, |bytes| batches(bytes).flatten().count())));
        black_box((aborted, log.aborted_transactions(from, upper).is_ok()));
    }
    for timestamp in [NOW.0, NOW.0 + 20, i64::MIN, i64::MAX] {
        let found = log.search_timestamp(Timestamp(timestamp), end).run();
        says = says.and(Says::good(found.is_ok_and(|found| found.is_some()).into()));
    }
    black_box((log.max_timestamp(end).run().is_ok(), log.newest_batch().run_checked().is_ok()));
    black_box((log.batch_below(middle).run().is_ok(), log.batches(start, end).count().is_ok()));
    black_box(log.noted_export().run().is_ok());
    log.on_high_watermark(middle);
    log.expire_producers(NOW);
    says.and(changed(log, middle, steps))
}

/// Compaction, then truncation, then an append: what fails may leave the log as it is.
fn changed(log: &mut Log, middle: Offset, steps: &mut Steps) -> Says {
    let flushed = log.flush_job().map(|job| job.run());
    if let Some(Ok(flushed)) = flushed {
        black_box(log.flushed(flushed).is_ok());
    }
    let compacted = compacted(log, steps);
    let cut = log.truncate_to(middle, NOW).map(|truncated| black_box(truncated.removal.run().is_ok()));
    let next = ValidBatch::parse(batch(log.end().0, Compression::None, 1));
    let appended = next.map(|next| log.append_as_is(&[next], NOW).is_ok());
    let closed = log.close();
    Says::good(compacted.into())
        .and(Says::good(cut.is_ok().into()))
        .and(Says::good((appended == Ok(true)).into()))
        .and(Says::good(closed.is_ok().into()))
}

fn compacted(log: &mut Log, steps: &mut Steps) -> bool {
    let bound = CleanBound { high_watermark: log.end(), recovery_point: log.end() };
    let rules = CleanRules { delete_retention_ms: 0, min_lag_ms: 0, max_lag_ms: i64::MAX };
    let Ok(Some(found)) = log.dirtiness(log.start(), &bound, &rules, NOW) else { return false };
    let go_on = &mut |_: Spent| ControlFlow::Continue(());
    let Ok(mut round) = log.cleaning(&found, &rules, NOW).map(OffsetMap::new(1 << 16), go_on) else {
        return false;
    };
    while let Ok(Some(cleaned)) = round.next(go_on) {
        steps.take();
        if log.swap(cleaned).is_err() {
            return false;
        }
    }
    true
}

/// Small, so that there are several segments, and entries in their indexes.
fn config() -> LogConfig {
    LogConfig { segment_bytes: 1200, index_interval_bytes: 200, ..LogConfig::default() }
}

fn seeds() -> Vec<Vec<u8>> {
    let whole = whole();
    let mut marked = whole.clone();
    marked.push(("truncation-checkpoint".to_owned(), b"0\n7\n3\n".to_vec()));
    marked.push((
        "mirror-export".to_owned(),
        b"0\n5\n10\n40\n30\n2000\n30\n1\n12345\n/exports/orders-0-10\n".to_vec(),
    ));
    let mut swapped = whole.clone();
    // As compaction leaves it before the exchange.
    for (name, content) in &whole {
        if name.starts_with("00000000000000000000.") {
            swapped.push((format!("{name}.swap"), content.clone()));
            swapped.push((format!("{name}.cleaned"), content.clone()));
        }
    }
    let mut with_snapshots = whole.clone();
    for (number, snapshot) in producer_snapshots().into_iter().enumerate() {
        with_snapshots.push((format!("{number:020}.snapshot"), snapshot));
    }
    [whole, marked, swapped, with_snapshots].iter().map(archive::pack).collect()
}

/// The files of a log with some of everything.
fn whole() -> Files {
    let disk = PaperDisk::default();
    let log_dir = LogDir::open(Arc::new(disk.clone()), "/data", Descriptors::new(10));
    let log_dir = log_dir.expect("this disk never fails");
    let log = Log::create(&log_dir, TOPIC, PartitionIndex(0), ID, config(), NOW);
    let mut log = log.expect("this disk never fails");
    let mut sequence = 0;
    for round in 0..6 {
        let codec = Compression::ALL[round % Compression::ALL.len()];
        append(&mut log, |end| batch(end, codec, 5));
        append(&mut log, |end| idempotent(end, sequence, 3));
        sequence += 3;
        if round % 2 == 1 {
            append(&mut log, marker);
        }
    }
    log.close().expect("this disk never fails");
    let files = disk.files().into_iter();
    let of_log = files.filter_map(|(path, content)| {
        let name = path.strip_prefix(Path::new(DIR)).ok()?.to_string_lossy().into_owned();
        Some((name, content))
    });
    of_log.collect()
}

fn append(log: &mut Log, batch: impl Fn(i64) -> Bytes) {
    let batch = ValidBatch::parse(batch(log.end().0)).expect("it was just built");
    log.append_as_is(&[batch], NOW).expect("it follows the log");
}
