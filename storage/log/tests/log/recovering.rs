//! Opening a log again, after a clean stop and after all kinds of others.

use std::fs::{self, OpenOptions};
use std::io::Write;

use tarn_log::checkpoints::{CleanShutdown, OffsetCheckpoint};
use tarn_log::{Descriptors, Fault, FirstBatch, Log, LogConfig, LogDir, LogDirError, Opening, RealDisk};
use tarn_record::{Epoch, Offset, Outcome, PartitionIndex, TimestampType, ValidBatch};

use crate::world::*;

fn fill(log: &mut Log, batches: i64) -> Vec<ValidBatch> {
    let all: Vec<_> =
        (0..batches).map(|number| dated(number * 2, 2, number as i32 / 4, NOW.0 + number)).collect();
    mirror(log, &contiguous(&all)).unwrap();
    all
}

fn damage(world: &World, base: i64, position: u64) {
    let path = world.path().join(format!("{base:020}.log"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[position as usize] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

fn append_garbage(world: &World, base: i64, garbage: &[u8]) {
    let path = world.path().join(format!("{base:020}.log"));
    OpenOptions::new().append(true).open(path).unwrap().write_all(garbage).unwrap();
}

#[test]
fn a_closed_log_opens_as_it_was() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    log.close().unwrap();
    let (epochs, segments) = (log.epochs().clone(), log.segment_count());
    let mut log = world.open_clean();
    assert_eq!((log.start(), log.end(), log.segment_count()), (Offset(0), Offset(60), segments));
    assert_eq!((log.recovery_point(), log.topic_id()), (Offset(60), TOPIC_ID));
    assert_eq!(log.epochs(), &epochs);
    assert_eq!(read_all(&log, Offset(0), 1 << 20), all);
    assert!(log.flush_job().is_none(), "nothing is to be done for a log that nobody touched");
    mirror(&mut log, &[batch(60, 2, 9)]).unwrap();
    log.close().unwrap();
    assert_eq!(world.open_clean().end(), Offset(62));
}

#[test]
fn an_empty_log_keeps_its_start() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let _ = log.truncate_fully_and_start_at(Offset(500), NOW).unwrap();
    log.close().unwrap();
    let log = world.open_clean();
    assert_eq!((log.start(), log.end()), (Offset(500), Offset(500)));
}

#[test]
fn producers_survive_a_clean_stop_and_a_crash() {
    let world = World::new(segments_of(500));
    for clean in [true, false] {
        let mut log = world.create();
        for number in 0..5 {
            let producer =
                Idempotent { id: number % 2, epoch: 0, sequence: (number / 2) as i32, transactional: true };
            mirror(&mut log, &[producer.batch(number, 1, 0)]).unwrap();
        }
        mirror(&mut log, &[marker(0, Outcome::Abort, 5)]).unwrap();
        log.on_high_watermark(log.end());
        let known = |log: &Log| {
            let producers: Vec<_> =
                log.producers().iter().map(|(id, one)| (id, one.last_sequence())).collect();
            (producers, log.first_unstable(), log.aborted_transactions(Offset(0), Offset(9)).unwrap())
        };
        let before = known(&log);
        if clean {
            log.close().unwrap();
        }
        drop(log);
        let mut log = world.open(Opening { clean, recovery_point: Offset(0), log_start: Offset(0) }).0;
        log.on_high_watermark(log.end());
        assert_eq!(known(&log), before);
        log.delete().unwrap().run().unwrap();
    }
}

/// What a producer has under way when a crash comes is sent again, though the log has rolled in between.
#[test]
fn batches_that_are_sent_again_after_a_crash_are_known_across_segments() {
    let world = World::new(segments_of(500));
    let mut log = world.create();
    let sent =
        |number: i64| Idempotent { id: 7, epoch: 0, sequence: 2 * number as i32, transactional: false };
    let append = |log: &mut Log, number: i64| {
        let batch = client_of(sent(number).batch(0, 2, -1));
        log.append_as_leader(&batch, Epoch(0), TimestampType::CreateTime, NOW)
    };
    let mut rolled = 0;
    while log.segment_count() < 3 {
        append(&mut log, rolled).unwrap();
        rolled += 1;
    }
    flush(&mut log);
    let end = log.end();
    drop(log);
    let mut log = world.open_unclean(end.0).0;
    assert_eq!(log.segment_count(), 3, "the newest has the last batch alone");
    for number in rolled - 5..rolled {
        let appended = append(&mut log, number).unwrap();
        assert_eq!(appended.duplicate_of.map(|(first, _)| first), Some(Offset(2 * number)), "{number}");
    }
    assert_eq!(
        append(&mut log, rolled - 6).unwrap_err().code(),
        45,
        "it is too old for one that is under way"
    );
    assert_eq!((append(&mut log, rolled).unwrap().first, log.end()), (end, end.plus(2)));
}

#[test]
fn a_torn_tail_is_cut_off() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let all = fill(&mut log, 10);
    drop(log);
    let next = batch(20, 2, 3);
    append_garbage(&world, 0, &next.bytes()[..next.bytes().len() - 1]);
    let (mut log, report) = world.open_unclean(0);
    assert_eq!((report.cut_bytes, report.cut_from), (next.bytes().len() as u64 - 1, Some(Offset(20))));
    assert_eq!(read_all(&log, Offset(0), 1 << 20), all);
    mirror(&mut log, std::slice::from_ref(&next)).unwrap();
    assert_eq!(log.end(), Offset(22));
}

