//! Transaction indexes whose files are not, or not only, what was to be written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tarn_log::{AbortedTransaction, Log, LogConfig, Opening};
use tarn_record::{Offset, Outcome, PartitionIndex};

use crate::full_disk::Full;
use crate::world::*;

const ENTRY: usize = tarn_log::segment::txn_index::TXN_INDEX_ENTRY_BYTES;

/// What comes after a write of an index that found no room and could not be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Truncated,
    Rolled,
    Closed,
    Crashed,
}

#[test]
fn what_a_refused_write_left_in_an_index_is_gone_whatever_comes_next() {
    for then in [Then::Truncated, Then::Rolled, Then::Closed, Then::Crashed] {
        for room in [1, ENTRY - 1] {
            let world = Full::new();
            let mut log = world.create(segments_of(1 << 20));
            abort(&mut log, 1);
            world.leaves(".txnindex", room);
            world.keeps_all();
            abort(&mut log, 2);
            assert_eq!(world.bytes_of(".txnindex"), (ENTRY + room) as u64, "it is torn");
            world.has_room();
            let whole = log.end();
            match then {
                // The end of the second transaction goes.
                Then::Truncated => drop(log.truncate_to(whole.plus(-1), NOW).unwrap()),
                Then::Rolled => {
                    log.configure(segments_of(1));
                    abort(&mut log, 3);
                    assert!(log.segment_count() > 1);
                }
                Then::Closed => {
                    log.close().unwrap();
                    log = world.open(segments_of(1 << 20), true);
                }
                Then::Crashed => log = world.open(segments_of(1 << 20), false),
            }
            let expected = match then {
                Then::Truncated => vec![1],
                Then::Rolled => vec![1, 2, 3],
                Then::Closed | Then::Crashed => vec![1, 2],
            };
            assert_eq!(ids(&aborted(&log)), expected, "{then:?}");
            log.close().unwrap();
            let entries = world.bytes_of(".txnindex") / ENTRY as u64;
            assert_eq!(world.bytes_of(".txnindex") % ENTRY as u64, 0, "{then:?}");
            assert_eq!(entries, expected.len() as u64, "{then:?}");
            for clean in [true, false] {
                assert_eq!(ids(&aborted(&world.open(segments_of(1 << 20), clean))), expected, "{then:?}");
            }
        }
    }
}

#[test]
fn what_was_written_of_an_entry_without_room_is_cut_off_at_once() {
    let world = Full::new();
    let mut log = world.create(LogConfig::default());
    abort(&mut log, 1);
    world.leaves(".txnindex", ENTRY / 2);
    abort(&mut log, 2);
    assert_eq!(world.bytes_of(".txnindex"), ENTRY as u64);
    assert_eq!(ids(&aborted(&log)), [1, 2], "memory has it until there is room");
}

#[test]
fn an_index_that_cannot_be_right_is_built_anew_from_its_segment() {
    let left = Left::new();
    // Where the damage is, and whether it shows without looking at every entry.
    type Damage = fn(&mut Vec<u8>) -> usize;
    let damages: [(Damage, bool); 7] = [
        (|bytes| cut(bytes, 1), true),
        (|bytes| cut(bytes, ENTRY + 4), true),
        (|bytes| set(bytes, 0, 1, 7), false),
        (|bytes| set(bytes, 1, 1, 7), true),
        (|bytes| set(bytes, 0, 18, 0x40), false),
        (|bytes| set(bytes, 1, 18, 0x40), true),
        (|bytes| set(bytes, 0, 10, 0x40), false),
    ];
    for with_snapshots in [true, false] {
        for (number, (damage, shows)) in damages.iter().enumerate() {
            for clean in [true, false] {
                let mut files = left.files.clone();
                if !with_snapshots {
                    files.retain(|name, _| !name.ends_with(".snapshot"));
                }
                let position = damage(files.get_mut(&left.index).unwrap());
                let (log, report) = left.opened(&files, clean);
                if clean && !shows {
                    continue;
                }
                let rebuilt = &report.rebuilt_txn_indexes;
                assert_eq!(rebuilt.len(), 1, "damage {number}, {clean}: {report:?}");
                assert!(rebuilt[0].path.ends_with(&left.index), "{rebuilt:?}");
                assert_eq!(rebuilt[0].position, position as u64, "damage {number}: {rebuilt:?}");
                assert!(!report.distrusted_recovery_point, "nothing else is read for it");
                assert_eq!(aborted(&log), left.aborted);
                assert_eq!(fs::read(left.world.path().join(&left.index)).unwrap(), left.files[&left.index]);
                assert_eq!(log.end(), left.end);
            }
        }
    }
}

