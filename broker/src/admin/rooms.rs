//! How much room directories have, asked so that a file system that hangs holds up no scrape, and no stop.
//!
//! Invariant: one thread at most asks of one directory; while it hangs nobody asks there again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits;

/// Which directories are being asked.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    asked: BTreeMap<PathBuf, Arc<AtomicBool>>,
}

impl Rooms {
    /// What each directory says that answers in time.
    pub(super) fn of<Ask>(&mut self, dirs: impl IntoIterator<Item = (PathBuf, Ask)>) -> BTreeMap<PathBuf, u64>
    where
        Ask: FnOnce() -> Option<u64> + Send + 'static,
    {
        let (told, answers) = mpsc::channel();
        for (path, ask) in dirs {
            let is_asked = Arc::clone(self.asked.entry(path.clone()).or_default());
            if is_asked.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (told, ended) = (told.clone(), Arc::clone(&is_asked));
            let look = move || {
                let room = ask();
                ended.store(false, Ordering::Release);
                // Where it took too long nobody waits for it any more.
                let _ = told.send((path, room));
            };
            if thread::Builder::new().name("room".to_owned()).spawn(look).is_err() {
                is_asked.store(false, Ordering::Release);
            }
        }
        drop(told);
        let deadline = Instant::now() + limits::ROOM_WAIT;
        let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let answers = std::iter::from_fn(|| answers.recv_timeout(left()).ok());
        answers.filter_map(|(path, room)| Some((path, room?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_runtime::channel::Flag;

    #[test]
    fn a_directory_that_hangs_is_left_out_and_asked_again_once_it_answers() {
        let (mut rooms, answers) = (Rooms::default(), Flag::new());
        let [hangs, good] = ["/hangs", "/good"].map(PathBuf::from);
        let mut look = |answers: &Flag| {
            let waiting = answers.clone();
            let ask_hanging: Box<dyn FnOnce() -> Option<u64> + Send> = Box::new(move || {
                waiting.raised_blocking();
                Some(1)
            });
            rooms.of([(hangs.clone(), ask_hanging), (good.clone(), Box::new(|| Some(2)))])
        };
        assert_eq!(look(&answers), BTreeMap::from([(good.clone(), 2)]));
        let begun = Instant::now();
        assert_eq!(look(&answers), BTreeMap::from([(good.clone(), 2)]));
        assert!(begun.elapsed() < limits::ROOM_WAIT, "nobody waits for it again");
        answers.raise();
        while look(&answers).len() < 2 {
            thread::yield_now();
        }
    }
}