#[test]
fn damage_is_found_where_it_is_and_nothing_is_changed() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    log.close().unwrap();
    let segments = log.segment_count();
    drop(log);
    let look = || Log::first_damage(&world.dir, TOPIC, PartitionIndex(0), Offset(0)).unwrap();
    assert_eq!(look(), None);
    let first = all[0].bytes().len() as u64;
    damage(&world, 0, first + 80);
    let found = look().expect("a record of the second batch is another now");
    assert_eq!((found.position, found.offset, found.is_followed), (first, Offset(2), true));
    assert!(found.path.ends_with("00000000000000000000.log"));
    assert_eq!(world.open_clean().segment_count(), segments, "nothing was cut");
}

#[test]
fn damage_at_the_end_is_followed_by_nothing_and_a_hole_is_damage() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    log.close().unwrap();
    drop(log);
    let look = |flushed| Log::first_damage(&world.dir, TOPIC, PartitionIndex(0), Offset(flushed)).unwrap();
    let mut segments: Vec<_> =
        fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|kind| kind == "log"));
    segments.sort();
    let last = segments.last().unwrap();
    let bytes = fs::read(last).unwrap();
    fs::write(last, &bytes[..bytes.len() - 1]).unwrap();
    let torn = look(0).expect("the last batch is cut short");
    assert_eq!((torn.is_followed, torn.next_segment), (false, None));
    let first = all[0].bytes().len();
    let bytes = fs::read(&segments[0]).unwrap();
    fs::write(&segments[0], &bytes[..bytes.len() - first]).unwrap();
    let next: i64 = segments[1].file_stem().unwrap().to_string_lossy().parse().unwrap();
    let hole = look(0).expect("the first segment ends too early");
    assert_eq!((hole.fault, hole.is_followed), (Fault::MissingUpTo(Offset(next)), true));
    assert_eq!(look(next).map(|damage| damage.offset), Some(torn.offset), "below that it was always there");
}

/// The bases of the segments on the disk.
fn bases(world: &World) -> Vec<i64> {
    world.names().iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
}

/// Leaves the segment without its last batch, as if it had never been there; the two are of the same size.
fn drop_last_batch(world: &World, base: i64, batch: &ValidBatch) {
    let path = world.path().join(format!("{base:020}.log"));
    let bytes = fs::read(&path).unwrap();
    fs::write(path, &bytes[..bytes.len() - batch.bytes().len()]).unwrap();
}

/// What Kafka removes when it opens a log.
fn kafka_opens(world: &World) {
    for name in world.names().iter().filter(|name| name.ends_with(".deleted")) {
        fs::remove_file(world.path().join(name)).unwrap();
    }
}

