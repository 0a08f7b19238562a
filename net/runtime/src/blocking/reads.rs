//! The threads of one core that read what is on its disks.
//!
//! A disk may hang. So each disk has a thread of its own while it has anything to read, and only what it reads beside
//! that shares a few threads with the other disks: those that hang hold up themselves. Threads are started as they are
//! needed, on any CPU of the process, and stay.
//!
//! Invariants:
//! * the reads of a disk begin in the order in which they were given;
//! * of `n` disks that have something to read each has a read under way, as long as `n` is at most `READ_DISKS_MAX`;
//! * there are at most `READ_DISKS_MAX + READ_THREADS_SHARED` threads, and at most `READS_WAITING_MAX` reads of one disk
//!   wait.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::limits::{READ_DISKS_MAX, READ_THREADS_SHARED, READS_WAITING_MAX};
use crate::machine;

/// What can hang by itself: a log directory, by whatever number its reader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub usize);

pub(super) type Read = Box<dyn FnOnce() + Send>;

/// See the module.
pub(super) struct ReadThreads(Arc<Shared>);

struct Shared {
    core: String,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// Those that have something to read.
    disks: HashMap<DiskId, Disk>,
    /// Those of which a read waits; the next comes first.
    turns: VecDeque<DiskId>,
    /// The reads under way beside the first of each disk.
    sharing: usize,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    /// There is a thread that was started and has not looked for a read yet.
    is_starting: bool,
    is_over: bool,
}

#[derive(Default)]
struct Disk {
    waiting: VecDeque<Read>,
    under_way: usize,
}

impl ReadThreads {
    pub(super) fn new(core: &str) -> ReadThreads {
        let (core, state, news) = (core.to_owned(), Mutex::default(), Condvar::new());
        ReadThreads(Arc::new(Shared { core, state, news }))
    }

    /// Has `read` run; it must not unwind.
    ///
    /// # Errors
    /// Where too many wait for the disk already, or there is no thread.
    pub(super) fn run(&self, disk: DiskId, read: Read) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.threads.is_empty() {
            self.0.start_thread(&mut state)?;
        }
        state.push(disk, read)?;
        self.0.see_to(&mut state);
        Ok(())
    }

    /// How many reads are under way or wait.
    pub(super) fn given(&self) -> usize {
        self.0.lock().disks.values().map(|disk| disk.under_way + disk.waiting.len()).sum()
    }

    /// Ends the threads after the reads that were given to them.
    pub(super) fn finish(self) {
        self.0.lock().is_over = true;
        self.0.news.notify_all();
        loop {
            let Some(thread) = self.0.lock().threads.pop() else { return };
            // Reads do not unwind, so neither does the thread.
            thread.join().ok();
        }
    }
}

impl Shared {
    /// Finds a thread for the next read that may begin. A thread that has one looks again, so none is passed over.
    fn see_to(self: &Arc<Shared>, state: &mut State) {
        if state.next().is_none() || state.is_starting {
            return;
        }
        if state.idle > 0 {
            self.news.notify_one();
        } else if state.threads.len() < READ_DISKS_MAX + READ_THREADS_SHARED {
            // Where the system has none, the next that is free takes it.
            self.start_thread(state).ok();
        }
    }

    fn start_thread(self: &Arc<Shared>, state: &mut State) -> io::Result<()> {
        let shared = self.clone();
        let thread = thread::Builder::new().name(format!("{}-read", self.core));
        state.threads.push(thread.spawn(move || shared.work())?);
        state.is_starting = true;
        Ok(())
    }

