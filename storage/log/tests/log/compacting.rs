//! Compaction of a log on a real disk: what stays, how far it goes, and what everybody else sees of it.

use std::ops::ControlFlow;

use tarn_log::{
    CleanBound, CleanError, CleanRules, Dirtiness, FirstBatch, Log, LogConfig, OffsetMap, Opening, Spent,
    SwapError,
};
use tarn_record::{
    BatchBuilder, Compression, Epoch, Offset, Outcome, ProducerEpoch, ProducerId, Record, Sequence,
    Timestamp, ValidBatch,
};

use crate::world::*;

pub(crate) const RULES: CleanRules =
    CleanRules { delete_retention_ms: 1000, min_lag_ms: 0, max_lag_ms: i64::MAX };

/// All that can be compacted becomes one segment.
pub(crate) fn one_segment() -> LogConfig {
    segments_of(1 << 20)
}

pub(crate) fn later(ms: i64) -> Timestamp {
    Timestamp(NOW.0 + ms)
}

/// A batch of one record, padded so that a few of them fill a segment; without a value a tombstone.
pub(crate) fn keyed(offset: i64, key: &str, value: Option<&str>) -> ValidBatch {
    record(BatchBuilder::new(Offset(offset), Compression::None), offset, key, value)
}

fn in_transaction(offset: i64, producer: i64, sequence: i32, key: &str) -> ValidBatch {
    let builder = BatchBuilder::new(Offset(offset), Compression::None)
        .producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence))
        .transactional();
    record(builder, offset, key, Some("in a transaction"))
}

fn record(builder: BatchBuilder, offset: i64, key: &str, value: Option<&str>) -> ValidBatch {
    let mut builder = builder.leader_epoch(Epoch(0));
    let (key, value) = (Some(key.as_bytes()), value.map(|value| format!("{value:-<60}")));
    let value = value.as_ref().map(String::as_bytes);
    builder.add(&Record { key, value, timestamp: later(offset), ..Record::default() });
    ValidBatch::parse(builder.build()).unwrap()
}

pub(crate) fn bound(log: &Log) -> CleanBound {
    CleanBound { high_watermark: log.end(), recovery_point: log.recovery_point() }
}

fn dirtiness(log: &mut Log, first_dirty: Offset) -> Option<Dirtiness> {
    let bound = bound(log);
    log.dirtiness(first_dirty, &bound, &RULES, NOW).unwrap()
}

fn go_on(_: Spent) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A round over all that is dirty; returns where the next one begins.
pub(crate) fn compact(log: &mut Log, first_dirty: Offset, now: Timestamp) -> Offset {
    compact_with(log, first_dirty, now, 1 << 20)
}

fn compact_with(log: &mut Log, first_dirty: Offset, now: Timestamp, map_bytes: usize) -> Offset {
    let Some(dirtiness) = dirtiness(log, first_dirty) else { return first_dirty };
    let mut round = log.cleaning(&dirtiness, &RULES, now).map(OffsetMap::new(map_bytes), &mut go_on).unwrap();
    while let Some(cleaned) = round.next(&mut go_on).unwrap() {
        log.swap(cleaned).unwrap().removal.run().unwrap();
    }
    round.end()
}

/// Key and offset of each record.
pub(crate) fn contents(log: &Log) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    for batch in read_all(log, log.start(), 300) {
        let mut records = batch.reader(1 << 20).unwrap();
        while let Some(record) = records.next() {
            let record = record.unwrap();
            if !batch.header().is_control() {
                let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                found.push((key, batch.header().base_offset.0 + i64::from(record.offset_delta)));
            }
        }
    }
    found
}

/// Records of three keys in turn.
pub(crate) fn in_turn(log: &mut Log, records: i64) -> Vec<ValidBatch> {
    let first = log.end().0;
    let key = |offset: i64| format!("key {}", offset % 3);
    let batches: Vec<_> =
        (first..first + records).map(|offset| keyed(offset, &key(offset), Some("value"))).collect();
    mirror(log, &contiguous(&batches)).unwrap();
    batches
}

