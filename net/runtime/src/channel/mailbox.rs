//! A mailbox: many senders on any core or thread, one receiver, a fixed number of letters.
//!
//! The receiver takes everything that lies there in one go, under one lock, and works through it
//! without touching the senders; a sender wakes it only when it sleeps. So the cost of crossing cores
//! falls with the load.
//!
//! Invariants:
//! * at most `capacity` letters lie in the box, and as many again in the receiver's hand;
//! * the letters of one sender arrive in the order in which its sends returned;
//! * a letter is received once, given back to its sender, or dropped with the receiver.

use super::waiters::Waiters;
use crate::queues;
use futures_lite::future::{block_on, poll_fn};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use thiserror::Error;

/// A mailbox of `capacity` letters, at least one.
pub fn mailbox<M: Send>(capacity: usize) -> (Sender<M>, Receiver<M>) {
    let capacity = capacity.max(1);
    let shared = Arc::new(Shared { capacity, state: Mutex::new(State::default()) });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, hand: VecDeque::new() })
}

/// The receiver is gone. Carries the letter.
#[derive(Error)]
#[error("the mailbox is closed: its receiver is gone")]
pub struct Closed<M>(pub M);

/// Why `try_send` did not send. Carries the letter.
#[derive(Error)]
pub enum Refused<M> {
    /// There is no room now.
    #[error("the mailbox is full")]
    Full(M),
    /// The receiver is gone.
    #[error("the mailbox is closed: its receiver is gone")]
    Closed(M),
}

impl<M> fmt::Debug for Closed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed")
    }
}

impl<M> fmt::Debug for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full(_) => "Full",
            Refused::Closed(_) => "Closed",
        })
    }
}

/// The side that writes. Cheap to clone, usable from any thread.
pub struct Sender<M> {
    shared: Arc<Shared<M>>,
}

/// The side that reads. May be moved to another core before it is used there.
pub struct Receiver<M> {
    shared: Arc<Shared<M>>,
    hand: VecDeque<M>,
}

struct Shared<M> {
    capacity: usize,
    state: Mutex<State<M>>,
}

struct State<M> {
    letters: VecDeque<M>,
    senders: usize,
    open: bool,
    reader: Option<Waker>,
    reader_sleeps: bool,
    blocked: Waiters,
}

impl<M> Default for State<M> {
    fn default() -> Self {
        State {
            letters: VecDeque::new(),
            senders: 1,
            open: true,
            reader: None,
            reader_sleeps: false,
            blocked: Waiters::default(),
        }
    }
}

impl<M> Shared<M> {
    /// A thread that panics with the lock held has changed nothing half: all updates are single steps.
    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> State<M> {
    fn push(&mut self, letter: M) {
        self.letters.push_back(letter);
        self.wake_reader();
    }

    fn wake_reader(&mut self) {
        if mem::take(&mut self.reader_sleeps)
            && let Some(reader) = &self.reader
        {
            reader.wake_by_ref();
        }
    }
}

impl<M> Sender<M> {
    /// Sends, waiting where the mailbox is full. Cancelled while it waits, it has sent nothing.
    ///
    /// # Errors
    /// The letter, where the receiver is gone.
    pub fn send(&self, letter: M) -> Sending<'_, M> {
        Sending { shared: &self.shared, letter: Some(letter), ticket: None }
    }

    /// Sends where there is room.
    ///
    /// # Errors
    /// The letter, where there is none, or the receiver is gone.
    pub fn try_send(&self, letter: M) -> Result<(), Refused<M>> {
        let mut state = self.shared.lock();
        if !state.open {
            return Err(Refused::Closed(letter));
        }
        if state.letters.len() >= self.shared.capacity {
            return Err(Refused::Full(letter));
        }
        state.push(letter);
        Ok(())
    }

    /// Sends from a plain thread, which blocks while the mailbox is full.
    ///
    /// # Errors
    /// The letter, where the receiver is gone.
    ///
    /// # Panics
    /// On a core, which may not block.
    pub fn send_blocking(&self, letter: M) -> Result<(), Closed<M>> {
        assert!(!queues::on_core(), "a core may not block: await send");
        block_on(self.send(letter))
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        !self.shared.lock().open
    }

