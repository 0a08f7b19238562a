//! The end of a log: found from behind, counted, copied into files of its own, and cut off.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tarn_log::{ExportDir, FirstBatch, Log, LogConfig, LogError, RecordCounts};
use tarn_record::{Offset, Outcome, ValidBatch};

use crate::world::*;

/// Twenty batches of two records, in small segments.
fn filled(world: &World) -> Log {
    let mut log = world.create();
    for number in 0..20 {
        mirror(&mut log, &[batch(number * 2, 2, number as i32 / 4)]).unwrap();
    }
    log
}

/// The batches of a copy, and the names of its files.
fn copied(path: &Path) -> (Vec<ValidBatch>, Vec<String>) {
    let names = listed(path);
    let batches = names.iter().flat_map(|name| {
        let bytes = fs::read(path.join(name)).unwrap();
        tarn_record::batches(bytes.into()).map(Result::unwrap).collect::<Vec<_>>()
    });
    (batches.collect(), names)
}

fn listed(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn exports(world: &World) -> PathBuf {
    world.root.path().join("mirror-exports")
}

fn dir(world: &World) -> ExportDir {
    ExportDir::new(exports(world))
}

#[test]
fn a_copy_from_within_a_batch_begins_with_it_and_has_a_file_for_each_segment() {
    let world = World::new(segments_of(500));
    let log = filled(&world);
    let exported = log.export_job(Offset(13)).run(&dir(&world), NOW, || true).unwrap().unwrap();
    assert_eq!((exported.from, exported.to), (Offset(12), Offset(40)));
    assert_eq!(exported.counts, RecordCounts { records: 28, control_records: 0 });
    assert_eq!(exported.path, exports(&world).join("orders-0").join(format!("12-40.{}", NOW.0)));
    let (batches, names) = copied(&exported.path);
    assert_eq!(batches, read_all(&log, Offset(12), 1 << 20), "to the byte");
    assert_eq!(batches.iter().map(|batch| batch.bytes().len() as u64).sum::<u64>(), exported.bytes);
    let bases: Vec<i64> =
        world.names().iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect();
    let later = bases.iter().copied().filter(|&base| base > 12);
    let expected: Vec<_> = [12].into_iter().chain(later).map(|base| format!("{base:020}.log")).collect();
    assert!(expected.len() > 2, "{expected:?}");
    assert_eq!(names, expected);
    assert_eq!(log.end(), Offset(40), "nothing was cut");
}

#[test]
fn a_copy_of_nothing_leaves_nothing() {
    let world = World::new(segments_of(500));
    let log = filled(&world);
    for from in [40, 99] {
        assert!(log.export_job(Offset(from)).run(&dir(&world), NOW, || true).unwrap().is_none());
    }
    assert!(!exports(&world).exists());
}

#[test]
fn control_records_are_counted_apart() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    let producer = Idempotent { id: 4, epoch: 0, sequence: 0, transactional: true };
    mirror(&mut log, &[batch(0, 1, 0), producer.batch(1, 3, 0), marker(4, Outcome::Abort, 4)]).unwrap();
    let counts = log.batches(Offset(2), log.end()).count().unwrap();
    assert_eq!(counts, RecordCounts { records: 3, control_records: 1 }, "the first batch counts as a whole");
    assert_eq!(log.export_job(Offset(2)).run(&dir(&world), NOW, || true).unwrap().unwrap().counts, counts);
    assert_eq!(log.batches(log.end(), log.end()).count().unwrap(), RecordCounts::default());
}

