//! A mirrored log that was ended: abort markers, MIRROR_PID_RESET, and what clients write after it.

use tarn_log::{AbortedTransaction, Descriptors, Log, LogConfig, LogDir, Opening, RealDisk, Together};
use tarn_record::{
    ControlRecord, ControlType, Epoch, Offset, Outcome, PartitionIndex, ProducerId, Timestamp, TimestampType,
    ValidBatch, control_batch,
};

use crate::world::*;

/// The epoch that the source's batches have, and the one in which the log is ended.
const SOURCE: i32 = 3;
const HERE: i32 = 7;

#[test]
fn after_the_reset_only_what_was_written_since_is_known_however_the_log_is_opened() {
    for segment_bytes in [150, 400, 1 << 20] {
        for flushed in [Opened::Cleanly, Opened::From(0), Opened::From(5), Opened::From(13), Opened::From(99)]
        {
            let world = World::new(segments_of(segment_bytes));
            let mut log = ended(&world);
            produce_as(&mut log, 1, 700).expect("nothing is known of it any more");
            produce_as(&mut log, 5, 0).expect("it is new");
            let end = log.end();
            log.on_high_watermark(end);
            let before = known(&log);
            assert_eq!(ids(&log), [1, 5]);
            if matches!(flushed, Opened::Cleanly) {
                log.close().unwrap();
            }
            drop(log);
            let mut log = world.open(flushed.opening(end)).0;
            log.on_high_watermark(end);
            assert_eq!(known(&log), before, "{segment_bytes} {flushed:?}");
            assert_eq!(produce_as(&mut log, 1, 700), Err(DUPLICATE), "Tarn has acknowledged it");
            assert_eq!(produce_as(&mut log, 1, 709), Err(OUT_OF_ORDER));
            produce_as(&mut log, 1, 701).expect("it is the next");
            produce_as(&mut log, 2, 41).expect("its mirrored transaction was aborted and is forgotten");
        }
    }
}

#[test]
fn wherever_an_ended_log_is_cut_its_producers_are_those_of_the_batches_that_are_left() {
    for segment_bytes in [150, 400, 1 << 20] {
        let end = ended(&World::new(segments_of(segment_bytes))).end().0 + 2;
        for cut in 0..=end {
            let world = World::new(segments_of(segment_bytes));
            let mut log = ended(&world);
            produce_as(&mut log, 1, 700).unwrap();
            produce_as(&mut log, 5, 0).unwrap();
            let left: Vec<_> = read_all(&log, Offset(0), 1 << 20)
                .into_iter()
                .filter(|batch| batch.header().last_offset() < Offset(cut))
                .collect();
            log.truncate_to(Offset(cut), NOW).unwrap().removal.run().unwrap();
            assert_eq!(log.producers().snapshot(), replayed(&left), "{segment_bytes} {cut}");
            let end = log.end();
            drop(log);
            let log = world.open_unclean(0).0;
            assert_eq!(
                (log.end(), log.producers().snapshot()),
                (end, replayed(&left)),
                "{segment_bytes} {cut}"
            );
        }
    }
}

#[test]
fn a_reader_of_committed_records_sees_the_aborted_transactions_and_all_up_to_the_end() {
    let world = World::new(segments_of(400));
    let mut log = ended(&world);
    log.on_high_watermark(log.end());
    assert_eq!(log.last_stable_offset(log.end()), log.end());
    let aborted = log.aborted_transactions(Offset(0), log.end()).unwrap();
    let aborted: Vec<_> =
        aborted.iter().map(|one| (one.producer_id.0, one.first_offset.0, one.last_offset.0)).collect();
    assert_eq!(aborted, [(2, 4, 9), (3, 6, 10)]);
}

#[test]
fn what_an_end_aborted_is_indexed_with_the_next_append_or_flush_of_everything() {
    type Then = fn(&mut Log);
    let writes: [Then; 3] =
        [|log| assert!(produce_as(log, 1, 700).is_ok()), |log| flush(log), |log| log.close().unwrap()];
    for then in writes {
        let world = World::new(segments_of(1 << 20));
        let mut log = ended(&world);
        let before = log.aborted_transactions(Offset(0), log.end()).unwrap();
        flush_batches(&mut log);
        let index = world.path().join("00000000000000000000.txnindex");
        assert!(!index.exists() && log.flushed_to() == log.end());
        then(&mut log);
        assert_eq!(std::fs::metadata(&index).unwrap().len(), 2 * 34);
        assert_eq!(log.aborted_transactions(Offset(0), log.end()).unwrap(), before);
    }
}

#[test]
fn the_batches_behind_an_offset_are_visited_from_any_thread_and_no_others() {
    let world = World::new(segments_of(150));
    let log = ended(&world);
    let behind = log.batches(Offset(9), log.end());
    let visited = std::thread::spawn(move || {
        let mut visited = Vec::new();
        behind
            .visit(|header, control| {
                visited.push((header.base_offset.0, control.map(|control| control.control_type)));
                if visited.len() == 3 {
                    std::ops::ControlFlow::Break(())
                } else {
                    std::ops::ControlFlow::Continue(())
                }
            })
            .unwrap();
        visited
    });
    let kinds = [ControlType::Abort, ControlType::Abort, ControlType::MirrorPidReset].map(Some);
    let expected: Vec<_> = (9..).zip(kinds).collect();
    assert_eq!(visited.join().expect("it does not panic"), expected);
    log.batches(log.end(), log.end()).visit(|header, _| panic!("{header:?}")).unwrap();
}

