//! The log directories of a node, on a real disk.

use super::*;
use tarn_log::{Descriptors, Log, LogConfig, RealDisk};
use tarn_record::Timestamp;
use tempfile::TempDir;

const P: PartitionIndex = PartitionIndex(0);

#[test]
fn what_was_collected_before_the_stop_does_not_replace_the_last_checkpoints() {
    let (dirs, _files) = dirs(&[]);
    let topic = place(&dirs, "t");
    dirs.write_last_checkpoints(&[entry("t", topic, 9)]).expect("there is room");
    dirs.write_checkpoints(&[entry("t", topic, 5)]).expect("it does nothing");
    assert_eq!(points(&dirs), [("t".to_owned(), 9)]);
}

#[test]
fn whoever_goes_through_all_logs_lets_others_have_their_turn() {
    let (dirs, _files) = dirs(&[]);
    let many = 2 * limits::PLACES_AT_ONCE + 7;
    let names: Vec<Name> = (0..many).map(|number| (format!("t{number:05}"), P)).collect();
    let ids: Vec<TopicId> = names.iter().map(|_| TopicId::random()).collect();
    names.iter().zip(&ids).for_each(|((topic, _), id)| drop(dirs.place(topic, P, *id)));
    let (mut visited, turns) = (Vec::new(), std::cell::Cell::new(0));
    let turn = || {
        // One goes and one comes, both where it has been.
        dirs.forget(&format!("t{:05}", turns.get()), P, ids[turns.get()]);
        dirs.place(&format!("t{:05}x", turns.get()), P, TopicId::random());
        turns.set(turns.get() + 1);
    };
    dirs.each_place_pausing(|name, _| visited.push(name.clone()), turn);
    assert_eq!(turns.get(), 2);
    assert_eq!(visited, names, "each once, in order");
    dirs.each_place_pausing(|name, _| visited.retain(|one| one != name), || ());
    assert_eq!(visited, names[..2], "two have gone");
}

#[test]
fn a_log_that_is_made_again_does_not_inherit_a_recovery_point() {
    let (dirs, _files) = dirs(&[]);
    let (old, other) = (place(&dirs, "t"), place(&dirs, "other"));
    let collected = [entry("t", old, 9), entry("other", other, 3)];
    dirs.write_checkpoints(&collected).expect("there is room");
    dirs.forget("t", P, old);
    let new = place(&dirs, "t");
    assert!(dirs.is_in_the_way("t", P));
    dirs.make_way("t", P).expect("there is room");
    assert!(!dirs.is_in_the_way("t", P));
    assert_eq!(points(&dirs), [("other".to_owned(), 3)], "before the new log can hold anything");
    dirs.write_checkpoints(&collected).expect("there is room");
    assert_eq!(points(&dirs), [("other".to_owned(), 3)], "what was collected is of the old log");
    dirs.write_checkpoints(&[entry("t", new, 1)]).expect("there is room");
    assert_eq!(points(&dirs), [("other".to_owned(), 3), ("t".to_owned(), 1)]);
}

#[test]
fn a_log_that_is_opened_while_the_others_are_collected_keeps_its_lines() {
    let (dirs, files) = dirs(&[]);
    let topic = place(&dirs, "t");
    let left = CheckpointEntry { high_watermark: Offset(8), log_start: Offset(4), ..entry("t", topic, 6) };
    dirs.write_checkpoints(std::slice::from_ref(&left)).expect("there is room");
    drop(dirs);
    std::fs::create_dir(files.path().join("t-0")).expect("there is room");
    let dirs = again(&files);
    let (_, found) = dirs.place("t", P, TopicId::ZERO);
    let found = found.expect("it is there and not open");
    assert_eq!((found.high_watermark, found.opening.log_start), (Offset(8), Offset(4)));
    dirs.opened("t", P, TopicId::ZERO);
    dirs.write_checkpoints(&[]).expect("there is room");
    let said = |file| dirs.dirs()[0].offsets(file).expect("it can be read")[&("t".to_owned(), P)];
    assert_eq!(said(OffsetCheckpoint::RecoveryPoint), Offset(6));
    assert_eq!(said(OffsetCheckpoint::Replication), Offset(8));
    assert_eq!(said(OffsetCheckpoint::LogStart), Offset(4), "what was deleted does not come back");
}

#[test]
fn checkpoints_without_a_log_that_is_gone_make_way_for_the_next() {
    let (dirs, _files) = dirs(&[]);
    let old = place(&dirs, "t");
    dirs.write_checkpoints(&[entry("t", old, 9)]).expect("there is room");
    dirs.forget("t", P, old);
    dirs.write_checkpoints(&[]).expect("there is room");
    place(&dirs, "t");
    assert!(!dirs.is_in_the_way("t", P));
}

