//! Whether a mirror holds what its source holds, byte for byte.

use crate::cluster::{Batch, Cluster, Offsets, Partition, Topic};
use crate::waiting::until_some;
use std::time::Duration;

/// What a comparison went through, so that a test can tell that it compared something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Partitions, empty ones included.
    pub partitions: usize,
    /// Batches.
    pub batches: usize,
    /// Records, as the batches count them.
    pub records: i64,
    /// The highest leader epoch in a batch.
    pub newest_epoch: i32,
}

/// Waits until every partition of the source that `wanted` selects has the same offsets on both sides.
///
/// # Panics
/// After `limit`, naming a partition that lags.
pub fn await_mirrored(source: &str, mirror: &str, wanted: impl Fn(&str) -> bool, limit: Duration) {
    let mut connections = None;
    until_some("the mirror to hold what the source holds", limit, || {
        if connections.is_none() {
            connections = Some((Cluster::try_connect(source)?, Cluster::try_connect(mirror)?));
        }
        let (from, to) = connections.as_mut().expect("they were just made");
        let caught_up = all_equal_offsets(from, to, &wanted);
        if caught_up.is_err() {
            // Leaders and addresses may have changed.
            connections = None;
        }
        caught_up
    });
}

/// Compares every topic of the source that `wanted` selects: topic id where the source has one, number of partitions, log start,
/// high watermark, last stable offset, and the bytes of every batch. Both sides must be at rest.
///
/// # Panics
/// At the first difference, saying what it is.
pub fn assert_identical(source: &str, mirror: &str, wanted: impl Fn(&str) -> bool) -> Compared {
    let (mut from, mut to) = (Cluster::connect(source), Cluster::connect(mirror));
    let mirrored = to.topics();
    let mut compared = Compared::default();
    for topic in from.topics().into_iter().filter(|topic| wanted(&topic.name)) {
        let twin = twin_of(&topic, &mirrored).unwrap_or_else(|error| panic!("{error}"));
        match topic.id.is_nil() {
            true => assert!(!twin.id.is_nil(), "{} has no id here", topic.name),
            false => assert_eq!(topic.id, twin.id, "topic id of {}", topic.name),
        }
        assert_eq!(topic.partitions.len(), twin.partitions.len(), "partitions of {}", topic.name);
        for (ours, theirs) in topic.partitions.iter().zip(&twin.partitions) {
            let named = format!("{}-{}", topic.name, ours.index);
            let offsets = from.offsets(&topic, ours);
            assert_eq!(offsets, to.offsets(&twin, theirs), "offsets of {named} (source, mirror)");
            let seen = compare_batches(&mut from, &mut to, (&topic, ours), (&twin, theirs), offsets);
            assert!(
                theirs.leader_epoch >= seen.newest_epoch,
                "{named}: leader epoch {} is below that of a batch, {}",
                theirs.leader_epoch,
                seen.newest_epoch
            );
            compared.partitions += 1;
            compared.batches += seen.batches;
            compared.records += seen.records;
            compared.newest_epoch = compared.newest_epoch.max(seen.newest_epoch);
        }
    }
    compared
}

/// The records of the selected topics that a mirror has so far: the sum of its high watermarks.
pub fn copied_so_far(mirror: &mut Cluster, wanted: impl Fn(&str) -> bool) -> Result<i64, String> {
    let mut sum = 0;
    for topic in mirror.try_topics()?.iter().filter(|topic| wanted(&topic.name)) {
        for partition in &topic.partitions {
            sum += mirror.try_offsets(topic, partition)?.high_watermark;
        }
    }
    Ok(sum)
}

fn all_equal_offsets(
    from: &mut Cluster,
    to: &mut Cluster,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let mirrored = to.try_topics()?;
    for topic in from.try_topics()?.into_iter().filter(|topic| wanted(&topic.name)) {
        let twin = twin_of(&topic, &mirrored)?;
        for partition in &topic.partitions {
            let named = format!("{}-{}", topic.name, partition.index);
            let theirs = twin.partitions.get(partition.index as usize);
            let theirs = theirs.ok_or_else(|| format!("{named} is not there yet"))?;
            let (ours, theirs) = (from.try_offsets(&topic, partition)?, to.try_offsets(&twin, theirs)?);
            if ours != theirs {
                return Err(format!("{named} at the source {ours:?}, here {theirs:?}"));
            }
        }
    }
    Ok(())
}

fn twin_of(topic: &Topic, mirrored: &[Topic]) -> Result<Topic, String> {
    let found = mirrored.iter().find(|mirrored| mirrored.name == topic.name);
    found.cloned().ok_or_else(|| format!("the mirror has no topic {}", topic.name))
}

fn compare_batches(
    from: &mut Cluster,
    to: &mut Cluster,
    ours: (&Topic, &Partition),
    theirs: (&Topic, &Partition),
    offsets: Offsets,
) -> Compared {
    let named = format!("{}-{}", ours.0.name, ours.1.index);
    let mut source = Batches::from(offsets.start, offsets.high_watermark);
    let mut mirror = Batches::from(offsets.start, offsets.high_watermark);
    let mut compared = Compared::default();
    loop {
        let (wanted, found) = (source.next(from, ours, &named), mirror.next(to, theirs, &named));
        match (wanted, found) {
            (None, None) => return compared,
            (Some(wanted), Some(found)) if wanted == found => {
                compared.batches += 1;
                compared.records += i64::from(wanted.record_count());
                compared.newest_epoch = compared.newest_epoch.max(wanted.leader_epoch());
            }
            (wanted, found) => panic!("{named}: the source has {wanted:?}, the mirror {found:?}"),
        }
    }
}

/// The batches of a partition, one after another, fetched many at a time.
struct Batches {
    next_offset: i64,
    end: i64,
    fetched: std::vec::IntoIter<Batch>,
}

impl Batches {
    fn from(next_offset: i64, end: i64) -> Batches {
        Batches { next_offset, end, fetched: Vec::new().into_iter() }
    }

    fn next(&mut self, cluster: &mut Cluster, at: (&Topic, &Partition), named: &str) -> Option<Batch> {
        if self.fetched.len() == 0 && self.next_offset < self.end {
            let batches = cluster
                .try_batches_at(at.0, at.1, self.next_offset)
                .unwrap_or_else(|error| panic!("{named} at offset {}: {error}", self.next_offset));
            assert!(
                !batches.is_empty(),
                "{named}: nothing at offset {}, though the end is {}",
                self.next_offset,
                self.end
            );
            self.fetched = batches.into_iter();
        }
        let batch = self.fetched.next()?;
        assert!(
            batch.next_offset() > self.next_offset,
            "{named}: {batch:?} where offset {} was asked for",
            self.next_offset
        );
        self.next_offset = batch.next_offset();
        Some(batch)
    }
}
