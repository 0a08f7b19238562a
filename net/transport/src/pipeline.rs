//! The answers that one connection owes, in the order of their requests.
//!
//! All of them make progress side by side; only the first may leave. The connection's task polls them
//! itself with its own waker: a combinator with wakers of its own would have them dropped on other cores
//! (see `tarn_runtime::channel`). Owned by the connection's task.
//!
//! Invariant: whoever waits here registers no waker. The connection's loop asks again after every change,
//! which [`Pipeline::changes`] counts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use futures_util::future::LocalBoxFuture;

use crate::service::Answer;

/// The answers due, oldest first.
pub(crate) struct Pipeline {
    depth: usize,
    due: RefCell<VecDeque<Due>>,
    ended: Cell<bool>,
    changes: Cell<u64>,
}

/// One answer.
pub(crate) enum Due {
    /// Being made.
    Running(LocalBoxFuture<'static, Answer>),
    /// Made.
    Ready(Answer),
}

impl Pipeline {
    /// A pipeline of at most `depth` answers, one at least.
    pub(crate) fn new(depth: usize) -> Pipeline {
        Pipeline {
            depth: depth.max(1),
            due: RefCell::default(),
            ended: Cell::new(false),
            changes: Cell::new(0),
        }
    }

    /// Waits until another request may be read.
    pub(crate) async fn room(&self) {
        poll_fn(|_| if self.due.borrow().len() < self.depth { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    pub(crate) fn push(&self, due: Due) {
        self.due.borrow_mut().push_back(due);
        self.changed();
    }

    /// Lets every answer make progress.
    pub(crate) fn poll_answers(&self, cx: &mut Context<'_>) {
        for due in self.due.borrow_mut().iter_mut() {
            if let Due::Running(answer) = due
                && let Poll::Ready(answer) = answer.as_mut().poll(cx)
            {
                *due = Due::Ready(answer);
                self.changed();
            }
        }
    }

    /// Waits for the first answer. `None` once no more requests come and everything has left.
    pub(crate) async fn next(&self) -> Option<Answer> {
        poll_fn(|_| match self.take_ready() {
            Some(answer) => Poll::Ready(Some(answer)),
            None if self.ended.get() && self.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        })
        .await
    }

    /// The first answer, where it is ready.
    pub(crate) fn take_ready(&self) -> Option<Answer> {
        let mut due = self.due.borrow_mut();
        if !matches!(due.front(), Some(Due::Ready(_))) {
            return None;
        }
        match due.pop_front() {
            Some(Due::Ready(answer)) => {
                self.changed();
                Some(answer)
            }
            _ => None,
        }
    }

    /// No more requests come; what is due still leaves.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.changed();
    }

    /// Drops the first answer that is not ready, and all behind it.
    pub(crate) fn abandon_unready(&self) {
        let abandoned = {
            let mut due = self.due.borrow_mut();
            let ready = due.iter().take_while(|due| matches!(due, Due::Ready(_))).count();
            due.split_off(ready)
        };
        drop(abandoned);
        self.changed();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.borrow().is_empty()
    }

    /// Rises whenever something that somebody may wait for has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn changed(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::rc::Rc;

    #[test]
    fn answers_leave_in_the_order_of_the_requests_though_later_ones_are_ready_first() {
        let pipeline = Pipeline::new(8);
        let gate = Rc::new(Cell::new(false));
        pipeline.push(gated("first", &gate));
        pipeline.push(Due::Ready(close("second")));
        poll_all(&pipeline);
        assert!(pipeline.take_ready().is_none());
        gate.set(true);
        poll_all(&pipeline);
        assert_eq!(names(&pipeline), ["first", "second"]);
    }

    #[test]
    fn all_answers_make_progress_at_once() {
        let pipeline = Pipeline::new(8);
        let (shut, open) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(true)));
        pipeline.push(gated("first", &shut));
        pipeline.push(gated("second", &open));
        let before = pipeline.changes();
        poll_all(&pipeline);
        assert_eq!(pipeline.changes(), before + 1, "the second was made while the first waits");
    }

    #[test]
    fn there_is_room_again_when_the_first_answer_has_left() {
        block_on(async {
            let pipeline = Pipeline::new(1);
            pipeline.push(Due::Ready(close("first")));
            assert!(poll_once(pipeline.room()).await.is_none());
            assert!(pipeline.take_ready().is_some());
            assert!(poll_once(pipeline.room()).await.is_some());
        });
    }

    #[test]
    fn abandoning_drops_what_is_not_ready_and_what_is_behind_it() {
        let pipeline = Pipeline::new(8);
        let shut = Rc::new(Cell::new(false));
        pipeline.push(Due::Ready(close("first")));
        pipeline.push(gated("second", &shut));
        pipeline.push(Due::Ready(close("third")));
        pipeline.abandon_unready();
        assert_eq!(Rc::strong_count(&shut), 1, "the parked answer was dropped");
        assert_eq!(names(&pipeline), ["first"]);
    }

    fn gated(name: &'static str, gate: &Rc<Cell<bool>>) -> Due {
        let gate = Rc::clone(gate);
        Due::Running(Box::pin(async move {
            poll_fn(|_| if gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            close(name)
        }))
    }

    fn close(name: &str) -> Answer {
        Answer::Close(name.to_owned())
    }

    fn poll_all(pipeline: &Pipeline) {
        block_on(poll_fn(|cx| {
            pipeline.poll_answers(cx);
            Poll::Ready(())
        }));
    }

    fn names(pipeline: &Pipeline) -> Vec<String> {
        std::iter::from_fn(|| pipeline.take_ready())
            .map(|answer| match answer {
                Answer::Close(name) => name,
                other => panic!("{other:?} is not of this test"),
            })
            .collect()
    }
}