#[test]
fn a_log_that_is_found_and_not_opened_keeps_its_line() {
    let (dirs, _files) = dirs(&["t"]);
    dirs.write_checkpoints(&[]).expect("there is room");
    assert_eq!(points(&dirs), [("t".to_owned(), 7)]);
    assert!(
        dirs.place("t", P, TopicId::ZERO).1.is_some() && dirs.place("t", P, TopicId::ZERO).1.is_some(),
        "until it is open"
    );
    dirs.opened("t", P, TopicId::random());
    assert!(dirs.place("t", P, TopicId::ZERO).1.is_none());
}

#[test]
fn a_directory_with_a_log_that_was_not_checked_is_not_closed_in_order() {
    let (dirs, _files) = dirs(&["t", "u"]);
    assert_eq!(dirs.closed_in_order().len(), 0, "no mark was there");
    let id = TopicId::random();
    dirs.opened("t", P, id);
    assert_eq!(dirs.closed_in_order().len(), 0, "the other may still be damaged");
    dirs.opened("u", P, TopicId::random());
    assert_eq!(dirs.closed_in_order().len(), 1);
    dirs.closed(&entry("t", TopicId::random(), 7), Closing::Begun);
    assert_eq!(dirs.closed_in_order().len(), 1, "it is another topic's");
    dirs.closed(&entry("t", id, 7), Closing::Begun);
    assert_eq!(dirs.closed_in_order().len(), 0);
    dirs.closed(&entry("t", id, 7), Closing::InOrder);
    assert_eq!(dirs.closed_in_order().len(), 1);
}

#[test]
fn a_log_of_a_topic_that_the_metadata_does_not_know_is_put_aside_and_kept() {
    let (dirs, files) = dirs(&["known", "stray"]);
    let known = dirs.place("known", P, TopicId::ZERO).1.expect("it is there").partition.topic_id;
    let renamed = dirs.put_strays_aside(|_, _, id| id == known).expect("it can be renamed");
    let [stray] = &renamed[..] else { panic!("one of them: {renamed:?}") };
    let name = stray.path.file_name().unwrap_or_default().to_string_lossy();
    assert!(name.starts_with("stray-0.") && name.ends_with("-stray"), "{name}");
    assert!(stray.path.join("00000000000000000000.log").exists(), "with all that is in it");
    assert!(dirs.leftovers().expect("it can be read").is_empty(), "nobody will remove it");
    assert!(
        dirs.place("known", P, TopicId::ZERO).1.is_some()
            && dirs.place("stray", P, TopicId::ZERO).1.is_none()
    );
    drop(dirs);
    let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is ours");
    let again = LogDirs::new(vec![dir], 1).expect("it can be read");
    assert!(again.place("stray", P, TopicId::ZERO).1.is_none(), "nor is it found at the next start");
}

#[test]
fn where_compaction_goes_on_is_written_down_and_read_again() {
    let (dirs, files) = dirs(&["t", "u"]);
    let id = |topic| dirs.place(topic, P, TopicId::ZERO).1.expect("it is there").partition.topic_id;
    let (t, u) = (id("t"), id("u"));
    assert_eq!(dirs.first_dirty("t", P, t), None);
    dirs.write_cleaner_offsets().expect("there is room");
    assert!(!files.path().join("cleaner-offset-checkpoint").exists(), "there is nothing to say");
    dirs.note_first_dirty("t", P, t, Some(Offset(5)));
    dirs.note_first_dirty("u", P, t, Some(Offset(9)));
    assert!(!dirs.on_disk("t", P, t).is_known_as_compacted, "not yet");
    dirs.write_cleaner_offsets().expect("there is room");
    assert!(dirs.on_disk("t", P, t).is_known_as_compacted);
    assert_eq!((dirs.first_dirty("u", P, u), dirs.on_disk("u", P, u).is_known_as_compacted), (None, false));
    drop(dirs);
    let again = again(&files);
    assert_eq!(again.first_dirty("t", P, t), Some(Offset(5)));
    assert_eq!(again.first_dirty("t", P, u), None, "of another topic nothing is known");
    assert!(again.on_disk("t", P, t).is_known_as_compacted);
}