    /// The letters that lie there, not counting those in the receiver's hand: how near the limit is.
    pub fn depth(&self) -> usize {
        self.shared.lock().letters.len()
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        self.shared.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<M> Drop for Sender<M> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.senders -= 1;
        if state.senders == 0 {
            state.wake_reader();
        }
    }
}

impl<M> fmt::Debug for Sender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// A letter on its way: the future of [`Sender::send`].
#[must_use = "nothing is sent unless awaited"]
pub struct Sending<'a, M> {
    shared: &'a Shared<M>,
    letter: Option<M>,
    ticket: Option<u64>,
}

/// The letter is never pinned: it is moved out whole.
impl<M> Unpin for Sending<'_, M> {}

impl<M> Future for Sending<'_, M> {
    type Output = Result<(), Closed<M>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = this.shared.lock();
        let letter = this.letter.take().expect("a letter is polled only until it is sent");
        if !state.open {
            state.blocked.leave(&mut this.ticket);
            return Poll::Ready(Err(Closed(letter)));
        }
        if state.letters.len() >= this.shared.capacity {
            this.letter = Some(letter);
            state.blocked.wait(&mut this.ticket, context.waker());
            return Poll::Pending;
        }
        state.blocked.leave(&mut this.ticket);
        state.push(letter);
        Poll::Ready(Ok(()))
    }
}

impl<M> Drop for Sending<'_, M> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.shared.lock().blocked.leave(&mut self.ticket);
        }
    }
}

impl<M> Receiver<M> {
    /// The next letter, waiting for one. `None` once all senders are gone and everything is read.
    /// Cancelled, it has taken nothing. Yields first where the task has had its time.
    pub async fn recv(&mut self) -> Option<M> {
        queues::yield_if_needed().await;
        poll_fn(|context| self.poll_fill(context)).await;
        self.hand.pop_front()
    }

    /// Waits for at least one letter, then appends what is there to `letters`, at most `max`, and
    /// returns how many. 0 once all senders are gone and everything is read.
    pub async fn recv_many(&mut self, letters: &mut Vec<M>, max: usize) -> usize {
        queues::yield_if_needed().await;
        poll_fn(|context| self.poll_fill(context)).await;
        let taken = self.hand.len().min(max);
        letters.extend(self.hand.drain(..taken));
        taken
    }

    /// The next letter, where there is one.
    pub fn try_recv(&mut self) -> Option<M> {
        if self.hand.is_empty() {
            let shared = &self.shared;
            take_letters(&mut shared.lock(), &mut self.hand);
        }
        self.hand.pop_front()
    }

    /// The next letter, for a receiver on a plain thread, which blocks until there is one.
    ///
    /// # Panics
    /// On a core, which may not block.
    pub fn recv_blocking(&mut self) -> Option<M> {
        assert!(!queues::on_core(), "a core may not block: await recv");
        block_on(self.recv())
    }

    /// Fills the empty hand. Ready when it holds something, or never will again.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.hand.is_empty() {
            return Poll::Ready(());
        }
        let mut state = self.shared.lock();
        take_letters(&mut state, &mut self.hand);
        if !self.hand.is_empty() || state.senders == 0 {
            return Poll::Ready(());
        }
        match &mut state.reader {
            Some(reader) => reader.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        state.reader_sleeps = true;
        Poll::Pending
    }
}

/// Swaps the full box for the empty hand, so that both keep their memory, and tells those who wait
/// for room.
fn take_letters<M>(state: &mut State<M>, hand: &mut VecDeque<M>) {
    debug_assert!(hand.is_empty());
    if !state.letters.is_empty() {
        mem::swap(&mut state.letters, hand);
        state.blocked.wake_all();
    }
}

impl<M> Drop for Receiver<M> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.open = false;
        state.reader_sleeps = false;
        let reader = state.reader.take();
        let letters = mem::take(&mut state.letters);
        state.blocked.wake_all();
        // Dropped without the lock: a letter may hold a reply slot, whose drop wakes somebody.
        drop(state);
        drop((reader, letters));
    }
}

impl<M> fmt::Debug for Receiver<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("in_hand", &self.hand.len()).finish_non_exhaustive()
    }
}
