//! The ring of one core: what it waits for, and its one way into the kernel.
//!
//! Readiness of descriptors is all that goes through it; what is armed is handed over with the next call that the core
//! makes anyway. Owned by the core's thread.
//!
//! Invariants:
//! * the kernel answers everything that was armed once: the place of a wait is free again only after that;
//! * a waker is called outside the borrow of the ring: it may arm or drop another wait.

use std::io;
use std::os::fd::RawFd;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use crate::limits;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// That something can be read.
    Read,
    /// That something can be written.
    Write,
}

/// The place of a wait.
pub(super) type Place = usize;

/// How a core goes into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enter {
    /// It has work to do.
    Briefly,
    /// It sleeps until something happens, or for so long.
    ToSleep(Option<Duration>),
}

/// What the kernel's answers are about, where they are about no wait.
const EVENT: u64 = u64::MAX;
const CANCELLED: u64 = u64::MAX - 1;

/// See the module.
pub(super) struct Ring {
    ring: IoUring,
    waits: Vec<Wait>,
    free: Vec<Place>,
    /// Kernels before 5.19 do not tell whether they have something to tell.
    tells: bool,
    event: RawFd,
}

#[derive(Debug)]
enum Wait {
    Free,
    Armed(Waker),
    /// Who waited has gone, and the kernel has not answered yet.
    Left,
    Answered(i32),
}

impl Ring {
    /// A ring that is woken by `event` becoming readable again.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(super) fn new(event: RawFd) -> io::Result<Ring> {
        let (ring, tells) = build()?;
        let mut ring = Ring { ring, waits: Vec::new(), free: Vec::new(), tells, event };
        ring.arm_event()?;
        Ok(ring)
    }

    /// Begins a wait.
    ///
    /// # Errors
    /// Where the kernel does not take it.
    pub(super) fn arm(&mut self, fd: RawFd, interest: Interest, waker: &Waker) -> io::Result<Place> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.waits.push(Wait::Free);
            self.waits.len() - 1
        });
        let mask = match interest {
            Interest::Read => libc::POLLIN,
            Interest::Write => libc::POLLOUT,
        };
        let entry = opcode::PollAdd::new(Fd(fd), mask as u32).build().user_data(place as u64);
        if let Err(error) = self.push(&entry) {
            self.free.push(place);
            return Err(error);
        }
        self.waits[place] = Wait::Armed(waker.clone());
        Ok(place)
    }

    /// Whether a wait is over; else the waker of `context` is the one that is called. The place of one that is over is
    /// not to be asked about again.
    pub(super) fn poll(&mut self, place: Place, context: &Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.waits[place] {
            Wait::Armed(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            Wait::Answered(answer) => {
                let answer = *answer;
                self.give_back(place);
                Poll::Ready(if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(()) })
            }
            Wait::Free | Wait::Left => unreachable!("nobody has this place"),
        }
    }

    /// Ends a wait. Returns its waker, to be dropped outside the borrow.
    pub(super) fn leave(&mut self, place: Place) -> Option<Waker> {
        match std::mem::replace(&mut self.waits[place], Wait::Left) {
            Wait::Armed(waker) => {
                let entry = opcode::PollRemove::new(place as u64).build().user_data(CANCELLED);
                // Where the kernel does not take it, the place stays taken until the descriptor is ready.
                self.push(&entry).ok();
                Some(waker)
            }
            _ => {
                self.give_back(place);
                None
            }
        }
    }

    /// Goes into the kernel, where there is a reason to.
    ///
    /// # Errors
    /// Where the ring is broken.
    pub(super) fn enter(&mut self, how: Enter) -> io::Result<()> {
        let entered = match how {
            Enter::Briefly => {
                let (is_empty, has_news) = {
                    let queue = self.ring.submission();
                    (queue.is_empty(), !self.tells || queue.taskrun())
                };
                if is_empty && !has_news {
                    return Ok(());
                }
                self.ring.submit()
            }
            Enter::ToSleep(None) => self.ring.submit_and_wait(1),
            Enter::ToSleep(Some(time)) => {
                let time = Timespec::from(time);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Its time is up; a signal came; it has answers first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes the kernel's answers. `woken` are the wakers to call.
    ///
    /// # Errors
    /// Where the ring is broken.
    pub(super) fn take_answers(&mut self, woken: &mut Vec<Waker>) -> io::Result<()> {
        let mut is_event_over = false;
        let Ring { ring, waits, free, .. } = self;
        for answer in ring.completion() {
            match answer.user_data() {
                EVENT => is_event_over |= !io_uring::cqueue::more(answer.flags()),
                CANCELLED => {}
                place => {
                    let place = place as Place;
                    match std::mem::replace(&mut waits[place], Wait::Answered(answer.result())) {
                        Wait::Armed(waker) => woken.push(waker),
                        _ => {
                            waits[place] = Wait::Free;
                            free.push(place);
                        }
                    }
                }
            }
        }
        if is_event_over { self.arm_event() } else { Ok(()) }
    }

    /// How many places are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.waits.len() - self.free.len()
    }

    fn give_back(&mut self, place: Place) {
        self.waits[place] = Wait::Free;
        self.free.push(place);
    }

    /// Each write to the event is one answer, without another call.
    fn arm_event(&mut self) -> io::Result<()> {
        let entry = opcode::PollAdd::new(Fd(self.event), libc::POLLIN as u32).multi(true).build();
        self.push(&entry.user_data(EVENT))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entry names a descriptor and numbers only, no memory.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }
}

/// The newest kind of ring that this kernel has; true where it tells whether it has news.
fn build() -> io::Result<(IoUring, bool)> {
    let newest = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(limits::RING_ENTRIES);
    if let Ok(ring) = newest {
        return Ok((ring, true));
    }
    let newer = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(limits::RING_ENTRIES);
    match newer {
        Ok(ring) => Ok((ring, true)),
        Err(_) => Ok((IoUring::new(limits::RING_ENTRIES)?, false)),
    }
}
