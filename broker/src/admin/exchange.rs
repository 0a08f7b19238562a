//! One connection to the admin listener: one request, one answer.
//!
//! It never waits for its socket. After the answer the sending side is closed, and what the client still sends is read
//! away: closing the socket over it would take the answer back.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use tarn_metrics::Exposition;

use super::head::{Head, Question, Status, read_head};
use super::{read_now, write_now};
use crate::limits;

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    stream: TcpStream,
    deadline: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    Receiving(Vec<u8>),
    Waiting { turn: Turn, body: Body },
    Sending { head: Vec<u8>, body: Arc<str>, sent: usize },
    Leaving,
    Ended,
}

/// Whether the answer is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Asked,
    Begun,
}

/// Whether the body of an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Sent,
    LeftOut,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    ToRead,
    ToWrite,
    /// Nothing that its socket would tell.
    ForItsAnswer,
}

/// An answer, which many may get.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    status: Status,
    content_type: &'static str,
    body: Arc<str>,
}

impl Exchange {
    /// A connection that was just accepted.
    pub(super) fn new(stream: TcpStream, now: Instant) -> Exchange {
        Exchange { stream, deadline: now + limits::ADMIN_REQUEST_WAIT, state: State::Receiving(Vec::new()) }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn waits(&self) -> Waits {
        match self.state {
            State::Sending { .. } => Waits::ToWrite,
            State::Waiting { .. } => Waits::ForItsAnswer,
            State::Receiving(_) | State::Leaving | State::Ended => Waits::ToRead,
        }
    }

    /// Reads what has come; the question, once it is there.
    pub(super) fn read(&mut self) -> Option<Question> {
        let mut piece = [0; 4096];
        loop {
            match &mut self.state {
                State::Waiting { .. } | State::Sending { .. } | State::Ended => return None,
                State::Leaving => match read_now(&mut self.stream, &mut piece) {
                    // Whoever goes on sending has a turn like all others, until the deadline.
                    Some(_) => return None,
                    None => self.state = State::Ended,
                },
                State::Receiving(received) => {
                    match read_now(&mut self.stream, &mut piece) {
                        Some(0) => return None,
                        Some(read) => received.extend_from_slice(&piece[..read]),
                        None => {
                            self.state = State::Ended;
                            return None;
                        }
                    }
                    if let Head::Whole(question) = read_head(received) {
                        return Some(question);
                    }
                }
            }
        }
    }

    /// Has it wait for an answer that is still to be made.
    pub(super) fn wait(&mut self) {
        self.deadline = Instant::now() + limits::ADMIN_ANSWER_WAIT;
        self.state = State::Waiting { turn: Turn::Asked, body: self.body() };
    }

    /// Whether it waits, and for what.
    pub(super) fn turn(&self) -> Option<Turn> {
        match &self.state {
            State::Waiting { turn, .. } => Some(*turn),
            _ => None,
        }
    }

    /// The answer that it waits for is being made.
    pub(super) fn begin(&mut self) {
        if let State::Waiting { turn, .. } = &mut self.state {
            *turn = Turn::Begun;
        }
    }

    /// Its socket has broken while nothing was to be read or written.
    pub(super) fn broken(&mut self) {
        self.state = State::Ended;
    }

    /// True where little is lost with it: it is silent, or has its answer.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Receiving(_) | State::Leaving | State::Ended)
    }

    fn body(&self) -> Body {
        match &self.state {
            State::Receiving(received) if received.starts_with(b"HEAD ") => Body::LeftOut,
            State::Waiting { body, .. } => *body,
            _ => Body::Sent,
        }
    }

    /// Begins to answer.
    pub(super) fn answer(&mut self, reply: Reply) {
        let sent = self.body();
        let Reply { status, content_type, body } = reply;
        let head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            status.code(),
            status.reason(),
            body.len()
        )
        .into_bytes();
        let body = if sent == Body::Sent { body } else { "".into() };
        self.deadline = Instant::now() + limits::ADMIN_ANSWER_WAIT;
        self.state = State::Sending { head, body, sent: 0 };
    }

    /// Sends what the socket takes.
    pub(super) fn write(&mut self) {
        while let State::Sending { head, body, sent } = &mut self.state {
            let left = match sent.checked_sub(head.len()) {
                None => &head[*sent..],
                Some(of_body) => &body.as_bytes()[of_body..],
            };
            if left.is_empty() {
                self.leave();
                return;
            }
            match write_now(&mut self.stream, left) {
                Some(0) => return,
                Some(written) => *sent += written,
                None => self.state = State::Ended,
            }
        }
    }

    fn leave(&mut self) {
        self.deadline = Instant::now() + limits::ADMIN_LINGER;
        let closed = self.stream.shutdown(Shutdown::Write);
        self.state = if closed.is_ok() { State::Leaving } else { State::Ended };
    }

    /// True once there is nothing more to do, or no time for it.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        matches!(self.state, State::Ended) || now >= self.deadline
    }
}

impl Reply {
    /// A line for a person.
    pub(super) fn plain(status: Status, line: &str) -> Reply {
        Reply { status, content_type: "text/plain; charset=utf-8", body: format!("{line}\n").into() }
    }

    /// The answer to a scrape.
    pub(super) fn metrics(page: String) -> Reply {
        Reply { status: Status::Ok, content_type: Exposition::CONTENT_TYPE, body: page.into() }
    }
}
