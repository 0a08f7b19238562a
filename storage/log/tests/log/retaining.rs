//! What retention lets go, and that it stays gone.

use std::fs::File;
use std::time::{Duration, SystemTime};

use tarn_log::{Ages, Expiry, Log, Opening, Retention};
use tarn_record::{Offset, Timestamp};

use crate::world::*;

const HOUR: i64 = 3_600_000;

/// Ten batches of two records, a segment each; number `n` has the timestamps of hour `n`.
fn hourly(world: &World) -> Log {
    let mut log = world.create();
    for number in 0..10 {
        mirror(&mut log, &[dated(number * 2, 2, 0, NOW.0 + number * HOUR)]).unwrap();
    }
    assert_eq!(log.segment_count(), 10);
    log
}

fn segment_a_batch() -> World {
    World::new(segments_of(100))
}

fn older_than(ms: i64) -> Retention {
    Retention { ms: Some(ms as u64), bytes: None }
}

fn larger_than(bytes: u64) -> Retention {
    Retention { ms: None, bytes: Some(bytes) }
}

/// Does what retention asks for, at an hour of the clock, a segment at a time; how many looks at the disk it took.
fn retain(log: &mut Log, rules: &Retention, high_watermark: i64, hour: i64) -> usize {
    let (mut ages, mut looks) = (Ages::default(), 0);
    let now = Timestamp(NOW.0 + hour * HOUR);
    loop {
        log.remember(&ages);
        match log.expiry(rules, Offset(high_watermark), now, &ages) {
            Expiry::Kept => return looks,
            Expiry::UpTo(offset) => {
                log.raise_start(offset).unwrap();
                let _ = log.drop_below_start(1, now).unwrap();
            }
            Expiry::Unread(search) => {
                looks += 1;
                ages.extend(search.run().unwrap());
            }
        }
    }
}

#[test]
fn segments_go_once_their_newest_record_is_too_old() {
    let world = segment_a_batch();
    let mut log = hourly(&world);
    // Two hours and a record's millisecond after that of segment 3, which has one more record.
    retain(&mut log, &older_than(2 * HOUR), 20, 5);
    assert_eq!((log.start(), log.segment_count()), (Offset(6), 7), "that of hour 3 is just two hours old");
    retain(&mut log, &older_than(2 * HOUR), 20, 6);
    assert_eq!((log.start(), log.segment_count()), (Offset(8), 6));
    assert_eq!(read_all(&log, log.start(), 1 << 20).len(), 6);
    assert!(world.waits_for_removal());
}

#[test]
fn a_segment_that_is_not_old_keeps_all_that_come_after_it() {
    let world = segment_a_batch();
    let mut log = world.create();
    for (number, hour) in [0, 9, 0, 0].into_iter().enumerate() {
        mirror(&mut log, &[dated(number as i64, 1, 0, NOW.0 + hour * HOUR)]).unwrap();
    }
    retain(&mut log, &older_than(HOUR), 4, 5);
    assert_eq!(log.start(), Offset(1));
    retain(&mut log, &older_than(HOUR), 4, 11);
    assert_eq!(log.start(), Offset(4));
}

#[test]
fn no_less_than_the_size_stays() {
    let world = segment_a_batch();
    let mut log = hourly(&world);
    let whole = log.size_bytes();
    let three: u64 = read_all(&log, Offset(0), 1)[..3].iter().map(|batch| batch.header().size() as u64).sum();
    retain(&mut log, &larger_than(whole - three + 1), 20, 0);
    assert_eq!(log.start(), Offset(4), "with a third there would be less");
    retain(&mut log, &larger_than(whole - three), 20, 0);
    assert_eq!((log.size_bytes(), log.start()), (whole - three, Offset(6)));
    retain(&mut log, &larger_than(0), 20, 0);
    assert_eq!((log.size_bytes(), log.start(), log.segment_count()), (0, Offset(20), 1));
}

#[test]
fn age_goes_on_where_size_has_ended() {
    let world = segment_a_batch();
    let mut log = world.create();
    // The first is not old, but one too many.
    for (number, hour) in [9, 0, 0, 9].into_iter().enumerate() {
        mirror(&mut log, &[dated(number as i64, 1, 0, NOW.0 + hour * HOUR)]).unwrap();
    }
    let each = log.size_bytes() / 4;
    let both = Retention { ms: Some(HOUR as u64), bytes: Some(each * 3) };
    retain(&mut log, &both, 4, 9);
    assert_eq!(log.start(), Offset(3));
}

