//! Clients that put a load on a server: producers that keep requests under way, and consumers that read a topic
//! from its first offset and throw away what they get. Each has a connection and a thread of its own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;

use crate::batch::HEADER_BYTES;
use crate::broker_client::pipeline::{Acks, Pipeline};
use crate::broker_client::session::FetchSession;
use crate::broker_client::{BrokerClient, Fields, bad};

/// What clients have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Bytes of whole batches.
    pub(crate) bytes: u64,
    /// Requests that were answered.
    pub(crate) requests: u64,
}

/// Producers that are connected.
#[derive(Debug)]
pub(crate) struct Producers {
    pipelines: Vec<Pipeline>,
    batch_bytes: u64,
}

impl Producers {
    /// So many connections to a topic; each sends the batch to one partition after the other.
    pub(crate) fn connect(
        address: &str,
        topic: (&str, i32),
        connections: usize,
        acks: Acks,
        batch: &[u8],
    ) -> io::Result<Producers> {
        let pipelines =
            (0..connections).map(|number| Pipeline::connect(address, topic, number as i32, acks, batch));
        Ok(Producers { pipelines: pipelines.collect::<io::Result<_>>()?, batch_bytes: batch.len() as u64 })
    }

    /// Sends so many batches in all.
    pub(crate) fn run(self, batches: u64) -> io::Result<Done> {
        let sent = AtomicU64::new(0);
        let more = || sent.fetch_add(1, Ordering::Relaxed) < batches;
        let run = |mut pipeline: Pipeline| pipeline.run(more);
        in_threads(self.pipelines, run)?;
        Ok(Done { bytes: batches * self.batch_bytes, requests: batches })
    }
}

/// How consumers ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetching {
    /// Each request names all partitions.
    Alone,
    /// In sessions.
    InSessions,
}

/// So many consumers; each reads the whole topic, up to these ends.
pub(crate) fn consume(
    address: &str,
    topic: &str,
    ends: &[i64],
    (response_bytes, fetching): (i32, Fetching),
    consumers: usize,
) -> io::Result<Done> {
    let one = |()| read_topic(address, topic, ends, (response_bytes, fetching));
    let read = in_threads(vec![(); consumers], one)?;
    Ok(read.into_iter().fold(Done::default(), |all, one| Done {
        bytes: all.bytes + one.bytes,
        requests: all.requests + one.requests,
    }))
}

/// One of them.
pub(crate) fn read_topic(
    address: &str,
    topic: &str,
    ends: &[i64],
    (response_bytes, fetching): (i32, Fetching),
) -> io::Result<Done> {
    let mut broker = BrokerClient::connect(address)?;
    let mut session = FetchSession::default();
    let mut offsets = vec![0; ends.len()];
    let mut done = Done::default();
    while offsets != ends {
        let asked = offsets.clone();
        let take = |index: usize, _: i64, batches: &[u8]| {
            let offset = offsets.get_mut(index).ok_or_else(|| bad("a partition that was not asked for"))?;
            done.bytes += skip_batches(batches, offset)?;
            Ok(())
        };
        match fetching {
            Fetching::Alone => broker.fetch(topic, &asked, response_bytes, take)?,
            Fetching::InSessions => session.fetch(&mut broker, topic, &asked, response_bytes, take)?,
        }
        done.requests += 1;
    }
    Ok(done)
}

/// The bytes of the whole batches; `end` becomes the offset after them. Their checksums are not looked at.
fn skip_batches(batches: &[u8], end: &mut i64) -> io::Result<u64> {
    let mut at = 0;
    while let Some(header) = batches.get(at..at + HEADER_BYTES) {
        let size = 12 + Fields::new(&header[8..]).number::<4>()?;
        let size = usize::try_from(size).unwrap_or_default().max(HEADER_BYTES);
        if at + size > batches.len() {
            break;
        }
        *end = Fields::new(header).number::<8>()? + Fields::new(&header[23..]).number::<4>()? + 1;
        at += size;
    }
    Ok(at as u64)
}

fn in_threads<T: Send, R: Send>(
    each: Vec<T>,
    work: impl Fn(T) -> io::Result<R> + Copy + Send,
) -> io::Result<Vec<R>> {
    scope(|threads| {
        let running: Vec<_> = each.into_iter().map(|one| threads.spawn(move || work(one))).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|ended| ended.unwrap_or_else(|_| Err(bad("a client died")))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Codec, Shape};

    #[test]
    fn a_consumer_goes_on_after_the_last_whole_batch() {
        let shape = Shape { record_bytes: 10, batch_bytes: 200 };
        let batch = shape.batch(Codec::Lz4).unwrap();
        let two = [batch.clone(), batch.clone()].concat();
        let mut end = 0;
        assert_eq!(skip_batches(&two[..two.len() - 1], &mut end).unwrap(), batch.len() as u64);
        assert_eq!(end, shape.records() as i64);
    }
}
