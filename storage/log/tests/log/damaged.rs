//! Bytes that are not what was written any more, where a log is looked at without being read from end to end.

use std::fs;
use std::ops::ControlFlow;

use tarn_log::{CleanError, EpochsFault, Log, LogConfig, LogError, OffsetMap, Opening};
use tarn_record::{Epoch, HEADER_BYTES, Offset, Outcome, PartitionIndex, ValidBatch};

use crate::compacting::{RULES, bound, in_turn};
use crate::world::*;

/// Whichever bit of a header is another one than was written, a search finds the right batch or says that it cannot.
#[test]
fn a_damaged_header_misleads_no_search() {
    for segment_bytes in [1 << 20, 300] {
        let world = World::new(segments_of(segment_bytes));
        let mut log = world.create();
        let batches: Vec<_> = (0..6).map(|number| batch(number * 3, 3, number as i32 / 2)).collect();
        mirror(&mut log, &batches).unwrap();
        let mut told = 0;
        for damaged in &batches {
            let (base, newest) = (damaged.header().base_offset, Offset(18));
            for bit in 0..HEADER_BYTES * 8 {
                flip(&world, damaged, bit);
                for below in [base.plus(1), base.plus(3), newest] {
                    let truth = (below.0 - 1) / 3 * 3;
                    match log.batch_below(below).run_checked() {
                        Ok(found) => assert_eq!(
                            found.map(|header| header.base_offset.0),
                            Some(truth),
                            "bit {bit} of the batch at {base}, below {below}"
                        ),
                        Err(_) => told += 1,
                    }
                    let is_the_one = truth == base.0;
                    assert!(
                        !is_the_one || log.batch_below(below).run_checked().is_err(),
                        "bit {bit} of {base}"
                    );
                }
                flip(&world, damaged, bit);
            }
        }
        assert!(told > 0);
        assert!(log.newest_batch().run_checked().is_ok(), "all is as it was");
    }
}

#[test]
fn where_the_newest_batch_ends_is_looked_at_even_where_it_is_not_read() {
    let world = World::new(segments_of(1 << 20));
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 3, 0), batch(3, 3, 0)]).unwrap();
    let newest = batch(3, 3, 0);
    for bit in 0..64 {
        flip(&world, &newest, bit);
        assert!(matches!(log.newest_batch().run(), Err(LogError::Damaged { .. })), "bit {bit}");
        flip(&world, &newest, bit);
    }
    assert!(log.newest_batch().run().unwrap().is_some());
}

/// Who drops control batches without a copy goes by what they say.
#[test]
fn a_batch_is_believed_to_be_a_control_batch_only_where_it_is_what_was_written() {
    let world = World::new(segments_of(1 << 20));
    let mut log = world.create();
    let (records, marker) = (batch(0, 3, 0), marker(7, Outcome::Abort, 3));
    mirror(&mut log, &[records.clone(), marker.clone()]).unwrap();
    let counts = |log: &Log| log.batches(Offset(0), log.end()).count();
    assert_eq!(counts(&log).unwrap().control_records, 1);
    flip(&world, &records, CONTROL_BIT);
    assert!(matches!(counts(&log), Err(LogError::Damaged { .. })), "records are no markers");
    flip(&world, &records, CONTROL_BIT);
    flip(&world, &marker, (marker.bytes().len() - 1) * 8);
    assert!(matches!(counts(&log), Err(LogError::Damaged { .. })), "nor is what was one");
}

/// No checksum covers base offsets, and what is wrong with them would be written into the indexes.
#[test]
fn offsets_that_do_not_fit_are_found_before_compaction_goes_by_them() {
    let world = World::new(segments_of(300));
    let mut log = world.create();
    let written = in_turn(&mut log, 12);
    flush(&mut log);
    // Below the segment, above the next one, and higher than a segment can hold.
    for bit in [0, 30, 58, 61, 63] {
        flip(&world, &written[4], bit);
        let bound = bound(&log);
        let found = log.dirtiness(Offset(0), &bound, &RULES, NOW).unwrap().unwrap();
        let go_on = &mut |_| ControlFlow::Continue(());
        let round = log.cleaning(&found, &RULES, NOW).map(OffsetMap::new(1 << 16), go_on);
        assert!(matches!(round, Err(CleanError::Storage(LogError::Damaged { .. }))), "bit {bit}: {round:?}");
        flip(&world, &written[4], bit);
    }
}

