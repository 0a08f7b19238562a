//! Dropping records from either end of a log.

use tarn_log::{AppendError, FileSlice, FirstBatch, Log, LogConfig, LogError, Opening, ReadFrom};
use tarn_record::{Epoch, Offset, Outcome};

use crate::world::*;

/// Twenty batches of two records, in epochs of four batches each, in small segments.
fn filled(world: &World) -> Log {
    let mut log = world.create();
    for number in 0..20 {
        mirror(&mut log, &[batch(number * 2, 2, number as i32 / 4)]).unwrap();
    }
    log
}

fn slice_at(log: &Log, offset: i64) -> FileSlice {
    log.read(Offset(offset), 1, FirstBatch::MayBeLarger, log.end()).unwrap().slices[0].clone()
}

#[test]
fn a_truncation_drops_whole_batches_and_their_epochs() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let generation = log.generation();
    let truncated = log.truncate_to(Offset(21), NOW).unwrap();
    assert_eq!(truncated.end, Offset(20), "the batch 20 to 21 went as a whole");
    assert_eq!((log.end(), log.latest_epoch()), (Offset(20), Epoch(2)));
    assert!(log.generation() > generation);
    assert_eq!(read_all(&log, Offset(0), 1 << 20).last().unwrap().header().last_offset(), Offset(19));
    truncated.removal.run().unwrap();
    assert!(!world.waits_for_removal());
}

#[test]
fn after_a_truncation_the_log_goes_on_in_a_new_segment() {
    let world = World::new(LogConfig::default());
    let mut log = filled(&world);
    let _ = log.truncate_to(Offset(10), NOW).unwrap();
    let appended = mirror(&mut log, &[batch(10, 5, 7)]).unwrap();
    assert!(appended.rolled);
    assert!(world.names().contains(&"00000000000000000010.log".to_owned()));
    assert_eq!(spans(&read_all(&log, Offset(8), 1 << 20)), [(8, 9), (10, 14)]);
    assert_eq!(log.epochs().end_of(Epoch(1), log.end()).unwrap().end, Offset(10));
}

#[test]
fn only_slices_that_lost_bytes_are_no_longer_current() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let (kept, dropped, far) = (slice_at(&log, 18), slice_at(&log, 20), slice_at(&log, 39));
    let before = kept.read().unwrap();
    let _ = log.truncate_to(Offset(20), NOW).unwrap();
    mirror(&mut log, &[batch(20, 2, 9), batch(22, 30, 9)]).unwrap();
    assert!(kept.is_current());
    assert_eq!(kept.read().unwrap(), before);
    for gone in [dropped, far] {
        assert!(!gone.is_current());
        assert!(gone.open_file(ReadFrom::Disk).is_err() && gone.read().is_err());
    }
}

#[test]
fn a_segment_that_loses_all_its_batches_is_replaced_and_not_written_over() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let base = world.names().iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).max().unwrap();
    let held = slice_at(&log, base).open_file(ReadFrom::Disk).unwrap();
    let before = std::io::read_to_string(&mut &*held).is_ok();
    let _ = log.truncate_to(Offset(base), NOW).unwrap();
    mirror(&mut log, &[batch(base, 2, 9)]).unwrap();
    use std::os::unix::fs::MetadataExt;
    let path = world.path().join(format!("{base:020}.log"));
    assert_ne!(held.metadata().unwrap().ino(), std::fs::metadata(path).unwrap().ino(), "{before}");
    assert_eq!(read_all(&log, Offset(base), 1 << 20), [batch(base, 2, 9)]);
}

#[test]
fn a_truncation_to_the_start_or_below_it_empties_the_log() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let _ = log.truncate_to(Offset(0), NOW).unwrap();
    assert_eq!((log.start(), log.end(), log.latest_epoch()), (Offset(0), Offset(0), Epoch::NONE));
    mirror(&mut log, &[batch(0, 20, 0)]).unwrap();
    let _ = log.advance_start(Offset(20), NOW).unwrap();
    let _ = log.truncate_to(Offset(7), NOW).unwrap();
    assert_eq!((log.start(), log.end(), log.size_bytes()), (Offset(7), Offset(7), 0));
    mirror(&mut log, &[batch(7, 3, 0)]).unwrap();
    assert_eq!(spans(&read_all(&log, Offset(7), 100)), [(7, 9)]);
}

#[test]
fn a_truncation_at_or_above_the_end_changes_nothing() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let generation = log.generation();
    assert_eq!(log.truncate_to(Offset(40), NOW).unwrap().end, Offset(40));
    assert_eq!(log.truncate_to(Offset(99), NOW).unwrap().end, Offset(40));
    assert_eq!(log.generation(), generation);
}

#[test]
fn the_epoch_before_a_log_that_a_truncation_emptied_ends_where_it_starts() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 1, 3)]).unwrap();
    log.advance_start(Offset(1), NOW).unwrap();
    mirror(&mut log, &[batch(17, 1, 4)]).unwrap();
    let _ = log.truncate_to(Offset(17), NOW).unwrap();
    assert_eq!((log.start(), log.end()), (Offset(17), Offset(17)));
    assert_eq!(starts(&log), [(3, 17)]);
    log.close().unwrap();
    assert_eq!(
        starts(&world.open(Opening { clean: true, recovery_point: Offset(17), log_start: Offset(17) }).0),
        [(3, 17)]
    );
}

