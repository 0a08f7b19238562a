//! The head of a request to the admin listener: what it asks. A body is never looked at: no question has one.
//!
//! It comes from anyone. What is here never holds more than the headers that are allowed, as slices of what was
//! received.

use crate::limits;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The page of metrics.
    Metrics,
    /// Whether the process lives.
    Health,
    /// Whether the node serves.
    Readiness,
    /// Nothing that is answered.
    Refused(Status),
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200
    Ok,
    /// 400
    BadRequest,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 431
    HeadTooLarge,
    /// 503
    Unavailable,
}

/// What there is of a request's head.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// It is not all there.
    Partial,
    /// What it asks.
    Whole(Question),
}

/// Reads the head of a request, as far as it is there.
pub fn read_head(received: &[u8]) -> Head {
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

impl Status {
    /// Its number.
    pub(super) fn code(self) -> u16 {
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