#[test]
fn the_newest_record_of_each_key_stays_where_it_was() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = in_turn(&mut log, 40);
    flush(&mut log);
    let (end, segments) = (log.end(), log.segment_count());
    log.configure(one_segment());
    let next = compact(&mut log, Offset(0), NOW);
    assert!(next > Offset(30) && next < end, "the active segment is left alone: {next}");
    assert!(segments > 5 && log.segment_count() == 2);
    assert_eq!((log.start(), log.end()), (Offset(0), end));
    let below: Vec<i64> =
        contents(&log).into_iter().map(|(_, offset)| offset).filter(|offset| *offset < next.0).collect();
    assert_eq!(below, [next.0 - 3, next.0 - 2, next.0 - 1]);
    let left = read_all(&log, Offset(0), 1 << 20);
    assert!(left.iter().all(|batch| all.contains(batch)), "what stays keeps its bytes");
    assert_eq!(dirtiness(&mut log, next), None);
    for offset in 0..end.0 {
        let plan = log.read(Offset(offset), 1, FirstBatch::MayBeLarger, end).unwrap();
        let first = &tarn_record::batches(plan.read().unwrap()).next().unwrap().unwrap();
        assert!(first.header().last_offset().0 >= offset && plan.first_offset == first.header().base_offset);
        let found = log.search_timestamp(later(offset), end).run().unwrap().unwrap();
        assert_eq!(found.offset.0, offset.max(next.0 - 3), "from {offset} on");
    }
    log.close().unwrap();
    drop(log);
    for clean in [true, false] {
        let log = world.open(Opening { clean, recovery_point: end, log_start: Offset(0) }).0;
        assert_eq!(read_all(&log, Offset(0), 1 << 20), left);
    }
    let leftovers = [".cleaned", ".swap"];
    assert!(!world.names().iter().any(|name| leftovers.iter().any(|suffix| name.ends_with(suffix))));
    assert!(!world.waits_for_removal());
}

#[test]
fn segments_of_which_everything_stays_are_left_alone() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let unique = |offset| keyed(offset, &format!("key {offset}"), Some("value"));
    mirror(&mut log, &contiguous(&(0..20).map(unique).collect::<Vec<_>>())).unwrap();
    flush(&mut log);
    let dirtiness = dirtiness(&mut log, Offset(0)).unwrap();
    let (map, mut written) = (OffsetMap::new(1 << 20), 0);
    let mut watch = |spent: Spent| {
        written += spent.written;
        ControlFlow::Continue(())
    };
    let mut round = log.cleaning(&dirtiness, &RULES, NOW).map(map, &mut watch).unwrap();
    assert!(round.next(&mut watch).unwrap().is_none());
    drop(round);
    assert_eq!((written, dirtiness.ratio()), (0, 1.0));
}

#[test]
fn a_small_map_takes_several_rounds_and_one_that_is_too_small_is_said() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let unique = |offset: i64| keyed(offset, &format!("key {}", offset % 20), Some("value"));
    mirror(&mut log, &contiguous(&(0..50).map(unique).collect::<Vec<_>>())).unwrap();
    flush(&mut log);
    let found = dirtiness(&mut log, Offset(0)).unwrap();
    let tiny = OffsetMap::new(1);
    let refused = log.cleaning(&found, &RULES, NOW).map(tiny, &mut go_on);
    assert!(matches!(refused, Err(CleanError::MapTooSmall { offset: Offset(0), .. })));
    let (mut next, mut rounds, map_bytes) = (Offset(0), 0, 24 * 16);
    while dirtiness(&mut log, next).is_some() {
        let before = next;
        next = compact_with(&mut log, next, NOW, map_bytes);
        assert!(next > before);
        rounds += 1;
    }
    assert!(rounds > 3, "{rounds} rounds");
    let below: Vec<_> = contents(&log).into_iter().filter(|(_, offset)| *offset < next.0).collect();
    assert_eq!(below.len(), 20);
}

