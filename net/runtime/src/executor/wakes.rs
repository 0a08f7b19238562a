//! Tasks of a core that other threads have woken.
//!
//! A thread that wakes a task of a core puts it into the core's tray. Only where the core sleeps, a system call wakes it.
//!
//! Invariants:
//! * a core that is about to sleep and a thread that wakes it see each other: the core says that it sleeps before it looks
//!   into the tray for the last time, the thread fills the tray before it looks whether the core sleeps;
//! * a task is not dropped on a thread that is not its own: what comes after the core's end is leaked.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_task::Runnable;

use crate::queues::Queue;

/// See the module.
#[derive(Debug)]
pub(super) struct Wakes {
    tray: Mutex<Tray>,
    is_filled: AtomicBool,
    sleeps: AtomicBool,
    event: OwnedFd,
}

#[derive(Debug, Default)]
struct Tray {
    woken: Vec<(Queue, Runnable)>,
    is_closed: bool,
}

impl Wakes {
    /// Of a core that is awake.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub(super) fn new() -> io::Result<Wakes> {
        // SAFETY: takes numbers only.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just returned this descriptor, and nobody else has it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        let (is_filled, sleeps) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Wakes { tray: Mutex::default(), is_filled, sleeps, event })
    }

    /// What becomes readable with each call that wakes the core.
    pub(super) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Another thread has woken a task.
    pub(super) fn wake(&self, queue: Queue, task: Runnable) {
        let mut tray = self.tray();
        if tray.is_closed {
            return std::mem::forget(task);
        }
        tray.woken.push((queue, task));
        drop(tray);
        self.is_filled.store(true, Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // Its count is never read, and no machine lives to see it overflow.
            rustix::io::write(&self.event, &1u64.to_ne_bytes()).ok();
        }
    }

    /// Moves what is in the tray to `woken`.
    pub(super) fn take(&self, woken: &mut Vec<(Queue, Runnable)>) {
        if self.is_filled.load(Ordering::SeqCst) {
            self.is_filled.store(false, Ordering::SeqCst);
            woken.append(&mut self.tray().woken);
        }
    }

    /// True where the core may sleep: whoever wakes it from now on makes the system call.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        let may = !self.is_filled.load(Ordering::SeqCst);
        if !may {
            self.awake();
        }
        may
    }

    /// The core is awake.
    pub(super) fn awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// The core has ended. What was woken last.
    pub(super) fn close(&self) -> Vec<(Queue, Runnable)> {
        let mut tray = self.tray();
        tray.is_closed = true;
        std::mem::take(&mut tray.woken)
    }

    /// Nothing panics while it is held.
    fn tray(&self) -> MutexGuard<'_, Tray> {
        self.tray.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
