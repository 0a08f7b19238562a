//! Retention: the old segments of all partitions of a core go, every `log.retention.check.interval.ms`. One task, one
//! partition at a time, a few segments at a time.
//!
//! Ages that only the disk knows are looked up beside the core.

use std::rc::Rc;
use std::time::Duration;

use tarn_log::{AgeSearch, Ages};
use tarn_record::{Timestamp, TopicIdPartition};
use tarn_runtime::{DiskId, blocking_read, sleep, wall_clock_ms, yield_if_needed};
use tracing::warn;

use crate::cold_reads::disk_of;
use crate::core::Core;
use crate::replica::{Replica, Retained};
use crate::{failing, limits};

/// Looks at every partition at each interval, until the core ends. The first look is not put off for long, so that a
/// node that is started again and again deletes something too.
pub(crate) async fn delete_old_segments(core: Rc<Core>) {
    let interval = Duration::from_millis(core.node().config().storage.retention_check_interval_ms());
    sleep(interval.min(limits::FIRST_RETENTION_CHECK)).await;
    loop {
        let led: Vec<TopicIdPartition> = core.partitions().iter().map(Replica::partition).collect();
        for partition in led {
            check(&core, partition).await;
            yield_if_needed().await;
        }
        sleep(interval).await;
    }
}

/// Drops all that retention lets go of one partition.
async fn check(core: &Rc<Core>, partition: TopicIdPartition) {
    let mut ages = Ages::default();
    loop {
        let now = Timestamp(wall_clock_ms());
        let retained = core.partitions().drop_expired(partition, &ages, now);
        core.remove_files();
        match retained {
            None | Some(Ok(Retained::Done)) => return,
            Some(Ok(Retained::Dropped)) => yield_if_needed().await,
            Some(Ok(Retained::Unread(search))) => {
                let disk = core.partitions().get(partition).map(disk_of);
                let Some(disk) = disk else { return };
                let Some(found) = look_up(partition, disk, search).await else { return };
                ages.extend(found);
            }
            Some(Err(error)) if error.is_full() => {
                warn!(%partition, %error, "old segments stay; they are looked at again later");
                return;
            }
            // What is in the log and what is in its directory are not the same any more.
            Some(Err(error)) => return failing::log_failed(core, partition, &error),
        }
    }
}

async fn look_up(partition: TopicIdPartition, disk: DiskId, search: AgeSearch) -> Option<Ages> {
    let found = blocking_read(disk, move || search.run()).await;
    match found {
        Ok(Ok(found)) if !found.is_empty() => Some(found),
        Ok(Ok(_)) => None,
        // It may have left the log meanwhile.
        Ok(Err(error)) => {
            warn!(%partition, %error, "the age of a segment is not known; it is looked at again later");
            None
        }
        Err(error) => {
            warn!(%partition, %error, "the age of a segment is not known; it is looked at again later");
            None
        }
    }
}