#[test]
fn a_segment_that_lost_its_end_ends_the_log() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    drop(log);
    let (second, third) = (bases(&world)[1], bases(&world)[2]);
    drop_last_batch(&world, second, &all[0]);
    let (log, report) = world.open_unclean(0);
    assert_eq!((log.end(), report.cut_from), (Offset(third - 2), Some(Offset(third - 2))));
    assert!(report.dropped_segments > 3);
    assert_eq!(read_all(&log, Offset(0), 1 << 20), all[..log.end().0 as usize / 2]);
}

#[test]
fn a_gap_between_segments_that_another_program_left_is_no_loss() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    drop(log);
    kafka_opens(&world);
    let (first, third) = (bases(&world)[0], bases(&world)[2]);
    drop_last_batch(&world, first, &all[0]);
    fs::write(world.path().join(format!("{third:020}.log")), []).unwrap();
    let (log, report) = world.open_unclean(0);
    assert_eq!((log.end(), report.cut_from, report.dropped_segments), (Offset(60), None, 0));
    let (second, fourth) = (bases(&world)[1] as usize / 2, bases(&world)[3] as usize / 2);
    let kept = [&all[..second - 1], &all[second..third as usize / 2], &all[fourth..]].concat();
    assert_eq!(read_all(&log, Offset(0), 1 << 20), kept);
}

#[test]
fn a_gap_before_an_empty_newest_segment_is_no_damage_of_the_batch_before_it() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    drop(log);
    kafka_opens(&world);
    let last = *bases(&world).last().unwrap();
    let gone = all.len() - 1;
    drop_last_batch(&world, last, &all[gone]);
    fs::write(world.path().join(format!("{:020}.log", 60)), []).unwrap();
    for log in [world.open_clean(), world.open_unclean(0).0] {
        assert_eq!(log.end(), Offset(60));
        let expected = Some(all[gone - 1].header().base_offset);
        assert_eq!(log.newest_batch().run().unwrap().map(|header| header.base_offset), expected);
        let below_end = log.batch_below(log.end()).run_checked().unwrap();
        assert_eq!(below_end.map(|header| header.base_offset), expected);
    }
}

#[test]
fn a_torn_segment_ends_the_log_whoever_wrote_it() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    drop(log);
    kafka_opens(&world);
    let (second, third) = (bases(&world)[1], bases(&world)[2]);
    append_garbage(&world, second, &[0; 70]);
    let (log, report) = world.open_unclean(0);
    assert_eq!(log.end(), Offset(third), "where the second ends");
    assert!(report.dropped_segments > 3);
}

#[test]
fn gaps_that_were_there_before_hide_no_loss_that_comes_later() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    drop(log);
    kafka_opens(&world);
    let before = bases(&world);
    drop_last_batch(&world, before[0], &all[0]);
    let (mut log, _) = world.open_unclean(0);
    let more: Vec<_> = (30..60).map(|number| dated(number * 2, 2, 9, NOW.0 + number)).collect();
    mirror(&mut log, &contiguous(&more)).unwrap();
    drop(log);
    let lost = bases(&world)[before.len() + 1];
    drop_last_batch(&world, lost, &more[0]);
    let (log, report) = world.open_unclean(0);
    assert!(log.end() > Offset(lost) && log.end() < Offset(120), "the log ends at {}", log.end());
    assert_eq!((report.cut_from, starts(&log).len()), (Some(log.end()), 9));
}

#[test]
fn a_report_says_from_where_on_records_are_gone() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    drop(log);
    damage(&world, 0, 70);
    let (log, report) = world.open_unclean(0);
    assert_eq!((log.end(), report.cut_from), (Offset(0), Some(Offset(0))));
    assert!(report.dropped_segments > 0);
    drop(log);
    let (_, report) = world.open_unclean(0);
    assert_eq!(report.cut_from, None, "it is said once");
}

#[test]
fn epochs_that_cannot_be_understood_are_read_from_the_batches_and_it_is_said() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    fill(&mut log, 10);
    log.close().unwrap();
    let (epochs, clean) =
        (log.epochs().clone(), Opening { clean: true, recovery_point: Offset(20), log_start: Offset(0) });
    drop(log);
    for (content, line) in [("", 1), ("0\n", 2), ("\u{0}\u{0}", 1), ("0\n1\nx y\n", 3)] {
        fs::write(world.path().join("leader-epoch-checkpoint"), content).unwrap();
        let (log, report) = world.open(clean);
        let fault = report.reread_epochs.expect("it is told").to_string();
        assert_eq!(log.epochs(), &epochs, "{content:?}");
        assert!(fault.ends_with(&format!("in line {line}")), "{content:?}: {fault}");
    }
}

