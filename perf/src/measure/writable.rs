//! When each of many partitions takes its first write.
//!
//! A few connections, each with its share of the topics, write one record to each partition that has not
//! taken one, many partitions in a request, again and again. Writers rest as long as they ask, up to a tenth of a
//! second, so that asking does not become what is measured; the time of a partition is at most one such turn too
//! long.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::batch::{Writer, batch};
use crate::broker_client::BrokerClient;
use crate::broker_client::topics::Place;
use crate::failure::{Doing, Failure, Result};
use crate::many_topics::ManyTopics;

const WRITERS: usize = 4;
/// Partitions in one request.
const AT_ONCE: usize = 250;
/// How long a writer rests at least and at most.
const RESTS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
const VALUE: &[u8] = b"first";

/// What the writers saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstWrites {
    /// From the beginning to each partition's first accepted write, in order.
    pub(crate) after: Vec<Duration>,
    /// The longest time from one question to the next about a partition: how exact the times are.
    pub(crate) turn_max: Duration,
}

/// Connections to a destination that takes no writes yet.
#[derive(Debug)]
pub(crate) struct Writers<'a> {
    topics: &'a ManyTopics,
    shares: Vec<(BrokerClient, Vec<Place>)>,
}

impl<'a> Writers<'a> {
    /// Connects, and makes sure that no partition takes a write.
    pub(crate) fn at(address: &str, topics: &'a ManyTopics) -> Result<Writers<'a>> {
        let share = |number: usize| -> io::Result<(BrokerClient, Vec<Place>)> {
            let mine = topics.places().into_iter().filter(|(topic, _)| topic % WRITERS == number);
            Ok((BrokerClient::connect(address)?, mine.collect()))
        };
        let shares: io::Result<Vec<_>> = (0..WRITERS).map(share).collect();
        let mut shares = shares.doing(|| format!("connecting to {address}"))?;
        let mut refused = 0;
        for (broker, places) in &mut shares {
            let record = batch(Writer::Plain, 1, VALUE);
            for places in places.chunks(AT_ONCE) {
                let answers = broker.produce(topics.names(), places, &record, None);
                let answers = answers.doing(|| format!("writing to {address}"))?;
                refused += answers.iter().filter(|(_, error)| *error != 0).count();
            }
        }
        topics.expect_all(refused, "refuse a write while they are mirrored")?;
        Ok(Writers { topics, shares })
    }

    /// Writes until all partitions have taken a record. `command` is given at once, and its answer awaited.
    pub(crate) fn until_written(
        self,
        limit: Duration,
        command: impl FnOnce() -> Result<()>,
    ) -> Result<FirstWrites> {
        let began = Instant::now();
        let seen = Mutex::new(FirstWrites::default());
        let given_up = AtomicBool::new(false);
        scope(|threads| {
            let writers: Vec<_> = self
                .shares
                .into_iter()
                .map(|share| {
                    let (topics, seen, given_up) = (self.topics, &seen, &given_up);
                    threads.spawn(move || write_to_all(topics, share, began, limit, seen, given_up))
                })
                .collect();
            let commanded = command();
            given_up.store(commanded.is_err(), Ordering::Relaxed);
            let mut written: Vec<Result<()>> = Vec::new();
            for writer in writers {
                let ended = writer.join();
                written.push(ended.unwrap_or_else(|_| Err(Failure::Wrong("a writer died".to_owned()))));
            }
            commanded.and(written.into_iter().collect::<Result<()>>())
        })?;
        let mut seen = seen.into_inner().unwrap_or_default();
        seen.after.sort_unstable();
        self.topics.expect_all(seen.after.len(), "took a write")?;
        Ok(seen)
    }
}

fn write_to_all(
    topics: &ManyTopics,
    (mut broker, mut left): (BrokerClient, Vec<Place>),
    began: Instant,
    limit: Duration,
    seen: &Mutex<FirstWrites>,
    given_up: &AtomicBool,
) -> Result<()> {
    let mut turn = Instant::now();
    loop {
        let asked = Instant::now();
        let record = batch(Writer::Plain, 1, VALUE);
        let (mut refused, mut after, mut why) = (Vec::new(), Vec::new(), 0);
        for places in left.chunks(AT_ONCE) {
            let answers = broker.produce(topics.names(), places, &record, None);
            let answers = answers.doing(|| "writing to the destination".to_owned())?;
            let now = began.elapsed();
            for (place, error) in answers {
                if error == 0 {
                    after.push(now);
                } else {
                    refused.push(place);
                    why = error;
                }
            }
        }
        if let Ok(mut seen) = seen.lock() {
            seen.after.append(&mut after);
            seen.turn_max = seen.turn_max.max(turn.elapsed());
        }
        if refused.is_empty() || given_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        if began.elapsed() > limit {
            let what = format!("{} partitions that take a write; the last error is {why}", refused.len());
            return Err(Failure::Late { what, limit });
        }
        refused.sort_unstable();
        left = refused;
        turn = asked;
        sleep(asked.elapsed().clamp(RESTS.0, RESTS.1));
    }
}
