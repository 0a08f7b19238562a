//! Many small topics, for measurements of what each partition costs: a few records in each partition, and in
//! some a transaction that nobody ends.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::batch::{Writer, batch};
use crate::broker_client::topics::Place;
use crate::broker_client::{BrokerClient, bad};
use crate::failure::{Doing, Failure, Result};
use crate::program::until;

/// A pattern that the name of each matches.
pub(crate) const PATTERN: &str = "many-.*";

/// Records of a batch.
pub(crate) const RECORDS: u8 = 3;
/// The value of each.
pub(crate) const VALUE: &[u8] = &[b'v'; 100];
/// One partition of so many has an open transaction.
const OPEN_IN_ONE_OF: usize = 10;
/// Topics that are created by one request.
const TOPICS_AT_ONCE: usize = 50;
/// Partitions that are written by one request.
const PARTITIONS_AT_ONCE: usize = 500;
/// How long partitions that were created may take to be led, after a kill with all their logs to scan.
const LED_IN: Duration = Duration::from_secs(300);

/// Topics of a source.
#[derive(Clone, Debug)]
pub(crate) struct ManyTopics {
    names: Vec<String>,
    partitions: i32,
}

/// The end of each partition by its topic and index.
pub(crate) type Ends = BTreeMap<(String, i32), Option<i64>>;

impl ManyTopics {
    /// So many topics with so many partitions each.
    pub(crate) fn new(topics: u16, partitions: u16) -> ManyTopics {
        let names = (0..topics).map(|number| format!("many-{number:05}")).collect();
        ManyTopics { names, partitions: i32::from(partitions) }
    }

    /// Their names.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// How many topics they are.
    pub(crate) fn topics(&self) -> usize {
        self.names.len()
    }

    /// All their partitions, those of a topic together.
    pub(crate) fn places(&self) -> Vec<Place> {
        (0..self.names.len())
            .flat_map(|topic| (0..self.partitions).map(move |partition| (topic, partition)))
            .collect()
    }

    /// The first half of them, and the others.
    pub(crate) fn halves(&self) -> (ManyTopics, ManyTopics) {
        let (first, second) = self.names.split_at(self.names.len() / 2);
        let of = |names: &[String]| ManyTopics { names: names.to_vec(), partitions: self.partitions };
        (of(first), of(second))
    }

    /// Creates and fills them.
    pub(crate) fn create(&self, address: &str) -> Result<()> {
        self.create_empty(address)?;
        self.fill(address).doing(|| format!("filling {} topics at {address}", self.topics()))
    }

    /// Creates them, and waits until they are led.
    pub(crate) fn create_empty(&self, address: &str) -> Result<()> {
        let create = || -> io::Result<()> {
            let mut broker = BrokerClient::connect(address)?;
            for names in self.names.chunks(TOPICS_AT_ONCE) {
                broker.create_topics(names, self.partitions, &[])?;
            }
            Ok(())
        };
        create().doing(|| format!("creating {} topics at {address}", self.topics()))?;
        self.ends(address).map(|_| ())
    }

    /// Where all partitions end, once all of them are led.
    pub(crate) fn ends(&self, address: &str) -> Result<Ends> {
        until(&format!("all partitions led at {address}"), LED_IN, || {
            // A broker that has just started may refuse at first.
            let ends = self.ends_now(address).unwrap_or_default();
            let led = ends.len() == self.places().len() && ends.values().all(Option::is_some);
            Ok(led.then_some(ends))
        })
    }

    /// Where the partitions end now.
    pub(crate) fn ends_now(&self, address: &str) -> io::Result<Ends> {
        let ends = BrokerClient::connect(address)?.ends_of(&self.names, self.partitions)?;
        Ok(ends.into_iter().map(|(name, partition, end)| ((name, partition), end)).collect())
    }

    fn fill(&self, address: &str) -> io::Result<()> {
        let mut broker = BrokerClient::connect(address)?;
        let places = self.places();
        let some: Vec<Place> = places.iter().copied().step_by(OPEN_IN_ONE_OF).collect();
        let plain = batch(Writer::Plain, RECORDS, VALUE);
        let open = batch(Writer::Transaction(broker.producer_id()?), RECORDS, VALUE);
        for (places, batch, id) in [(&places, plain, None), (&some, open, Some("perf"))] {
            for places in places.chunks(PARTITIONS_AT_ONCE) {
                let answers = broker.produce(&self.names, places, &batch, id)?;
                if let Some((place, error)) = answers.iter().find(|(_, error)| *error != 0) {
                    return Err(bad(&format!("partition {place:?} did not take a batch: error {error}")));
                }
            }
        }
        Ok(())
    }

    /// Fails where not all partitions were answered for.
    pub(crate) fn expect_all(&self, found: usize, what: &str) -> Result<()> {
        let all = self.places().len();
        if found == all {
            return Ok(());
        }
        Err(Failure::Wrong(format!("{found} of {all} partitions {what}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_of_a_topic_stand_together() {
        let topics = ManyTopics::new(2, 2);
        assert_eq!(topics.places(), [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(topics.names(), ["many-00000", "many-00001"]);
        assert!(topics.expect_all(4, "answered").is_ok());
        assert!(topics.expect_all(3, "answered").is_err());
    }
}
