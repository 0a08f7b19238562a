//! The speed of light of appends that are on the disk when they are acknowledged: one thread that writes batches at the
//! end of one file, and calls `fdatasync` after so many of them.
//!
//! As many are written for each `fdatasync` as there are appends under way at a broker. No broker's group commit gets
//! more of them into each flush.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What it did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synced {
    /// Batches that were written and flushed.
    pub(crate) appends: u64,
    /// Calls of `fdatasync`.
    pub(crate) syncs: u64,
    /// How long that took.
    pub(crate) took: Duration,
}

/// Does so for this long in a new file, which is removed.
pub(crate) fn run(path: &Path, batch: &[u8], appends_per_sync: u64, time: Duration) -> io::Result<Synced> {
    let synced = write(path, batch, appends_per_sync, time);
    fs::remove_file(path)?;
    synced
}

fn write(path: &Path, batch: &[u8], appends_per_sync: u64, time: Duration) -> io::Result<Synced> {
    let mut file = File::create(path)?;
    let (mut syncs, began) = (0, Instant::now());
    while began.elapsed() < time {
        for _ in 0..appends_per_sync {
            file.write_all(batch)?;
        }
        file.sync_data()?;
        syncs += 1;
    }
    Ok(Synced { appends: syncs * appends_per_sync, syncs, took: began.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sync_is_of_as_many_appends_as_are_asked_for() {
        let path = std::env::temp_dir().join(format!("tarn-perf-synced-{}", std::process::id()));
        let synced = run(&path, b"batch", 7, Duration::from_millis(1)).unwrap();
        assert!(synced.syncs > 0 && synced.appends == 7 * synced.syncs, "{synced:?}");
        assert!(synced.took >= Duration::from_millis(1) && !path.exists());
    }
}
