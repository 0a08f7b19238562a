//! The calls that are under way on one connection, shared by the callers and the connection's task.
//!
//! Invariants:
//! * requests leave in the order in which they were begun, and answers are due in the same order;
//! * once closed, nothing is begun, and every call that waited has been told why.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tarn_runtime::timeout;
use tarn_wire::{ApiKey, Frame};

use super::{CallLimits, ClientError};

/// The calls of one connection.
#[derive(Default)]
pub(crate) struct Calls {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    next_correlation_id: i32,
    /// Requests that have not left yet.
    outgoing: VecDeque<Frame>,
    /// Answers due, oldest first.
    waiting: VecDeque<Waiting>,
    closed: Option<ClientError>,
    /// The connection's task.
    driver: Option<Waker>,
}

struct Waiting {
    correlation_id: i32,
    max_response_bytes: usize,
    slot: Rc<RefCell<Slot>>,
}

/// Where the answer of one call is put.
#[derive(Default)]
struct Slot {
    answer: Option<Result<Bytes, ClientError>>,
    caller: Option<Waker>,
}

/// The answer of one call, to come: a frame without its size.
struct Answered {
    slot: Rc<RefCell<Slot>>,
}

impl Calls {
    pub(crate) fn next_correlation_id(&self) -> i32 {
        let mut state = self.state.borrow_mut();
        let id = state.next_correlation_id;
        state.next_correlation_id = id.checked_add(1).unwrap_or(0);
        id
    }

    /// Sends a request and waits for its answer. Where that does not come in time the connection is closed.
    pub(crate) async fn exchange(
        &self,
        api: ApiKey,
        correlation_id: i32,
        frame: Frame,
        limits: CallLimits,
    ) -> Result<Bytes, ClientError> {
        let answered = self.begin(correlation_id, frame, limits.max_response_bytes)?;
        timeout(limits.timeout, answered).await.unwrap_or_else(|elapsed| {
            let error = ClientError::TimedOut { api, after: elapsed.0 };
            self.close(error.clone());
            Err(error)
        })
    }

    fn begin(
        &self,
        correlation_id: i32,
        frame: Frame,
        max_response_bytes: usize,
    ) -> Result<Answered, ClientError> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        let slot = Rc::new(RefCell::new(Slot::default()));
        state.outgoing.push_back(frame);
        state.waiting.push_back(Waiting { correlation_id, max_response_bytes, slot: Rc::clone(&slot) });
        state.wake_driver();
        Ok(Answered { slot })
    }

    /// The next request to send, for the connection's task.
    pub(super) async fn outgoing(&self) -> Frame {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            match state.outgoing.pop_front() {
                Some(frame) => Poll::Ready(frame),
                None => state.wait(cx),
            }
        })
        .await
    }

    /// The next request to send, where there is one now.
    pub(super) fn more_outgoing(&self) -> Option<Frame> {
        self.state.borrow_mut().outgoing.pop_front()
    }

    /// Why the connection was closed, once it is.
    pub(super) async fn closed(&self) -> ClientError {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            match state.closed.clone() {
                Some(error) => Poll::Ready(error),
                None => state.wait(cx),
            }
        })
        .await
    }

    /// The limit of the answer that is due next; 0 where none is due.
    pub(super) fn next_limit(&self) -> usize {
        self.state.borrow().waiting.front().map_or(0, |first| first.max_response_bytes)
    }

    /// Gives a response to the call that it is for, which must be the oldest.
    pub(super) fn answer(&self, correlation_id: i32, frame: Bytes) -> Result<(), ClientError> {
        let first = self.state.borrow_mut().waiting.pop_front();
        match first {
            Some(waiting) if waiting.correlation_id == correlation_id => {
                waiting.slot.borrow_mut().fill(Ok(frame));
                Ok(())
            }
            Some(waiting) => {
                let due = waiting.correlation_id;
                let detail = format!("it answers request {correlation_id}, {due} is due");
                let error = ClientError::Malformed { detail };
                waiting.slot.borrow_mut().fill(Err(error.clone()));
                Err(error)
            }
            None => Err(ClientError::Malformed { detail: format!("request {correlation_id} was not sent") }),
        }
    }

    /// Closes the connection; the first reason given stays.
    pub(crate) fn close(&self, error: ClientError) {
        let mut state = self.state.borrow_mut();
        if state.closed.is_some() {
            return;
        }
        state.closed = Some(error.clone());
        state.outgoing.clear();
        for waiting in state.waiting.drain(..) {
            waiting.slot.borrow_mut().fill(Err(error.clone()));
        }
        state.wake_driver();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.borrow().closed.is_some()
    }
}

impl State {
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            None => self.driver = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }
}

impl Slot {
    fn fill(&mut self, answer: Result<Bytes, ClientError>) {
        self.answer = Some(answer);
        if let Some(caller) = self.caller.take() {
            caller.wake();
        }
    }
}

impl Future for Answered {
    type Output = Result<Bytes, ClientError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.slot.borrow_mut();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.caller = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