#[test]
fn a_log_whose_line_has_gone_is_not_known_as_compacted_before_there_is_one_again() {
    let (dirs, _files) = dirs(&["t", "u"]);
    let id = |topic| dirs.place(topic, P, TopicId::ZERO).1.expect("it is there").partition.topic_id;
    let (t, u) = (id("t"), id("u"));
    let note = |at: Option<i64>| dirs.note_first_dirty("t", P, t, at.map(Offset));
    let is_known = |topic, id| dirs.on_disk(topic, P, id).is_known_as_compacted;
    note(Some(5));
    dirs.note_first_dirty("u", P, u, Some(Offset(7)));
    dirs.write_cleaner_offsets().expect("there is room");
    assert!(is_known("t", t));
    for write_all in [true, false] {
        let write = || match write_all {
            true => dirs.write_checkpoints(&[]),
            false => dirs.write_cleaner_offsets(),
        };
        note(None);
        write().expect("there is room");
        assert!(!is_known("t", t) && is_known("u", u));
        note(Some(9));
        assert!(!is_known("t", t), "not yet");
        write().expect("there is room");
        assert!(is_known("t", t));
    }
}

#[test]
fn the_files_of_all_directories_are_written_though_one_of_them_refuses() {
    let files: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a directory")).collect();
    let open = |files: &TempDir| {
        LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new")
    };
    let dirs = LogDirs::new(files.iter().map(open).collect(), 3).expect("they can be read");
    let topics = ["a", "b", "c"].map(|topic| (topic, place(&dirs, topic)));
    let path = dirs.dir_of("a", P).expect("it has a place");
    // In the way of the new file.
    std::fs::create_dir(path.join("cleaner-offset-checkpoint.tmp")).expect("there is room");
    topics.iter().for_each(|(topic, id)| dirs.note_first_dirty(topic, P, *id, Some(Offset(5))));
    let said = || topics.map(|(topic, id)| dirs.on_disk(topic, P, id));
    dirs.write_cleaner_offsets().expect_err("it is in the way");
    assert_eq!(said().map(|said| said.is_known_as_compacted), [false, true, true]);
    let entries = topics.map(|(topic, id)| entry(topic, id, 9));
    dirs.write_checkpoints(&entries).expect_err("it is in the way");
    assert_eq!(said().map(|said| said.recovery_point.0), [0, 9, 9]);
    std::fs::remove_dir(path.join("cleaner-offset-checkpoint.tmp")).expect("it is there");
    dirs.write_checkpoints(&entries).expect("there is room");
    assert!(said().iter().all(|said| said.is_known_as_compacted && said.recovery_point == Offset(9)));
}

#[test]
fn a_log_that_is_made_again_does_not_inherit_where_compaction_goes_on() {
    let (dirs, _files) = dirs(&[]);
    let old = place(&dirs, "t");
    dirs.note_first_dirty("t", P, old, Some(Offset(5)));
    dirs.write_checkpoints(&[entry("t", old, 9)]).expect("there is room");
    dirs.forget("t", P, old);
    let new = place(&dirs, "t");
    dirs.make_way("t", P).expect("there is room");
    assert_eq!((dirs.first_dirty("t", P, new), dirs.on_disk("t", P, new)), (None, OnDisk::default()));
    let held = dirs.dirs()[0].offsets(OffsetCheckpoint::Cleaner).expect("it can be read");
    assert!(held.is_empty());
}

#[test]
fn a_recovery_point_counts_once_the_file_has_it_and_as_long_as_it_does() {
    let (dirs, files) = dirs(&[]);
    let t = place(&dirs, "t");
    let point = || dirs.on_disk("t", P, t).recovery_point.0;
    assert_eq!(point(), 0);
    dirs.write_checkpoints(&[entry("t", t, 9)]).expect("there is room");
    assert_eq!(point(), 9);
    std::fs::create_dir(files.path().join("recovery-point-offset-checkpoint.tmp")).expect("there is room");
    dirs.write_checkpoints(&[entry("t", t, 12)]).expect_err("it is in the way");
    assert_eq!(point(), 9, "or more");
    dirs.write_checkpoints(&[entry("t", t, 4)]).expect_err("it is in the way");
    assert_eq!(point(), 4, "or more");
    std::fs::remove_dir(files.path().join("recovery-point-offset-checkpoint.tmp")).expect("it is there");
    dirs.write_checkpoints(&[]).expect("there is room");
    assert_eq!((point(), points(&dirs)), (4, vec![("t".to_owned(), 4)]), "of a log that nothing was said of");
}

fn again(files: &TempDir) -> LogDirs {
    let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is ours");
    LogDirs::new(vec![dir], 1).expect("it can be read")
}

