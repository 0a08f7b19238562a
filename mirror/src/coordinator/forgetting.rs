//! Forgetting a mirror that was deleted: tombstones for all that a partition of `__mirror_state` holds of it.
//!
//! A mirror of the same name may exist again, and its partitions may have been written about, before the old
//! one is forgotten. What tells them apart is the version of the binding that each record was written under:
//! it is the offset of the batch of the metadata log that bound the topic. Metadata up to some offset that do
//! not have the mirror prove that all of its bindings up to there are over; those of a later mirror of the
//! name have higher versions.
//!
//! Invariants:
//! * what was written under a binding newer than the version that is asked for stays;
//! * one answer forgets a bounded number of records and says how much is left, so that any number fits the log;
//! * forgetting again changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tarn_record::{PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::messages::{
    MirrorFailoverReportKey, MirrorGroupReportKey, MirrorManagedKey, MirrorPartitionStateKey,
    MirrorPositionKey,
};
use tarn_wire::{CoordinatorKey, decode_key, encode_key};
use uuid::Uuid;

use super::{MirrorCoordinator, PartitionState, StateRecord};
use crate::limits;

/// The keys of records of the kinds that nothing here reads yet, by mirror. Nothing here writes them either:
/// those that are found are older than any mirror that was made since, so all of them go with their mirror.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Unread {
    keys: BTreeMap<String, BTreeSet<Bytes>>,
}

impl Unread {
    /// Notes that there is a record of this key, or that there is none any more.
    pub(super) fn replay(&mut self, kind: i16, key: &Bytes, is_there: bool) -> Result<(), String> {
        let mirror = if kind == MirrorManagedKey::TYPE {
            decode_key::<MirrorManagedKey>(key.clone()).map(|key| key.mirror_name)
        } else if kind == MirrorGroupReportKey::TYPE {
            decode_key::<MirrorGroupReportKey>(key.clone()).map(|key| key.mirror_name)
        } else {
            return Ok(());
        };
        let mirror = mirror.map_err(|error| error.to_string())?.to_string();
        if is_there {
            self.keys.entry(mirror).or_default().insert(key.clone());
        } else if let Some(keys) = self.keys.get_mut(&mirror) {
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(&mirror);
            }
        }
        Ok(())
    }
}

impl MirrorCoordinator {
    /// The mirrors of which something is kept.
    pub fn mirrors(&self) -> BTreeSet<&str> {
        let of_partitions = self.states.keys().chain(self.reports.keys()).map(|(mirror, _)| mirror.as_str());
        of_partitions.chain(self.unread.keys.keys().map(String::as_str)).collect()
    }

    /// Forgets of `mirror` what was written under bindings up to `version`. Returns how much is left to be
    /// forgotten, 0 for nothing, and the tombstones.
    pub(super) fn forget_mirror(&mut self, mirror: &str, version: i64) -> (usize, Vec<StateRecord>) {
        let mut tombstones = Vec::new();
        let mut left = 0;
        for partition in self.old_partitions(mirror, version) {
            if tombstones.len() < limits::FORGOTTEN_AT_ONCE {
                tombstones.extend(self.forget_partition(mirror, partition, version));
            } else {
                left += 1;
            }
        }
        if let Some(keys) = self.unread.keys.get_mut(mirror) {
            while tombstones.len() < limits::FORGOTTEN_AT_ONCE
                && let Some(key) = keys.pop_first()
            {
                tombstones.push(key);
            }
            left += keys.len();
            if keys.is_empty() {
                self.unread.keys.remove(mirror);
            }
        }
        (left, tombstones.into_iter().map(|key| (key, None)).collect())
    }

    /// The partitions of a mirror of which something was written under such an old binding.
    fn old_partitions(&self, mirror: &str, version: i64) -> BTreeSet<TopicIdPartition> {
        let first = TopicIdPartition { topic_id: TopicId(Uuid::nil()), partition: PartitionIndex(i32::MIN) };
        let first = (mirror.to_owned(), first);
        let states = self.states.range(&first..).take_while(|((name, _), _)| name == mirror);
        let reports = self.reports.range(&first..).take_while(|((name, _), _)| name == mirror);
        let old_states = states.filter(|(_, known)| Old::of(known, version) != Old::default());
        let old_reports = reports.filter(|(_, report)| report.version <= version);
        let partitions = old_states.map(|(named, _)| named).chain(old_reports.map(|(named, _)| named));
        partitions.map(|(_, partition)| *partition).collect()
    }

