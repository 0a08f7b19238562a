//! One accepted client: reads requests, hands them to the service, writes the answers in order.
//!
//! One task does it all: it reads, lets the answers make progress, writes, and watches the clock, each as
//! far as it gets. A client that stops reading its answers therefore costs nobody else anything, and
//! everything that belongs to the connection goes when the task ends.
//!
//! Invariants:
//! * the service sees the requests of a connection one after the other, in order;
//! * answers leave in the order of their requests;
//! * once the server stops, no request is begun, and those that were have some time for their answers: who is not
//!   answered does not know what became of his request, and sends it again;
//! * an answer that was written is not taken back because the client has sent more than is read;
//! * nothing that a client sends ends more than its own connection.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_lite::future;
use futures_util::future::LocalBoxFuture;
use tarn_runtime::socket::Socket;
use tarn_runtime::{now, sleep, timeout, yield_if_needed};
use tarn_wire::messages::api_versions_request::ApiVersionsRequest;
use tarn_wire::{ApiKey, Cursor, Message, RequestHeader, decode_request_header, encode_response};

use crate::budget::MemoryBudget;
use crate::frames::{FrameError, FrameReader, InboundFrame};
use crate::limits::{self, ConnectionLimits};
use crate::metrics::{ListenerNumber, TransportMetrics};
use crate::pipeline::{Due, Pipeline};
use crate::progress::{Budget, Progress, Reading, Stillness};
use crate::response::{FrameWriter, WriteError};
use crate::service::{Answer, ConnectionInfo, InboundRequest, Outcome, Service};
use crate::stopping::Stopping;
use crate::versions::{self, ApiRanges};

/// What all connections of a core share.
pub(crate) struct Shared<S> {
    pub(crate) service: Rc<S>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) metrics: Arc<TransportMetrics>,
    pub(crate) stopping: Stopping,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client closed it.
    ByClient,
    /// The server stops, and has answered what was asked before.
    ByServer,
    /// The network did.
    Broken(std::io::Error),
    /// What the client sent is no request that is served here.
    Malformed(String),
    /// Nothing moved.
    Still(Stillness),
    /// The service gave it up.
    ByService(String),
    /// A response could not be finished.
    Unsent(WriteError),
}

/// How a request begins.
enum Taken {
    /// The answer is known here.
    Answered(Answer),
    /// The service is on it.
    Called(LocalBoxFuture<'static, Outcome>),
}

/// What one connection's halves share.
struct Connection<S> {
    shared: Rc<Shared<S>>,
    info: Rc<ConnectionInfo>,
    apis: Rc<ApiRanges>,
    listener: ListenerNumber,
    progress: Rc<Progress>,
    pipeline: Pipeline,
    /// Answers were on their way when the server had enough, and all that were due have left.
    may_lose_answers: Cell<bool>,
}

/// Serves a connection to its end.
pub(crate) async fn serve<S: Service>(
    socket: Socket,
    info: Rc<ConnectionInfo>,
    shared: Rc<Shared<S>>,
) -> Ended {
    let (read, write) = socket.split();
    let listener = shared.metrics.number_of(&info.listener);
    let connection = Connection {
        listener,
        apis: shared.service.api_versions(&info.listener).apis,
        progress: Rc::new(Progress::new(now())),
        pipeline: Pipeline::new(shared.limits.pipeline_depth),
        may_lose_answers: Cell::new(false),
        shared,
        info,
    };
    let mut frames = FrameReader::of_requests(read, Arc::clone(&connection.shared.budget));
    let metrics = Arc::clone(&connection.shared.metrics);
    let mut writer = FrameWriter::new(write, Rc::clone(&connection.progress), metrics, listener);
    let ended = connection.run(&mut frames, &mut writer).await;
    if connection.may_lose_answers.get() && writer.end().is_ok() {
        // The socket is closed with nothing unread in it: one that is not takes back what has not arrived.
        let _ = timeout(limits::LAST_ANSWERS_MAX, Box::pin(frames.discard())).await;
    }
    ended
}

impl<S: Service> Connection<S> {
    /// Reads, answers, writes and watches, until one of them says that it is over.
    async fn run(&self, frames: &mut FrameReader, writer: &mut FrameWriter) -> Ended {
        let mut reading = pin!(self.read(frames));
        let mut writing = pin!(self.write(writer));
        let mut watching = pin!(self.watch());
        // Why no more is read, while earlier answers still leave.
        let mut read_ended = None;
        let mut answered_late = false;
        poll_fn(|cx| {
            loop {
                let before = self.pipeline.changes();
                if read_ended.is_none()
                    && let Poll::Ready(ended) = reading.as_mut().poll(cx)
                {
                    self.pipeline.poll_answers(cx);
                    match &ended {
                        Ended::Broken(_) => return Poll::Ready(ended),
                        // Nobody waits for what is parked; what is ready may still find a half-open peer.
                        Ended::ByClient => self.pipeline.abandon_unready(),
                        _ => answered_late = !self.pipeline.is_empty() || self.progress.is_writing(),
                    }
                    self.pipeline.end();
                    self.progress.reads(Reading::Between);
                    read_ended = Some(ended);
                }
                self.pipeline.poll_answers(cx);
                if let Poll::Ready(written) = writing.as_mut().poll(cx) {
                    self.may_lose_answers.set(answered_late && written.is_ok());
                    return Poll::Ready(match written {
                        Ok(()) => read_ended.take().unwrap_or(Ended::ByClient),
                        Err(ended) => ended,
                    });
                }
                if self.pipeline.changes() == before {
                    break;
                }
            }
            watching.as_mut().poll(cx).map(Ended::Still)
        })
        .await
    }