#[test]
fn only_what_nobody_can_take_back_is_compacted() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    in_turn(&mut log, 40);
    let find = |log: &mut Log, bound: CleanBound, rules: &CleanRules| {
        log.dirtiness(Offset(0), &bound, rules, later(50)).unwrap().map(|found| found.end.0)
    };
    let high = bound(&log);
    assert_eq!(find(&mut log, high, &RULES), None, "nothing was flushed");
    let lies = CleanBound { recovery_point: log.end(), ..high };
    assert_eq!(find(&mut log, lies, &RULES), None, "the file is older than the log");
    let once_flushed = log.dirtiness_once_flushed(Offset(0), log.end(), &RULES, NOW).unwrap();
    flush(&mut log);
    let all = bound(&log);
    let most = find(&mut log, all, &RULES).unwrap();
    assert_eq!(once_flushed.map(|found| found.end.0), Some(most));
    let half = find(&mut log, CleanBound { high_watermark: Offset(20), ..all }, &RULES).unwrap();
    assert!(half <= 20 && most > 30);
    let saved = CleanBound { recovery_point: Offset(20), ..all };
    assert_eq!(find(&mut log, saved, &RULES), Some(half));
    let lag = CleanRules { min_lag_ms: 30, ..RULES };
    assert_eq!(find(&mut log, all, &lag), Some(half), "records of the last 30 ms are too young");
    mirror(&mut log, &[in_transaction(40, 7, 0, "open")]).unwrap();
    mirror(&mut log, &(41..60).map(|offset| keyed(offset, "k", Some("v"))).collect::<Vec<_>>()).unwrap();
    flush(&mut log);
    let all = bound(&log);
    assert!(find(&mut log, all, &RULES).unwrap() <= 40, "the transaction is open");
}

#[test]
fn what_waits_for_too_long_is_overdue() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    in_turn(&mut log, 20);
    flush(&mut log);
    let (all, rules) = (bound(&log), CleanRules { max_lag_ms: 100, ..RULES });
    let mut overdue = |now| log.dirtiness(Offset(0), &all, &rules, later(now)).unwrap().unwrap().overdue_ms;
    assert_eq!((overdue(100), overdue(101), overdue(150)), (0, 1, 50));
}

#[test]
fn the_last_batch_of_a_log_is_never_touched() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    in_turn(&mut log, 20);
    let _ = log.truncate_to(Offset(17), NOW).unwrap();
    flush(&mut log);
    log.close().unwrap();
    drop(log);
    let mut log = world.open_clean();
    let last = log.newest_batch().run().unwrap();
    let next = compact(&mut log, Offset(0), NOW);
    assert!(next <= Offset(16));
    assert_eq!(log.newest_batch().run().unwrap(), last);
}

#[test]
fn a_plan_is_served_after_a_swap_and_not_after_a_truncation_of_what_it_names() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    in_turn(&mut log, 40);
    flush(&mut log);
    let plan = |log: &Log, from| log.read(Offset(from), 200, FirstBatch::MayBeLarger, log.end()).unwrap();
    let (first, second) = (plan(&log, 0), plan(&log, 20));
    let expected = (first.read().unwrap(), second.read().unwrap());
    let mut removals = Vec::new();
    for _ in 0..2 {
        let found = dirtiness(&mut log, Offset(0)).unwrap();
        let map = OffsetMap::new(1 << 20);
        let mut round = log.cleaning(&found, &RULES, NOW).map(map, &mut go_on).unwrap();
        while let Some(cleaned) = round.next(&mut go_on).unwrap() {
            removals.push(log.swap(cleaned).unwrap().removal);
        }
        // What was compacted is dirty again for the next one.
        let tombstones: Vec<_> = (0..3).map(|n| keyed(log.end().0 + n, &format!("key {n}"), None)).collect();
        mirror(&mut log, &tombstones).unwrap();
        in_turn(&mut log, 12);
        flush(&mut log);
    }
    assert!(removals.len() > 1);
    assert_eq!((first.read().unwrap(), second.read().unwrap()), expected);
    removals.push(log.truncate_to(Offset(15), NOW).unwrap().removal);
    assert!(first.slices[0].is_current() && !second.slices[0].is_current());
    assert!(second.read().is_err());
    removals.into_iter().for_each(|removal| removal.run().unwrap());
    assert!(!world.waits_for_removal());
}