    /// Forgets what is old of one partition. Returns the keys of the records that go.
    fn forget_partition(&mut self, mirror: &str, partition: TopicIdPartition, version: i64) -> Vec<Bytes> {
        let named = (mirror.to_owned(), partition);
        let mut keys = Vec::new();
        let (name, topic_id, index) = (mirror, partition.topic_id.0, partition.partition.0);
        if self.reports.get(&named).is_some_and(|report| report.version <= version) {
            self.reports.remove(&named);
            let report = MirrorFailoverReportKey { mirror_name: name.into(), topic_id, partition: index };
            keys.push(encode_key(&report));
        }
        let known = self.states.entry(named.clone()).or_default();
        let old = Old::of(known, version);
        if old.state {
            *known = PartitionState { position: known.position, ..PartitionState::default() };
            let state = MirrorPartitionStateKey { mirror_name: name.into(), topic_id, partition: index };
            keys.push(encode_key(&state));
        }
        if old.position {
            known.position = None;
            let position = MirrorPositionKey { mirror_name: name.into(), topic_id, partition: index };
            keys.push(encode_key(&position));
        }
        if *known == PartitionState::default() {
            self.states.remove(&named);
        }
        // What was written once under a name fits a record again.
        keys.into_iter().filter_map(Result::ok).collect()
    }
}

/// What of a partition was written under an old binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Old {
    state: bool,
    position: bool,
}