    /// Reads requests and has the service take them, until no more can come.
    async fn read(&self, frames: &mut FrameReader) -> Ended {
        loop {
            self.pipeline.room().await;
            yield_if_needed().await;
            let stopped = async {
                self.shared.stopping.said().await;
                None
            };
            let limit = || self.shared.limits.max_request_bytes;
            let next = async { Some(frames.next(limit, &self.progress).await) };
            let Some(frame) = future::or(stopped, next).await else { return Ended::ByServer };
            let taken = match frame {
                Ok(Some(frame)) => self.take(frame),
                Ok(None) | Err(FrameError::CutShort { .. }) => return Ended::ByClient,
                Err(FrameError::Io(error)) => return Ended::Broken(error),
                Err(malformed) => return Ended::Malformed(malformed.to_string()),
            };
            match taken {
                Ok(Taken::Answered(answer)) => self.pipeline.push(Due::Ready(answer)),
                Ok(Taken::Called(call)) => match call.await {
                    Outcome::Answer(answer) => self.pipeline.push(Due::Running(answer)),
                    Outcome::Close(why) => return Ended::ByService(why),
                },
                Err(ended) => return ended,
            }
        }
    }

    /// Begins one request. Not async, so that the parts of a frame take no room in an idle connection.
    fn take(&self, frame: InboundFrame) -> Result<Taken, Ended> {
        let InboundFrame { bytes, permit } = frame;
        let metrics = self.shared.metrics.of(self.listener);
        metrics.requests.add(1);
        metrics.bytes_received.add(bytes.len() as u64);
        let (header, body) = self.header(bytes)?;
        if header.api_key == ApiKey::API_VERSIONS {
            return self.api_versions(&header, body).map(Taken::Answered);
        }
        let connection = Rc::clone(&self.info);
        let request = InboundRequest { header, body, connection, permit };
        Ok(Taken::Called(Rc::clone(&self.shared.service).call(request)))
    }

    /// The header of a request that this listener serves; ApiVersions it serves in any version.
    fn header(&self, frame: Bytes) -> Result<(RequestHeader, Cursor), Ended> {
        let mut body = Cursor::new(frame);
        let header = decode_request_header(&mut body).map_err(|error| Ended::Malformed(error.to_string()))?;
        let RequestHeader { api_key, api_version, .. } = header;
        if api_key == ApiKey::API_VERSIONS || self.apis.serves(api_key, api_version) {
            return Ok((header, body));
        }
        let listener = &self.info.listener;
        Err(Ended::Malformed(format!("{api_key} version {api_version} is not served on listener {listener}")))
    }

    fn api_versions(&self, header: &RequestHeader, mut body: Cursor) -> Result<Answer, Ended> {
        let version = header.api_version;
        let (response, version) = if ApiVersionsRequest::has_version(version) {
            let request = ApiVersionsRequest::decode(&mut body, version);
            let request = request.map_err(|error| Ended::Malformed(error.to_string()))?;
            if let Some(software) = versions::client_software(&request) {
                self.info.set_client_software(software);
            }
            let data = self.shared.service.api_versions(&self.info.listener);
            (versions::answer(&request, version, &data), version)
        } else {
            (versions::unsupported(), 0)
        };
        encode_response(header.correlation_id, version, &response)
            .map(Answer::Frame)
            .map_err(|error| Ended::ByService(error.to_string()))
    }