#[test]
fn a_log_that_was_closed_keeps_its_line_and_is_opened_as_it_was_left() {
    let (dirs, _files) = dirs(&[]);
    let topic = place(&dirs, "t");
    let left = entry("t", topic, 5);
    for (closing, clean) in [(Closing::Begun, false), (Closing::InOrder, true)] {
        dirs.closed(&left, closing);
        let (_, found) = dirs.place("t", P, TopicId::ZERO);
        let found = found.expect("it is there and not open");
        assert_eq!((found.opening.clean, found.high_watermark), (clean, Offset(5)));
        assert_eq!(found.partition.topic_id, topic);
        dirs.write_checkpoints(&[]).expect("there is room");
        assert_eq!(points(&dirs), [("t".to_owned(), 5)]);
    }
}

#[test]
fn a_directory_of_the_metadata_log_alone_gets_no_partition() {
    let files: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a directory")).collect();
    let open = |files: &TempDir| {
        LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new")
    };
    let dirs = LogDirs::new(files.iter().map(open).collect(), 2).expect("they can be read");
    for topic in ["a", "b", "c", "d"] {
        let (dir, _) = dirs.place(topic, P, TopicId::ZERO);
        assert_ne!(dir.path(), files[2].path(), "{topic}");
    }
}

#[test]
fn a_partition_in_two_directories_is_refused_with_both() {
    let id = TopicId::random();
    let files: Vec<_> = (0..2).map(|_| tempfile::tempdir().expect("a directory")).collect();
    let open = |files: &TempDir| {
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new");
        let config = LogConfig::default();
        Log::create(&dir, "t", P, id, config, Timestamp(0)).expect("it is new");
        dir
    };
    let refused = LogDirs::new(files.iter().map(open).collect(), 2).expect_err("which of them counts?");
    let LogDirError::Twice { path, other } = refused.1 else { panic!("{}", refused.1) };
    let partitions: Vec<_> = files.iter().map(|files| files.path().join("t-0")).collect();
    assert_eq!([other, path], partitions[..]);
}

#[test]
fn of_two_topics_of_one_name_the_one_that_is_deleted_is_put_aside() {
    for known in [0, 1] {
        let files: Vec<_> = (0..2).map(|_| tempfile::tempdir().expect("a directory")).collect();
        let ids = [TopicId::random(), TopicId::random()];
        let open = |(files, id): (&TempDir, &TopicId)| {
            let dir =
                LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new");
            Log::create(&dir, "t", P, *id, LogConfig::default(), Timestamp(0)).expect("it is new");
            dir
        };
        let dirs = LogDirs::new(files.iter().zip(&ids).map(open).collect(), 2).expect("they tell which");
        let renamed = dirs.put_strays_aside(|_, _, id| id == ids[known]).expect("it can be renamed");
        assert!(renamed.len() == 1 && renamed[0].path.starts_with(files[1 - known].path()), "{renamed:?}");
        let (dir, found) = dirs.place("t", P, ids[known]);
        assert_eq!(dir.path(), files[known].path());
        assert_eq!(found.map(|found| found.partition.topic_id), Some(ids[known]));
    }
}

/// One directory in which these logs are, each with a recovery point of 7.
fn dirs(found: &[&str]) -> (LogDirs, TempDir) {
    let files = tempfile::tempdir().expect("a directory");
    let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new");
    for topic in found {
        let (id, config) = (TopicId::random(), LogConfig::default());
        let mut log = Log::create(&dir, topic, P, id, config, Timestamp(0)).expect("it is new");
        log.close().expect("there is room");
    }
    let points = found.iter().map(|topic| (*topic, P, Offset(7)));
    dir.write_offsets(OffsetCheckpoint::RecoveryPoint, points).expect("there is room");
    (LogDirs::new(vec![dir], 1).expect("it can be read"), files)
}

/// Opens a log of a new topic.
fn place(dirs: &LogDirs, topic: &str) -> TopicId {
    let id = TopicId::random();
    dirs.place(topic, P, id);
    dirs.opened(topic, P, id);
    id
}

fn entry(topic: &str, topic_id: TopicId, recovery_point: i64) -> CheckpointEntry {
    CheckpointEntry {
        topic: topic.into(),
        topic_id,
        partition: P,
        recovery_point: Offset(recovery_point),
        high_watermark: Offset(recovery_point),
        log_start: Offset(0),
    }
}

fn points(dirs: &LogDirs) -> Vec<(String, i64)> {
    let points = dirs.dirs()[0].offsets(OffsetCheckpoint::RecoveryPoint).expect("it can be read");
    points.into_iter().map(|((topic, _), offset)| (topic, offset.0)).collect()
}
