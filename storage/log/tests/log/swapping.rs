//! Swaps of compaction that a crash interrupted, at each of their steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tarn_log::{Log, LogError, Opening};
use tarn_record::{Offset, PartitionIndex, ValidBatch};

use crate::compacting::{compact, in_turn, one_segment};
use crate::world::*;

type Files = BTreeMap<String, Vec<u8>>;

/// The files of a log before and after a compaction, and its batches.
struct Compacted {
    world: World,
    before: Files,
    after: Files,
    old: Vec<ValidBatch>,
    new: Vec<ValidBatch>,
}

impl Compacted {
    fn new() -> Compacted {
        let world = World::new(segments_of(600));
        let mut log = world.create();
        in_turn(&mut log, 40);
        log.close().unwrap();
        drop(log);
        let (before, mut log) = (files(&world.path()), world.open_clean());
        let old = read_all(&log, Offset(0), 1 << 20);
        log.configure(one_segment());
        compact(&mut log, Offset(0), NOW);
        let new = read_all(&log, Offset(0), 1 << 20);
        assert!(new.len() < old.len() && log.segment_count() == 2);
        let of_first = world.indexes().into_iter().filter(|name| name.starts_with(FIRST));
        assert_eq!(of_first.count(), 2, "the small segment that came out has both");
        log.close().unwrap();
        drop(log);
        let after = files(&world.path());
        Compacted { world, before, after, old, new }
    }

    /// The names of the new segment's files.
    fn new_names(&self) -> Vec<String> {
        let is_new = |name: &&String| name.starts_with(FIRST) && !name.ends_with(".snapshot");
        self.after.keys().filter(is_new).filter(|name| !name.contains("unbroken")).cloned().collect()
    }

    /// The names of the old segments' files.
    fn old_names(&self) -> Vec<String> {
        let is_old = |name: &&String| name.ends_with("index") || name.ends_with(".log");
        self.before
            .keys()
            .filter(is_old)
            .filter(|name| self.after.get(*name) != self.before.get(*name))
            .cloned()
            .collect()
    }

    /// Opens the log with these files in place of all others.
    fn opened(&self, files: &Files, clean: bool) -> Result<(Log, usize), LogError> {
        for name in self.world.names() {
            fs::remove_file(self.world.path().join(name)).unwrap();
        }
        files.iter().for_each(|(name, bytes)| fs::write(self.world.path().join(name), bytes).unwrap());
        let opening = Opening { clean, recovery_point: Offset(40), log_start: Offset(0) };
        let config = self.world.config.clone();
        let opened = Log::open(&self.world.dir, TOPIC, PartitionIndex(0), config, opening, NOW);
        opened.map(|(log, report)| (log, report.completed_swaps))
    }

    fn expect(&self, files: &Files, expected: &[ValidBatch], completed: usize) {
        for clean in [true, false] {
            let (log, swaps) = self.opened(files, clean).unwrap();
            assert_eq!(read_all(&log, Offset(0), 1 << 20), expected);
            assert_eq!((log.end(), swaps), (Offset(40), completed));
            let is_left = |name: &String| name.ends_with(".swap") || name.ends_with(".cleaned");
            assert!(!self.world.names().iter().any(is_left) && !self.world.waits_for_removal());
        }
    }
}

const FIRST: &str = "00000000000000000000";

fn files(path: &Path) -> Files {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(path).unwrap().map(read).collect()
}

#[test]
fn a_swap_that_was_not_announced_whole_is_undone() {
    let log = Compacted::new();
    let names = log.new_names();
    for announced in 0..names.len() {
        let mut files = log.before.clone();
        for (number, name) in names.iter().enumerate() {
            let suffix = if number < announced { "swap" } else { "cleaned" };
            files.insert(format!("{name}.{suffix}"), log.after[name].clone());
        }
        log.expect(&files, &log.old, 0);
    }
}

#[test]
fn a_swap_that_was_announced_is_completed_wherever_it_stopped() {
    let log = Compacted::new();
    let (new, old) = (log.new_names(), log.old_names());
    assert!(old.len() > 10);
    for put_out in 0..=old.len() {
        let mut files = log.before.clone();
        new.iter().for_each(|name| drop(files.insert(format!("{name}.swap"), log.after[name].clone())));
        for name in &old[..put_out] {
            let bytes = files.remove(name).unwrap();
            files.insert(format!("{name}.1.deleted"), bytes);
        }
        log.expect(&files, &log.new, 1);
    }
    let mut files = log.after.clone();
    let mut last_first = new.clone();
    last_first.sort_by_key(|name| name.ends_with(".log"));
    for name in last_first {
        let bytes = files.remove(&name).unwrap();
        files.insert(format!("{name}.swap"), bytes);
        let has_log = files.contains_key(&format!("{FIRST}.log"));
        log.expect(&files, &log.new, usize::from(!has_log));
    }
}

#[test]
fn a_segment_that_should_replace_others_and_is_damaged_is_told_by_its_name() {
    let log = Compacted::new();
    let mut files = log.before.clone();
    files.insert(format!("{FIRST}.log.swap"), vec![7; 100]);
    let refused = log.opened(&files, true).unwrap_err();
    assert!(
        matches!(&refused, LogError::Damaged { path, .. } if path.ends_with(format!("{FIRST}.log.swap")))
    );
}

#[test]
fn an_empty_segment_of_kafkas_takes_its_place() {
    let log = Compacted::new();
    let mut files = log.before.clone();
    files.insert(format!("{FIRST}.log.swap"), Vec::new());
    let second =
        log.old_names().iter().filter_map(|name| name.strip_suffix(".log")?.parse::<i64>().ok()).nth(1);
    let (opened, _) = log.opened(&files, true).unwrap();
    let left: Vec<_> =
        log.old.iter().filter(|batch| batch.header().base_offset.0 >= second.unwrap()).cloned().collect();
    assert_eq!(read_all(&opened, Offset(0), 1 << 20), left);
}
