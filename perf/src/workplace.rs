//! The directory that a measurement writes to.
//!
//! Servers that find the files of an earlier one go on with its topics, so each measurement begins with an empty
//! directory. What a measurement left that was killed is removed by the next; one that is under way is not disturbed.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::failure::{Doing, Failure, Result};

/// All that is ever removed of a directory that somebody names is what has this name.
const NAME: &str = "run";

/// Held until the process ends, however it does.
static LOCK: OnceLock<File> = OnceLock::new();

/// An empty directory in `work` for this process.
///
/// # Errors
/// Where another measurement has it; or the system's refusal.
pub(crate) fn take(work: &Path) -> Result<PathBuf> {
    let (directory, lock) = take_locked(work)?;
    // A process makes one measurement.
    let _ = LOCK.set(lock);
    Ok(directory)
}

fn take_locked(work: &Path) -> Result<(PathBuf, File)> {
    let (directory, path) = (work.join(NAME), work.join(NAME).with_extension("lock"));
    fs::create_dir_all(work).doing(|| format!("making {}", work.display()))?;
    let lock = File::create(&path).doing(|| format!("making {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let text =
                format!("another measurement is under way in {}; name another --work", directory.display());
            return Err(Failure::Wrong(text));
        }
        Err(TryLockError::Error(source)) => {
            return Err(Failure::Io { doing: format!("locking {}", path.display()), source });
        }
    }
    if directory.exists() {
        fs::remove_dir_all(&directory).doing(|| format!("removing {}", directory.display()))?;
    }
    fs::create_dir(&directory).doing(|| format!("making {}", directory.display()))?;
    Ok((directory, lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_measurement_left_is_removed_and_nothing_else() {
        let work = std::env::temp_dir().join(format!("tarn-perf-workplace-{}", std::process::id()));
        let (directory, lock) = take_locked(&work).unwrap();
        fs::create_dir(directory.join("tarn")).unwrap();
        fs::write(work.join("notes"), "mine").unwrap();
        let refused = take_locked(&work).unwrap_err().to_string();
        assert!(refused.contains("under way") && directory.join("tarn").exists(), "{refused}");
        drop(lock);
        let (again, _lock) = take_locked(&work).unwrap();
        assert_eq!((again == directory, fs::read_dir(&again).unwrap().count()), (true, 0));
        assert!(work.join("notes").exists());
        fs::remove_dir_all(&work).unwrap();
    }
}
