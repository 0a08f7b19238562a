//! Is a range of a file in the page cache? And bringing it there.
//!
//! `sendfile` and `pread` block the core for milliseconds where the disk has to be read. Asking first
//! costs a microsecond.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether all of the range, which must lie within the file, can be read without waiting for the disk.
/// Asked of `cachestat` (Linux 6.5), before that of `mincore`: neither reads anything, while `preadv2`
/// with `RWF_NOWAIT` begins to, and answers yes where the disk was quick. A file system or a sandbox that
/// does not tell counts as resident.
pub fn resident(file: impl AsFd, position: u64, length: u64) -> bool {
    let file = file.as_fd();
    if length == 0 {
        return true;
    }
    match cached_pages(file, position, length) {
        Some(cached) => cached >= pages(position, length, page_bytes()),
        None => mapped_resident(file, position, length).unwrap_or(true),
    }
}

/// Asks the kernel to read the range into the page cache. Returns before it is there, mostly; may wait
/// where the disk's queue is full.
///
/// # Errors
/// The file's, as on a file system that cannot read ahead.
pub fn readahead(file: impl AsFd, position: u64, length: u64) -> io::Result<()> {
    let offset = i64::try_from(position).map_err(io::Error::other)?;
    let count = usize::try_from(length).map_err(io::Error::other)?;
    // SAFETY: takes a live descriptor and two numbers, and touches no memory of ours.
    match unsafe { libc::readahead(file.as_fd().as_raw_fd(), offset, count) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `cachestat`, Linux 6.5, the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    rest: [u64; 4],
}

/// The pages of the range that are cached; `None` where the kernel does not tell.
fn cached_pages(file: BorrowedFd<'_>, position: u64, length: u64) -> Option<u64> {
    if NO_CACHESTAT.load(Ordering::Relaxed) {
        return None;
    }
    let range = Range { offset: position, length };
    let mut stat = CacheStat::default();
    // SAFETY: the kernel reads `range` and writes the 40 bytes of `stat`, both of which outlive the call.
    let done = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0 as libc::c_uint)
    };
    if done == 0 {
        return Some(stat.cached);
    }
    let error = io::Error::last_os_error().raw_os_error();
    if matches!(error, Some(libc::ENOSYS | libc::EPERM)) {
        NO_CACHESTAT.store(true, Ordering::Relaxed);
    }
    None
}

/// What the kernel counts in: 4 KiB on x86, up to 64 KiB on ARM.
fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn pages(position: u64, length: u64, page: u64) -> u64 {
    let last = position.saturating_add(length - 1);
    last / page - position / page + 1
}

/// What `mincore` says of a mapping that nobody touches. `None` where the range cannot be mapped.
fn mapped_resident(file: BorrowedFd<'_>, position: u64, length: u64) -> Option<bool> {
    let page = page_bytes();
    let begin = position - position % page;
    let count = usize::try_from(pages(position, length, page)).ok()?;
    let bytes = count.checked_mul(usize::try_from(page).ok()?)?;
    let mut cached = vec![0_u8; count];
    // SAFETY: a new mapping at an address of the kernel's choice, which nobody reads and which is gone before
    // this returns; `mincore` writes a byte for each of its pages, as many as `cached` has.
    let told = unsafe {
        let mapping = mmap(ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::SHARED, file, begin).ok()?;
        let told = libc::mincore(mapping, bytes, cached.as_mut_ptr());
        munmap(mapping, bytes).ok()?;
        told
    };
    (told == 0).then(|| cached.iter().all(|page| page & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::run_on_core;
    use crate::{sleep, timeout};
    use rustix::fs::Advice;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::time::Duration;

    const BYTES: u64 = 1 << 20;

    /// A file on disk of which no page is in the cache. Beside the test binary, because `/tmp` may be
    /// memory.
    fn cold_file() -> File {
        let binary = std::env::current_exe().unwrap();
        let mut file = tempfile::tempfile_in(binary.parent().unwrap()).unwrap();
        file.write_all(&vec![7; BYTES as usize]).unwrap();
        file.sync_all().unwrap();
        // The kernel keeps pages that another CPU is just looking at.
        let dropped = (0..1000).any(|_| {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            cached_pages(file.as_fd(), 0, BYTES).is_none_or(|cached| cached == 0)
        });
        assert!(dropped, "the kernel keeps pages of a file that was just synced");
        // One page is one page: no reading ahead of what was asked for.
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        file
    }

    fn read_prefix(file: &mut File, count: usize) {
        file.rewind().unwrap();
        file.read_exact(&mut vec![0; count]).unwrap();
    }

    #[test]
    fn what_was_written_is_resident() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; BYTES as usize]).unwrap();
        assert!(resident(&file, 0, BYTES));
        assert!(resident(&file, 4095, 2));
        assert!(resident(&file, BYTES, 0));
    }

    #[test]
    fn a_range_is_resident_only_where_all_of_it_is() {
        let mut file = cold_file();
        assert!(!resident(&file, 0, BYTES));
        read_prefix(&mut file, 128 << 10);
        assert!(resident(&file, 100, (128 << 10) - 100));
        assert!(!resident(&file, 0, BYTES));
        assert!(!resident(&file, BYTES - 1, 1));
    }

    #[test]
    fn older_kernels_tell_the_same() {
        let mut file = cold_file();
        let ask = |file: &File, position, length| mapped_resident(file.as_fd(), position, length).unwrap();
        assert!(!ask(&file, 0, BYTES));
        read_prefix(&mut file, 128 << 10);
        assert!(ask(&file, 100, (128 << 10) - 100));
        assert!(!ask(&file, 0, BYTES));
        assert!(!ask(&file, BYTES - 1, 1));
    }

    #[test]
    fn what_is_read_ahead_becomes_resident() {
        run_on_core(|| async {
            let file = cold_file();
            readahead(&file, 0, 64 << 10).unwrap();
            let arrives = async {
                while !resident(&file, 0, 64 << 10) {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(Duration::from_secs(10), arrives).await.unwrap();
        });
    }

    #[test]
    fn a_range_touches_every_page_it_begins_or_ends_in() {
        assert_eq!(pages(0, 1, 4096), 1);
        assert_eq!(pages(0, 4096, 4096), 1);
        assert_eq!(pages(4095, 2, 4096), 2);
        assert_eq!(pages(1, 4096, 4096), 2);
        assert_eq!(pages(1, 4096, 65536), 1);
    }
}
