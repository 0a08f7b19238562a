//! What every coordinator has in common: loading a partition of its internal topic into a sans-IO
//! machine, appending what the machine returns, and answering once that is committed.
//!
//! A machine lives on the core that owns its partition. It applies what it decides at once, so a later
//! request builds on it; where the append fails, the machine is dropped and loaded again from the log,
//! and the requests that built on it fail with it.
//!
//! Invariants:
//! * no request reaches a machine that has not replayed its whole log;
//! * an answer leaves only after the records behind it are committed;
//! * a machine that decided something the log did not take is never asked again.

use std::collections::HashMap;

use bytes::Bytes;
use tarn_record::builder::{BatchBuilder, Record};
use tarn_record::{Compression, Offset, Timestamp, TopicIdPartition, ValidBatch};

/// One record of a coordinator: its key, and its value or a tombstone.
pub type CoordinatorRecord = (Bytes, Option<Bytes>);

/// A coordinator's rules, without a clock, a log or a task.
pub trait Machine: Default {
    /// What it can be asked.
    type Request;
    /// What it answers.
    type Response;

    /// Takes one record of the log over.
    ///
    /// # Errors
    /// A record that cannot be read: the partition is not served.
    fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), String>;

    /// Decides. The records are appended in one batch before the answer leaves.
    fn handle(&mut self, request: Self::Request) -> (Self::Response, Vec<CoordinatorRecord>);
}

/// Where a coordinator's partition is between its log and its machine.
#[derive(Debug)]
enum Phase<M> {
    /// Its log is being replayed.
    Loading { incarnation: u64 },
    /// It answers.
    Active { incarnation: u64, machine: M },
}

/// The machines of one kind on one core.
#[derive(Debug)]
pub struct Machines<M> {
    partitions: HashMap<TopicIdPartition, Phase<M>>,
    next_incarnation: u64,
}

/// What a machine decided.
#[derive(Debug)]
pub struct Decided<R> {
    /// The answer, for when the records are committed.
    pub response: R,
    /// The records; none where nothing changes.
    pub records: Vec<CoordinatorRecord>,
    /// Which loading of the partition decided it.
    pub incarnation: u64,
}

/// Why a machine was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// Its partition is being loaded, or has to be: the caller begins that with `begin_loading`.
    NotLoaded,
    /// Its partition is being loaded.
    Loading,
}

impl<M> Default for Machines<M> {
    fn default() -> Machines<M> {
        Machines { partitions: HashMap::new(), next_incarnation: 0 }
    }
}

impl<M: Machine> Machines<M> {
    /// Asks the machine of a partition.
    ///
    /// # Errors
    /// Where it is not there yet.
    pub fn handle(
        &mut self,
        partition: TopicIdPartition,
        request: M::Request,
    ) -> Result<Decided<M::Response>, NotServed> {
        match self.partitions.get_mut(&partition) {
            None => Err(NotServed::NotLoaded),
            Some(Phase::Loading { .. }) => Err(NotServed::Loading),
            Some(Phase::Active { incarnation, machine }) => {
                let (response, records) = machine.handle(request);
                Ok(Decided { response, records, incarnation: *incarnation })
            }
        }
    }

    /// Begins a loading; what an older one brings is dropped. Returns its number.
    pub fn begin_loading(&mut self, partition: TopicIdPartition) -> u64 {
        self.next_incarnation += 1;
        let incarnation = self.next_incarnation;
        self.partitions.insert(partition, Phase::Loading { incarnation });
        incarnation
    }

    /// The loading has replayed the whole log into `machine`.
    pub fn loaded(&mut self, partition: TopicIdPartition, incarnation: u64, machine: M) {
        if let Some(phase) = self.partitions.get_mut(&partition)
            && matches!(phase, Phase::Loading { incarnation: current } if *current == incarnation)
        {
            *phase = Phase::Active { incarnation, machine };
        }
    }

