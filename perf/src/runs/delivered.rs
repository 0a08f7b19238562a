//! One open loop against a server: in a topic of its own, and everything that was sent was read.

use super::served::Served;
use crate::failure::{Failure, Result};
use crate::open_loop::{Delivery, Schedule, Seen};
use crate::peers::server::{FlushPolicy, Server};

/// The largest response that consumers ask for.
pub(super) const RESPONSE_BYTES: i32 = 1 << 20;

/// What it cost the server, and what was seen.
pub(super) fn delivered(
    server: &Server,
    delivery: Delivery<'_>,
    schedule: Schedule,
) -> Result<(Served, Seen)> {
    in_new_topic(server, schedule.partitions(), |topic| {
        let (served, seen) = Served::and(server, || {
            let seen = delivery.run(&server.address, topic, schedule)?;
            Ok((seen.read, seen))
        })?;
        let all = schedule.batches() * delivery.batch.len() as u64 * delivery.consumers as u64;
        if seen.read.bytes != all {
            return Err(Failure::Wrong(format!("{} bytes were read of {all}", seen.read.bytes)));
        }
        Ok((served, seen))
    })
}

/// Gives `work` the name of a new topic, which is deleted afterwards.
pub(super) fn in_new_topic<T>(
    server: &Server,
    partitions: usize,
    work: impl FnOnce(&str) -> Result<T>,
) -> Result<T> {
    let topic = format!("delivered-{:08x}", fastrand::u32(..));
    server.create_topic(&topic, partitions, FlushPolicy::None)?;
    let done = work(&topic)?;
    server.delete_topic(&topic)?;
    rustix::fs::sync();
    Ok(done)
}
