//! Memory for large frames, used again: a fresh megabyte costs a page fault for every 4 KiB of it.
//!
//! A frame leaves as `Bytes`; what stays here is a handle on the same memory, which can be filled again
//! once all slices of the frame are gone, wherever they went. One set of handles for each core.
//!
//! Invariant: the memory behind the handles is at most [`limits::KEPT_BYTES_MAX`].

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::limits;

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

#[derive(Default)]
struct Kept {
    handles: VecDeque<Handle>,
    bytes: usize,
}

struct Handle {
    buffer: BytesMut,
    /// The size of the memory behind it.
    bytes: usize,
}

/// An empty buffer for a frame of `frame_bytes`: memory that is there already, where some is free; else
/// about a first step, however much is announced.
pub(crate) fn take(frame_bytes: usize, first_step: usize) -> BytesMut {
    let step = frame_bytes.min(first_step);
    let kept = KEPT.with_borrow_mut(|kept| kept.take(frame_bytes, step));
    // A little more, so that it also holds the next frame, which is about as large.
    kept.unwrap_or_else(|| BytesMut::with_capacity(step.next_multiple_of(limits::BUFFER_GRAIN_BYTES)))
}

/// The frame that was read into `buffer`; its memory comes back here when the frame is gone.
pub(crate) fn freeze(mut buffer: BytesMut) -> Bytes {
    let bytes = buffer.capacity();
    let frame = buffer.split().freeze();
    KEPT.with_borrow_mut(|kept| kept.keep(Handle { buffer, bytes }));
    frame
}

impl Kept {
    fn take(&mut self, frame_bytes: usize, step: usize) -> Option<BytesMut> {
        let at = self.find(frame_bytes).or_else(|| self.find(step))?;
        let handle = self.handles.remove(at)?;
        self.bytes -= handle.bytes;
        Some(handle.buffer)
    }

    /// The newest handle whose memory is free again and holds `bytes`: the likeliest to be in the CPU's cache.
    fn find(&mut self, bytes: usize) -> Option<usize> {
        self.handles.iter_mut().rposition(|handle| handle.bytes >= bytes && handle.buffer.try_reclaim(bytes))
    }

    fn keep(&mut self, handle: Handle) {
        if handle.bytes > limits::KEPT_BYTES_MAX {
            return;
        }
        self.bytes += handle.bytes;
        self.handles.push_back(handle);
        while self.bytes > limits::KEPT_BYTES_MAX || self.handles.len() > limits::KEPT_BUFFERS_MAX {
            let Some(oldest) = self.handles.pop_front() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: usize = limits::REQUEST_STEP_BYTES;

    #[test]
    fn memory_is_used_again_once_all_slices_of_the_frame_are_gone() {
        let mut buffer = take(1 << 20, STEP);
        buffer.resize(1 << 20, 7);
        let address = buffer.as_ptr();
        let frame = freeze(buffer);
        let slice = frame.slice(100..200);
        drop(frame);
        let other = take(1 << 20, STEP);
        assert_ne!(other.as_ptr(), address, "a slice is still in use");
        assert!(other.capacity() <= STEP, "only a first step is fresh");
        drop(slice);
        let again = take(1 << 20, STEP);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        assert!(again.capacity() >= 1 << 20);
    }

    #[test]
    fn a_kept_buffer_serves_a_larger_frame_as_its_beginning() {
        let mut buffer = take(100_000, STEP);
        buffer.resize(100_000, 0);
        let address = buffer.as_ptr();
        drop(freeze(buffer));
        assert_eq!(take(1 << 30, STEP).as_ptr(), address);
    }

    #[test]
    fn no_more_is_kept_than_the_limits_allow() {
        let frames: Vec<Bytes> = (0..40)
            .map(|_| {
                let mut buffer = take(4 << 20, STEP);
                buffer.resize(4 << 20, 0);
                freeze(buffer)
            })
            .collect();
        let (handles, bytes) = KEPT.with_borrow(|kept| (kept.handles.len(), kept.bytes));
        assert!(handles <= limits::KEPT_BUFFERS_MAX && bytes <= limits::KEPT_BYTES_MAX, "{handles} {bytes}");
        assert_eq!(
            bytes,
            KEPT.with_borrow(|kept| kept.handles.iter().map(|handle| handle.bytes).sum::<usize>())
        );
        drop(frames);
    }
}