#[test]
fn copies_of_one_moment_have_names_of_their_own_and_what_was_left_incomplete_goes() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let left = exports(&world).join("orders-0").join("3-9.17.tmp");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("00000000000000000003.log"), b"half").unwrap();
    // A file is nobody's copy, whatever it is called.
    fs::write(left.with_file_name("notes.tmp"), b"mine").unwrap();
    for epoch in [4, 5] {
        let exported = log.export_job(Offset(30)).run(&dir(&world), NOW, || true).unwrap().unwrap();
        assert!(!exported.was_there);
        assert_eq!(copied(&exported.path).0, read_all(&log, Offset(30), 1 << 20));
        // Another history, in as many bytes.
        drop(log.truncate_to(Offset(30), NOW).unwrap());
        let other: Vec<_> = (15..20).map(|number| batch(number * 2, 2, epoch + 1)).collect();
        mirror(&mut log, &other).unwrap();
    }
    let names = [0, 1].map(|after| format!("30-40.{}", NOW.0 + after));
    let found = listed(&exports(&world).join("orders-0"));
    assert_eq!(found, [&names[..], &["notes.tmp".to_owned()]].concat());
}

#[test]
fn a_copy_that_is_there_is_taken_over_and_one_that_is_not_the_same_is_not() {
    let world = World::new(segments_of(500));
    let log = filled(&world);
    let place = exports(&world).join("orders-0");
    let export = || log.export_job(Offset(13)).run(&dir(&world), NOW, || true).unwrap().unwrap();
    let first = export();
    let (path, counts, bytes) = (first.path.clone(), first.counts, first.bytes);
    // Names that only look like it.
    for name in ["12-40", "12-40.", "12-40.x", "12-401.7", "1-40.7"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    for _ in 0..3 {
        let again = export();
        assert!(again.was_there);
        assert_eq!((&again.path, again.from, again.to), (&path, Offset(12), Offset(40)));
        assert_eq!((again.counts, again.bytes), (counts, bytes));
        again.discard().unwrap();
        assert!(path.exists(), "it is not only this attempt's");
    }
    let last = path.join(listed(&path).pop().unwrap());
    let whole = fs::read(&last).unwrap();
    let mut other = whole.clone();
    *other.last_mut().unwrap() ^= 1;
    let spoilt: [&dyn Fn(); 4] = [
        &|| fs::write(&last, &whole[1..]).unwrap(),
        &|| fs::write(&last, &other).unwrap(),
        &|| fs::remove_file(&last).unwrap(),
        &|| fs::write(path.join("99999999999999999999.log"), b"").unwrap(),
    ];
    for spoil in spoilt {
        spoil();
        let another = export();
        assert!(!another.was_there && another.path != path);
        assert_eq!(copied(&another.path).0, read_all(&log, Offset(12), 1 << 20));
        another.discard().unwrap();
        fs::write(&last, &whole).unwrap();
    }
    fs::remove_file(path.join("99999999999999999999.log")).unwrap();
    assert!(export().was_there);
    let asked = std::cell::Cell::new(0);
    let is_wanted = || asked.replace(asked.get() + 1) < 1;
    let refused = log.export_job(Offset(13)).run(&dir(&world), NOW, is_wanted).unwrap_err();
    assert!(matches!(refused, LogError::GivenUp { .. }), "comparing takes its time too: {refused}");
}

/// The process died between the note and the cut, and the source had its records again: nothing was lost here.
#[test]
fn an_export_that_no_cut_came_after_is_not_told_however_the_log_goes_on() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let noted = |log: &Log| log.noted_export().run().unwrap();
    assert_eq!(noted(&log), None, "nothing is noted");
    let exported = log.export_job(Offset(30)).run(&dir(&world), NOW, || true).unwrap().unwrap();
    exported.note(7).unwrap();
    assert_eq!(noted(&log), None, "it is about to be cut");
    mirror(&mut log, &[batch(40, 2, 5)]).unwrap();
    assert_eq!(noted(&log), None, "it has grown");
    log.advance_start(Offset(36), NOW).unwrap().unwrap().run().unwrap();
    assert_eq!(noted(&log), None, "its retention has passed the beginning of the copy");
    // Once it is cut it is told, whatever comes into its place.
    log.truncate_to(Offset(38), NOW).unwrap();
    assert_eq!(noted(&log).map(|note| (note.version, note.path)), Some((7, exported.path.clone())));
    for other in [batch(38, 2, 6), batch(40, 2, 6)] {
        mirror(&mut log, &[other]).unwrap();
        assert_eq!(noted(&log).map(|note| (note.from, note.to)), Some((Offset(30), Offset(40))));
    }
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_the_log_as_it_was() {
    let world = World::new(segments_of(500));
    let log = filled(&world);
    let file = world.root.path().join("a-file");
    fs::write(&file, b"").unwrap();
    let refused =
        log.export_job(Offset(30)).run(&ExportDir::new(file.join("exports")), NOW, || true).unwrap_err();
    assert!(matches!(refused, LogError::Io { action: "create", .. }), "{refused}");
    // The log loses the segments meanwhile.
    let mut log = log;
    let job = log.export_job(Offset(0));
    log.advance_start(Offset(30), NOW).unwrap().unwrap().run().unwrap();
    let refused = job.run(&dir(&world), NOW, || true).unwrap_err();
    assert!(matches!(&refused, LogError::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound));
    assert_eq!(listed(&exports(&world).join("orders-0")), [""; 0]);
}

#[test]
fn a_copy_that_nobody_wants_any_more_is_given_up() {
    let world = World::new(segments_of(500));
    let log = filled(&world);
    let asked = std::cell::Cell::new(0);
    let is_wanted = || asked.replace(asked.get() + 1) < 2;
    let refused = log.export_job(Offset(0)).run(&dir(&world), NOW, is_wanted).unwrap_err();
    assert!(matches!(refused, LogError::GivenUp { .. }), "{refused}");
    assert_eq!(asked.get(), 3, "once for each segment, or piece of it");
    assert_eq!(listed(&exports(&world).join("orders-0")), [""; 0]);
}

#[test]
fn a_damaged_header_is_copied_nowhere() {
    let world = World::new(LogConfig::default());
    let log = filled(&world);
    let path = world.path().join("00000000000000000000.log");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - batch(38, 2, 4).bytes().len();
    bytes[at + 8] ^= 0x40;
    fs::write(&path, &bytes).unwrap();
    let refused = log.export_job(Offset(30)).run(&dir(&world), NOW, || true).unwrap_err();
    assert!(matches!(refused, LogError::Damaged { .. }), "{refused}");
    assert_eq!(listed(&exports(&world).join("orders-0")), [""; 0]);
}

#[test]
fn a_log_directory_takes_exports_for_no_partitions_whatever_lies_there() {
    let world = World::new(segments_of(500));
    let log = filled(&world);
    let _ = log.export_job(Offset(30)).run(&dir(&world), NOW, || true).unwrap().unwrap();
    fs::create_dir_all(exports(&world).join("stray-7").join("x-delete")).unwrap();
    fs::write(exports(&world).join("00000000000000000000.log"), b"stray").unwrap();
    let found: Vec<_> = world.dir.partitions().unwrap().into_iter().map(|found| found.topic).collect();
    assert_eq!(found, ["orders"]);
    assert!(world.dir.deleted().unwrap().is_empty());
}

#[test]
fn the_last_batch_below_an_offset_is_found_in_whichever_segment() {
    let world = World::new(segments_of(500));
    let mut log = world.create();
    let below = |log: &Log, offset: i64| {
        log.batch_below(Offset(offset)).run().unwrap().map(|header| header.base_offset.0)
    };
    assert_eq!(below(&log, 5), None, "an empty log");
    // Batches of two records and gaps of three offsets.
    for number in 0..20 {
        mirror(&mut log, &[batch(number * 5, 2, 0)]).unwrap();
    }
    assert!(log.segment_count() > 3);
    assert_eq!(below(&log, 0), None);
    for offset in 1..=100 {
        assert_eq!(below(&log, offset), Some((offset - 1) / 5 * 5), "{offset}");
    }
    assert_eq!(below(&log, i64::MAX), Some(95));
    log.advance_start(Offset(52), NOW).unwrap();
    assert_eq!((below(&log, 55), below(&log, 56)), (None, Some(55)), "what was removed is not found");
}

#[test]
fn a_truncation_that_was_looked_up_for_an_older_log_is_looked_up_again() {
    let world = World::new(segments_of(500));
    let mut log = filled(&world);
    let early = log.search_truncation(Offset(31)).run().unwrap();
    let _ = log.truncate_to(Offset(20), NOW).unwrap();
    for number in 10..20 {
        mirror(&mut log, &[batch(number * 2, 2, 9)]).unwrap();
    }
    assert_eq!(log.end(), Offset(40));
    assert_eq!(log.truncate_as_found(early, NOW).unwrap().end, Offset(30));
    assert_eq!(read_all(&log, Offset(0), 1 << 20).last().unwrap().header().last_offset(), Offset(29));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whenever the process dies after the copy was made, the next one finds the log as it was or as it was to
    /// become, with its epochs and producers, and the copy; and who read the log before sees no other bytes.
    #[test]
    fn a_log_that_was_exported_and_cut_is_the_same_after_a_crash(
        segment_bytes in prop_oneof![Just(300u32), Just(700), Just(1 << 20)],
        cut in 0i64..62,
        flushed in 0i64..60,
        goes_on in any::<bool>(),
        is_flushed_after in any::<bool>(),
    ) {
        let world = World::new(segments_of(segment_bytes));
        let mut log = world.create();
        for number in 0..20i64 {
            let producer = number as i32 % 3;
            let (id, sequence, transactional) = (i64::from(producer), number as i32 / 3 * 3, producer == 1);
            let of = Idempotent { id, epoch: 0, sequence, transactional };
            mirror(&mut log, &[of.batch(number * 3, 3, number as i32 / 7)]).unwrap();
            if number * 3 == flushed / 3 * 3 {
                flush(&mut log);
            }
        }
        let before = read_all(&log, Offset(0), 1 << 20);
        let held = log.read(Offset(cut.min(59)), 1 << 20, FirstBatch::MayBeLarger, log.end()).unwrap();
        let found = log.search_truncation(Offset(cut)).run().unwrap();
        let exported = log.export_job(Offset(cut)).run(&dir(&world), NOW, || true).unwrap();
        let is_kept = |batch: &&ValidBatch| batch.header().last_offset() < Offset(cut);
        let kept: Vec<_> = before.iter().filter(is_kept).cloned().collect();

        let twin = World::new(segments_of(segment_bytes));
        let mut expected = twin.create();
        mirror(&mut expected, &kept).unwrap();

        drop(log.truncate_as_found(found, NOW).unwrap());
        prop_assert_eq!(producers(&log), producers(&expected));
        let mut wanted = kept.clone();
        if goes_on {
            let next = batch(log.end().0, 4, 9);
            mirror(&mut log, std::slice::from_ref(&next)).unwrap();
            wanted.push(next);
        }
        let is_cut = cut < 60;
        prop_assert_eq!(held.slices.iter().all(|slice| !slice.is_current() && slice.read().is_err()), is_cut);
        if is_flushed_after {
            flush_batches(&mut log);
        }
        let (epochs, states) = (starts(&log), producers(&log));
        drop(log);
        let (again, _) = world.open_unclean(flushed / 3 * 3 + 3);
        prop_assert_eq!(read_all(&again, Offset(0), 1 << 20), wanted);
        prop_assert_eq!((starts(&again), producers(&again)), (epochs, states));
        match exported {
            Some(exported) => prop_assert_eq!(copied(&exported.path).0, &before[kept.len()..]),
            None => prop_assert!(!is_cut),
        }
    }
}

/// What is known of producers: id, last sequence, whether a transaction is open.
fn producers(log: &Log) -> Vec<(i64, i32, bool)> {
    let open: Vec<_> = log.producers().open_transactions().map(|open| open.producer_id.0).collect();
    let known = log.producers().iter();
    let mut known: Vec<_> =
        known.map(|(id, one)| (id.0, one.last_sequence().0, open.contains(&id.0))).collect();
    known.sort_unstable();
    known
}