    /// The partition is gone, or the log did not take what this loading decided.
    pub fn unload(&mut self, partition: TopicIdPartition, incarnation: Option<u64>) {
        let current = match self.partitions.get(&partition) {
            Some(Phase::Loading { incarnation } | Phase::Active { incarnation, .. }) => *incarnation,
            None => return,
        };
        if incarnation.is_none_or(|failed| failed == current) {
            self.partitions.remove(&partition);
        }
    }
}

/// The batch that holds a machine's records.
pub fn batch_of(records: &[CoordinatorRecord], now: Timestamp) -> Bytes {
    let mut batch = BatchBuilder::new(Offset(0), Compression::None).timestamp(now);
    for (key, value) in records {
        batch.add(&Record { key: Some(key), value: value.as_deref(), timestamp: now, ..Record::default() });
    }
    batch.build()
}

/// Replays one batch into a machine. Control batches hold nothing for it.
///
/// # Errors
/// What could not be read.
pub fn replay_batch<M: Machine>(machine: &mut M, batch: &ValidBatch, limit: usize) -> Result<(), String> {
    if batch.header().is_control() {
        return Ok(());
    }
    let mut reader = batch.reader(limit).map_err(|error| error.to_string())?;
    while let Some(record) = reader.next() {
        let record = record.map_err(|error| error.to_string())?;
        let Some(key) = record.key else { return Err("a record without a key".to_owned()) };
        let value = record.value.map(Bytes::copy_from_slice);
        machine.replay(&Bytes::copy_from_slice(key), value.as_ref())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicId};

    /// Counts what it is told; asks for one record each time.
    #[derive(Debug, Default, PartialEq)]
    struct Counter(u64);

    impl Machine for Counter {
        type Request = u64;
        type Response = u64;

        fn replay(&mut self, _: &Bytes, value: Option<&Bytes>) -> Result<(), String> {
            let bytes = value.ok_or("a tombstone")?.as_ref().try_into().map_err(|_| "not a number")?;
            self.0 = u64::from_be_bytes(bytes);
            Ok(())
        }

        fn handle(&mut self, add: u64) -> (u64, Vec<CoordinatorRecord>) {
            self.0 += add;
            (self.0, vec![(Bytes::from_static(b"sum"), Some(Bytes::copy_from_slice(&self.0.to_be_bytes())))])
        }
    }

    #[test]
    fn a_machine_is_asked_only_after_it_was_loaded() {
        let mut machines = Machines::<Counter>::default();
        assert_eq!(machines.handle(partition(), 1).err(), Some(NotServed::NotLoaded));
        let loading = machines.begin_loading(partition());
        assert_eq!(machines.handle(partition(), 1).err(), Some(NotServed::Loading));
        machines.loaded(partition(), loading, Counter(5));
        assert_eq!(machines.handle(partition(), 1).map(|decided| decided.response).ok(), Some(6));
    }

    #[test]
    fn a_loading_that_was_overtaken_brings_nothing() {
        let mut machines = Machines::<Counter>::default();
        let old = machines.begin_loading(partition());
        let new = machines.begin_loading(partition());
        machines.loaded(partition(), old, Counter(5));
        assert_eq!(machines.handle(partition(), 1).err(), Some(NotServed::Loading));
        machines.loaded(partition(), new, Counter(7));
        machines.unload(partition(), Some(old));
        assert_eq!(machines.handle(partition(), 1).map(|decided| decided.response).ok(), Some(8));
        machines.unload(partition(), Some(new));
        assert_eq!(machines.handle(partition(), 1).err(), Some(NotServed::NotLoaded));
    }

    #[test]
    fn what_a_machine_wrote_makes_the_same_machine_again() {
        let mut machine = Counter::default();
        let (_, first) = machine.handle(3);
        let (_, second) = machine.handle(4);
        let mut again = Counter::default();
        for records in [first, second] {
            let batch = ValidBatch::parse(batch_of(&records, Timestamp(1))).expect("it was just built");
            replay_batch(&mut again, &batch, 1 << 20).expect("its own records can be read");
        }
        assert_eq!(again, machine);
    }

    fn partition() -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) }
    }
}