#[test]
fn garbage_after_a_clean_stop_is_cut_off_too() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let all = fill(&mut log, 10);
    log.close().unwrap();
    append_garbage(&world, 0, &[0; 100]);
    let (log, report) = world.open(Opening { clean: true, recovery_point: Offset(20), log_start: Offset(0) });
    assert_eq!((report.cut_bytes, report.checked_bytes), (100, 0));
    assert_eq!(read_all(&log, Offset(0), 1 << 20), all);
}

#[test]
fn the_log_ends_at_the_first_damaged_batch_above_the_recovery_point() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    drop(log);
    let second = world
        .names()
        .iter()
        .filter_map(|name| name.strip_suffix(".log")?.parse::<i64>().ok())
        .nth(1)
        .unwrap();
    damage(&world, second, all[0].bytes().len() as u64 + 70);
    let (log, report) = world.open_unclean(0);
    assert_eq!(log.end(), Offset(second + 2), "one batch of the second segment is left");
    assert!(report.dropped_segments > 3);
    assert_eq!(read_all(&log, Offset(0), 1 << 20), all[..second as usize / 2 + 1]);
    assert_eq!(log.latest_epoch(), Epoch(second as i32 / 8));
    let logs = world.names().iter().filter(|name| name.ends_with(".log")).count();
    assert_eq!(logs, log.segment_count());
}

#[test]
fn what_was_flushed_is_not_checked_again() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    flush(&mut log);
    let recovery_point = log.recovery_point();
    mirror(&mut log, &[batch(60, 1, 9)]).unwrap();
    drop(log);
    let (log, report) = world.open_unclean(recovery_point.0);
    assert_eq!(report.checked_bytes, batch(60, 1, 9).bytes().len() as u64);
    assert_eq!((log.end(), report.cut_bytes), (Offset(61), 0));
    assert!(report.indexed_segments <= 2 && log.segment_count() > 5);
}

#[test]
fn a_log_without_segments_begins_where_it_was_flushed_and_says_that_all_is_gone() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    flush(&mut log);
    let recovery_point = log.recovery_point();
    drop(log);
    for entry in fs::read_dir(world.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "partition.metadata") {
            fs::remove_file(path).unwrap();
        }
    }
    let (log, report) = world.open_unclean(recovery_point.0);
    assert!(report.lost_all_segments && recovery_point > Offset(0));
    assert_eq!((log.start(), log.end()), (recovery_point, recovery_point), "no offset is given twice");
}

#[test]
fn a_recovery_point_above_the_end_is_another_logs_and_is_not_believed() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    let all = fill(&mut log, 30);
    drop(log);
    damage(&world, 0, 100);
    let (log, report) = world.open_unclean(1000);
    assert!(report.distrusted_recovery_point && report.ends_below_flushed);
    assert_eq!(log.end(), Offset(0));
    assert!(!all.is_empty());
}

#[test]
fn a_log_whose_files_cannot_be_believed_is_read_as_a_whole_and_has_lost_nothing() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    let end = log.end();
    log.close().unwrap();
    drop(log);
    let unreadable = world.path().join("00000000000000000000.txnindex");
    std::os::unix::fs::symlink(&unreadable, &unreadable).unwrap();
    let (log, report) = world.open_unclean(end.0);
    assert!(report.distrusted_recovery_point && !report.ends_below_flushed, "{report:?}");
    assert_eq!((log.end(), report.cut_from), (end, None));
}

#[test]
fn a_truncation_below_what_was_flushed_is_remembered() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    fill(&mut log, 10);
    flush(&mut log);
    let _ = log.truncate_to(Offset(6), NOW).unwrap();
    mirror(&mut log, &[batch(6, 20, 9)]).unwrap();
    drop(log);
    damage(&world, 6, 100);
    let (log, _) = world.open_unclean(20);
    assert_eq!(
        log.end(),
        Offset(6),
        "the checkpoint of before the truncation does not vouch for what came after"
    );
}

