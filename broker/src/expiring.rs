//! Forgetting producers that were idle for too long, in all partitions of a core: one task, one partition at
//! a time.

use std::rc::Rc;

use tarn_record::{Timestamp, TopicIdPartition};
use tarn_runtime::{sleep, wall_clock_ms, yield_if_needed};

use crate::core::Core;
use crate::limits;
use crate::replica::Replica;

/// Looks at every partition each [`limits::PRODUCER_EXPIRY_INTERVAL`], until the core ends.
pub(crate) async fn expire_producers(core: Rc<Core>) {
    loop {
        sleep(limits::PRODUCER_EXPIRY_INTERVAL).await;
        let led: Vec<TopicIdPartition> = core.partitions().iter().map(Replica::partition).collect();
        for partition in led {
            if let Some(replica) = core.partitions().get_mut(partition) {
                replica.expire_producers(Timestamp(wall_clock_ms()));
            }
            yield_if_needed().await;
        }
    }
}
