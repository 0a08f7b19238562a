//! A reply: one value, promised before the question is sent.
//!
//! The slot travels with the question and is filled on the other core without ever waiting. A slot that
//! is dropped empty tells the one who waits, so no question is left open for ever.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use thiserror::Error;

/// A slot and the future of its value.
pub fn reply<R: Send>() -> (ReplySlot<R>, Reply<R>) {
    let shared = Arc::new(Shared(Mutex::new(State { value: Value::Open, waker: None })));
    (ReplySlot { shared: Some(Arc::clone(&shared)) }, Reply { shared })
}

/// The slot was dropped empty: whoever had it is gone or gave up.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the reply will never come: its slot was dropped")]
pub struct Dropped;

/// The place for a value. Usable from any thread.
#[must_use = "a slot that is dropped empty reports `Dropped`"]
pub struct ReplySlot<R> {
    shared: Option<Arc<Shared<R>>>,
}

/// The value to come.
#[must_use = "a reply is awaited"]
pub struct Reply<R> {
    shared: Arc<Shared<R>>,
}

struct Shared<R>(Mutex<State<R>>);

struct State<R> {
    value: Value<R>,
    waker: Option<Waker>,
}

enum Value<R> {
    Open,
    Filled(R),
    Dropped,
    NotWanted,
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> State<R> {
    fn close(&mut self, value: Value<R>) {
        self.value = value;
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl<R> ReplySlot<R> {
    /// Puts the value in, at once.
    ///
    /// # Errors
    /// Gives the value back where nobody waits for it any more.
    pub fn fill(mut self, value: R) -> Result<(), R> {
        let shared = self.shared.take().expect("a slot is filled or dropped once");
        let mut state = shared.lock();
        if matches!(state.value, Value::NotWanted) {
            return Err(value);
        }
        state.close(Value::Filled(value));
        Ok(())
    }

    /// Whether somebody still waits: work for a reply that nobody wants can be left out.
    pub fn is_wanted(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| !matches!(shared.lock().value, Value::NotWanted))
    }
}

impl<R> Drop for ReplySlot<R> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let mut state = shared.lock();
            if matches!(state.value, Value::Open) {
                state.close(Value::Dropped);
            }
        }
    }
}

impl<R> Future for Reply<R> {
    type Output = Result<R, Dropped>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock();
        match std::mem::replace(&mut state.value, Value::Dropped) {
            Value::Filled(value) => Poll::Ready(Ok(value)),
            Value::Dropped | Value::NotWanted => Poll::Ready(Err(Dropped)),
            Value::Open => {
                state.value = Value::Open;
                match &mut state.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let unread = std::mem::replace(&mut state.value, Value::NotWanted);
        let waker = state.waker.take();
        // Dropped without the lock: the value may itself hold a slot.
        drop(state);
        drop((unread, waker));
    }
}

impl<R> fmt::Debug for ReplySlot<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplySlot")
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::{core_of, run_on_core};
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn a_value_reaches_the_one_who_waits_before_or_after_it_is_filled() {
        block_on(async {
            let (slot, answer) = reply();
            slot.fill(7).unwrap();
            assert_eq!(answer.await, Ok(7));
            let (slot, mut answer) = reply();
            assert!(poll_once(&mut answer).await.is_none());
            slot.fill(8).unwrap();
            assert_eq!(answer.await, Ok(8));
        });
    }

    #[test]
    fn an_empty_slot_that_is_dropped_says_so() {
        let (slot, answer) = reply::<()>();
        drop(slot);
        assert_eq!(block_on(answer), Err(Dropped));
    }

    #[test]
    fn a_value_nobody_wants_comes_back() {
        let (slot, answer) = reply();
        assert!(slot.is_wanted());
        drop(answer);
        assert!(!slot.is_wanted());
        assert_eq!(slot.fill(7), Err(7));
    }

    #[test]
    fn a_slot_is_filled_from_another_core() {
        let (slot, answer) = reply();
        let waiting = core_of(None, || answer);
        core_of(None, || async move { slot.fill(7) }).join().unwrap();
        assert_eq!(waiting.join(), Ok(7));
    }

    /// W1: an executor that counts wakers in 16 bits dies here.
    #[test]
    fn one_task_may_wait_for_seventy_thousand_replies() {
        let sum = run_on_core(|| async {
            let (slots, mut answers): (Vec<_>, Vec<_>) = (0..70_000).map(|_| reply::<u64>()).unzip();
            for answer in &mut answers {
                assert!(poll_once(answer).await.is_none());
            }
            std::thread::spawn(move || {
                for (value, slot) in (0..).zip(slots) {
                    slot.fill(value).unwrap();
                }
            });
            let mut sum = 0;
            for answer in answers {
                sum += answer.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 70_000 * 69_999 / 2);
    }
}