impl Old {
    fn of(known: &PartitionState, version: i64) -> Old {
        let without_state = PartitionState { position: known.position, ..PartitionState::default() };
        Old {
            state: *known != without_state && known.state_version <= version,
            position: known.position.is_some_and(|position| position.version <= version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{StateRequest, StateResponse, StateWrite};
    use super::*;
    use crate::state::MirrorState;
    use proptest::prelude::*;
    use tarn_wire::messages::write_mirror_states_request::WriteMirrorStatePartition;
    use tarn_wire::messages::{MirrorFailoverReportValue, MirrorGroupReportValue, MirrorManagedValue};
    use tarn_wire::{coordinator_key_type, encode_value};

    #[test]
    fn every_kind_of_record_of_the_mirror_goes_and_nothing_of_another() {
        let mut kept = Kept::default();
        for mirror in ["m", "n"] {
            kept.write(mirror, 0, 5, Some(40));
            kept.write(mirror, 1, 5, None);
            kept.put(report(mirror, 0));
            kept.put(managed(mirror));
            kept.put(group(mirror));
        }
        assert_eq!(kept.kinds_of("m"), [0, 1, 1, 2, 3, 4]);
        let others = kept.kinds_of("n");
        assert_eq!(kept.forget("m", 5), 0);
        assert_eq!((kept.kinds_of("m"), kept.kinds_of("n")), (vec![], others));
        assert_eq!(kept.coordinator.mirrors(), BTreeSet::from(["n"]));
        assert_eq!(kept.loaded(), kept.coordinator);
        kept.forget("n", 5);
        assert!(kept.log.is_empty());
        assert_eq!(kept.coordinator, MirrorCoordinator::default());
    }

    #[test]
    fn a_later_mirror_of_the_name_keeps_what_it_has_written() {
        let mut kept = Kept::default();
        kept.write("m", 0, 5, Some(40));
        kept.write("m", 1, 9, Some(50));
        kept.write("m", 2, 5, Some(60));
        kept.write("m", 2, 9, None);
        kept.put(report("m", 2));
        kept.forget("m", 7);
        assert_eq!(kept.kinds_of("m"), [0, 1, 1], "the report is of the old mirror");
        assert_eq!(kept.state(0), None);
        assert_eq!(kept.state(1), Some((9, Some(50))));
        assert_eq!(kept.state(2), Some((9, None)), "the position is of the old mirror");
        assert_eq!(kept.loaded(), kept.coordinator);
        let (left, tombstones) = kept.coordinator.forget_mirror("m", 7);
        assert_eq!((left, tombstones.len()), (0, 0), "there is nothing more to forget");
    }

    #[test]
    fn any_number_goes_piece_by_piece() {
        let mut kept = Kept::default();
        let count = i32::try_from(limits::FORGOTTEN_AT_ONCE).unwrap();
        (0..count).for_each(|index| kept.write("m", index, 5, Some(1)));
        let mut answers = 0;
        loop {
            let before = kept.log.len();
            let left = kept.forget("m", 5);
            assert!(before - kept.log.len() <= limits::FORGOTTEN_AT_ONCE + 3);
            answers += 1;
            if left == 0 {
                break;
            }
        }
        assert!(answers > 1 && kept.log.is_empty(), "{answers}");
    }

    proptest! {
        /// A coordinator that replays the log of another answers like it, whatever was forgotten between.
        #[test]
        fn the_log_makes_the_same_coordinator_again(
            steps in prop::collection::vec((any::<bool>(), 0..3i32, 0..20i64, prop::option::of(0..9i64)), 0..40)
        ) {
            let mut kept = Kept::default();
            for (forgets, index, version, position) in steps {
                if forgets {
                    kept.forget("m", version);
                } else {
                    kept.write("m", index, version, position);
                }
                prop_assert_eq!(&kept.loaded(), &kept.coordinator);
            }
        }
    }

    /// A coordinator, and its log as compaction leaves it.
    #[derive(Default)]
    struct Kept {
        coordinator: MirrorCoordinator,
        log: BTreeMap<Bytes, Bytes>,
    }

    impl Kept {
        fn take(&mut self, records: Vec<StateRecord>) {
            for (key, value) in records {
                match value {
                    Some(value) => self.log.insert(key, value),
                    None => self.log.remove(&key),
                };
            }
        }

        fn write(&mut self, mirror: &str, index: i32, state_version: i64, position: Option<i64>) {
            let write = WriteMirrorStatePartition {
                state: MirrorState::Stopped.to_byte(),
                last_mirror_offset: position.unwrap_or(-1),
                state_version,
                ..WriteMirrorStatePartition::default()
            };
            let write = StateWrite { topic: "t".into(), state: write };
            let writes = vec![(partition(index), write)];
            let (_, records) = self.coordinator.handle(StateRequest::Write(mirror.to_owned(), writes));
            self.take(records);
        }

        /// A record that was written before this coordinator was loaded.
        fn put(&mut self, record: (Bytes, Bytes)) {
            self.coordinator.replay(&record.0, Some(&record.1)).expect("it can be read");
            self.log.insert(record.0, record.1);
        }

        fn forget(&mut self, mirror: &str, version: i64) -> usize {
            let (response, records) =
                self.coordinator.handle(StateRequest::Forget(mirror.to_owned(), version));
            assert!(records.iter().all(|(_, value)| value.is_none()));
            self.take(records);
            let StateResponse::Forgotten(left) = response else { panic!("it is answered as what it is") };
            left
        }

        fn loaded(&self) -> MirrorCoordinator {
            let mut coordinator = MirrorCoordinator::default();
            for (key, value) in &self.log {
                coordinator.replay(key, Some(value)).expect("it can be read");
            }
            coordinator
        }

        /// The version and the position of a partition of `m`.
        fn state(&self, index: i32) -> Option<(i64, Option<i64>)> {
            let known = self.coordinator.states.get(&("m".to_owned(), partition(index)))?;
            Some((known.state_version, known.position.map(|position| position.offset.0)))
        }

        /// The kinds of the records that name a mirror.
        fn kinds_of(&self, mirror: &str) -> Vec<i16> {
            let of_mirror = self.log.keys().filter(|key| {
                let named = &key[4..];
                named.starts_with(mirror.as_bytes())
            });
            let mut kinds: Vec<i16> = of_mirror.map(|key| coordinator_key_type(key).unwrap()).collect();
            kinds.sort_unstable();
            kinds
        }
    }

    fn partition(index: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(index) }
    }

    fn report(mirror: &str, index: i32) -> (Bytes, Bytes) {
        let topic_id = partition(index).topic_id.0;
        let key = MirrorFailoverReportKey { mirror_name: mirror.into(), topic_id, partition: index };
        let value =
            MirrorFailoverReportValue { topic_name: "t".into(), state_version: 5, ..Default::default() };
        (encode_key(&key).unwrap(), encode_value(&value, 0).unwrap())
    }

    fn managed(mirror: &str) -> (Bytes, Bytes) {
        let key = MirrorManagedKey { mirror_name: mirror.into(), kind: "topic".into(), name: "t".into() };
        (encode_key(&key).unwrap(), encode_value(&MirrorManagedValue::default(), 0).unwrap())
    }

    fn group(mirror: &str) -> (Bytes, Bytes) {
        let key = MirrorGroupReportKey { mirror_name: mirror.into(), group_id: "g".into() };
        (encode_key(&key).unwrap(), encode_value(&MirrorGroupReportValue::default(), 0).unwrap())
    }
}
