//! Waiting for a Tarn that mirrors many topics.

use std::time::{Duration, Instant};

use crate::broker_client::BrokerClient;
use crate::failure::{Doing, Failure, Result};
use crate::many_topics::{Ends, ManyTopics};
use crate::peers::tarn::{MIRROR, Tarn};

/// How long anything that is measured may take: beyond it, the goal is missed by far.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
/// Between two looks, each of which costs the Tarn that is looked at some milliseconds.
const REST: Duration = Duration::from_millis(25);

/// Waits until every partition is MIRRORING and ends where its source does.
pub(super) fn await_copied(topics: &ManyTopics, tarn: &Tarn, ends: &Ends) -> Result<()> {
    await_state(topics, tarn, "MIRRORING")?;
    until("a copy that ends like its source", || {
        let there = topics.ends_now(tarn.bootstrap());
        Ok(there.doing(|| "asking for end offsets".to_owned())? == *ends)
    })
}

/// Waits until every partition is in this state.
pub(super) fn await_state(topics: &ManyTopics, tarn: &Tarn, state: &str) -> Result<()> {
    let mut broker = connect(tarn)?;
    let all = topics.places().len() as i64;
    until(&format!("all partitions {state}"), || {
        let states = broker.mirror_states(MIRROR).doing(|| "asking for the states".to_owned())?;
        Ok(states.get(state) == Some(&all))
    })
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is_so()? {
        if began.elapsed() > LIMIT {
            return Err(Failure::Late { what: what.to_owned(), limit: LIMIT });
        }
        std::thread::sleep(REST);
    }
    Ok(())
}

pub(super) fn connect(tarn: &Tarn) -> Result<BrokerClient> {
    BrokerClient::connect(tarn.bootstrap()).doing(|| format!("connecting to {}", tarn.bootstrap()))
}