    /// Writes answers as they become due. Ends without an error once no more can come.
    async fn write(&self, writer: &mut FrameWriter) -> Result<(), Ended> {
        loop {
            let answer = match self.pipeline.take_ready() {
                Some(answer) => answer,
                None => {
                    writer.flush().await.map_err(Ended::from)?;
                    let Some(answer) = self.pipeline.next().await else { return Ok(()) };
                    answer
                }
            };
            match answer {
                Answer::Frame(frame) => writer.write(frame).await.map_err(Ended::from)?,
                Answer::Nothing => self.progress.moved(now()),
                Answer::Close(why) => {
                    writer.flush().await.map_err(Ended::from)?;
                    return Err(Ended::ByService(why));
                }
            }
        }
    }

    /// Ends when nothing has moved for too long.
    async fn watch(&self) -> Stillness {
        loop {
            // Once nothing more is read, a client that is gone is noticed only by the clock.
            let answers_due = !self.pipeline.is_empty() && !self.pipeline.has_ended();
            let budget = if self.shared.budget.waiting() > 0 { Budget::Wanted } else { Budget::Free };
            match self.progress.check(now(), self.shared.limits.idle_timeout, answers_due, budget) {
                Ok(pause) => sleep(pause).await,
                Err(still) => return still,
            }
        }
    }
}

impl From<WriteError> for Ended {
    fn from(error: WriteError) -> Ended {
        match error {
            WriteError::Io(error) => Ended::Broken(error),
            unsent => Ended::Unsent(unsent),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::ByClient => f.write_str("the client closed it"),
            Ended::ByServer => f.write_str("the server stops"),
            Ended::Broken(error) => write!(f, "it broke: {error}"),
            Ended::Malformed(why) => write!(f, "the client does not speak the protocol: {why}"),
            Ended::Still(Stillness::Idle(time)) => write!(f, "no request came for {time:?}"),
            Ended::Still(Stillness::FrameStalled(time)) => {
                write!(f, "a request stopped half-way for {time:?}")
            }
            Ended::Still(Stillness::FrameTrickled { held, brought, time }) => write!(
                f,
                "a request that held {held} bytes of the memory for requests brought {brought} in {time:?}, and \
                 others waited for it"
            ),
            Ended::Still(Stillness::NotReading(time)) => write!(f, "the client read nothing for {time:?}"),
            Ended::ByService(why) => write!(f, "it cannot go on: {why}"),
            Ended::Unsent(error) => write!(f, "a response could not be finished: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ListenerName;
    use crate::service::ConnectionId;
    use crate::versions::ApiVersionsData;
    use std::time::Duration;
    use tarn_runtime::{CoreSpec, socket, spawn_core};

    /// What an idle connection may take: 2 KiB, less what its task puts around it.
    const IDLE_BYTES_MAX: usize = (2 << 10) - 256;

    #[test]
    fn an_idle_connection_is_small() {
        let spec = CoreSpec { cpu: None, name: "sized".to_owned() };
        let bytes = spawn_core(spec, || async {
            let listener = socket::Listener::bind(([127, 0, 0, 1], 0).into(), 1).unwrap();
            let address = listener.local_addr().unwrap();
            let socket = socket::connect("127.0.0.1", address.port(), Duration::from_secs(5)).await.unwrap();
            let info = ConnectionInfo::new(ConnectionId(1), ListenerName::from("L"), address, address);
            let shared = Shared {
                service: Rc::new(Silent),
                limits: ConnectionLimits::default(),
                budget: MemoryBudget::unlimited(),
                metrics: Arc::default(),
                stopping: Stopping::default(),
            };
            size_of_val(&serve(socket, Rc::new(info), Rc::new(shared)))
        });
        let bytes = bytes.unwrap().join();
        assert!(bytes <= IDLE_BYTES_MAX, "{bytes} bytes");
    }

    struct Silent;

    impl Service for Silent {
        fn call(self: Rc<Self>, _: InboundRequest) -> LocalBoxFuture<'static, Outcome> {
            Box::pin(async { Outcome::ready(Answer::Nothing) })
        }

        fn api_versions(&self, _: &ListenerName) -> ApiVersionsData {
            ApiVersionsData {
                apis: Rc::default(),
                supported_features: Vec::new(),
                finalized_features_epoch: -1,
                finalized_features: Vec::new(),
                cluster_id: tarn_wire::Str::default(),
                node_id: 1,
            }
        }
    }
}
