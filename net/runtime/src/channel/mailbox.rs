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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Dropped, reply};
    use crate::core::tests::{core_of, run_on_core};
    use futures_lite::future::poll_once;
    use proptest::prelude::*;

    #[test]
    fn a_full_mailbox_takes_no_more_until_it_is_emptied() {
        let (sender, mut receiver) = mailbox(2);
        sender.try_send(1).unwrap();
        sender.try_send(2).unwrap();
        assert_eq!(sender.depth(), 2);
        assert!(matches!(sender.try_send(3), Err(Refused::Full(3))));
        assert_eq!(receiver.try_recv(), Some(1));
        sender.try_send(3).unwrap();
        assert_eq!([receiver.try_recv(), receiver.try_recv(), receiver.try_recv()], [Some(2), Some(3), None]);
    }

    #[test]
    fn a_send_that_is_cancelled_while_it_waits_has_sent_nothing() {
        block_on(async {
            let (sender, mut receiver) = mailbox(1);
            sender.send(1).await.unwrap();
            let mut waiting = sender.send(2);
            assert!(poll_once(&mut waiting).await.is_none());
            assert!(poll_once(&mut waiting).await.is_none());
            assert_eq!(sender.shared.lock().blocked.len(), 1, "polled twice, it waits once");
            drop(waiting);
            assert_eq!(sender.shared.lock().blocked.len(), 0);
            assert_eq!(receiver.recv().await, Some(1));
            assert_eq!(receiver.try_recv(), None);
        });
    }

    #[test]
    fn what_was_sent_is_still_received_after_the_last_sender_is_gone() {
        block_on(async {
            let (sender, mut receiver) = mailbox(8);
            let other = sender.clone();
            sender.send(1).await.unwrap();
            drop(sender);
            other.send(2).await.unwrap();
            drop(other);
            let mut letters = Vec::new();
            assert_eq!(receiver.recv_many(&mut letters, 8).await, 2);
            assert_eq!(letters, [1, 2]);
            assert_eq!(receiver.recv_many(&mut letters, 8).await, 0);
            assert_eq!(receiver.recv().await, None);
        });
    }

    #[test]
    fn letters_die_with_their_receiver_and_later_ones_come_back() {
        block_on(async {
            let (sender, mut receiver) = mailbox(1);
            let ((first, first_reply), (second, second_reply)) = (reply::<()>(), reply::<()>());
            sender.send(first).await.unwrap();
            let in_hand = receiver.try_recv();
            receiver.hand.extend(in_hand);
            sender.send(second).await.unwrap();
            let (late, _late_reply) = reply::<()>();
            let mut waiting = sender.send(late);
            assert!(poll_once(&mut waiting).await.is_none());
            drop(receiver);
            assert_eq!(first_reply.await, Err(Dropped), "a letter in the receiver's hand");
            assert_eq!(second_reply.await, Err(Dropped), "a letter in the box");
            waiting.await.unwrap_err().0.fill(()).unwrap();
            assert!(sender.is_closed());
        });
    }

    #[test]
    fn many_threads_and_a_core_send_to_one_core_and_nothing_is_lost_or_swapped() {
        const EACH: u32 = 5_000;
        let (sender, mut receiver) = mailbox::<(usize, u32)>(16);
        let receiving = core_of(None, || async move {
            let mut next = [0; 3];
            let mut letters = Vec::new();
            while receiver.recv_many(&mut letters, 7).await > 0 {
                for (from, number) in letters.drain(..) {
                    assert_eq!(number, next[from], "out of order from sender {from}");
                    next[from] += 1;
                }
            }
            next
        });
        let from_core = sender.clone();
        let sending = core_of(None, move || async move {
            for number in 0..EACH {
                from_core.send((0, number)).await.unwrap();
            }
        });
        let threads = [1, 2].map(|from| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for number in 0..EACH {
                    sender.send_blocking((from, number)).unwrap();
                }
            })
        });
        drop(sender);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        sending.join();
        assert_eq!(receiving.join(), [EACH; 3]);
    }

    #[test]
    fn a_core_sleeping_on_an_empty_mailbox_wakes_when_the_last_sender_goes() {
        let (sender, mut receiver) = mailbox::<()>(1);
        let core = core_of(None, || async move { receiver.recv().await });
        drop(sender);
        assert_eq!(core.join(), None);
    }

    #[test]
    fn a_receiver_that_always_finds_letters_lets_other_tasks_run() {
        run_on_core(|| async {
            let (sender, mut receiver) = mailbox(1);
            let draining = crate::spawn(crate::Queue::Network, async move {
                loop {
                    sender.try_send(()).unwrap();
                    receiver.recv().await;
                }
            });
            crate::sleep(std::time::Duration::from_millis(3)).await;
            assert_eq!(draining.cancel().await, None::<()>);
        });
    }

    proptest! {
        /// Against a queue and a hand: what is accepted comes out once, in order, in any interleaving.
        #[test]
        fn letters_come_out_as_they_went_in(
            capacity in 1usize..6,
            steps in prop::collection::vec((0usize..4, 1usize..8), 0..60),
        ) {
            let (sender, mut receiver) = mailbox(capacity);
            let (mut sent, mut got) = (0u32, Vec::new());
            for (step, count) in steps {
                for _ in 0..count {
                    match step {
                        0 => got.extend(receiver.try_recv()),
                        1 if sent as usize > got.len() => {
                            prop_assert!(block_on(receiver.recv_many(&mut got, count)) > 0);
                        }
                        1 => {}
                        _ => match sender.try_send(sent) {
                            Ok(()) => sent += 1,
                            Err(_) => prop_assert_eq!(sender.depth(), capacity),
                        },
                    }
                    prop_assert!(sender.depth() <= capacity);
                }
            }
            while let Some(letter) = receiver.try_recv() {
                got.push(letter);
            }
            prop_assert_eq!(got, (0..sent).collect::<Vec<_>>());
        }
    }
}