    fn work(self: Arc<Shared>) {
        machine::unpin_this_thread();
        let mut state = self.lock();
        state.is_starting = false;
        loop {
            if let Some((disk, read)) = state.take() {
                self.see_to(&mut state);
                drop(state);
                read();
                state = self.lock();
                state.ended(disk);
            } else if state.is_over {
                return;
            } else {
                state.idle += 1;
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    /// Nothing panics while it is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, id: DiskId, read: Read) -> io::Result<()> {
        let disk = self.disks.entry(id).or_default();
        match disk.waiting.len() {
            0 => self.turns.push_back(id),
            READS_WAITING_MAX.. => return Err(io::Error::other("too many reads wait for the disk")),
            _ => {}
        }
        disk.waiting.push_back(read);
        Ok(())
    }

    /// The place in `turns` of the next disk of which a read may begin.
    fn next(&self) -> Option<usize> {
        let may_share = self.sharing < READ_THREADS_SHARED;
        self.turns
            .iter()
            .position(|id| may_share || self.disks.get(id).is_some_and(|disk| disk.under_way == 0))
    }

    fn take(&mut self) -> Option<(DiskId, Read)> {
        let id = self.turns.remove(self.next()?)?;
        let disk = self.disks.get_mut(&id)?;
        let read = disk.waiting.pop_front()?;
        if !disk.waiting.is_empty() {
            self.turns.push_back(id);
        }
        self.sharing += usize::from(disk.under_way > 0);
        disk.under_way += 1;
        Some((id, read))
    }

    fn ended(&mut self, id: DiskId) {
        let Some(disk) = self.disks.get_mut(&id) else { return };
        disk.under_way -= 1;
        self.sharing -= usize::from(disk.under_way > 0);
        if disk.under_way == 0 && disk.waiting.is_empty() {
            self.disks.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::{BlockingError, Queue, blocking_read, spawn, yield_now};
    use futures_lite::future::poll_once;
    use std::sync::mpsc;

    const DISK: DiskId = DiskId(0);

    #[test]
    fn a_read_that_hangs_does_not_hold_up_the_next() {
        run_on_core(|| async {
            let (release, held) = mpsc::channel::<()>();
            let slow = spawn(Queue::Background, blocking_read(DISK, move || held.recv()));
            yield_now().await;
            for number in 0..10 {
                assert_eq!(blocking_read(DISK, move || number).await.unwrap(), number);
            }
            release.send(()).unwrap();
            slow.await.unwrap().unwrap();
        });
    }

    #[test]
    fn disks_that_hang_hold_up_themselves_alone() {
        run_on_core(|| async {
            let mut hanging = Vec::new();
            for disk in 1..READ_DISKS_MAX {
                // More than all threads together.
                for _ in 0..READ_DISKS_MAX + READ_THREADS_SHARED {
                    hanging.push(hang(DiskId(disk)).await);
                }
            }
            for number in 0..10 {
                assert_eq!(blocking_read(DISK, move || number).await.unwrap(), number);
            }
            drop(hanging);
        });
    }

    #[test]
    fn a_disk_gets_no_more_threads_than_its_own_and_those_that_all_share() {
        let threads = ReadThreads::new("core");
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, begins) = mpsc::channel();
        for number in 0..100 {
            let (begun, held) = (begun.clone(), held.clone());
            let read = move || {
                begun.send(number).unwrap();
                // Nobody sends: it fails when the sender has gone.
                held.lock().unwrap().recv().ok();
            };
            threads.run(DISK, Box::new(read)).unwrap();
        }
        let mut first: Vec<u32> = begins.iter().take(1 + READ_THREADS_SHARED).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3], "in their order");
        assert_eq!(threads.0.lock().threads.len(), 1 + READ_THREADS_SHARED);
        drop((release, begun));
        threads.finish();
        assert_eq!(begins.iter().count(), 100 - first.len(), "the others too, at the end");
    }

    #[test]
    fn a_disk_that_hangs_holds_its_reads_though_nobody_waits_for_them_any_more() {
        run_on_core(|| async {
            let releases: Vec<_> = (0..2 * READ_THREADS_SHARED).map(|_| mpsc::channel::<()>()).collect();
            let (releases, held): (Vec<_>, Vec<_>) = releases.into_iter().unzip();
            for held in held {
                let mut given_up = Box::pin(blocking_read(DISK, move || held.recv()));
                assert!(poll_once(&mut given_up).await.is_none());
            }
            for number in 0..10 {
                assert_eq!(blocking_read(DiskId(1), move || number).await.unwrap(), number);
            }
            drop(releases);
        });
    }

    #[test]
    fn more_reads_than_may_wait_for_a_disk_are_refused_and_those_of_another_are_not() {
        run_on_core(|| async {
            let mut hanging = Vec::new();
            for _ in 0..=READ_THREADS_SHARED {
                hanging.push(hang(DISK).await);
            }
            let mut waiting = Vec::new();
            let refused = loop {
                let mut read = Box::pin(blocking_read(DISK, || ()));
                match poll_once(&mut read).await {
                    None => waiting.push(read),
                    Some(refused) => break refused,
                }
            };
            assert!(matches!(refused, Err(BlockingError::NotRun(_))));
            // Some of the first may not have begun yet.
            assert!((READS_WAITING_MAX - hanging.len()..=READS_WAITING_MAX).contains(&waiting.len()));
            assert_eq!(blocking_read(DiskId(1), || 7).await.unwrap(), 7);
            drop(hanging);
        });
    }

    #[test]
    fn nothing_is_kept_of_a_disk_that_has_nothing_to_read() {
        let mut state = State::default();
        for disk in [0, 0, 1] {
            state.push(DiskId(disk), Box::new(|| ())).unwrap();
        }
        let begun: Vec<_> = std::iter::from_fn(|| state.take()).map(|(disk, _)| disk.0).collect();
        assert_eq!((begun, state.sharing), (vec![0, 1, 0], 1), "they take turns");
        [0, 1, 0].into_iter().for_each(|disk| state.ended(DiskId(disk)));
        assert!(state.disks.is_empty() && state.turns.is_empty() && state.sharing == 0);
    }

    /// A read that hangs until what is returned is dropped.
    async fn hang(disk: DiskId) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel::<()>();
        spawn(Queue::Background, blocking_read(disk, move || held.recv())).detach();
        yield_now().await;
        release
    }
}