#[test]
fn the_memory_of_a_truncation_goes_when_all_is_flushed_again() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    fill(&mut log, 10);
    flush(&mut log);
    let _ = log.truncate_to(Offset(6), NOW).unwrap();
    let remembers = || world.names().contains(&"truncation-checkpoint".to_owned());
    mirror(&mut log, &[batch(6, 4, 9)]).unwrap();
    flush(&mut log);
    assert!(remembers());
    mirror(&mut log, &[batch(10, 10, 9)]).unwrap();
    flush(&mut log);
    assert!(!remembers());
}

#[test]
fn a_segment_that_a_crash_lengthened_again_is_cut_where_the_next_begins() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let all = fill(&mut log, 10);
    let _ = log.truncate_to(Offset(12), NOW).unwrap();
    mirror(&mut log, &[batch(12, 3, 7)]).unwrap();
    drop(log);
    let lost: Vec<u8> = all[6..].iter().flat_map(|batch| batch.bytes().to_vec()).collect();
    append_garbage(&world, 0, &lost);
    let (log, _) = world.open_unclean(0);
    assert_eq!(log.end(), Offset(15));
    assert_eq!(read_all(&log, Offset(10), 1 << 20), [all[5].clone(), batch(12, 3, 7)]);
}

#[test]
fn a_log_whose_end_was_only_remembered_begins_anew_above_it() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 1, 0), batch(36, 1, 0)]).unwrap();
    let _ = log.truncate_to(Offset(36), NOW).unwrap();
    log.advance_start(Offset(2), NOW).unwrap();
    log.close().unwrap();
    assert_eq!((log.end(), starts(&log)), (Offset(36), vec![(0, 2)]));
    drop(log);
    let (log, _) = world.open(Opening { clean: true, recovery_point: Offset(1), log_start: Offset(2) });
    assert_eq!((log.start(), log.end(), starts(&log)), (Offset(2), Offset(2), vec![]));
}

#[test]
fn an_epoch_of_a_dropped_batch_does_not_come_back_with_a_crash() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 32, 0), batch(32, 5, 1)]).unwrap();
    flush(&mut log);
    log.advance_start(Offset(36), NOW).unwrap();
    let _ = log.truncate_to(Offset(36), NOW).unwrap();
    mirror(&mut log, &[batch(36, 2, 0)]).unwrap();
    assert_eq!(starts(&log), [(0, 36)]);
    drop(log);
    let (log, _) = world.open(Opening { clean: false, recovery_point: Offset(37), log_start: Offset(36) });
    assert_eq!(starts(&log), [(0, 36)]);
}

#[test]
fn the_epochs_of_the_history_before_do_not_come_back_with_a_crash() {
    let world = World::new(LogConfig::default());
    let crashed = |log: Log| {
        drop(log);
        world.open(Opening { clean: false, recovery_point: Offset(20), log_start: Offset(100) }).0
    };
    let mut log = world.create();
    fill(&mut log, 10);
    flush(&mut log);
    let _ = log.truncate_fully_and_start_at(Offset(100), NOW).unwrap();
    let mut log = crashed(log);
    assert_eq!((log.start(), log.end(), log.latest_epoch()), (Offset(100), Offset(100), Epoch::NONE));
    mirror(&mut log, &[batch(100, 1, 1)]).unwrap();
    let log = crashed(log);
    assert_eq!(starts(&log), [(1, 100)], "the history before had epoch 2");
}

#[test]
fn indexes_and_epochs_that_are_missing_are_built_anew() {
    let world = World::new(segments_of(2000));
    let mut log = world.create();
    let all = fill(&mut log, 100);
    let epochs = log.epochs().clone();
    log.close().unwrap();
    drop(log);
    for name in world.names() {
        if name.ends_with("index") || name == "leader-epoch-checkpoint" || name.ends_with(".snapshot") {
            fs::remove_file(world.path().join(name)).unwrap();
        }
    }
    let log = world.open_clean();
    assert_eq!(log.epochs(), &epochs);
    assert_eq!(read_all(&log, Offset(0), 1), all);
    assert!(world.names().iter().any(|name| name.ends_with(".timeindex")));
}

