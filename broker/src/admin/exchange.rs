//! One connection to the admin listener: one request, one answer.
//!
//! It never waits for its socket. After the answer the sending side is closed, and what the client still sends is read
//! away: closing the socket over it would take the answer back.

use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use tarn_metrics::Exposition;

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
    Sending { answer: Vec<u8>, sent: usize },
    Leaving,
    Ended,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    ToRead,
    ToWrite,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Metrics,
    Health,
    Readiness,
    Refused(Status),
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    Unavailable,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    status: Status,
    content_type: &'static str,
    body: String,
}

/// What `Exchange::read` has made of a request's head.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    Partial,
    Whole(Question),
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
            State::Receiving(_) | State::Leaving | State::Ended => Waits::ToRead,
        }
    }

    /// Reads what has come; the question, once it is there.
    pub(super) fn read(&mut self) -> Option<Question> {
        let mut piece = [0; 4096];
        loop {
            match &mut self.state {
                State::Sending { .. } | State::Ended => return None,
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

    /// Begins to answer.
    pub(super) fn answer(&mut self, reply: Reply) {
        let is_head = matches!(&self.state, State::Receiving(received) if received.starts_with(b"HEAD "));
        let Reply { status, content_type, body } = reply;
        let mut answer = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            status.code(),
            status.reason(),
            body.len()
        )
        .into_bytes();
        if !is_head {
            answer.extend_from_slice(body.as_bytes());
        }
        self.deadline = Instant::now() + limits::ADMIN_ANSWER_WAIT;
        self.state = State::Sending { answer, sent: 0 };
    }

    /// Sends what the socket takes.
    pub(super) fn write(&mut self) {
        while let State::Sending { answer, sent } = &mut self.state {
            match write_now(&mut self.stream, &answer[*sent..]) {
                Some(0) => return,
                Some(written) if *sent + written < answer.len() => *sent += written,
                Some(_) => self.leave(),
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

/// Reads the head of a request, as far as it is there. A body is never looked at: no question has one.
fn read_head(received: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; limits::ADMIN_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let refused = |status| Head::Whole(Question::Refused(status));
    match request.parse(received) {
        Ok(httparse::Status::Partial) if received.len() >= limits::ADMIN_HEAD_BYTES => {
            refused(Status::HeadTooLarge)
        }
        Ok(httparse::Status::Partial) => Head::Partial,
        Err(httparse::Error::TooManyHeaders) => refused(Status::HeadTooLarge),
        Err(_) => refused(Status::BadRequest),
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
            match (request.method, path) {
                (Some("GET" | "HEAD"), "/metrics") => Head::Whole(Question::Metrics),
                (Some("GET" | "HEAD"), "/healthz") => Head::Whole(Question::Health),
                (Some("GET" | "HEAD"), "/readyz") => Head::Whole(Question::Readiness),
                (Some("GET" | "HEAD"), _) => refused(Status::NotFound),
                _ => refused(Status::MethodNotAllowed),
            }
        }
    }
}

impl Reply {
    /// A line for a person.
    pub(super) fn plain(status: Status, line: &str) -> Reply {
        Reply { status, content_type: "text/plain; charset=utf-8", body: format!("{line}\n") }
    }

    /// The answer to a scrape.
    pub(super) fn metrics(page: String) -> Reply {
        Reply { status: Status::Ok, content_type: Exposition::CONTENT_TYPE, body: page }
    }
}

impl Status {
    fn code(self) -> u16 {
        match self {
            Status::Ok => 200,
            Status::BadRequest => 400,
            Status::NotFound => 404,
            Status::MethodNotAllowed => 405,
            Status::HeadTooLarge => 431,
            Status::Unavailable => 503,
        }
    }

    /// The words beside the code.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::BadRequest => "Bad Request",
            Status::NotFound => "Not Found",
            Status::MethodNotAllowed => "Method Not Allowed",
            Status::HeadTooLarge => "Request Header Fields Too Large",
            Status::Unavailable => "Service Unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_there_when_its_head_is_whole() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\nmore";
        let end = whole.len() - 4;
        for cut in 0..end {
            assert_eq!(read_head(&whole[..cut]), Head::Partial, "{cut} bytes");
        }
        assert_eq!(read_head(whole), Head::Whole(Question::Metrics));
        assert_eq!(read_head(b"HEAD /readyz HTTP/1.0\r\n\r\n"), Head::Whole(Question::Readiness));
    }

    #[test]
    fn what_is_no_question_is_refused_with_its_status() {
        let status = |bytes: &[u8]| match read_head(bytes) {
            Head::Whole(Question::Refused(status)) => Some(status),
            _ => None,
        };
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), Some(Status::NotFound));
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), Some(Status::MethodNotAllowed));
        assert_eq!(status(b"\x00\x00\x00\x10\x00\x12\x00\x03"), Some(Status::BadRequest));
        assert_eq!(status(b"GET /metrics FTP/9\r\n\r\n"), Some(Status::BadRequest));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(limits::ADMIN_HEADERS + 1));
        assert_eq!(status(many.as_bytes()), Some(Status::HeadTooLarge));
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(limits::ADMIN_HEAD_BYTES));
        assert_eq!(status(long.as_bytes()), Some(Status::HeadTooLarge));
    }
}
