//! Watches records arrive at a destination, by its end offsets as clients see them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::broker_client::BrokerClient;
use crate::failure::{Doing, Failure, Result};

/// How often the destination is asked. Each question costs it a little.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// A copy that has not grown for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// A watch over one destination.
#[derive(Debug)]
pub(crate) struct Arrival {
    broker: BrokerClient,
    address: String,
    topic: String,
    ends: Vec<i64>,
}

impl Arrival {
    /// Watches a topic at the broker at `address` until its partitions end like these.
    pub(crate) fn at(address: &str, topic: &str, ends: Vec<i64>) -> Result<Arrival> {
        let broker = BrokerClient::connect(address).doing(|| format!("connecting to {address}"))?;
        Ok(Arrival { broker, address: address.to_owned(), topic: topic.to_owned(), ends })
    }

    /// Waits for the first records; how many there are. `alive` fails where a program has ended.
    pub(crate) fn first(&mut self, mut alive: impl FnMut() -> Result<()>) -> Result<i64> {
        self.until(&mut alive, |there, _| there > 0)
    }

    /// Waits for the last record.
    pub(crate) fn last(&mut self, mut alive: impl FnMut() -> Result<()>) -> Result<()> {
        self.until(&mut alive, |there, all| there == all).map(|_| ())
    }

    fn until(
        &mut self,
        alive: &mut dyn FnMut() -> Result<()>,
        enough: impl Fn(i64, i64) -> bool,
    ) -> Result<i64> {
        let all = self.ends.iter().sum();
        let (mut seen, mut grew) = (0, Instant::now());
        loop {
            let there = self.there()?;
            if enough(there, all) {
                return Ok(there);
            }
            if there > seen {
                (seen, grew) = (there, Instant::now());
            }
            if grew.elapsed() > STUCK_AFTER {
                let what = format!("more than {seen} of {all} records at {}", self.address);
                return Err(Failure::Late { what, limit: STUCK_AFTER });
            }
            alive()?;
            sleep(ASK_EVERY);
        }
    }

    /// Records that are there.
    fn there(&mut self) -> Result<i64> {
        let found = self.broker.end_offsets(&self.topic, self.ends.len());
        let found = found.doing(|| format!("asking {} for its end offsets", self.address))?;
        let mut there = 0;
        for (index, (found, end)) in found.into_iter().zip(&self.ends).enumerate() {
            let found = found.unwrap_or_default();
            if found > *end {
                return Err(Failure::Wrong(format!(
                    "partition {index} ends at {found}, its source at {end}"
                )));
            }
            there += found;
        }
        Ok(there)
    }
}