#[test]
fn an_index_that_lies_costs_time_and_no_truth() {
    let world = World::new(segments_of(2000));
    let mut log = world.create();
    let all = fill(&mut log, 100);
    log.close().unwrap();
    drop(log);
    for name in world.names().iter().filter(|name| name.ends_with(".index")) {
        let path = world.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        for entry in bytes.chunks_exact_mut(8) {
            entry[7] = entry[7].wrapping_add(5);
        }
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(read_all(&world.open_clean(), Offset(0), 1), all);
}

#[test]
fn segments_below_the_log_start_are_removed() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    log.close().unwrap();
    drop(log);
    let (log, _) = world.open(Opening { clean: true, recovery_point: Offset(0), log_start: Offset(31) });
    assert_eq!((log.start(), log.end()), (Offset(31), Offset(60)));
    assert_eq!(log.epochs().starts()[0].start, Offset(31));
    assert!(!world.names().contains(&"00000000000000000000.log".to_owned()));
    assert!(log.read(Offset(31), 1, FirstBatch::MayBeLarger, log.end()).unwrap().first_offset <= Offset(31));
}

#[test]
fn a_log_that_lost_all_above_its_start_begins_there() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    fill(&mut log, 10);
    drop(log);
    damage(&world, 0, 100);
    let (log, _) = world.open(Opening { clean: false, recovery_point: Offset(0), log_start: Offset(15) });
    assert_eq!((log.start(), log.end(), log.latest_epoch()), (Offset(15), Offset(15), Epoch::NONE));
}

#[test]
fn a_batch_that_spans_the_start_takes_the_place_of_every_empty_segment_that_begins_no_lower() {
    let world = World::new(LogConfig::default());
    drop(world.create());
    fs::remove_file(world.path().join(format!("{:020}.log", 0))).unwrap();
    for base in [5, 6] {
        fs::write(world.path().join(format!("{base:020}.log")), []).unwrap();
    }
    let opening =
        |log_start| Opening { clean: false, recovery_point: Offset(0), log_start: Offset(log_start) };
    let mut log = world.open(opening(0)).0;
    assert_eq!((log.start(), log.end(), log.segment_count()), (Offset(5), Offset(6), 2));
    mirror(&mut log, &[batch(5, 5, 0)]).unwrap();
    if let Some(removal) = log.advance_start(Offset(7), NOW).unwrap() {
        removal.run().unwrap();
    }
    flush(&mut log);
    drop(log);
    let log = world.open(opening(7)).0;
    assert_eq!((log.end(), spans(&read_all(&log, Offset(7), 1 << 20))), (Offset(10), vec![(5, 9)]));
}

#[test]
fn a_directory_has_one_owner_and_says_whether_it_was_closed() {
    let root = tempfile::tempdir().unwrap();
    let open = || LogDir::open(std::sync::Arc::new(RealDisk), root.path(), Descriptors::new(9));
    let first = open().unwrap();
    assert!(matches!(open(), Err(LogDirError::Locked { .. })));
    assert!(!first.was_clean());
    first.mark_clean(CleanShutdown { broker_epoch: 77, metadata_end: None }).unwrap();
    let rows = [("orders", PartitionIndex(3), Offset(42)), ("a-b", PartitionIndex(0), Offset(7))];
    first.write_offsets(OffsetCheckpoint::Replication, rows).unwrap();
    drop(first);
    let second = open().unwrap();
    assert_eq!(second.clean_shutdown().map(|clean| clean.broker_epoch), Some(77));
    let offsets = second.offsets(OffsetCheckpoint::Replication).unwrap();
    assert_eq!(offsets.get(&("orders".to_owned(), PartitionIndex(3))), Some(&Offset(42)));
    assert_eq!(offsets.len(), 2);
    assert!(second.offsets(OffsetCheckpoint::LogStart).unwrap().is_empty());
    drop(second);
    assert!(!open().unwrap().was_clean(), "a start that was not followed by a clean stop");
}

