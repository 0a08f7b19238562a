//! Can io_uring run here?
//!
//! Asked before the first core starts, so that a refusal is one line that names cause and remedy
//! instead of a panic in the executor (W9). Containers are where it happens: Docker's default seccomp
//! profile blocks the call.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use thiserror::Error;

/// io_uring cannot be used, and why.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// Switched off by the administrator of the machine.
    #[error(
        "io_uring is switched off (kernel.io_uring_disabled = {level}): set it to 0 with \
         `sysctl kernel.io_uring_disabled=0`"
    )]
    SwitchedOff {
        /// 1: allowed for the group `kernel.io_uring_group` and the privileged; 2: for nobody.
        level: i32,
    },
    /// The call is filtered, as by a container's seccomp profile or a security module.
    #[error(
        "io_uring is not permitted, as in a container whose seccomp profile blocks it: run it with \
         `--security-opt seccomp=unconfined`, or a profile that allows io_uring_setup, io_uring_enter and \
         io_uring_register"
    )]
    NotPermitted,
    /// The kernel has no io_uring.
    #[error(
        "this kernel has no io_uring (needed: Linux 5.11 or newer, built with CONFIG_IO_URING), or a seccomp \
         profile hides it: use a newer kernel, or allow io_uring_setup in the container's profile"
    )]
    Missing,
    /// The kernel's io_uring lacks what the executor needs.
    #[error("this kernel's io_uring is too old (features {features:#x}): use Linux 5.11 or newer")]
    TooOld {
        /// The feature bits the kernel reports.
        features: u32,
    },
    /// Locked memory is used up.
    #[error(
        "no locked memory is left for io_uring: raise the limit (`ulimit -l`, LimitMEMLOCK=) to 8 MiB or more"
    )]
    LockedMemory,
    /// Descriptors are used up.
    #[error("no descriptor is left for io_uring: raise the limit (`ulimit -n`, LimitNOFILE=)")]
    Descriptors,
    /// Anything else.
    #[error("io_uring cannot be set up: {0}")]
    Refused(io::Error),
}

/// Checks that rings can be set up in this process.
///
/// # Errors
/// The cause and its remedy.
pub fn check() -> Result<(), ProbeError> {
    let features = match set_up_and_close() {
        Ok(features) => features,
        Err(error) => return Err(cause(error, disabled_level())),
    };
    match features & NEEDED_FEATURES == NEEDED_FEATURES {
        true => Ok(()),
        false => Err(ProbeError::TooOld { features }),
    }
}

/// NODROP, and EXT_ARG, which came with Linux 5.11.
const NEEDED_FEATURES: u32 = (1 << 1) | (1 << 8);

/// The kernel's `struct io_uring_params`: 120 bytes, of which only the features are looked at.
#[repr(C)]
#[derive(Default)]
struct Params {
    before: [u32; 5],
    features: u32,
    after: [u32; 24],
}

const _: () = assert!(size_of::<Params>() == 120);

fn set_up_and_close() -> io::Result<u32> {
    let mut params = Params::default();
    // SAFETY: the kernel reads and writes the 120 bytes of `params`, which outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, &raw mut params) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and nobody else has it.
    let ring = unsafe { OwnedFd::from_raw_fd(fd) };
    debug_assert!(ring.as_raw_fd() >= 0);
    Ok(params.features)
}

fn disabled_level() -> i32 {
    let level = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    level.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn cause(error: io::Error, disabled_level: i32) -> ProbeError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if disabled_level > 0 => {
            ProbeError::SwitchedOff { level: disabled_level }
        }
        Some(libc::EPERM | libc::EACCES) => ProbeError::NotPermitted,
        Some(libc::ENOSYS) => ProbeError::Missing,
        Some(libc::ENOMEM) => ProbeError::LockedMemory,
        Some(libc::EMFILE | libc::ENFILE) => ProbeError::Descriptors,
        _ => ProbeError::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_can_be_set_up_where_these_tests_run() {
        check().unwrap();
    }

    #[test]
    fn each_refusal_names_its_own_remedy() {
        let said = |code, level| cause(io::Error::from_raw_os_error(code), level).to_string();
        assert!(said(libc::EPERM, 2).contains("kernel.io_uring_disabled = 2"));
        assert!(said(libc::EPERM, 0).contains("seccomp"));
        assert!(said(libc::ENOSYS, 0).contains("5.11"));
        assert!(said(libc::ENOMEM, 0).contains("ulimit -l"));
        assert!(said(libc::EMFILE, 0).contains("ulimit -n"));
        assert!(said(libc::EINVAL, 0).contains("Invalid argument"));
    }
}