#[test]
fn what_was_written_for_another_log_is_not_put_into_this_one() {
    let change: [fn(&mut Log); 3] = [
        |log| drop(log.truncate_to(Offset(15), NOW).unwrap()),
        |log| drop(log.advance_start(Offset(12), NOW).unwrap()),
        |log| drop(log.truncate_fully_and_start_at(Offset(3), NOW).unwrap()),
    ];
    for change in change {
        let world = World::new(segments_of(600));
        let mut log = world.create();
        in_turn(&mut log, 40);
        flush(&mut log);
        let found = dirtiness(&mut log, Offset(0)).unwrap();
        let map = OffsetMap::new(1 << 20);
        let mut round = log.cleaning(&found, &RULES, NOW).map(map, &mut go_on).unwrap();
        let cleaned = round.next(&mut go_on).unwrap().unwrap();
        change(&mut log);
        let left = read_all(&log, log.start(), 1 << 20);
        match log.swap(cleaned) {
            Err(SwapError::Stale(removal)) => removal.run().unwrap(),
            other => panic!("{other:?}"),
        }
        assert_eq!(read_all(&log, log.start(), 1 << 20), left);
        assert!(!world.names().iter().any(|name| name.ends_with(".cleaned")));
    }
}

#[test]
fn a_round_that_is_given_up_leaves_the_log_and_the_next_one_clears_up() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    in_turn(&mut log, 40);
    flush(&mut log);
    let left = read_all(&log, Offset(0), 1 << 20);
    log.configure(one_segment());
    let found = dirtiness(&mut log, Offset(0)).unwrap();
    let (map, mut told) = (OffsetMap::new(1 << 20), 0);
    let mut round = log.cleaning(&found, &RULES, NOW).map(map, &mut go_on).unwrap();
    let mut give_up = |_: Spent| {
        told += 1;
        if told > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert!(matches!(round.next(&mut give_up), Err(CleanError::GivenUp)));
    drop(round);
    assert_eq!(read_all(&log, Offset(0), 1 << 20), left);
    let stray = world.path().join("00000000000000000007.log.cleaned");
    std::fs::write(&stray, b"of a round before").unwrap();
    compact(&mut log, Offset(0), NOW);
    assert!(!stray.exists());
    assert!(!world.names().iter().any(|name| name.ends_with(".cleaned")));
}

#[test]
fn a_tombstone_is_gone_after_its_time_and_so_is_the_key() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    mirror(&mut log, &[keyed(0, "gone", Some("value")), keyed(1, "gone", None)]).unwrap();
    in_turn(&mut log, 20);
    flush(&mut log);
    let keys = |log: &Log| contents(log).iter().filter(|(key, _)| key == "gone").count();
    let next = compact(&mut log, Offset(0), NOW);
    assert_eq!((keys(&log), log.max_timestamp(log.end()).run().unwrap().unwrap().offset.0), (1, 21));
    let mut first_dirty = next;
    for (now, left) in [(later(999), 1), (later(1000), 0)] {
        in_turn(&mut log, 9);
        flush(&mut log);
        first_dirty = compact(&mut log, first_dirty, now);
        assert_eq!(keys(&log), left);
    }
}