#[test]
fn the_partitions_of_a_directory_are_listed_with_their_topic_ids() {
    let world = World::new(LogConfig::default());
    let _orders = world.create();
    let metadata = "__cluster_metadata";
    Log::create(&world.dir, metadata, PartitionIndex(0), TOPIC_ID, LogConfig::default(), NOW).unwrap();
    fs::create_dir(world.root.path().join("lost+found")).unwrap();
    let found = world.dir.partitions().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].topic.as_str(), found[0].topic_id, &found[0].dir),
        ("orders", TOPIC_ID, &world.path())
    );
}

#[test]
fn a_log_of_which_more_is_to_be_read_than_was_said_is_left_as_it_is() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    drop(log);
    let names = world.names();
    let open = |bytes, recovery_point, clean| {
        let opening = Opening { clean, recovery_point: Offset(recovery_point), log_start: Offset(0) };
        let (partition, config) = (PartitionIndex(0), world.config.clone());
        Log::open_within(bytes, &world.dir, TOPIC, partition, config, opening, NOW).unwrap()
    };
    assert!(open(600, 0, false).is_none());
    assert_eq!(world.names(), names);
    let (log, report) = open(600, 59, false).unwrap();
    assert!(report.checked_bytes < 600, "what lies below the recovery point is not read");
    assert_eq!(log.end(), Offset(60));
    assert!(open(0, 0, true).is_some(), "its files are trusted");
}

#[test]
fn how_much_a_recovery_reads_is_told_before_and_after() {
    let world = World::new(segments_of(600));
    let mut log = world.create();
    fill(&mut log, 30);
    let bytes = log.size_bytes();
    drop(log);
    let mark = world.path().join("truncation-checkpoint");
    let open = |bytes, recovery_point, cut: Option<i64>| {
        match cut {
            Some(at) => fs::write(&mark, format!("0\n{at}\n{}\n", i64::MAX)).unwrap(),
            None => drop(fs::remove_file(&mark)),
        }
        let opening = Opening { clean: false, recovery_point: Offset(recovery_point), log_start: Offset(0) };
        let (partition, config) = (PartitionIndex(0), world.config.clone());
        Log::open_within(bytes, &world.dir, TOPIC, partition, config, opening, NOW).unwrap()
    };
    let mut read = Vec::new();
    // The bases of its segments are among them, and so is a cut below what the checkpoint file says.
    for (recovery_point, cut) in (0..=60).map(|point| (point, None)).chain([(60, Some(20)), (60, Some(60))]) {
        let (_, report) = open(u64::MAX, recovery_point, cut).unwrap();
        assert!(!report.distrusted_recovery_point);
        let name = format!("flushed to {recovery_point}, cut at {cut:?}");
        assert!(open(report.read_bytes - 1, recovery_point, cut).is_none(), "{name}");
        assert!(open(report.read_bytes, recovery_point, cut).is_some(), "{name}");
        read.push(report.read_bytes);
    }
    assert!(read[0] == bytes && read[60] < 600, "{read:?}");
    assert!(read[61] > read[60] && read[62] > read[60], "{read:?}");
    let (_, report) = open(u64::MAX, 1000, None).unwrap();
    assert!(report.distrusted_recovery_point && report.read_bytes > bytes, "all of it, in the end");
}

/// The start of a log is in memory before it is in its checkpoint, the epochs of what lies above it in their file.
#[test]
fn a_log_whose_start_was_set_back_knows_the_epochs_of_what_lies_below_the_newer_start() {
    let world = World::new(segments_of(1 << 20));
    let mut log = world.create();
    let batches: Vec<_> = (0..6).map(|number| batch(number * 3, 3, (number as i32).min(1))).collect();
    mirror(&mut log, &batches).unwrap();
    drop(log.advance_start(Offset(12), NOW).unwrap());
    log.close().unwrap();
    drop(log);
    let (log, _) = world.open_unclean(15);
    let epochs: Vec<_> = [0, 3, 11, 12].map(|offset| log.epochs().at(Offset(offset))).into();
    assert_eq!(epochs, [0, 1, 1, 1].map(|epoch| Some(Epoch(epoch))));
}