#[test]
fn what_ends_few_mirrors_stays_open_until_it_is_flushed() {
    let (root, one) = (tempfile::tempdir().unwrap(), Descriptors::new(1));
    let dir = LogDir::open(std::sync::Arc::new(RealDisk), root.path(), one.clone()).unwrap();
    let mut logs: Vec<_> = (0..3)
        .map(|number| {
            let config = LogConfig::default();
            Log::create(&dir, TOPIC, PartitionIndex(number), TOPIC_ID, config, NOW).unwrap()
        })
        .collect();
    for log in &mut logs {
        log.append_own(&[reset(0)], Together::Few, NOW).unwrap();
    }
    assert_eq!(one.in_use(), 3, "none of them may be closed");
    logs.iter_mut().for_each(flush_batches);
    for log in &mut logs {
        log.append_own(&[reset(1)], Together::Many, NOW).unwrap();
    }
    let fourth = PartitionIndex(3);
    let _log = Log::create(&dir, TOPIC, fourth, TOPIC_ID, LogConfig::default(), NOW).unwrap();
    assert_eq!(one.in_use(), 1, "their file system tells of a failed write-back");
}

/// A mirrored log: producer 1 is idempotent, 4 has committed, 2 and 3 have transactions open. It is ended at
/// offset 9: markers at 9 and 10, the reset at 11.
fn ended(world: &World) -> Log {
    let mut log = world.create();
    let from = |id, sequence, transactional, base, records| {
        Idempotent { id, epoch: 0, sequence, transactional }.batch(base, records, SOURCE)
    };
    mirror(
        &mut log,
        &[
            from(1, 10, false, 0, 2),
            from(4, 0, true, 2, 1),
            of_source(marker(4, Outcome::Commit, 3)),
            from(2, 30, true, 4, 2),
            from(3, 0, true, 6, 1),
            from(2, 32, true, 7, 2),
        ],
    )
    .unwrap();
    let open: Vec<_> = log.producers().open_transactions().map(|open| open.producer_id.0).collect();
    assert_eq!((open, log.end()), (vec![2, 3], Offset(9)));
    let own = [here(marker(2, Outcome::Abort, 9)), here(marker(3, Outcome::Abort, 10)), reset(11)];
    log.append_own(&own, Together::Few, NOW).unwrap();
    assert_eq!((log.end(), log.latest_epoch(), ids(&log)), (Offset(12), Epoch(HERE), vec![]));
    log
}

fn of_source(batch: ValidBatch) -> ValidBatch {
    in_epoch(batch, SOURCE)
}

fn here(batch: ValidBatch) -> ValidBatch {
    in_epoch(batch, HERE)
}

fn in_epoch(batch: ValidBatch, epoch: i32) -> ValidBatch {
    let stamp = tarn_record::Stamp::CreateTime { max_timestamp: batch.header().max_timestamp };
    batch.restamped(batch.header().base_offset, Epoch(epoch), stamp).to_batch()
}

fn reset(base: i64) -> ValidBatch {
    let bytes = control_batch(ControlType::MirrorPidReset, &[0, 0, 0, 0], Offset(base), Epoch(HERE), NOW);
    ValidBatch::parse(bytes).unwrap()
}

/// Sends one record; its offset.
fn produce_as(log: &mut Log, id: i64, sequence: i32) -> Result<i64, i16> {
    let sent = Idempotent { id, epoch: 0, sequence, transactional: false }.batch(0, 1, -1);
    let appended = log.append_as_leader(&client_of(sent), Epoch(HERE), TimestampType::CreateTime, NOW);
    match appended {
        Ok(appended) if appended.duplicate_of.is_some() => Err(DUPLICATE),
        Ok(appended) => Ok(appended.first.0),
        Err(error) => Err(error.code()),
    }
}

const OUT_OF_ORDER: i16 = 45;
const DUPLICATE: i16 = 46;

#[derive(Clone, Copy, Debug)]
enum Opened {
    Cleanly,
    /// After a crash, with this recovery point.
    From(i64),
}

impl Opened {
    fn opening(self, end: Offset) -> Opening {
        let (clean, recovery_point) = match self {
            Opened::Cleanly => (true, end),
            Opened::From(offset) => (false, Offset(offset).min(end)),
        };
        Opening { clean, recovery_point, log_start: Offset(0) }
    }
}

/// What a log knows of its producers and transactions.
#[derive(Debug, PartialEq)]
struct Known {
    producers: Vec<u8>,
    unstable: Option<Offset>,
    aborted: Vec<AbortedTransaction>,
    epochs: Vec<(i32, i64)>,
}

fn known(log: &Log) -> Known {
    Known {
        producers: log.producers().snapshot(),
        unstable: log.first_unstable(),
        aborted: log.aborted_transactions(Offset(0), log.end()).unwrap(),
        epochs: starts(log),
    }
}

fn ids(log: &Log) -> Vec<i64> {
    log.producers().iter().map(|(ProducerId(id), _)| id).collect()
}

/// The producers that these batches leave.
fn replayed(batches: &[ValidBatch]) -> Vec<u8> {
    let mut states = tarn_log::producers::ProducerStates::default();
    for batch in batches {
        states.update(batch.header(), ControlRecord::parse(batch).as_ref());
    }
    states.expire(Timestamp(NOW.0), i64::MAX);
    states.snapshot()
}