/// A transaction that begins in one segment and ends in the next, which is compacted until its marker is gone.
fn without_marker(world: &World, outcome: Outcome) -> Log {
    let mut log = world.create();
    let filler =
        |from: i64, to: i64| (from..to).map(|offset| keyed(offset, "k", Some("v"))).collect::<Vec<_>>();
    mirror(&mut log, &filler(0, 3)).unwrap();
    mirror(&mut log, &[in_transaction(3, 7, 0, "t")]).unwrap();
    mirror(&mut log, &filler(4, 8)).unwrap();
    mirror(&mut log, &[marker(7, outcome, 8)]).unwrap();
    mirror(&mut log, &[in_transaction(9, 7, 1, "t"), marker(7, Outcome::Commit, 10)]).unwrap();
    mirror(&mut log, &filler(11, 40)).unwrap();
    mirror(&mut log, &[in_transaction(40, 7, 2, "t"), marker(7, Outcome::Commit, 41)]).unwrap();
    log.on_high_watermark(log.end());
    flush(&mut log);
    for pass in 0..4 {
        compact(&mut log, Offset(0), later(2000 * pass));
    }
    assert!(!read_all(&log, Offset(0), 1 << 20).iter().any(|batch| batch.header().base_offset == Offset(8)));
    log
}

#[test]
fn a_transaction_whose_marker_is_gone_is_not_opened_again() {
    for outcome in [Outcome::Abort, Outcome::Commit] {
        let world = World::new(segments_of(600));
        let mut log = without_marker(&world, outcome);
        assert_eq!(log.first_unstable(), None);
        let _ = log.truncate_to(Offset(30), NOW).unwrap();
        log.on_high_watermark(log.end());
        assert_eq!(log.first_unstable(), None, "a snapshot from between the two knew it as open");
        drop(log);
        let mut log = world.open_unclean(0).0;
        log.on_high_watermark(log.end());
        assert_eq!(log.first_unstable(), None);
    }
}

#[test]
fn a_snapshot_of_segments_that_stay_as_they_are_goes_too_where_it_knows_such_a_transaction_as_open() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let unique = |from: i64, to: i64| -> Vec<_> {
        (from..to).map(|offset| keyed(offset, &format!("key {offset}"), Some("v"))).collect()
    };
    mirror(&mut log, &[in_transaction(0, 7, 0, "t")]).unwrap();
    mirror(&mut log, &unique(1, 14)).unwrap();
    mirror(&mut log, &[marker(7, Outcome::Abort, 14)]).unwrap();
    mirror(&mut log, &unique(15, 40)).unwrap();
    mirror(&mut log, &[in_transaction(40, 7, 1, "u"), marker(7, Outcome::Commit, 41)]).unwrap();
    mirror(&mut log, &unique(42, 50)).unwrap();
    log.on_high_watermark(log.end());
    flush(&mut log);
    for pass in 0..3 {
        compact(&mut log, Offset(0), later(2000 * pass));
    }
    let is_there = |offset: i64| contents(&log).iter().any(|(_, found)| *found == offset);
    assert!(!is_there(0) && (1..14).all(is_there), "only the transaction is gone");
    assert!(!read_all(&log, Offset(0), 1 << 20).iter().any(|batch| batch.header().base_offset == Offset(14)));
    let cut = read_all(&log, Offset(14), 1 << 20)[0].header().next_offset();
    let _ = log.truncate_to(cut, NOW).unwrap();
    log.on_high_watermark(log.end());
    assert_eq!(log.first_unstable(), None);
}