/// An epoch that no leader has reached would have every leader refused.
#[test]
fn whatever_is_wrong_with_the_file_of_the_epochs_the_newest_is_that_of_the_newest_batch() {
    let world = World::new(segments_of(300));
    let mut log = world.create();
    let batches: Vec<_> = (0..6).map(|number| batch(number * 3, 3, number as i32 / 2 + 3)).collect();
    mirror(&mut log, &batches).unwrap();
    log.close().unwrap();
    let (path, epochs) = (world.path().join("leader-epoch-checkpoint"), log.epochs().clone());
    drop(log);
    let whole = fs::read(&path).unwrap();
    let (mut told, mut told_by_batch) = (0, 0);
    for bytes in damages(&whole) {
        for clean in [true, false] {
            fs::write(&path, &bytes).unwrap();
            let opening = Opening { clean, recovery_point: Offset(18), log_start: Offset(0) };
            let (mut log, report) = world.open(opening);
            let shown = String::from_utf8_lossy(&bytes);
            assert_eq!(
                (log.latest_epoch(), log.epochs().at(Offset(17))),
                (Epoch(5), Some(Epoch(5))),
                "{shown:?}"
            );
            if let Some(fault) = report.reread_epochs {
                assert_eq!(log.epochs(), &epochs, "{shown:?}: {fault}");
                told += 1;
                told_by_batch += usize::from(matches!(fault, EpochsFault::NotOfNewestBatch { .. }));
            }
            log.begin_epoch(Epoch(6)).unwrap();
        }
    }
    assert!(told > told_by_batch && told_by_batch > 0, "{told}, {told_by_batch}");
    // Where the newest segment has no batch, the one before it tells.
    fs::write(&path, String::from_utf8(whole).unwrap().replace("5 12", "7 12")).unwrap();
    fs::write(world.path().join(format!("{:020}.log", 18)), []).unwrap();
    let (log, report) = world.open(Opening { clean: true, recovery_point: Offset(18), log_start: Offset(0) });
    let (offset, epoch, found) = (Offset(17), Epoch(5), Epoch(7));
    assert_eq!(report.reread_epochs, Some(EpochsFault::NotOfNewestBatch { offset, epoch, found }));
    assert_eq!((log.epochs(), log.end()), (&epochs, Offset(18)));
}

#[test]
fn a_damaged_partition_metadata_is_named_with_what_is_wrong_in_it() {
    let world = World::new(LogConfig::default());
    world.create().close().unwrap();
    let path = world.path().join("partition.metadata");
    let whole = fs::read(&path).unwrap();
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let opening = Opening { clean: true, recovery_point: Offset(0), log_start: Offset(0) };
        Log::open(&world.dir, TOPIC, PartitionIndex(0), world.config.clone(), opening, NOW)
    };
    let mut told = 0;
    for bytes in damages(&whole) {
        match open(&bytes) {
            // Another id, or none: whose log it is, is compared with the metadata.
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                let says_where =
                    ["line 1", "line 2", "version cannot be"].iter().any(|part| text.contains(part));
                assert!(text.contains("partition.metadata") && says_where, "{text}");
                told += 1;
            }
        }
    }
    assert!(told > whole.len());
    assert_eq!(open(&whole).unwrap().0.topic_id(), TOPIC_ID, "nothing else has changed");
}

/// The bytes of a file with each bit of them another one, and cut off at each.
fn damages(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let flipped = (0..whole.len() * 8).map(|bit| {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    flipped.chain((0..whole.len()).map(|len| whole[..len].to_vec()))
}

/// The bit of a batch that makes it one of control records: the sixth of the attributes.
const CONTROL_BIT: usize = 22 * 8 + 5;

/// Flips a bit of a batch where it stands in the log.
fn flip(world: &World, batch: &ValidBatch, bit: usize) {
    let names = world.names().into_iter().filter(|name| name.ends_with(".log"));
    let path = names
        .map(|name| world.path().join(name))
        .filter(|path| {
            let base: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            base <= batch.header().base_offset.0
        })
        .max()
        .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // What is behind the place that a flip may have changed is as it was.
    let whole = batch.bytes().len();
    let tail = &batch.bytes()[HEADER_BYTES..];
    let at = (0..=bytes.len() - whole).find(|at| bytes[at + HEADER_BYTES..].starts_with(tail)).unwrap();
    bytes[at + bit / 8] ^= 1 << (bit % 8);
    fs::write(path, bytes).unwrap();
}
