//! A letter box between cores: whoever writes never waits, whoever reads takes all there is.
//!
//! Unlike a mailbox it has no limit, so it carries only what is bounded by the number of partitions: what
//! to fetch, what left a lane, what a question was answered with. Record data never goes through it.

use std::sync::{Mutex, PoisonError};

use tarn_runtime::channel::Flag;

/// A letter box for `T`; shared by `Arc`.
#[derive(Debug)]
pub struct Post<T> {
    letters: Mutex<Vec<T>>,
    arrived: Flag,
}

impl<T> Default for Post<T> {
    fn default() -> Post<T> {
        Post { letters: Mutex::default(), arrived: Flag::new() }
    }
}

impl<T> Post<T> {
    /// Puts a letter in and wakes the reader.
    pub fn put(&self, letter: T) {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
        self.arrived.raise();
    }

    /// Wakes the reader, letter or not.
    pub fn ring(&self) {
        self.arrived.raise();
    }

    /// Takes every letter, in the order of their arrival.
    pub fn take(&self) -> Vec<T> {
        self.arrived.lower();
        std::mem::take(&mut *self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until there may be a letter.
    pub async fn arrived(&self) {
        self.arrived.raised().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn letters_are_taken_in_order_and_only_once() {
        block_on(async {
            let post = Post::default();
            assert!(poll_once(post.arrived()).await.is_none());
            post.put(1);
            post.put(2);
            post.arrived().await;
            assert_eq!(post.take(), [1, 2]);
            assert!(poll_once(post.arrived()).await.is_none());
            post.ring();
            post.arrived().await;
            assert!(post.take().is_empty());
        });
    }
}