#[test]
fn an_aborted_transaction_is_told_as_long_as_a_batch_of_it_is_there() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    mirror(&mut log, &[in_transaction(0, 7, 0, "t"), in_transaction(1, 8, 0, "u")]).unwrap();
    mirror(&mut log, &[marker(7, Outcome::Abort, 2), marker(8, Outcome::Abort, 3)]).unwrap();
    mirror(&mut log, &[in_transaction(4, 7, 1, "t"), marker(7, Outcome::Commit, 5)]).unwrap();
    in_turn(&mut log, 20);
    log.on_high_watermark(log.end());
    flush(&mut log);
    let told = |log: &Log| -> Vec<i64> {
        let found = log.aborted_transactions(Offset(0), log.end()).unwrap();
        found.iter().map(|entry| entry.producer_id.0).collect()
    };
    assert_eq!(told(&log), [7, 8]);
    let next = compact(&mut log, Offset(0), NOW);
    assert_eq!(told(&log), [7, 8], "of both there was a batch in this pass");
    let keys = contents(&log);
    assert!(!keys.contains(&("u".to_owned(), 1)) && keys.contains(&("t".to_owned(), 4)));
    in_turn(&mut log, 12);
    flush(&mut log);
    compact(&mut log, next, NOW);
    assert_eq!(
        told(&log),
        [8],
        "the batch at offset 1 is the newest of producer 8, and is there without records"
    );
    assert_eq!(log.producers().get(ProducerId(8)).unwrap().last_sequence(), Sequence(0));
    drop(log);
    let log = world.open_unclean(0).0;
    assert_eq!(told(&log), [8], "as read from the batches");
    assert_eq!(log.producers().get(ProducerId(8)).unwrap().last_sequence(), Sequence(0));
}

#[test]
fn damage_is_found_before_it_is_copied() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    in_turn(&mut log, 40);
    flush(&mut log);
    let path = world.path().join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let found = dirtiness(&mut log, Offset(0)).unwrap();
    let map = OffsetMap::new(1 << 20);
    let refused = log.cleaning(&found, &RULES, NOW).map(map, &mut go_on);
    assert!(matches!(refused, Err(CleanError::Storage(tarn_log::LogError::Damaged { position: 0, .. }))));
}

#[test]
fn a_log_of_which_a_swap_is_not_synced_can_be_flushed_and_closed() {
    let world = World::new(LogConfig { flush: tarn_log::FlushPolicy::Group, ..segments_of(600) });
    let mut log = world.create();
    in_turn(&mut log, 40);
    flush(&mut log);
    in_turn(&mut log, 3);
    let job = log.flush_job().unwrap();
    compact(&mut log, Offset(0), NOW);
    let flushed = job.run().unwrap();
    log.flushed(flushed).unwrap();
    assert_eq!(log.flushed_to(), log.end(), "a flush that was under way counts");
    assert!(log.flush_job().is_some(), "the names of the swap are still to be synced");
    let left = contents(&log);
    log.close().unwrap();
    drop(log);
    assert_eq!(contents(&world.open_clean()), left);
}

#[test]
fn a_transaction_whose_marker_cannot_be_compacted_yet_holds_the_round_back() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    in_turn(&mut log, 8);
    mirror(&mut log, &[in_transaction(8, 7, 0, "key 0")]).unwrap();
    mirror(&mut log, &(9..20).map(|offset| keyed(offset, "key 1", Some("v"))).collect::<Vec<_>>()).unwrap();
    mirror(&mut log, &[marker(7, Outcome::Commit, 20)]).unwrap();
    log.on_high_watermark(log.end());
    flush(&mut log);
    assert!(dirtiness(&mut log, Offset(0)).unwrap().end > Offset(12));
    let next = compact(&mut log, Offset(0), NOW);
    assert_eq!(
        next,
        Offset(8),
        "a crash that takes the marker must not leave its records in place of others"
    );
    assert!(contents(&log).contains(&("key 0".to_owned(), 6)));
    assert_eq!(compact(&mut log, next, NOW), next);
    mirror(&mut log, &(21..30).map(|offset| keyed(offset, "key 1", Some("v"))).collect::<Vec<_>>()).unwrap();
    flush(&mut log);
    assert!(compact(&mut log, next, NOW) > Offset(20));
    assert!(!contents(&log).contains(&("key 0".to_owned(), 6)));
}
