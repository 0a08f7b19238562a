//! Being asked to stop: SIGTERM and SIGINT as a value.
//!
//! The signals are blocked before the first other thread starts, which then inherits the mask, and one
//! plain thread, usually `main`, waits for them. No code ever runs in a signal handler.

use std::io;
use std::mem::MaybeUninit;

/// Which signal asked the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM, as from a service manager.
    Terminate,
    /// SIGINT, as from a terminal.
    Interrupt,
}

/// The two signals, held back for `wait`.
#[derive(Debug)]
pub struct StopSignals {
    set: libc::sigset_t,
}

impl StopSignals {
    /// Holds back SIGTERM and SIGINT in this thread and all it starts from now on. To be called first
    /// in `main`.
    ///
    /// # Errors
    /// When the kernel refuses the mask.
    pub fn hold_back() -> io::Result<StopSignals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the whole set, before anything reads it.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        // SAFETY: the set is initialised and outlives the calls; a null old mask is allowed.
        let refused = unsafe {
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
        };
        match refused {
            0 => Ok(StopSignals { set }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Blocks this thread until one of the signals arrives. A second one can be waited for again.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn wait(&self) -> io::Result<StopSignal> {
        let mut signal: libc::c_int = 0;
        // SAFETY: both pointers are to live, initialised values.
        match unsafe { libc::sigwait(&self.set, &mut signal) } {
            0 if signal == libc::SIGINT => Ok(StopSignal::Interrupt),
            0 => Ok(StopSignal::Terminate),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_back_signal_is_waited_for_and_not_fatal() {
        std::thread::spawn(|| {
            let signals = StopSignals::hold_back().unwrap();
            for (signal, seen) in
                [(libc::SIGTERM, StopSignal::Terminate), (libc::SIGINT, StopSignal::Interrupt)]
            {
                // SAFETY: raises a signal that this very thread has blocked.
                assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), signal) }, 0);
                assert_eq!(signals.wait().unwrap(), seen);
            }
        })
        .join()
        .unwrap();
    }
}