#[test]
fn an_index_of_another_segment_is_told_after_a_stop_in_order_too() {
    let left = Left::new();
    let is_other = |name: &&String| name.ends_with(".txnindex") && **name != left.index;
    let other = left.files.keys().rfind(is_other).unwrap().clone();
    for clean in [true, false] {
        let mut files = left.files.clone();
        files.insert(left.index.clone(), left.files[&other].clone());
        let (log, report) = left.opened(&files, clean);
        assert_eq!(report.rebuilt_txn_indexes.len(), 1);
        assert_eq!(aborted(&log), left.aborted);
    }
}

#[test]
fn indexes_that_are_right_stay_as_they_are() {
    let left = Left::new();
    for clean in [true, false] {
        let (log, report) = left.opened(&left.files, clean);
        assert_eq!((report.rebuilt_txn_indexes.len(), aborted(&log)), (0, left.aborted.clone()));
    }
}

/// What a log of several segments has left, whose transactions reach from one into the next.
struct Left {
    world: World,
    files: BTreeMap<String, Vec<u8>>,
    /// An index of two entries, neither of the first segment nor of the last.
    index: String,
    aborted: Vec<AbortedTransaction>,
    end: Offset,
}

impl Left {
    fn new() -> Left {
        let world = World::new(segments_of(420));
        let mut log = world.create();
        for id in 0..20 {
            begin(&mut log, id);
            if id > 0 {
                end(&mut log, id - 1);
            }
        }
        log.close().unwrap();
        let (aborted, end) = (aborted(&log), log.end());
        drop(log);
        let read = |name: String| (name.clone(), fs::read(world.path().join(name)).unwrap());
        let files: BTreeMap<_, _> = world.names().into_iter().map(read).collect();
        let of_two = |name: &&String| name.ends_with(".txnindex") && files[*name].len() == 2 * ENTRY;
        let index = files.keys().filter(of_two).nth(1).unwrap().clone();
        Left { world, files, index, aborted, end }
    }

    fn opened(&self, files: &BTreeMap<String, Vec<u8>>, clean: bool) -> (Log, tarn_log::RecoveryReport) {
        for name in self.world.names() {
            fs::remove_file(self.world.path().join(name)).unwrap();
        }
        let put = |(name, bytes): (&String, &Vec<u8>)| {
            fs::write::<&Path, _>(&self.world.path().join(name), bytes).unwrap();
        };
        files.iter().for_each(put);
        let opening = Opening { clean, recovery_point: self.end, log_start: Offset(0) };
        let (dir, config) = (&self.world.dir, self.world.config.clone());
        Log::open(dir, TOPIC, PartitionIndex(0), config, opening, NOW).unwrap()
    }
}

fn cut(bytes: &mut Vec<u8>, by: usize) -> usize {
    bytes.truncate(bytes.len() - by);
    bytes.len()
}

/// Sets a byte of an entry; where the entry begins.
fn set(bytes: &mut [u8], entry: usize, at: usize, value: u8) -> usize {
    bytes[entry * ENTRY + at] = value;
    entry * ENTRY
}

fn begin(log: &mut Log, id: i64) {
    let producer = Idempotent { id, epoch: 0, sequence: 0, transactional: true };
    let base = log.end().0;
    mirror(log, &[producer.batch(base, 2, 0)]).unwrap();
}

fn end(log: &mut Log, id: i64) {
    let base = log.end().0;
    mirror(log, &[marker(id, Outcome::Abort, base)]).unwrap();
}

fn abort(log: &mut Log, id: i64) {
    begin(log, id);
    end(log, id);
}

fn aborted(log: &Log) -> Vec<AbortedTransaction> {
    log.aborted_transactions(Offset(0), log.end()).unwrap()
}

fn ids(aborted: &[AbortedTransaction]) -> Vec<i64> {
    aborted.iter().map(|aborted| aborted.producer_id.0).collect()
}