#[test]
fn an_epoch_that_wrote_nothing_goes_with_a_truncation_to_the_end() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    log.begin_epoch(Epoch(11)).unwrap();
    let _ = log.truncate_to(Offset(40), NOW).unwrap();
    assert_eq!(log.latest_epoch(), Epoch(4));
}

#[test]
fn a_truncation_brings_back_the_producers_of_before() {
    let world = World::new(segments_of(500));
    let mut log = world.create();
    let producer = |sequence| Idempotent { id: 4, epoch: 0, sequence, transactional: true };
    let mut sequence = 0;
    for number in 0..6 {
        mirror(&mut log, &[producer(sequence).batch(number * 3, 3, 0)]).unwrap();
        sequence += 3;
    }
    mirror(&mut log, &[marker(4, Outcome::Abort, 18)]).unwrap();
    log.on_high_watermark(log.end());
    assert_eq!(
        (log.first_unstable(), log.aborted_transactions(Offset(0), Offset(19)).unwrap().len()),
        (None, 1)
    );
    let _ = log.truncate_to(Offset(15), NOW).unwrap();
    assert_eq!(log.first_unstable(), Some(Offset(0)), "its transaction is open again");
    assert!(log.aborted_transactions(Offset(0), Offset(15)).unwrap().is_empty());
    let known: Vec<_> = log.producers().iter().map(|(id, one)| (id.0, one.last_sequence().0)).collect();
    assert_eq!(known, [(4, 14)]);
}

#[test]
fn the_producers_of_a_snapshot_are_followed_from_there_on_also_below_the_log_start() {
    let world = World::new(segments_of(360));
    let mut log = world.create();
    let producer = Idempotent { id: 4, epoch: 0, sequence: 0, transactional: true };
    mirror(&mut log, &[producer.batch(0, 20, 0)]).unwrap();
    mirror(&mut log, &[marker(4, Outcome::Abort, 20), batch(21, 2, 0), batch(23, 2, 0)]).unwrap();
    assert!(world.names().contains(&"00000000000000000020.snapshot".to_owned()), "with the transaction open");
    assert_eq!(log.segment_count(), 2);
    let _ = log.advance_start(Offset(22), NOW).unwrap();
    let _ = log.truncate_to(Offset(23), NOW).unwrap();
    log.on_high_watermark(log.end());
    assert_eq!((log.producers().open_transactions().count(), log.first_unstable()), (0, None));
    flush(&mut log);
    drop(log);
    let opening = Opening { clean: false, recovery_point: Offset(23), log_start: Offset(22) };
    assert_eq!(world.open(opening).0.producers().open_transactions().count(), 0);
}

#[test]
fn a_dropped_batch_that_begins_below_the_log_start_tells_nothing_of_its_producer() {
    let world = World::new(segments_of(360));
    let mut log = world.create();
    let producer = |sequence| Idempotent { id: 4, epoch: 0, sequence, transactional: false };
    mirror(&mut log, &[batch(0, 20, 0), producer(0).batch(20, 2, 0), producer(2).batch(22, 4, 0)]).unwrap();
    mirror(&mut log, &[batch(26, 2, 0)]).unwrap();
    assert_eq!(log.segment_count(), 2, "the second begins with a snapshot");
    let _ = log.advance_start(Offset(24), NOW).unwrap();
    let _ = log.truncate_to(Offset(25), NOW).unwrap();
    assert_eq!((log.start(), log.end()), (Offset(24), Offset(24)));
    let known: Vec<_> = log.producers().iter().map(|(id, one)| (id.0, one.last_sequence().0)).collect();
    assert_eq!(known, [(4, 1)]);
}

#[test]
fn a_search_by_time_after_a_truncation_sees_what_is_left() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    for number in 0..10 {
        mirror(&mut log, &[dated(number, 1, 0, NOW.0 + number)]).unwrap();
    }
    let _ = log.truncate_to(Offset(6), NOW).unwrap();
    let largest = log.max_timestamp(log.end()).run().unwrap().unwrap();
    assert_eq!((largest.offset, largest.timestamp.0), (Offset(5), NOW.0 + 5));
    mirror(&mut log, &[dated(6, 1, 1, NOW.0 + 2)]).unwrap();
    let largest = log.max_timestamp(log.end()).run().unwrap().unwrap();
    assert_eq!(largest.offset, Offset(5));
}

