//! The measurements, one file for each.

pub(crate) mod consume;
mod delivered;
pub(crate) mod failover;
mod failover_report;
pub(crate) mod flush;
pub(crate) mod lag;
pub(crate) mod latency;
pub(crate) mod mirror;
mod mirror_report;
mod mirrored;
pub(crate) mod partitions;
mod partitions_report;
pub(crate) mod produce;
pub(crate) mod restart;
mod restart_report;
mod served;
mod side_by_side;
pub(crate) mod tail;

use std::fs;
use std::path::Path;

use crate::failure::{Doing, Result};

/// Gives `work` a new directory that is removed afterwards, and its dirty pages with it, so that nothing
/// is left that the next run would pay for.
fn in_new_directory<T>(path: &Path, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    fs::create_dir_all(path).doing(|| format!("making {}", path.display()))?;
    let done = work(path);
    if done.is_ok() {
        fs::remove_dir_all(path).doing(|| format!("removing {}", path.display()))?;
        rustix::fs::sync();
    }
    done
}