#[test]
fn the_active_segment_goes_too_and_the_log_goes_on_in_a_new_one() {
    let world = segment_a_batch();
    let mut log = hourly(&world);
    retain(&mut log, &older_than(0), 20, 100);
    assert_eq!((log.start(), log.end(), log.segment_count()), (Offset(20), Offset(20), 1));
    assert_eq!(retain(&mut log, &older_than(0), 20, 200), 0, "one without a batch stays");
    mirror(&mut log, &[batch(20, 2, 0)]).unwrap();
    assert_eq!(spans(&read_all(&log, Offset(20), 100)), [(20, 21)]);
    log.close().unwrap();
    let log = world.open_clean();
    assert_eq!((log.start(), log.end()), (Offset(20), Offset(22)));
    assert!(!world.waits_for_removal(), "what was left of the others went when it was opened");
}

#[test]
fn nothing_goes_that_is_not_committed() {
    for (high_watermark, start) in [(0, 0), (1, 0), (2, 2), (7, 6), (19, 18), (20, 20)] {
        for rules in [older_than(0), larger_than(0)] {
            let world = segment_a_batch();
            let mut log = hourly(&world);
            retain(&mut log, &rules, high_watermark, 100);
            assert_eq!(log.start(), Offset(start), "committed up to {high_watermark}");
        }
    }
}

#[test]
fn without_rules_only_what_is_below_the_log_start_goes() {
    let world = segment_a_batch();
    let mut log = hourly(&world);
    assert_eq!(retain(&mut log, &Retention::default(), 20, 1000), 0);
    assert_eq!(log.start(), Offset(0));
    assert!(log.raise_start(Offset(7)).unwrap());
    assert_eq!(log.segment_count(), 10);
    let removal = log.drop_below_start(2, NOW).unwrap().unwrap();
    assert_eq!((log.segment_count(), removal.files() > 0), (8, true));
    retain(&mut log, &Retention::default(), 20, 0);
    assert_eq!((log.segment_count(), log.start()), (7, Offset(7)));
    assert_eq!(spans(&read_all(&log, Offset(7), 1 << 20))[0], (6, 7));
}

#[test]
fn the_ages_of_a_log_that_was_opened_are_read_once() {
    let world = World::new(segments_of(1000));
    let mut log = world.create();
    for number in 0..80 {
        mirror(&mut log, &[dated(number, 1, 0, NOW.0 + number * HOUR)]).unwrap();
    }
    log.close().unwrap();
    let mut log = world.open_clean();
    assert_eq!(retain(&mut log, &older_than(2 * HOUR), 80, 50), 1, "all that are old, and the next");
    let start = log.start();
    assert!((Offset(30)..Offset(48)).contains(&start), "{start}");
    assert_eq!(retain(&mut log, &older_than(2 * HOUR), 80, 50), 0, "that is remembered");
    assert_eq!(log.start(), start);
}

#[test]
fn without_a_timestamp_the_time_counts_at_which_the_file_was_written() {
    let world = segment_a_batch();
    let mut log = world.create();
    for offset in 0..3 {
        mirror(&mut log, &[dated(offset, 1, 0, -1)]).unwrap();
    }
    for (base, hours) in [(0, 3), (1, 1), (2, 3)] {
        let file = File::options().write(true).open(world.path().join(format!("{base:020}.log"))).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(NOW.0 as u64);
        file.set_modified(now - Duration::from_millis((hours * HOUR) as u64)).unwrap();
    }
    retain(&mut log, &older_than(2 * HOUR), 3, 0);
    assert_eq!(log.start(), Offset(1));
}

#[test]
fn what_went_does_not_come_back() {
    for clean in [true, false] {
        let world = segment_a_batch();
        let mut log = hourly(&world);
        flush(&mut log);
        retain(&mut log, &older_than(2 * HOUR), 20, 6);
        if clean {
            log.close().unwrap();
        }
        drop(log);
        // Also where the checkpoint file still has the old start.
        let opening = Opening { clean, recovery_point: Offset(20), log_start: Offset(0) };
        let (log, report) = world.open(opening);
        assert_eq!((log.start(), log.end(), report.cut_bytes), (Offset(8), Offset(20), 0));
        assert_eq!(starts(&log), [(0, 8)]);
        assert!(!world.waits_for_removal());
    }
}

#[test]
fn a_removal_can_be_done_in_pieces() {
    let world = segment_a_batch();
    let mut log = hourly(&world);
    let job = log.advance_start(Offset(8), NOW).unwrap().unwrap();
    let (files, mut pieces, mut left) = (job.files(), 0, Some(job));
    while let Some(job) = left {
        left = job.run_some(3).unwrap();
        pieces += 1;
    }
    assert!(files > 6 && pieces == files.div_ceil(3), "{files} files in {pieces} pieces");
    assert!(!world.waits_for_removal());
    let job = log.delete().unwrap();
    let renamed = job.directory().unwrap().to_owned();
    let (mut pieces, mut left) = (0, Some(job));
    while let Some(job) = left {
        assert!(renamed.exists());
        left = job.run_some(4).unwrap();
        pieces += 1;
    }
    assert!(pieces > 3 && !renamed.exists());
}