#[test]
fn a_new_start_hides_offsets_and_frees_whole_segments() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let segments = log.segment_count();
    let reader = slice_at(&log, 0);
    let removal = log.advance_start(Offset(21), NOW).unwrap().unwrap();
    assert!(log.segment_count() < segments);
    assert_eq!((log.start(), log.epochs().starts()[0].start), (Offset(21), Offset(21)));
    assert!(log.read(Offset(20), 1, FirstBatch::MayBeLarger, log.end()).is_err());
    assert_eq!(log.read(Offset(21), 1, FirstBatch::MayBeLarger, log.end()).unwrap().first_offset, Offset(20));
    assert_eq!(log.start_to_checkpoint(), Some(Offset(21)));
    assert!(reader.is_current() && reader.read().is_ok(), "a reader may finish what it began");
    removal.run().unwrap();
    assert!(!world.waits_for_removal());
    assert!(log.advance_start(Offset(3), NOW).unwrap().is_none(), "a lower start changes nothing");
    let beyond = log.advance_start(Offset(41), NOW);
    assert!(matches!(beyond, Err(LogError::StartBeyondEnd { asked: Offset(41), end: Offset(40) })));
}

#[test]
fn a_start_at_the_end_frees_everything() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    log.advance_start(Offset(40), NOW).unwrap().unwrap().run().unwrap();
    assert_eq!((log.size_bytes(), log.segment_count(), log.start()), (0, 1, Offset(40)));
    mirror(&mut log, &[batch(40, 1, 4)]).unwrap();
    assert_eq!(spans(&read_all(&log, Offset(40), 100)), [(40, 40)]);
}

#[test]
fn a_log_that_was_cut_only_in_part_takes_and_promises_nothing_before_it_is_cut() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    flush(&mut log);
    // Nothing can be renamed to the name of a directory.
    let files = std::fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let bases = files.filter_map(|name| name.to_str()?.strip_suffix(".log")?.parse::<i64>().ok());
    let mut bases: Vec<i64> = bases.collect();
    bases.sort_unstable();
    let in_the_way = world.path().join(format!("{:020}.log.deleted", bases[bases.len() - 2]));
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(!log.is_half_cut());
    log.truncate_to(Offset(10), NOW).unwrap_err();
    assert!(log.is_half_cut());
    assert_eq!(log.end(), Offset(bases[bases.len() - 1]), "one segment has gone");
    let refused = log.append_as_is(&[batch(log.end().0, 1, 9)], NOW).unwrap_err();
    assert!(matches!(refused, AppendError::Storage(LogError::HalfCut { .. })), "{refused}");
    let refused = log.flush_job().unwrap().run().unwrap_err();
    assert!(matches!(refused, LogError::HalfCut { .. }) && !refused.is_full(), "{refused}");
    assert!(matches!(log.truncate_to(log.end(), NOW), Err(LogError::HalfCut { .. })));
    std::fs::remove_dir(&in_the_way).unwrap();
    let _ = log.truncate_to(Offset(10), NOW).unwrap();
    assert!(!log.is_half_cut());
    mirror(&mut log, &[batch(10, 1, 9)]).unwrap();
    flush(&mut log);
}

#[test]
fn a_flush_that_began_before_a_truncation_does_not_count() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let old = log.flush_job().unwrap();
    let _ = log.truncate_to(Offset(10), NOW).unwrap();
    mirror(&mut log, &[batch(10, 30, 9)]).unwrap();
    let flushed = old.run().unwrap();
    log.flushed(flushed).unwrap();
    assert_eq!(log.recovery_point(), Offset(0));
    flush(&mut log);
    assert_eq!(log.recovery_point(), Offset(40));
}

#[test]
fn a_deleted_partition_leaves_its_directory_under_another_name() {
    let world = World::new(segments_of(500));
    let removal = filled(&world).delete().unwrap();
    let renamed = removal.directory().unwrap().to_owned();
    assert!(!world.path().exists());
    assert_eq!(world.dir.deleted().unwrap(), std::slice::from_ref(&renamed));
    let again = filled(&world).delete().unwrap();
    assert_ne!(again.directory(), Some(&*renamed), "the same partition can be deleted twice");
    removal.run().unwrap();
    assert_eq!(world.dir.deleted().unwrap().first().map(|left| &**left), again.directory());
    assert!(world.dir.partitions().unwrap().is_empty());
}

#[test]
fn a_reader_of_a_deleted_partition_finishes_what_it_began() {
    let world = World::with_descriptors(1, segments_of(500));
    let mut log = filled(&world);
    let plans = [0, 15, 25].map(|offset| slice_at(&log, offset));
    let before = plans.clone().map(|plan| plan.read().unwrap());
    let _ = log.advance_start(Offset(10), NOW).unwrap();
    let removal = log.delete().unwrap();
    let mut other = world.create();
    mirror(&mut other, &[batch(0, 30, 7)]).unwrap();
    for (plan, before) in plans.iter().zip(&before) {
        assert!(plan.is_current());
        assert_eq!(
            &plan.read().unwrap(),
            before,
            "it is opened under its new name, and is not another topic's"
        );
    }
    let held = plans[2].open_file(ReadFrom::Disk).unwrap();
    removal.run().unwrap();
    assert_eq!(plans[2].read().unwrap(), before[2], "it is open");
    drop(held);
    let gone = plans[1].open_file(ReadFrom::Disk).unwrap_err();
    assert_eq!((gone.kind(), plans[1].is_current()), (std::io::ErrorKind::NotFound, true));
    assert!(plans[1].name().starts_with("orders-0, segment "), "{}", plans[1].name());
}
