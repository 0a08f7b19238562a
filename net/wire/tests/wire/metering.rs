//! Counts the memory that one thread takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Metered;

#[global_allocator]
static ALLOCATOR: Metered = Metered;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Runs `work` and says how many bytes it had taken at its worst moment.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    LIVE.set(0);
    PEAK.set(0);
    let done = work();
    (done, usize::try_from(PEAK.get()).unwrap_or(0))
}

fn count(bytes: isize) {
    // Where the thread is going away there is nothing left to count for.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call goes to the system's allocator with the arguments it came with; counting touches only
// thread-local cells that need no allocation.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new may exist side by side.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
