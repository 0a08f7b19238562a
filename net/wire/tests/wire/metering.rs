//! Counts the memory that one thread takes, here and in the fuzzer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

struct Metered;

#[global_allocator]
static ALLOCATOR: Metered = Metered;

/// What work takes that is metered: more is refused, which ends the process where nobody expects a refusal.
const REFUSED_FROM_BYTES: isize = 1 << 29;

thread_local! {
    static METERED: Cell<bool> = const { Cell::new(false) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The memory that some work took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// How many bytes it had at its worst moment.
    pub(crate) peak: usize,
    /// The most that it asked for at once.
    pub(crate) largest: usize,
}

/// Runs `work` and says what it took.
pub(crate) fn taken_by<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    LIVE.set(0);
    PEAK.set(0);
    LARGEST.set(0);
    METERED.set(true);
    let done = work();
    METERED.set(false);
    (done, Taken { peak: usize::try_from(PEAK.get()).unwrap_or(0), largest: LARGEST.get() })
}

/// Counts what is about to be taken; false where it is refused.
fn take(size: usize) -> bool {
    // Where the thread is going away there is nothing left to count for.
    let Ok(before) = LIVE.try_with(Cell::get) else { return true };
    let live = before.saturating_add_unsigned(size);
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live)));
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
    let is_refused = live >= REFUSED_FROM_BYTES && METERED.try_with(Cell::get) == Ok(true);
    let _ = LIVE.try_with(|counted| counted.set(if is_refused { before } else { live }));
    !is_refused
}

fn give_back(size: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub_unsigned(size)));
}

// SAFETY: every call goes to the system's allocator with the arguments it came with, or gets the null that says that
// there is no memory; counting touches only thread-local cells that need no allocation.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new may exist side by side.
        if !take(size) {
            return ptr::null_mut();
        }
        give_back(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
