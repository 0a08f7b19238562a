//! What crosses cores: bounded mailboxes, replies that never wait, and news.
//!
//! Rules that keep cores from waiting for each other for ever: whoever wants an answer makes its
//! [`reply()`] slot *before* it sends, filling a slot never waits, and the task that drains a mailbox
//! never awaits a send.
//!
//! Wakers belong to the core that made them. Here another thread only ever wakes them by reference,
//! and the owner alone drops them: the executor may still look at a task whose last waker is dropped
//! elsewhere. A combinator that keeps its parent's waker (`FuturesUnordered`) does not keep to this, so
//! replies are better awaited one after the other.

mod flag;
mod mailbox;
mod notify;
mod reply;
mod waiters;

pub use flag::Flag;
pub use mailbox::{Closed, Receiver, Refused, Sender, mailbox};
pub use notify::{LocalNotify, Notified};
pub use reply::{Dropped, Reply, ReplySlot, reply};
