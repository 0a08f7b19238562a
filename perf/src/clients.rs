//! Clients that put a load on a server: producers that keep requests under way, and consumers that read a topic
//! from its first offset, or stay at its end, and throw away what they get. Each has a connection and a thread of its own.

use std::io;
use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use crate::batch::HEADER_BYTES;
use crate::broker_client::pipeline::{Acks, Pipeline};
use crate::broker_client::session::FetchSession;
use crate::broker_client::{BrokerClient, Fields, bad};

/// A consumer at the end that has got nothing for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// What clients have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Bytes of whole batches.
    pub(crate) bytes: u64,
    /// Requests that were answered.
    pub(crate) requests: u64,
}

impl Sum for Done {
    fn sum<I: Iterator<Item = Done>>(all: I) -> Done {
        all.fold(Done::default(), |all, one| Done {
            bytes: all.bytes + one.bytes,
            requests: all.requests + one.requests,
        })
    }
}

/// Producers that are connected.
#[derive(Debug)]
pub(crate) struct Producers {
    pipelines: Vec<Pipeline>,
    batch_bytes: u64,
}

/// When producers have done enough, all together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Enough {
    /// After so many batches.
    Batches(u64),
    /// After this time nothing more is sent.
    Time(Duration),
}

impl Producers {
    /// So many connections to a topic; each sends the batch to one partition after the other.
    pub(crate) fn connect(
        address: &str,
        (topic, partitions): (&str, usize),
        connections: usize,
        acks: Acks,
        batch: &[u8],
    ) -> io::Result<Producers> {
        let pipelines = (0..connections).map(|number| {
            let mut in_turn: Vec<i32> = (0..partitions as i32).collect();
            in_turn.rotate_left(number % partitions);
            Pipeline::connect(address, (topic, in_turn), acks, batch)
        });
        Ok(Producers { pipelines: pipelines.collect::<io::Result<_>>()?, batch_bytes: batch.len() as u64 })
    }

    /// Sends until it is enough; each connection has so many requests under way.
    pub(crate) fn run(self, under_way: u64, enough: Enough) -> io::Result<Done> {
        let (sent, began) = (AtomicU64::new(0), Instant::now());
        let more = || match enough {
            Enough::Batches(batches) => sent.fetch_add(1, Ordering::Relaxed) < batches,
            Enough::Time(time) => began.elapsed() < time,
        };
        let run = |mut pipeline: Pipeline| pipeline.run(under_way, more);
        let requests = in_threads(self.pipelines, run)?.into_iter().sum();
        Ok(Done { bytes: requests * self.batch_bytes, requests })
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

/// What each consumer does that reads what is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The largest response to ask for, and the same for each partition.
    pub(crate) response_bytes: i32,
    /// How it asks.
    pub(crate) fetching: Fetching,
    /// How often it reads the topic, from its first offset each time.
    pub(crate) times: u64,
}

/// So many consumers; each reads the whole topic, up to these ends.
pub(crate) fn consume(
    address: &str,
    topic: &str,
    ends: &[i64],
    reading: Reading,
    consumers: usize,
) -> io::Result<Done> {
    let one = |()| read_topic(address, topic, ends, reading);
    Ok(in_threads(vec![(); consumers], one)?.into_iter().sum())
}

/// One of them.
pub(crate) fn read_topic(address: &str, topic: &str, ends: &[i64], reading: Reading) -> io::Result<Done> {
    let mut consumer = Consumer::connect(address, (topic, ends.len()), reading)?;
    for _ in 0..reading.times {
        consumer.offsets.fill(0);
        while consumer.offsets != ends {
            consumer.fetch(|_, _| ())?;
        }
    }
    Ok(consumer.done)
}

/// A consumer that stays at the end of a topic from its first offset on, in a session, until it has read so far that
/// it may stop. `arrived` gets the partition and the offset of each batch.
pub(crate) fn follow(
    address: &str,
    topic: (&str, usize),
    response_bytes: i32,
    stop: impl Fn(&[i64]) -> bool,
    mut arrived: impl FnMut(usize, i64),
) -> io::Result<Done> {
    let reading = Reading { response_bytes, fetching: Fetching::InSessions, times: 1 };
    let mut consumer = Consumer::connect(address, topic, reading)?;
    let (mut bytes, mut grew) = (0, Instant::now());
    while !stop(&consumer.offsets) {
        consumer.fetch(&mut arrived)?;
        if consumer.done.bytes > bytes {
            (bytes, grew) = (consumer.done.bytes, Instant::now());
        } else if grew.elapsed() > STUCK_AFTER {
            return Err(bad(&format!("nothing more to read for {STUCK_AFTER:?}")));
        }
    }
    Ok(consumer.done)
}

/// One connection, and how far it has read.
struct Consumer<'a> {
    broker: BrokerClient,
    session: FetchSession,
    topic: &'a str,
    reading: Reading,
    offsets: Vec<i64>,
    done: Done,
}

impl<'a> Consumer<'a> {
    fn connect(address: &str, (topic, partitions): (&'a str, usize), reading: Reading) -> io::Result<Self> {
        let (broker, session) = (BrokerClient::connect(address)?, FetchSession::default());
        let offsets = vec![0; partitions];
        Ok(Consumer { broker, session, topic, reading, offsets, done: Done::default() })
    }

    /// Asks once.
    fn fetch(&mut self, mut arrived: impl FnMut(usize, i64)) -> io::Result<()> {
        let Consumer { broker, session, topic, offsets, done, .. } = self;
        let Reading { response_bytes, fetching, .. } = self.reading;
        let asked = offsets.clone();
        let take = |index: usize, _: i64, batches: &[u8]| {
            let offset = offsets.get_mut(index).ok_or_else(|| bad("a partition that was not asked for"))?;
            done.bytes += skip_batches(batches, offset, |base| arrived(index, base))?;
            Ok(())
        };
        match fetching {
            Fetching::Alone => broker.fetch(topic, &asked, response_bytes, take)?,
            Fetching::InSessions => session.fetch(broker, topic, &asked, response_bytes, take)?,
        }
        done.requests += 1;
        Ok(())
    }
}

/// The bytes of the whole batches; `end` becomes the offset after them. Their checksums are not looked at.
fn skip_batches(batches: &[u8], end: &mut i64, mut each: impl FnMut(i64)) -> io::Result<u64> {
    let mut at = 0;
    while let Some(header) = batches.get(at..at + HEADER_BYTES) {
        let size = 12 + Fields::new(&header[8..]).number::<4>()?;
        let size = usize::try_from(size).unwrap_or_default().max(HEADER_BYTES);
        if at + size > batches.len() {
            break;
        }
        let base = Fields::new(header).number::<8>()?;
        each(base);
        *end = base + Fields::new(&header[23..]).number::<4>()? + 1;
        at += size;
    }
    Ok(at as u64)
}

/// Gives each its own thread; what they did, in their order.
pub(crate) fn in_threads<T: Send, R: Send>(
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
        let (mut end, mut bases) = (0, Vec::new());
        let skipped = skip_batches(&two[..two.len() - 1], &mut end, |base| bases.push(base)).unwrap();
        assert_eq!((skipped, bases), (batch.len() as u64, vec![0]));
        assert_eq!(end, shape.records() as i64);
    }
}
